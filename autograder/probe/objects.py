"""What an exercise is given that is no array: layers, models, optimizers and generators, said by name and data.

A closed list. Every entry is built from weights that come with the plan, so that the judge can build its twin
and compute what a right answer would have seen.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from autograder.probe.model import EncoderDecoder


def make(kind: str, *args: Any, **kwargs: Any) -> Any:
    """The object of that kind; KeyError where the list has none."""
    return _KINDS[kind](*args, **kwargs)


def generator(seed: int) -> torch.Generator:
    """A torch.Generator in a known state."""
    return torch.Generator().manual_seed(seed)


def function(name: str) -> Callable[[Tensor], Tensor]:
    """An activation by name."""
    known: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "tanh": torch.tanh, "silu": F.silu}
    return (lambda x: x) if name == "identity" else known[name]


class Layer(nn.Module):
    """A layer over a sequence, x (B, n, d) -> (B, n, d); `weight` (d, d) or (n, d), by what it mixes.

    "attention", "causal attention", "cumulative sum", "table" (adds weight[position]), "convolution" (each
    token plus its left neighbour), "tokenwise" (a linear map of each token), "mean" (the same mean everywhere),
    "last" (the last token everywhere), "sorted" (features sorted along the sequence), "later table" (adds
    weight[position], in all sequences but the first), "ascent" (adds weight where the first token is below the second).
    `dropout` acts in train mode only; `as_tuple` returns (output, None). `log` has for each call whether the layer and
    its dropout were in train mode.
    """

    def __init__(self, kind: str, weight: Tensor, *, dropout: float = 0.0, as_tuple: bool = False):
        super().__init__()
        # Not the kind itself: whether it is equivariant could be read off it.
        self.mix, self.as_tuple = _MIXES[kind], as_tuple
        self.weight = nn.Parameter(weight)
        self.dropout = nn.Dropout(dropout)
        self.log: list[list[bool]] = []

    def forward(self, x: Tensor) -> Any:
        self.log.append([self.training, self.dropout.training])
        out = self.dropout(self.mix(x, self.weight))
        return (out, None) if self.as_tuple else out


def _attention(x: Tensor, weight: Tensor, *, causal: bool = False) -> Tensor:
    scores = x @ weight @ x.transpose(-2, -1)  # (B, n, n)
    if causal:
        future = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(future, -torch.inf)
    return scores.softmax(-1) @ x


_MIXES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "attention": lambda x, weight: _attention(x, weight),
    "causal attention": lambda x, weight: _attention(x, weight, causal=True),
    "cumulative sum": lambda x, weight: (x @ weight).cumsum(-2),
    "table": lambda x, weight: x + weight[: x.shape[-2]],
    "convolution": lambda x, weight: x + F.pad(x, (0, 0, 1, 0))[..., :-1, :] @ weight,
    "tokenwise": lambda x, weight: torch.tanh(x @ weight),
    "mean": lambda x, weight: (x @ weight).mean(-2, keepdim=True).expand_as(x).contiguous(),
    "last": lambda x, weight: (x[..., -1:, :] @ weight).expand_as(x).contiguous(),
    "sorted": lambda x, weight: (x @ weight).sort(-2).values,
    "later table": lambda x, weight: torch.cat([x[:1], x[1:] + weight]),
    "ascent": lambda x, weight: x + (x[:, :1] < x[:, 1:2]) * weight,
}


class EmbedMixHead(nn.Module):
    """ids (B, n) -> (B, n, V): embedding, a mix of positions (n, n), a head.

    A lower-triangular mix sees no future; one entry above the diagonal leaks. `dropout` acts in train mode only.
    """

    def __init__(self, embedding: Tensor, mix: Tensor, head: Tensor, *, dropout: float = 0.0):
        super().__init__()
        self.embedding, self.mix, self.head = nn.Parameter(embedding), nn.Parameter(mix), nn.Parameter(head)
        self.dropout = nn.Dropout(dropout)
        self.log: list[dict[str, Any]] = []

    def forward(self, ids: Tensor) -> Tensor:
        valid = ids.dtype == torch.int64 and {*range(len(self.embedding))}.issuperset(ids.reshape(-1).tolist())
        modes = [self.training, self.dropout.training]
        self.log.append({"shape": tuple(ids.shape), "training": modes, "valid": valid})
        n = ids.shape[1]
        mixed = self.mix[:n, :n] @ self.embedding[ids]  # (B, n, d)
        return self.dropout(torch.tanh(mixed) @ self.head)  # (B, n, V)


class _Block(nn.Module):
    def __init__(self, weight: Tensor, activation: str):
        super().__init__()
        self.weight, self.activation = nn.Parameter(weight), function(activation)

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(x @ self.weight)


def modules(weights: list[Tensor], *, activation: str = "identity", as_list: bool = False) -> Any:
    """A list of modules applied in turn, each x -> activation(x @ W)."""
    blocks = [_Block(weight, activation) for weight in weights]
    return blocks if as_list else nn.ModuleList(blocks)


def _linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, dtype=weight.dtype)
    with torch.no_grad():
        layer.weight.copy_(weight)
        if bias is not None:
            layer.bias.copy_(bias)
    return layer


def projections(h: int, weights: dict[str, Tensor]) -> SimpleNamespace:
    """The attributes of multi-head attention and nothing else: h, d_k, W_q, W_k, W_v, W_o ("W_q", "W_q.bias", ...)."""
    names = ("W_q", "W_k", "W_v", "W_o")
    layers = {name: _linear(weights[name], weights.get(f"{name}.bias")) for name in names}
    return SimpleNamespace(h=h, d_k=weights["W_q"].shape[0] // h, **layers)


class TinySeq2Seq(nn.Module):
    """(src, tgt) -> logits (B, n, V): mean source embedding plus a running mean of target embeddings, then a head."""

    def __init__(self, src: Tensor, tgt: Tensor, head: Tensor, *, dropout: float = 0.0):
        super().__init__()
        self.src, self.tgt, self.head = nn.Parameter(src), nn.Parameter(tgt), nn.Parameter(head)
        self.dropout = nn.Dropout(dropout)
        self.log: list[dict[str, Any]] = []

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        device = self.head.device.type
        self.log.append(
            {
                "devices": [src.device.type, tgt.device.type],
                "src": [] if src.is_meta else src.tolist(),
                "tgt": [] if tgt.is_meta else tgt.tolist(),
                "training": self.training,
                "dropout": self.dropout.training,
                "grad": torch.is_grad_enabled(),
                "autocast": torch.is_autocast_enabled(device) and str(torch.get_autocast_dtype(device)),
            }
        )
        if {src.device, tgt.device} != {self.head.device}:  # ids without numbers would index what is not there
            raise RuntimeError(f"src is on {src.device}, tgt on {tgt.device}, the model on {self.head.device}")
        count = torch.arange(1, tgt.shape[1] + 1, dtype=self.head.dtype)[:, None]
        state = self.src[src].mean(1, keepdim=True) + self.tgt[tgt].cumsum(1) / count  # (B, n, d)
        return self.dropout(torch.tanh(state)) @ self.head  # (B, n, V)


def optimizer(name: str, model: nn.Module, **options: Any) -> torch.optim.Optimizer:
    """A torch optimizer over the model's parameters; its `log` has the norm of the gradient that each step met."""
    made = getattr(torch.optim, name)(model.parameters(), **options)
    made.log = []

    def note(*_: Any) -> None:
        grads = [p.grad.norm() for p in model.parameters() if p.grad is not None]
        made.log.append(float(torch.stack(grads).norm()) if grads else 0.0)

    made.register_step_pre_hook(note)
    return made


