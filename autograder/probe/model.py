"""A small encoder-decoder from given weights, with the attributes and `cache=` of the one that the course hands out.

For exercises that take a whole model. What it is made of is `nn.Linear`, `nn.LayerNorm` and embeddings under the
course's names, so that a step can be watched wherever an answer may go.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Weights = dict[str, Tensor]


def _within(weights: Weights, prefix: str) -> Weights:
    """The weights of one part, by their names within it."""
    return {name[len(prefix) + 1 :]: value for name, value in weights.items() if name.startswith(f"{prefix}.")}


class _Linear(nn.Linear):
    """A linear layer that is filled at once: drawing numbers first, as nn.Linear does, would cost the most here."""

    def __init__(self, weights: Weights, prefix: str):
        nn.Module.__init__(self)
        self.weight, bias = nn.Parameter(weights[f"{prefix}.weight"]), weights.get(f"{prefix}.bias")
        self.bias = None if bias is None else nn.Parameter(bias)  # type: ignore[assignment]
        self.out_features, self.in_features = self.weight.shape


def _norm(weights: Weights, prefix: str) -> nn.LayerNorm:
    made = nn.LayerNorm(len(weights[f"{prefix}.weight"]), elementwise_affine=False)
    made.weight, made.bias = (nn.Parameter(weights[f"{prefix}.{name}"]) for name in ("weight", "bias"))
    return made


class _Attention(nn.Module):
    W_q: nn.Linear
    W_k: nn.Linear
    W_v: nn.Linear
    W_o: nn.Linear

    def __init__(self, weights: Weights, h: int):
        super().__init__()
        self.h, self.d_k = h, len(weights["W_q.weight"]) // h
        for name in ("W_q", "W_k", "W_v", "W_o"):
            setattr(self, name, _Linear(weights, name))

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.h, self.d_k)).transpose(1, 2)  # (B, h, n, d_k)

    def forward(self, query: Tensor, key: Any = None, value: Any = None, mask: Any = None, *, cache: Any = None) -> Any:
        of = "self" if key is None or key is query else "cross"
        key = query if key is None else key
        if cache is not None and of == "cross" and of in cache:
            K, V = cache[of]
        else:
            K, V = self.split(self.W_k(key)), self.split(self.W_v(key if value is None else value))
            if cache is not None and of in cache:
                K, V = (torch.cat(both, dim=2) for both in zip(cache[of], (K, V)))
            if cache is not None:
                cache[of] = K, V
        if mask is not None:
            mask = mask.bool()[:, None] if mask.dim() == 3 else mask.bool()
        heads = F.scaled_dot_product_attention(self.split(self.W_q(query)), K, V, attn_mask=mask)  # (B, h, n, d_k)
        return self.W_o(heads.transpose(1, 2).flatten(2)), None


class _FeedForward(nn.Module):
    def __init__(self, weights: Weights):
        super().__init__()
        self.W_1, self.W_2 = _Linear(weights, "W_1"), _Linear(weights, "W_2")

    def forward(self, x: Tensor) -> Tensor:
        return self.W_2(F.relu(self.W_1(x)))


class _Block(nn.Module):
    """What both kinds of block have: the attentions that the weights name, feed-forward network, norms, dropout."""

    attention: _Attention
    self_attention: _Attention
    cross_attention: _Attention
    norm1: nn.LayerNorm
    norm2: nn.LayerNorm
    norm3: nn.LayerNorm

    def __init__(self, weights: Weights, h: int, norm: str, dropout: float):
        super().__init__()
        known = ("attention", "self_attention", "cross_attention")
        attentions = [name for name in known if f"{name}.W_q.weight" in weights]
        for name in attentions:
            setattr(self, name, _Attention(_within(weights, name), h))
        self.feed_forward = _FeedForward(_within(weights, "feed_forward"))
        for i in range(len(attentions) + 1):
            setattr(self, f"norm{i + 1}", _norm(weights, f"norm{i + 1}"))
        self.dropout, self.pre = nn.Dropout(dropout), norm == "pre"

    def residual(self, x: Tensor, norm: nn.Module, sublayer: Any) -> Tensor:
        if self.pre:
            return x + self.dropout(sublayer(norm(x)))
        return norm(x + self.dropout(sublayer(x)))


class _EncoderBlock(_Block):
    def forward(self, x: Tensor, mask: Any = None) -> Tensor:
        x = self.residual(x, self.norm1, lambda y: self.attention(y, mask=mask)[0])
        return self.residual(x, self.norm2, self.feed_forward)


class _DecoderBlock(_Block):
    def forward(
        self, x: Tensor, memory: Tensor, self_mask: Any = None, cross_mask: Any = None, *, cache: Any = None
    ) -> Tensor:
        x = self.residual(x, self.norm1, lambda y: self.self_attention(y, mask=self_mask, cache=cache)[0])
        x = self.residual(x, self.norm2, lambda y: self.cross_attention(y, memory, mask=cross_mask, cache=cache)[0])
        return self.residual(x, self.norm3, self.feed_forward)


class _Position(nn.Module):
    def __init__(self, d_model: int, max_len: int, dropout: float):
        super().__init__()
        angle = torch.arange(max_len).double()[:, None] / 10000.0 ** (torch.arange(0, d_model, 2).double() / d_model)
        table = torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)
        self.register_buffer("table", table.float(), persistent=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        if offset + x.shape[1] > len(self.table):  # type: ignore[arg-type]
            raise ValueError(f"positions up to {offset + x.shape[1]} are asked for; the table ends before that")
        return self.dropout(x + self.table[offset : offset + x.shape[1]])  # type: ignore[index]


class EncoderDecoder(nn.Module):
    """The course's model with these weights, by their names in it; `log` has every call of encode and decode."""

    def __init__(self, weights: Weights, *, h: int, pad_id: int, norm: str, dropout: float = 0.0, max_len: int = 64):
        super().__init__()
        self.src_embedding, self.tgt_embedding = (
            nn.Embedding.from_pretrained(weights[f"{side}_embedding.weight"], freeze=False) for side in ("src", "tgt")
        )
        self.pad_id, self.d_model = pad_id, self.src_embedding.embedding_dim
        self.position = _Position(self.d_model, max_len, dropout)
        depth = 1 + max(int(name.split(".")[1]) for name in weights if name.startswith("encoder."))
        self.encoder, self.decoder = (
            nn.ModuleList(kind(_within(weights, f"{side}.{i}"), h, norm, dropout) for i in range(depth))
            for side, kind in (("encoder", _EncoderBlock), ("decoder", _DecoderBlock))
        )
        self.encoder_norm, self.decoder_norm = (
            _norm(weights, f"{side}_norm") if norm == "pre" else None for side in ("encoder", "decoder")
        )
        self.output = _Linear(weights, "tgt_embedding")
        self.output.weight = self.tgt_embedding.weight
        self.log: list[str] = []

    def embed(self, embedding: nn.Module, ids: Tensor) -> Tensor:
        return self.position(embedding(ids) * math.sqrt(self.d_model))

    def encode(self, src: Tensor) -> Tensor:
        self.log.append("encode")
        x, mask = self.embed(self.src_embedding, src), (src != self.pad_id)[:, None, None, :]
        for block in self.encoder:
            x = block(x, mask)
        return x if self.encoder_norm is None else self.encoder_norm(x)

    def decode(self, tgt: Tensor, memory: Tensor, src: Tensor) -> Tensor:
        self.log.append("decode")
        n = tgt.shape[1]
        causal = torch.ones(n, n, dtype=torch.bool, device=tgt.device).tril()
        self_mask, cross_mask = causal & (tgt != self.pad_id)[:, None, None, :], (src != self.pad_id)[:, None, None, :]
        x = self.embed(self.tgt_embedding, tgt)
        for block in self.decoder:
            x = block(x, memory, self_mask, cross_mask)
        return self.output(x if self.decoder_norm is None else self.decoder_norm(x))

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        return self.decode(tgt, self.encode(src), src)
