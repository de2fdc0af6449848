"""Chapter 7: masks and how they join, softmax under a mask, the decoder block, a test for leaks from the future."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from autograder.checks.answers import ch07_masking as _answers  # noqa: F401  (fills the catalogue)
from autograder.checks.inputs import mask, normal, tensor
from autograder.judge import (
    Case,
    Exercise,
    Sight,
    close,
    defaults,
    expect,
    is_array,
    oracle_gradients,
    raised,
    ran,
    unchanged,
)
from autograder.wire import ANSWER, Array, Plan, Ref

CHAPTER = "07_masking"
ATTENTION = ("W_q", "W_k", "W_v", "W_o")
NORMS = ("norm1", "norm2", "norm3")
D, H, D_FF = 6, 2, 5  # a decoder block: wide enough that a token whose features are nearly equal is not drawn


class CausalMask(Exercise):
    """(n, m) boolean, True where key j is no later than query i; the queries are the last n of m positions."""

    name, chapter, parts = "causal_mask", CHAPTER, ("core", "edge")

    def cases(self, rng: np.random.Generator) -> Iterable[Case]:
        sizes = [int(n) for n in rng.choice(np.arange(5, 12), 3, replace=False)]
        yield Case(note="n alone", extra={"calls": [(4,), (1,), (2,), *((n,) for n in sizes)]})
        yield Case(note="m = n", extra={"calls": [(3, 3), (1, 1), (sizes[0], sizes[0])]})
        longer = [(int(n), int(n + more)) for n, more in zip(rng.integers(2, 7, 4), rng.integers(1, 6, 4))]
        yield Case(note="m > n", part="edge", extra={"calls": [(2, 5), (1, 4), (3, 4), *longer]})
        yield Case(note="m < n", part="edge", extra={"refused": [(3, 2), (6, 1), (3, 0), (longer[0][1], longer[0][0])]})

    def plan(self, case: Case, plan: Plan) -> dict[str, Any]:
        calls = case.extra.get("calls") or case.extra["refused"]
        return {"results": [plan.call(ANSWER, *args) for args in calls]}

    def judge(self, case: Case, seen: Sight) -> None:
        for args, found in zip(case.extra.get("refused", ()), seen.results):
            message = f"causal_mask{args} should raise a ValueError: {args[0]} queries can't be the last of {args[1]}"
            raised(found, ("ValueError",), message)
        for args, found in zip(case.extra.get("calls", ()), seen.results):
            n, m = args[0], args[-1]
            want = np.arange(m)[None, :] <= np.arange(m - n, m)[:, None]
            _boolean(found, want, f"causal_mask({', '.join(map(str, args))})")


def _boolean(found: Any, want: np.ndarray, what: str) -> None:
    """Fails unless the finding is this boolean tensor; says where it allows too much or too little."""
    got = is_array(found, want.shape, what, lib="torch")
    expect(got.dtype == "bool", "dtype", f"{what} should be boolean; yours is {got.dtype}")
    wrong = np.argwhere(got.value().numpy() != want)
    if len(wrong):
        where = ", ".join(map(str, wrong[0]))
        side = "forbids what may be attended to" if want[tuple(wrong[0])] else "allows what must not be attended to"
        expect(False, "value", f"{what} {side} at [{where}]; {len(wrong)} of {want.size} entries are wrong")


class PaddingMask(Exercise):
    """(B, 1, 1, n) boolean, False at the keys that are padding, wherever they stand."""

    name, chapter = "padding_mask", CHAPTER

    def cases(self, rng: np.random.Generator) -> Iterable[Case]:
        yield Case((tensor([[5, 7, 0, 0], [3, 0, 0, 0], [4, 2, 9, 6]], "int64"), 0))
        yield Case((tensor([[0, 7, 4, 3], [3, 0, 3, 3], [1, 2, 0, 6]], "int64"), 3), note="pad_id = 3")
        yield Case((tensor(rng.integers(0, 5, (2, 2)), "int64"), 2), note="two ids each")
        yield Case((tensor(rng.integers(0, 4, (3, 5)), "int64"), 1), note="padding anywhere")
        yield Case((tensor([[2, 2, 2], [2, 5, 2]], "int32"), 2), note="a row of padding alone")
        yield Case((tensor(rng.integers(0, 3, (1, 7)), "int64"), -1), note="no padding")
        yield Case((tensor(rng.integers(98, 102, (4, 6)), "int64", layout="strided"), 100), note="pad_id = 100")

    def judge(self, case: Case, seen: Sight) -> None:
        ids, pad_id = case.args
        want = np.array([[[[token != pad_id for token in row]]] for row in ids.value().tolist()])
        _boolean(seen.result, want, "the mask")
        unchanged(seen.after, case.args, "your function changed ids in place")


class CombineMasks(Exercise):
    """The logical and of all masks that are not None, broadcast; None where there are none."""

    name, chapter = "combine_masks", CHAPTER

    def cases(self, rng: np.random.Generator) -> Iterable[Case]:
        yield self._case(rng, [(4, 4), (4, 4)])
        yield self._case(rng, [(3, 4), (2, 1, 1, 4)], note="shapes broadcast")
        yield self._case(rng, [(2, 1, 1, 5), (3, 5), (2, 4, 1, 1)], note="three masks")
        yield self._case(rng, [None, (3, 4), None, (4,)], note="None among them")
        yield self._case(rng, [(2, 3), None], note="one mask and None")
        yield Case((), note="no mask at all")
        yield Case((None, None, None), note="None alone")
        yield self._case(rng, [(2, 1, 4), (3, 1)], "int64", note="masks of 0 and 1")
        yield self._case(rng, [(3, 4)], "int64", note="one mask of 0 and 1")
        yield self._case(rng, [(3, 3), (2, 1, 1, 3)], "bool", "int64", note="a boolean mask and one of 0 and 1")
        yield self._case(rng, [(2, 1, 1, 3), (3, 3), (3,), (2, 3, 3, 1)], note="four masks")
        some = tensor([[True, False, True], [True, True, False]], "bool")
        yield Case((some, tensor(np.zeros((2, 3)), "bool")), note="a mask that forbids everything")

    def _case(self, rng: np.random.Generator, shapes: list[Any], *kinds: str, note: str = "") -> Case:
        every = [*(kinds or ("bool",)) * len(shapes)][: len(shapes)]
        masks = [None if s is None else tensor(rng.random(s) < 0.6, kind) for s, kind in zip(shapes, every)]
        return Case(masks, note=note)

    def judge(self, case: Case, seen: Sight) -> None:
        given = [array.value().numpy() == 1 for array in case.args if array is not None]
        if not given:
            ran(seen.result)
            message = "without any mask the result should be None, which means that everything is allowed"
            expect(seen.result is None, "none", message)
            return
        _boolean(seen.result, functools.reduce(np.logical_and, given), "the combined mask")
        unchanged(seen.after, case.args, "your function changed one of the masks in place")


class ToAdditive(Exercise):
    """0 where the mask allows, exactly -inf elsewhere, in the dtype that is asked for."""

    name, chapter = "to_additive", CHAPTER

    def cases(self, rng: np.random.Generator) -> Iterable[Case]:
        yield self._case(rng, (4, 4))
        yield self._case(rng, (2, 1, 3, 5))
        yield self._case(rng, (3, 4), kind="int64", note="a mask of 0 and 1")
        yield self._case(rng, (3, 2), kind="float32", note="a mask of 0 and 1, float32 already")
        for dtype in ("float64", "float16", "bfloat16"):
            yield self._case(rng, (2, 5), dtype=dtype, note=f"dtype {dtype}")
        yield self._case(rng, (2, 3, 3), layout="strided")
        yield Case((tensor([[False, False, False], [True, True, True]], "bool"),), note="an empty row")

    def _case(
        self, rng: np.random.Generator, shape: tuple[int, ...], *,
        kind: str = "bool", dtype: str = "", layout: str = "contiguous", note: str = "",
    ) -> Case:  # fmt: skip
        given = tensor(rng.random(shape) < 0.6, kind, layout=layout)
        return Case((given,), {}, note=note, extra={"dtype": dtype})

    def plan(self, case: Case, plan: Plan) -> dict[str, Any]:
        given, dtype = plan.put(case.args[0]), case.extra.get("dtype")
        options = {"dtype": plan.put(tensor([0.0], dtype)).dtype} if dtype else {}
        return {"result": plan.call(ANSWER, given, **options), "after": [plan.look(given)]}

    def judge(self, case: Case, seen: Sight) -> None:
        (given,), dtype = case.args, case.extra.get("dtype") or "float32"
        got = is_array(seen.result, given.shape, "the additive mask", lib="torch")
        expect(got.dtype == dtype, "dtype", f"the additive mask should be {dtype}; yours is {got.dtype}")
        want = [0.0 if allowed else -np.inf for allowed in given.value().reshape(-1).tolist()]
        close(got, tensor(np.reshape(want, given.shape), dtype).value(), "the additive mask", atol=0)
        unchanged(seen.after, case.args, "your function changed the mask in place")


class MaskedSoftmax(Exercise):
    """Softmax over the allowed keys alone; 0 where nothing is allowed; finite gradients."""

    name, chapter, parts = "masked_softmax", CHAPTER, ("core", "edge")

    def cases(self, rng: np.random.Generator) -> Iterable[Case]:
        yield self._case(rng, (4, 4), mask_shape=(4, 4))  # square, so that the wrong axis runs and shows in values
        yield self._case(rng, (2, 3, 4, 5), mask_shape=(2, 1, 1, 5), note="a mask for all heads and queries")
        yield self._case(rng, (2, 3, 5), mask_shape=(3, 5), grad=True)
        yield self._case(rng, (3, 4), mask_shape=(4,), scale=3.0)
        edge: dict[str, Any] = {"part": "edge"}
        yield self._case(rng, (3, 4), mask_shape=(3, 4), shift=-300.0, note="scores near -300", **edge)
        yield self._case(rng, (3, 4), mask_shape=(3, 4), empty=True, note="a row with nothing allowed", **edge)
        yield self._case(rng, (2, 4, 5), mask_shape=(4, 5), empty=True, grad=True, note="an empty row", **edge)
        yield self._case(rng, (2, 3, 2, 4), mask_shape=(2, 1, 1, 4), empty=True, grad=True, note="a sequence of "
                         "padding alone", **edge)  # fmt: skip
        far = "masked scores far above the kept ones"
        yield self._case(rng, (3, 5), mask_shape=(3, 5), giant=3e4, note=far, **edge)
        # exp of the difference, 160, is no float32 any more
        yield self._case(rng, (4, 5), mask_shape=(4, 5), giant=80.0, empty=True, grad=True, note=f"{far}, and an empty "
                         "row", **edge)  # fmt: skip
        yield self._case(rng, (2, 5), mask_shape=(5,), shift=1000.0, note="scores near 1000", **edge)
        yield self._case(rng, (3, 4, 5), mask_shape=(4, 5), dtype="float64", empty=True, note="float64", **edge)
        for dtype in ("float16", "bfloat16"):
            yield self._case(rng, (2, 3, 4), mask_shape=(3, 4), dtype=dtype, empty=True, note=dtype, **edge)

    def _case(
        self, rng: np.random.Generator, shape: tuple[int, ...], *, mask_shape: tuple[int, ...], dtype: str = "float32",
        scale: float = 1.0, shift: float = 0.0, giant: float = 0.0, empty: bool = False, grad: bool = False,
        part: str = "core", note: str = "",
    ) -> Case:  # fmt: skip
        allowed = mask(rng, mask_shape).value().numpy()
        rows = allowed.reshape(-1, mask_shape[-1])
        rows[-1, rng.integers(mask_shape[-1])] = False  # some row hides a key and keeps another, whatever is drawn
        if not rows[-1].any():
            rows[-1, rng.permutation(mask_shape[-1])[:1]] = True
        if empty:
            rows[0] = False
        scores = scale * rng.standard_normal(shape) + shift
        scores += giant * np.where(allowed, -1, 1)
        args = [tensor(scores, dtype, grad=grad), tensor(allowed, "bool")]
        return Case(args, {}, part, note, {"factor": normal(rng, shape, dtype)})

    def plan(self, case: Case, plan: Plan) -> dict[str, Any]:
        names = super().plan(case, plan)
        if case.args[0].grad:
            names["gradient"] = plan.grad([(names["result"], case.extra["factor"])], names["inputs"][:1])
        return names

    def judge(self, case: Case, seen: Sight) -> None:
        scores, allowed = (array.value().detach() for array in case.args)
        want = case.once("weights", lambda: _weights(scores.double(), allowed))
        why = "a row with nothing to attend to should be 0 everywhere" if not allowed.any(dim=-1).all() else ""
        close(seen.result, want.to(scores.dtype), "the weights", atol=self._tolerance(case.args[0]), why=why)
        unchanged(seen.after, case.args, "your function changed the caller's scores or mask in place")
        if case.args[0].grad:
            ran(seen.gradient, "taking the gradient of your weights")
            factor = [case.extra["factor"].value().double()]
            oracle = case.once("gradient", lambda: oracle_gradients(
                lambda s: [_weights(s, allowed)], [scores.double()], factor)[0])
            what = "the gradient with respect to the scores"
            close(seen.gradient[0][0], oracle.to(scores.dtype), what, check="gradients", why=why)

    def _tolerance(self, scores: Array) -> float | None:
        """None, the usual, but what float32 can tell apart where scores are large: scores - logsumexp is right, too."""
        if scores.dtype != "float32":
            return None
        return max(1e-5, 2 * float(np.spacing(np.float32(np.abs(scores.double()).max()))))


def _weights(scores: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
    """The oracle: each row's allowed scores alone go through softmax."""
    allowed, m = allowed.expand(scores.shape), scores.shape[-1]
    out = [torch.zeros_like(row).masked_scatter(keep, row[keep].softmax(0)) if keep.any() else row * 0
           for row, keep in zip(scores.reshape(-1, m), allowed.reshape(-1, m))]  # fmt: skip
    return torch.stack(out).reshape(scores.shape)


