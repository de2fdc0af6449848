"""Cases are drawn from a secret: whatever it is, no right answer is refused."""

import os

import pytest

from autograder.checks import EXERCISES
from autograder.judge import Trial


@pytest.mark.parametrize("exercise", EXERCISES.values(), ids=list(EXERCISES))
def test_no_right_answer_is_refused_over_a_thousand_seeds(exercise):
    """Each seed tries one right answer, in turn; SEEDS=all tries every one on every seed."""
    refused = []
    for seed in range(1000):
        trial = Trial(exercise, secret=f"seed {seed}")
        turn = exercise.right if os.environ.get("SEEDS") == "all" else [exercise.right[seed % len(exercise.right)]]
        for entry in turn:
            verdict = trial.attempt(entry.answer)
            if not verdict.passed:
                refused.append((entry.kind, seed, verdict.message))
    assert not refused
