"""Killed anywhere, a grading leaves nothing that the next one does not put right."""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from classroom import SOLVED, answered, by_hand, environment, hand_in, make_course, released, start

from autograder.course import Course
from autograder.grade import grade
from autograder.ledger import state

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A class in which ann was graded before, by hand as well, and has handed in anew since, cyd for the first time."""
    course = make_course(tmp_path_factory.mktemp("killed") / "course")
    nb = released(course)
    hand_in(course, "ann", answered(nb, {"double": SOLVED["double"], "why": SOLVED["why"]}))
    grade(course, sandbox="off")
    by_hand(course, "ann", "why", manual_score=4, needs_manual_grade=False)
    for student in ("ann", "cyd"):
        hand_in(course, student, answered(nb, SOLVED)).with_name("notes.txt").write_text(student)
    hand_in(course, "refused", b"{")
    return course


def test_killed_anywhere_a_rerun_ends_as_an_undisturbed_run(course, tmp_path):
    program = [sys.executable, str(HERE / "killing.py"), str(course.root), str(tmp_path)]
    done = subprocess.run(program, capture_output=True, text=True, env=environment(), check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    tried = json.loads(done.stdout.splitlines()[-1])   # above it stands what the cells print
    assert len(tried) > 30 and {name: wrong for name, wrong in tried.items() if wrong} == {}


def test_what_a_killed_run_leaves_ends_and_the_next_run_removes_it(course, tmp_path):
    again = Course(shutil.copytree(course.root, tmp_path / "course"))
    for student in again.students("ps1"):
        hand_in(again, student, answered(released(again), {"double": "import time\ntime.sleep(4)"}))
    running = start("autograder", "grade", str(again.root), "--yes", cwd=again.root)
    try:
        kernels = psutil.Process(running.pid)
        ended_after(300, lambda: len(kernels.children(recursive=True)) >= 3)
        below = kernels.children(recursive=True)
        zygote = next(one for one in below if "autograder.sandbox.zygote" in one.cmdline())
        place = Path(zygote.cwd()).parent
        assert place.name.startswith("grading-") and list(state(again).glob("run-*"))
    finally:
        running.kill()
        running.communicate()
    ended_after(100, lambda: not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in below))
    assert place.is_dir()
    grade(again, student="refused", sandbox="off", yes=True)
    assert not place.exists()
    assert sorted(path.name for path in state(again).iterdir()) == ["lock", "log.jsonl", "secret"]


def ended_after(seconds, done):
    """Wait for something to come true."""
    until = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < until, "it never came true"
        time.sleep(0.05)
