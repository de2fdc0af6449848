"""What each exercise demands. `check` is what the hidden tests of a notebook call."""

from __future__ import annotations

import functools
import os
from typing import Any

from autograder.checks import (
    ch01_why_attention,
    ch02_query_key_value,
    ch03_scaling,
    ch04_multi_head,
    ch05_positional_encoding,
    ch06_blocks,
    ch07_masking,
    ch08_transformer,
)
from autograder.checks.catalogue import RIGHT, WRONG
from autograder.errors import CourseError, WrongAnswer
from autograder.judge import Exercise, Trial

__all__ = ["EXERCISES", "WrongAnswer", "check", "trial"]

EXERCISES: dict[str, Exercise] = {}
for _chapter in (
    ch01_why_attention,
    ch02_query_key_value,
    ch03_scaling,
    ch04_multi_head,
    ch05_positional_encoding,
    ch06_blocks,
    ch07_masking,
    ch08_transformer,
):
    for _exercise in _chapter.EXERCISES:
        _exercise.wrong, _exercise.right = WRONG[_exercise.name], RIGHT[_exercise.name]
        EXERCISES[_exercise.name] = _exercise


@functools.lru_cache(maxsize=256)
def trial(exercise: str, part: str | None, secret: str) -> Trial:
    """The trial of an exercise, the same for every answer, so that what the catalogue does in it is tried once."""
    return Trial(EXERCISES[exercise], part, secret)


def check(exercise: str, answer: Any, part: str | None = None) -> None:
    """Return if the answer is right; raise `WrongAnswer`, whose message a learner understands, if it is not.

    `part` is "core", "edge" or None for all. Cases are drawn from the secret in AUTOGRADER_SECRET.
    """
    if exercise not in EXERCISES:
        raise CourseError(f"there is no exercise '{exercise}'; the exercises are: {', '.join(EXERCISES)}")
    verdict = trial(exercise, part, os.environ.get("AUTOGRADER_SECRET", "")).attempt(answer)
    if not verdict.passed:
        raise WrongAnswer(verdict.message, check=verdict.check, kind=verdict.kind)
