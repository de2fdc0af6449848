"""Hostile learners in a class with honest ones: nobody gains, nothing leaks, nothing is touched, the class goes on."""

import contextlib
import os
import pwd
import re
import resource
import socket
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import forged
import greedy
import harm
import honest
import nbformat
import pytest
import secret
from classroom import short_project
from corpus import GOT, WRONG, Case

import autograder
from autograder import kernels
from autograder.grade import grade
from autograder.kernels import Limits
from autograder.ledger import secret_of
from autograder.newcourse import init, released
from autograder.sample import Chapter
from autograder.sandbox.warm import Zygote

CHAPTER = "02_query_key_value"
CANARY = "CANARY-5eed1e55"
HOSTILE = [*forged.CASES, *secret.CASES, *harm.CASES, *greedy.CASES]
CASES = [*HOSTILE, *honest.CASES, Case("aa-solved", "solved"), Case("zz-solved", "solved"), Case("wrong", "wrong")]
SANDBOX_USERS = range(61184, 61184 + 64)


def footprint(*folders):
    """Every file below the folders with what it is and when it was changed, but for the grader's own writing."""
    found = {}
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            status = path.lstat()
            found[str(path)] = (status.st_mode, status.st_uid, status.st_size, status.st_mtime_ns)
    return found


def scratch():
    """What lies in the directory of temporary files, where the grader puts its kernels."""
    ours = ("grading-", ".grading-", "kernel-", "zygote-")
    return [path for path in Path(tempfile.gettempdir()).iterdir() if path.name.startswith(ours)]


def processes():
    """The processes of users that only sandboxes have, but for those of another run that goes on beside this one."""
    parents, found = {}, []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            stat = (path / "stat").read_text().rpartition(")")[2].split()
            zygote = path.stat().st_uid == 0 and b"autograder.sandbox.zygote" in (path / "cmdline").read_bytes()
            parents[path.name] = stat[1], zygote
            found += [path.name] if path.stat().st_uid in SANDBOX_USERS else []
    return [name for name in found if is_ours(list(above(name, parents)), parents)]


def is_ours(ancestors, parents):
    """Does a process come from this one, or from a zygote whose grader has ended?"""
    others = [one for one in ancestors if parents[one][1] and parents[one][0] != "1"]
    return str(os.getpid()) in ancestors or not others


def above(name, parents):
    """The ancestors of a process."""
    while (name := parents[name][0]) in parents:
        yield name


