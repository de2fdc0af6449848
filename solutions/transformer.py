"""The encoder-decoder Transformer of the course in one file: the reference that chapters 6 to 8 hand out in parts.

Batch first; shapes are (B, h, n, d_k): batch, heads, positions, features. Masks: True = may attend.
Vaswani et al. 2017, "Attention Is All You Need"; pre-LN as in Xiong et al. 2020.
"""

import functools
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
        if K.shape != V.shape:                                         # the fused operator would read past the end
            raise ValueError(f"{K.shape[2]} keys and {V.shape[2]} values: each key has one value")
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
        return self.dropout(x + self.table[offset:offset + x.shape[1]].to(x.dtype))              # (B, n, d_model)


class Transformer(nn.Module):
    """Encoder and decoder with tied target embedding and output; returns logits, never probabilities.

    With padded=False no row has padding, and no mask looks for it: training takes 1 to 2 % less time.
    """

    def __init__(self, src_vocab, tgt_vocab, d_model=512, h=8, N=6, d_ff=2048, dropout=0.1, pad_id=0, max_len=512,
                 norm="post", *, padded=True):
        super().__init__()
        check_norm(norm)
        self.pad_id, self.d_model, self.padded = pad_id, d_model, padded
        self.src_embedding, self.tgt_embedding = nn.Embedding(src_vocab, d_model), nn.Embedding(tgt_vocab, d_model)
        self.position = PositionalEncoding(d_model, max_len, dropout)
        self.encoder = nn.ModuleList(EncoderBlock(d_model, h, d_ff, dropout, norm) for _ in range(N))
        self.decoder = nn.ModuleList(DecoderBlock(d_model, h, d_ff, dropout, norm) for _ in range(N))
        self.encoder_norm, self.decoder_norm = (nn.LayerNorm(d_model) if norm == "pre" else None for _ in range(2))
        self.output = nn.Linear(d_model, tgt_vocab, bias=False)
        self.initialise()
        self.output.weight = self.tgt_embedding.weight                 # one tensor with two names (Press & Wolf 2017)

    def initialise(self):
        """Xavier for the matrices; embeddings of standard deviation d^-1/2, which the factor sqrt(d) presupposes."""
        for name, parameter in self.named_parameters():
            if "embedding" in name:
                nn.init.normal_(parameter, std=self.d_model**-0.5)
            elif parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)

    def embed(self, embedding, ids, offset=0):
        return self.position(embedding(ids) * math.sqrt(self.d_model), offset)         # (B, n, d_model)

    def real(self, ids):
        """(B, 1, 1, n) True where a position is no padding; None where none is."""
        return padding_mask(ids, self.pad_id) if self.padded else None

    def encode(self, src):
        """src (B, m) -> memory (B, m, d_model)."""
        x, mask = self.embed(self.src_embedding, src), self.real(src)
        for block in self.encoder:
            x = block(x, mask)
        return x if self.encoder_norm is None else self.encoder_norm(x)

    def decode(self, tgt, memory, src):
        """tgt (B, n), memory (B, m, d_model), src (B, m) -> logits (B, n, tgt_vocab)."""
        x = self.embed(self.tgt_embedding, tgt)
        causal, cross_mask = causal_mask(tgt.shape[1], device=tgt.device), self.real(src)  # (n, n), (B, 1, 1, m)
        self_mask = causal & self.real(tgt) if self.padded else causal                     # (B, 1, n, n)
        for block in self.decoder:
            x = block(x, memory, self_mask, cross_mask)
        return self.output(x if self.decoder_norm is None else self.decoder_norm(x))

    def step(self, token, position, memory, cross_mask, caches):
        """Logits (B, tgt_vocab) after one more token (B,); the caches, one dict a block, hold what came before."""
        x = self.embed(self.tgt_embedding, token[:, None], position)   # (B, 1, d_model)
        for block, cache in zip(self.decoder, caches):
            x = block(x, memory, None, cross_mask, cache=cache)
        return self.output(x if self.decoder_norm is None else self.decoder_norm(x))[:, -1]

    def forward(self, src, tgt):
        return self.decode(tgt, self.encode(src), src)


# ---- training -------------------------------------------------------------------------------------------------------


def shift_targets(tgt):
    """tgt (B, n) -> what the decoder reads and what it must say next, each (B, n - 1)."""
    return tgt[:, :-1], tgt[:, 1:]


def label_smoothed_loss(logits, labels, pad_id, smoothing=0.1):
    """Mean cross-entropy over the labels that are no padding, eps / V of the target spread over the vocabulary."""
    return F.cross_entropy(logits.flatten(0, -2), labels.flatten(), ignore_index=pad_id, label_smoothing=smoothing)


def noam_rate(step, d_model, warmup):
    """d^-1/2 min(step^-1/2, step warmup^-3/2): a linear rise, then a fall with the root; 0 at step 0."""
    return 0.0 if step == 0 else d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


