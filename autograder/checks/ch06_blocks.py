"""Chapter 6: layer normalisation, the feed-forward network, the encoder block, gradients along a stack of blocks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from autograder.checks.answers import ch06_blocks as _answers  # noqa: F401  (fills the catalogue)
from autograder.checks.inputs import mask, normal, tensor
from autograder.judge import (
    Case,
    Exercise,
    Sight,
    close,
    expect,
    is_array,
    oracle_gradients,
    raised,
    ran,
    unchanged,
)
from autograder.wire import ANSWER, Array, Opaque, Plan, Ref

CHAPTER = "06_blocks"


def _tokens(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, scale: float = 1.0, **options: Any) -> Array:
    """Rows of their own size, and of a mean of up to about 2.5 of their standard deviations."""
    x = rng.standard_normal(shape)
    x -= x.mean(axis=-1, keepdims=True)
    x /= x.std(axis=-1, keepdims=True)
    x += rng.uniform(-2.5, 2.5, (*shape[:-1], 1))
    return tensor(scale * x * rng.uniform(0.5, 2.0, (*shape[:-1], 1)), dtype, **options)


class LayerNorm(Exercise):
    """F.layer_norm in float64."""

    name, chapter, parts = "layer_norm", CHAPTER, ("core", "edge")

    def cases(self, rng: np.random.Generator) -> Iterable[Case]:
        yield self._case(rng, (3, 3, 3))  # all sizes alike, so that every mix-up of axes runs
        yield self._case(rng, (2, 4, 6), grad=True)
        yield self._case(rng, (7,), "float64")
        yield self._case(rng, (5, 4), layout="strided")
        edge: dict[str, Any] = {"part": "edge"}
        yield self._case(rng, (2, 3, 5), scale=3e-3, note="features that hardly differ, so that eps counts", **edge)
        yield self._case(rng, (3, 4, 2, 6), "float64", eps=float(rng.uniform(0.1, 0.9)), note="eps given", **edge)
        yield self._case(rng, (3, 4), scale=0.0, note="a row of zeros, such as padding", **edge)
        yield self._case(rng, (2, 5, 3), "float64", grad=True, eps=1e-12, note="float64, a tiny eps", **edge)

    def _case(
        self, rng: np.random.Generator, shape: tuple[int, ...], dtype: str = "float32", *, scale: float = 1.0,
        eps: float | None = None, grad: bool = False, layout: str = "contiguous", part: str = "core", note: str = "",
    ) -> Case:  # fmt: skip
        x = _tokens(rng, shape, dtype, scale, grad=grad, layout=layout)
        gamma, beta = (normal(rng, shape[-1:], dtype, grad=grad) for _ in range(2))
        extra = {"factor": normal(rng, shape, dtype)} if grad else {}
        return Case((x, gamma, beta), {} if eps is None else {"eps": eps}, part, note, extra)

    def plan(self, case: Case, plan: Plan) -> dict[str, Any]:
        names = super().plan(case, plan)
        if case.extra:
            names["gradients"] = plan.grad([(names["result"], case.extra["factor"])], names["inputs"])
        return names

    def judge(self, case: Case, seen: Sight) -> None:
        x, gamma, beta = (array.value().detach().double() for array in case.args)
        eps, dtype = case.kwargs.get("eps", 1e-5), case.args[0].value().dtype

        def norm(x: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor) -> list[torch.Tensor]:
            return [F.layer_norm(x, x.shape[-1:], gamma, beta, eps)]

        close(seen.result, norm(x, gamma, beta)[0].to(dtype), "the result")
        unchanged(seen.after, case.args)
        if case.extra:
            ran(seen.gradients, "taking the gradient of your result")
            wanted = oracle_gradients(norm, (x, gamma, beta), [case.extra["factor"].value().double()])
            for name, got, want in zip(("x", "gamma", "beta"), seen.gradients[0], wanted):
                expect(isinstance(got, Array), "gradients", f"no gradient reaches {name}")
                close(got, want.to(dtype), f"the gradient with respect to {name}", check="gradients",
                      atol=1e-4 if dtype == torch.float32 else None)  # fmt: skip


FEED_FORWARD = ("W_1.weight", "W_1.bias", "W_2.weight", "W_2.bias")
Activation = Callable[[torch.Tensor], torch.Tensor]
ACTIVATIONS: dict[str, Activation] = {
    "identity": lambda x: x, "relu": F.relu, "tanh": torch.tanh, "silu": F.silu, "gelu": F.gelu,
}  # fmt: skip


def _feed_forward_weights(rng: np.random.Generator, d_model: int, d_ff: int, dtype: str) -> dict[str, Array]:
    shapes = ((d_ff, d_model), (d_ff,), (d_model, d_ff), (d_model,))
    return {name: normal(rng, shape, dtype, scale=0.8) for name, shape in zip(FEED_FORWARD, shapes)}


class FeedForward(Exercise):
    """Two matrix products in float64 with the weights that were loaded."""

    name, chapter = "FeedForward", CHAPTER
    takes = ("x",)

    def cases(self, rng: np.random.Generator) -> Iterable[Case]:
        yield self._case(rng, (3, 3, 3), 3)  # all sizes alike
        yield self._case(rng, (2, 5, 4), 7, facts=True, grad=True)
        yield self._case(rng, (2, 3, 4), 10, activation="tanh")
        yield self._case(rng, (1, 4, 6), 5, activation="silu", dtype="float64", note="d_ff smaller than d_model")
        yield self._case(rng, (2, 1, 3), 8, activation="gelu", layout="strided")

    def _case(
        self, rng: np.random.Generator, shape: tuple[int, ...], d_ff: int, *, activation: str = "",
        dtype: str = "float32", grad: bool = False, facts: bool = False, layout: str = "contiguous", note: str = "",
    ) -> Case:  # fmt: skip
        extra: dict[str, Any] = {"make": (shape[-1], d_ff), "activation": activation, "facts": facts, "dtype": dtype}
        extra["weights"] = _feed_forward_weights(rng, shape[-1], d_ff, dtype)
        extra["factor"] = normal(rng, shape, dtype) if grad else None
        note = "; ".join(text for text in (note, f"activation={activation}" if activation else "") if text)
        return Case([normal(rng, shape, dtype, grad=grad, layout=layout)], note=note, extra=extra)

    def plan(self, case: Case, plan: Plan) -> dict[str, Any]:
        activation, make = case.extra["activation"], case.extra["make"]
        kwargs = {"activation": plan.make("function", activation)} if activation else {}
        module = plan.build(*make, **kwargs)
        names: dict[str, Any] = {"module": module}
        if case.extra["facts"]:
            names |= {"facts": plan.facts(module), "layers": [plan.look(module.W_1), plan.look(module.W_2)]}
        if case.extra["dtype"] != "float32":
            plan.to(module, case.extra["dtype"])
        x = plan.put(case.args[0])
        names["missing"] = plan.load(module, case.extra["weights"])
        names["result"] = plan.call(module, x)
        names["after"] = [plan.look(x)]
        if case.extra["factor"] is not None:
            wrt = [x, *(_slot(module, name) for name in FEED_FORWARD)]
            names["gradients"] = plan.grad([(names["result"], case.extra["factor"])], wrt)
        return names

    def judge(self, case: Case, seen: Sight) -> None:
        ran(seen.module, f"FeedForward{case.extra['make']}")
        _judge_slots(seen, "nn.Linear attributes W_1 (d_model -> d_ff) and W_2 (d_ff -> d_model)")
        if case.extra["facts"]:
            _judge_classes(seen.layers, "Linear", "W_1 and W_2")
            _judge_size(seen.facts, case.extra["weights"])
        activation = ACTIVATIONS[case.extra["activation"] or "relu"]

        def feed(x: torch.Tensor, *weights: torch.Tensor) -> list[torch.Tensor]:
            W_1, b_1, W_2, b_2 = weights
            return [activation(x @ W_1.T + b_1) @ W_2.T + b_2]

        given = [case.args[0], *case.extra["weights"].values()]
        doubles, dtype = [array.value().detach().double() for array in given], case.args[0].value().dtype
        close(seen.result, feed(*doubles)[0].to(dtype), "the output")
        unchanged(seen.after, case.args)
        if case.extra["factor"] is not None:
            ran(seen.gradients, "taking the gradient of your output")
            wanted = oracle_gradients(feed, doubles, [case.extra["factor"].value().double()])
            _judge_gradients(seen.gradients[0], dict(zip(("x", *FEED_FORWARD), wanted)))


def _slot(module: Ref, name: str) -> Ref:
    for part in name.split("."):
        module = getattr(module, part)
    return module


def _judge_slots(seen: Sight, wanted: str) -> None:
    lacking = ", ".join(seen.missing) if isinstance(seen.missing, list) else ""
    text = f"after __init__ these are missing or have another shape: {lacking}. Wanted are {wanted}"
    expect(not lacking, "layers", text)


def _judge_classes(found: Any, kind: str, names: str) -> None:
    made = all(layer == Opaque(kind) for layer in found)
    expect(made, "layers", f"the attributes {names} should be nn.{kind} layers, made in __init__")


def _judge_size(facts: Any, weights: Mapping[str, Array]) -> None:
    ran(facts, "looking into your module")
    got = sum(int(np.prod(shape)) for shape, *_ in facts["parameters"].values())
    want = sum(int(np.prod(array.shape)) for array in weights.values())
    side = "more" if got > want else "fewer"
    expect(got == want, "parameters", f"your module has {side} trainable numbers than its layers need, namely {got}")


def _judge_gradients(found: Iterable[Any], oracle: Mapping[str, torch.Tensor]) -> None:
    for (name, want), got in zip(oracle.items(), found):
        if name.endswith("W_k.bias"):  # zero but for rounding: softmax does not see it
            continue
        expect(isinstance(got, Array), "gradients", f"no gradient reaches {name}: something on the way is detached")
        close(got, want.float(), f"the gradient with respect to {name}", check="gradients", atol=2e-4)


# ---- the block --------------------------------------------------------------------------------------------------

LAYERS = ("W_q", "W_k", "W_v", "W_o")
ATTENTION_OUT = ("attention.W_o.weight", "attention.W_o.bias")
FEED_FORWARD_OUT = ("feed_forward.W_2.weight", "feed_forward.W_2.bias")


def block_weights(rng: np.random.Generator, d_model: int, d_ff: int) -> dict[str, Array]:
    """Every parameter of an encoder block, drawn: defaults hide mistakes."""
    drawn = {f"attention.{name}.weight": normal(rng, (d_model, d_model), scale=0.6) for name in LAYERS}
    drawn |= {f"attention.{name}.bias": normal(rng, (d_model,), scale=0.6) for name in LAYERS}
    inner = _feed_forward_weights(rng, d_model, d_ff, "float32")
    drawn |= {f"feed_forward.{name}": array for name, array in inner.items()}
    return drawn | {f"norm{i}.{name}": normal(rng, (d_model,)) for i in (1, 2) for name in ("weight", "bias")}


@functools.cache
def _torch_layer(d_model: int, h: int, d_ff: int, norm: str) -> nn.TransformerEncoderLayer:
    """In train mode, where torch takes no short cut; dropout is 0."""
    options = {"batch_first": True, "norm_first": norm == "pre", "device": "meta", "dtype": torch.float64}
    return nn.TransformerEncoderLayer(d_model, h, d_ff, 0.0, **options)  # type: ignore[arg-type]


def _oracle(
    make: tuple[int, int, int], norm: str, x: torch.Tensor, of: Mapping[str, torch.Tensor], given: Array | None
) -> torch.Tensor:
    """What torch's own layer makes of these weights, in float64."""
    weights = {
        "self_attn.in_proj_weight": torch.cat([of[f"attention.{name}.weight"] for name in LAYERS[:3]]),
        "self_attn.in_proj_bias": torch.cat([of[f"attention.{name}.bias"] for name in LAYERS[:3]]),
        "self_attn.out_proj.weight": of["attention.W_o.weight"],
        "self_attn.out_proj.bias": of["attention.W_o.bias"],
    }
    for ours, theirs in (("feed_forward.W_1", "linear1"), ("feed_forward.W_2", "linear2"), *_NORMS):
        weights |= {f"{theirs}.{name}": of[f"{ours}.{name}"] for name in ("weight", "bias")}
    B, n, h = x.shape[0], x.shape[1], make[1]
    hidden = None if given is None else ~given.value().bool().expand(B, h, n, n).reshape(B * h, n, n)
    return torch.func.functional_call(_torch_layer(*make, norm), weights, (x,), {"src_mask": hidden}, tie_weights=False)


