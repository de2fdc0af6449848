"""Chapter 5: equivariance, sinusoids and their wavelengths, the shift matrix, the module that adds them, rotary."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from autograder.checks.answers import ch05_positional_encoding as _answers  # noqa: F401  (fills the catalogue)
from autograder.checks.inputs import normal, tensor
from autograder.judge import Case, Exercise, Sight, close, expect, is_array, raised, ran, unchanged
from autograder.wire import ANSWER, Array, Opaque, Plan

CHAPTER = "05_positional_encoding"
TABLE = 1e-4  # the tolerance of sinusoids up to position 200: float32 angles are off by 7e-6 at most
ODD = (3, 1, 7, 12 + 1)


def _frequencies(d: int, base: float) -> np.ndarray:
    """(d/2,) radians per position, as a geometric progression from 1 to just above 1 / base."""
    return np.geomspace(1.0, 1.0 / base, d // 2, endpoint=False)


def _sinusoids(n: int, d: int, base: float = 10000.0, start: int = 0) -> np.ndarray:
    """(n, d) by turning hands: the complex number e^(i angle) has the cosine and the sine as its parts."""
    hands = np.exp(1j * np.outer(np.arange(start, start + n), _frequencies(d, base)))
    return np.stack([hands.imag, hands.real], axis=-1).reshape(n, d)


# ---- is_permutation_equivariant -------------------------------------------------------------------------------

EQUIVARIANT = {"attention": True, "tokenwise": True, "mean": True, "causal attention": False, "cumulative sum": False,
               "table": False, "convolution": False, "last": False, "sorted": False}  # fmt: skip
_Tried = dict[str, Any]  # one layer on trial: its making, x, perm, further arguments, the truth


class IsPermutationEquivariant(Exercise):
    """Many layers of the registry, whose answers are known by what they do to a sequence."""

    name, chapter = "is_permutation_equivariant", CHAPTER

    def cases(self, rng: np.random.Generator) -> Iterable[Case]:
        still = [self._try(rng, kind, 2, 5, 3, perm=np.arange(5)) for kind in ("table", "convolution")]
        yield Case(note="a perm that leaves every token where it is", extra={"tried": still})
        cycle = np.array([1, 2, 0])  # not its own inverse; token 2 keeps its left neighbour
        kinds = rng.permutation(["attention", "mean", "table", "sorted", "convolution"])
        square = [self._try(rng, str(kind), 3, 3, 3, perm=cycle) for kind in kinds]
        for part in (square[:2], square[2:]):  # what fails here is tried with the whole catalogue: keep it small
            yield Case(note="B = n = d", extra={"tried": part})
        pair = [self._try(rng, kind, 2, 4, 3, as_tuple=True) for kind in ("tokenwise", "cumulative sum")]
        yield Case(note="the layer returns (output, None)", extra={"tried": pair})
        noisy = [self._try(rng, k, 2, 5, 3, dropout=0.5, training=True) for k in ("attention", "tokenwise", "last")]
        yield Case(note="a layer with dropout, in train mode", extra={"tried": noisy})
        yield Case(note="layers in eval mode", extra={"tried": [self._any(rng, training=False) for _ in range(3)]})
        yield Case(note="various layers", extra={"tried": [self._any(rng) for _ in range(4)]})
        yield Case(note="the tolerance atol", extra={"tried": self._tolerances(rng)})
        yield Case(note="differences of one sign", extra={"tried": [self._one_sided(rng, up) for up in (True, False)]})
        yield Case(note="a difference in few places", extra={"tried": self._few_places(rng)})
        later = self._try(rng, "later table", 2, 4, 3)
        yield Case(note="one sequence obeys, the next does not", extra={"tried": [later]})

    def _any(self, rng: np.random.Generator, *, training: bool = True) -> _Tried:
        """A layer of either truth with the same chance."""
        truth = bool(rng.random() < 0.5)
        kind = rng.choice([kind for kind, holds in EQUIVARIANT.items() if holds == truth])
        B, n, d = (int(size) for size in rng.permuted([2, 5, 3] if rng.random() < 0.5 else [1, 6, 4]))
        n = max(n, 3)
        flag = bool(rng.random() < 0.5)
        return self._try(rng, str(kind), B, n, d, as_tuple=flag, dropout=0.3 * (rng.random() < 0.5), training=training)

    def _tolerances(self, rng: np.random.Generator) -> list[_Tried]:
        small: dict[str, Any] = {"scale": 3e-4}  # its square is within atol
        waves = np.array([[0.3], [-0.3], [0.3], [-0.3]]) * rng.choice([-1, 1], 3)
        cycle = np.array([1, 2, 3, 0])
        near: dict[str, Any] = {"weight": waves, "perm": cycle, "keyword": {"atol": 0.7}, "truth": True}
        far: dict[str, Any] = {"weight": 1000 + 0.003 * np.arange(4.0)[:, None] * np.ones((4, 3)), "truth": False}
        return [
            self._try(rng, "table", 2, 4, 3, **small),
            self._try(rng, "table", 2, 4, 3, **small, keyword={"atol": 0.1}),
            self._try(rng, "table", 2, 4, 3, **small, positional=(0.1,)),
            self._try(rng, "attention", 2, 4, 3, dtype="float64", keyword={"atol": 1e-10}),
            self._try(rng, "table", 2, 4, 3, **near),  # each entry is near enough, their norm and their sum are not
            self._try(rng, "table", 2, 4, 3, **far),  # a share of the numbers is more than atol here
        ]

    def _one_sided(self, rng: np.random.Generator, up: bool) -> _Tried:
        """The layer adds something to x alone (`up`), or to the reordered x alone: all differences have one sign."""
        x = np.sort(rng.standard_normal((2, 4, 3)), axis=1)
        perm = np.array([3, 0, 1, 2])
        weight = np.abs(rng.standard_normal((1, 3))) + 0.1
        x = x if up else x[:, ::-1].copy()
        return self._try(rng, "ascent", 2, 4, 3, perm=perm, weight=weight, x=x, truth=False)

    def _few_places(self, rng: np.random.Generator) -> list[_Tried]:
        """A table with one number that is not 0, and a tolerance that lies between that and the mean difference."""
        tried = []
        for row, column in ((0, 0), (3, 2)):
            weight = np.zeros((4, 3))
            weight[row, column] = rng.choice([-0.01, 0.01])
            options: dict[str, Any] = {"weight": weight, "keyword": {"atol": 0.005}, "truth": False}
            tried.append(self._try(rng, "table", 2, 4, 3, perm=np.array([1, 0, 3, 2]), **options))
        return tried

    def _try(
        self, rng: np.random.Generator, kind: str, B: int, n: int, d: int, *, perm: np.ndarray | None = None,
        as_tuple: bool = False, dropout: float = 0.0, training: bool = True, scale: float = 1.0,
        dtype: str = "float32", positional: tuple[float, ...] = (), keyword: dict[str, float] | None = None,
        x: np.ndarray | None = None, weight: np.ndarray | None = None, truth: bool | None = None,
    ) -> _Tried:  # fmt: skip
        perm = _moving(rng, n) if perm is None else perm
        marks = "table" in kind
        if weight is None:
            weight = rng.standard_normal((n if marks else d, d)) * (scale if marks else d**-0.5)
        atol = [*positional, *(keyword or {}).values(), 1e-5][0]
        if truth is None:
            truth = EQUIVARIANT.get(kind, False) or bool((perm == np.arange(n)).all()) or scale < atol / 10
        return {
            "make": (kind, tensor(weight, dtype)), "options": {"dropout": dropout, "as_tuple": as_tuple},
            "training": training,
            "x": normal(rng, (B, n, d), dtype) if x is None else tensor(x, dtype), "perm": tensor(perm, "int64"),
            "positional": positional, "keyword": keyword or {}, "truth": truth,
        }  # fmt: skip

    def plan(self, case: Case, plan: Plan) -> dict[str, Any]:
        names: dict[str, list[Any]] = {"results": [], "modes": [], "logs": [], "after": []}
        for tried in case.extra["tried"]:
            layer = plan.make("layer", *tried["make"], **tried["options"])
            plan.mode(layer, tried["training"])
            inputs = plan.put(tried["x"]), plan.put(tried["perm"])
            names["results"].append(plan.call(ANSWER, layer, *inputs, *tried["positional"], **tried["keyword"]))
            names["modes"].append([plan.look(layer.training), plan.look(layer.dropout.training)])
            names["logs"].append(plan.log(layer))
            names["after"].append([plan.look(ref) for ref in (*inputs, layer.weight)])
        return dict(names)

    def judge(self, case: Case, seen: Sight) -> None:
        for i, tried in enumerate(case.extra["tried"]):
            kind, weight = tried["make"]
            got = _truth(seen.results[i])
            unchanged(seen.after[i], [tried["x"], tried["perm"], weight])
            expect(not any(map(any, seen.logs[i])), "eval mode", "the layer was called in train mode, where dropout is "
                   "at work: put it into eval mode first")  # fmt: skip
            mode = "train" if tried["training"] else "eval"
            part = "" if seen.modes[i][0] != tried["training"] else ", and all its parts, the dropout inside, too"
            expect(seen.modes[i] == [tried["training"]] * 2, "mode restored", f"the layer came in {mode} mode and "
                   f"should be in {mode} mode again afterwards{part}")  # fmt: skip
            expect(got == tried["truth"], "value", f"{got} is not the answer for a layer that {_DOES[kind]}, perm = "
                   f"{tried['perm'].value().tolist()}")  # fmt: skip


_DOES = {
    "attention": "is self-attention without positions", "tokenwise": "maps each token by itself",
    "mean": "puts the same mean everywhere", "causal attention": "is self-attention over earlier tokens",
    "cumulative sum": "sums up all tokens so far", "table": "adds a vector to each position",
    "convolution": "adds to each token its left neighbour", "last": "puts the last token everywhere",
    "sorted": "sorts along the sequence", "later table": "adds a vector to each position of the second sequence",
    "ascent": "adds something to all tokens if the first is smaller than the second",
}  # fmt: skip


def _moving(rng: np.random.Generator, n: int) -> np.ndarray:
    """A permutation that moves the last token and is not its own inverse."""
    while True:
        perm = rng.permutation(n)
        if perm[-1] != n - 1 and (perm[perm] != np.arange(n)).any():
            return perm


def _truth(found: Any) -> bool:
    """A bool, or one element of a boolean tensor or array."""
    ran(found)
    if isinstance(found, Array) and found.dtype == "bool" and math.prod(found.shape) == 1:
        return bool(found.double().reshape(-1)[0])
    yours = type(found).__name__ if not isinstance(found, (Array, Opaque)) else "an array or another object"
    expect(isinstance(found, bool), "type", f"the answer should be True or False; yours is {yours}")
    return bool(found)


# ---- sinusoidal_encoding, wavelengths, shift_matrix -----------------------------------------------------------


class SinusoidalEncoding(Exercise):
    """PE[pos, 2i] = sin(pos / base^(2i/d)), PE[pos, 2i + 1] = cos of the same."""

    name, chapter, parts = "sinusoidal_encoding", CHAPTER, ("core", "edge")

    def cases(self, rng: np.random.Generator) -> Iterable[Case]:
        yield Case((6, 6))  # square, so that a transposed table has the right shape
        yield Case((5, 8))
        yield Case((int(rng.integers(10, 30)), 2 * int(rng.integers(5, 10))))
        yield Case((200, 10))
        yield Case((4, 64))
        yield Case((7, 4), {"base": 100.0}, "edge", "another base")
        yield Case((5, 6, round(float(rng.uniform(5, 5000)), 2)), part="edge", note="base as the third argument")
        yield Case((1, 10), part="edge", note="one position")
        yield Case((9, 2), part="edge", note="one pair")
        yield Case(part="edge", note="odd d_model", extra={"refused": ODD})

    def plan(self, case: Case, plan: Plan) -> dict[str, Any]:
        if "refused" in case.extra:
            return {"refused": [plan.call(ANSWER, 6, d_model) for d_model in case.extra["refused"]]}
        return super().plan(case, plan)

    def judge(self, case: Case, seen: Sight) -> None:
        if "refused" in case.extra:
            for found, d_model in zip(seen.refused, case.extra["refused"]):
                raised(found, ("ValueError",), f"d_model = {d_model} is odd and should raise a ValueError")
            return
        n, d_model, *rest = case.args
        base = case.kwargs.get("base", rest[0] if rest else 10000.0)
        close(seen.result, torch.tensor(_sinusoids(n, d_model, base)).float(), "the encoding", atol=TABLE)


class Wavelengths(Exercise):
    """2 pi / frequency: after so many positions a pair is back where it was."""

    name, chapter = "wavelengths", CHAPTER

    def cases(self, rng: np.random.Generator) -> Iterable[Case]:
        yield Case((4,))
        yield Case((10,))
        yield Case((2,))
        yield Case((512,))
        yield Case((6,), {"base": 100.0})
        yield Case((2 * int(rng.integers(4, 40)), round(float(rng.uniform(5, 50000)), 2)))

    def judge(self, case: Case, seen: Sight) -> None:
        d_model, *rest = case.args
        base = case.kwargs.get("base", rest[0] if rest else 10000.0)
        want = torch.tensor(2 * math.pi / _frequencies(d_model, base))
        close(seen.result, want.float(), "the wavelengths", atol=2e-5)


class ShiftMatrix(Exercise):
    """The matrix exponential of k times the generator of the rotations."""

    name, chapter = "shift_matrix", CHAPTER

    def cases(self, rng: np.random.Generator) -> Iterable[Case]:
        yield Case((1, 4))
        yield Case((3, 6))
        yield Case((-2, 6), note="k below 0")
        yield Case((0, 2), note="no shift")
        yield Case((int(rng.integers(120, 180)), 10))
        yield Case((int(rng.integers(-60, -3)), 8), {"base": 100.0}, note="another base")
        yield Case((2, 4, round(float(rng.uniform(3, 3000)), 2)))

    def judge(self, case: Case, seen: Sight) -> None:
        k, d_model, *rest = case.args
        base = case.kwargs.get("base", rest[0] if rest else 10000.0)
        spin = torch.tensor([[0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64)
        M = torch.matrix_exp(k * torch.block_diag(*(w * spin for w in _frequencies(d_model, base))))
        why = "PE[p + k] = M @ PE[p] should hold for every p"
        close(seen.result, M.float(), "M", atol=TABLE, why=why)


# ---- PositionalEncoding ---------------------------------------------------------------------------------------


class PositionalEncoding(Exercise):
    """x plus the rows of the table from offset on; dropout on the sum."""

    name, chapter, parts = "PositionalEncoding", CHAPTER, ("core", "edge")
    takes = ("x",)

    def cases(self, rng: np.random.Generator) -> Iterable[Case]:
        yield self._case(rng, (4, 9), (3, 3, 4), note="B = n")
        yield self._case(rng, (6, 12), (2, 5, 6), grad=True)
        yield self._case(rng, (8,), (2, 7, 8), facts=True, note="max_len and dropout by default")
        yield self._case(rng, (10, 160), (1, int(rng.integers(90, 160)), 10))
        edge: dict[str, Any] = {"part": "edge"}
        yield self._case(rng, (6, 40), (2, 4, 6), offsets=(0, 3, int(rng.integers(4, 37)), 0), note="offset", **edge)
        yield self._case(rng, (4, 9), (2, 9, 4), offsets=(0,), note="n = max_len", **edge)
        yield self._case(rng, (4, 9), (2, 3, 4), offsets=(6,), note="n + offset = max_len", **edge)
        yield self._case(rng, (4,), (1, 2, 4), offsets=(4998,), note="max_len by default", **edge)
        yield self._case(rng, (4,), (1, 2, 4), offsets=(4999,), refused=True, note="max_len by default", **edge)
        yield self._case(rng, (4, 9), (2, 10, 4), offsets=(0,), refused=True, note="n > max_len", **edge)
        yield self._case(rng, (4, 9), (2, 3, 4), offsets=(7, 9, 20), refused=True, note="n + offset > max_len", **edge)
        yield self._case(rng, (4, 9), (1, 1, 4), offsets=(9, 30), refused=True, note="n + offset > max_len", **edge)
        yield self._case(rng, (6, 30), (3, 4, 6), dtype="float64", layout="strided", note="float64", **edge)
        yield self._case(rng, (6, 30), (2, 5, 6), dtype="bfloat16", move="bfloat16", note="module.to(bfloat16)", **edge)
        yield self._case(rng, (6, 30), (2, 5, 6), dtype="bfloat16", note="x in bfloat16, module in float32", **edge)
        yield self._case(rng, (6, 30), (2, 5, 6), move="meta", note="moved to another device", **edge)
        yield self._case(rng, (10, 60, 0.3), (4, 50, 10), dropout=0.3, note="dropout, train mode", **edge)
        yield self._case(rng, (6, 30, 0.5), (2, 5, 6), training=False, note="dropout, eval mode", **edge)

    def _case(
        self, rng: np.random.Generator, make: tuple[Any, ...], shape: tuple[int, int, int], *,
        offsets: tuple[int, ...] = (), grad: bool = False, facts: bool = False, refused: bool = False,
        dtype: str = "float32", layout: str = "contiguous", move: str = "", dropout: float = 0.0, training: bool = True,
        part: str = "core", note: str = "",
    ) -> Case:  # fmt: skip
        x = normal(rng, shape, dtype, grad=grad, layout=layout)
        extra: dict[str, Any] = {"make": make, "offsets": offsets or (None,), "facts": facts, "refused": refused}
        extra |= {"move": move, "dropout": dropout, "training": training}
        extra["factor"] = normal(rng, shape, dtype) if grad else None
        return Case((x,), {}, part, note, extra)

    def plan(self, case: Case, plan: Plan) -> dict[str, Any]:
        extra = case.extra
        module = plan.build(*extra["make"])
        names: dict[str, Any] = {"module": module}
        if extra["facts"]:
            names["facts"] = plan.facts(module)
        x = plan.put(case.args[0])
        names["x"] = [x]
        if extra["move"]:
            plan.to(module, extra["move"])
            x = plan.to(x, extra["move"]) if extra["move"] == "meta" else x
        plan.mode(module, extra["training"])
        names["results"] = results = [self._forward(plan, module, x, offset) for offset in extra["offsets"]]
        names["after"] = [] if extra["move"] == "meta" else [plan.look(x)]
        if extra["factor"] is not None:
            names["gradient"] = plan.grad([(results[0], extra["factor"])], [x])
        return names

    def _forward(self, plan: Plan, module: Any, x: Any, offset: int | None) -> Any:
        return plan.call(module, x) if offset is None else plan.call(module, x, offset=offset)

    def judge(self, case: Case, seen: Sight) -> None:
        ran(seen.module, f"PositionalEncoding{case.extra['make']}")
        if case.extra["facts"]:
            self._judge_facts(seen.facts)
        for offset, result in zip(case.extra["offsets"], seen.results):
            self._judge_result(case, offset, result)
        unchanged(seen.after, case.args, "forward changed its input in place: make a new tensor, not x += …")
        if case.extra["factor"] is not None:
            ran(seen.gradient, "taking the gradient of your output")
            factor = case.extra["factor"].value()
            close(seen.gradient[0][0], factor, "the gradient with respect to x", check="gradients")

    def _judge_facts(self, facts: Any) -> None:
        ran(facts, "looking into your module")
        names = ", ".join(facts["parameters"])
        expect(not names, "no parameters", f"{names} is a parameter of your module; the table is to be a buffer")

    def _judge_result(self, case: Case, offset: int | None, result: Any) -> None:
        x, extra = case.args[0].value().detach(), case.extra
        d_model, max_len = (*extra["make"], 5000)[:2]
        where = "" if offset is None else f" with offset={offset}"
        if extra["refused"]:
            text = f"{x.shape[1]} positions{where} with max_len = {max_len} should raise a ValueError"
            raised(result, ("ValueError",), text)
            return
        ran(result, f"forward{where}")
        if extra["move"] == "meta":
            text = "after module.to(device) the result is on another device than x: does the table move along?"
            expect(result == Opaque("Tensor on meta"), "device", text)
            return
        want = x.double() + torch.tensor(_sinusoids(x.shape[1], d_model, start=offset or 0))
        if extra["dropout"]:
            _judge_dropout(result, want.to(x.dtype), extra["dropout"])
            return
        atol = 3e-2 if x.dtype == torch.bfloat16 else TABLE
        close(result, want.to(x.dtype), f"the result{where}", atol=atol)


def _judge_dropout(result: Any, want: torch.Tensor, p: float) -> None:
    """Each entry of the sum is 0, with probability p, or 1 / (1 - p) times as large."""
    got = torch.tensor(is_array(result, want.shape, "the result", lib="torch", dtype="float32").double())
    gone = got == 0
    share, sure = float(gone.double().mean()), 6 * math.sqrt(p * (1 - p) / got.numel())
    text = f"with dropout = {p} a share of {p} of the sums should be 0 in train mode; yours is {share:.2f}"
    expect(abs(share - p) < sure, "dropout", text)
    kept = got * (1 - p) - want.double()
    text = "what dropout keeps should be (x + table) / (1 - dropout): apply nn.Dropout to the sum, once"
    expect(bool((kept[~gone].abs() < 1e-3).all()), "dropout", text)


# ---- rotary ---------------------------------------------------------------------------------------------------


class Rotary(Exercise):
    """Each pair as a complex number, times e^(i angle)."""

    name, chapter = "rotary", CHAPTER

    def cases(self, rng: np.random.Generator) -> Iterable[Case]:
        yield self._case(rng, (4, 4), np.arange(4))  # n = d
        yield self._case(rng, (2, 3, 3, 6), rng.permutation(3))  # h = n
        yield self._case(rng, (2, 5, 8), np.arange(5), grad=True)
        yield self._case(rng, (3, 2, 7, 10), rng.integers(0, 200, 7), dtype="float64", layout="strided")
        yield self._case(rng, (6, 4), rng.integers(0, 50, 6), base=100.0, note="another base")
        between = rng.uniform(0, 9, 5).round(2)
        yield self._case(rng, (2, 5, 2), between, kind="float32", note="positions between whole numbers")
        far = rng.choice(np.arange(257, 512, 2), 4)  # bfloat16 has none of these
        yield self._case(rng, (2, 4, 6), far, dtype="bfloat16", note="bfloat16, far out")

    def _case(
        self, rng: np.random.Generator, shape: tuple[int, ...], positions: np.ndarray, *, base: float | None = None,
        dtype: str = "float32", kind: str = "int64", grad: bool = False, layout: str = "contiguous", note: str = "",
    ) -> Case:  # fmt: skip
        args = normal(rng, shape, dtype, grad=grad, layout=layout), tensor(positions, kind)
        kwargs = {} if base is None else {"base": base}
        return Case(args, kwargs, note=note, extra={"factor": normal(rng, shape, dtype) if grad else None})

    def plan(self, case: Case, plan: Plan) -> dict[str, Any]:
        names = super().plan(case, plan)
        if case.extra["factor"] is not None:
            names["gradient"] = plan.grad([(names["result"], case.extra["factor"])], names["inputs"][:1])
        return names

    def judge(self, case: Case, seen: Sight) -> None:
        x, positions = (array.value().detach() for array in case.args)
        base = case.kwargs.get("base", 10000.0)
        why = "The pair (2i, 2i + 1) should turn by the angle position / base^(2i/d)"
        atol = {torch.float32: TABLE, torch.float64: 1e-9}.get(x.dtype)
        close(seen.result, _turned(x, positions, base), "the result", atol=atol, why=why)
        unchanged(seen.after, case.args)
        if case.extra["factor"] is not None:
            ran(seen.gradient, "taking the gradient of your result")
            back = _turned(case.extra["factor"].value(), -positions, base)  # the transpose of a rotation
            close(seen.gradient[0][0], back, "the gradient with respect to x", check="gradients", atol=TABLE)


def _turned(x: torch.Tensor, positions: torch.Tensor, base: float) -> torch.Tensor:
    pairs = x.double().numpy().reshape(*x.shape[:-1], -1, 2)
    turn = np.exp(1j * np.outer(positions.double().numpy(), _frequencies(x.shape[-1], base)))
    hands = (pairs[..., 0] + 1j * pairs[..., 1]) * turn
    return torch.tensor(np.stack([hands.real, hands.imag], axis=-1).reshape(x.shape)).to(x.dtype)


EXERCISES = [
    IsPermutationEquivariant(), SinusoidalEncoding(), Wavelengths(), ShiftMatrix(), PositionalEncoding(), Rotary(),
]  # fmt: skip
