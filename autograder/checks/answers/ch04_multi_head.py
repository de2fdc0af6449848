"""Chapter 4: right answers that look different, and the mistakes learners make."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from autograder.checks.catalogue import changed, right, wrong

# ---- split_heads ------------------------------------------------------------------------------------------------------


@wrong(
    "view without a transpose",
    "you cut the memory into (B, h, n, d_k) directly, so a head gets all features of a few tokens; cut the "
    "last axis first, then swap two axes",
)
def split_heads(x, h):
    if h < 1 or x.shape[-1] % h != 0:
        raise ValueError(f"h = {h} does not divide d_model = {x.shape[-1]}")
    B, n, d_model = x.shape
    return x.reshape(B, h, n, d_model // h)


@wrong(
    "not transposed",
    "the last axis is cut, but the heads still stand behind the positions: (B, n, h, d_k); the heads come "
    "second",
)
def split_heads(x, h):
    if h < 1 or x.shape[-1] % h != 0:
        raise ValueError(f"h = {h} does not divide d_model = {x.shape[-1]}")
    B, n, d_model = x.shape
    return x.reshape(B, n, h, d_model // h)


@wrong("interleaved features", "head i should get d_k neighbouring features; yours gets every h-th feature")
def split_heads(x, h):
    if h < 1 or x.shape[-1] % h != 0:
        raise ValueError(f"h = {h} does not divide d_model = {x.shape[-1]}")
    B, n, d_model = x.shape
    return x.reshape(B, n, d_model // h, h).permute(0, 3, 1, 2)


@wrong("heads before the batch", "the result is (h, B, n, d_k); the batch comes first, then the heads")
def split_heads(x, h):
    if h < 1 or x.shape[-1] % h != 0:
        raise ValueError(f"h = {h} does not divide d_model = {x.shape[-1]}")
    B, n, d_model = x.shape
    return x.reshape(B, n, h, d_model // h).permute(2, 0, 1, 3)


@wrong("positions last", "each head comes out as (d_k, n); positions come before features")
def split_heads(x, h):
    if h < 1 or x.shape[-1] % h != 0:
        raise ValueError(f"h = {h} does not divide d_model = {x.shape[-1]}")
    B, n, d_model = x.shape
    return x.reshape(B, n, h, d_model // h).permute(0, 2, 3, 1)


@wrong("h and d_k swapped", "you made d_k heads of h features; h is the number of heads")
def split_heads(x, h):
    if h < 1 or x.shape[-1] % h != 0:
        raise ValueError(f"h = {h} does not divide d_model = {x.shape[-1]}")
    B, n, d_model = x.shape
    return x.reshape(B, n, d_model // h, h).transpose(1, 2)


@wrong("batch and positions mixed", "the first two axes were taken as (n, B): tokens of different sequences are mixed")
def split_heads(x, h):
    if h < 1 or x.shape[-1] % h != 0:
        raise ValueError(f"h = {h} does not divide d_model = {x.shape[-1]}")
    B, n, d_model = x.shape
    return x.reshape(n, B, h, d_model // h).permute(1, 2, 0, 3)


@wrong("tokens shared out", "each head got some of the tokens; every head sees all tokens, and some of their features")
def split_heads(x, h):
    if h < 1 or x.shape[-1] % h != 0:
        raise ValueError(f"h = {h} does not divide d_model = {x.shape[-1]}")
    B, n, d_model = x.shape
    return torch.stack([x[:, i::h] for i in range(h)], dim=1)


@wrong("a copy for every head", "every head got all d_model features; each gets its own d_model / h of them")
def split_heads(x, h):
    if h < 1 or x.shape[-1] % h != 0:
        raise ValueError(f"h = {h} does not divide d_model = {x.shape[-1]}")
    B, n, d_model = x.shape
    return torch.stack([x] * h, dim=1)


@wrong("heads reversed", "the heads come in the reverse order: head 0 holds the first d_k features")
def split_heads(x, h):
    if h < 1 or x.shape[-1] % h != 0:
        raise ValueError(f"h = {h} does not divide d_model = {x.shape[-1]}")
    B, n, d_model = x.shape
    return torch.stack(x.split(d_model // h, dim=-1)[::-1], dim=1)


@wrong(
    "leftover features dropped",
    "h does not divide d_model, and you dropped the features that were left over: raise a ValueError instead",
)
def split_heads(x, h):
    if h < 1:
        raise ValueError("h must be at least 1")
    d_k = x.shape[-1] // h
    return torch.stack([x[..., i * d_k : (i + 1) * d_k] for i in range(h)], dim=1)


@wrong(
    "no check",
    "for an h that does not divide d_model some other error appeared: check it first and raise a ValueError "
    "that says so",
)
def split_heads(x, h):
    B, n, d_model = x.shape
    return x.reshape(B, n, h, d_model // h).transpose(1, 2)


@wrong(
    "h below 1 not refused",
    "h = 0 or a negative h is not refused with a ValueError: d_model % h alone does not catch them",
)
def split_heads(x, h):
    B, n, d_model = x.shape
    if d_model % h != 0:
        raise ValueError("h does not divide d_model")
    return x.reshape(B, n, h, d_model // h).transpose(1, 2)


@wrong("assert", "you check with an assert; the exercise asks for a ValueError (asserts vanish under python -O)")
def split_heads(x, h):
    B, n, d_model = x.shape
    assert h >= 1 and d_model % h == 0
    return x.reshape(B, n, h, d_model // h).transpose(1, 2)


@wrong("h has to be smaller", "h = d_model is allowed: then each head has one feature")
def split_heads(x, h):
    B, n, d_model = x.shape
    if h < 1 or h >= d_model or d_model % h != 0:
        raise ValueError("h does not divide d_model")
    return x.reshape(B, n, h, d_model // h).transpose(1, 2)


@wrong("detached", "the result carries no gradient: NumPy, .detach() and .data cut the graph")
def split_heads(x, h):
    if h < 1 or x.shape[-1] % h != 0:
        raise ValueError(f"h = {h} does not divide d_model = {x.shape[-1]}")
    B, n, d_model = x.shape
    return x.detach().reshape(B, n, h, d_model // h).transpose(1, 2)


@wrong("float32 hard-coded", "the result should keep the dtype of x; you convert to float32")
def split_heads(x, h):
    if h < 1 or x.shape[-1] % h != 0:
        raise ValueError(f"h = {h} does not divide d_model = {x.shape[-1]}")
    B, n, d_model = x.shape
    return x.float().reshape(B, n, h, d_model // h).transpose(1, 2)


@right("view and transpose")
def split_heads(x, h):
    if h < 1 or x.shape[-1] % h != 0:
        raise ValueError(f"h = {h} does not divide d_model = {x.shape[-1]}")
    B, n, d_model = x.shape
    return x.view(B, n, h, d_model // h).transpose(1, 2)


@right("reshape and permute")
def split_heads(x, h):
    if h < 1 or x.shape[-1] % h != 0:
        raise ValueError(f"h = {h} does not divide d_model = {x.shape[-1]}")
    B, n, d_model = x.shape
    return x.reshape(B, n, h, -1).permute(0, 2, 1, 3)


@right("slices stacked")
def split_heads(x, h):
    if h < 1 or x.shape[-1] % h != 0:
        raise ValueError(f"h = {h} does not divide d_model = {x.shape[-1]}")
    B, n, d_model = x.shape
    d_k = d_model // h
    return torch.stack([x[:, :, i * d_k : (i + 1) * d_k] for i in range(h)], dim=1)


@right("unflatten")
def split_heads(x, h):
    if h < 1 or x.size(-1) % h:
        raise ValueError("h must divide d_model")
    return x.unflatten(-1, (h, x.size(-1) // h)).movedim(2, 1)


@right("chunk")
def split_heads(x, h):
    if h <= 0 or divmod(x.shape[2], h)[1] > 0:
        raise ValueError(h)
    return torch.cat([head.unsqueeze(1) for head in x.chunk(h, dim=2)], dim=1)


@right("unfold")
def split_heads(x, h):
    if h < 1 or x.shape[-1] % h != 0:
        raise ValueError(f"h = {h} does not divide d_model = {x.shape[-1]}")
    B, n, d_model = x.shape
    d_k = d_model // h
    return x.unfold(-1, d_k, d_k).transpose(1, 2).contiguous()


@right("loop")
def split_heads(x, h):
    if h < 1 or x.shape[-1] % h != 0:
        raise ValueError(f"h = {h} does not divide d_model = {x.shape[-1]}")
    B, n, d_model = x.shape
    d_k = d_model // h
    heads = x.new_zeros(B, h, n, d_k)
    for feature in range(d_model):
        heads[:, feature // d_k, :, feature % d_k] = x[:, :, feature]
    return heads


@right("einsum with a selector")
def split_heads(x, h):
    if h < 1 or x.shape[-1] % h != 0:
        raise ValueError(f"h = {h} does not divide d_model = {x.shape[-1]}")
    B, n, d_model = x.shape
    selector = torch.eye(d_model, dtype=x.dtype).view(h, d_model // h, d_model)
    return torch.einsum("bnd,hkd->bhnk", x, selector)


# ---- merge_heads ------------------------------------------------------------------------------------------------------


@wrong(
    "not transposed back",
    "the axes were joined as they lie, so a token gets numbers of other tokens: bring the heads beside their "
    "features first",
)
def merge_heads(x):
    B, h, n, d_v = x.shape
    return x.reshape(B, n, h * d_v)


@wrong("heads summed", "the heads were added up; they are put side by side, h * d_v features for each token")
def merge_heads(x):
    B, h, n, d_v = x.shape
    return x.sum(dim=1)


@wrong("heads averaged", "the heads were averaged; they are put side by side, h * d_v features for each token")
def merge_heads(x):
    B, h, n, d_v = x.shape
    return x.mean(dim=1)


@wrong("interleaved features", "the features of the heads alternate; each head's d_v features should stay together")
def merge_heads(x):
    B, h, n, d_v = x.shape
    return x.permute(0, 2, 3, 1).reshape(B, n, d_v * h)


@wrong(
    "joined along the positions",
    "the heads were joined along the positions; they go side by side along the features",
)
def merge_heads(x):
    B, h, n, d_v = x.shape
    return x.reshape(B, h * n, d_v)


@wrong(
    "view on a non-contiguous tensor",
    "view needs its numbers in a row in memory, and after transpose they are not: use reshape, flatten or "
    "contiguous() first",
)
def merge_heads(x):
    B, h, n, d_v = x.shape
    return x.transpose(1, 2).view(B, n, h * d_v)


@wrong(
    "view on the input",
    "your view fails when the caller's tensor does not lie in a row in memory: use reshape or flatten",
)
def merge_heads(x):
    B, h, n, d_v = x.shape
    return x.view(B, h, n * d_v).view(B, h, n, d_v).transpose(1, 2).reshape(B, n, h * d_v)


@wrong("heads reversed", "the heads are joined in the reverse order: head 0 comes first")
def merge_heads(x):
    B, h, n, d_v = x.shape
    return torch.cat(x.unbind(1)[::-1], dim=-1)


@wrong("first head only", "only the first head is left; all h of them go side by side")
def merge_heads(x):
    B, h, n, d_v = x.shape
    return x[:, 0]


@wrong("features before positions", "the result is (B, h * d_v, n); positions come before features")
def merge_heads(x):
    B, h, n, d_v = x.shape
    return x.transpose(2, 3).reshape(B, h * d_v, n)


@wrong("reversed axes", "all axes were reversed; only heads and positions change places")
def merge_heads(x):
    B, h, n, d_v = x.shape
    return x.permute(3, 2, 1, 0).reshape(B, n, h * d_v)


@wrong("batch and positions mixed", "tokens of different sequences are mixed: the batch axis stays where it is")
def merge_heads(x):
    B, h, n, d_v = x.shape
    return x.permute(2, 0, 1, 3).reshape(B, n, h * d_v)


@wrong("last two axes swapped", "positions and features changed places; heads and positions should")
def merge_heads(x):
    B, h, n, d_v = x.shape
    return x.transpose(2, 3).reshape(B, n, h * d_v)


@wrong("detached", "the result carries no gradient: NumPy, .detach() and .data cut the graph")
def merge_heads(x):
    B, h, n, d_v = x.shape
    return x.detach().transpose(1, 2).reshape(B, n, h * d_v)


@wrong("float32 hard-coded", "the result should keep the dtype of x; you convert to float32")
def merge_heads(x):
    B, h, n, d_v = x.shape
    return x.float().transpose(1, 2).reshape(B, n, h * d_v)


@right("transpose and reshape")
def merge_heads(x):
    B, h, n, d_v = x.shape
    return x.transpose(1, 2).reshape(B, n, h * d_v)


@right("permute and flatten")
def merge_heads(x):
    return x.permute(0, 2, 1, 3).flatten(start_dim=2)


@right("contiguous and view")
def merge_heads(x):
    B, h, n, d_v = x.shape
    return x.transpose(1, 2).contiguous().view(B, n, -1)


@right("cat of the heads")
def merge_heads(x):
    return torch.cat([x[:, i] for i in range(x.shape[1])], dim=-1)


@right("unbind and hstack")
def merge_heads(x):
    return torch.concatenate(x.unbind(dim=1), dim=2)


@right("loop")
def merge_heads(x):
    B, h, n, d_v = x.shape
    joined = torch.zeros(B, n, h * d_v, dtype=x.dtype)
    for i in range(h):
        joined[:, :, i * d_v : (i + 1) * d_v] = x[:, i]
    return joined


@right("index arithmetic")
def merge_heads(x):
    B, h, n, d_v = x.shape
    feature = torch.arange(h * d_v)
    return x[:, feature // d_v, :, feature % d_v].permute(1, 2, 0)


@right("einsum, then reshape")
def merge_heads(x):
    return torch.einsum("bhnd->bnhd", x).reshape(x.size(0), x.size(2), -1)


# ---- MultiHeadAttention -----------------------------------------------------------------------------------------------


@right("split, attend, merge")
class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, h, bias=True):
        super().__init__()
        if d_model % h != 0:
            raise ValueError("h must divide d_model")
        self.h, self.d_k = h, d_model // h
        self.W_q = nn.Linear(d_model, d_model, bias=bias)
        self.W_k = nn.Linear(d_model, d_model, bias=bias)
        self.W_v = nn.Linear(d_model, d_model, bias=bias)
        self.W_o = nn.Linear(d_model, d_model, bias=bias)

    def split(self, x):
        return x.reshape(*x.shape[:2], self.h, self.d_k).transpose(1, 2)

    def forward(self, query, key=None, value=None, mask=None):
        key = query if key is None else key
        value = key if value is None else value
        Q, K, V = self.split(self.W_q(query)), self.split(self.W_k(key)), self.split(self.W_v(value))
        scores = Q @ K.transpose(-2, -1) / math.sqrt(self.d_k)
        if mask is not None:
            mask = mask.unsqueeze(1) if mask.dim() == 3 else mask
            scores = scores.masked_fill(mask == 0, float("-inf"))
        weights = scores.softmax(-1)
        heads = weights @ V
        return self.W_o(heads.transpose(1, 2).flatten(2)), weights


# The wrong answers below are this one with a line or two changed, so that only the mistake meets the eye.
_MHA = MultiHeadAttention
LAYERS = "".join(f"        self.W_{name} = nn.Linear(d_model, d_model, bias=bias)\n" for name in "qkvo")
CHECK = '        if d_model % h != 0:\n            raise ValueError("h must divide d_model")\n'
CUT = "x.reshape(*x.shape[:2], self.h, self.d_k).transpose(1, 2)"
DEFAULTS = "        key = query if key is None else key\n        value = key if value is None else value\n"
PROJECT = "        Q, K, V = self.split(self.W_q(query)), self.split(self.W_k(key)), self.split(self.W_v(value))\n"
HEAD_AXIS = "            mask = mask.unsqueeze(1) if mask.dim() == 3 else mask\n"
FILL = '            scores = scores.masked_fill(mask == 0, float("-inf"))\n'
MASK = "        if mask is not None:\n" + HEAD_AXIS + FILL
SOFTMAX = "        weights = scores.softmax(-1)\n"
JOIN = "heads.transpose(1, 2).flatten(2)"
RETURN = "        return self.W_o(heads.transpose(1, 2).flatten(2)), weights\n"

changed(
    _MHA,
    "no scale",
    "the scores are not scaled: divide by the square root of d_k",
    (" / math.sqrt(self.d_k)", ""),
)

changed(
    _MHA,
    "divided by d_k",
    "the scores are divided by d_k; divide by its square root",
    ("math.sqrt(self.d_k)", "self.d_k"),
)

changed(
    _MHA,
    "sqrt of d_model",
    "you divided by the root of d_model; a head's dot product has only d_k = d_model / h terms",
    ("math.sqrt(self.d_k)", "math.sqrt(self.h * self.d_k)"),
)

changed(
    _MHA,
    "multiplied by sqrt(d_k)",
    "the scores are multiplied by sqrt(d_k); divide",
    (" / math.sqrt(self.d_k)", " * math.sqrt(self.d_k)"),
)

changed(
    _MHA,
    "sqrt of the number of keys",
    "you divided by the root of the number of keys; d_k is the number of features of one head's key",
    ("math.sqrt(self.d_k)", "math.sqrt(K.shape[-2])"),
)

changed(
    _MHA,
    "softmax over queries",
    "the softmax runs over the queries; it belongs on the last axis, the keys",
    ("softmax(-1)", "softmax(-2)"),
)

changed(
    _MHA,
    "softmax over heads",
    "the softmax runs over axis 1, the heads; it belongs on the last axis, the keys",
    ("softmax(-1)", "softmax(1)"),
)

changed(
    _MHA,
    "K Q^T",
    "the product is the wrong way round: rows are queries and columns keys, so it is Q K^T",
    ("Q @ K.transpose(-2, -1)", "K @ Q.transpose(-2, -1)"),
)

changed(
    _MHA,
    "transposed weights",
    "the values are weighted by the transposed weights: row i holds what query i takes from each key",
    ("weights @ V", "weights.transpose(-2, -1) @ V"),
)

changed(
    _MHA,
    "sigmoid",
    "sigmoid looks at each score alone; softmax makes the keys compete, so that a row sums to 1",
    ("scores.softmax(-1)", "scores.sigmoid()"),
)

changed(
    _MHA,
    "view without a transpose",
    "the projections are cut as (B, h, n, d_k) directly, so a head gets all features of a few tokens: cut the "
    "features first, then swap two axes",
    (CUT, "x.reshape(x.shape[0], self.h, x.shape[1], self.d_k)"),
)

changed(
    _MHA,
    "merge without transposing back",
    "the heads were joined without bringing the positions back in front of them: a token gets numbers of other "
    "tokens",
    (JOIN, "heads.reshape(query.shape)"),
)

changed(
    _MHA,
    "both views",
    "split and merge are both plain views: the round trip is exact, but each head sees a stretch of the "
    "sequence and not a part of the features",
    (CUT, "x.reshape(x.shape[0], self.h, x.shape[1], self.d_k)"),
    (JOIN, "heads.reshape(query.shape)"),
)

changed(
    _MHA,
    "interleaved heads",
    "head i should be the i-th block of d_k neighbouring features; yours takes every h-th feature",
    (CUT, "x.reshape(*x.shape[:2], self.d_k, self.h).permute(0, 3, 1, 2)"),
    (JOIN, "heads.permute(0, 2, 3, 1).flatten(2)"),
)

changed(
    _MHA,
    "features of the heads alternate",
    "the heads' outputs alternate feature by feature before W_o; each head's d_k features should stay together",
    (JOIN, "heads.permute(0, 2, 3, 1).flatten(2)"),
)

changed(
    _MHA,
    "one small projection for all heads",
    "your projections are d_k x d_k and shared by all heads; each is nn.Linear(d_model, d_model), so that every "
    "head has its own and sees all features",
    (
        LAYERS,
        (
            "        self.W_q = nn.Linear(self.d_k, self.d_k, bias=bias)\n"
            "        self.W_k = nn.Linear(self.d_k, self.d_k, bias=bias)\n"
            "        self.W_v = nn.Linear(self.d_k, self.d_k, bias=bias)\n"
            "        self.W_o = nn.Linear(d_model, d_model, bias=bias)\n"
        ),
    ),
    (
        PROJECT,
        "        Q, K, V = self.W_q(self.split(query)), self.W_k(self.split(key)), self.W_v(self.split(value))\n",
    ),
)

changed(
    _MHA,
    "split before the projection",
    "each head projects only its own slice of the input: project all d_model features first and split after",
    (
        (
            "    def split(self, x):\n"
            "        return x.reshape(*x.shape[:2], self.h, self.d_k).transpose(1, 2)\n"
        ),
        (
            "    def project(self, layer, x):\n"
            "        parts = [slice(i * self.d_k, (i + 1) * self.d_k) for i in range(self.h)]\n"
            "        biases = [None if layer.bias is None else layer.bias[part] for part in parts]\n"
            "        return torch.stack([F.linear(x[..., p], layer.weight[p, p], b) for p, b in zip(parts, biases)], dim=1)\n"
        ),
    ),
    (
        PROJECT,
        "        Q, K, V = self.project(self.W_q, query), self.project(self.W_k, key), self.project(self.W_v, value)\n",
    ),
)

changed(
    _MHA,
    "full-width heads",
    "each head is as wide as the model; a head has d_model / h features, so that h of them fill one "
    "nn.Linear(d_model, d_model)",
    (
        LAYERS,
        (
            "        self.W_q = nn.Linear(d_model, h * d_model, bias=bias)\n"
            "        self.W_k = nn.Linear(d_model, h * d_model, bias=bias)\n"
            "        self.W_v = nn.Linear(d_model, h * d_model, bias=bias)\n"
            "        self.W_o = nn.Linear(h * d_model, d_model, bias=bias)\n"
        ),
    ),
    ("self.h, self.d_k = h, d_model // h", "self.h, self.d_k = h, d_model"),
)

changed(
    _MHA,
    "W_o missing",
    "the joined heads are returned as they are; W_o mixes them at the end",
    ("self.W_o(heads.transpose(1, 2).flatten(2))", JOIN),
)

changed(
    _MHA,
    "heads summed",
    "the heads are added up before W_o; they are put side by side, so that W_o can tell them apart",
    (
        "        self.W_o = nn.Linear(d_model, d_model, bias=bias)\n",
        "        self.W_o = nn.Linear(self.d_k, d_model, bias=bias)\n",
    ),
    (JOIN, "heads.sum(1)"),
)

changed(
    _MHA,
    "heads averaged",
    "the heads are averaged before W_o; they are put side by side, so that W_o can tell them apart",
    (JOIN, "heads.mean(1).repeat(1, 1, self.h)"),
)

changed(
    _MHA,
    "values through W_k",
    "the values are projected with W_k; they have W_v",
    ("self.W_v(value)", "self.W_k(value)"),
)

changed(
    _MHA,
    "keys through W_q",
    "the keys are projected with W_q; they have W_k",
    ("self.W_k(key)", "self.W_q(key)"),
)

changed(
    _MHA,
    "values not projected",
    "the values are not projected: they go through W_v",
    ("self.split(self.W_v(value))", "self.split(value)"),
)

changed(
    _MHA,
    "residual added",
    "the input is added to the output; the residual connection is built around this layer, in chapter 6, not "
    "inside it",
    (
        "return self.W_o(heads.transpose(1, 2).flatten(2)), weights",
        "return query + self.W_o(heads.transpose(1, 2).flatten(2)), weights",
    ),
)

changed(
    _MHA,
    "weights averaged over heads",
    "the weights are averaged over the heads; return those of every head, (B, h, n, m)",
    ("flatten(2)), weights", "flatten(2)), weights.mean(1)"),
)

changed(
    _MHA,
    "scores returned",
    "you returned the scores as the second result; the weights, after softmax, are asked for",
    ("flatten(2)), weights", "flatten(2)), scores"),
)

changed(
    _MHA,
    "results swapped",
    "you returned (weights, output); the order asked for is (output, weights)",
    (RETURN, "        return weights, self.W_o(heads.transpose(1, 2).flatten(2))\n"),
)

changed(
    _MHA,
    "output only",
    "you returned the output alone; (output, weights) is asked for",
    (RETURN, "        return self.W_o(heads.transpose(1, 2).flatten(2))\n"),
)

changed(
    _MHA,
    "view on a non-contiguous tensor",
    "view needs its numbers in a row in memory, and after transpose they are not: use reshape, flatten or "
    "contiguous() first",
    (JOIN, "heads.transpose(1, 2).view(query.shape)"),
)

changed(
    _MHA,
    "attends across the batch",
    "the first axis was taken for the positions, so tokens attend to other sequences: the batch comes first",
    (
        PROJECT,
        "        query, key, value = query.transpose(0, 1), key.transpose(0, 1), value.transpose(0, 1)\n" + PROJECT,
    ),
    (RETURN, "        return self.W_o(heads.transpose(1, 2).flatten(2)).transpose(0, 1), weights\n"),
)

changed(
    _MHA,
    "causal without being asked",
    "later tokens are hidden although no mask says so: mask=None means that every token may attend to every "
    "token",
    (
        SOFTMAX,
        (
            "        future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)\n"
            '        scores = scores.masked_fill(future, float("-inf"))\n'
        ) + SOFTMAX,
    ),
)

changed(
    _MHA,
    "dropout left on",
    "weights are dropped at random: F.dropout acts unless it is told training=False",
    (SOFTMAX, "        weights = F.dropout(scores.softmax(-1), 0.1)\n"),
)

changed(
    _MHA,
    "detached",
    "no gradient reaches W_q and W_k: the weights were detached before they were used",
    ("weights @ V", "weights.detach() @ V"),
)

changed(
    _MHA,
    "layers created in forward",
    "the four layers are made anew in every call of forward, so nothing can be learned: make them in __init__",
    (LAYERS, "        self.d_model, self.bias = d_model, bias\n"),
    (
        DEFAULTS,
        (
            "        self.W_q = nn.Linear(self.d_model, self.d_model, bias=self.bias)\n"
            "        self.W_k = nn.Linear(self.d_model, self.d_model, bias=self.bias)\n"
            "        self.W_v = nn.Linear(self.d_model, self.d_model, bias=self.bias)\n"
            "        self.W_o = nn.Linear(self.d_model, self.d_model, bias=self.bias)\n"
        ) + DEFAULTS,
    ),
)

changed(
    _MHA,
    "plain list",
    "the layers are in a plain list, which nn.Module does not see; give them the names W_q, W_k, W_v and W_o",
    (LAYERS, "        self.layers = [nn.Linear(d_model, d_model, bias=bias) for _ in range(4)]\n"),
    ("self.W_q(query)", "self.layers[0](query)"),
    ("self.W_k(key)", "self.layers[1](key)"),
    ("self.W_v(value)", "self.layers[2](value)"),
    ("self.W_o(", "self.layers[3]("),
)

changed(
    _MHA,
    "one layer for Q, K and V",
    "W_q, W_k and W_v are fused into one layer under another name; the exercise asks for four layers with these "
    "names",
    (
        LAYERS,
        (
            "        self.W_qkv = nn.Linear(d_model, 3 * d_model, bias=bias)\n"
            "        self.W_o = nn.Linear(d_model, d_model, bias=bias)\n"
        ),
    ),
    (
        PROJECT,
        "        Q, K, V = (self.split(self.W_qkv(x).chunk(3, -1)[i]) for i, x in enumerate((query, key, value)))\n",
    ),
)

changed(
    _MHA,
    "one layer three times",
    "W_q, W_k and W_v are one and the same layer; each needs its own weights",
    (
        (
            "        self.W_k = nn.Linear(d_model, d_model, bias=bias)\n"
            "        self.W_v = nn.Linear(d_model, d_model, bias=bias)\n"
        ),
        "        self.W_k = self.W_v = self.W_q\n",
    ),
)

changed(
    _MHA,
    "bias ignored",
    "bias=False has no effect: pass bias=bias to the four layers",
    (
        LAYERS,
        (
            "        self.W_q = nn.Linear(d_model, d_model)\n"
            "        self.W_k = nn.Linear(d_model, d_model)\n"
            "        self.W_v = nn.Linear(d_model, d_model)\n"
            "        self.W_o = nn.Linear(d_model, d_model)\n"
        ),
    ),
)

changed(
    _MHA,
    "W_o keeps its bias",
    "with bias=False, W_o still has a bias",
    (
        "        self.W_o = nn.Linear(d_model, d_model, bias=bias)\n",
        "        self.W_o = nn.Linear(d_model, d_model)\n",
    ),
)

changed(
    _MHA,
    "no bias at all",
    "bias=True has no effect: the four layers have no biases",
    (
        LAYERS,
        (
            "        self.W_q = nn.Linear(d_model, d_model, bias=False)\n"
            "        self.W_k = nn.Linear(d_model, d_model, bias=False)\n"
            "        self.W_v = nn.Linear(d_model, d_model, bias=False)\n"
            "        self.W_o = nn.Linear(d_model, d_model, bias=False)\n"
        ),
    ),
)

changed(
    _MHA,
    "d_k not kept",
    "self.d_k is d_model; it should be the width of one head, d_model // h",
    ("self.h, self.d_k = h, d_model // h", "self.h, self.d_k = h, d_model"),
    ("self.h, self.d_k).tr", "self.h, -1).tr"),
    ("math.sqrt(self.d_k)", "math.sqrt(self.d_k // self.h)"),
)

changed(
    _MHA,
    "mask ignored",
    "the mask has no effect: where it is False (or 0) the weight must be 0",
    (MASK, ""),
)

changed(
    _MHA,
    "mask inverted",
    "the mask is read the wrong way round: True (or 1) means may attend; nn.MultiheadAttention has it the other "
    "way",
    ("mask == 0", "mask != 0"),
)

changed(
    _MHA,
    "mask added",
    "a 0/1 mask was added to the scores: it moves them by 1, it does not forbid anything",
    (FILL, "            scores = scores + mask\n"),
)

changed(
    _MHA,
    "mask multiplied",
    "masked scores became 0, and exp(0) = 1: a masked key still gets weight; set them to -inf",
    (FILL, "            scores = scores * mask\n"),
)

changed(
    _MHA,
    "mask after the softmax",
    "the mask was applied after the softmax: rows no longer sum to 1",
    (MASK, ""),
    (
        SOFTMAX,
        SOFTMAX + (
            "        if mask is not None:\n"
            "            weights = weights * (mask.unsqueeze(1) if mask.dim() == 3 else mask)\n"
        ),
    ),
)

changed(
    _MHA,
    "masked with -10",
    "-10 is not minus infinity: a masked key keeps a little weight",
    (FILL, "            scores = scores.masked_fill(mask == 0, -10.0)\n"),
)

changed(
    _MHA,
    "-1e4 added",
    "adding -1e4 does not hide a key whose score is larger than that: set masked scores to -inf",
    (FILL, "            scores = scores - 1e4 * (mask == 0)\n"),
)

changed(
    _MHA,
    "0 times -inf",
    "0 * -inf is NaN: use masked_fill or torch.where instead of multiplying the mask by -inf",
    (FILL, '            scores = scores + (mask == 0) * float("-inf")\n'),
)

changed(
    _MHA,
    "0/1 masks not handled",
    "a mask of 0 and 1 integers fails: ~ on integers is not a logical not; compare with 0 or use .bool()",
    (FILL, '            scores = scores.masked_fill(~mask, float("-inf"))\n'),
)

changed(
    _MHA,
    "no axis for the heads",
    "a mask of shape (B, n, m) has no axis for the heads: it needs one at position 1 before it meets scores of "
    "shape (B, h, n, m)",
    (HEAD_AXIS, ""),
)

changed(
    _MHA,
    "an axis for the heads in every mask",
    "every mask got a new axis 1; only one of shape (B, n, m) lacks the axis of the heads",
    (HEAD_AXIS, "            mask = mask.unsqueeze(1)\n"),
)

changed(
    _MHA,
    "mask cut to its first head",
    "a mask of shape (B, h, n, m) has its own table for each head; you used the first for all",
    (HEAD_AXIS, HEAD_AXIS + "            mask = mask[:, :1] if mask.dim() == 4 else mask\n"),
)

changed(
    _MHA,
    "mask stretched in place",
    "your function changed the mask that it was given: unsqueeze_ works in place; use unsqueeze",
    (HEAD_AXIS, "            mask = mask.unsqueeze_(1) if mask.dim() == 3 else mask\n"),
)

changed(
    _MHA,
    "mask repeated in the wrong order",
    "with B and h joined into one axis, sequence b stands at places b*h to b*h + h - 1; mask.repeat puts "
    "another sequence's mask there: use repeat_interleave",
    (
        HEAD_AXIS,
        "            mask = mask.repeat(self.h, 1, 1).unflatten(0, (-1, self.h)) if mask.dim() == 3 else mask\n",
    ),
)

changed(
    _MHA,
    "keys and values from the query",
    "the given key and value are not used: K comes from key and V from value",
    (DEFAULTS, "        key = value = query\n"),
)

changed(
    _MHA,
    "values default to the query",
    "without a value, the values come from the key, not from the query",
    ("value = key if value is None else value", "value = query if value is None else value"),
)

changed(
    _MHA,
    "values always from the key",
    "a given value is not used: V comes from value",
    ("value = key if value is None else value", "value = key"),
)

changed(
    _MHA,
    "key and value required",
    "forward fails when key and value are not given: key defaults to query and value to key",
    ("key=None, value=None, mask=None", "key, value, mask=None"),
    (DEFAULTS, ""),
)

changed(
    _MHA,
    "as many keys as queries",
    "the keys are cut with the number of queries: they have their own number of positions",
    ("def split(self, x):", "def split(self, x, n):"),
    ("*x.shape[:2]", "x.shape[0], n"),
    (
        PROJECT,
        (
            "        n = query.shape[1]\n"
            "        Q, K, V = (self.split(self.W_q(query), n), self.split(self.W_k(key), n), self.split(self.W_v(value), n))\n"
        ),
    ),
)

changed(
    _MHA,
    "computed in float32",
    "float64 inputs lose their digits: you compute in float32 and convert back",
    (SOFTMAX, "        weights = scores.float().softmax(-1).to(V.dtype)\n"),
)

changed(
    _MHA,
    "float32 hard-coded",
    "the weights should keep the dtype of the inputs; you make float32 numbers",
    ("flatten(2)), weights", "flatten(2)), weights.float()"),
)

changed(
    _MHA,
    "no divisibility check",
    "MultiHeadAttention(8, 3) is not refused: h must divide d_model, and the place to say so is __init__",
    (CHECK, ""),
)

changed(
    _MHA,
    "assert",
    "you check with an assert; the exercise asks for a ValueError (asserts vanish under python -O)",
    (CHECK, "        assert d_model % h == 0\n"),
)

changed(
    _MHA,
    "keys from the query alone",
    "the keys are projected from query; where a key is given they come from it, W_k(key)",
    ("self.W_k(key)", "self.W_k(query)"),
)

changed(
    _MHA,
    "at least two heads",
    "h = 1 is allowed: it is the attention of chapter 3 with projections",
    ("if d_model % h != 0:", "if h < 2 or d_model % h != 0:"),
)


@right("checked first, -1e9")
class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, h, bias=True):
        if d_model % h:
            raise ValueError(f"{h} heads, {d_model} features")
        super().__init__()
        self.h, self.d_k = h, d_model // h
        self.W_q = nn.Linear(d_model, d_model, bias=bias)
        self.W_k = nn.Linear(d_model, d_model, bias=bias)
        self.W_v = nn.Linear(d_model, d_model, bias=bias)
        self.W_o = nn.Linear(d_model, d_model, bias=bias)

    def split(self, x):
        return x.reshape(*x.shape[:2], self.h, self.d_k).transpose(1, 2)

    def forward(self, query, key=None, value=None, mask=None):
        key = query if key is None else key
        value = key if value is None else value
        Q, K, V = self.split(self.W_q(query)), self.split(self.W_k(key)), self.split(self.W_v(value))
        scores = Q @ K.transpose(-2, -1) / math.sqrt(self.d_k)
        if mask is not None:
            mask = mask.unsqueeze(1) if mask.dim() == 3 else mask
            scores = scores.masked_fill(mask == 0, -1e9)
        weights = scores.softmax(-1)
        heads = weights @ V
        return self.W_o(heads.transpose(1, 2).contiguous().view(query.shape)), weights


@right("einsum, finfo.min")
class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, h, bias=True):
        super().__init__()
        if d_model % h != 0:
            raise ValueError("h must divide d_model")
        self.h, self.d_k = h, d_model // h
        self.W_q = nn.Linear(d_model, d_model, bias=bias)
        self.W_k = nn.Linear(d_model, d_model, bias=bias)
        self.W_v = nn.Linear(d_model, d_model, bias=bias)
        self.W_o = nn.Linear(d_model, d_model, bias=bias)

    def split(self, x):
        return x.unflatten(-1, (self.h, self.d_k))

    def forward(self, query, key=None, value=None, mask=None):
        key = query if key is None else key
        value = key if value is None else value
        Q, K, V = self.split(self.W_q(query)), self.split(self.W_k(key)), self.split(self.W_v(value))
        scores = torch.einsum("bihd,bjhd->bhij", Q, K) * self.d_k**-0.5
        if mask is not None:
            mask = mask.unsqueeze(1) if mask.dim() == 3 else mask
            scores = scores.masked_fill(~mask.bool(), torch.finfo(scores.dtype).min)
        weights = scores.softmax(-1)
        heads = torch.einsum("bhij,bjhd->bihd", weights, V)
        return self.W_o(heads.flatten(2)), weights


@right("slices and cat")
class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, h, bias=True):
        super().__init__()
        if d_model % h != 0:
            raise ValueError("h must divide d_model")
        self.h, self.d_k = h, d_model // h
        self.W_q = nn.Linear(d_model, d_model, bias=bias)
        self.W_k = nn.Linear(d_model, d_model, bias=bias)
        self.W_v = nn.Linear(d_model, d_model, bias=bias)
        self.W_o = nn.Linear(d_model, d_model, bias=bias)

    def forward(self, query, key=None, value=None, mask=None):
        key = query if key is None else key
        value = key if value is None else value
        Q, K, V = self.W_q(query), self.W_k(key), self.W_v(value)
        if mask is not None:
            mask = mask.bool()
            while mask.dim() < 4:
                mask = mask.unsqueeze(-3)
            mask = mask.expand(Q.shape[0], self.h, Q.shape[1], K.shape[1])
        heads, weights = [], []
        for i in range(self.h):
            own = slice(i * self.d_k, (i + 1) * self.d_k)
            scores = Q[..., own] @ K[..., own].mT / math.sqrt(self.d_k)
            if mask is not None:
                scores = scores.masked_fill(~mask[:, i], -torch.inf)
            weights.append(scores.softmax(-1))
            heads.append(weights[-1] @ V[..., own])
        return self.W_o(torch.cat(heads, dim=-1)), torch.stack(weights, dim=1)


@right("per-head slices of the weights")
class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, h, bias=True):
        super().__init__()
        if d_model % h != 0:
            raise ValueError("h must divide d_model")
        self.h, self.d_k = h, d_model // h
        self.W_q = nn.Linear(d_model, d_model, bias=bias)
        self.W_k = nn.Linear(d_model, d_model, bias=bias)
        self.W_v = nn.Linear(d_model, d_model, bias=bias)
        self.W_o = nn.Linear(d_model, d_model, bias=bias)

    def project(self, layer, x, i):
        rows = slice(i * self.d_k, (i + 1) * self.d_k)
        return F.linear(x, layer.weight[rows], None if layer.bias is None else layer.bias[rows])

    def forward(self, query, key=None, value=None, mask=None):
        if key is None:
            key = query
        if value is None:
            value = key
        output, weights = 0, []
        for i in range(self.h):
            Q, K, V = self.project(self.W_q, query, i), self.project(self.W_k, key, i), self.project(self.W_v, value, i)
            scores = Q @ K.transpose(1, 2) / self.d_k**0.5
            if mask is not None:
                here = mask if mask.dim() < 4 else mask[:, min(i, mask.shape[1] - 1)]
                scores = scores.masked_fill(here == 0, -math.inf)
            weights.append(scores.softmax(-1))
            output = output + weights[i] @ V @ self.W_o.weight[:, i * self.d_k : (i + 1) * self.d_k].T
        output = output if self.W_o.bias is None else output + self.W_o.bias
        return output, torch.stack(weights, 1)


@right("fused QKV, then chunk")
class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, h, bias=True):
        super().__init__()
        if d_model % h != 0:
            raise ValueError("h must divide d_model")
        self.h, self.d_k = h, d_model // h
        self.W_q = nn.Linear(d_model, d_model, bias=bias)
        self.W_k = nn.Linear(d_model, d_model, bias=bias)
        self.W_v = nn.Linear(d_model, d_model, bias=bias)
        self.W_o = nn.Linear(d_model, d_model, bias=bias)

    def forward(self, query, key=None, value=None, mask=None):
        layers = (self.W_q, self.W_k, self.W_v)
        if key is None and value is None:
            weight = torch.cat([layer.weight for layer in layers])
            bias = None if self.W_q.bias is None else torch.cat([layer.bias for layer in layers])
            parts = F.linear(query, weight, bias).chunk(3, dim=-1)
        else:
            key = query if key is None else key
            parts = self.W_q(query), self.W_k(key), self.W_v(key if value is None else value)
        Q, K, V = (part.unflatten(-1, (self.h, -1)).transpose(1, 2) for part in parts)
        scores = (Q / math.sqrt(self.d_k)) @ K.mT
        if mask is not None:
            allowed = (mask[:, None] if mask.ndim == 3 else mask) > 0
            scores = torch.where(allowed, scores, torch.full_like(scores, -torch.inf))
        weights = F.softmax(scores, dim=-1)
        return self.W_o((weights @ V).permute(0, 2, 1, 3).reshape(query.shape)), weights


@right("bmm over batch and heads")
class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, h, bias=True):
        super().__init__()
        if d_model % h != 0:
            raise ValueError("h must divide d_model")
        self.h, self.d_k = h, d_model // h
        self.W_q = nn.Linear(d_model, d_model, bias=bias)
        self.W_k = nn.Linear(d_model, d_model, bias=bias)
        self.W_v = nn.Linear(d_model, d_model, bias=bias)
        self.W_o = nn.Linear(d_model, d_model, bias=bias)

    def split(self, x):
        return x.view(*x.shape[:2], self.h, self.d_k).transpose(1, 2).reshape(-1, x.shape[1], self.d_k)

    def forward(self, query, key=None, value=None, mask=None):
        key = key if key is not None else query
        value = value if value is not None else key
        (B, n, _), m = query.shape, key.shape[1]
        Q, K, V = self.split(self.W_q(query)), self.split(self.W_k(key)), self.split(self.W_v(value))
        scores = torch.bmm(Q, K.transpose(1, 2)).div(math.sqrt(self.d_k))
        if mask is not None:
            mask = mask.bool().repeat_interleave(self.h, dim=0) if mask.dim() == 3 else mask.bool()
            mask = mask.expand(B, self.h, n, m).reshape(B * self.h, n, m) if mask.dim() != 3 else mask
            scores = scores + torch.zeros(mask.shape, dtype=scores.dtype).masked_fill(~mask, -torch.inf)
        weights = scores.softmax(-1)
        heads = torch.bmm(weights, V).view(B, self.h, n, self.d_k).permute(0, 2, 1, 3).reshape(B, n, -1)
        return self.W_o(heads), weights.view(B, self.h, n, m)


@right("torch's operator")
class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, h, bias=True):
        super().__init__()
        if d_model % h != 0:
            raise ValueError("h must divide d_model")
        self.h, self.d_k = h, d_model // h
        self.W_q = nn.Linear(d_model, d_model, bias=bias)
        self.W_k = nn.Linear(d_model, d_model, bias=bias)
        self.W_v = nn.Linear(d_model, d_model, bias=bias)
        self.W_o = nn.Linear(d_model, d_model, bias=bias)

    def forward(self, query, key=None, value=None, mask=None):
        key = query if key is None else key
        value = key if value is None else value
        layers = zip((self.W_q, self.W_k, self.W_v), (query, key, value))
        Q, K, V = (torch.stack(layer(x).chunk(self.h, dim=-1), dim=1) for layer, x in layers)
        if mask is not None:
            mask = mask.bool() if mask.dim() != 3 else mask.bool()[:, None]
        heads = F.scaled_dot_product_attention(Q, K, V, attn_mask=mask)
        eye = torch.eye(key.shape[1], dtype=V.dtype).expand(*K.shape[:2], -1, -1)
        weights = F.scaled_dot_product_attention(Q, K, eye, attn_mask=mask)
        return self.W_o(torch.cat(heads.unbind(1), dim=-1)), weights


@right("softmax by hand, divided by the sum last")
class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, h, bias=True):
        super().__init__()
        if d_model % h != 0:
            raise ValueError("h must divide d_model")
        self.h, self.d_k = h, d_model // h
        self.W_q = nn.Linear(d_model, d_model, bias=bias)
        self.W_k = nn.Linear(d_model, d_model, bias=bias)
        self.W_v = nn.Linear(d_model, d_model, bias=bias)
        self.W_o = nn.Linear(d_model, d_model, bias=bias)

    def split(self, x):
        return x.reshape(*x.shape[:2], self.h, self.d_k).transpose(1, 2)

    def forward(self, query, key=None, value=None, mask=None):
        key = query if key is None else key
        value = key if value is None else value
        Q, K, V = self.split(self.W_q(query)), self.split(self.W_k(key)), self.split(self.W_v(value))
        scores = Q @ K.transpose(-2, -1) / math.sqrt(self.d_k)
        if mask is not None:
            mask = mask.unsqueeze(1) if mask.dim() == 3 else mask
            scores = scores.masked_fill(mask == 0, float("-inf"))
        powers = (scores - scores.amax(-1, keepdim=True)).exp()
        total = powers.sum(-1, keepdim=True)
        weights = powers / total
        heads = (powers @ V) / total
        return self.W_o(heads.transpose(1, 2).flatten(2)), weights


@right("float64 inside, layers in a loop")
class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, h, bias=True):
        super().__init__()
        if d_model % h != 0:
            raise ValueError("h must divide d_model")
        self.h, self.d_k = h, d_model // h
        for name in ("W_q", "W_k", "W_v", "W_o"):
            setattr(self, name, nn.Linear(d_model, d_model, bias))

    def split(self, x):
        return x.reshape(*x.shape[:2], self.h, self.d_k).transpose(1, 2)

    def forward(self, query, key=None, value=None, mask=None):
        key = query if key is None else key
        value = key if value is None else value
        Q, K, V = self.split(self.W_q(query)), self.split(self.W_k(key)), self.split(self.W_v(value))
        scores = (Q.double() @ K.double().transpose(-2, -1)) / math.sqrt(self.d_k)
        if mask is not None:
            mask = mask.unsqueeze(1) if mask.dim() == 3 else mask
            scores = scores.masked_fill(mask == 0, float("-inf"))
        weights = scores.softmax(-1).to(V.dtype)
        heads = weights @ V
        return self.W_o(heads.transpose(1, 2).flatten(2)), weights


@right("without the key's bias")
class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, h, bias=True):
        super().__init__()
        if d_model % h != 0:
            raise ValueError("h must divide d_model")
        self.h, self.d_k = h, d_model // h
        self.W_q = nn.Linear(d_model, d_model, bias=bias)
        self.W_k = nn.Linear(d_model, d_model, bias=bias)
        self.W_v = nn.Linear(d_model, d_model, bias=bias)
        self.W_o = nn.Linear(d_model, d_model, bias=bias)

    def split(self, x):
        return x.reshape(*x.shape[:2], self.h, self.d_k).transpose(1, 2)

    def forward(self, query, key=None, value=None, mask=None):
        key = query if key is None else key
        value = key if value is None else value
        Q, K, V = self.split(self.W_q(query)), self.split(F.linear(key, self.W_k.weight)), self.split(self.W_v(value))
        scores = Q @ K.transpose(-2, -1) / math.sqrt(self.d_k)
        if mask is not None:
            mask = mask.unsqueeze(1) if mask.dim() == 3 else mask
            scores = scores.masked_fill(mask == 0, float("-inf"))
        weights = scores.softmax(-1)
        heads = weights @ V
        return self.W_o(heads.transpose(1, 2).flatten(2)), weights


@right("the value's bias last")
class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, h, bias=True):
        super().__init__()
        if d_model % h != 0:
            raise ValueError("h must divide d_model")
        self.h, self.d_k = h, d_model // h
        self.W_q = nn.Linear(d_model, d_model, bias=bias)
        self.W_k = nn.Linear(d_model, d_model, bias=bias)
        self.W_v = nn.Linear(d_model, d_model, bias=bias)
        self.W_o = nn.Linear(d_model, d_model, bias=bias)

    def split(self, x):
        return x.reshape(*x.shape[:2], self.h, self.d_k).transpose(1, 2)

    def forward(self, query, key=None, value=None, mask=None):
        key = query if key is None else key
        value = key if value is None else value
        Q, K, V = self.split(self.W_q(query)), self.split(self.W_k(key)), self.split(F.linear(value, self.W_v.weight))
        scores = Q @ K.transpose(-2, -1) / math.sqrt(self.d_k)
        if mask is not None:
            mask = mask.unsqueeze(1) if mask.dim() == 3 else mask
            scores = scores.masked_fill(mask == 0, float("-inf"))
        weights = scores.softmax(-1)
        heads = weights @ V
        if self.W_v.bias is not None:
            heads = heads + self.W_v.bias.view(self.h, 1, self.d_k)
        return self.W_o(heads.transpose(1, 2).flatten(2)), weights


# ---- parameter_count --------------------------------------------------------------------------------------------------


@wrong("W_o forgotten", "you counted three projections; W_o is the fourth")
def parameter_count(d_model, h, bias=True):
    if h < 1 or d_model % h != 0:
        raise ValueError("h must divide d_model")
    return 3 * d_model**2 + 3 * d_model * bias


@wrong(
    "h times the width",
    "you counted h projections of full width each; the h heads share one width: each has d_model / h columns",
)
def parameter_count(d_model, h, bias=True):
    if h < 1 or d_model % h != 0:
        raise ValueError("h must divide d_model")
    return 4 * h * d_model**2 + 4 * d_model * bias


@wrong(
    "W_q, W_k, W_v times h",
    "you counted a full-width W_q, W_k and W_v for every head; each head has d_model / h columns of them",
)
def parameter_count(d_model, h, bias=True):
    if h < 1 or d_model % h != 0:
        raise ValueError("h must divide d_model")
    return 3 * h * (d_model**2 + d_model * bias) + d_model**2 + d_model * bias


@wrong("biases always", "with bias=False no biases are counted")
def parameter_count(d_model, h, bias=True):
    if h < 1 or d_model % h != 0:
        raise ValueError("h must divide d_model")
    return 4 * (d_model**2 + d_model)


@wrong("biases never", "with bias=True each of the four layers has d_model biases")
def parameter_count(d_model, h, bias=True):
    if h < 1 or d_model % h != 0:
        raise ValueError("h must divide d_model")
    return 4 * d_model**2


@wrong("bias the wrong way round", "biases are counted when bias is False and left out when it is True")
def parameter_count(d_model, h, bias=True):
    if h < 1 or d_model % h != 0:
        raise ValueError("h must divide d_model")
    return 4 * d_model**2 + (0 if bias else 4 * d_model)


@wrong("one bias", "you counted the biases of one layer; all four have them")
def parameter_count(d_model, h, bias=True):
    if h < 1 or d_model % h != 0:
        raise ValueError("h must divide d_model")
    return 4 * d_model**2 + d_model * bias


@wrong("W_o without bias", "you counted three biases; W_o has one, too")
def parameter_count(d_model, h, bias=True):
    if h < 1 or d_model % h != 0:
        raise ValueError("h must divide d_model")
    return 4 * d_model**2 + 3 * d_model * bias


@wrong("bias of one head", "a bias has d_model entries, d_k for each of h heads; you counted d_k")
def parameter_count(d_model, h, bias=True):
    if h < 1 or d_model % h != 0:
        raise ValueError("h must divide d_model")
    return 4 * (d_model**2 + d_model // h * bias)


@wrong("one number per bias", "a bias is a vector with one entry per output feature, not a single number")
def parameter_count(d_model, h, bias=True):
    if h < 1 or d_model % h != 0:
        raise ValueError("h must divide d_model")
    return 4 * (d_model**2 + int(bias))


@wrong(
    "one small projection for all heads",
    "you counted d_k x d_k projections shared by all heads; each head has its own d_model x d_k",
)
def parameter_count(d_model, h, bias=True):
    if h < 1 or d_model % h != 0:
        raise ValueError("h must divide d_model")
    d_k = d_model // h
    return 3 * (d_k**2 + d_k * bias) + d_model**2 + d_model * bias


@wrong(
    "split before the projection",
    "you counted h projections of d_k x d_k; a head's projection sees all d_model features",
)
def parameter_count(d_model, h, bias=True):
    if h < 1 or d_model % h != 0:
        raise ValueError("h must divide d_model")
    d_k = d_model // h
    return 3 * (h * d_k**2 + d_model * bias) + d_model**2 + d_model * bias


@wrong("no check", "an h that does not divide d_model is not refused with a ValueError")
def parameter_count(d_model, h, bias=True):
    return 4 * (d_model**2 + d_model * bias)


@wrong(
    "h below 1 not refused",
    "h = 0 or a negative h is not refused with a ValueError: d_model % h alone does not catch them",
)
def parameter_count(d_model, h, bias=True):
    if d_model % h != 0:
        raise ValueError("h must divide d_model")
    return 4 * (d_model**2 + d_model * bias)


@wrong("assert", "you check with an assert; the exercise asks for a ValueError")
def parameter_count(d_model, h, bias=True):
    assert h >= 1 and d_model % h == 0
    return 4 * (d_model**2 + d_model * bias)


@wrong("a float", "a count is a whole number: return an int, with // instead of /")
def parameter_count(d_model, h, bias=True):
    if h < 1 or d_model % h != 0:
        raise ValueError("h must divide d_model")
    d_k = d_model / h
    return 4 * h * d_k * (d_model + bias)


@right("the formula")
def parameter_count(d_model, h, bias=True):
    if h < 1 or d_model % h != 0:
        raise ValueError("h must divide d_model")
    return 4 * (d_model * d_model + (d_model if bias else 0))


@right("one row per output feature")
def parameter_count(d_model, h, bias=True):
    if h < 1 or d_model % h != 0:
        raise ValueError("h must divide d_model")
    return 4 * d_model * (d_model + bool(bias))


@right("head by head")
def parameter_count(d_model, h, bias=True):
    if h < 1 or d_model % h:
        raise ValueError((d_model, h))
    d_k, total = d_model // h, 0
    for _ in range(h):
        total += 3 * (d_model * d_k + d_k * bias)
    return total + h * d_k * d_model + d_model * bias


@right("counted on torch's module")
def parameter_count(d_model, h, bias=True):
    if h < 1 or d_model % h != 0:
        raise ValueError("h must divide d_model")
    module = nn.MultiheadAttention(d_model, h, bias=bias, device="meta")
    return sum(p.numel() for p in module.parameters())


@right("counted on four layers")
def parameter_count(d_model, h, bias=True):
    if h <= 0 or d_model // h * h != d_model:
        raise ValueError("h must divide d_model")
    layers = nn.ModuleList(nn.Linear(d_model, d_model, bias=bias, device="meta") for _ in range(4))
    return sum(math.prod(p.shape) for p in layers.parameters())


@right("a NumPy integer")
def parameter_count(d_model, h, bias=True):
    if h < 1 or d_model % h != 0:
        raise ValueError("h must divide d_model")
    return np.int64(4) * d_model * d_model + (4 * d_model if bias else 0)


@right("sizes listed")
def parameter_count(d_model, h, bias=True):
    if h < 1 or d_model % h:
        raise ValueError(f"{h} heads, {d_model} features")
    sizes = {name: [d_model**2] + [d_model] * bias for name in ("W_q", "W_k", "W_v", "W_o")}
    return sum(sum(size) for size in sizes.values())


@right("the size of one wide matrix")
def parameter_count(d_model, h, bias=True):
    quotient, rest = divmod(d_model, h) if h > 0 else (0, 1)
    if rest:
        raise ValueError("no whole number of features for each head")
    rows, columns = d_model + bool(bias), 4 * h * quotient
    return len(range(rows)) * columns


# ---- head_contributions -----------------------------------------------------------------------------------------------


@right("blocks of columns")
def head_contributions(mha, x):
    B, n, d_model = x.shape
    Q, K, V = (W(x).view(B, n, mha.h, mha.d_k).transpose(1, 2) for W in (mha.W_q, mha.W_k, mha.W_v))
    weights = (Q @ K.transpose(-2, -1) / math.sqrt(mha.d_k)).softmax(-1)
    heads = weights @ V
    blocks = mha.W_o.weight.split(mha.d_k, dim=1)
    return torch.stack([heads[:, i] @ blocks[i].T for i in range(mha.h)])


_CONTRIBUTIONS = head_contributions
BLOCKS = "    blocks = mha.W_o.weight.split(mha.d_k, dim=1)\n"
STACK = "    return torch.stack([heads[:, i] @ blocks[i].T for i in range(mha.h)])\n"

changed(
    _CONTRIBUTIONS,
    "W_o's bias in every head",
    "every head got W_o's bias, so the sum has it h times: leave it out",
    ("heads[:, i] @ blocks[i].T", "F.linear(heads[:, i], blocks[i], mha.W_o.bias)"),
)

changed(
    _CONTRIBUTIONS,
    "W_o's bias shared out",
    "W_o's bias was shared out among the heads; it belongs to none of them: leave it out",
    (
        STACK,
        (
            "    shared = 0 if mha.W_o.bias is None else mha.W_o.bias / mha.h\n"
            "    return torch.stack([heads[:, i] @ blocks[i].T + shared for i in range(mha.h)])\n"
        ),
    ),
)

changed(
    _CONTRIBUTIONS,
    "W_o not applied",
    "these are the heads before W_o, in their own places; a contribution is what W_o makes of one head",
    (
        BLOCKS + STACK,
        (
            "    out = x.new_zeros(mha.h, B, n, d_model)\n"
            "    for i in range(mha.h):\n"
            "        out[i, :, :, i * mha.d_k : (i + 1) * mha.d_k] = heads[:, i]\n"
            "    return out\n"
        ),
    ),
)

changed(
    _CONTRIBUTIONS,
    "rows for columns",
    "nn.Linear keeps its weight as (out, in): head i meets the i-th block of columns of W_o.weight, not of rows",
    (BLOCKS, "    blocks = mha.W_o.weight.split(mha.d_k, dim=0)\n"),
    ("blocks[i].T", "blocks[i]"),
)

changed(
    _CONTRIBUTIONS,
    "one block for all",
    "every head went through the first block of W_o; head i has the i-th",
    ("blocks[i].T", "blocks[0].T"),
)

changed(
    _CONTRIBUTIONS,
    "blocks reversed",
    "the blocks of W_o were taken in the reverse order",
    ("blocks[i].T", "blocks[-1 - i].T"),
)

changed(
    _CONTRIBUTIONS,
    "interleaved blocks",
    "head i has a block of d_k neighbouring columns of W_o.weight; you took every h-th column",
    ("blocks[i].T", "mha.W_o.weight[:, i :: mha.h].T"),
)

changed(
    _CONTRIBUTIONS,
    "batch before the heads",
    "the result is (B, h, n, d_model); the heads come first here",
    (STACK, "    return torch.stack([heads[:, i] @ blocks[i].T for i in range(mha.h)], dim=1)\n"),
)

changed(
    _CONTRIBUTIONS,
    "summed already",
    "you added the contributions up; return them one by one, (h, B, n, d_model)",
    (STACK, "    return torch.stack([heads[:, i] @ blocks[i].T for i in range(mha.h)]).sum(0)\n"),
)

changed(
    _CONTRIBUTIONS,
    "accumulated",
    "each entry holds the sum of the heads so far; return every head's own part",
    (STACK, "    return torch.stack([heads[:, i] @ blocks[i].T for i in range(mha.h)]).cumsum(0)\n"),
)

changed(
    _CONTRIBUTIONS,
    "sqrt of d_model",
    "you divided by the root of d_model; a head's dot product has d_k terms",
    ("math.sqrt(mha.d_k)", "math.sqrt(d_model)"),
)

changed(
    _CONTRIBUTIONS,
    "no scale",
    "the scores are not scaled: divide by the square root of d_k",
    (" / math.sqrt(mha.d_k)", ""),
)

changed(
    _CONTRIBUTIONS,
    "view without a transpose",
    "the projections are cut as (B, h, n, d_k) directly: cut the features first, then swap two axes",
    (".view(B, n, mha.h, mha.d_k).transpose(1, 2)", ".view(B, mha.h, n, mha.d_k)"),
)

changed(
    _CONTRIBUTIONS,
    "softmax over queries",
    "the softmax runs over the queries; it belongs on the last axis, the keys",
    ("softmax(-1)", "softmax(-2)"),
)

changed(
    _CONTRIBUTIONS,
    "every head sees its own slice",
    "each head projects only its own slice of x: a head sees all d_model features",
    (
        "    B, n, d_model = x.shape\n",
        (
            "    def part(W, i):\n"
            "        own = slice(i * mha.d_k, (i + 1) * mha.d_k)\n"
            "        return F.linear(x[..., own], W.weight[own, own], None if W.bias is None else W.bias[own])\n"
            "\n"
        ),
    ),
    ("W(x).view(B, n, mha.h, mha.d_k).transpose(1, 2)", "torch.stack([part(W, i) for i in range(mha.h)], dim=1)"),
)

changed(
    _CONTRIBUTIONS,
    "the module is called",
    "mha need not be callable: use its attributes h, d_k, W_q, W_k, W_v and W_o",
    (
        STACK,
        (
            "    output = mha(x)[0]\n"
            "    return torch.stack([heads[:, i] @ blocks[i].T for i in range(mha.h)])\n"
        ),
    ),
)

changed(
    _CONTRIBUTIONS,
    "weights wiped",
    "your function changed W_o's weights: work on a copy, or on a block of its columns",
    (
        BLOCKS + STACK,
        (
            "    out = []\n"
            "    with torch.no_grad():\n"
            "        for i in range(mha.h):\n"
            "            kept = mha.W_o.weight[:, i * mha.d_k : (i + 1) * mha.d_k].clone()\n"
            "            mha.W_o.weight[:, i * mha.d_k : (i + 1) * mha.d_k] = 0\n"
            "            out.append(heads[:, i] @ kept.T)\n"
            "    return torch.stack(out)\n"
        ),
    ),
)

changed(
    _CONTRIBUTIONS,
    "what is left without the head",
    "entry i is the output without head i; what head i itself adds is asked for",
    (
        STACK,
        (
            "    parts = torch.stack([heads[:, i] @ blocks[i].T for i in range(mha.h)])\n"
            "    return parts.sum(0) - parts\n"
        ),
    ),
)

changed(
    _CONTRIBUTIONS,
    "biases left out",
    "the biases of W_q, W_k and W_v are missing: call the layers, W_q(x), and do not multiply by their weights alone",
    ("(W(x).view(", "((x @ W.weight.T).view("),
)

changed(
    _CONTRIBUTIONS,
    "W_o's bias in the last head",
    "the last head got W_o's bias; it belongs to none of them: leave it out",
    (
        STACK,
        (
            "    parts = [heads[:, i] @ blocks[i].T for i in range(mha.h)]\n"
            "    parts[-1] = parts[-1] if mha.W_o.bias is None else parts[-1] + mha.W_o.bias\n"
            "    return torch.stack(parts)\n"
        ),
    ),
)

changed(
    _CONTRIBUTIONS,
    "biases required",
    "without biases, layer.bias is None: your function needs one",
    ("W(x).view(", "F.linear(x, W.weight, W.bias + 0).view("),
)

changed(
    _CONTRIBUTIONS,
    "an even share",
    "the output was shared out evenly; each head adds its own part",
    (
        STACK,
        "    return torch.stack([heads[:, i] @ blocks[i].T for i in range(mha.h)]).mean(0, keepdim=True).expand(mha.h, -1, -1, -1)\n",
    ),
)


@right("the other heads silenced")
def head_contributions(mha, x):
    B, n, _ = x.shape
    Q, K, V = (W(x).reshape(B, n, mha.h, mha.d_k).permute(0, 2, 1, 3) for W in (mha.W_q, mha.W_k, mha.W_v))
    heads = F.scaled_dot_product_attention(Q, K, V)
    parts = []
    for i in range(mha.h):
        alone = torch.zeros_like(heads)
        alone[:, i] = heads[:, i]
        parts.append(F.linear(alone.transpose(1, 2).reshape(x.shape), mha.W_o.weight))
    return torch.stack(parts)


@right("einsum")
def head_contributions(mha, x):
    Q, K, V = (W(x).unflatten(-1, (mha.h, mha.d_k)) for W in (mha.W_q, mha.W_k, mha.W_v))
    weights = torch.einsum("bihd,bjhd->bhij", Q, K).mul(mha.d_k**-0.5).softmax(-1)
    W = mha.W_o.weight.unflatten(1, (mha.h, mha.d_k))
    return torch.einsum("bhij,bjhd,ohd->hbio", weights, V, W)


@right("the difference that a head makes")
def head_contributions(mha, x):
    Q, K, V = (torch.stack(W(x).chunk(mha.h, dim=-1), dim=1) for W in (mha.W_q, mha.W_k, mha.W_v))
    heads = (Q @ K.mT / math.sqrt(mha.d_k)).softmax(-1) @ V
    full = mha.W_o(torch.cat(heads.unbind(1), dim=-1))
    parts = []
    for i in range(mha.h):
        without = [torch.zeros_like(head) if j == i else head for j, head in enumerate(heads.unbind(1))]
        parts.append(full - mha.W_o(torch.cat(without, dim=-1)))
    return torch.stack(parts)


@right("head by head, from slices of all weights")
def head_contributions(mha, x):
    def part(layer, rows):
        return F.linear(x, layer.weight[rows], None if layer.bias is None else layer.bias[rows])

    result = []
    for i in range(mha.h):
        rows = slice(i * mha.d_k, (i + 1) * mha.d_k)
        scores = part(mha.W_q, rows) @ part(mha.W_k, rows).transpose(1, 2)
        result.append((scores / mha.d_k**0.5).softmax(-1) @ (part(mha.W_v, rows) @ mha.W_o.weight[:, rows].T))
    return torch.stack(result, dim=0)


@right("each head through its own slice of everything")
def head_contributions(mha, x):
    B, n, d = x.shape
    out = x.new_zeros(mha.h, B, n, d)
    Q, K, V = mha.W_q(x), mha.W_k(x), mha.W_v(x)
    for i in range(mha.h):
        f = range(i * mha.d_k, (i + 1) * mha.d_k)
        q, k, v = (t.index_select(-1, torch.tensor(f)) for t in (Q, K, V))
        scores = torch.matmul(q, k.transpose(1, 2)) * mha.d_k**-0.5
        scores = scores - scores.amax(-1, keepdim=True)
        weights = scores.exp() / scores.exp().sum(-1, keepdim=True)
        out[i] = torch.matmul(torch.bmm(weights, v), mha.W_o.weight[:, f[0]:f[-1] + 1].transpose(0, 1))
    return out


@right("bmm over batch and heads")
def head_contributions(mha, x):
    B, n, d = x.shape
    Q, K, V = (W(x).view(B, n, mha.h, mha.d_k).transpose(1, 2).reshape(B * mha.h, n, mha.d_k) for W in (mha.W_q, mha.W_k, mha.W_v))
    heads = torch.bmm(torch.baddbmm(Q.new_zeros(1), Q, K.transpose(1, 2), beta=0, alpha=mha.d_k**-0.5).softmax(2), V)
    W = mha.W_o.weight.T.reshape(mha.h, mha.d_k, d).repeat(B, 1, 1)
    return torch.bmm(heads, W).view(B, mha.h, n, d).transpose(0, 1)


@right("torch's function for the heads")
def head_contributions(mha, x):
    heads = F.scaled_dot_product_attention(*(torch.stack(W(x).split(mha.d_k, -1), 1) for W in (mha.W_q, mha.W_k, mha.W_v)))
    blocks = torch.stack(mha.W_o.weight.chunk(mha.h, dim=1))
    return torch.func.vmap(lambda head, block: head @ block.T, in_dims=(1, 0))(heads, blocks)
