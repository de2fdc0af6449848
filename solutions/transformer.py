"""The encoder-decoder Transformer of the course in one file: the reference that chapters 6 to 8 hand out in parts.

Batch first; shapes are (B, h, n, d_k): batch, heads, positions, features. Masks: True = may attend.
Vaswani et al. 2017, "Attention Is All You Need"; pre-LN as in Xiong et al. 2020.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn


class MultiHeadAttention(nn.Module):
    """h heads side by side. forward returns (output, weights); weights are None unless need_weights is set."""

    def __init__(self, d_model, h, bias=True):
        super().__init__()
        if h < 1 or d_model % h:
            raise ValueError(f"h = {h} heads do not divide d_model = {d_model}")
        self.h, self.d_k = h, d_model // h
        self.W_q, self.W_k, self.W_v, self.W_o = (nn.Linear(d_model, d_model, bias=bias) for _ in range(4))

    def split(self, x):
        return x.unflatten(-1, (self.h, self.d_k)).transpose(1, 2)     # (B, n, d_model) -> (B, h, n, d_k)

    def keys_and_values(self, query, key, value, cache):
        """K and V, (B, h, m, d_k). A cache grows by one call's positions in self-attention, is filled once in cross."""
        of = "self" if key is None or key is query else "cross"
        if cache is not None and of == "cross" and of in cache:
            return cache[of]
        key = query if key is None else key
        K, V = self.split(self.W_k(key)), self.split(self.W_v(key if value is None else value))
        if cache is not None:
            if of in cache:
                K, V = (torch.cat([old, new], dim=2) for old, new in zip(cache[of], (K, V)))
            cache[of] = K, V
        return K, V

    def forward(self, query, key=None, value=None, mask=None, *, cache=None, need_weights=False):
        """query (B, n, d_model), key and value (B, m, d_model); mask (n, m), (B, n, m) or (B, 1 or h, 1 or n, m)."""
        Q = self.split(self.W_q(query))                                # (B, h, n, d_k)
        K, V = self.keys_and_values(query, key, value, cache)          # (B, h, m, d_k)
        if mask is not None:
            mask = mask.bool().unsqueeze(1) if mask.dim() == 3 else mask.bool()
        weights = None
        if need_weights:
            scores = Q @ K.transpose(-2, -1) / math.sqrt(self.d_k)     # (B, h, n, m)
            weights = (scores if mask is None else scores.masked_fill(~mask, -torch.inf)).softmax(dim=-1)
        heads = F.scaled_dot_product_attention(Q, K, V, attn_mask=mask)                # (B, h, n, d_k)
        return self.W_o(heads.transpose(1, 2).flatten(2)), weights     # (B, n, d_model)


class FeedForward(nn.Module):
    """max(0, x W_1 + b_1) W_2 + b_2 on each position alone."""

    def __init__(self, d_model, d_ff, activation=F.relu):
        super().__init__()
        self.W_1, self.W_2, self.activation = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model), activation

    def forward(self, x):
        return self.W_2(self.activation(self.W_1(x)))                  # (B, n, d_model)


def check_norm(norm):
    if norm not in ("post", "pre"):
        raise ValueError(f'norm is "post" or "pre", not {norm!r}')


class EncoderBlock(nn.Module):
    """Self-attention, then the feed-forward network, each with a residual connection and a norm."""

    def __init__(self, d_model, h, d_ff, dropout=0.1, norm="post"):
        super().__init__()
        check_norm(norm)
        self.attention, self.feed_forward = MultiHeadAttention(d_model, h), FeedForward(d_model, d_ff)
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.dropout, self.pre = nn.Dropout(dropout), norm == "pre"

    def forward(self, x, mask=None):
        if self.pre:
            x = x + self.dropout(self.attention(self.norm1(x), mask=mask)[0])
            return x + self.dropout(self.feed_forward(self.norm2(x)))  # (B, n, d_model)
        x = self.norm1(x + self.dropout(self.attention(x, mask=mask)[0]))
        return self.norm2(x + self.dropout(self.feed_forward(x)))      # (B, n, d_model)


class DecoderBlock(nn.Module):
    """Self-attention, cross-attention to the encoder's output, feed-forward network; None means no mask."""

    def __init__(self, d_model, h, d_ff, dropout=0.1, norm="post"):
        super().__init__()
        check_norm(norm)
        self.self_attention, self.cross_attention = MultiHeadAttention(d_model, h), MultiHeadAttention(d_model, h)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(d_model) for _ in range(3))
        self.dropout, self.pre = nn.Dropout(dropout), norm == "pre"

    def residual(self, x, norm, sublayer):
        if self.pre:
            return x + self.dropout(sublayer(norm(x)))
        return norm(x + self.dropout(sublayer(x)))

    def forward(self, x, memory, self_mask=None, cross_mask=None, *, cache=None):
        """x (B, n, d_model), memory (B, m, d_model); cache: a dict of this block's own, or None."""
        x = self.residual(x, self.norm1, lambda y: self.self_attention(y, mask=self_mask, cache=cache)[0])
        x = self.residual(x, self.norm2, lambda y: self.cross_attention(y, memory, mask=cross_mask, cache=cache)[0])
        return self.residual(x, self.norm3, self.feed_forward)         # (B, n, d_model)


def causal_mask(n, m=None, device=None):
    """(n, m) True where query i may see key j; with m > n the queries are the last n of m positions."""
    m = n if m is None else m
    if m < n:
        raise ValueError(f"{n} queries cannot be the last of {m} positions")
    return torch.ones(n, m, dtype=torch.bool, device=device).tril(m - n)


def padding_mask(ids, pad_id):
    """(B, 1, 1, n) True where the key is no padding."""
    return (ids != pad_id)[:, None, None, :]


class PositionalEncoding(nn.Module):
    """Adds the sinusoidal table to x (B, n, d_model); offset is the position of its first row."""

    def __init__(self, d_model, max_len=5000, dropout=0.0, base=10000.0):
        super().__init__()
        if d_model % 2:
            raise ValueError(f"d_model = {d_model} is odd: sines and cosines come in pairs")
        position = torch.arange(max_len, dtype=torch.float64)[:, None]                           # (max_len, 1)
        angle = position / base ** (torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)  # (max_len, d/2)
        table = torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)                       # (max_len, d_model)
        self.register_buffer("table", table.to(torch.get_default_dtype()), persistent=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, offset=0):
        if offset + x.shape[1] > len(self.table):
            raise ValueError(f"positions up to {offset + x.shape[1]} are asked for; the table ends at {len(self.table)}")
        return self.dropout(x + self.table[offset:offset + x.shape[1]])                          # (B, n, d_model)
