"""The trusted side of a check: makes the cases, compares what the probe saw with an oracle, names the mistake."""

from __future__ import annotations

import functools
import hashlib
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from autograder.errors import CourseError, WrongAnswer
from autograder.probe import carry_out, undisturbed
from autograder.wire import ANSWER, Array, Opaque, Plan, Raised, Ref, Seen, encode

_PLURAL = re.compile(r"(the )?\w+[^s\W]s")  # "the weights", but not "the loss"
ATOL = {"float64": 1e-9, "float32": 1e-5, "bfloat16": 3e-2, "float16": 4e-3}


@dataclass(frozen=True)
class Case:
    """Inputs of one try: plain data only. `note` tells the learner what is special about it; `extra` is the judge's."""

    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    part: str = "core"
    note: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)
    _known: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def once(self, name: str, work_out: Callable[[], Any]) -> Any:
        """What an oracle says of this case: worked out for the first answer, kept for all others, not to be changed."""
        if name not in self._known:
            self._known[name] = work_out()
        return self._known[name]

    def describe(self, arguments: Sequence[str] = ()) -> str:
        """One line about the inputs, the first ones under these names: shapes of arrays, short values as they are."""
        unnamed = len(self.args) - len(arguments)
        pairs = [*zip(arguments, self.args), *zip([""] * unnamed, self.args[len(arguments) :]), *self.kwargs.items()]
        named = [f"{name}{' ' if isinstance(v, Array) else '='}{_brief(v)}" if name else _brief(v) for name, v in pairs]
        return "; ".join(part for part in (", ".join(named), self.note) if part)


def _brief(value: Any) -> str:
    if isinstance(value, Array):
        return f"{value.dtype} {value.shape}"
    if isinstance(value, (list, tuple, dict)):
        return f"{len(value)} items" if len(repr(value)) > 40 else repr(value)
    return f"<{value.name}>" if isinstance(value, Ref) else repr(value)[:40]


@dataclass(frozen=True)
class Entry:
    """One answer of a catalogue. A wrong one has the message that its learner is told; a right one has none."""

    kind: str
    message: str
    answer: Any
    source: str


class Sight:
    """What the probe saw in one case, under the names that the exercise gave its references."""

    def __init__(self, names: Mapping[str, Any], seen: Seen):
        self._names, self._seen = names, seen

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._names:
            raise AttributeError(name)
        found = self.__dict__[name] = self._resolve(self._names[name])  # asked for again, it is there
        return found

    def _resolve(self, reference: Any) -> Any:
        if isinstance(reference, Ref):
            return self._seen[reference]
        if isinstance(reference, dict):
            return {key: self._resolve(item) for key, item in reference.items()}
        return [self._resolve(item) for item in reference]


class Exercise:
    """What one exercise demands. Subclasses give `cases` and `judge`, and `plan` where a plain call is not enough."""

    name: str
    chapter: str
    parts: tuple[str, ...] = ("core",)
    wrong: list[Entry]
    right: list[Entry]
    takes: Sequence[str] | None = None  # what the args of its cases are called; else as its first right answer has it

    @functools.cached_property
    def arguments(self) -> Sequence[str]:
        """The names of what a case gives by position, for people to read."""
        if self.takes is not None:
            return self.takes
        found = inspect.signature(self.right[0].answer).parameters.values() if self.right else ()
        return [one.name for one in found if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]

    def cases(self, rng: np.random.Generator) -> Iterable[Case]:
        """The tries, drawn from the generator alone."""
        raise NotImplementedError

    def plan(self, case: Case, plan: Plan) -> dict[str, Any]:
        """What the probe does: by default one call. Names references: result, inputs, and `after`, the inputs then."""
        args = [plan.put(value) for value in case.args]
        kwargs = {key: plan.put(value) for key, value in case.kwargs.items()}
        result = plan.call(ANSWER, *args, **kwargs)
        after = [plan.look(ref) for ref in (*args, *kwargs.values())]
        return {"result": result, "after": after, "inputs": args}

    def judge(self, case: Case, seen: Sight) -> None:
        """Raise `WrongAnswer` (through the functions below) unless what was seen is right."""
        raise NotImplementedError


@dataclass(frozen=True)
class Verdict:
    """What a trial came to; `message` is empty when it passed."""

    passed: bool
    check: str = ""
    kind: str | None = None
    message: str = ""


