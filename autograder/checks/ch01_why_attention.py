"""Chapter 1: a recurrent network forward, its Jacobians, and the table of steps, paths and multiply-adds."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import nn

from autograder.checks.answers import ch01_why_attention as _answers  # noqa: F401  (fills the catalogue)
from autograder.checks.inputs import ndarray
from autograder.judge import Case, Exercise, Sight, close, expect, near, number, pair, raised, ran, unchanged
from autograder.wire import ANSWER, Array, Plan

ARCHITECTURES = ("rnn", "conv", "dilated_conv", "attention")
STRANGERS = ("transformer", "RNN", "", "lstm")


class RnnForward(Exercise):
    """h_t = tanh(x_t W_x + h_{t-1} W_h + b) for every t; equals nn.RNN with copied weights."""

    name, chapter, parts = "rnn_forward", "01_why_attention", ("core", "edge")

    def cases(self, rng: np.random.Generator) -> Iterable[Case]:
        yield self._case(rng, 3, 3, 3, 3)  # square, so that a transposed product runs and shows in its values
        yield self._case(rng, 2, 5, 4, 3)
        yield self._case(rng, 4, 7, 2, 5)
        edge: dict[str, Any] = {"part": "edge"}
        yield self._case(rng, 2, 6, 3, 4, dtype="float32", **edge)
        yield self._case(rng, 3, 1, 2, 4, note="a sequence of one token", **edge)
        yield self._case(rng, 1, 4, 3, 2, note="a batch of one", **edge)
        yield self._case(rng, 2, 5, 3, 1, note="a state of one number", **edge)
        yield self._case(rng, 2, 4, 5, 3, scale=3000.0, note="inputs in the thousands", **edge)
        yield self._case(rng, 3, 4, 2, 5, layout="strided", dtype="float32", **edge)

    def _case(
        self, rng: np.random.Generator, B: int, n: int, d_in: int, d_h: int, *, dtype: str = "float64",
        scale: float = 1.0, layout: str = "contiguous", part: str = "core", note: str = "",
    ) -> Case:  # fmt: skip
        shapes = ((B, n, d_in), (B, d_h), (d_in, d_h), (d_h, d_h), (d_h,))
        scales = (scale, 0.7, d_in**-0.5, 1.1 * d_h**-0.5, 0.6)
        args = [ndarray(rng.standard_normal(s) * c, dtype, layout=layout) for s, c in zip(shapes, scales)]
        return Case(args, part=part, note=note)

    def judge(self, case: Case, seen: Sight) -> None:
        want = _recurrent(*(array.value() for array in case.args))
        close(seen.result, want, "hs", check="states")
        unchanged(seen.after, case.args)


def _recurrent(x: Any, h0: Any, W_x: Any, W_h: Any, b: Any) -> np.ndarray:
    """The oracle: torch's own module with these weights, in float64."""
    rnn = nn.RNN(*W_x.shape, batch_first=True, dtype=torch.float64)
    weights = (W_x.T, W_h.T, b, np.zeros_like(b))  # torch stores them transposed, and has two biases
    with torch.no_grad():
        for parameter, values in zip(rnn.parameters(), weights):
            parameter.copy_(torch.from_numpy(np.ascontiguousarray(values)))
        hs, _ = rnn(*(torch.from_numpy(np.ascontiguousarray(a)).double() for a in (x, h0[None])))
    return hs.numpy().astype(x.dtype)


