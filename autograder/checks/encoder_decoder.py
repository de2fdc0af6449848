"""An encoder-decoder in NumPy and float64, formula by formula: what chapter 8's exercises are compared with."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np

from autograder.checks.inputs import tensor
from autograder.wire import Array

Weights = Mapping[str, np.ndarray]


def draw(rng: np.random.Generator, src: int, tgt: int, d: int, d_ff: int, N: int, norm: str) -> dict[str, np.ndarray]:
    """Every parameter, drawn: matrices and embeddings of size d^-1/2, gammas of either sign."""
    shapes: dict[str, tuple[int, ...]] = {"src_embedding.weight": (src, d)}
    shapes["tgt_embedding.weight"] = (tgt, d)
    for side, attentions in (("encoder", ["attention"]), ("decoder", ["self_attention", "cross_attention"])):
        for i in range(N):
            block = f"{side}.{i}"
            for name in (f"{attention}.W_{x}" for attention in attentions for x in "qkvo"):
                shapes |= {f"{block}.{name}.weight": (d, d), f"{block}.{name}.bias": (d,)}
            for layer, rows, columns in (("W_1", d_ff, d), ("W_2", d, d_ff)):
                name = f"{block}.feed_forward.{layer}"
                shapes |= {f"{name}.weight": (rows, columns), f"{name}.bias": (rows,)}
            for k in range(1, len(attentions) + 2):
                shapes |= {f"{block}.norm{k}.weight": (d,), f"{block}.norm{k}.bias": (d,)}
        if norm == "pre":
            shapes |= {f"{side}_norm.weight": (d,), f"{side}_norm.bias": (d,)}
    numbers = rng.standard_normal(sum(math.prod(shape) for shape in shapes.values()))
    made, at = {}, 0
    for name, shape in shapes.items():
        part = numbers[at : at + math.prod(shape)].reshape(shape)
        at += part.size
        made[name] = part * (1.0 if "norm" in name and "weight" in name else _size(name, shape))
    return {name: value.astype(np.float32).astype(np.float64) for name, value in made.items()}


def _size(name: str, shape: tuple[int, ...]) -> float:
    return shape[-1] ** -0.5 if "weight" in name else 0.4


def arrays(weights: Weights, dtype: str = "float32") -> dict[str, Array]:
    """The weights as they go over the wire."""
    return {name: tensor(value, dtype) for name, value in weights.items()}


@dataclass(frozen=True)
class Model:
    """Weights and what they do not say; `dropped` as if every dropout were 1; `fed` gets what each network is fed."""

    w: Weights
    h: int
    pad_id: int
    norm: str = "post"
    dropped: bool = False
    fed: dict[str, np.ndarray] = field(default_factory=dict)

    def __call__(self, src: np.ndarray, tgt: np.ndarray) -> np.ndarray:
        """Logits (B, n, V)."""
        return self.decode(tgt, self.encode(src), src)

    def encode(self, src: np.ndarray) -> np.ndarray:
        """Memory (B, m, d)."""
        x = self.embedded("src_embedding.weight", src)
        for i in range(self._depth):
            x = self._block(f"encoder.{i}", x, [("attention", None, self._real(src))])
        return self._normed("encoder_norm", x) if self.norm == "pre" else x

    def decode(self, tgt: np.ndarray, memory: np.ndarray, src: np.ndarray, *, last_norm: bool = True) -> np.ndarray:
        """Logits (B, n, V). A pad at position i sees itself, so that no row is empty."""
        x, n = self.embedded("tgt_embedding.weight", tgt), tgt.shape[1]
        seen = np.tri(n, dtype=bool) & self._real(tgt) | np.eye(n, dtype=bool)  # (B, 1, n, n)
        for i in range(self._depth):
            attentions = [("self_attention", None, seen), ("cross_attention", memory, self._real(src))]
            x = self._block(f"decoder.{i}", x, attentions)
        x = self._normed("decoder_norm", x) if self.norm == "pre" and last_norm else x
        return x @ self.w["tgt_embedding.weight"].T

    def _real(self, ids: np.ndarray) -> np.ndarray:
        return (ids != self.pad_id)[:, None, None, :]

    @cached_property
    def _depth(self) -> int:
        return sum(name.startswith("encoder.") and name.endswith("norm1.bias") for name in self.w)

    def embedded(self, name: str, ids: np.ndarray) -> np.ndarray:
        d = self.w[name].shape[1]
        angle = np.arange(ids.shape[1])[:, None] / 10000.0 ** (np.arange(0, d, 2) / d)
        positions = np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(ids.shape[1], d)
        return (self.w[name][ids] * math.sqrt(d) + positions) * (not self.dropped)

    def _block(self, name: str, x: np.ndarray, attentions: list[tuple[str, Any, np.ndarray]]) -> np.ndarray:
        for k, (part, memory, allowed) in enumerate(attentions, 1):
            x = self._residual(f"{name}.norm{k}", x, partial(self._attend, f"{name}.{part}", memory, allowed))
        return self._residual(f"{name}.norm{len(attentions) + 1}", x, partial(self._feed, f"{name}.feed_forward"))

    def _residual(self, norm: str, x: np.ndarray, sublayer: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        if self.norm == "pre":
            return x if self.dropped else x + sublayer(self._normed(norm, x))
        return self._normed(norm, x if self.dropped else x + sublayer(x))

    def _normed(self, name: str, x: np.ndarray) -> np.ndarray:
        d = x.shape[-1]  # sums over d, for np.mean takes three times as long
        centred = x - x.sum(-1, keepdims=True) / d
        scaled = centred / np.sqrt((centred * centred).sum(-1, keepdims=True) / d + 1e-5)
        return scaled * self.w[f"{name}.weight"] + self.w[f"{name}.bias"]

    def _feed(self, name: str, x: np.ndarray) -> np.ndarray:
        self.fed[name] = x
        return self._linear(f"{name}.W_2", np.maximum(self._linear(f"{name}.W_1", x), 0))

    def _linear(self, name: str, x: np.ndarray) -> np.ndarray:
        return x @ self.w[f"{name}.weight"].T + self.w[f"{name}.bias"]

    def _attend(self, name: str, memory: Any, allowed: np.ndarray, x: np.ndarray) -> np.ndarray:
        y = x if memory is None else memory
        Q, K, V = (
            self._linear(f"{name}.W_{part}", of).reshape(*of.shape[:2], self.h, -1).swapaxes(1, 2)
            for part, of in (("q", x), ("k", y), ("v", y))
        )  # (B, h, n, d_k), (B, h, m, d_k) twice
        scores = np.where(allowed, Q @ K.swapaxes(2, 3) / math.sqrt(Q.shape[-1]), -np.inf)  # (B, h, n, m)
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        heads = powers / powers.sum(-1, keepdims=True) @ V  # (B, h, n, d_k)
        return self._linear(f"{name}.W_o", heads.swapaxes(1, 2).reshape(x.shape))
