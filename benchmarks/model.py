"""What the reference model costs: training and decoding against torch's nn.Transformer and the attention of chapter 3.

    python benchmarks/model.py [--only training|decoding] [--rounds 5] [--quick]

All models have the same sizes, embeddings, positions, loss and optimizer, and no dropout (nn.Transformer would drop
attention weights too, and lose its fused kernel over it). They take turns in one process with one thread. Printed are
medians over the rounds: tokens per CPU second (a second on a machine of one's own; on a shared one it leaves out the
waiting), ratios of CPU seconds in one round, with the least and the largest, and the share of the machine's peak that
training reaches: multiply-adds of its matrix products, against those of one large product that takes its turn with the
rest. "naive" materialises softmax(Q K^T / sqrt(d_k)) V; "nn" is nn.Transformer. Where no row is padded all are told so:
no mask is made but the causal one, and nn also gets the hint that it is causal. Exit code 1 where the reference is
slower than a peer in every round.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent.parent / "solutions"))

import transformer  # noqa: E402

PAD, BOS, NEVER = 0, 1, -1


@dataclass(frozen=True)
class Size:
    """A model, pre-LN, and a batch of B sources and targets of n tokens each."""

    d_model: int
    h: int
    N: int
    d_ff: int
    vocab: int
    B: int
    n: int
    padded: bool = True

    def __str__(self) -> str:
        kind = "padded" if self.padded else "no padding"
        return f"d {self.d_model:3} h {self.h} N {self.N} B {self.B:2} n {self.n:3} {kind:10}"

    def multiply_adds(self) -> int:
        """Of the matrix products of one training step: forward, and twice as many backward."""
        rows, d, n = self.B * self.n, self.d_model, self.n
        block = 4 * d * d + 2 * n * d                                  # attention: projections, scores, weighted sum
        encoder, decoder = block + 2 * d * self.d_ff, 2 * block + 2 * d * self.d_ff
        return 3 * rows * (self.N * (encoder + decoder) + d * self.vocab)


TRAINING = [Size(32, 2, 1, 64, 50, 4, 8), Size(64, 4, 2, 256, 50, 64, 12), Size(128, 4, 2, 512, 500, 16, 64),
            Size(64, 4, 2, 256, 500, 8, 256), Size(128, 4, 2, 512, 500, 4, 256), Size(256, 8, 2, 1024, 500, 4, 256),
            Size(512, 8, 2, 2048, 1000, 2, 256),
            Size(64, 4, 2, 256, 50, 64, 12, False), Size(128, 4, 2, 512, 500, 4, 256, False),
            Size(256, 8, 2, 1024, 500, 4, 256, False), Size(512, 8, 2, 2048, 1000, 2, 256, False)]
DECODING = [Size(64, 4, 2, 256, 50, B, n, False) for B, n in ((1, 4), (64, 14), (4, 128), (1, 512), (4, 512))]
DECODING += [Size(128, 4, 2, 512, 50, 4, 512, False), Size(256, 8, 2, 1024, 50, 1, 512, False)]
QUICK = [Size(32, 2, 1, 64, 50, 4, 8)], [Size(32, 2, 1, 64, 50, 2, 16, False)]


class NaiveAttention(transformer.MultiHeadAttention):
    """Chapter 3's attention in the reference's place: the whole table of weights is made."""

    def forward(self, query, key=None, value=None, mask=None, *, cache=None, need_weights=False):
        Q = self.split(self.W_q(query))                                # (B, h, n, d_k)
        K, V = self.keys_and_values(query, key, value, cache)          # (B, h, m, d_k)
        scores = Q @ K.transpose(-2, -1) / math.sqrt(self.d_k)         # (B, h, n, m)
        weights = (scores if mask is None else scores.masked_fill(~mask, -torch.inf)).softmax(dim=-1)
        return self.W_o((weights @ V).transpose(1, 2).flatten(2)), weights


class Torchs(transformer.Transformer):
    """nn.Transformer between the reference's embeddings, positions and tied output."""

    def __init__(self, size: Size):
        super().__init__(size.vocab, size.vocab, size.d_model, size.h, 0, size.d_ff, 0.0, PAD, 600, "pre",
                         padded=size.padded)
        self.encoder_norm, self.decoder_norm = None, None              # it has its own
        with warnings.catch_warnings():                                # it says that its fast path is off in pre-LN
            warnings.simplefilter("ignore")
            self.body = nn.Transformer(size.d_model, size.h, size.N, size.N, size.d_ff, 0.0, batch_first=True,
                                       norm_first=True)

    def encode(self, src):
        hidden = src == PAD if self.padded else None
        return self.body.encoder(self.embed(self.src_embedding, src), src_key_padding_mask=hidden)

    def decode(self, tgt, memory, src):
        future = torch.ones(tgt.shape[1], tgt.shape[1], dtype=torch.bool).triu(1)      # True is hidden, here
        hidden, unseen = (tgt == PAD, src == PAD) if self.padded else (None, None)
        x = self.body.decoder(self.embed(self.tgt_embedding, tgt), memory, tgt_mask=future,
                              tgt_is_causal=not self.padded, tgt_key_padding_mask=hidden,
                              memory_key_padding_mask=unseen)
        return self.output(x)