class JacobianNorms(Exercise):
    """The spectral norm of dh_n/dh_t for every t: of a product of diag(1 - h_s^2) W_h^T over s = t+1..n."""

    name, chapter = "jacobian_norms", "01_why_attention"

    def cases(self, rng: np.random.Generator) -> Iterable[Case]:
        for n, d_h, dtype in ((3, 3, "float64"), (6, 4, "float64"), (4, 7, "float64"), (8, 5, "float32")):
            yield self._case(rng, n, d_h, dtype)
        yield self._case(rng, 1, 3, note="one state alone")
        yield self._case(rng, 5, 1, note="a state of one number")
        yield self._case(rng, 40, 6, gain=0.7, note="a long sequence")

    def _case(
        self, rng: np.random.Generator, n: int, d_h: int, dtype: str = "float64", *, gain: float = 1.6, note: str = ""
    ) -> Case:
        W_h = gain * d_h**-0.5 * rng.standard_normal((d_h, d_h))
        hs = np.zeros((n, d_h))
        for t in range(n):
            hs[t] = np.tanh(0.6 * rng.standard_normal(d_h) + (hs[t - 1] @ W_h if t else 0.0))
        # Kept off 1, where the slope is lost to rounding and the oracle has no way back.
        return Case((ndarray(W_h, dtype), ndarray(hs.clip(-0.98, 0.98), dtype)), note=note)

    def judge(self, case: Case, seen: Sight) -> None:
        W_h, hs = (array.value() for array in case.args)
        want = case.once("norms", lambda: _norms(W_h, hs))
        close(seen.result, want.astype(hs.dtype), "norms", check="norms")
        if hs.dtype == np.float64:
            close_to = np.allclose(seen.result.double(), want, rtol=1e-6, atol=0)
            expect(close_to, "small norms", "the smallest norms are wrong: they are tiny here, but not zero")
        unchanged(seen.after, case.args)


def _norms(W_h: np.ndarray, hs: np.ndarray) -> np.ndarray:
    """The oracle: autograd through a network whose inputs are chosen so that it goes through exactly these states."""
    W, states = torch.from_numpy(W_h).double(), torch.from_numpy(hs).double()
    drive = torch.atanh(states[1:]) - states[:-1] @ W
    chain = [states[0].requires_grad_()]
    for a in drive:
        chain.append(torch.tanh(a + chain[-1] @ W))
    rows = [torch.autograd.grad(out, chain, retain_graph=True) for out in chain[-1]]
    jacobians = torch.stack([torch.stack(row) for row in rows], dim=1)  # (n, d_h, d_h)
    return torch.linalg.matrix_norm(jacobians, 2).numpy()


class _Counted(Exercise):
    """An exercise with few possible values: each case makes many calls, listed in `extra`."""

    def plan(self, case: Case, plan: Plan) -> dict[str, Any]:
        return {"calls": [plan.call(ANSWER, *args, **kwargs) for args, kwargs in case.extra["calls"]]}

    def case(self, calls: Iterable[tuple[Any, ...]], note: str = "", *, error: bool = False) -> Case:
        """The last value of a call is k, given by name, or None where the default is meant."""
        said = [(args[:-1], {} if args[-1] is None else {"k": args[-1]}) for args in calls]
        return Case(note=note, extra={"calls": said, "error": error})

    def refuses(self, case: Case, seen: Sight) -> None:
        """Every call of the case should have raised ValueError."""
        for found, (args, kwargs) in zip(seen.calls, case.extra["calls"]):
            raised(found, ["ValueError"], f"{self.said(args, kwargs)} should raise ValueError")

    def said(self, args: Any, kwargs: Any) -> str:
        """The call as the learner would type it."""
        values = [repr(value) for value in args] + [f"{name}={value!r}" for name, value in kwargs.items()]
        return f"{self.name}({', '.join(values)})"

    def equals(self, found: Any, want: int, what: str) -> None:
        """A whole number, as an int, a NumPy integer or a float without a fraction."""
        got = number(found, what)
        expect(got == want, "value", f"{what} is too {'large' if got > want else 'small'}: yours is {got:.12g}")