class DecoderBlock(Exercise):
    """nn.TransformerDecoderLayer with copied weights, post-LN and pre-LN."""

    name, chapter, parts = "DecoderBlock", CHAPTER, ("core", "edge")

    def cases(self, rng: np.random.Generator) -> Iterable[Case]:
        self_mask, cross_mask = {"self_mask": ((3, 3), "bool")}, {"cross_mask": ((2, 1, 1, 3), "bool")}
        both = {"self_mask": ((2, 1, 3, 3), "int64"), "cross_mask": ((3, 5), "int64")}
        drawn: dict[str, Any] = {"weights": _parameters(rng, D, D_FF)}
        # n = m, so that every mix-up of target and memory runs and shows in its values
        yield self._case(rng, [(2, 3, 3)], **drawn, grad=True, dtype="float64", note="no mask; gradients, float64")
        calls: list[Any] = [(2, 3, 3, self_mask), (2, 3, 5, both)]
        yield self._case(rng, calls, **drawn, facts=True, note="self_mask alone, then both masks, of 0 and 1")
        edge: dict[str, Any] = {"part": "edge", **drawn}
        modes = "dropout=1.0, in train and in eval mode"
        yield self._case(rng, [(2, 2, 4, {}, True), (1, 3, 2)], dropout=1.0, note=modes, **edge)
        # n = m and one mask alone: it goes to its own attention and to no other, in pre-LN too
        calls = [(2, 2, 4, {}, True), (2, 3, 3, self_mask | cross_mask), (2, 3, 3, self_mask), (2, 3, 3, cross_mask)]
        note = f'norm="pre", {modes}, float64'
        yield self._case(rng, calls, dropout=1.0, norm="pre", dtype="float64", note=note, **edge)
        yield Case(note="which norms there are", part="edge", extra={"refused": ["Pre", "none", None]})

    def _case(
        self, rng: np.random.Generator, calls: list[tuple[Any, ...]], *, weights: dict[str, Array], norm: str = "post",
        dropout: float = 0.0, dtype: str = "float32", grad: bool = False, facts: bool = False, part: str = "core",
        note: str = "",
    ) -> Case:  # fmt: skip
        """`calls`: B, n, m, then the masks as {name: (shape, dtype)}, then whether it is in train mode."""
        tried = []
        for call in calls:
            (B, n, m), masks, train = call[:3], *(*call[3:], *({}, False)[len(call) - 3 :])
            given = {name: _hiding(rng, *how) for name, how in masks.items()}
            args = [normal(rng, (B, length, D), dtype, grad=grad) for length in (n, m)]
            tried.append(_Call(args, given, train, dropout == 1.0 and train))
        make = (D, H, D_FF, dropout) if norm == "post" else (D, H, D_FF, dropout, norm)
        factor = normal(rng, tried[0].args[0].shape, dtype) if grad else None
        extra = {"calls": tried, "make": make, "norm": norm, "dtype": dtype, "facts": facts, "weights": weights}
        return Case((), {}, part, note, extra | {"factor": factor})

    def plan(self, case: Case, plan: Plan) -> dict[str, Any]:
        if "refused" in case.extra:
            return {"refused": [plan.build(D, H, D_FF, 0.1, norm) for norm in case.extra["refused"]]}
        block = plan.build(*case.extra["make"])
        names: dict[str, Any] = {"block": block, "missing": plan.load(block, case.extra["weights"])}
        if case.extra["dtype"] != "float32":
            plan.to(block, case.extra["dtype"])
        names |= {"results": [], "after": []}
        asked = plan.watch(block.cross_attention.W_k, values=True)
        for call in case.extra["calls"]:
            plan.mode(block, call.train)
            args = [plan.put(value) for value in call.args]
            kwargs = {key: plan.put(value) for key, value in call.masks.items()}
            names["results"].append(plan.call(block, *args, **kwargs))
            names["after"] += [plan.look(ref) for ref in (*args, *kwargs.values())]
        names["memories"] = plan.log(asked)
        if case.extra["facts"]:
            names |= {"facts": plan.facts(block), "defaults": plan.defaults(ANSWER)}
        if case.extra["factor"] is not None:
            wrt = [*args, *(_slot(block, name) for name in case.extra["weights"])]
            names["gradients"] = plan.grad([(names["results"][0], case.extra["factor"])], wrt)
        return names

    def judge(self, case: Case, seen: Sight) -> None:
        if "refused" in case.extra:
            for norm, found in zip(case.extra["refused"], seen.refused):
                raised(found, ("ValueError",), f'norm={norm!r} should raise a ValueError: it is "post" or "pre"')
            return
        ran(seen.block, f"DecoderBlock{case.extra['make']}")
        lacking = ", ".join(seen.missing) if isinstance(seen.missing, list) else ""
        expect(not lacking, "layers", f"after __init__ these are missing or have another shape: {lacking}")
        outputs, gradients = case.once("oracle", lambda: self._oracle(case))
        before: list[Array] = []
        for call, found, want in zip(case.extra["calls"], seen.results, outputs):
            ran(found, "forward")
            close(found, want, "the output", check="output")
            before += [*call.args, *call.masks.values()]
        unchanged(seen.after, before, "your block changed an input or a mask in place")
        self._judge_memory(case, seen.memories)
        if case.extra["facts"]:
            self._judge_facts(case, seen)
        if case.extra["factor"] is not None:
            self._judge_gradients(seen.gradients, gradients)

    def _oracle(self, case: Case) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
        """The output of each call; where the case asks for gradients, those of its one call."""
        factor, outputs, gradients = case.extra["factor"], [], {}
        grad = factor is not None
        weights = dict(zip(case.extra["weights"], _leaves(case.extra["weights"].values(), grad)))
        for call in case.extra["calls"]:
            of = dict(zip(("x", "memory"), _leaves(call.args, grad))) | weights
            want = _decoder_layer(case.extra["norm"], call, of)
            outputs.append(want.detach().to(call.args[0].value().dtype))
            if grad:
                loss = (want * factor.value().double()).sum()
                gradients = dict(zip(of, torch.autograd.grad(loss, list(of.values()))))
        return outputs, gradients

    def _judge_memory(self, case: Case, log: Any) -> None:
        """What cross-attention makes keys of is the memory itself, also where dropout hides what comes of it."""
        calls = case.extra["calls"]
        if not isinstance(log, list) or len(log) != len(calls):
            return
        for call, entry in zip(calls, log):
            got, memory = entry.get("input"), call.args[1]
            same = not isinstance(got, Array) or got.shape != memory.shape or np.allclose(got.double(), memory.double())
            text = "the memory should reach cross-attention as it is: no dropout and no norm of its own"
            expect(same, "memory", text)

    def _judge_facts(self, case: Case, seen: Sight) -> None:
        ran(seen.facts, "looking into your block")
        kinds = dict.fromkeys(("self_attention", "cross_attention"), "MultiHeadAttention")
        kinds |= {"feed_forward": "FeedForward"} | dict.fromkeys(NORMS, "LayerNorm")
        for name, kind in kinds.items():
            made = seen.facts["classes"].get(name, ())
            expect(kind in made, "layers", f"{name} should be a {kind}; yours is a {made[0] if made else 'missing'}")
        others = sorted(set(seen.facts["parameters"]) - set(case.extra["weights"]))
        expect(not others, "layers", f"the block has parameters that it should not have: {', '.join(others)}")
        twice = [", ".join(names) for names in seen.facts["shared"]]
        expect(not twice, "layers", f"these are one and the same tensor: {'; '.join(twice)}")
        defaults(seen.defaults, {"dropout": 0.1, "norm": "post"})

    def _judge_gradients(self, found: Any, oracle: Mapping[str, torch.Tensor]) -> None:
        ran(found, "taking the gradient of your output")
        for (name, want), got in zip(oracle.items(), found[0]):
            if name.endswith("W_k.bias"):  # zero but for rounding: softmax does not see it
                continue
            expect(isinstance(got, Array), "gradients", f"no gradient reaches {name}: something on the way is detached")
            close(got, want, f"the gradient with respect to {name}", check="gradients", atol=1e-7)


