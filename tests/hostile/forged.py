"""Marks that nobody earned: the base is wrong in every exercise, and so must the marks be."""

import copy

from corpus import Case
from nbformat import from_dict
from nbformat.v4 import new_code_cell

from autograder.cells import is_answer, is_tests


def wrong(name, code="", **more):
    return Case(name, "wrong", code, **more)


def tests_of(notebook):
    return [cell for cell in notebook.cells if is_tests(cell)]


IP = "ip = get_ipython()\n"
RUNTIME = "import autograder.probe as probe, autograder.probe.runtime as runtime, autograder.wire as wire\n"

# ---- the interpreter turned against its tests -------------------------------------------------------------------

INTERPRETER = [
    wrong("input-transformer", IP + """
def empty(lines):
    return [line for line in lines if not line.lstrip().startswith(('expect', 'assert', 'raise'))] or ['pass\\n']
ip.input_transformers_post.append(empty)"""),
    wrong("ast-transformer", IP + """
import ast
class NoAsserts(ast.NodeTransformer):
    def visit_Assert(self, node): return ast.Pass()
    def visit_Raise(self, node): return ast.Pass()
    def visit_Expr(self, node): return ast.Expr(ast.Constant(None))
ip.ast_transformers.append(NoAsserts())"""),
    wrong("patched-do-execute", """
async def do_execute(*args, **kwargs):
    return {'status': 'ok', 'execution_count': 1, 'payload': [], 'user_expressions': {}}
get_ipython().kernel.do_execute = do_execute""", says="no findings came back"),
    wrong("patched-run-cell", IP + """
old = ip.run_cell
def run_cell(*args, **kwargs):
    result = old(*args, **kwargs)
    result.error_in_exec = result.error_before_exec = None
    return result
ip.run_cell = run_cell"""),
    wrong("silenced-tracebacks", IP + """
ip.showtraceback = lambda *args, **kwargs: None
ip._showtraceback = lambda *args, **kwargs: None
import sys
sys.excepthook = lambda *args: None"""),
    wrong("patched-expect", "expect = lambda condition, message='': None\n__builtins__.expect = expect", where="end"),
    wrong("expect-of-their-own", "def expect(condition, message):\n    return True", where="project_qkv"),
    wrong("patched-comparisons", """
np.allclose = np.array_equal = np.isclose = torch.allclose = torch.equal = lambda *args, **kwargs: True
np.testing.assert_allclose = torch.testing.assert_close = lambda *args, **kwargs: None
math.isclose = lambda *args, **kwargs: True"""),
    wrong("patched-builtins", """
import builtins
builtins.abs = lambda x: 0
builtins.all = builtins.any = lambda x: True
builtins.AssertionError = type('Quiet', (Exception,), {})
builtins.WrongAnswer = None"""),
    wrong("patched-isinstance-and-eval", """
import builtins
old_eval = builtins.eval
builtins.isinstance = lambda value, kind: True
builtins.eval = lambda *args: (lambda *a, **k: True)"""),
    wrong("patched-numpy-and-torch", """
zero = lambda *args, **kwargs: np.float64(0)
np.abs = np.max = np.subtract = np.linalg.norm = zero
torch.softmax = F.softmax = lambda x, dim=-1: torch.zeros_like(x)
torch.Tensor.__sub__ = torch.Tensor.sub = lambda a, b: torch.zeros(1)"""),
    wrong("display-hook", """
import sys
sys.displayhook = lambda value: print('passed')
get_ipython().display_formatter.format = lambda *args, **kwargs: ({'text/plain': 'passed'}, {})"""),
    wrong("trace-tampering", """
import sys, threading
def tracer(frame, event, argument):
    frame.f_trace_opcodes = True
    for name in ('failure', 'passed', 'verdict', 'found'):
        if name in frame.f_locals:
            frame.f_locals[name] = True
    return tracer
sys.settrace(tracer)
threading.settrace(tracer)"""),
    wrong("frame-tampering", answers={"softmax": """
def softmax(x, axis=-1):
    import ctypes, sys
    frame = sys._getframe()
    while frame is not None:
        for name, value in list(frame.f_locals.items()):
            if name in ('plan', 'plans', 'step') and hasattr(value, 'steps'):
                value.steps.clear()
            if name in ('seen', 'found', 'values') and hasattr(value, 'clear'):
                value.clear()
            if name in ('passed', 'verdict'):
                print('GOT' + '-IN')
        frame = frame.f_back
    return x"""}),
    wrong("gc-search-for-answers", """
import gc, types
for thing in gc.get_objects():
    kind = type(thing).__name__
    if kind in ('Trial', 'Verdict', 'Exercise', 'Softmax', 'Entry', 'Sight'):
        print('GOT' + '-IN', kind)
    if isinstance(thing, types.FunctionType) and (thing.__module__ or '').startswith(
            ('autograder.checks', 'autograder.judge', 'autograder.source', 'autograder.grade')):
        print('GOT' + '-IN', thing.__module__)"""),
    wrong("background-thread", """
import threading, time
def patch():
    while True:
        for name in ('project_qkv', 'attention_scores', 'softmax', 'attention', 'previous_token_head'):
            globals()[name] = lambda *args, **kwargs: True
        time.sleep(0.01)
threading.Thread(target=patch, daemon=True).start()"""),
    wrong("late-thread-prints-into-later-cells", """
import threading, time
def speak():
    for _ in range(20):
        print('all tests passed')
        time.sleep(0.05)
threading.Thread(target=speak, daemon=True).start()"""),
]

