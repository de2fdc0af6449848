"""Each layer of the sandbox is shown by what it refuses, and by what gets through once it is left out."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from autograder import grade
from autograder.errors import CourseError
from autograder.kernels import DEAD, Kernel, Session, forge
from autograder.sandbox import missing, policy, seccomp, zygote
from autograder.sandbox.walls import WORK

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"no sandbox here: {missing()}")
ROOT = os.getuid() == 0
MEBI = 1 << 20

UNSHARE = "import ctypes, os; print(ctypes.CDLL(None, use_errno=True).unshare(0x10000000))"
CONNECT = "import socket; print(socket.create_connection(('127.0.0.1', {port}), 3) and 'connected')"
FORKS = """
import os, time
for _ in range(40):
    if os.fork() == 0:
        time.sleep(5)
        os._exit(0)
print('all forked')"""
SHARED = """
import os, time
for _ in range(3):
    if os.fork() == 0:
        hoard = b'x' * ({size} << 20)
        time.sleep(20)
        os._exit(0)
time.sleep({wait})
print('survived')"""
CROWD = """
import os, time
end = time.monotonic() + 3
for _ in range(12):
    if (child := os.fork()) == 0:
        while time.monotonic() < end:
            pass
        os._exit(0)
while time.monotonic() < end - 0.5 and os.getpriority(os.PRIO_PROCESS, child) < 19:
    time.sleep(0.05)
print('yielding', os.getpriority(os.PRIO_PROCESS, child) == 19)"""
SESSION = "import os\nif os.fork() == 0:\n    print(os.setsid() is None)\nelse:\n    os.wait()"
STATUS = "print([line for line in open('/proc/self/status') if line.startswith(('CapEff', 'NoNewPrivs'))])"

# name: (code, layers to leave out, policy), what it says with all layers, what it says without those.
LAYERS = {
    "seccomp": (UNSHARE, ["seccomp"], {}, "-1", "0"),
    "landlock": ("import os; print('usr' in os.listdir('/'))", ["landlock"], {}, "PermissionError", "True"),
    "network by seccomp": (CONNECT, ["seccomp", "landlock", "network"], {}, "PermissionError", "connected"),
    "files": ("print(open('{bait}').read())", ["files", "landlock"], {}, "FileNotFoundError", "bait"),
    "read-only": ("import os; print(os.open(os.__file__, os.O_RDWR) > 0)", ["files", "landlock", "user"], {},
                  "Permission|Read-only", "True"),
    "limit of processes": (FORKS, ["limits"], {"processes": 20}, "BlockingIOError", "all forked"),
    "limit of memory": ("print(len(bytearray(3 << 30)))", ["limits", "watch"], {"memory": 600 * MEBI}, "MemoryError",
                        str(3 << 30)),
    "memory of all together": (SHARED, ["watch"], {"memory": 450 * MEBI}, "^(?!.*survived)", "survived"),
    "processors, where a crowd wants them": (CROWD, ["watch"], {}, "yielding True", "yielding False"),
    "a session of its own": (SESSION, ["seccomp"], {}, "PermissionError", "True"),
    "capabilities": (STATUS, ["capabilities"], {}, r"CapEff:\\t0000000000000000", r"CapEff:\\t0*[1-9a-f]"),
    "user": ("import os; print(os.getresuid())", ["user"], {}, r"\(1000, 1000, 1000\)",
             r"\(0, 0, 0\)" if ROOT else r"\(1000"),
    "processes": ("import os; print(os.getpid() == 1)", ["processes", "files", "landlock"], {}, "True", "False"),
    "hidden folders": ("import os; print(len(os.listdir('{share}')))", ["hiding"], {"hide": ["{share}"]}, "^0",
                       "^[1-9]"),
}  # fmt: skip
ALWAYS = {
    "network by its namespace": (CONNECT, ["seccomp", "landlock"], {}, "unreachable|refused"),
    "no new privileges": (STATUS, [], {}, r"NoNewPrivs:\\t1"),
    "disk": ("open('/tmp/x', 'wb').write(b'x' * (3 << 20))", [], {"disk": 2 * MEBI}, "No space left"),
    "large file": ("open('/tmp/x', 'wb').write(b'x' * (3 << 20))", [], {"file": 2 * MEBI}, "File too large"),
    "nothing of the package": ("import os; print(os.listdir('{package}'))", [], {}, r"^\[\]|No such file"),
    "no descriptor but three": ("import os; print(sorted(map(int, os.listdir('/proc/self/fd')))[:4])", [], {},
                                r"\[0, 1, 2, 3\]"),
    "clean /proc": ("import os; print([name for name in os.listdir('/proc') if name.isdigit()])", [], {},
                    r"^\['1'\]"),
    "first to go": ("print(open('/proc/self/oom_score_adj').read())", [], {}, "1000"),
    "files of the assignment": (f"print(sorted(__import__('os').listdir('{WORK}')), open('{WORK}/a/b').read())",
                                [], {"files": "{files}"}, r"^\['a'\] seven"),
}  # fmt: skip


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What every piece of code says, by its name and whether a layer was left out."""
    folder = tmp_path_factory.mktemp("sandbox")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(8)
        names = {"port": listener.getsockname()[1], "bait": folder / "bait", "files": folder / "files",
                 "share": Path(sys.prefix, "share"), "package": Path(policy.__file__).parents[1], "size": 200,
                 "wait": 2}
        (folder / "files" / "a").mkdir(parents=True)
        (folder / "files" / "a" / "b").write_text("seven")
        (folder / "files" / "out").symlink_to("/etc/passwd")
        names["bait"].write_text("bait")
        for path in (folder, *folder.parents[:2]):
            path.chmod(0o755)
        runs = {}
        for name, (code, left_out, changes, *_) in {**LAYERS, **ALWAYS}.items():
            always = name in ALWAYS
            for without in (False,) if always else (False, True):
                out = left_out if without or always else []
                runs[name, without] = [filled(code, names), out, json.loads(filled(json.dumps(changes), names))]
        answers = run(folder, list(runs.values()))
    return dict(zip(runs, answers))


