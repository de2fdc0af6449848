"""Killed anywhere, a grading leaves nothing that the next one does not put right."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from classroom import SOLVED, answered, environment, hand_in, make_course, released

from autograder.grade import grade

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A class in which some were graded before and have handed in anew since."""
    course = make_course(tmp_path_factory.mktemp("killed") / "course")
    nb = released(course)
    for student in ("ann", "ben"):
        hand_in(course, student, answered(nb, {"double": SOLVED["double"]}))
    grade(course, sandbox="off")
    for student in ("ann", "cyd"):
        hand_in(course, student, answered(nb, SOLVED)).with_name("notes.txt").write_text(student)
    hand_in(course, "ben", answered(nb, {"mean": SOLVED["mean"]}))
    hand_in(course, "refused", b"{")
    return course


def test_killed_anywhere_a_rerun_ends_as_an_undisturbed_run(course, tmp_path):
    program = [sys.executable, str(HERE / "killing.py"), str(course.root), str(tmp_path)]
    done = subprocess.run(program, capture_output=True, text=True, env=environment(), check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    tried = json.loads(done.stdout)
    assert len(tried) > 50 and {name: wrong for name, wrong in tried.items() if wrong} == {}