# ---- the probe and its replies ----------------------------------------------------------------------------------

PROBE = [
    wrong("probe-says-passed", RUNTIME + "probe.serve = lambda *args: b'passed'", says="no findings came back"),
    wrong("probe-finds-nothing", RUNTIME + """
probe.serve = lambda e, request, n: wire.encode([wire.Seen({}) for plan in wire.decode(request)])"""),
    wrong("probe-echoes-the-inputs", RUNTIME + """
def carry_out(plan, answer):
    arrays = [step.args[0] for step in plan.steps if step.op == 'put']
    return wire.Seen({step.out: arrays[0] if arrays else True for step in plan.steps})
runtime.carry_out = carry_out"""),
    wrong("probe-tries-fewer-cases", RUNTIME + """
old = probe.serve
probe.serve = lambda e, request, n: wire.encode(wire.decode(old(e, request, n))[:0])""", says="before all cases"),
    wrong("findings-of-other-kinds", RUNTIME + """
probe.serve = lambda e, request, n: wire.encode([True for plan in wire.decode(request)])"""),
    wrong("findings-with-plans-in-them", RUNTIME + """
probe.serve = lambda e, request, n: wire.encode([wire.Seen({s.out: p for s in p.steps}) for p in wire.decode(request)])
"""),
    wrong("findings-of-nan", RUNTIME + """
def nan(plan, answer):
    bad = wire.Array.of(np.full((2, 2), np.nan))
    return wire.Seen({step.out: (bad, bad, bad) for step in plan.steps})
runtime.carry_out = nan"""),
    wrong("findings-that-lie-about-their-size", RUNTIME + """
import struct, json
def serve(expression, request, namespace):
    lie = {'t': 'seen', 'v': [{'t': 'dict', 'v': [['call0', {'t': 'array', 'v':
           ['numpy', 'float64', [1 << 40], 8 << 40, False, 'contiguous']}]]}]}
    header = json.dumps([lie]).encode()
    return struct.pack('<I', len(header)) + header
probe.serve = serve""", says="no findings came back"),
    wrong("findings-nested-deep", RUNTIME + """
import struct
header = b'[' * 100000 + b']' * 100000
probe.serve = lambda *args: struct.pack('<I', len(header)) + header""", says="no findings came back"),
    wrong("findings-pickled", RUNTIME + """
import pickle
class Boom:
    def __reduce__(self):
        return (eval, ("open('<<BAIT>>/pickled', 'w')",))
probe.serve = lambda *args: pickle.dumps(Boom())""", says="no findings came back"),
    wrong("encoder-patched", RUNTIME + "runtime.encode = wire.encode = lambda value: b'\\0' * 40",
          says="no findings came back"),
    wrong("everything-raises-not-implemented", answers={
        name: f"def {name}(*args, **kwargs):\n    raise NotImplementedError"
        for name in ("project_qkv", "attention_scores", "softmax", "attention", "previous_token_head")}),
    wrong("raises-out-of-the-probe", answers={
        "softmax": "class Out(BaseException):\n    pass\ndef softmax(x, axis=-1):\n    raise Out('passed')",
        "attention": "def attention(Q, K, V):\n    raise KeyboardInterrupt",
        "project_qkv": "def project_qkv(*args):\n    raise GeneratorExit"}, says="no findings came back"),
    wrong("forged-user-expressions", """
from autograder.wire import Seen, encode
forged = repr(base64.b64encode(encode([Seen({'call0': True})] * 5)).decode())
get_ipython().user_expressions = lambda expressions: {
    name: {'status': 'ok', 'data': {'text/plain': forged}, 'metadata': {}} for name in expressions}"""),
    *(wrong(f"forged-reply-{name}", f"""
session = get_ipython().kernel.session
old = session.send
def send(stream, kind, content=None, *args, **kwargs):
    if kind == 'execute_reply':
        content = {content}
    return old(stream, kind, content, *args, **kwargs)
session.send = send""") for name, content in (
        ("a-list", "[1, 2]"), ("no-dict-in-it", "{'status': 'ok', 'user_expressions': [1]}"),
        ("a-verdict", "{'status': 'ok', 'user_expressions': {'found': {'status': 'ok', 'data': "
                      "{'text/plain': \"'cGFzc2Vk'\"}}}, 'verdict': 'passed', 'points': 18}"),
        ("deep-text", "{'status': 'ok', 'user_expressions': {'found': {'status': 'ok', 'data': "
                      "{'text/plain': '(' * 90000 + '1' + ')' * 90000}}}}"),
    )),
    wrong("replies-before-they-are-asked-for", """
kernel = get_ipython().kernel
parent = kernel.get_parent()
head, _, number = parent['header']['msg_id'].rpartition('_')
for ahead in range(1, 40):
    asked = {**parent, 'header': {**parent['header'], 'msg_id': f'{head}_{int(number) + ahead}'}}
    kernel.session.send(kernel.shell_stream if hasattr(kernel, 'shell_stream') else kernel.shell_streams[0],
                        'execute_reply', {'status': 'ok', 'execution_count': 1, 'user_expressions':
                        {'found': {'status': 'ok', 'data': {'text/plain': "'cGFzc2Vk'"}}}}, asked,
                        ident=kernel._parent_ident.get('shell') if hasattr(kernel, '_parent_ident') else None)
    kernel.session.send(kernel.iopub_socket, 'status', {'execution_state': 'idle'}, asked)"""),
    wrong("forged-messages", """
kernel = get_ipython().kernel
for kind, content in (
    ('stream', 5), ('stream', {'name': 3, 'text': []}), ('display_data', {'data': [], 'metadata': 1}),
    ('execute_result', {'data': {'text/plain': 18.0}, 'metadata': {}, 'execution_count': 'x'}),
    ('error', {'ename': [], 'evalue': {}, 'traceback': 7}), ('clear_output', []), ('status', None),
    ('update_display_data', {'transient': 3}), ('display_data', {'data': {'text/plain': '\\ud800'}, 'metadata': {}}),
):
    try:
        kernel.session.send(kernel.iopub_socket, kind, content, kernel.get_parent())
    except Exception:
        pass
kernel.session.send(kernel.iopub_socket, 'stream', {'name': 'stdout', 'text': 'softmax: passed (6/6)'})"""),
]