def add_gradients(model, batch, tokens, *, pad_id, parts=1, smoothing=0.0, amp=False):
    """Add the gradient of (summed loss of src, tgt) / tokens to every .grad, in parts; the sum, left on the device."""
    src, tgt = batch
    total, parts = torch.zeros((), device=src.device), min(parts, len(src))
    for part, target in zip(src.tensor_split(parts), tgt.tensor_split(parts)):
        decoder_input, labels = shift_targets(target)
        with torch.autocast(src.device.type, torch.bfloat16, enabled=amp):
            logits = model(part, decoder_input)                        # (B, n, V)
        loss = F.cross_entropy(logits.float().flatten(0, 1), labels.flatten(), ignore_index=pad_id,
                               label_smoothing=smoothing, reduction="sum")
        (loss / tokens).backward()
        total += loss.detach()
    return total


def train_step(model, batch, optimizer, *, pad_id, accumulate=1, clip=1.0, amp=False):
    """One optimizer step on (src, tgt), in `accumulate` parts that together weigh as one; the mean loss per token."""
    device = next(model.parameters()).device
    src, tgt = (ids.to(device, non_blocking=True) for ids in batch)
    tokens = (tgt[:, 1:] != pad_id).sum()
    model.train()
    optimizer.zero_grad(set_to_none=True)
    total = add_gradients(model, (src, tgt), tokens, pad_id=pad_id, parts=accumulate, amp=amp)
    nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    return (total / tokens).item()


# ---- generation: ids (B, L) without bos, with eos, padding after it -------------------------------------------------


def in_eval_mode(generate):
    """Run a decoder without autograd and in eval mode; the model's mode is afterwards what it was."""
    @functools.wraps(generate)
    def run(model, *args, **kwargs):
        training = model.training
        model.eval()
        try:
            with torch.inference_mode():                               # an eighth faster than no_grad at one position
                ids = generate(model, *args, **kwargs)
            return ids.clone()                                         # made out here, they may be trained on
        finally:
            model.train(training)
    return run


def until_all_end(say, rows, eos_id, pad_id, max_len):
    """Ask say(last tokens, t) -> logits (B, V) for the next token until every row (of `rows`, bos) has ended."""
    token, ended, ids = rows, torch.zeros_like(rows, dtype=torch.bool), []
    for t in range(max_len):
        token = say(token, t).argmax(dim=-1).masked_fill(ended, pad_id)                # (B,)
        ids.append(token)
        ended = ended | (token == eos_id)
        if ended.all():
            break
    return torch.stack(ids, dim=1) if ids else rows.new_empty(len(rows), 0)


@in_eval_mode
def greedy_decode(model, src, bos_id, eos_id, max_len):
    """The likeliest token at every step, the whole prefix decoded anew each time."""
    memory, prefix = model.encode(src), []

    def say(token, t):
        prefix.append(token)
        return model.decode(torch.stack(prefix, dim=1), memory, src)[:, -1]

    return until_all_end(say, src.new_full((len(src),), bos_id), eos_id, model.pad_id, max_len)


@in_eval_mode
def cached_greedy_decode(model, src, bos_id, eos_id, max_len):
    """The same ids; each step runs one position and keeps its keys and values."""
    memory, cross_mask = model.encode(src), model.real(src)
    caches = [{} for _ in model.decoder]
    return until_all_end(lambda token, t: model.step(token, t, memory, cross_mask, caches),
                         src.new_full((len(src),), bos_id), eos_id, model.pad_id, max_len)


@in_eval_mode
def beam_search(model, src, bos_id, eos_id, max_len, beam=4, alpha=0.6):
    """The best of `beam` hypotheses for one source (1, n), scored by log-probability / ((5 + length) / 6)^alpha."""
    memory = model.encode(src)
    hypotheses = [((), 0.0, False)]                                    # tokens, log-probability, finished

    def score(hypothesis):
        tokens, log_probability, _ = hypothesis
        return log_probability / ((5 + len(tokens)) / 6) ** alpha

    for _ in range(max_len):
        alive = [hypothesis for hypothesis in hypotheses if not hypothesis[2]]
        if not alive:
            break
        prefix = torch.tensor([[bos_id, *tokens] for tokens, _, _ in alive], device=src.device)
        logits = model.decode(prefix, memory.expand(len(alive), -1, -1), src.expand(len(alive), -1))[:, -1]
        best = logits.float().log_softmax(dim=-1).topk(min(beam, logits.shape[-1]))    # (alive, beam)
        grown = [((*tokens, token), total + gain, token == eos_id)
                 for (tokens, total, _), gains, ids in zip(alive, best.values.tolist(), best.indices.tolist())
                 for gain, token in zip(gains, ids)]
        finished = [hypothesis for hypothesis in hypotheses if hypothesis[2]]
        hypotheses = sorted(finished + grown, key=score, reverse=True)[:beam]
    finished = [hypothesis for hypothesis in hypotheses if hypothesis[2]]
    tokens = max(finished or hypotheses, key=score)[0]
    return torch.tensor([tokens], dtype=src.dtype, device=src.device)
