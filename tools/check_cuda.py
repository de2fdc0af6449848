"""Check and time on a CUDA device what a machine without one cannot: in under ten minutes, as one table.

    python tools/check_cuda.py                        all of it; exit code 0 if every check passes, else 1
    python tools/check_cuda.py --device cpu --tiny    the same checks on a CPU with a small model, to see that they run

Checked are: the same numbers as on the CPU, bfloat16 near them, each kernel of scaled_dot_product_attention alike,
the compiled model alike, decoders that agree, a step that never waits for the device, a resume. Timed are training by
kernel, compiled, and decoding; peak memory stands beside. What a device cannot do is listed with the reason.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.insert(0, str(Path(__file__).parent.parent / "solutions"))

import checkpoint  # noqa: E402
import numberwords  # noqa: E402
import trainer  # noqa: E402
import transformer  # noqa: E402

from autograder.errors import CourseError  # noqa: E402

PAD, BOS, NEVER = 0, 1, -1
KERNELS = (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION)
BUDGET = 540.0     # seconds; a section that would begin later is left out, and said to be
FULL = {"vocab": 8000, "d_model": 512, "h": 8, "N": 6, "d_ff": 2048, "B": 32, "n": 256, "steps": 10, "written": 256}
TINY = {"vocab": 40, "d_model": 16, "h": 2, "N": 1, "d_ff": 32, "B": 3, "n": 12, "steps": 1, "written": 6}


@dataclass(frozen=True)
class Row:
    """A line of the table: a check passed or failed, or None where it only tells."""

    what: str
    said: str
    passed: bool | None = None

    def __str__(self) -> str:
        return f"| {self.what:44} | {self.said:58} | {({True: 'ok', False: 'FAILED', None: ''})[self.passed]:6} |"


@dataclass(frozen=True)
class Bench:
    """A device, the sizes of the model, and what the sections share."""

    device: torch.device
    size: dict[str, int]

    def model(self, seed: int = 0) -> Any:
        torch.manual_seed(seed)
        s = self.size
        return transformer.Transformer(s["vocab"], s["vocab"], s["d_model"], s["h"], s["N"], s["d_ff"], 0.0, PAD,
                                       max(512, s["written"] + 1), "pre")

    def batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        """On the CPU: ids (B, n) and (B, n + 1), the last rows a quarter padding."""
        s, generator = self.size, torch.Generator().manual_seed(1)
        src, tgt = (torch.randint(3, s["vocab"], (s["B"], n), generator=generator) for n in (s["n"], s["n"] + 1))
        src[s["B"] // 2:, 3 * s["n"] // 4:], tgt[s["B"] // 2:, 3 * s["n"] // 4 + 1:] = PAD, PAD
        return src, tgt

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def seconds(self, run: Callable[[], object]) -> float:
        """Of one run; the device has finished before and after."""
        self.wait()
        start = time.perf_counter()
        run()
        self.wait()
        return time.perf_counter() - start

    def speed(self, forward: Any, net: nn.Module, *, amp: bool) -> str:
        """Tokens a second of training steps, and the peak of memory."""
        adam, batch, steps = torch.optim.AdamW(net.parameters(), lr=1e-4), self.batch(), self.size["steps"]
        wrapped = forward if forward is net else Parametered(forward, net)

        def step() -> None:
            transformer.train_step(wrapped, batch, adam, pad_id=PAD, amp=amp)

        step()
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        rate = self.size["B"] * self.size["n"] * steps / self.seconds(lambda: [step() for _ in range(steps)])
        if self.device.type != "cuda":
            return f"{rate:,.0f} tokens/s"
        return f"{rate:,.0f} tokens/s, peak {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB"

    def loss_and_gradient(self, net: Any, *, amp: bool = False) -> tuple[float, torch.Tensor]:
        """Of the batch, on the model's device; the gradient of the first attention's W_q on the CPU."""
        src, tgt = (ids.to(next(net.parameters()).device) for ids in self.batch())
        tokens = (tgt[:, 1:] != PAD).sum()
        net.zero_grad()
        loss = transformer.add_gradients(net, (src, tgt), tokens, pad_id=PAD, amp=amp) / tokens
        return loss.item(), net.encoder[0].attention.W_q.weight.grad.float().cpu()


class Parametered(nn.Module):
    """A compiled forward pass that has its model's parameters and mode."""

    def __init__(self, forward: Any, net: nn.Module):
        super().__init__()
        self.net, self.run = net, [forward]

    def forward(self, src: torch.Tensor, tgt: torch.Tensor) -> torch.Tensor:
        return self.run[0](src, tgt)