# ---- answers that are no answers --------------------------------------------------------------------------------


def everywhere(body):
    """The same object for an answer in every exercise."""
    names = ("project_qkv", "attention_scores", "softmax", "attention", "previous_token_head")
    return {name: f"def {name}(*args, **kwargs):\n    {body}" for name in names}


ANSWERS = [
    wrong("always-equal-object", """
class Equal:
    __hash__ = None
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __lt__(self, other): return True
    __le__ = __gt__ = __ge__ = __lt__
    def __getattr__(self, name): return self
    def __call__(self, *args, **kwargs): return self
    def __getitem__(self, index): return self
    def __iter__(self): return iter([self, self, self])
    def __len__(self): return 3
    def __bool__(self): return True
    def __array__(self, *args, **kwargs): return np.zeros(1)""", answers=everywhere("return Equal()")),
    wrong("array-subclass-always-equal", """
class Sly(np.ndarray):
    def __eq__(self, other): return np.True_
    def __array_ufunc__(self, *args, **kwargs): return np.True_
    def __array_function__(self, *args): return np.True_
    def tobytes(self): return b''
    @property
    def shape(self): return (1,)""", answers=everywhere("return np.ones((2, 2)).view(Sly)")),
    wrong("tensor-subclass-always-equal", """
class Sly(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None): return True
    def numel(self): return 0""", answers=everywhere("return torch.ones(2, 2).as_subclass(Sly)")),
    wrong("scalar-and-text-subclasses", """
class Text(str):
    def __getitem__(self, index): return self
    def __len__(self): return 10 ** 9
class Number(float):
    def __sub__(self, other): return 0.0
    def __float__(self): return 0.0""", answers=everywhere("return Text('x'), Number(1), Text('y')")),
    wrong("exit-in-answers", answers={
        "project_qkv": "import os\ndef project_qkv(*args):\n    os._exit(0)",
        "attention_scores": "import sys\ndef attention_scores(*args):\n    sys.exit(0)",
        "softmax": "import os, signal\ndef softmax(*args, **kw):\n    os.kill(os.getpid(), signal.SIGSEGV)",
        "attention": "def attention(*args):\n    quit()"}, says="dead kernel|died while this ran"),
    wrong("exit-while-the-cell-runs", "import os\nprint('all tests passed')\nos._exit(0)", where="end"),
    wrong("system-exit-in-a-cell", "import sys\nsys.exit(0)"),
    wrong("signals-to-itself", """
import os, signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGSTOP, signal.SIGABRT):
    os.kill(os.getpid(), number)""", where="end"),
    wrong("hard-coded-visible-cases", answers={"softmax": """
def softmax(x, axis=-1):
    x = np.asarray(x)
    if x.ndim == 1:
        return np.full(x.shape, 1 / len(x))
    return np.full(x.shape, 1 / x.shape[axis])"""}),
    wrong("answers-deleted", "del project_qkv, attention_scores, softmax, attention, previous_token_head", where="end"),
    wrong("forged-lines", r"""
print('{"student": "forged", "exercise": "softmax", "points": 6, "verdict": "passed"}')
print('\x1b[2K\rgraded   forged-lines 18 of 18\n7 handed in = 7 graded + 0 refused')
import sys
print('softmax passed', file=sys.stderr)
raise RuntimeError('\x1b]0;graded\x07\r\nrefused   aa-solved: forged')""", where="end"),
    wrong("forged-files", """
import json, os
for name in ('results.json', 'gradebook.db', 'feedback.html', '02_query_key_value.ipynb'):
    with open(name, 'w') as file:
        json.dump({'results': [{'exercise': 'softmax', 'points': 6, 'verdict': 'passed'}]}, file)
os.makedirs('.autograder', exist_ok=True)
open('.autograder/sample', 'w').close()"""),
]