class Listener(threading.Thread):
    """Takes what connects to a loopback port (both protocols), to a socket in a folder and to an abstract one."""

    def __init__(self, bait, abstract):
        super().__init__(daemon=True)
        self.heard = []
        tcp, self.udp = socket.socket(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        tcp.bind(("127.0.0.1", 0))
        self.port = tcp.getsockname()[1]
        self.udp.bind(("127.0.0.1", self.port))
        unix, hidden = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
        unix.bind(str(bait / "socket"))
        (bait / "socket").chmod(0o777)
        hidden.bind(f"\0{abstract}")
        self.taking = [tcp, unix, hidden]
        for one in self.taking:
            one.listen()
            one.setblocking(False)
        self.udp.setblocking(False)
        self.going = True

    def run(self):
        while self.going:
            for one in (*self.taking, self.udp):
                with contextlib.suppress(BlockingIOError):
                    self.heard.append(one.accept()[1] if one is not self.udp else one.recvfrom(10)[0])
            time.sleep(0.05)


def one_class(folder, monkeypatch):
    """The course, the submissions of all cases, and what can be found from inside a sandbox."""
    course = init(short_project(folder / "project", CHAPTER), folder / "course")
    bait = folder / "bait"
    bait.mkdir()
    for path in (*folder.parents, folder):
        if path.stat().st_uid == os.getuid() and path != Path("/"):
            path.chmod(path.stat().st_mode | 0o055)  # a wall must hold where rights alone would let them by
    bait.chmod(0o777)
    (bait / "file").write_text(CANARY)
    monkeypatch.setenv("MY_SECRET", CANARY)
    ears = Listener(bait, f"hostile-{os.getpid()}")
    names = {"COURSE": str(course.root), "BAIT": str(bait), "PORT": str(ears.port), "PID": str(os.getpid()),
             "HOME": pwd.getpwuid(0).pw_dir,
             "PROJECT": str(folder / "project"), "PACKAGE": str(Path(autograder.__file__).parent),
             "ABSTRACT": f"hostile-{os.getpid()}"}
    solved = nbformat.read(course.path(course.source, ".", CHAPTER) / f"{CHAPTER}.ipynb", as_version=4)
    answers = Chapter(released(course, CHAPTER), solved).solved
    for case in CASES:
        notebook = case.notebook(released(course, CHAPTER), answers, names)
        case.hand_in(course.path(course.submitted, case.name, CHAPTER), CHAPTER, notebook, names)
    return SimpleNamespace(course=course, bait=bait, ears=ears)


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """The whole class graded in one run."""
    with pytest.MonkeyPatch.context() as monkeypatch, tempfile.TemporaryDirectory(prefix="h-") as temporary:
        folder = tmp_path_factory.mktemp("hostile")
        monkeypatch.setattr(tempfile, "tempdir", temporary)  # one that no other run writes to
        monkeypatch.setattr(kernels, "Zygote", Zygote)  # one of this run, beside its kernels
        room = one_class(folder, monkeypatch)
        course, watched = room.course, (room.bait, room.course.source, room.course.release, room.course.submitted)
        before = {"files": footprint(*watched), "secret": secret_of(course), "scratch": scratch()}
        told = []
        room.ears.start()
        start, used = time.monotonic(), cpu()
        records = grade(course, jobs=3, limits=Limits(cell=6, probe=6, grace=1, notebook=120),
                        watch=lambda done, total, outcome: told.append(outcome))
        print(f"\n{len(CASES)} submissions, {time.monotonic() - start:.0f} s, {cpu() - used:.0f} s CPU")
        room.ears.going = False
        room.ears.join()
        after = {"files": footprint(*watched), "secret": secret_of(course), "scratch": scratch()}
        outcomes = {outcome.handin.student: outcome for outcome in told if outcome}
        return SimpleNamespace(course=course, records=records, outcomes=outcomes, before=before, after=after,
                               heard=room.ears.heard, left=processes())


def cpu():
    """CPU seconds of this process and of those it has waited for."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def page(graded, case):
    """All that is stored of a graded submission, as text."""
    path = graded.course.path(graded.course.autograded, case.name, CHAPTER) / f"{CHAPTER}.ipynb"
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def outputs(graded, case):
    """What the code put out, and what was said about it."""
    text = page(graded, case)
    if not text:
        return ""
    notebook = nbformat.reads(text, as_version=4)
    shown = [str(cell.get("outputs", "")) for cell in notebook.cells]
    return "\n".join([*shown, str(notebook.metadata.get("autograder"))])


def of(graded, case):
    return [record for record in graded.records if record.student == case.name]


@pytest.mark.parametrize("case", HOSTILE, ids=lambda case: case.name)
def test_hostile_submission_gains_nothing(graded, case):
    for record in of(graded, case):
        if record.exercise in WRONG and record.verdict != "manual":
            kept = case.base == "solved" and record.exercise not in case.lost and not case.refused
            assert record.points == (record.max_points if kept else 0), record
            assert len(record.message) <= 2000


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_nothing_that_it_should_not_see_is_in_what_is_stored(graded, case):
    told = outputs(graded, case)
    for word in (GOT, CANARY, graded.before["secret"]):
        assert word not in told
    whole = page(graded, case)
    assert graded.before["secret"] not in whole
    assert len(whole) < 25_000_000


@pytest.mark.parametrize("case", [case for case in CASES if case.says], ids=lambda case: case.name)
def test_what_was_tried_is_told(graded, case):
    outcome = graded.outcomes[case.name]
    told = [outcome.refused, *(f"{repair.kind} {repair.detail}" for repair in outcome.repairs), outputs(graded, case)]
    assert re.search(case.says, "\n".join(told)), "\n".join(told)[-3000:]


@pytest.mark.parametrize("case", honest.CASES, ids=lambda case: case.name)
def test_right_answers_are_never_punished(graded, case):
    assert graded.outcomes[case.name].refused == ""
    for record in of(graded, case):
        if record.verdict != "manual":
            assert (record.verdict, record.points) == ("passed", record.max_points), record


def test_class_goes_on_and_everybody_is_counted(graded):
    assert graded.outcomes.keys() == {case.name for case in CASES}
    refused = {name for name, outcome in graded.outcomes.items() if outcome.refused}
    assert refused == {case.name for case in CASES if case.refused}
    assert not any(outcome.detail for outcome in graded.outcomes.values())
    for name in ("aa-solved", "zz-solved"):
        assert {r.verdict for r in graded.records if r.student == name} == {"passed", "manual"}
    assert {r.points for r in graded.records if r.student == "wrong"} == {0, None}


def test_nothing_is_touched(graded):
    assert graded.after["files"] == graded.before["files"]
    assert graded.after["secret"] == graded.before["secret"]
    assert not graded.after["scratch"]


def test_nobody_was_heard_from(graded):
    assert graded.heard == []


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give each kernel a user of its own")
def test_no_process_outlives_the_run(graded):
    assert graded.left == []


def test_corpus_is_large_and_its_names_are_its_own():
    assert len(HOSTILE) >= 60
    assert max(Counter(case.name for case in CASES).values()) == 1
