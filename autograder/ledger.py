"""What the grader keeps for itself in a course, under `.autograder/`: secret, lock, and the log of submissions."""

import fcntl
import json
import os
import secrets
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from autograder.course import Course
from autograder.errors import CourseError


def state(course: Course) -> Path:
    """The folder itself, for its owner alone; work in progress lies there too."""
    folder = course.base / ".autograder"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def secret_of(course: Course) -> str:
    """The secret that this course's cases are drawn from, made when first asked for; its owner alone can read it."""
    path = state(course) / "secret"
    if not path.is_file():
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(16) + "\n")
    return path.read_text().strip()


@contextmanager
def alone(course: Course, *, wait: bool = False) -> Iterator[None]:
    """No other command changes this course while the context lasts; CourseError where one does, unless we `wait`.

    The system lets go of the lock when its holder ends, in whatever way.
    """
    with (state(course) / "lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            busy = f"{course.root}: {file.read(200).strip() or 'another process'} is at work on this course"
            if not wait:
                raise CourseError(f"{busy}; let it end, or say --wait") from None
            print(f"{busy}; waiting for its end", file=sys.stderr, flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(0)
        file.write(f"process {os.getpid()}, since {_now()},")
        file.flush()
        yield


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def is_sample(course: Course) -> bool:
    """Is this a made-up class?"""
    return (course.base / ".autograder" / "sample").is_file()


def log_line(entry: Mapping[str, Any]) -> str:
    """What the log is to say of a submission, with the time."""
    return json.dumps({"time": _now(), **entry})


def log(course: Course, line: str) -> None:
    """One more line in the log, of a submission that was graded or refused; for scripts and for the report."""
    with (state(course) / "log.jsonl").open("ab+") as file:
        if file.tell() and file.seek(-1, os.SEEK_END) is not None and file.read(1) != b"\n":
            file.write(b"\n")  # a crash has cut off the line before
        file.write(line.encode() + b"\n")


def is_logged(course: Course, line: str) -> bool:
    """Is this, to the letter, one of the log's last lines?"""
    path = state(course) / "log.jsonl"
    return path.is_file() and line in path.read_text(encoding="utf-8", errors="replace").splitlines()[-100:]


def last_entries(course: Course) -> dict[tuple[str, str], dict[str, Any]]:
    """The last that the log says of each submission, by chapter and student."""
    path = state(course) / "log.jsonl"
    last: dict[tuple[str, str], dict[str, Any]] = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else ():
        try:
            entry = json.loads(line)
            last[entry["chapter"], entry["student"]] = {**entry, "refused": entry["refused"]}
        except (ValueError, KeyError, TypeError):  # a line cut off by a crash
            continue
    return last


def refusals(course: Course) -> dict[tuple[str, str], str]:
    """Why submissions were refused, where that was the last that came of them, by chapter and student."""
    return {key: entry["refused"] for key, entry in last_entries(course).items() if entry["refused"]}
