"""The checks of all exercises: every wrong answer is caught and named, every right one accepted, whatever the cases."""

import ast
import inspect

import pytest
import torch

from autograder.checks import EXERCISES, WrongAnswer, check
from autograder.errors import CourseError
from autograder.judge import Trial
from autograder.probe import carry_out
from autograder.wire import decode, encode

WRONG = [pytest.param(e.name, w, id=f"{e.name}: {w.kind}") for e in EXERCISES.values() for w in e.wrong]
RIGHT = [pytest.param(e.name, r, id=f"{e.name}: {r.kind}") for e in EXERCISES.values() for r in e.right]


@pytest.mark.parametrize("name, entry", WRONG)
def test_a_wrong_answer_is_caught_and_named(name, entry):
    with pytest.raises(WrongAnswer) as caught:
        check(name, entry.answer)
    assert caught.value.kind == entry.kind and caught.value.check
    assert str(caught.value).startswith(entry.message)


@pytest.mark.parametrize("name, entry", RIGHT)
def test_a_right_answer_is_accepted(name, entry):
    check(name, entry.answer)
    for part in EXERCISES[name].parts:
        check(name, entry.answer, part=part)


@pytest.mark.parametrize("exercise", EXERCISES.values(), ids=list(EXERCISES))
def test_a_wrong_answer_is_caught_whatever_the_seed(exercise):
    passed = []
    for seed in range(10):
        trial = Trial(exercise, secret=f"seed {seed}")
        for entry in exercise.wrong:
            if trial.attempt(entry.answer, diagnose=False).passed:
                passed.append((entry.kind, seed))
    assert not passed


@pytest.mark.parametrize("exercise", EXERCISES.values(), ids=list(EXERCISES))
def test_the_catalogue_is_as_large_as_the_conventions_ask(exercise):
    assert len(exercise.wrong) >= 12 and len(exercise.right) >= 8
    assert len({entry.message for entry in exercise.wrong}) == len(exercise.wrong), "every mistake has its own words"


@pytest.mark.parametrize("exercise", EXERCISES.values(), ids=list(EXERCISES))
def test_a_blank_answer_is_called_not_done(exercise):
    def blank(*args, **kwargs):
        raise NotImplementedError

    for part in exercise.parts:
        with pytest.raises(WrongAnswer, match="not done yet"):
            check(exercise.name, blank, part=part)


@pytest.mark.parametrize("exercise", EXERCISES.values(), ids=list(EXERCISES))
@pytest.mark.parametrize(
    "lazy",
    [
        lambda *args, **kwargs: None,
        lambda *args, **kwargs: True,
        lambda *args, **kwargs: False,
        lambda *args, **kwargs: 0,
        lambda *args, **kwargs: 1.0,
        lambda *args, **kwargs: args[0] if args else None,
        lambda *args, **kwargs: torch.zeros(3),
    ],
    ids=["None", "True", "False", "0", "1.0", "identity", "zeros"],
)
def test_a_lazy_answer_fails_every_part(exercise, lazy):
    for part in exercise.parts:
        with pytest.raises(WrongAnswer):
            check(exercise.name, lazy, part=part)


@pytest.mark.parametrize("exercise", EXERCISES.values(), ids=list(EXERCISES))
def test_over_the_wire_the_verdict_is_the_same(exercise):
    trial = Trial(exercise)
    plans = decode(encode(trial.plans))
    for entry in exercise.right[:2] + exercise.wrong[:4]:
        here = trial.verdict([carry_out(plan, entry.answer) for plan in trial.plans])
        there = trial.verdict(decode(encode([carry_out(plan, entry.answer) for plan in plans])))
        assert here == there


@pytest.mark.parametrize("exercise", EXERCISES.values(), ids=list(EXERCISES))
def test_the_sources_of_a_catalogue_are_what_a_learner_could_type(exercise):
    for entry in exercise.right + exercise.wrong:
        node = ast.parse(entry.source).body[0]
        assert isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == exercise.name
        assert not node.decorator_list


def test_a_name_or_part_that_does_not_exist_is_said_to_be_so():
    with pytest.raises(CourseError, match="there is no exercise 'softmaxx'"):
        check("softmaxx", None)
    with pytest.raises(CourseError, match="has no part 'rim'"):
        check("softmax_jacobian", None, part="rim")


def test_the_answer_is_public_api():
    assert list(inspect.signature(check).parameters) == ["exercise", "answer", "part"]