class Trial:
    """One answer on trial: the cases of an exercise (or of one part), their plans, and the verdict on what was seen."""

    def __init__(self, exercise: Exercise, part: str | None = None, secret: str = ""):
        if part is not None and part not in exercise.parts:
            known = ", ".join(exercise.parts)
            raise CourseError(f"exercise '{exercise.name}' has no part '{part}'; its parts are: {known}")
        self.exercise = exercise
        drawn = exercise.cases(_generator(secret, exercise.name))
        self.cases = [case for case in drawn if part in (None, case.part)]
        self.plans = [Plan(seed=index) for index in range(len(self.cases))]
        self.names = [exercise.plan(case, plan) for case, plan in zip(self.cases, self.plans)]
        self._known: dict[tuple[int, str], Seen] = {}  # what an entry of the catalogue does in a case, once tried
        self._whole: set[tuple[int, str]] = set()  # of these, what was tried to its end

    @functools.cached_property
    def request(self) -> bytes:
        """The plans as a kernel gets them."""
        return encode(self.plans)

    def attempt(self, answer: Any, *, diagnose: bool = True) -> Verdict:
        """Try an answer in this process, case by case up to the first that fails, and judge it."""
        with undisturbed():
            return self._decided(_Tries(self.plans, answer), diagnose)

    def verdict(self, found: Sequence[Seen], *, diagnose: bool = True) -> Verdict:
        """Judge what a probe brought back; the first case that fails decides and, unless told not to, is diagnosed."""
        if len(found) != len(self.plans) or not all(isinstance(seen, Seen) for seen in found):
            return Verdict(False, "complete", None, "your code stopped before all cases were tried")
        with undisturbed():
            return self._decided(found, diagnose)

    def _decided(self, found: _Findings, diagnose: bool) -> Verdict:
        for index, (case, names) in enumerate(zip(self.cases, self.names)):
            failure = self._failure(case, Sight(names, found[index]))
            if failure is not None:
                return self._named(index, failure, found if diagnose else None)
        return Verdict(True)

    def _failure(self, case: Case, sight: Sight) -> WrongAnswer | None:
        try:
            self.exercise.judge(case, sight)
        except WrongAnswer as failure:
            return failure
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RuntimeError, MemoryError) as err:
            text = f"your answer's result does not have the form that the exercise asks for ({type(err).__name__})"
            return WrongAnswer(text, check="form")
        return None

    def _named(self, index: int, failure: WrongAnswer, found: _Findings | None) -> Verdict:
        tried = self.cases[index].describe(self.exercise.arguments)
        where = f"\nTried with: {tried}" if tried else ""
        entry = None if found is None else self._match(index, found)
        if entry is not None:
            return Verdict(False, failure.check, entry.kind, entry.message + where)
        return Verdict(False, failure.check, failure.kind, failure.message + where)

    def _match(self, index: int, found: _Findings) -> Entry | None:
        """The catalogue's entry that behaves as this answer does: in the failing case, then in the most others."""
        matching = [entry for entry in self.exercise.wrong if self._same_failure(index, entry, found[index])]
        if len(matching) < 2:
            return matching[0] if matching else None
        others = [i for i in range(len(self.plans)) if i != index]
        best, most = None, -1
        for entry in matching:
            alike = self._agreements(entry, found, others, most)
            best, most = (entry, alike) if alike > most else (best, most)
            if most == len(others):  # as good as it gets
                break
        return best

    def _agreements(self, entry: Entry, found: _Findings, cases: Sequence[int], most: int) -> int:
        """In how many of these cases an entry does what the answer does; counted no further than can beat `most`."""
        count, left = 0, len(cases)
        for index in cases:
            if count + left <= most:
                break
            count, left = count + self._alike(index, entry, found[index]), left - 1
        return count

    def _same_failure(self, index: int, entry: Entry, answers: Seen) -> bool:
        if not self._alike(index, entry, answers):
            return False
        return self._failure(self.cases[index], Sight(self.names[index], self._known[index, entry.kind])) is not None

    def _alike(self, index: int, entry: Entry, answers: Seen) -> bool:
        """Does the entry behave as the answer does in this case? It is tried up to the first difference.

        It is tried to its end only where what is known of it agrees with another answer later.
        """

        def differs(name: str, finding: Any) -> bool:
            return name not in answers.found or not alike(finding, answers.found[name])

        plan, key = self.plans[index], (index, entry.kind)
        first = key not in self._known
        if first:
            self._known[key] = carry_out(plan, entry.answer, until=differs)
        if any(differs(name, finding) for name, finding in self._known[key].found.items()):
            return False
        if not first and key not in self._whole:
            self._known[key] = carry_out(plan, entry.answer)
        self._whole.add(key)
        return alike(self._known[key].found, answers.found)