_NORMS = (("norm1", "norm1"), ("norm2", "norm2"))


class EncoderBlock(Exercise):
    """nn.TransformerEncoderLayer with copied weights, post-LN and pre-LN; dropout on what is added, nowhere else."""

    name, chapter, parts = "EncoderBlock", CHAPTER, ("core", "edge")
    takes = ("x",)

    def cases(self, rng: np.random.Generator) -> Iterable[Case]:
        yield self._case(rng, (2, 4, 4), 2, 3, norm="", dropout=0.0, facts=True, grad=True)
        yield self._case(rng, (3, 2, 6), 3, 5, norm="pre", dropout=0.0)
        yield self._case(rng, (2, 3, 4), 4, 3, norm="post", dropout=0.0)
        yield from self._edges(rng, block_weights(rng, 8, 5))

    # In float64: two norms in a row can carry float32 rounding beyond 1e-5, once in a thousand draws.
    def _edges(self, rng: np.random.Generator, weights: dict[str, Array]) -> Iterable[Case]:
        edge: dict[str, Any] = {"part": "edge", "weights": weights}
        for norm, shape, dropout, dtype in (
            ("post", (4, 4), 0.5, "float64"), ("pre", (3, 1, 1, 4), None, "float64")
        ):  # fmt: skip
            note = f'norm="{norm}", eval mode, a mask of shape {shape}'
            options: dict[str, Any] = {"norm": norm, "dropout": dropout, "masked": shape, "dtype": dtype}
            yield self._case(rng, (3, 4, 8), 2, 5, train=False, note=note, **options, **edge)
        note = 'norm="post", dropout=1.0 in train mode: nothing of a sub-layer is left'
        both = (*ATTENTION_OUT, *FEED_FORWARD_OUT)
        yield self._case(rng, (2, 3, 8), 4, 5, norm="post", dropout=1.0, oracle_silent=both, note=note, **edge)
        for dropout, silent, which in ((0.5, FEED_FORWARD_OUT, "attention"), (None, ATTENTION_OUT, "feed-forward")):
            note = f"dropout={0.1 if dropout is None else dropout} in train mode, only the {which} sub-layer speaks"
            yield self._case(rng, (4, 8, 8), 2, 5, norm="pre", dropout=dropout, silent=silent, note=note, **edge)
        yield Case(note="which norms there are", part="edge", extra={"refused": ("both", "Post", "", None)})

    def _case(
        self, rng: np.random.Generator, shape: tuple[int, int, int], h: int, d_ff: int, *, norm: str,
        dropout: float | None, train: bool = True, grad: bool = False, facts: bool = False, dtype: str = "float32",
        masked: tuple[int, ...] = (), silent: Iterable[str] = (), oracle_silent: Iterable[str] = (),
        weights: dict[str, Array] | None = None, part: str = "core", note: str = "",
    ) -> Case:  # fmt: skip
        """Empty norm and no dropout: left to the defaults. `silent` weights are 0; `oracle_silent` for the judge."""
        weights = weights or block_weights(rng, shape[-1], d_ff)
        zeros = {name: tensor(np.zeros(weights[name].shape)) for name in (*silent, *oracle_silent)}
        options: dict[str, Any] = {} if dropout is None else {"dropout": dropout}
        options |= {"norm": norm} if norm else {}
        extra: dict[str, Any] = {
            "make": (shape[-1], h, d_ff), "options": options, "norm": norm or "post", "train": train, "facts": facts,
            "dtype": dtype, "weights": weights | {name: zeros[name] for name in silent}, "oracle": weights | zeros,
            "mask": mask(rng, masked) if masked else None, "speckled": bool(silent),
            "factor": normal(rng, shape, dtype) if grad else None,
        }  # fmt: skip
        note = note or f'norm="{extra["norm"]}"'
        return Case([normal(rng, shape, dtype, scale=1.5, grad=grad)], {}, part, note, extra)

    def plan(self, case: Case, plan: Plan) -> dict[str, Any]:
        extra = case.extra
        if "refused" in extra:
            return {"refused": [plan.build(6, 2, 5, norm=norm) for norm in extra["refused"]]}
        module = plan.build(*extra["make"], **extra["options"])
        names: dict[str, Any] = {"module": module}
        if extra["dtype"] != "float32":
            plan.to(module, extra["dtype"])
        names["missing"] = plan.load(module, extra["weights"])
        plan.mode(module, extra["train"])
        inputs = [plan.put(case.args[0])] + ([] if extra["mask"] is None else [plan.put(extra["mask"])])
        names["result"] = plan.call(module, *inputs)
        names["after"] = [plan.look(ref) for ref in inputs]
        if extra["factor"] is not None:
            wrt = [inputs[0], *(_slot(module, name) for name in extra["weights"])]
            names["gradients"] = plan.grad([(names["result"], extra["factor"])], wrt)
        if extra["facts"]:
            names |= {"facts": plan.facts(module), "layers": [plan.look(module.norm1), plan.look(module.norm2)]}
        return names

    def judge(self, case: Case, seen: Sight) -> None:
        extra = case.extra
        if "refused" in extra:
            for norm, found in zip(extra["refused"], seen.refused):
                raised(found, ("ValueError",), f'norm={norm!r} should raise a ValueError: norm is "post" or "pre"')
            return
        ran(seen.module, f"EncoderBlock{extra['make']}")
        _judge_slots(seen, "attention, feed_forward (with W_1 and W_2), norm1 and norm2")
        if extra["facts"]:
            _judge_classes(seen.layers, "LayerNorm", "norm1 and norm2")
            _judge_size(seen.facts, extra["weights"])
        x = case.args[0].value().detach().double()
        of = {name: array.value().double() for name, array in extra["oracle"].items()}
        if extra["factor"] is not None:
            self._judge_with_gradients(case, seen, x, of)
            return
        with torch.no_grad():
            want = case.once("output", lambda: _oracle(extra["make"], extra["norm"], x, of, extra["mask"]))
        if extra["speckled"]:
            self._judge_dropout(case, seen, x, want)
        else:
            close(seen.result, want.to(case.args[0].value().dtype), "the output")
        given = [case.args[0]] + ([] if extra["mask"] is None else [extra["mask"]])
        unchanged(seen.after, given, "your module changed its input or its mask in place")

    def _judge_with_gradients(self, case: Case, seen: Sight, x: torch.Tensor, of: dict[str, torch.Tensor]) -> None:
        leaves = {"x": x} | of
        for leaf in leaves.values():
            leaf.requires_grad_()
        want = _oracle(case.extra["make"], case.extra["norm"], x, of, None)
        close(seen.result, want.detach().float(), "the output")
        ran(seen.gradients, "taking the gradient of your output")
        loss = (want * case.extra["factor"].value().double()).sum()
        wanted = torch.autograd.grad(loss, list(leaves.values()))
        _judge_gradients(seen.gradients[0], dict(zip(leaves, wanted)))

    def _judge_dropout(self, case: Case, seen: Sight, x: torch.Tensor, want: torch.Tensor) -> None:
        """What was added is, entry by entry, 0 or the sub-layer's output / (1 - p)."""
        p = case.extra["options"].get("dropout", 0.1)
        got = is_array(seen.result, x.shape, "the output", lib="torch", dtype="float32")
        added, full = got.double() - x.numpy(), (want - x).numpy() / (1 - p)
        kept = np.abs(added - full) < 1e-4 * (1 + np.abs(full))
        dropped, telling = np.abs(added) < 1e-5, np.abs(full) > 1e-2
        text = (f"with dropout={p} in train mode every entry of what a sub-layer adds should be 0 or 1/(1 - {p}) of "
                "itself; yours is something else")  # fmt: skip
        expect(bool((kept | dropped).all()), "dropout", text)
        mixed = all(bool((dropped.any(axis=axis) & ~dropped.all(axis=axis)).any()) for axis in range(3))
        expect(mixed, "dropout", "your dropout drops whole rows or columns together; each number has its own chance")
        share = dropped[telling].mean()
        expect(abs(share - p) < 0.25 and share > 0, "dropout", f"dropout={p} set {share:.0%} of the entries to 0")


