"""Chapter 2: projections, scores, softmax, attention without scale, a head that looks one token back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from autograder.checks.answers import ch02_query_key_value as _answers  # noqa: F401  (fills the catalogue)
from autograder.checks.inputs import ndarray
from autograder.judge import Case, Exercise, Sight, close, expect, is_array, pair, ran, unchanged
from autograder.wire import ANSWER, Array, Plan

CHAPTER = "02_query_key_value"


def _draw(rng: np.random.Generator, shape: Iterable[int], dtype: str, **options: Any) -> Array:
    return ndarray(rng.standard_normal(tuple(shape)), dtype, **options)


def _double(array: Array) -> torch.Tensor:
    return torch.from_numpy(array.double())


class ProjectQKV(Exercise):
    """X W_q, X W_k, X W_v over any leading axes: three linear layers of torch without bias."""

    name, chapter = "project_qkv", CHAPTER

    def cases(self, rng: np.random.Generator) -> Iterable[Case]:
        for lead, n, d_model, d_k, d_v, dtype in (
            ((), 4, 4, 4, 4, "float32"),  # square, so that a transposed product runs and shows in its values
            ((), 3, 6, 2, 5, "float64"),
            ((2,), 4, 5, 3, 6, "float32"),
            ((2, 3), 5, 4, 6, 2, "float64"),
        ):
            shapes = ((*lead, n, d_model), (d_model, d_k), (d_model, d_k), (d_model, d_v))
            yield Case([_draw(rng, shape, dtype) for shape in shapes])

    def judge(self, case: Case, seen: Sight) -> None:
        X, *weights = case.args
        results = pair(seen.result, "(Q, K, V)", 3)
        for found, W, letter in zip(results, weights, "QKV"):
            want = F.linear(_double(X), _double(W).T).numpy().astype(X.dtype)
            close(found, want, letter)
        unchanged(seen.after, case.args)


class AttentionScores(Exercise):
    """Every query's dot product with every key: (..., n, m), neither scaled nor normalised."""

    name, chapter = "attention_scores", CHAPTER

    def cases(self, rng: np.random.Generator) -> Iterable[Case]:
        for lead, n, m, d_k, dtype, layout in (
            ((), 4, 4, 4, "float32", "contiguous"),  # square, as above
            ((), 5, 3, 2, "float64", "contiguous"),
            ((3,), 3, 3, 3, "float32", "contiguous"),  # here even K.T, which reverses all axes, runs
            ((2,), 3, 6, 5, "float64", "strided"),
            ((2, 3), 4, 5, 6, "float32", "contiguous"),
        ):
            shapes = ((*lead, n, d_k), (*lead, m, d_k))
            yield Case([_draw(rng, shape, dtype, layout=layout) for shape in shapes])

    def judge(self, case: Case, seen: Sight) -> None:
        Q, K = map(_double, case.args)
        want = torch.stack([(Q * K[..., j : j + 1, :]).sum(-1) for j in range(K.shape[-2])], dim=-1)
        close(seen.result, want.numpy().astype(case.args[0].dtype), "scores")
        unchanged(seen.after, case.args)


