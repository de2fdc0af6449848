"""What the grader keeps for itself in a course, under `.autograder/`: its secret and the log of submissions."""

import json
import os
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from autograder.course import Course


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


def is_sample(course: Course) -> bool:
    """Is this a made-up class?"""
    return (course.base / ".autograder" / "sample").is_file()


def log(course: Course, entry: Mapping[str, Any]) -> None:
    """One more line of JSON: a submission that was graded or refused, for scripts and for the report."""
    line = json.dumps({"time": datetime.now(UTC).isoformat(timespec="seconds"), **entry})
    with (state(course) / "log.jsonl").open("a", encoding="utf-8") as file:
        file.write(line + "\n")


def refusals(course: Course) -> dict[tuple[str, str], str]:
    """Why submissions were refused, where that was the last that came of them, by chapter and student."""
    path = state(course) / "log.jsonl"
    last: dict[tuple[str, str], str] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            entry = json.loads(line)
            last[entry["chapter"], entry["student"]] = entry["refused"]
        except (ValueError, KeyError, TypeError):  # a line cut off by a crash
            continue
    return {key: reason for key, reason in last.items() if reason}