class StepsAndPath(_Counted):
    """Sequential operations of a layer, and the hops or layers between the two ends of n positions."""

    name, chapter = "steps_and_path", "01_why_attention"

    def cases(self, rng: np.random.Generator) -> Iterable[Case]:
        powers = [k**L + step for k in (2, 3, 4, 5) for L in (1, 2, 3, 5) for step in (-1, 0, 1)]
        for arch in ARCHITECTURES:
            drawn = [(arch, int(rng.integers(2, 3000)), int(rng.integers(2, 9))) for _ in range(12)]
            fixed = [(arch, n, k) for n, k in ((2, 3), (7, 3), (125, 5), (243, 3), (1000, 10), (64, 2))]
            yield self.case([(arch, int(rng.integers(100, 900)), None), *fixed, *drawn], f"arch = {arch!r}")
        near_powers = [("dilated_conv", n, k) for n in powers for k in (2, 3, 4, 5) if n > 1]
        yield self.case(near_powers, "lengths next to powers")
        yield self.case([(arch, 1, k) for arch in ARCHITECTURES for k in (None, 2, 5)], "one position")
        yield self.case([(name, 8, None) for name in STRANGERS], "an unknown arch", error=True)
        yield self.case([(arch, n, None) for arch in ARCHITECTURES for n in (0, -3)], "n below 1", error=True)
        yield self.case([(arch, 8, k) for arch in ARCHITECTURES for k in (1, 0, -2)], "k below 2", error=True)

    def judge(self, case: Case, seen: Sight) -> None:
        if case.extra["error"]:
            return self.refuses(case, seen)
        for found, (args, kwargs) in zip(seen.calls, case.extra["calls"]):
            ran(found, self.said(args, kwargs))
            found = list(found.double()) if isinstance(found, Array) and found.shape == (2,) else found
            steps, path = pair(found, "(steps, path)")
            arch, n = args
            self.equals(steps, n if arch == "rnn" else 1, f"steps of {self.said(args, kwargs)}")
            self.equals(path, _path(arch, n, kwargs.get("k", 3)), f"path of {self.said(args, kwargs)}")
        return None


def _path(arch: str, n: int, k: int) -> int:
    """The oracle: layer by layer (or hop by hop), how far back the last position has come."""
    if arch == "rnn" or n == 1:
        return n - 1
    back = {"conv": lambda layer: k - 1, "dilated_conv": lambda layer: (k - 1) * k**layer, "attention": lambda _: n}
    reach = itertools.accumulate(back[arch](layer) for layer in itertools.count())
    return 1 + next(layer for layer, covered in enumerate(reach) if covered >= n - 1)


class LayerMacs(_Counted):
    """Multiply-adds of one layer: the products of its weight matrices, and for attention those between positions."""

    name, chapter = "layer_macs", "01_why_attention"

    def cases(self, rng: np.random.Generator) -> Iterable[Case]:
        for arch in ARCHITECTURES:
            sizes = rng.integers(2, 700, (10, 2)).tolist()
            drawn = [(arch, n, d, int(rng.integers(2, 9))) for n, d in sizes]
            fixed = [(arch, 2, 3, None), (arch, 5, 2, 2), (arch, 1, 4, None), (arch, 1024, 512, None)]
            yield self.case([*fixed, *drawn], f"arch = {arch!r}")
        yield self.case([(name, 8, 4, None) for name in STRANGERS], "an unknown arch", error=True)

    def judge(self, case: Case, seen: Sight) -> None:
        if case.extra["error"]:
            return self.refuses(case, seen)
        for found, (args, kwargs) in zip(seen.calls, case.extra["calls"]):
            said = self.said(args, kwargs)
            ran(found, said)
            arch, n, d = args
            self.equals(found, _macs(arch, n, d, kwargs.get("k", 3)), said)
        return None


def _macs(arch: str, n: int, d: int, k: int) -> int:
    """The oracle: the sizes (rows, inner, columns) of every matrix product that the layer makes, added up."""
    square, position = (n, d, d), (1, d, d)
    products = {
        "rnn": [position, position] * n,
        "conv": [square] * k,
        "dilated_conv": [square] * k,
        "attention": [square] * 4 + [(n, d, n), (n, n, d)],
    }
    return sum(rows * inner * columns for rows, inner, columns in products[arch])


class CrossoverLength(_Counted):
    """The n at which 2 n^2 d equals 4 n d^2."""

    name, chapter = "crossover_length", "01_why_attention"

    def cases(self, rng: np.random.Generator) -> Iterable[Case]:
        widths = [1, 2, 3, 64, 512, *rng.integers(4, 5000, 12).tolist()]
        yield self.case([(d, None) for d in widths])

    def judge(self, case: Case, seen: Sight) -> None:
        for found, (args, kwargs) in zip(seen.calls, case.extra["calls"]):
            (d,) = args
            between, projections = _macs("attention", d, d, 3) - 4 * d**3, 4 * d**3  # both at n = d
            ran(found, self.said(args, kwargs))
            # One grows with n^2, the other with n: they meet at n = d * projections / between.
            near(found, d * projections // between, self.said(args, kwargs), rtol=1e-9)  # it may have been searched for


EXERCISES = [RnnForward(), JacobianNorms(), StepsAndPath(), LayerMacs(), CrossoverLength()]