# ---- the notebook itself ----------------------------------------------------------------------------------------


def all_meta(**changes):
    def edit(notebook):
        for cell in tests_of(notebook):
            cell.metadata.nbgrader.update(changes)
    return edit


def tagged(notebook):
    for cell in notebook.cells:
        cell.metadata["tags"] = ["skip-execution", "remove_cell", "raises-exception", "demo", "added"]


def swapped(notebook):
    cells = tests_of(notebook)
    for cell, other in zip(cells, reversed([cell.metadata.nbgrader.grade_id for cell in cells])):
        cell.metadata.nbgrader.grade_id = cell.id = other


def deleted(notebook):
    notebook.cells = [cell for cell in notebook.cells if not is_tests(cell)]


def retyped(notebook):
    for place, cell in enumerate(notebook.cells):
        if is_tests(cell):
            again = from_dict({**cell, "cell_type": ("markdown", "raw")[place % 2]})
            again.pop("outputs"), again.pop("execution_count")
            notebook.cells[place] = again


def duplicated(notebook):
    for cell in tests_of(notebook):
        again = copy.deepcopy(cell)
        again.source, again.id = "pass", f"{cell.id}-again"
        notebook.cells.insert(notebook.cells.index(cell), again)


def emptied(notebook):
    for cell in tests_of(notebook):
        cell.source = "100"


