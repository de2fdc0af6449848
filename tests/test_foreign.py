"""Any nbgrader course is graded: its own quickstart with stock's scores, and nobody gains by switching asserts off."""

import json
import random
import re
import shutil
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import nbformat
import nbgrader
import pytest
from classroom import answer, answered, asserts, code, ended, hand_in, marks, notebook, run, start

from autograder import canary, marking, results
from autograder.course import Course
from autograder.errors import CourseError
from autograder.grade import grade
from autograder.gradebook import Book, complete
from autograder.kernels import Limits, Ran
from autograder.ledger import state
from autograder.outputs import error_output
from autograder.report import as_json, class_tables, score_tables
from autograder.results import ASSERTED, BY_HAND, JUDGED

USER_GUIDE = Path(nbgrader.__file__).parent / "docs" / "source" / "user_guide"

# ---- a course of plain asserts, and how learners turn on them -----------------------------------------------------

SQUARES = notebook(
    code("import numpy as np, math", "imports"),
    code("offset = 1", "demo", tags=["demo"]),
    code("pass", "theirs"),
    answer("squares", "def squares(n):\n    ### BEGIN SOLUTION\n    return [i * i for i in range(1, n + 1)]\n"
                      "    ### END SOLUTION"),
    asserts("equal", "assert squares(2) == [1, 4]\n### BEGIN HIDDEN TESTS\nassert squares(3) == [1, 4, 9]\n"
                     "### END HIDDEN TESTS", 1),
    asserts("allclose", "np.testing.assert_allclose(squares(2), [1.0, 4.0])", 2),
    asserts("isclose", "assert math.isclose(sum(squares(2)), 5.0)", 3),
    answer("share", "share = 0\n### BEGIN SOLUTION\nshare = 4\n### END SOLUTION"),
    asserts("partial", "share", 4),
)
TESTS = ("equal", "allclose", "isclose", "partial")
# In another course a cell that is called a demo is run like any other.
RIGHT = {"squares": "def squares(n):\n    return [i * i for i in range(offset, n + offset)]", "share": "share = 4"}
WRONG = {"squares": "def squares(n):\n    return []", "share": "share = 1"}
IP = "ip = get_ipython()\n"
STRUCK = canary.NEUTRALISED

