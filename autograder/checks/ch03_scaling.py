"""Chapter 3: the moments of a dot product, the softmax Jacobian, scaled dot-product attention."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from autograder.checks.answers import ch03_scaling as _answers  # noqa: F401  (fills the catalogue)
from autograder.checks.inputs import mask, normal, tensor
from autograder.judge import (
    Case,
    Exercise,
    Sight,
    close,
    expect,
    near,
    number,
    oracle_gradients,
    pair,
    ran,
    unchanged,
)
from autograder.wire import ANSWER, Array, Plan


class DotProductMoments(Exercise):
    """Mean 0 and variance d_k, measured on draws from the given generator alone."""

    name, chapter = "dot_product_moments", "03_scaling"

    def cases(self, rng: np.random.Generator) -> Iterable[Case]:
        for d_k, samples in ((12, 600), (2, 900), (40, 700)):  # a bound of 7 standard errors: see _judge_moments
            yield Case((d_k, samples), extra={"repeats": 1, "seed": int(rng.integers(1 << 31))})
        yield Case((3, 600), note="several runs", extra={"repeats": 16, "seed": int(rng.integers(1 << 31))})

    def plan(self, case: Case, plan: Plan) -> dict[str, Any]:
        seed = case.extra["seed"]
        before = plan.rng()
        generator = plan.make("generator", seed)
        runs = [plan.call(ANSWER, *case.args, generator) for _ in range(case.extra["repeats"])]
        after = plan.rng()
        plan.reseed(seed + 1)
        again = plan.call(ANSWER, *case.args, plan.make("generator", seed))
        other = plan.call(ANSWER, *case.args, plan.make("generator", seed + 1))
        return {"runs": runs, "again": again, "other": other, "rng": [before, after]}

    def judge(self, case: Case, seen: Sight) -> None:
        d_k, samples = case.args
        moments = [self._moments(run) for run in seen.runs]
        again, other = self._moments(seen.again), self._moments(seen.other)
        expect(
            np.allclose(moments[0], again, rtol=1e-5, atol=1e-5) and seen.rng[0] == seen.rng[1],
            "only the given generator",
            "the numbers do not come from the given generator alone: two generators in the same state gave you "
            "different results, or torch's global random state moved. Pass generator=generator to torch.randn",
            kind="global generator",
        )
        expect(
            not np.allclose(moments[0], other, rtol=1e-7, atol=1e-9),
            "uses the generator",
            "another generator gave exactly the same result: draw q and k from the generator you are given",
            kind="generator ignored",
        )
        for mean, variance in moments:
            self._judge_moments(d_k, samples, mean, variance)
        if len(moments) > 1:
            self._judge_spread(d_k, samples, np.array(moments))

    def _moments(self, found: Any) -> tuple[float, float]:
        ran(found)
        if isinstance(found, Array) and found.shape == (2,):
            mean, variance = map(float, found.double())
            return mean, variance
        first, second = pair(found, "the mean and the variance")
        return number(first, "the mean"), number(second, "the variance")

    def _judge_moments(self, d_k: int, samples: int, mean: float, variance: float) -> None:
        error = math.sqrt(d_k / samples)  # standard error of the mean
        spread = d_k * math.sqrt((2 + 6 / d_k) / samples)  # of the variance: excess kurtosis of q.k is 6 / d_k
        expect(
            abs(mean) < 7 * error,
            "mean",
            f"the mean of q·k should be close to 0 for standard normal q and k; yours is {mean:.3g}",
        )
        expect(
            abs(variance - d_k) < 7 * spread or abs(variance**2 - d_k) >= 7 * spread,
            "variance",
            "you returned the standard deviation; its square, the variance, is asked for",
            kind="standard deviation",
        )
        expect(
            abs(variance - d_k) < 7 * spread,
            "variance",
            f"the variance of q·k is too {'large' if variance > d_k else 'small'}: yours is {variance:.3g} at "
            f"d_k = {d_k}. A dot product adds up d_k independent products, each of variance 1",
        )

    def _judge_spread(self, d_k: int, samples: int, moments: np.ndarray) -> None:
        """Over 16 runs the mean of `samples` dot products varies as d_k / samples: chi-squared with 15 degrees.

        By chance a right one lies outside once in 10 million; that of all q with all k varies as d_k / samples^2.
        """
        ratio = moments[:, 0].var(ddof=1) / (d_k / samples)
        expect(
            0.05 < ratio < 5.0,
            "samples",
            f"the mean varies from run to run {'more' if ratio > 1 else 'less'} than that of {samples} independent "
            "dot products would: draw `samples` pairs, and pair each q with its own k",
        )


class PredictedVariance(Exercise):
    """d_k [(var_q + mu_q^2)(var_k + mu_k^2) - mu_q^2 mu_k^2], the variance of a sum of independent products."""

    name, chapter = "predicted_variance", "03_scaling"

    def cases(self, rng: np.random.Generator) -> Iterable[Case]:
        for d_k in (1, 4, 1024):
            yield Case((d_k,))
        yield Case((7,), {"var_q": 2.0, "var_k": 3.0})
        yield Case((5,), {"mu_q": 1.5})
        yield Case((5,), {"mu_k": -2.0})
        for _ in range(4):
            d_k, values = int(rng.integers(2, 300)), rng.uniform(0.2, 3.0, 4).round(3)
            signs = np.array([rng.choice([-1, 1]), rng.choice([-1, 1]), 1, 1])
            yield Case((d_k, *map(float, values * signs)))

    def judge(self, case: Case, seen: Sight) -> None:
        given = dict(zip(("d_k", "mu_q", "mu_k", "var_q", "var_k"), case.args)) | dict(case.kwargs)
        d_k, mu_q, mu_k = given["d_k"], given.get("mu_q", 0.0), given.get("mu_k", 0.0)
        var_q, var_k = given.get("var_q", 1.0), given.get("var_k", 1.0)
        # An independent way to the same number: the law of total variance, Var = E[Var | k] + Var(E | k).
        per_term = var_q * (var_k + mu_k**2) + mu_q**2 * var_k
        near(seen.result, d_k * per_term, "the variance", rtol=1e-5)


class SoftmaxJacobian(Exercise):
    """J = diag(p) - p p^T, the derivative of softmax at its own output."""

    name, chapter = "softmax_jacobian", "03_scaling"

    def cases(self, rng: np.random.Generator) -> Iterable[Case]:
        for n, dtype in ((1, "float32"), (2, "float32"), (7, "float64"), (24, "float32")):
            yield Case((tensor(rng.dirichlet(np.ones(n)), dtype),))

    def judge(self, case: Case, seen: Sight) -> None:
        (given,) = case.args
        p = given.value()
        logits = p.double().log()
        oracle = torch.autograd.functional.jacobian(lambda s: s.softmax(-1), logits).to(p.dtype)
        close(seen.result, oracle, "J", why="It differs from the derivative that autograd takes of softmax here")
        unchanged(seen.after, case.args)


class ScaledDotProductAttention(Exercise):
    """softmax(Q K^T / sqrt(d_k)) V with a mask before the softmax; equals F.scaled_dot_product_attention."""

    name, chapter, parts = "scaled_dot_product_attention", "03_scaling", ("core", "edge")

    def cases(self, rng: np.random.Generator) -> Iterable[Case]:
        yield self._case(rng, (), 5, 5, 3, 4)  # square, so that a transposed product runs and shows in its values
        yield self._case(rng, (), 5, 7, 6, 3)
        yield self._case(rng, (2,), 4, 6, 3, 5, grad=True)
        yield self._case(rng, (2, 3), 3, 5, 4, 6, mask_shape=(3, 5))
        yield self._case(rng, (3,), 5, 4, 2, 3, mask_shape=(3, 5, 4), grad=True)
        edge: dict[str, Any] = {"part": "edge"}
        yield self._case(rng, (2, 3), 4, 5, 3, 6, dtype="float64", **edge)
        yield self._case(rng, (2, 1, 3), 2, 5, 4, 3, mask_shape=(2, 1, 1, 1, 5), mask_dtype="int64", grad=True, **edge)
        yield self._case(rng, (2, 3), 4, 5, 6, 2, mask_shape=(2, 1, 4, 5), mask_dtype="int64", **edge)
        yield self._case(rng, (2,), 3, 6, 4, 5, layout="strided", **edge)
        yield self._case(rng, (2,), 4, 6, 3, 2, scale=60.0, note="scores in the thousands", **edge)
        yield self._hidden_giant(rng)

    def _case(
        self, rng: np.random.Generator, lead: tuple[int, ...], n: int, m: int, d_k: int, d_v: int, *,
        dtype: str = "float32", mask_shape: tuple[int, ...] | None = None, mask_dtype: str = "bool",
        grad: bool = False, layout: str = "contiguous", scale: float = 1.0, part: str = "core", note: str = "",
    ) -> Case:  # fmt: skip
        shapes = ((*lead, n, d_k), (*lead, m, d_k), (*lead, m, d_v))
        scales = (scale, scale, 1.0)
        args = [normal(rng, s, dtype, scale=c, grad=grad, layout=layout) for s, c in zip(shapes, scales)]
        kwargs = {} if mask_shape is None else {"mask": mask(rng, mask_shape, mask_dtype)}
        factors = {"output": normal(rng, (*lead, n, d_v), dtype), "weights": normal(rng, (*lead, n, m), dtype)}
        return Case(args, kwargs, part, note, factors)

    def _hidden_giant(self, rng: np.random.Generator) -> Case:
        """The masked key's score exceeds the kept ones by about 10^5: a filler of -1e4 is not minus infinity here."""
        case = self._case(rng, (2,), 3, 5, 4, 2, part="edge", note="a masked score far above the others")
        Q, K, V = (array.value() for array in case.args)
        Q = Q.abs() + 0.5
        K[:, 2] = 2e5
        allowed = torch.tensor([True, True, False, True, True])
        return Case([Array.of(t) for t in (Q, K, V)], {"mask": Array.of(allowed)}, "edge", case.note, case.extra)

    def plan(self, case: Case, plan: Plan) -> dict[str, Any]:
        names = super().plan(case, plan)
        if case.args[0].grad:
            refs = names["inputs"]
            names["of_output"] = plan.grad([(names["result"][0], case.extra["output"])], refs)
            names["of_weights"] = plan.grad([(names["result"][1], case.extra["weights"])], refs[:2])
        return names

    def judge(self, case: Case, seen: Sight) -> None:
        output, weights = pair(seen.result, "(output, weights)")
        given = case.kwargs.get("mask")
        allowed = None if given is None else given.value().bool()
        Q, K, V = (array.value().detach() for array in case.args)
        want_output, want_weights = _attention(Q.double(), K.double(), V.double(), allowed)
        # In float32, scores in the thousands are themselves known to 1e-4 only.
        atol = 5e-3 if "thousands" in case.note else None
        close(weights, want_weights.to(Q.dtype), "weights", check="weights", atol=atol)
        close(output, want_output.to(Q.dtype), "output", check="output", atol=atol)
        unchanged(seen.after, [*case.args, *case.kwargs.values()])
        if case.args[0].grad:
            self._judge_gradients(case, seen, allowed)

    def _judge_gradients(self, case: Case, seen: Sight, allowed: torch.Tensor | None) -> None:
        inputs = [array.value().detach().double() for array in case.args]
        for part, found in ((0, seen.of_output), (1, seen.of_weights)):
            name = ("output", "weights")[part]
            ran(found, f"taking the gradient of your {name}")
            count = 3 - part

            def attend(*given: torch.Tensor, part: int = part) -> list[torch.Tensor]:
                every = [*given, *inputs[len(given) :]]
                return [_attention(every[0], every[1], every[2], allowed)[part]]

            oracle = oracle_gradients(attend, inputs[:count], [case.extra[name].value().double()])
            for got, want, letter in zip(found[0], oracle, "QKV"):
                close(got, want.float(), f"the gradient of {name} with respect to {letter}", check="gradients")


def _attention(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, allowed: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The oracle: torch's own operator; its weights are its output on the identity as values."""
    eye = torch.eye(K.shape[-2], dtype=V.dtype).expand(*K.shape[:-1], K.shape[-2])
    output, weights = (F.scaled_dot_product_attention(Q, K, values, attn_mask=allowed) for values in (V, eye))
    return output, weights


EXERCISES = [DotProductMoments(), PredictedVariance(), SoftmaxJacobian(), ScaledDotProductAttention()]
