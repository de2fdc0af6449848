"""Chapter 4: splitting and merging heads, multi-head attention, its parameters, what each head contributes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from autograder.checks.answers import ch04_multi_head as _answers  # noqa: F401  (fills the catalogue)
from autograder.checks.inputs import mask, normal, tensor
from autograder.judge import Case, Exercise, Sight, close, expect, is_array, pair, raised, ran, unchanged
from autograder.wire import ANSWER, Array, Plan, Ref

CHAPTER = "04_multi_head"
LAYERS = ("W_q", "W_k", "W_v", "W_o")
REFUSED = ((8, 3), (10, 4), (7, 2))  # (d_model, h) that do not go together
BELOW_ONE = ((6, 0), (8, -2))


def _labels(B: int, h: int, n: int, d: int) -> np.ndarray:
    """(B, h, n, d): 1000 sequence + 100 token + 10 head + feature, each counted from 1."""
    b, i, t, f = np.meshgrid(*(np.arange(1, size + 1) for size in (B, h, n, d)), indexing="ij")
    return 1000 * b + 100 * t + 10 * i + f


def _side_by_side(heads: np.ndarray) -> np.ndarray:
    """(B, h, n, d) -> (B, n, h d), by column blocks."""
    return np.concatenate([heads[:, i] for i in range(heads.shape[1])], axis=-1)


def _refusals(plan: Plan, given: Iterable[tuple[Any, ...]]) -> dict[str, Any]:
    return {"refused": [plan.call(ANSWER, *args) for args in given]}


def _judge_refusals(seen: Sight, given: Iterable[tuple[int, int]], kinds: tuple[str, ...]) -> None:
    for found, (d_model, h) in zip(seen.refused, given):
        reason = "h does not divide d_model" if h > 0 else "h must be at least 1"
        raised(found, kinds, f"d_model = {d_model} with h = {h} should raise a {kinds[0]}: {reason}")


class _Reshape(Exercise):
    """What the two exercises that only move numbers have in common: labelled numbers, their way back, the gradient."""

    chapter = CHAPTER

    def plan(self, case: Case, plan: Plan) -> dict[str, Any]:
        if case.extra.get("refused"):
            x = plan.put(case.args[0])
            return _refusals(plan, [(x, h) for h in case.args[1:]])
        names = super().plan(case, plan)
        if case.args[0].grad:
            names["gradient"] = plan.grad([(names["result"], case.extra["factor"])], names["inputs"][:1])
        return names

    def judge(self, case: Case, seen: Sight) -> None:
        if case.extra.get("refused"):
            d_model = case.args[0].shape[-1]
            _judge_refusals(seen, [(d_model, h) for h in case.args[1:]], ("ValueError",))
            return
        why = "The input's numbers were 1000 * sequence + 100 * token + 10 * head + feature" if case.note else ""
        close(seen.result, case.extra["want"].value(), "the result", why=why)
        unchanged(seen.after, case.args)
        if case.args[0].grad:
            ran(seen.gradient, "taking the gradient of your result")
            close(seen.gradient[0][0], case.extra["moved back"].value(), "the gradient", check="gradients")


class SplitHeads(_Reshape):
    """(B, n, d_model) -> (B, h, n, d_k): head i holds the i-th block of d_k columns."""

    name = "split_heads"

    def cases(self, rng: np.random.Generator) -> Iterable[Case]:
        labels = _labels(2, 3, 4, 2)
        wide = tensor(_side_by_side(labels))
        yield Case((wide, 3), note="labelled numbers", extra={"want": tensor(labels)})
        yield self._drawn(rng, 2, 2, 2, 2)  # all sizes alike, so that every mix-up runs
        yield self._drawn(rng, 3, 4, 5, 2, grad=True)
        yield self._drawn(rng, 2, 3, 5, 1, dtype="float64")
        yield self._drawn(rng, 3, 1, 2, 4, layout="strided")
        yield self._drawn(rng, 2, 4, 3, 3, layout="strided")
        yield Case((normal(rng, (2, 3, 8)), 3, 5, 16, 9), extra={"refused": True}, note="h does not divide d_model")
        yield Case((normal(rng, (2, 3, 8)), 0, -2), extra={"refused": True}, note="h below 1")

    def _drawn(
        self, rng: np.random.Generator, B: int, h: int, n: int, d_k: int, *,
        dtype: str = "float32", grad: bool = False, layout: str = "contiguous",
    ) -> Case:  # fmt: skip
        heads, factor = rng.standard_normal((2, B, h, n, d_k))
        extra = {"want": tensor(heads, dtype), "factor": tensor(factor, dtype)}
        extra["moved back"] = tensor(_side_by_side(factor), dtype)
        return Case((tensor(_side_by_side(heads), dtype, grad=grad, layout=layout), h), extra=extra)


class MergeHeads(_Reshape):
    """(B, h, n, d_v) -> (B, n, h d_v): the heads side by side."""

    name = "merge_heads"

    def cases(self, rng: np.random.Generator) -> Iterable[Case]:
        labels = _labels(2, 3, 4, 2)
        yield Case((tensor(labels),), note="labelled numbers", extra={"want": tensor(_side_by_side(labels))})
        yield self._drawn(rng, 2, 2, 2, 2)
        yield self._drawn(rng, 3, 4, 5, 2, grad=True)
        yield self._drawn(rng, 2, 3, 5, 1, dtype="float64")
        yield self._drawn(rng, 3, 1, 2, 4)
        yield self._drawn(rng, 2, 4, 3, 5, layout="strided")

    def _drawn(
        self, rng: np.random.Generator, B: int, h: int, n: int, d_v: int, *,
        dtype: str = "float32", grad: bool = False, layout: str = "contiguous",
    ) -> Case:  # fmt: skip
        heads, factor = rng.standard_normal((2, B, h, n, d_v))
        extra = {"want": tensor(_side_by_side(heads), dtype), "factor": tensor(_side_by_side(factor), dtype)}
        extra["moved back"] = tensor(factor, dtype)
        return Case((tensor(heads, dtype, grad=grad, layout=layout),), extra=extra)


def _weights(rng: np.random.Generator, d_model: int, *, bias: bool = True, dtype: str = "float32") -> dict[str, Array]:
    """Every parameter of multi-head attention, drawn: defaults hide mistakes."""
    drawn = {f"{name}.weight": normal(rng, (d_model, d_model), dtype, scale=1.5 * d_model**-0.5) for name in LAYERS}
    return drawn | ({f"{name}.bias": normal(rng, (d_model,), dtype) for name in LAYERS} if bias else {})


class MultiHeadAttention(Exercise):
    """nn.MultiheadAttention with copied weights: output (B, n, d_model) and weights (B, h, n, m)."""

    name, chapter, parts = "MultiHeadAttention", CHAPTER, ("core", "edge")
    takes = ("query", "key", "value")

    def cases(self, rng: np.random.Generator) -> Iterable[Case]:
        six: dict[str, Any] = {"weights": _weights(rng, 6)}  # shared by the cases of this width, for speed
        # B = n = d_k, so that every mix-up of axes runs and shows in its values
        yield self._case(rng, 3, 2, 3, 3, **six, note="self-attention")
        yield self._case(rng, 2, 4, 5, 2, bias=False, facts=True, note="bias=False")
        yield self._case(rng, 2, 3, 4, 2, **six, masks=[((4, 4), "bool")], note="a mask of shape (n, m)")
        yield self._case(rng, 2, 2, 3, 2, grad=True)
        edge: dict[str, Any] = {"part": "edge"}
        yield self._case(rng, 2, 2, 3, 4, inputs=(5,), layout="strided", note="key given, not contiguous", **edge)
        yield self._case(rng, 3, 2, 4, 3, **six, inputs=(4, 4), note="key and value given", **edge)
        # B = h: a mask of B tables fits h heads, too
        yield self._masked(rng, 2, 2, 3, 3, 5, "bool", (("B", "n", "m"), ("B", 1, 1, "m"), ("B", "h", "n", "m")), **six)
        shapes = (("B", "h", 1, "m"), ("B", 1, "n", "m"), ("B", "n", "m"), ("n", "m"))
        yield self._masked(rng, 3, 2, 4, 1, 3, "int64", shapes)
        yield self._case(rng, 2, 2, 5, 3, dtype="float64", masks=[((2, 5, 5), "int64")], note="float64", **edge)
        yield self._hidden_giant(rng, **six)
        yield Case(note="which h are allowed", part="edge", extra={"refused": REFUSED})

    def _case(
        self, rng: np.random.Generator, B: int, h: int, n: int, d_k: int, *, inputs: tuple[int, ...] = (),
        masks: Iterable[tuple[tuple[int, ...], str]] = (), weights: dict[str, Array] | None = None,
        bias: bool = True, dtype: str = "float32",
        grad: bool = False, facts: bool = False, layout: str = "contiguous", part: str = "core", note: str = "",
    ) -> Case:  # fmt: skip
        """`inputs`: the lengths of key and value where they are given; one call for every mask, else one without."""
        d_model = h * d_k
        args = [normal(rng, (B, m, d_model), dtype, grad=grad, layout=layout) for m in (n, *inputs)]
        make = (d_model, h) if bias else (d_model, h, False)
        extra: dict[str, Any] = {"make": make, "dtype": dtype, "facts": facts}
        extra["weights"] = weights or _weights(rng, d_model, bias=bias, dtype=dtype)
        extra["masks"] = [mask(rng, shape, kind) for shape, kind in masks] or [None]
        extra["factor"] = normal(rng, (B, n, d_model), dtype) if grad else None
        return Case(args, {}, part, note, extra)

    def _masked(
        self, rng: np.random.Generator, B: int, h: int, n: int, d_k: int, m: int, kind: str,
        shapes: Iterable[tuple[Any, ...]], **options: Any,
    ) -> Case:  # fmt: skip
        sizes = {"B": B, "h": h, "n": n, "m": m, 1: 1}
        masks = [(tuple(sizes[size] for size in shape), kind) for shape in shapes]
        note = "boolean masks" if kind == "bool" else f"masks of 0 and 1, {kind}"
        return self._case(rng, B, h, n, d_k, inputs=(m,), masks=masks, part="edge", note=note, **options)

    def _hidden_giant(self, rng: np.random.Generator, **options: Any) -> Case:
        """A masked key whose scores are in the millions: a filler of -1e4 is not minus infinity here."""
        note = "a masked key with scores in the millions"
        case = self._case(rng, 2, 2, 4, 3, inputs=(4, 4), part="edge", note=note, **options)
        query, key, value = (array.value() for array in case.args)
        key[:, 1] = 1e6
        allowed = torch.tensor([True, False, True, True])
        extra = {**case.extra, "masks": [Array.of(allowed[None, :].expand(4, 4).contiguous())]}
        return Case([Array.of(t) for t in (query, key, value)], {}, "edge", case.note, extra)

    def plan(self, case: Case, plan: Plan) -> dict[str, Any]:
        if "refused" in case.extra:
            return _refusals(plan, case.extra["refused"]) | {"one head": plan.build(3, 1), "d_k 1": plan.build(3, 3)}
        module = plan.build(*case.extra["make"])
        names: dict[str, Any] = {"module": module, "kept": [plan.look(module.h), plan.look(module.d_k)]}
        if case.extra["facts"]:
            names["facts"] = plan.facts(module)
        if case.extra["dtype"] != "float32":
            plan.to(module, case.extra["dtype"])
        names["missing"] = plan.load(module, case.extra["weights"])
        inputs = [plan.put(array) for array in case.args]
        masks = [None if given is None else plan.put(given) for given in case.extra["masks"]]
        results = [plan.call(module, *inputs, **({} if given is None else {"mask": given})) for given in masks]
        names["results"] = results
        names["after"] = [plan.look(ref) for ref in [*inputs, *(given for given in masks if given is not None)]]
        if case.extra["factor"] is not None:
            wrt = [*inputs, *(_slot(module, name) for name in case.extra["weights"])]
            names["gradients"] = plan.grad([(results[0][0], case.extra["factor"])], wrt)
        return names

    def judge(self, case: Case, seen: Sight) -> None:
        if "refused" in case.extra:
            for found, h in ((getattr(seen, "one head"), 1), (getattr(seen, "d_k 1"), 3)):
                ran(found, f"MultiHeadAttention(3, {h})")
            _judge_refusals(seen, case.extra["refused"], ("ValueError",))
            return
        self._judge_module(case, seen)
        of, dtype = _doubles(case), case.args[0].value().dtype
        for given, result in zip(case.extra["masks"], seen.results):
            where = "" if given is None else f" with a mask of shape {given.shape}"
            ran(result, f"forward{where}")
            output, weights = pair(result, "(output, weights)")
            want_output, want_weights = _attention(case, of, given)
            close(weights, want_weights.detach().to(dtype), f"weights{where}", check="weights")
            close(output, want_output.detach().to(dtype), f"output{where}", check="output")
        before = [*case.args, *(given for given in case.extra["masks"] if given is not None)]
        unchanged(seen.after, before, "your module changed its input or its mask in place")
        if case.extra["factor"] is not None:
            oracle = torch.autograd.grad((want_output * case.extra["factor"].value().double()).sum(), list(of.values()))
            self._judge_gradients(seen.gradients, dict(zip(of, oracle)))

    def _judge_module(self, case: Case, seen: Sight) -> None:
        d_model, h = case.extra["make"][:2]
        ran(seen.module, f"MultiHeadAttention{case.extra['make']}")
        lacking = ", ".join(seen.missing) if isinstance(seen.missing, list) else ""
        expect(not lacking, "layers", f"after __init__ these are missing or have another shape than torch's: {lacking}")
        expect(seen.kept[0] == h, "attributes", f"the attribute h should be the number of heads, {h}")
        expect(seen.kept[1] == d_model // h, "attributes", f"the attribute d_k should be d_model // h = {d_model // h}")
        if case.extra["facts"]:
            self._judge_facts(seen)

    def _judge_facts(self, seen: Sight) -> None:
        ran(seen.facts, "looking into your module")
        others = [name for name in LAYERS if "Linear" not in seen.facts["classes"].get(name, ())]
        expect(not others, "layers", f"{', '.join(others)} should be nn.Linear(d_model, d_model), made in __init__")
        biases = [name for name in seen.facts["parameters"] if name in {f"{layer}.bias" for layer in LAYERS}]
        expect(not biases, "bias", f"with bias=False there should be no {', '.join(biases)}")

    def _judge_gradients(self, found: Any, oracle: Mapping[str, torch.Tensor]) -> None:
        ran(found, "taking the gradient of your output")
        for (name, want), got in zip(oracle.items(), found[0]):
            if name == "W_k.bias":  # zero but for rounding: softmax does not see it
                continue
            expect(isinstance(got, Array), "gradients", f"no gradient reaches {name}: something on the way is detached")
            close(got, want.float(), f"the gradient with respect to {name}", check="gradients", atol=1e-4)


def _slot(module: Ref, name: str) -> Ref:
    for part in name.split("."):
        module = getattr(module, part)
    return module


def _doubles(case: Case) -> dict[str, torch.Tensor]:
    """Inputs and weights in float64, in the order in which the plan asks for gradients; leaves where it does."""
    given = dict(zip(("query", "key", "value"), case.args)) | case.extra["weights"]
    grad = case.extra.get("factor") is not None
    return {name: array.value().detach().double().requires_grad_(grad) for name, array in given.items()}


def _attention(case: Case, of: Mapping[str, torch.Tensor], given: Array | None) -> tuple[torch.Tensor, torch.Tensor]:
    """The oracle: what torch's multi-head attention makes of these inputs and weights, in float64."""
    d_model, h = case.extra["make"][:2]
    query = of["query"]
    key = of.get("key", query)
    value = of.get("value", key)
    hidden = None if given is None else _hidden(given.value().bool(), len(query), h, query.shape[1], key.shape[1])
    biases = [of.get(f"{name}.bias") for name in LAYERS]
    output, weights = F.multi_head_attention_forward(
        query.transpose(0, 1), key.transpose(0, 1), value.transpose(0, 1), d_model, h,
        in_proj_weight=torch.cat([of[f"{name}.weight"] for name in LAYERS[:3]]),
        in_proj_bias=None if biases[0] is None else torch.cat(biases[:3]),  # type: ignore[arg-type]
        out_proj_weight=of["W_o.weight"], out_proj_bias=biases[3], bias_k=None, bias_v=None, add_zero_attn=False,
        dropout_p=0.0, attn_mask=hidden, average_attn_weights=False,
    )  # fmt: skip
    return output.transpose(0, 1), weights  # type: ignore[return-value]