def filled(text, names):
    for name, value in names.items():
        text = text.replace(f"{{{name}}}", str(value))
    return text


def run(folder, pieces, **options):
    """The answers of `sandboxed.py`."""
    path = folder / "pieces.json"
    path.write_text(json.dumps(pieces))
    path.chmod(0o644)
    program = [sys.executable, str(Path(__file__).with_name("sandboxed.py")), str(path)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=300, check=False, **options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def matches(pattern, text):
    import re

    return re.search(pattern, " ".join(text.split()) if "\\\\t" not in pattern else text, re.M)


@pytest.mark.parametrize("layer", LAYERS)
def test_layer_refuses_and_nothing_else_does(said, layer):
    *_, refused, let_through = LAYERS[layer]
    assert matches(refused, said[layer, False]), said[layer, False]
    assert matches(let_through, said[layer, True]), said[layer, True]


@pytest.mark.parametrize("layer", ALWAYS)
def test_layer_refuses(said, layer):
    assert matches(ALWAYS[layer][3], said[layer, False]), said[layer, False]


def test_every_refused_call_is_refused_on_both_machines():
    for machine in ("x86_64", "aarch64"):
        lines = len(seccomp.program(machine)) // 8
        assert 100 < lines < 4096  # the kernel's limit


@pytest.mark.skipif(not ROOT, reason="everything else here runs without root then")
def test_sandbox_stands_for_a_user_without_rights(tmp_path):
    tmp_path.chmod(0o755)
    for path in tmp_path.parents[:2]:
        path.chmod(0o755)
    user = {"user": 64321, "group": 64321, "extra_groups": [], "cwd": "/", "env": {"PATH": os.defpath}}
    try:
        subprocess.run([sys.executable, "-c", "import autograder.sandbox"], check=True, capture_output=True, **user)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("another user can't run this Python")
    pieces = [["import os; print(os.getresuid())", [], {}], ["open('/etc/hostname')", [], {}], [UNSHARE, [], {}],
              [FORKS, [], {"processes": 20}], [STATUS, [], {}], ["open('/tmp/x', 'w'); print('written')", [], {}]]
    answers = run(tmp_path, pieces, **user)
    for wanted, answer in zip((r"\(1000, 1000, 1000\)", "FileNotFound|Permission", "-1", "BlockingIOError",
                               r"CapEff:\\t0000000000000000", "written"), answers):
        assert matches(wanted, answer), answer


# ---- where there is none -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("change", "named"), [
    (lambda patch: patch.setattr(policy.landlock, "abi", lambda: 0), "landlock: this kernel offers none"),
    (lambda patch: patch.setattr(policy, "_namespaces", lambda: False), "user namespaces: refused; set"),
    (lambda patch: patch.setattr(policy.sys, "platform", "darwin"),
     r"darwin has none; grade in a Linux container: docker run .*seccomp=unconfined"),
    (lambda patch: patch.setattr(policy.sys, "platform", "win32"), "win32 has none; grade in WSL 2"),
])
def test_missing_layer_is_named_with_its_cure(monkeypatch, change, named):
    change(monkeypatch)
    assert any(matches(named, line) for line in missing())