class _Tries:
    """What an answer does in each case, tried when it is asked for."""

    def __init__(self, plans: Sequence[Plan], answer: Any):
        self._plans, self._answer, self._seen = plans, answer, dict[int, Seen]()

    def __getitem__(self, index: int) -> Seen:
        if index not in self._seen:
            self._seen[index] = carry_out(self._plans[index], self._answer)
        return self._seen[index]


_Findings = Sequence[Seen] | _Tries


def _generator(secret: str, name: str) -> np.random.Generator:
    digest = hashlib.sha256(f"{secret}/{name}".encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:16], "little"))


def alike(left: Any, right: Any) -> bool:
    """Do two findings say the same? Arrays to 1e-4 of their size, exceptions by class and text, the rest exactly.

    The text of an exception that the answer itself raises is the learner's own wording, and is not compared.
    """
    if isinstance(left, Raised) and isinstance(right, Raised):
        worded = "raise " in (left.line[:6], right.line[:6])
        return left.kind == right.kind and (worded or left.message[:60] == right.message[:60])
    if isinstance(left, Array) and isinstance(right, Array):
        if (left.lib, left.dtype, left.shape) != (right.lib, right.dtype, right.shape):
            return False
        return left.data == right.data or bool(np.allclose(left.double(), right.double(), 1e-4, 1e-6, equal_nan=True))
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(alike(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(alike(a, b) for a, b in zip(left, right))
    if isinstance(left, float):
        return left == right or abs(left - right) <= 1e-4 * abs(left) + 1e-9 or (left != left and right != right)
    return bool(left == right)


# ---- comparisons: each raises WrongAnswer with the name of the check that failed ------------------------------


def expect(condition: bool, check: str, message: str, *, kind: str | None = None) -> None:
    """The general check: a named condition with the learner's message."""
    if not condition:
        raise WrongAnswer(message, check=check, kind=kind)


def ran(found: Any, what: str = "your code") -> None:
    """Fails where the step raised: says the exception, its text and the learner's line."""
    if isinstance(found, Raised):
        line = f" in the line `{found.line}`" if found.line else ""
        if found.kind == "NotImplementedError":
            raise WrongAnswer("not done yet: it still raises NotImplementedError", check="done")
        text = found.message.strip().splitlines()[0] if found.message.strip() else ""
        raise WrongAnswer(f"{what} raised {found.kind}{': ' + text if text else ''}{line}", check="runs")


def raised(found: Any, kinds: Iterable[str], message: str) -> None:
    """Fails unless the step raised one of these exceptions."""
    if isinstance(found, Raised) and found.kind == "NotImplementedError":
        ran(found)
    hit = isinstance(found, Raised) and any(kind in found.bases for kind in kinds)
    tail = f"; it raised {found.kind} instead" if isinstance(found, Raised) else ""
    expect(hit, "error", message + tail)


def is_array(found: Any, shape: Sequence[int], what: str, *, lib: str, dtype: str | None = None) -> Array:
    """Fails unless the finding is an array of that library, shape and dtype; returns it."""
    ran(found)
    noun = "a tensor" if lib == "torch" else "a NumPy array"
    if not isinstance(found, Array) or found.lib != lib:
        raise WrongAnswer(f"{what} should be {noun}; yours is {_kind_of(found)}", check="type")
    shapes = f"{what} should have shape {tuple(shape)}; yours has {found.shape}"
    expect(found.shape == tuple(shape), "shape", shapes)
    if dtype is not None:
        expect(found.dtype == dtype, "dtype", f"{what} should keep the input's dtype {dtype}; yours is {found.dtype}")
    return found


def _kind_of(found: Any) -> str:
    if isinstance(found, Array):
        return "a tensor" if found.lib == "torch" else "a NumPy array"
    if isinstance(found, Opaque):
        return f"a {found.kind}"
    return "None: is a return missing?" if found is None else f"a {type(found).__name__}"


def close(found: Any, want: Any, what: str, *, check: str = "value", atol: float | None = None, why: str = "") -> None:
    """Fails unless the finding is an array like `want` (a tensor or array): library, shape, dtype, values.

    The tolerance is atol (1 + |want|); by default 1e-5 in float32, 1e-9 in float64. `why` explains a difference.
    The message says where the first difference is and in which direction, never the expected number.
    """
    model = Array.of(want)
    got = is_array(found, model.shape, what, lib=model.lib, dtype=model.dtype)
    tolerance = ATOL.get(model.dtype, 0.0) if atol is None else atol
    _compare(got.double(), model.double(), what, check, tolerance, why)


def _compare(got: np.ndarray, want: np.ndarray, what: str, check: str, tolerance: float, why: str) -> None:
    with np.errstate(invalid="ignore", over="ignore"):
        fits = (np.abs(got - want) <= tolerance * (1 + np.abs(want))) & np.isfinite(want)
    if fits.all():
        return
    if np.isnan(got).any() and not np.isnan(want).any():
        raise WrongAnswer(f"there is NaN in {what}" + (f": {why}" if why else ""), check="finite")
    fits |= got == want
    fits |= np.isnan(got) & np.isnan(want)
    if fits.all():
        return
    first = np.unravel_index(int(np.argmin(fits)), fits.shape)
    where = f"at [{', '.join(map(str, first))}] " if first else ""
    yours = got[first] + 0.0  # no "-0" in a message
    side = ", which is too large" if yours > want[first] else ", which is too small"
    share = f"; {int((~fits).sum())} of {fits.size} entries are off" if fits.size > 1 else ""
    verb = "are" if _PLURAL.fullmatch(what) else "is"
    text = f"{what} {verb} wrong: {where}yours is {yours:.4g}{side}{share}"
    raise WrongAnswer(text + (f". {why}" if why else ""), check=check)


def number(found: Any, what: str) -> float:
    """The finding as a float: a Python number or an array of one element; fails for anything else or NaN."""
    ran(found)
    if isinstance(found, Array) and len(found.double().reshape(-1)) == 1:
        found = float(found.double().reshape(-1)[0])
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        raise WrongAnswer(f"{what} should be a number; yours is {_kind_of(found)}", check="type")
    expect(found == found, "finite", f"{what} is NaN")
    return float(found)


def near(found: Any, want: float, what: str, *, rtol: float = 1e-6, atol: float = 1e-9, why: str = "") -> None:
    """Fails unless the finding is a number within atol + rtol |want|."""
    got = number(found, what)
    side = "large" if got > want else "small"
    text = f"{what} is too {side}: yours is {got:.6g}" + (f". {why}" if why else "")
    expect(abs(got - want) <= atol + rtol * abs(want), "value", text)


def unchanged(
    after: Sequence[Any], before: Sequence[Any], what: str = "your function changed its input in place"
) -> None:
    """Fails where an input array is not, afterwards, what it was."""
    for now, then in zip(after, before):
        if isinstance(then, Array) and isinstance(now, Array):
            expect(now.data == then.data and now.shape == then.shape, "inputs unchanged", what)


def pair(found: Any, what: str, length: int = 2) -> Sequence[Any]:
    """Fails unless the finding is a tuple (or list) of that many things; returns it."""
    ran(found)
    fits = isinstance(found, (tuple, list)) and len(found) == length
    got = f"{len(found)} things" if isinstance(found, (tuple, list)) else _kind_of(found)
    expect(fits, "type", f"your function should return {length} things, {what}; yours returns {got}")
    return found


def defaults(found: Any, given: Mapping[str, Any]) -> None:
    """Fails where an argument of the answer that the exercise gives a default has another one."""
    of = found if isinstance(found, dict) else {}
    other = [name for name, value in given.items() if of.get(name, value) != value]
    expect(not other, "defaults", f"these defaults are not the given ones: {', '.join(other)}")


def oracle_gradients(
    function: Callable[..., Sequence[torch.Tensor]], inputs: Sequence[torch.Tensor], factors: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """Gradients of sum_i (function(*inputs)[i] * factors[i]).sum() with respect to each input, by autograd."""
    leaves = [tensor.detach().clone().requires_grad_() for tensor in inputs]
    loss = sum((value * factor).sum() for value, factor in zip(function(*leaves), factors))
    return list(torch.autograd.grad(loss, leaves))  # type: ignore[arg-type]