class Scripted(nn.Module):
    """A model for decoders that says what it is told: next-token logits by source row and prefix.

    `script` lists (source, prefix, logits): the logits (V,) after that prefix (bos included) for that source row
    (pads removed); where it lists nothing the `default` row is said. Has encode, decode, pad_id and nothing
    trainable; refuses a memory that is not its source's. `log` has every call with its shape, mode and grad state.
    """

    def __init__(self, script: list[Any], default: Tensor, pad_id: int):
        super().__init__()
        self.pad_id = pad_id
        self.log: list[dict[str, Any]] = []
        self.default = default
        self.script = {(tuple(source), tuple(prefix)): logits for source, prefix, logits in script}

    def _note(self, name: str, ids: Tensor) -> None:
        grad = torch.is_grad_enabled()
        self.log.append({"call": name, "shape": tuple(ids.shape), "training": self.training, "grad": grad})

    def encode(self, src: Tensor) -> Tensor:
        self._note("encode", src)
        return src[..., None].to(self.default.dtype) * 2 + 1  # (B, n, 1)

    def decode(self, tgt: Tensor, memory: Tensor, src: Tensor) -> Tensor:
        self._note("decode", tgt)
        if len(memory) != len(src) or len(tgt) != len(src) or not torch.equal((memory[..., 0] - 1) / 2, src.to(memory)):
            raise ValueError(f"decode got memory {tuple(memory.shape)} that does not belong to src {tuple(src.shape)}")
        rows = [self._say(source, prefix) for source, prefix in zip(src.tolist(), tgt.tolist())]
        return torch.stack([logits for row in rows for logits in row]).unflatten(0, tgt.shape)  # (B, n, V)

    def _say(self, source: list[int], prefix: list[int]) -> list[Tensor]:
        """The logits after each token of a row."""
        words = tuple(i for i in source if i != self.pad_id)
        return [self.script.get((words, tuple(prefix[: i + 1])), self.default) for i in range(len(prefix))]


_KINDS: dict[str, Callable[..., Any]] = {
    "generator": generator,
    "function": function,
    "layer": Layer,
    "embed_mix_head": EmbedMixHead,
    "modules": modules,
    "projections": projections,
    "tiny_seq2seq": TinySeq2Seq,
    "optimizer": optimizer,
    "scripted": Scripted,
    "encoder_decoder": EncoderDecoder,
}