def test_grading_refuses_without_a_layer_and_says_which(monkeypatch, tmp_path):
    from autograder.course import Course

    monkeypatch.setattr(grade, "missing", lambda: ["landlock: none here"])
    (tmp_path / "nbgrader_config.py").write_text("")
    with pytest.raises(CourseError, match=r"landlock: none here.*--sandbox off"):
        grade.settled(Course(tmp_path), "on")
    assert grade.settled(Course(tmp_path), "off") == "off"


# ---- processes ---------------------------------------------------------------------------------------------------


def test_zygote_refuses_to_fork_with_a_second_thread():
    waiting = threading.Event()
    second = threading.Thread(target=waiting.wait)
    second.start()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        with pytest.raises(RuntimeError, match="threads run before the fork"):
            zygote.refuse_threads()
        zygote._serve(theirs, {"policy": None}, set())
        assert "threads run before the fork" in json.loads(ours.recv(1000))["error"]
    finally:
        waiting.set()
        second.join()
        ours.close()
        theirs.close()


WARMED = "import sys; from autograder.sandbox import zygote; zygote._warm_up(); print(*sys.modules)"


def test_kernel_imports_nothing_at_its_start_nor_for_its_first_error_and_figure():
    """What one does, every kernel of a class does: ipykernel's debugger alone was the half of its start."""
    warmed = subprocess.run([sys.executable, "-c", WARMED], capture_output=True, text=True, check=True, timeout=120)
    with forge(sandboxed=True) as warm, Kernel(warm=warm) as kernel:
        kernel.run("def f(x):\n    return 1 / x\nf(0)")
        kernel.run("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()")
        here = kernel.run("import sys\nprint(*sys.modules)").outputs[0].text.split()
        new = sorted(set(here) - set(warmed.stdout.split()))
        assert len(here) > 1000 and not new, " ".join(new)
        assert not kernel.run("import debugpy").outputs, "a learner may still import it"


@pytest.fixture(scope="module")
def both():
    """A kernel of ours and one as ipykernel makes it."""
    with forge(sandboxed=True) as warm, Kernel(warm=warm) as ours, Kernel() as plain:
        yield ours, plain


OUTPUT = """
import os, sys, threading, logging
for i in range(3):
    print(i, end=" ")
    print("err", i, file=sys.stderr)
    if i == 1:
        sys.stdout.flush()
os.system("echo from a child")
os.write(1, b"past the stream\\n")
thread = threading.Thread(target=print, args=("from a thread",))
thread.start()
thread.join()
print("no line end", end="")
"""


def test_nothing_that_a_cell_prints_is_lost(both):
    """Flushing where nothing waits is left out: four times a cell it took as long as the cell."""
    for kernel in both:
        for _ in range(20):
            outputs = kernel.run(OUTPUT).outputs
            out, err = ("".join(one.text for one in outputs if one.name == name) for name in ("stdout", "stderr"))
            assert all(text in out for text in ("0 1 2", "from a thread", "no line end")), out
            assert err == "err 0\nerr 1\nerr 2\n"


WAITS = {
    "nothing": ("1 + 1", "2"),
    "await": ("import asyncio\nawait asyncio.sleep(0)\n3", "3"),
    "async with": ("class A:\n    async def __aenter__(self): return 4\n    async def __aexit__(self, *_): pass\n"
                   "async with A() as a:\n    b = a\nb", "4"),
    "async for": ("async def numbers():\n    yield 5\nasync for n in numbers():\n    pass\nn", "5"),
    "async comprehension": ("async def numbers():\n    yield 6\n[n async for n in numbers()]", "[6]"),
    "the word alone": ("'await'", "'await'"),
    "a magic": ("%%capture said\nprint(8)\n", None), "what it took": ("int(said.stdout)", "8"),
    "a line of the shell": ("found = !echo 9\nfound[0]", "'9'"),
    "who": ("abc = 1\n%who_ls int", None), "reset": ("import torch\n%reset -f\n'abc' in globals()", "False"),
    "all reset": ("import numpy\n%reset -f aggressive\nimport sys\n'numpy' in sys.modules", None),
    "a warning logged": ("import logging\nlogging.getLogger('x').warning('seen')", None),
    "help": ("len?", None), "no Python": ("1 +", None),
    "a cell in a cell": ("get_ipython().run_cell('%precision 2\\n10')\n0.5", "0.50"),
    "a function": ("async def f():\n    return 7\nimport asyncio\ntype(f).__name__", "'function'"),
}


@pytest.mark.parametrize(("code", "shown"), WAITS.values(), ids=list(WAITS))
def test_cell_may_wait_for_something(both, code, shown):
    ours, plain = ([(one.get("data"), one.get("ename")) for one in kernel.run(code).outputs] for kernel in both)
    assert ours == plain
    assert shown is None or ours[-1][0]["text/plain"] == shown