# ---- gradients by depth -----------------------------------------------------------------------------------------


class GradientByDepth(Exercise):
    """Norms of the gradients that autograd takes, in float64, with respect to each output of a chain."""

    name, chapter = "gradient_by_depth", CHAPTER
    takes = ()

    def cases(self, rng: np.random.Generator) -> Iterable[Case]:
        yield self._case(rng, (2, 3, 3), (3, 3, 3), "identity")
        yield self._case(rng, (3, 2, 4), (6, 3, 5, 2), "tanh")
        yield self._case(rng, (2, 3, 4), (4, 5), "tanh", as_list=True, grad=True, note="a plain list")
        yield self._case(rng, (1, 4, 3), (5,), "silu", dtype="float64", note="one block")
        yield self._case(rng, (2, 5, 4), (3, 7, 4, 2, 6), "tanh", dtype="float64", grad=True)

    def _case(
        self, rng: np.random.Generator, shape: tuple[int, int, int], widths: tuple[int, ...], activation: str, *,
        dtype: str = "float32", as_list: bool = False, grad: bool = False, note: str = "",
    ) -> Case:  # fmt: skip
        sizes = (shape[-1], *widths)
        weights = [normal(rng, pair, dtype, scale=0.8) for pair in zip(sizes, sizes[1:])]
        args = [normal(rng, shape, dtype, grad=grad), normal(rng, (*shape[:-1], widths[-1]), dtype)]
        extra = {"weights": weights, "activation": activation, "as_list": as_list}
        return Case(args, {}, note=note or f"{len(widths)} blocks", extra=extra)

    def plan(self, case: Case, plan: Plan) -> dict[str, Any]:
        options = {"activation": case.extra["activation"], "as_list": case.extra["as_list"]}
        blocks = plan.make("modules", case.extra["weights"], **options)
        x, G = (plan.put(array) for array in case.args)
        result = plan.call(ANSWER, blocks, x, G)
        parameters = [blocks[i].weight for i in range(len(case.extra["weights"]))]
        return {
            "result": result,
            "after": [plan.look(ref) for ref in (x, G)],
            "weights": [plan.look(ref) for ref in parameters],
            "left": [plan.look(ref.grad) for ref in (x, G, *parameters)],
            "frozen": [plan.look(ref.requires_grad) for ref in parameters],
            "modes": [plan.look(blocks[i].training) for i in range(len(case.extra["weights"]))],
            "asks": plan.look(x.requires_grad),
        }

    def judge(self, case: Case, seen: Sight) -> None:
        x, G = (array.value().detach().double() for array in case.args)
        activation = ACTIVATIONS[case.extra["activation"]]
        x.requires_grad_()
        y, outputs = x, []
        for weight in case.extra["weights"]:
            y = activation(y @ weight.value().double())
            outputs.append(y)
        gradients = torch.autograd.grad((y * G).sum(), outputs)
        want = torch.stack([gradient.norm() for gradient in gradients])
        close(seen.result, want.to(case.args[0].value().dtype), "the result")
        unchanged(seen.after, case.args)
        unchanged(seen.weights, case.extra["weights"], "your function changed the blocks' weights")
        clean = all(grad is None for grad in seen.left)
        expect(clean, "no gradients left", "after your function a parameter or an input has a .grad that was not there")
        expect(all(seen.frozen), "no gradients left", "after your function a parameter no longer requires a gradient")
        text = "after your function x requires a gradient, and did not before: work on x.detach().requires_grad_()"
        expect(seen.asks == case.args[0].grad, "no gradients left", text)
        expect(all(seen.modes), "mode", "the blocks came in train mode and your function leaves some in eval mode")


EXERCISES = [LayerNorm(), FeedForward(), EncoderBlock(), GradientByDepth()]
