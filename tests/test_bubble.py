"""The sandbox that bubblewrap puts up refuses what ours refuses, and says so where it can't stand."""

import time
from pathlib import Path

import pytest

from autograder.kernels import DEAD, TIME, Kernel, Limits, forge
from autograder.sandbox import bubble, policy
from autograder.wire import ANSWER, Plan

needs_bwrap = pytest.mark.skipif(bool(bubble.lacks()), reason=f"no bubblewrap here: {bubble.lacks()}")
FORKS = """
import os, time
for _ in range(300):
    if os.fork() == 0:
        time.sleep(20)
        os._exit(0)
time.sleep(5)"""

# What is tried, and a word of what comes of it.
TRIED = {
    "namespaces": ("import ctypes; print(ctypes.CDLL(None).unshare(0x10000000))", "-1"),
    "files of the system": ("open('/etc/passwd')", "No such file"),
    "files of the grader": ("open({bait!r})", "No such file"),
    "hidden folder": ("import os; print(os.listdir({hidden!r}))", "[]"),
    "installed packages": ("import os; os.open(os.__file__, os.O_RDWR)", "Read-only"),
    "root directory": ("open('/run/x', 'w')", "Read-only"),
    "devices": ("open('/dev/x', 'w')", "Read-only"),
    "network": ("import socket; socket.create_connection(('127.0.0.1', 1), 1)", "Permission denied"),
    "large file": ("open('/tmp/x', 'wb').write(b'x' * (65 << 20))", "File too large"),
    "memory": ("bytearray(5 << 30)", "MemoryError"),
    "the judge": ("import autograder.judge", "No module named"),
    "the checks": ("import autograder.checks", "No module named"),
    "rights": ("print([line for line in open('/proc/self/status') if line.startswith('CapEff')])", "0000000000000000"),
    "processes": ("import os; print([name for name in os.listdir('/proc') if name.isdigit()])", "['1']"),
    "environment": ("import os; print(os.environ['HOME'], 'MY_SECRET' in os.environ)", "/tmp/home False"),
    "own files": ("print(open('a/b').read(), open('mine', 'w').write('x'))", "seven 1"),
    "endless loop": ("while True: pass", "stopped after 2 s"),
    "and goes on": ("print(6 * 7)", "42"),
    "too many processes": (FORKS, "the kernel died|Resource temporarily unavailable"),
}


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What came of each, in one kernel, and of a probe."""
    folder = tmp_path_factory.mktemp("bubble")
    (folder / "files" / "a").mkdir(parents=True)
    (folder / "files" / "a" / "b").write_text("seven")
    (folder / "bait").write_text("bait")
    hidden = Path(policy.readable()[-1]) / "share"
    names = {"bait": str(folder / "bait"), "hidden": str(hidden)}
    found = {}
    with pytest.MonkeyPatch.context() as patch, forge(sandboxed=True, bwrap=True, hide=[hidden]) as warm:
        patch.setenv("MY_SECRET", "x")
        with Kernel(folder / "files", limits=Limits(cell=2, probe=20, grace=1), warm=warm) as kernel:
            for name, (code, _) in TRIED.items():
                if name == "too many processes":
                    found["probe"] = probed(kernel)
                ran = kernel.run(code.format(**names) if "{" in code else code, 8 if "many" in name else None)
                found[name] = (ran.stop, " ".join(str(output) for output in ran.outputs))
    return found


def probed(kernel):
    plan = Plan()
    plan.call(ANSWER, 21)
    kernel.run("def double(x):\n    return 2 * x")
    return kernel.probe("double", [plan])[0].found[plan.steps[0].out]


@needs_bwrap
@pytest.mark.parametrize("name", TRIED)
def test_bubble_refuses_and_lets_work(said, name):
    stop, text = said[name]
    assert any(word in text for word in TRIED[name][1].split("|")), text
    assert stop in ({"endless loop": (TIME,), "too many processes": (DEAD, "")}.get(name, ("",)))


@needs_bwrap
def test_findings_come_back_from_the_bubble(said):
    assert said["probe"] == 42


@needs_bwrap
def test_no_process_of_a_bubble_outlives_it():
    with forge(sandboxed=True, bwrap=True) as warm:
        with Kernel(limits=Limits(cell=5), warm=warm) as kernel:
            kernel.run("import subprocess\nsubprocess.Popen(['sleep', '507'], process_group=0)")
            assert sleepers()
        until = time.monotonic() + 10
        while sleepers() and time.monotonic() < until:
            time.sleep(0.05)
        assert not sleepers()


def sleepers():
    return [path for path in Path("/proc").glob("[0-9]*") if command(path) == b"sleep\x00507\x00"]


def command(path):
    try:
        return (path / "cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize(("change", "named"), [
    (lambda patch: patch.setattr(bubble.shutil, "which", lambda name: None), "there is no bwrap; install it"),
    (lambda patch: patch.setattr("sys.platform", "darwin"), "darwin has none; grade in a Linux container"),
    (lambda patch: patch.setattr(bubble.shutil, "which", lambda name: "/bin/false"), "it ended with 1; let this user"),
])
def test_what_bubblewrap_lacks_is_named_with_its_cure(monkeypatch, change, named):
    change(monkeypatch)
    assert named in bubble.lacks()[0]