def _hidden(allowed: torch.Tensor, B: int, h: int, n: int, m: int) -> torch.Tensor:
    """torch's polarity, True = may not, and its shape, (B h, n, m)."""
    if allowed.dim() == 3:
        allowed = allowed[:, None]
    return ~allowed.expand(B, h, n, m).reshape(B * h, n, m)


class ParameterCount(Exercise):
    """The parameters of nn.MultiheadAttention, counted on the module itself."""

    name, chapter = "parameter_count", CHAPTER

    def cases(self, rng: np.random.Generator) -> Iterable[Case]:
        sizes = [(int(h), int(h * d_k)) for h, d_k in zip(rng.integers(2, 9, 3), rng.integers(2, 40, 3))]
        plain = [(512, 8), (512, 1), (512, 512), *((d_model, h) for h, d_model in sizes)]
        yield self._case(plain, "the default, bias=True")
        flags = [(d_model, h, bias) for h, d_model in [(8, 512), *sizes] for bias in (False, True)]
        yield self._case([*flags, (1, 1, True), (1, 1, False)], "bias said")
        yield Case(note="h does not divide d_model", extra={"refused": (*REFUSED, (4, 8))})
        yield Case(note="h below 1", extra={"refused": BELOW_ONE})

    def _case(self, calls: list[tuple[Any, ...]], note: str) -> Case:
        return Case(note=note, extra={"calls": calls})

    def plan(self, case: Case, plan: Plan) -> dict[str, Any]:
        if "refused" in case.extra:
            return _refusals(plan, case.extra["refused"])
        return {"counts": [plan.call(ANSWER, *args) for args in case.extra["calls"]]}

    def judge(self, case: Case, seen: Sight) -> None:
        if "refused" in case.extra:
            _judge_refusals(seen, case.extra["refused"], ("ValueError",))
            return
        for args, found in zip(case.extra["calls"], seen.counts):
            d_model, h, bias = (*args, True)[:3]
            module = nn.MultiheadAttention(d_model, h, bias=bias, device="meta")
            want = sum(p.numel() for p in module.parameters())
            call = f"parameter_count{args}"
            got = _whole(found, call)
            expect(got == want, "value", f"{call} is too {'large' if got > want else 'small'}: yours is {got:,}")