def models(size: Size) -> dict[str, nn.Module]:
    """The three of one size."""
    torch.manual_seed(0)
    ours, naive = (transformer.Transformer(size.vocab, size.vocab, size.d_model, size.h, size.N, size.d_ff, 0.0, PAD,
                                           600, "pre", padded=size.padded) for _ in range(2))
    for part in naive.modules():
        if isinstance(part, transformer.MultiHeadAttention):
            part.__class__ = NaiveAttention
    return {"ours": ours, "naive": naive, "nn": Torchs(size)}


def batch(size: Size) -> tuple[torch.Tensor, torch.Tensor]:
    """Random ids (B, n) and (B, n + 1), up to a quarter of each row padding where the size says so."""
    generator = torch.Generator().manual_seed(1)
    src, tgt = (torch.randint(3, size.vocab, (size.B, n), generator=generator) for n in (size.n, size.n + 1))
    for row in range(size.B) if size.padded else ():
        length = int(torch.randint(math.ceil(0.75 * size.n), size.n + 1, (), generator=generator))
        src[row, length:], tgt[row, length + 1:] = PAD, PAD
    return src, tgt


def cpu_seconds(run: Callable[[], object], times: int) -> float:
    """CPU seconds of one run, of `times` in a row."""
    start = time.process_time()
    for _ in range(times):
        run()
    return (time.process_time() - start) / times


def in_turns(runs: dict[str, Callable[[], object]], rounds: int, least: float) -> dict[str, list[float]]:
    """CPU seconds of each run in each round; in every round all take their turn, for `least` seconds or more."""
    times = {name: max(1, math.ceil(least / cpu_seconds(run, 1))) for name, run in runs.items()}   # and warms them up
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            seconds[name].append(cpu_seconds(run, times[name]))
    return seconds


@dataclass(frozen=True)
class Ratio:
    """How much longer a peer takes than the reference: in each round, where their turns are close in time."""

    rounds: list[float]

    @staticmethod
    def of(seconds: dict[str, list[float]], peer: str, ours: str) -> Ratio:
        return Ratio([theirs / own for theirs, own in zip(seconds[peer], seconds[ours])])

    def __str__(self) -> str:
        return f"{statistics.median(self.rounds):5.2f}x ({min(self.rounds):.2f}-{max(self.rounds):.2f})"


def large_product() -> tuple[Callable[[], object], int]:
    """A product that is as fast as this machine's get, and its multiply-adds."""
    a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
    return lambda: a @ b, 1024**3


def train(size: Size, rounds: int, least: float) -> list[Ratio]:
    """Print a row; the ratios to nn and to naive."""
    ids, runs = batch(size), {}
    for name, model in models(size).items():
        adam = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        runs[name] = lambda model=model, adam=adam: transformer.train_step(model, ids, adam, pad_id=PAD)
    product, multiply_adds = large_product()
    seconds = in_turns({**runs, "product": product}, rounds, least)
    ours = statistics.median(seconds["ours"])
    share = size.multiply_adds() / ours / (multiply_adds / statistics.median(seconds["product"]))
    to_nn, to_naive = (Ratio.of(seconds, peer, "ours") for peer in ("nn", "naive"))
    print(f"{size}  {size.B * size.n / ours:9,.0f} tokens/s   {to_nn} nn   {to_naive} naive   {share:4.0%} of peak",
          flush=True)
    return [to_nn, to_naive]


def decode(size: Size, rounds: int, least: float) -> list[Ratio]:
    """Print a row; the ratios to decoding anew, by the reference itself and by nn.Transformer. No row ends early."""
    made = models(size)
    src = batch(Size(**{**vars(size), "n": 20}))[0]
    runs = {"cached": lambda: transformer.cached_greedy_decode(made["ours"], src, BOS, NEVER, size.n),
            "anew": lambda: transformer.greedy_decode(made["ours"], src, BOS, NEVER, size.n),
            "nn": lambda: transformer.greedy_decode(made["nn"], src, BOS, NEVER, size.n)}
    seconds = in_turns(runs, rounds, least)
    to_anew, to_nn = (Ratio.of(seconds, peer, "cached") for peer in ("anew", "nn"))
    tokens = size.B * size.n / statistics.median(seconds["cached"])
    print(f"{size}  {tokens:9,.0f} tokens/s   {to_anew} anew   {to_nn} nn anew", flush=True)
    return [to_anew, to_nn]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=("training", "decoding"), help="one half")
    parser.add_argument("--quick", action="store_true", help="one small size, to see that it runs")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    training, decoding = QUICK if given.quick else (TRAINING, DECODING)
    training, decoding = training * (given.only != "decoding"), decoding * (given.only != "training")
    least = 0.02 if given.quick else 0.5
    print(f"torch {torch.__version__}, one thread of {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}\ntraining")
    ratios = [ratio for size in training for ratio in train(size, given.rounds, least)]
    print("decoding, greedy; n is the number of positions")
    ratios += [ratio for size in decoding for ratio in decode(size, given.rounds, least)]
    slower = sum(max(ratio.rounds) < 1 for ratio in ratios)
    print(f"slower than a peer in every round: {slower} of {len(ratios)}; load {os.getloadavg()[0]:.1f}")
    return int(slower > 0)


if __name__ == "__main__":
    sys.exit(main())