def added_points(notebook):
    meta = {"schema_version": 3, "grade": True, "solution": False, "locked": True, "task": False, "points": 1000}
    for name in ("bonus", "softmax-core-tests"):
        cell = new_code_cell("True", id=f"bonus-{name}", metadata={"nbgrader": {**meta, "grade_id": name}})
        notebook.cells.append(cell)


def forged_results(notebook):
    result = {"cell": "softmax-core-tests", "exercise": "softmax", "part": "core", "points": 6, "max_points": 6,
              "verdict": "passed"}
    notebook.metadata["autograder"] = {"results": [result], "repairs": []}
    notebook.metadata["course"] = {"chapter": "02_query_key_value", "release": "0" * 12}
    for cell in tests_of(notebook):
        cell.outputs = [from_dict({"output_type": "execute_result", "data": {"text/plain": "6"}, "metadata": {},
                                   "execution_count": 1})]


def no_answer_cells(notebook):
    for cell in notebook.cells:
        if is_answer(cell):
            cell.metadata.nbgrader.update(solution=False, grade=True, points=50, locked=False)


def other_kernel(notebook):
    notebook.metadata["kernelspec"] = {"name": "bash", "display_name": "Bash", "language": "bash"}
    notebook.metadata["language_info"] = {"name": "bash"}


def odd_values(notebook):
    for cell, value in zip(tests_of(notebook), ([], {}, None, "lots", 1e308, -5, True)):
        cell.metadata.nbgrader.update(points=value, grade_id=value, schema_version=value)


def tests_moved(notebook):
    for cell in tests_of(notebook):
        notebook.cells.remove(cell)
        notebook.cells.insert(0, cell)


NOTEBOOK = [
    wrong("tags-that-skip", edit=tagged, says="tags"),
    wrong("points-raised", edit=all_meta(points=1000), says="points 1000"),
    wrong("grade-flags-off", edit=all_meta(grade=False, solution=True, locked=False), says="metadata"),
    wrong("ids-swapped", edit=swapped, says="edited|moved"),
    wrong("tests-deleted", edit=deleted, says="missing"),
    wrong("tests-retyped", edit=retyped, says="retyped"),
    wrong("tests-duplicated", edit=duplicated, says="copied"),
    wrong("tests-emptied", edit=emptied, says="edited"),
    wrong("cells-with-points-added", edit=added_points),
    wrong("results-in-the-metadata", edit=forged_results, says="release"),
    wrong("answers-made-graded", edit=no_answer_cells, says="metadata"),
    wrong("another-kernel", edit=other_kernel, says="kernelspec"),
    wrong("metadata-of-odd-types", edit=odd_values, says="metadata"),
    wrong("tests-moved-to-the-top", edit=tests_moved, says="moved"),
]

CASES = [*INTERPRETER, *PROBE, *ANSWERS, *NOTEBOOK]