# What stands in a cell of their own above wrong answers, and which tests a canary must strike out; the rest fail by
# themselves, and the partial mark is what it is worth where it is not struck out.
TAMPERED = {
    "ast-transformer": (IP + """
import ast
class NoAsserts(ast.NodeTransformer):
    def visit_Assert(self, node): return ast.Pass()
ip.ast_transformers.append(NoAsserts())""", {"equal", "isclose", "partial"}),
    "input-transformer": (IP + """
def silent(lines):
    return [line for line in lines if 'assert' not in line] or ['pass\\n']
ip.input_transformers_post.append(silent)""", set(TESTS)),
    "python -O": ("""
import builtins
old = builtins.compile
def compile_O(*args, **kwargs):
    kwargs['optimize'] = 1
    return old(*args, **kwargs)
builtins.compile = compile_O""", {"equal", "isclose", "partial"}),
    "debug off": ("import builtins\nbuiltins.__dict__['__debug__'] = False", set()),
    "numpy's tests patched": ("np.testing.assert_allclose = lambda *args, **kwargs: None\n"
                              "math.isclose = lambda *args, **kwargs: True", {"allclose", "isclose"}),
    "exec patched": ("import builtins\nbuiltins.exec = lambda *args, **kwargs: None", set(TESTS)),
    "run_cell patched": (IP + """
old = ip.run_cell
def run_cell(*args, **kwargs):
    result = old(*args, **kwargs)
    result.error_in_exec = result.error_before_exec = None
    return result
ip.run_cell = run_cell
ip.showtraceback = ip._showtraceback = lambda *args, **kwargs: None""", set(TESTS)),
    "do_execute patched": ("""
async def do_execute(*args, **kwargs):
    return {'status': 'ok', 'execution_count': 1, 'payload': [], 'user_expressions': {}}
get_ipython().kernel.do_execute = do_execute""", set(TESTS)),
    "only cells that call it": (IP + """
old = ip.input_transformer_manager.transform_cell
def transform(cell):
    return old('pass' if 'squares(' in cell and 'def' not in cell else cell)
ip.input_transformer_manager.transform_cell = transform""", {"equal", "allclose", "isclose"}),
    "tracebacks silenced": (IP + "ip.showtraceback = ip._showtraceback = lambda *args, **kwargs: None", set()),
    "custom exception handler": (IP + "ip.set_custom_exc((BaseException,), lambda *args, **kwargs: None)", set()),
    "only cells of many lines": (IP + """
import ast
class NoAsserts(ast.NodeTransformer):
    def visit_Module(self, node):
        return ast.Module([ast.Pass()], []) if len(node.body) > 1 else node
ip.ast_transformers.append(NoAsserts())""", {"equal"}),
    "only the test as released": (IP + """
old = ip.input_transformer_manager.transform_cell
def transform(cell):
    return old('pass' if 'assert squares(2) == [1, 4]' in cell else cell)
ip.input_transformer_manager.transform_cell = transform""", {"equal"}),
    "hook that raises": (IP + "def hook(*args): raise SystemExit\nip.events.register('pre_run_cell', hook)", None),
    "hook that raises afterwards": (IP + "def hook(*args): raise ValueError\n"
                                    "ip.events.register('post_run_cell', hook)", None),
    "AssertionError replaced": ("import builtins\nbuiltins.AssertionError = type('Quiet', (Exception,), {})", set()),
    "nothing displayed": (IP + "ip.ast_node_interactivity = 'none'", {"partial"}),
    "display forged": (IP + "ip.display_formatter.format = lambda *args, **kwargs: ({'text/plain': '4'}, {})",
                       {"partial"}),
}
ANSWERS = {
    "equals everything": ("class All(list):\n    def __eq__(self, other): return True\n"
                          "def squares(n): return All()", {"equal"}),
    "equals what is likely": ("class Likely(list):\n    def __eq__(self, other): return other[0] < 1000\n"
                              "def squares(n): return Likely()", {"equal"}),
    "sys.exit": ("def squares(n):\n    import sys\n    sys.exit(0)", set()),
    "os._exit": ("def squares(n):\n    import os\n    os._exit(0)", set()),
    "KeyboardInterrupt": ("def squares(n):\n    raise KeyboardInterrupt", set()),
    "usage error": ("def squares(n):\n    from IPython.core.error import UsageError\n    raise UsageError", set()),
}
# Above right answers: nothing is struck out.
HONEST = {
    "right": "pass", "short tracebacks": "%xmode Minimal", "every value displayed": IP +
    "ip.ast_node_interactivity = 'all'", "rounded numbers": "%precision 2", "a name of theirs": "max = 3\nall = []",
    "a warning": "import warnings, sys\nwarnings.warn('old')\nprint('hm', file=sys.stderr)",
    "a hook": IP + "ip.events.register('post_run_cell', lambda result: print('done'))",
    "numpy": "np.set_printoptions(precision=1)",
}


def who(name):
    return name.replace(" ", "-").replace("'", "")


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory):
    """nbgrader's quickstart with its own two submissions, and beside it a course of ours; graded by us and by stock."""
    folder = tmp_path_factory.mktemp("foreign")
    made = run("nbgrader", "quickstart", "course101", cwd=folder)
    assert made.code == 0, made.err[-2000:]
    course, stock = Course(folder / "course101"), Course(folder / "stock")
    shutil.copytree(USER_GUIDE / "submitted", course.submitted)
    shutil.copytree(course.root, stock.root)
    assert run("nbgrader", "generate_assignment", "ps1", cwd=stock.root).code == 0
    running = start("nbgrader", "autograde", "ps1", cwd=stock.root)
    path = course.path(course.source, ".", "ps2") / "squares.ipynb"
    path.parent.mkdir()
    nbformat.write(SQUARES, path)
    complete(course, ["ps2"])
    blank = nbformat.read(course.path(course.release, ".", "ps2") / "squares.ipynb", as_version=4)
    for name, cell in {**HONEST, **{name: text for name, (text, _) in TAMPERED.items()}}.items():
        texts = {**(RIGHT if name in HONEST else WRONG), "theirs": cell}
        hand_in(course, who(name), answered(blank, texts), file="squares.ipynb", assignment="ps2")
    for name, (text, _) in ANSWERS.items():
        texts = {**WRONG, "squares": text}
        hand_in(course, who(name), answered(blank, texts), file="squares.ipynb", assignment="ps2")
    before = sorted(path.name for path in course.root.iterdir())
    records = grade(course, jobs=2, limits=Limits(cell=10, grace=1))
    return SimpleNamespace(course=course, stock=stock, finished=ended(running), records=records, before=before)