def _hiding(rng: np.random.Generator, shape: tuple[int, ...], kind: str) -> Array:
    """A random mask of which every row hides at least one key and keeps at least one: its absence shows."""
    allowed = mask(rng, shape).value().numpy()
    for row in allowed.reshape(-1, shape[-1]):
        if row.all():
            row[rng.integers(shape[-1])] = False
    return tensor(allowed, kind)


def _slot(module: Ref, name: str) -> Ref:
    for part in name.split("."):
        module = getattr(module, part)
    return module


def _parameters(rng: np.random.Generator, d_model: int, d_ff: int) -> dict[str, Array]:
    """Every parameter of a decoder block, drawn: defaults hide mistakes."""
    drawn = {}
    for part in ("self_attention", "cross_attention"):
        for name in ATTENTION:
            drawn[f"{part}.{name}.weight"] = normal(rng, (d_model, d_model), scale=1.5 * d_model**-0.5)
            drawn[f"{part}.{name}.bias"] = normal(rng, (d_model,))
    for name, shape in (("W_1", (d_ff, d_model)), ("W_2", (d_model, d_ff))):
        drawn[f"feed_forward.{name}.weight"] = normal(rng, shape, scale=shape[1] ** -0.5)
        drawn[f"feed_forward.{name}.bias"] = normal(rng, shape[:1])
    for name in NORMS:
        drawn[f"{name}.weight"], drawn[f"{name}.bias"] = normal(rng, (d_model,)), normal(rng, (d_model,))
    return drawn


