"""On a system that is not Linux grading refuses with what to do there, and goes on without a sandbox where told to."""

import os
import signal
import socket

import pytest
from classroom import SOLVED, answered, hand_in, make_course, marks, released
from click.testing import CliRunner

from autograder.cli import main
from autograder.errors import CourseError
from autograder.grade import grade

# What only Linux has, and the grader uses there.
LINUX = [(os, "pidfd_open"), (signal, "pidfd_send_signal"), (socket, "SOCK_SEQPACKET"), (socket, "SOCK_NONBLOCK"),
         (socket, "SOCK_CLOEXEC"), (os, "sched_getaffinity"), (os, "memfd_create")]


@pytest.fixture
def course(tmp_path):
    made = make_course(tmp_path / "course")
    hand_in(made, "ann", answered(released(made), SOLVED))
    return made


@pytest.fixture
def macos(monkeypatch):
    monkeypatch.setattr("sys.platform", "darwin")
    for module, name in LINUX:
        monkeypatch.delattr(module, name, raising=False)


def test_macos_grades_with_the_sandbox_off_and_says_how_to_have_one(course, macos):
    for mode in ("on", "bwrap"):
        with pytest.raises(CourseError, match="grade in a Linux container: docker run .* --sandbox off"):
            grade(course, sandbox=mode)
    records = grade(course, sandbox="off")
    assert [record.points for record in records] == [2, 3, 4, None]
    assert marks(course)["ann", "mean-tests"] == (3, None, False)


def test_windows_is_told_of_its_linux(course, monkeypatch):
    monkeypatch.setattr("sys.platform", "win32")
    done = CliRunner().invoke(main, ["grade", str(course.root)])
    assert done.exit_code == 1 and "grade in WSL 2: wsl --install" in done.stderr