class Softmax(Exercise):
    """torch's softmax along any axis, for scores of any size, -inf among them."""

    name, chapter, parts = "softmax", CHAPTER, ("core", "edge")

    def cases(self, rng: np.random.Generator) -> Iterable[Case]:
        yield Case([_draw(rng, (4, 4), "float32")])  # square: sums along the wrong axis broadcast
        yield Case([_draw(rng, (5,), "float64")])
        yield Case([_draw(rng, (2, 3, 4), "float32")])
        yield Case([_draw(rng, (3, 5), "float64")], {"axis": 0})
        yield Case([_draw(rng, (2, 5, 3), "float32"), 1])
        yield from self._edge(rng)

    def _edge(self, rng: np.random.Generator) -> Iterable[Case]:
        def large(values: np.ndarray, dtype: str, note: str, **kwargs: Any) -> Case:
            return Case([ndarray(values, dtype)], kwargs, "edge", note)

        yield large(rng.standard_normal((3, 6)) * 1e4, "float64", "scores of the size 1e4")
        yield large(rng.uniform(95, 110, (2, 7)), "float32", "scores of about 100")
        levels = np.array([1e4, -1e4, 0.0])[:, None]
        yield large(levels + rng.standard_normal((3, 4)), "float64", "rows at 1e4, -1e4 and 0")
        yield large(_with_holes(rng, (4, 6), 1), "float32", "some scores are -inf")
        yield large(_with_holes(rng, (5, 3, 2), 0), "float64", "some scores are -inf", axis=0)
        yield Case([_draw(rng, (2, 4, 3, 5), "float64"), -3], part="edge")
        yield Case([_draw(rng, (3, 4, 2), "float32", layout="strided")], {"axis": -2}, "edge")
        row = np.broadcast_to(rng.standard_normal(4), (3, 4))
        yield Case([ndarray(row, "float64", layout="expanded")], {}, "edge", "an array that may not be written to")

    def judge(self, case: Case, seen: Sight) -> None:
        x = case.args[0]
        axis = case.args[1] if len(case.args) > 1 else case.kwargs.get("axis", -1)
        want = torch.softmax(_double(x), dim=axis).numpy().astype(x.dtype)
        close(seen.result, want, "weights")
        unchanged(seen.after, case.args)


def _with_holes(rng: np.random.Generator, shape: tuple[int, ...], axis: int) -> np.ndarray:
    """Normal draws of which some are -inf, at least one of all and never the largest along `axis`."""
    values = rng.standard_normal(shape)
    holes = (rng.random(shape) < 0.4) | (values == values.min())
    return np.where(holes & (values < values.max(axis, keepdims=True)), -np.inf, values)


class Attention(Exercise):
    """softmax(Q K^T) V, not scaled, over any leading axes: torch's operator with scale=1."""

    name, chapter, parts = "attention", CHAPTER, ("core", "edge")

    def cases(self, rng: np.random.Generator) -> Iterable[Case]:
        yield self._case(rng, (), 4, 4, 4, 4)  # square, so that a transposed product runs and shows in its values
        yield self._case(rng, (), 5, 7, 6, 3)
        yield self._case(rng, (2,), 4, 6, 3, 5, dtype="float64")
        edge: dict[str, Any] = {"part": "edge"}
        yield self._case(rng, (2, 3), 3, 5, 4, 6, **edge)
        yield self._case(rng, (2, 1, 3), 4, 2, 5, 3, dtype="float64", **edge)
        yield self._case(rng, (3,), 5, 4, 2, 6, layout="strided", **edge)
        yield self._case(rng, (2,), 3, 5, 4, 2, dtype="float64", scale=30.0, note="scores in the thousands", **edge)
        yield self._case(rng, (2,), 3, 1, 4, 5, note="a single key", **edge)

    def _case(
        self, rng: np.random.Generator, lead: tuple[int, ...], n: int, m: int, d_k: int, d_v: int, *,
        dtype: str = "float32", layout: str = "contiguous", scale: float = 1.0, part: str = "core", note: str = "",
    ) -> Case:  # fmt: skip
        shapes, scales = ((*lead, n, d_k), (*lead, m, d_k), (*lead, m, d_v)), (scale, scale, 1.0)
        args = [ndarray(rng.standard_normal(s) * c, dtype, layout=layout) for s, c in zip(shapes, scales)]
        return Case(args, {}, part, note)

    def judge(self, case: Case, seen: Sight) -> None:
        output, weights = pair(seen.result, "(output, weights)")
        Q, K, V = map(_double, case.args)
        # A black box tells its weights when the values are the identity.
        eye = torch.eye(K.shape[-2], dtype=V.dtype).expand(*K.shape[:-1], K.shape[-2])
        for found, values, what in ((weights, eye, "weights"), (output, V, "output")):
            want = F.scaled_dot_product_attention(Q, K, values, scale=1.0)
            close(found, want.numpy().astype(case.args[0].dtype), what, check=what)
        unchanged(seen.after, case.args)