@dataclass(frozen=True)
class _Call:
    """One call of a block; `silent` where dropout leaves nothing of the sub-layers."""

    args: list[Array]
    masks: dict[str, Array]
    train: bool
    silent: bool


def _leaves(arrays: Iterable[Array], grad: bool) -> list[torch.Tensor]:
    return [array.value().detach().double().requires_grad_(grad) for array in arrays]


@functools.cache
def _torch_layer(norm: str) -> nn.TransformerDecoderLayer:
    return nn.TransformerDecoderLayer(
        D, H, D_FF, dropout=0.0, batch_first=True, norm_first=norm == "pre", dtype=torch.float64
    ).train()


def _decoder_layer(norm: str, call: _Call, of: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """The oracle: torch's decoder layer with these weights; with dropout 1 its sub-layers end in zeros."""
    kept, state = not call.silent, {}
    for ours, theirs in (("self_attention", "self_attn"), ("cross_attention", "multihead_attn")):
        for kind in ("weight", "bias"):
            state[f"{theirs}.in_proj_{kind}"] = torch.cat([of[f"{ours}.{name}.{kind}"] for name in ATTENTION[:3]])
            state[f"{theirs}.out_proj.{kind}"] = of[f"{ours}.W_o.{kind}"] * kept
    for kind in ("weight", "bias"):
        state[f"linear1.{kind}"] = of[f"feed_forward.W_1.{kind}"]
        state[f"linear2.{kind}"] = of[f"feed_forward.W_2.{kind}"] * kept
        state |= {f"{name}.{kind}": of[f"{name}.{kind}"] for name in NORMS}
    B, n, m = len(of["x"]), of["x"].shape[1], of["memory"].shape[1]
    hidden = {
        theirs: ~call.masks[ours].value().bool().expand(B, H, n, keys).reshape(H * B, n, keys)
        for ours, theirs, keys in (("self_mask", "tgt_mask", n), ("cross_mask", "memory_mask", m))
        if ours in call.masks
    }
    return torch.func.functional_call(_torch_layer(norm), state, (of["x"], of["memory"]), hidden, tie_weights=False)


class LeaksFuture(Exercise):
    """Whether any output depends on a later token, told of models whose mixing matrix is known."""

    name, chapter = "leaks_future", CHAPTER

    def cases(self, rng: np.random.Generator) -> Iterable[Case]:
        kinds = ("causal", "strictly causal", "constant", "one ahead", "the future alone")
        for part in (kinds[:2], kinds[2:]):  # what fails here is tried with the whole catalogue: keep it small
            yield Case(note="; ".join(part), extra={"models": [self._model(rng, 3, kind) for kind in part]})
        yield Case(note="output 1 of 4 sees the last token alone", extra={"models": [self._model(rng, 4, (0, 3))]})
        yield Case(note="several models, causal and not", extra={"models": [self._drawn(rng) for _ in range(3)]})
        zeros = [self._model(rng, 3, (0, 1), ids=ids) for ids in (0, 1, -1)]
        yield Case(note="ids all alike", extra={"models": zeros})
        # whatever is put in place of these ids moves the outputs one way
        signs = [self._model(rng, 3, (0, 2), ids=ids, leak=-0.7) for ids in (0, -1)]
        yield Case(note="ids all alike, all the smallest or all the largest", extra={"models": signs})
        noisy: dict[str, Any] = {"dropout": 0.5, "training": True}
        more = [self._model(rng, 3, "causal", **noisy), self._drawn(rng, **noisy)]
        yield Case(note="dropout, in train mode", extra={"models": more})
        yield Case(note="a small leak", extra={"models": [self._model(rng, 3, (1, 2), leak=3e-4)]})
        yield Case(note="a difference below atol", extra={"models": [self._model(rng, 3, (0, 1), leak=1e-7)]})
        loose = [self._model(rng, 3, (1, 2), leak=leak, atol=1e-3) for leak in (1e-4, 2.0)]
        yield Case(note="atol given", extra={"models": loose})
        yield Case(note="a small change of large outputs", extra={"models": [self._large(rng)]})
        yield Case(note="a change in one output of many", extra={"models": [self._hidden_in_the_mean(rng)]})
        yield Case(note="one sequence shows nothing, the next does", extra={"models": [self._silent_first(rng)]})
        features = [self._in_features(rng, *last) for last in ((1, -1), (0, 1))]
        yield Case(note="changes in the last features, some of which add up to 0", extra={"models": features})
        # A token drawn at random is the old one in a third of the calls, and in none of them in 3 of 10,000.
        short = [self._model(rng, 2, (0, 1), V=3, B=1) for _ in range(2)]
        short[-1]["more"] = [tensor(rng.integers(0, 3, (1, 2)), "int64") for _ in range(18)]
        yield Case(note="many sequences of two tokens", extra={"models": short})
        yield Case(note="a mix that looks ahead, at tokens that are all alike", extra={"models": [self._alike(rng)]})

    def _drawn(self, rng: np.random.Generator, **options: Any) -> dict[str, Any]:
        n = int(rng.integers(3, 6))
        i, j = sorted(rng.choice(n, 2, replace=False))
        return self._model(rng, n, (int(i), int(j)) if rng.random() < 0.5 else "causal", **options)

    def _model(
        self, rng: np.random.Generator, n: int, what: str | tuple[int, int], *, leak: float = 0.7,
        ids: int | None = None, dropout: float = 0.0, training: bool = False, atol: float | None = None,
        V: int = 0, B: int = 0, scale: float = 1.0,
    ) -> dict[str, Any]:  # fmt: skip
        """A model of n positions: `what` names its mix, or is the (output, token) above the diagonal with `leak`."""
        B, d = B or int(rng.integers(2, 4)), 3
        V = V or int(rng.integers(5, 8))
        full = rng.uniform(0.2, 0.6, (n, n)) * rng.choice([-1, 1], (n, n))
        where = (n - 2, n - 1) if what == "one ahead" else what
        ahead = np.arange(n)[:, None] < np.arange(n)
        seen = {"strictly causal": ahead.T, "constant": False, "the future alone": ahead}.get(str(what), ~ahead)
        mix = full * seen
        if isinstance(where, tuple):
            mix[where] = leak
        rows = np.arange(V)[:, None] * 0.25 - 0.75 + rng.uniform(-0.05, 0.05, (V, d))  # any two ids differ visibly
        weights = [tensor(rows), tensor(mix), tensor(scale * rng.uniform(0.3, 0.8, (d, V)))]
        tokens = rng.integers(0, V, (B, n)) if ids is None else np.full((B, n), ids % V)
        leaks = bool(np.abs(mix[ahead]).max() > (1e-6 if atol is None else atol)) or what == "the future alone"
        return {"weights": weights, "dropout": dropout, "ids": tensor(tokens, "int64"), "V": V,
                "training": training, "atol": atol, "leaks": leaks}  # fmt: skip

    def _large(self, rng: np.random.Generator) -> dict[str, Any]:
        """Outputs in the hundreds, and a change above atol that is less than 10^-5 of them."""
        given = self._model(rng, 3, (1, 2), V=3, ids=1, leak=3e-6, scale=1000.0)
        rows, mix, head = given["weights"]
        return given | {"weights": [rows, tensor(np.abs(mix.double())), head]}

    def _hidden_in_the_mean(self, rng: np.random.Generator) -> dict[str, Any]:
        """Output 0 of 6 sees the last token, and atol lies between the mean change and the largest, whatever is put."""
        given = self._model(rng, 6, (0, 5), V=3, ids=1)
        rows, mix, head = (array.double() for array in given["weights"])
        ids, changes = given["ids"].value().numpy(), []
        for step in (0, 1, 2):
            other = np.concatenate([ids[:, :-1], (ids[:, -1:] + step) % 3], axis=1)
            changes.append(np.tanh(mix @ rows[other]) @ head)
        first, *others = changes
        change = [np.abs(other - first)[:, :-1] for other in others]
        atol = np.sqrt(min(each.max() for each in change) * max(each.mean() for each in change))
        return given | {"atol": float(atol)}

    def _silent_first(self, rng: np.random.Generator) -> dict[str, Any]:
        """Output 0 sees the last token, but the first sequence's is as large as tanh gets, whatever that token is."""
        given = self._model(rng, 3, (0, 2), V=5, ids=1, leak=0.1)
        rows, mix, head = given["weights"]
        large, ids = rows.double(), given["ids"].value()
        large[-1], ids[0] = 400.0, 4
        return given | {"weights": [tensor(large), mix, head], "ids": tensor(ids.numpy(), "int64")}

    def _alike(self, rng: np.random.Generator) -> dict[str, Any]:
        """Every id has the same embedding: no output can change, whatever the weights of the mix are."""
        given = self._model(rng, 3, (0, 2))
        rows, mix, head = given["weights"]
        return given | {"weights": [tensor(np.full(rows.shape, 0.5)), mix, head], "leaks": False}

    def _in_features(self, rng: np.random.Generator, *last: float) -> dict[str, Any]:
        """Only the last features move, by as much times these factors."""
        given = self._model(rng, 3, (0, 2))
        rows, mix, head = given["weights"]
        moved = head.double()
        moved[:, -2:] = moved[:, -1:] * last
        moved[:, :-2] = 0
        return given | {"weights": [rows, mix, tensor(moved)]}

    def plan(self, case: Case, plan: Plan) -> dict[str, Any]:
        names: dict[str, Any] = {"results": [], "more": [], "modes": [], "after": [], "logs": []}
        for given in case.extra["models"]:
            model = plan.make("embed_mix_head", *given["weights"], dropout=given["dropout"])
            ids = plan.put(given["ids"])
            plan.mode(model, given["training"])
            options = {} if given["atol"] is None else {"atol": given["atol"]}
            names["results"].append(plan.call(ANSWER, model, ids, given["V"], **options))
            names["more"].append([plan.call(ANSWER, model, plan.put(one), given["V"]) for one in given.get("more", ())])
            names["modes"].append([plan.look(model.training), plan.look(model.dropout.training)])
            names["after"].append(plan.look(ids))
            names["logs"].append(plan.log(model))
        return names

    def judge(self, case: Case, seen: Sight) -> None:
        seen_of = zip(case.extra["models"], seen.results, seen.more, seen.modes, seen.logs)
        for given, first, more, mode, log in seen_of:
            ran(first)
            fine = all(call["valid"] for call in log)
            expect(fine, "valid ids", "your ids should be int64, from 0 to vocab_size - 1")
            told = "a model that sees later tokens" if given["leaks"] else "a model that sees no later token"
            for found in (first, *more):
                ran(found)
                expect(_truth(found) == given["leaks"], "value", f"of {told} your function says {_truth(found)}")
            left = "in train mode" if given["training"] else "in eval mode"
            part = "" if mode[0] != given["training"] else ", with all its parts, the dropout inside, too"
            expect(mode == [given["training"]] * 2, "mode", f"the model came {left} and should be left so{part}")
        before = [given["ids"] for given in case.extra["models"]]
        unchanged(seen.after, before, "your function changed ids in place; make a copy with ids.clone()")


def _truth(found: Any) -> bool:
    """A bool, or one element of a boolean tensor or array."""
    if isinstance(found, Array) and found.dtype == "bool" and math.prod(found.shape) == 1:
        return bool(found.double().reshape(-1)[0])
    expect(isinstance(found, bool), "type", "your function should return True or False")
    return bool(found)


EXERCISES = [
    CausalMask(), PaddingMask(), CombineMasks(), ToAdditive(), MaskedSoftmax(), DecoderBlock(), LeaksFuture(),
]  # fmt: skip
