"""The judge's comparisons: each passes what it should and fails, by name, what it should not."""

import linecache

import numpy as np
import pytest
import torch

from autograder import judge
from autograder.checks import EXERCISES, check
from autograder.errors import CourseError, WrongAnswer
from autograder.judge import Case, Entry, Exercise, Trial
from autograder.probe import carry_out
from autograder.wire import ANSWER, Array, Opaque, Raised, Seen

ONES = torch.ones(2, 3)


def failing(function, *args, **kwargs):
    with pytest.raises(WrongAnswer) as caught:
        function(*args, **kwargs)
    return caught.value


@pytest.mark.parametrize("dtype, slip", [(torch.float32, 1e-5), (torch.float64, 1e-9), (torch.float16, 4e-3)])
def test_close_holds_the_stated_tolerance(dtype, slip):
    want = torch.zeros(2, 3, dtype=torch.float64)
    judge.close(Array.of((want + 0.9 * slip).to(dtype)), want.to(dtype), "x")
    assert failing(judge.close, Array.of((want + 1.2 * slip).to(dtype)), want.to(dtype), "x").check == "value"


@pytest.mark.parametrize(
    "found, check, words",
    [
        (Array.of(torch.ones(3, 2)), "shape", "(2, 3)"),
        (Array.of(ONES.double()), "dtype", "float32"),
        (Array.of(np.ones((2, 3), np.float32)), "type", "a tensor"),
        (Array.of(ONES * float("nan")), "finite", "NaN"),
        (Array.of(ONES * float("inf")), "value", "too large"),
        (Array.of(torch.tensor([[1, 1, 1], [1, 0.5, 1]])), "value", "at [1, 1] yours is 0.5, which is too small"),
        (None, "type", "return missing"),
        (3.0, "type", "a float"),
        (Opaque("Linear"), "type", "a Linear"),
        (Raised("TypeError", (), "bad", "x + y"), "runs", "raised TypeError: bad in the line `x + y`"),
        (Raised("NotImplementedError", (), ""), "done", "not done yet"),
    ],
)
def test_close_says_what_differs(found, check, words):
    error = failing(judge.close, found, ONES, "the result")
    assert error.check == check and words in str(error)


def test_no_message_holds_the_expected_number():
    error = failing(judge.close, Array.of(ONES * 0.5), ONES * 0.123456, "x")
    assert "0.1234" not in str(error)


def test_infinities_in_the_right_places_are_right():
    want = torch.tensor([0.0, -torch.inf])
    judge.close(Array.of(want), want, "x")
    assert failing(judge.close, Array.of(torch.tensor([0.0, -1e9])), want, "x").check == "value"


@pytest.mark.parametrize(
    "found", [2, 2.0, Array.of(torch.tensor(2.0)), Array.of(np.float32(2)), Array.of(np.ones(1) * 2)])
def test_a_number_may_come_in_any_dress(found):
    judge.near(found, 2.0, "x")


@pytest.mark.parametrize("found", [True, "2", None, Array.of(torch.ones(2)), float("nan"), 2.1])
def test_what_is_no_such_number_fails(found):
    failing(judge.near, found, 2.0, "x")


def test_raised_wants_that_exception():
    error = Raised("MyError", ("MyError", "ValueError", "Exception"), "no")
    judge.raised(error, ["ValueError"], "should raise")
    assert "instead" in str(failing(judge.raised, error, ["KeyError"], "should raise"))
    assert failing(judge.raised, 3, ["ValueError"], "should raise").check == "error"


def test_unchanged_sees_a_changed_input():
    before = Array.of(ONES)
    judge.unchanged([before], [before])
    assert failing(judge.unchanged, [Array.of(ONES * 2)], [before]).check == "inputs unchanged"


def test_pair_wants_two():
    judge.pair((1, 2), "(a, b)")
    for found in ((1,), 3, None, Array.of(ONES)):
        assert "(a, b)" in str(failing(judge.pair, found, "(a, b)"))


class Double(Exercise):
    """x -> 2x on a scalar tensor, with an edge case of 0."""

    name, chapter, parts = "double", "00_test", ("core", "edge")
    right = []
    wrong = [
        Entry("squared", "you squared x", lambda x: x**2, ""),
        Entry("tripled", "you tripled x", lambda x: 3 * x, ""),
        Entry("two", "you always return 2", lambda x: 2 + 0 * x, ""),
    ]

    def cases(self, rng):
        for value in (1.0, 2.0, float(rng.uniform(3, 4))):
            yield Case((Array.of(torch.tensor(value)),))
        yield Case((Array.of(torch.tensor(0.0)),), part="edge", note="zero")

    def judge(self, case, seen):
        judge.close(seen.result, case.args[0].value() * 2, "the double")


def verdict(answer, part=None, secret=""):
    trial = Trial(Double(), part, secret)
    return trial.verdict([carry_out(plan, answer) for plan in trial.plans])


def test_a_right_answer_passes():
    assert verdict(lambda x: x + x).passed