class PreviousTokenHead(Exercise):
    """Weights with which token i looks at token i - 1, whatever the symbols; judged by what they do."""

    name, chapter = "previous_token_head", CHAPTER

    def cases(self, rng: np.random.Generator) -> Iterable[Case]:
        for v, n in ((3, 5), (4, 2), (2, 9), (7, 40)):
            symbols = [rng.integers(v, size=n) for _ in range(6)]
            symbols.append(np.full(n, rng.integers(v)))  # the same symbol everywhere
            yield Case((v, n), extra={"symbols": symbols})

    def plan(self, case: Case, plan: Plan) -> dict[str, Any]:
        default = plan.call(ANSWER, *case.args)
        sharp = plan.call(ANSWER, *case.args, sharpness=50.0)
        small = plan.call(ANSWER, *case.args, 0.01)
        return {"default": default, "sharp": sharp, "small": small}

    def judge(self, case: Case, seen: Sight) -> None:
        default, sharp, small = (self._scores(case, found) for found in (seen.default, seen.sharp, seen.small))
        weights = _softmax(default)
        _looks_back(weights, case.extra["symbols"])
        same = np.allclose(default, sharp, rtol=1e-5, atol=1e-5)
        expect(same, "default", "sharpness=50.0 by name does not do what leaving it out does: 50 is the default")
        on_previous = [np.diagonal(each, -1, 1, 2).mean() for each in (weights, _softmax(small))]
        expect(
            on_previous[1] < on_previous[0] - 1e-9,
            "sharpness",
            "a sharpness of 0.01 gives the same weights as the default: multiply the scores by sharpness",
            kind="sharpness ignored",
        )

    def _scores(self, case: Case, found: Any) -> np.ndarray:
        """The scores (sequences, n, n) that the returned matrices give."""
        v, n = case.args
        W_q, W_k = (_matrix(each, v + n, name) for each, name in zip(pair(found, "(W_q, W_k)"), ("W_q", "W_k")))
        widths = f"W_q and W_k need the same width, or no dot product exists; yours have {W_q.shape} and {W_k.shape}"
        expect(W_q.shape == W_k.shape, "shape", widths)
        X = np.stack([np.concatenate([np.eye(v)[s], np.eye(n)], axis=1) for s in case.extra["symbols"]])
        return (X @ W_q) @ np.swapaxes(X @ W_k, -2, -1)


def _softmax(scores: np.ndarray) -> np.ndarray:
    return torch.softmax(torch.from_numpy(scores), dim=-1).numpy()


def _matrix(found: Any, rows: int, what: str) -> np.ndarray:
    ran(found)
    fits = isinstance(found, Array) and found.lib == "numpy" and len(found.shape) == 2
    shape = (rows, found.shape[1] if fits else 0)
    is_array(found, shape, what, lib="numpy")
    values = found.double()
    expect(bool(np.isfinite(values).all()), "finite", f"{what} has NaN or infinity in it")
    return values


def _looks_back(weights: np.ndarray, symbols: list[np.ndarray]) -> None:
    """Fails unless every token but the first puts more than 0.99 on the one before it."""
    n = weights.shape[-1]
    if bool((np.diagonal(weights, -1, 1, 2) > 0.99).all()):
        return
    best = weights.argmax(-1)  # (sequences, n)
    i = np.arange(n)
    here = np.arange(len(symbols))[:, None]
    alike = np.stack(symbols)[here, best] == np.stack(symbols)
    firm = weights.max(-1) > 1.5 / n
    for kind, hit in (
        ("next token", (best[:, :-1] == i[:-1] + 1).all() and n > 2),
        ("itself", (best == i).all()),
        ("symbols matched", alike.all() and not (best[:, 1:] == i[:-1]).all() and firm.all()),
    ):
        expect(not hit, "previous token", MESSAGES[kind], kind=kind)
    s, at = np.unravel_index(int(np.diagonal(weights, -1, 1, 2).argmin()), (len(symbols), n - 1))
    share = weights[s, at + 1, at]
    where = "its largest weight, but too small" if best[s, at + 1] == at else f"most goes to token {best[s, at + 1]}"
    text = f"token {at + 1} puts only {share:.3f} on token {at} ({where}); more than 0.99 is asked for"
    expect(False, "previous token", text)


MESSAGES = _answers.HEAD_MESSAGES
EXERCISES = [ProjectQKV(), AttentionScores(), Softmax(), Attention(), PreviousTokenHead()]