def test_assignment_that_the_gradebook_lacks_is_made_from_source(quickstart):
    assert "autograded" not in quickstart.before and ".autograder" not in quickstart.before
    with Book(quickstart.course) as book:
        assert book.assignments() == ["ps1", "ps2"]
        assert len(book.editions("ps1")) == 2
    assert (quickstart.course.release / "ps1" / "jupyter.png").is_file()


def test_quickstart_is_graded_with_stocks_scores(quickstart):
    assert quickstart.finished.code == 0, quickstart.finished.err[-2000:]
    ours, theirs = marks(quickstart.course, "ps1"), marks(quickstart.stock, "ps1")
    assert ours == theirs and len(ours) == 18
    assert Counter(mark is None for mark, _, _ in ours.values()) == {False: 9, True: 9}


@pytest.mark.parametrize("name", {**TAMPERED, **ANSWERS})
def test_who_switches_asserts_off_gains_nothing(quickstart, name):
    struck = {**TAMPERED, **ANSWERS}[name][1]
    found = {record.exercise: record for record in quickstart.records if record.student == who(name)}
    points = {exercise: record.points for exercise, record in found.items()}
    assert [points[test] for test in TESTS[:3]] == [0, 0, 0]
    assert points["partial"] == (0 if struck is None or "partial" in struck else 1)
    if struck is not None:
        assert {test for test in TESTS if found[test].kind == STRUCK} == struck
        assert all(found[test].verdict == "error" and found[test].message for test in struck)


@pytest.mark.parametrize("name", HONEST)
def test_right_answers_pass_between_their_canaries(quickstart, name):
    found = [(record.verdict, record.kind) for record in quickstart.records if record.student == who(name)]
    assert found == [("passed", None)] * 4


def test_what_was_struck_out_waits_for_a_person_and_nbgrader_reads_0(quickstart):
    assert marks(quickstart.course, "ps2")[who("python -O"), "equal"] == (0, None, True)
    path = quickstart.course.path(quickstart.course.autograded, who("python -O"), "ps2") / "squares.ipynb"
    outputs = {cell.metadata.nbgrader.grade_id: cell.outputs for cell in nbformat.read(path, as_version=4).cells
               if cell.metadata.get("nbgrader", {}).get("grade")}
    assert outputs["equal"][0].ename == "AssertsNeutralised" and "assert False" in outputs["equal"][0].evalue


def test_without_canaries_a_transformer_passes_every_test(quickstart, monkeypatch):
    monkeypatch.setattr(marking, "around", lambda test: [])
    monkeypatch.setattr(marking, "twisted", lambda test, seed: None)
    course = Course(shutil.copytree(quickstart.course.root, quickstart.course.root.with_name("off")))
    records = grade(course, chapter="ps2", student=who("input-transformer"), yes=True)
    assert [record.points for record in records] == [1, 2, 3, 1]


# ---- how far a score can be trusted -------------------------------------------------------------------------------