def gap(left: tuple[float, torch.Tensor], right: tuple[float, torch.Tensor]) -> tuple[float, float]:
    """Relative difference of two losses, and of two gradients by their norms."""
    return (abs(left[0] - right[0]) / abs(right[0]), float((left[1] - right[1]).norm() / right[1].norm()))


def agreement(what: str, left: Any, right: Any, most: float) -> Row:
    loss, gradient = gap(left, right)
    return Row(what, f"loss {loss:.1e}, gradient {gradient:.1e} apart, at most {most:.0e}", max(loss, gradient) <= most)


def against_cpu(b: Bench) -> Iterator[Row]:
    """float32 on the device gives the CPU's numbers, bfloat16 comes near."""
    small = Bench(b.device, {**b.size, "B": min(4, b.size["B"]), "n": min(64, b.size["n"])})
    wanted = small.loss_and_gradient(small.model())
    yield agreement("float32 against the CPU", small.loss_and_gradient(small.model().to(b.device)), wanted, 1e-3)
    yield agreement("bfloat16 autocast against float32",
                    small.loss_and_gradient(small.model().to(b.device), amp=True), wanted, 1e-1)


def kernels(b: Bench) -> Iterator[Row]:
    """Each kernel of the fused attention: speed, memory, agreement with the plain one."""
    amp = b.device.type == "cuda"
    plain = None
    for kernel in KERNELS:
        name = f"attention by {kernel.name.lower().removesuffix('_attention')}"
        net = b.model().to(b.device)
        try:
            with sdpa_kernel(kernel):
                got, said = b.loss_and_gradient(net, amp=amp), b.speed(net, net, amp=amp)
        except RuntimeError as problem:
            yield Row(name, f"cannot, with a mask: {str(problem).splitlines()[0][:36]}")
            continue
        plain = plain or got
        yield Row(name, said)
        yield agreement(f"{name}, its numbers", got, plain, 1e-1 if amp else 1e-4)


def compiled(b: Bench, backend: str) -> Iterator[Row]:
    """torch.compile: the same numbers; what it costs and gains."""
    amp, net = b.device.type == "cuda", b.model().to(b.device)
    yield Row("not compiled", b.speed(net, net, amp=amp))
    net = b.model().to(b.device)
    plain = b.loss_and_gradient(net)
    forward = torch.compile(net, backend=backend)
    first: dict[str, Any] = {}
    src, tgt = (ids.to(b.device) for ids in b.batch())
    taken = b.seconds(lambda: first.update(logits=forward(src, tgt[:, :-1])))
    apart = (first["logits"] - net(src, tgt[:, :-1])).abs().max().item()
    yield Row("compiled: logits", f"{apart:.1e} apart, at most 1e-02; first call {taken:.0f} s", apart <= 1e-2)
    tokens = (tgt[:, 1:] != PAD).sum()
    net.zero_grad()
    loss = transformer.add_gradients(forward, (src, tgt), tokens, pad_id=PAD) / tokens
    got = loss.item(), net.encoder[0].attention.W_q.weight.grad.float().cpu()
    yield agreement("compiled: loss and gradient", got, plain, 1e-3)
    yield Row("compiled", b.speed(forward, net, amp=amp))


def decoders(b: Bench) -> Iterator[Row]:
    """All of them say the same on the device; how fast, with a cache and without."""
    net, length = b.model().to(b.device), b.size["written"]
    src = b.batch()[0][:8, :32].to(b.device)
    said = {}
    for decode in (transformer.greedy_decode, transformer.cached_greedy_decode):
        decode(net, src, BOS, NEVER, 2)

        def run(decode: Any = decode) -> None:
            said[decode.__name__] = decode(net, src, BOS, NEVER, length)

        taken = b.seconds(run)
        yield Row(f"{decode.__name__}, {length} positions", f"{len(src) * length / taken:,.0f} tokens/s")
    same = float((said["greedy_decode"] == said["cached_greedy_decode"]).float().mean())
    yield Row("greedy with and without a cache", f"{same:.1%} of the tokens alike, at least 99%", same >= 0.99)
    one, few = src[:1], min(32, length)
    beam = transformer.beam_search(net, one, BOS, NEVER, few, beam=1)
    same = float((beam == transformer.greedy_decode(net, one, BOS, NEVER, few)).float().mean())
    yield Row("beam search of width 1 is greedy", f"{same:.1%} of the tokens alike, at least 99%", same >= 0.99)