def test_a_mistake_of_the_catalogue_is_named():
    assert verdict(lambda x: x * x).kind == "squared"
    assert verdict(lambda x: x + x + x).kind == "tripled"


def test_where_two_entries_agree_in_the_failing_case_the_others_decide():
    # At x = 1 all of 3x and x^2 + 2 say 3; the other cases tell them apart from "tripled".
    assert verdict(lambda x: torch.tensor(2.0)).kind == "two"


def test_a_mistake_of_no_catalogue_gets_the_checks_own_words_and_the_case():
    result = verdict(lambda x: x * 5)
    assert result.kind is None and result.check == "value" and "too large" in result.message
    assert "Tried with: float32 ()" in result.message


def test_inputs_are_told_under_the_names_that_the_answer_has_for_them():
    case = Case((Array.of(ONES), 3, "pre"), {"eps": 0.5}, note="zero")
    shape = tuple(ONES.shape)
    assert case.describe(["x", "h"]) == f"x float32 {shape}, h=3, 'pre', eps=0.5; zero"
    assert case.describe(["x", "h", "norm", "more"]) == f"x float32 {shape}, h=3, norm='pre', eps=0.5; zero"
    exercise = Double()
    exercise.right = [Entry("r", "", lambda x, *rest, y=1: x, "")]
    assert exercise.arguments == ["x"]


def test_an_attempt_ends_at_the_first_case_that_fails():
    calls = []

    def answer(x):
        calls.append(float(x))
        return 2 * x if len(calls) < 2 else 5 * x

    result = Trial(Double()).attempt(answer)
    assert not result.passed and calls == [1.0, 2.0]


def test_an_attempt_comes_to_the_verdict_of_the_findings():
    for answer in (lambda x: x + x, lambda x: x**2, lambda x: torch.tensor(2.0), lambda x: x * 5, lambda x: None):
        assert Trial(Double()).attempt(answer) == verdict(answer)


class Twice(Exercise):
    """x -> 2x, asked twice in one case, of which the second tells the mistakes apart."""

    name, chapter = "twice", "00_test"
    right = []
    wrong = [
        Entry("tripled", "you tripled x", lambda x: 3 * x, ""),
        Entry("two more", "you added 2", lambda x: x + 2, ""),
    ]

    def cases(self, rng):
        yield Case((1.0, 4.0))

    def plan(self, case, plan):
        return {"results": [plan.call(ANSWER, value) for value in case.args]}

    def judge(self, case, seen):
        for value, result in zip(case.args, seen.results):
            judge.near(result, 2 * value, "the double")


def test_what_is_known_of_an_entry_up_to_a_difference_names_a_later_answer():
    trial = Trial(Twice())
    assert trial.attempt(lambda x: 7 * x).kind is None  # each entry is tried up to its first result
    assert trial.attempt(lambda x: x + 2).kind == "two more"
    assert trial.attempt(lambda x: 3 * x).kind == "tripled"
    assert trial.attempt(lambda x: 3 * x if x < 2 else 0 * x).kind is None
    assert trial.attempt(lambda x: 3 * x).kind == "tripled"


def test_a_part_is_judged_alone():
    edge_wrong = lambda x: torch.where(x == 0, torch.tensor(1.0), 2 * x)  # noqa: E731
    assert verdict(edge_wrong, "core").passed and not verdict(edge_wrong, "edge").passed
    assert "zero" in verdict(edge_wrong).message
    with pytest.raises(CourseError, match="its parts are: core, edge"):
        Trial(Double(), "middle")


def test_the_secret_moves_the_cases():
    assert Trial(Double(), secret="a").cases[2] != Trial(Double(), secret="b").cases[2]
    assert Trial(Double(), secret="a").cases[2] == Trial(Double(), secret="a").cases[2]


@pytest.mark.parametrize("found", [[], [None] * 4, [Seen()] * 3, [Seen({"call1": Opaque("x")})] * 4, [Seen()] * 4])
def test_findings_of_a_wrong_form_fail_and_break_nothing(found):
    assert not Trial(Double()).verdict(found).passed


def test_the_wording_of_a_refusal_does_not_hide_the_mistake():
    source = next(e.source for e in EXERCISES["PositionalEncoding"].wrong if e.kind == "last position refused")
    source, names = source.replace("longer than max_len", "there are no more rows"), {"nn": torch.nn, "torch": torch}
    linecache.cache["<cell>"] = (len(source), None, source.splitlines(keepends=True), "<cell>")  # as a notebook does
    exec(compile(source, "<cell>", "exec"), names)
    with pytest.raises(WrongAnswer) as caught:
        check("PositionalEncoding", names["PositionalEncoding"])
    assert caught.value.kind == "last position refused"


def test_a_message_says_no_minus_zero():
    got, want = torch.tensor([1.0, -0.0]), torch.tensor([1.0, -3.0])
    assert "yours is 0, which is too large" in str(failing(judge.close, Array.of(got), want, "x"))