ERRORS = {
    "in the cell": "x = 1\nx / 0",
    "two cells deep": "def g(x):\n    return f(x)\n\ng(0)",
    "through a library": "import json\njson.loads('{')",
    "from another": "try:\n    f(0)\nexcept ZeroDivisionError as error:\n    raise ValueError('no') from error",
    "recursion": "def r(n):\n    return r(n + 1)\nr(0)",
    "no file": "exec('1 / 0')",
    "in a class of the cell": "class A:\n    def __init__(self):\n        self.b\nA()",
    "syntax": "x = = 1",
}


@pytest.mark.parametrize("code", ERRORS.values(), ids=list(ERRORS))
def test_traceback_is_the_one_that_ipython_shows(both, code):
    """Cells are found without a look at every module, and what is found is the same."""
    shown = []
    for kernel in both:
        kernel.run("def f(x):\n    y = 1\n    return y / x")
        kernel.run("import sys, inspect\nsys.setrecursionlimit(300)")
        error = kernel.run(code).outputs[-1]
        lines = "\n".join(error.traceback).splitlines()
        shown.append((error.ename, error.evalue, [line for line in lines if "/ipykernel_" not in line]))
    names = [re.sub(r"/tmp/ipykernel_\d+/\d+\.py|File \S+", "", str(one)) for one in shown]
    assert names[0] == names[1]


def test_inspect_finds_the_learners_own_and_the_librarys(both):
    found = ("import inspect, sys, json\ndef own(): pass\nclass Own: pass\n"
             "[inspect.getmodule(thing).__name__ for thing in (own, Own, json.loads, json, json.JSONDecoder)],"
             " inspect.getsource(own), inspect.getmodule(sys._getframe()) is None")
    ours, plain = (kernel.run(found).outputs[0].data["text/plain"] for kernel in both)
    assert ours.rpartition(",")[0] == plain.rpartition(",")[0] and "__main__" in ours


GRADER = """
import time
from autograder.kernels import Kernel, forge
with forge(sandboxed=True) as warm, Kernel(warm=warm) as kernel:
    ran = kernel.run("import os, subprocess\\nsubprocess.Popen(['sleep', '501'], process_group=0)\\n"
                     "if os.fork() == 0:\\n    os.setpgid(0, 0)\\n    import time\\n    time.sleep(500)")
    print(warm.zygote._process.pid, kernel._manager.provisioner.pid, flush=True)
    {then}
"""


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def below(pid):
    """The processes that descend from one."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents.setdefault(int(path.read_text().rpartition(")")[2].split()[1]), []).append(int(path.parent.name))
        except OSError:
            continue
    found, waiting = [], [pid]
    while waiting:
        children = parents.get(waiting.pop(), [])
        found += children
        waiting += children
    return found


def test_another_zygote_takes_the_place_of_one_that_was_killed():
    with forge(sandboxed=True) as warm, Session(warm=warm) as session:
        session.run("x = 40")
        threading.Timer(0.5, os.kill, (warm.zygote._process.pid, signal.SIGKILL)).start()
        died = session.run("import time\ntime.sleep(60)")  # what was forked from a zygote dies with it
        assert died.stop == DEAD and session.run("x + 2").outputs[0].data["text/plain"] == "42"
        with Kernel(warm=warm) as second:
            assert not second.run("2").stop


def test_zygote_that_cannot_be_replaced_says_why(monkeypatch):
    with forge(sandboxed=True) as warm:
        os.kill(warm.zygote._process.pid, signal.SIGKILL)
        monkeypatch.setattr(sys, "executable", "/bin/false")
        for _ in range(2):
            with pytest.raises(OSError, match="did not start"), Kernel(warm=warm):
                pass
        monkeypatch.undo()
        with Kernel(warm=warm) as kernel:  # and once it can, goes on
            assert not kernel.run("1").stop


@pytest.mark.parametrize("killed", ["grader", "zygote", "kernel"])
def test_no_process_is_left_behind(killed):
    with subprocess.Popen([sys.executable, "-c", GRADER.format(then="time.sleep(60)")],
                          stdout=subprocess.PIPE, text=True) as grader:
        forked, kernel = map(int, grader.stdout.readline().split())
        family = {"grader": grader.pid, "zygote": forked, "kernel": kernel}
        below_it = below(family[killed])
        assert len(below_it) >= 2
        os.kill(family[killed], signal.SIGKILL)
        until = time.monotonic() + 10
        while any(map(alive, below_it)) and time.monotonic() < until:
            time.sleep(0.05)
        assert not [pid for pid in below_it if alive(pid)]
        grader.kill()