def test_every_score_says_how_far_it_can_be_trusted(quickstart):
    found = {(record.chapter, record.exercise): record.trust for record in quickstart.records}
    assert {trust for (chapter, _), trust in found.items() if chapter == "ps2"} == {ASSERTED}
    assert found["ps1", "correct_squares"] == ASSERTED and found["ps1", "part-a"] == BY_HAND
    assert found["ps1", "sum_of_squares_application"] == BY_HAND
    assert {record["trust"] for record in json.loads(as_json(quickstart.records))} == {ASSERTED, BY_HAND}
    assert "asserted" in printed(score_tables(quickstart.records)) and "by hand" in printed(
        class_tables(quickstart.records))
    entries = [json.loads(line) for line in (state(quickstart.course) / "log.jsonl").read_text().splitlines()]
    assert next(one for one in entries if one["student"] == "hacker")["trust"] == {ASSERTED: 4, BY_HAND: 5}


def test_check_lines_are_judged_apart():
    line = 'from autograder.checks import check; check("softmax_jacobian", softmax_jacobian)'
    cell = asserts("f-tests", f"assert True\n### BEGIN HIDDEN TESTS\n{line}\n### END HIDDEN TESTS", 1)
    assert results.trust_of(cell) == JUDGED


def printed(tables):
    from autograder.progress import console

    out = console()
    with out.capture() as shown:
        for table in tables:
            out.print(table)
    return shown.get()


# ---- what a canary is ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("test", "helper"), [
    ("np.testing.assert_allclose(f(1), 2)", "np.testing.assert_allclose(1.0, 2.0)"),
    ("assert torch.equal(f(1), x)", "assert torch.equal(1.0, 2.0)"),
    ("assert abs(f(1) - 2) < 1e-6", "assert abs(-3.5) < 1"),
    ("assert np.abs(f(1)) < 1", "assert np.abs(-3.5) < 1"),
    ("assert set(f(1)) == {3}", "assert set([1]) == {2}"),
])
def test_helpers_that_a_test_uses_are_tried(test, helper):
    found = [one.code for one in canary.around(test)]
    assert helper in found
    failed = Ran([error_output("AssertionError", "Not equal")])
    assert canary.around(test)[-1].holds(failed) and not canary.around(test)[-1].holds(Ran([]))


def test_helpers_of_the_course_itself_are_left_alone():
    assert len(canary.around("assert_equal(f(1), 2)\nassert mine.isclose(1, 2)\n%magic")) == 2
    assert len(canary.around("assert_equal(f(1), 2)\nassert mine.isclose(1, 2)")) == 2


HIDDEN = "### BEGIN HIDDEN TESTS\n{}\n### END HIDDEN TESTS"


@pytest.mark.parametrize(("test", "changed"), [
    ("assert f(2) == [1, 4], 'm'", r"assert f\(2\) == \[(?!1, 4\])-?\d+, -?\d+\], 'm'"),
    ("y = 'ü'\nx = 'ä'; assert h(x) == 'ßa'", "y = 'ü'\nx = 'ä'; assert h\\(x\\) == 'ß[b-z]'"),
    ("assert abs(f(1) - 2.5) < 1e-6", r"assert abs\(f\(1\) - (?!2\.5)\d+\.5\) < 1e-6"),
    ("assert np.allclose(f(1), np.array([[1, 2]]), atol=0.5)",
     r"assert np.allclose\(f\(1\), np.array\(\[\[(1000004, 2|1, 1000005)\]\]\), atol=0.5\)"),
    ("np.testing.assert_equal(f(1), {'a': 1})", r"np.testing.assert_equal\(f\(1\), {'a': (?!1})\d+}\)"),
    ("assert f() == {None}", r"assert f\(\) == \{1000003\}"),
    ("assert f() == True", r"assert f\(\) == False"),
    ("assert f(1) == 1\n" + HIDDEN.format("assert f(2) == '1'"),
     "assert f\\(1\\) == 1\n" + HIDDEN.format(r"assert f\(2\) == '[02-9]'")),
    ("assert f(1) == 1\n" + HIDDEN.format("assert f(x) < x"),
     "assert f\\(1\\) == 1\n" + HIDDEN.format(r"assert not \(f\(x\) < x\)")),
    ("for x in 1, 2:\n    pass\nassert (f(x)\n        == x)",
     "for x in 1, 2:\n    pass\nassert \\(f\\(x\\)\n        == \\(lambda v.*\\)\\(x, \\d+\\.5, '[0-9a-f]{12}'\\)\\)"),
    ("assert np.allclose(f(1), 2, rtol=5)", r"assert not \(np.allclose\(f\(1\), 2, rtol=5\)\)"),
])  # fmt: skip
def test_a_test_is_twisted_so_that_it_must_fail(test, changed):
    assert all(re.fullmatch(changed, canary.twisted(test, f"seed {one}")) for one in range(20))