def _whole(found: Any, what: str) -> int:
    """A Python or NumPy integer, or an integer tensor of one element."""
    ran(found, what)
    if isinstance(found, Array) and "int" in found.dtype:
        found = int(is_array(found, (), what, lib=found.lib).double())
    fits = isinstance(found, int) and not isinstance(found, bool)
    kind = f"{found!r}, a float" if isinstance(found, float) else f"a {type(found).__name__}"
    expect(fits, "type", f"{what} should be an int; yours is {kind}")
    return found


class HeadContributions(Exercise):
    """Head i alone through torch's attention: the columns of the other heads in W_o are zero, and so is its bias."""

    name, chapter = "head_contributions", CHAPTER
    takes = ("x",)

    def cases(self, rng: np.random.Generator) -> Iterable[Case]:
        yield self._case(rng, 3, 2, 3, 3, bias=False)
        yield self._case(rng, 2, 3, 4, 2)
        yield self._case(rng, 1, 4, 5, 1, dtype="float64")
        yield self._case(rng, 3, 1, 2, 4)
        yield self._case(rng, 2, 2, 5, 3, layout="strided")

    def _case(
        self, rng: np.random.Generator, B: int, h: int, n: int, d_k: int, *,
        bias: bool = True, dtype: str = "float32", layout: str = "contiguous",
    ) -> Case:  # fmt: skip
        extra = {"make": (h * d_k, h), "weights": _weights(rng, h * d_k, bias=bias, dtype=dtype)}
        note = f"h = {h}, {'with' if bias else 'without'} biases"
        return Case([normal(rng, (B, n, h * d_k), dtype, layout=layout)], note=note, extra=extra)

    def plan(self, case: Case, plan: Plan) -> dict[str, Any]:
        weights = {name.removesuffix(".weight"): array for name, array in case.extra["weights"].items()}
        mha, x = plan.make("projections", case.extra["make"][1], weights), plan.put(case.args[0])
        result = plan.call(ANSWER, mha, x)
        after = [plan.look(x), *(plan.look(_slot(mha, name)) for name in case.extra["weights"])]
        return {"result": result, "after": after}

    def judge(self, case: Case, seen: Sight) -> None:
        of = _doubles(case)
        d_model, h = case.extra["make"]
        d_k = d_model // h
        alone = []
        for i in range(h):
            columns = torch.zeros(d_model, dtype=torch.float64)
            columns[i * d_k : (i + 1) * d_k] = 1
            silent = {"W_o.weight": of["W_o.weight"] * columns, "W_o.bias": torch.zeros(d_model, dtype=torch.float64)}
            alone.append(_attention(case, of | silent, None)[0])
        dtype = case.args[0].value().dtype
        close(seen.result, torch.stack(alone).to(dtype), "the result")
        unchanged(seen.after[:1], case.args)
        unchanged(seen.after[1:], list(case.extra["weights"].values()), "your function changed the weights of mha")


EXERCISES = [SplitHeads(), MergeHeads(), MultiHeadAttention(), ParameterCount(), HeadContributions()]