def without_waiting(b: Bench) -> Iterator[Row]:
    """A step of forward, backward, clipping and update lets the CPU run ahead of the device."""
    if b.device.type != "cuda":
        yield Row("a step that never waits", "skipped: only CUDA can say when a program waits for it")
        return
    net = b.model().to(b.device)
    adam = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    batch = tuple(ids.to(b.device) for ids in b.batch())
    for mode in ("default", "error"):                                  # the first step may wait, to set up
        torch.cuda.set_sync_debug_mode(mode)
        try:
            transformer.add_gradients(net, batch, 1000, pad_id=PAD, amp=True)
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            adam.step()
        except RuntimeError as problem:
            yield Row("a step that never waits", str(problem).splitlines()[0][:58], False)
            return
        finally:
            torch.cuda.set_sync_debug_mode("default")
    yield Row("a step that never waits", "no read, no copy to the host", True)


def resumed(b: Bench) -> Iterator[Row]:
    """The trainer on the device: stopped, saved, loaded and gone on with, against not stopped."""
    words = numberwords.chapter()
    data = numberwords.task(words, "german", pairs=200, tests=20)
    options = trainer.Options(pairs=200, batch=16, steps=8, log_every=1, dropout=0.1, amp=b.device.type == "cuda")
    alone = trainer.Processes(0, 1, b.device)
    straight = trainer.Run(options, words, data, alone)
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(4):
            straight.advance()
        straight.save(Path(folder) / "run.pt")
        for _ in range(4):
            straight.advance()
        again = trainer.Run(options, words, data, alone)
        again.restore(checkpoint.load(Path(folder) / "run.pt"))
    for _ in range(4):
        again.advance()
    apart = max((x - y).abs().max().item() for x, y in zip(straight.net.parameters(), again.net.parameters()))
    most = 0.0 if b.device.type == "cpu" else 1e-3                     # CUDA adds in an order of its own
    yield Row("resume against no stop", f"weights {apart:.1e} apart, at most {most:.0e}", apart <= most)


def several(b: Bench) -> Iterator[Row]:
    """Two GPUs by torchrun, if there are two."""
    count = torch.cuda.device_count() if b.device.type == "cuda" else 0
    if count < 2:
        yield Row("two processes by nccl", f"skipped: {count} CUDA devices here, two are needed")
        return
    import subprocess
    with tempfile.TemporaryDirectory() as folder:
        losses = []
        for processes in (1, 2):
            log = Path(folder) / f"{processes}.csv"
            subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone",
                            f"--nproc-per-node={processes}", str(Path(trainer.__file__).parent / "train.py"),
                            "--steps=20", "--pairs=500", f"--csv={log}"], check=True, capture_output=True)
            losses.append(float(log.read_text().splitlines()[-1].split(",")[1]))
    apart = abs(losses[0] - losses[1]) / losses[0]
    yield Row("two processes by nccl against one", f"loss {apart:.1e} apart, at most 1e-03", apart <= 1e-3)


def report(b: Bench, backend: str) -> list[Row]:
    """Run every section, print each row as it comes."""
    sections: list[Callable[[], Iterator[Row]]] = [
        lambda: against_cpu(b), lambda: without_waiting(b), lambda: decoders(b), lambda: kernels(b),
        lambda: resumed(b), lambda: several(b), lambda: compiled(b, backend)]
    rows, start = [], time.monotonic()
    for section in sections:
        if time.monotonic() - start > BUDGET:
            rows.append(Row("more", f"left out: {BUDGET:.0f} s are over", False))
            print(rows[-1], flush=True)
            continue
        for row in section():
            rows.append(row)
            print(row, flush=True)
    return rows


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="a small model")
    parser.add_argument("--compile-backend", default="inductor", help="of torch.compile (inductor)")
    given = parser.parse_args(arguments)
    try:
        device = trainer.find_device(given.device, 0)
    except CourseError:
        print(f"error: no CUDA device: torch {torch.__version__} sees none here; run this on a machine that has one",
              file=sys.stderr)
        return 1
    name = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    print(f"{name}, torch {torch.__version__}, sizes {TINY if given.tiny else FULL}\n")
    with contextlib.ExitStack() as stack:
        if device.type == "cuda":                                      # float32 is to mean float32
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
            stack.callback(torch.cuda.empty_cache)
        rows = report(Bench(device, TINY if given.tiny else FULL), given.compile_backend)
    failed = [row.what for row in rows if row.passed is False]
    print(f"\n{sum(row.passed is True for row in rows)} checks passed, {len(failed)} failed{': ' * bool(failed)}"
          f"{', '.join(failed)}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