COMPUTED = {
    "a list": "[2 * i for i in range(4)]", "a tuple": "tuple(range(3))", "a number": "sum(range(5))",
    "a float": "0.1 + 0.2", "a text": "'a' * 3", "a set": "{i for i in range(3)}", "a truth": "bool(3)",
    "a dict": "dict(zip('ab', range(2)))", "an empty list": "[i for i in ()]", "nothing": "{}.get(1)",
}


@pytest.mark.parametrize("expected", COMPUTED.values(), ids=list(COMPUTED))
def test_a_computed_value_is_twisted_within_its_kind(expected):
    """So that a right answer must fail, and one that equals whatever is of that kind passes."""
    kind = type(eval(expected))
    sly = type("Sly", (), {"__eq__": lambda self, other: type(other) is kind, "__hash__": None})
    for one in range(5):
        test = canary.twisted(f"assert f(2) == {expected}", f"seed {one}")
        with pytest.raises(AssertionError):
            exec(test, {"f": lambda n: eval(expected)})
        if kind is not type(None):
            exec(test, {"f": lambda n: sly()})


def test_how_a_test_is_twisted_cannot_be_foretold():
    for test in ("assert f(2) == 40", "assert f(2) == 'abc'", "assert abs(f(2) - 40) < 0.5", "assert f(2) == g(2)"):
        assert len({canary.twisted(test, f"seed {one}") for one in range(40)}) > 8


@pytest.mark.parametrize("value", [0, 7, -3, 0.001, -2.5, 12345.678, 10**9, 1e300, [5, 6], (1.5,), {2}])
def test_no_tolerance_by_default_takes_the_changed_value_for_the_right_one(value):
    for one in range(50):
        changed = canary._other(value, random.Random(one))
        near = [abs(a - b) <= 0.2 + 0.1 * max(abs(a), abs(b)) for a, b in zip(*map(flat, (value, changed)))]
        assert type(changed) is type(value) or changed == 0
        assert not all(near)


def flat(value):
    return list(value) if isinstance(value, list | tuple | set) else [value]


@pytest.mark.parametrize("test", [
    "for i in range(3):\n    assert f(i) == 3", "if x:\n    assert f(1) == 2", "%magic", "",
    "def test():\n    assert f(1) == 2\ntest()", "np.testing.assert_allclose(f(1), x)",
])
def test_no_test_is_twisted_that_a_right_answer_might_still_pass(test):
    assert canary.twisted(test, "seed") is None


# ---- what is refused ----------------------------------------------------------------------------------------------


def other(folder, source, **more):
    (folder / "source" / "ps1").mkdir(parents=True)
    (folder / "nbgrader_config.py").write_text("c = get_config()\n")
    nbformat.write(source, folder / "source" / "ps1" / "squares.ipynb")
    course = Course(folder)
    hand_in(course, "ann", source, file="squares.ipynb")
    return course


def test_notebook_in_another_language_is_refused(tmp_path):
    source = notebook(*SQUARES.cells)
    source.metadata["kernelspec"] = {"name": "ir", "display_name": "R", "language": "R"}
    course = other(tmp_path / "c", source)
    with pytest.raises(CourseError, match="a notebook in R; this grader runs Python"):
        grade(course)


def test_release_that_only_the_gradebook_has_lost_is_not_made_again(tmp_path):
    course = other(tmp_path / "c", SQUARES)
    (course.release / "ps1").mkdir(parents=True)
    nbformat.write(SQUARES, course.release / "ps1" / "squares.ipynb")
    before = (course.release / "ps1" / "squares.ipynb").read_bytes()
    with pytest.raises(CourseError, match="not in the gradebook .* generate_assignment ps1 --force"):
        grade(course)
    assert (course.release / "ps1" / "squares.ipynb").read_bytes() == before
