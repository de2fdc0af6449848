"""A training run of the number-words task: one process or several, step by step, and back from a checkpoint exactly."""

import dataclasses
import math
import os
import random
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import checkpoint
import numpy as np
import torch
import transformer
from numberwords import Task
from torch import distributed, nn

from autograder.errors import CourseError


def option(default: Any, words: str, *, fixed: bool = False, **more: Any) -> Any:
    """A field of Options with the help of its command-line option; a fixed one stays as it is over a resume."""
    return field(default=default, metadata={"help": words, "fixed": fixed, **more})


@dataclass(frozen=True)
class Options:
    """What a run is made of. Defaults are chapter 8's translator."""

    language: str = option("german", "translate English into this", fixed=True, choices=("german", "french"))
    pairs: int = option(25_000, "training pairs, at most 25000", fixed=True)
    d_model: int = option(64, "features", fixed=True)
    heads: int = option(4, "heads, which divide the features", fixed=True)
    layers: int = option(2, "blocks in the encoder and in the decoder", fixed=True)
    d_ff: int = option(256, "width of the feed-forward networks", fixed=True)
    norm: str = option("pre", "where the norms stand (post: halve --peak, double --warmup)", fixed=True,
                       choices=("pre", "post"))
    dropout: float = option(0.0, "dropout", fixed=True)
    batch: int = option(64, "pairs a step, over all processes", fixed=True)
    accumulate: int = option(1, "parts that each process cuts its share of the batch into", fixed=True)
    peak: float = option(2e-3, "highest learning rate", fixed=True)
    warmup: int = option(100, "steps up to it; then it falls with the root of the step (Noam)", fixed=True)
    cool: bool = option(True, "let the rate fall to 0 over the second half of --steps, as the chapter does; a run that "
                              "may grow longer needs --no-cool", fixed=True)
    smoothing: float = option(0.1, "label smoothing", fixed=True)
    clip: float = option(1.0, "largest norm of the gradient", fixed=True)
    seed: int = option(0, "weights, dropout and data order", fixed=True)
    log_every: int = option(10, "steps that a row of the log sums up", fixed=True)
    amp: bool = option(False, "bfloat16 autocast in the forward pass", fixed=True)
    compile: bool = option(False, "torch.compile the model (batches then keep one width)", fixed=True)
    steps: int = option(300, "steps in all, those before a resume included")
    device: str = option("auto", "where to train", choices=("auto", "cpu", "cuda", "mps"))
    threads: int = option(1, "threads on a CPU; small models are slower with more")
    csv: Path | None = option(None, "log with a row every --log-every steps", metavar="FILE")   # torchrun takes --log
    checkpoint: Path | None = option(None, "file to write the run to, every --save-every steps and at the end",
                                     metavar="FILE")
    save_every: int = option(100, "steps between two checkpoints")
    resume: Path | None = option(None, "go on from this checkpoint, with its options, and write to it unless "
                                       "--checkpoint names another", metavar="FILE")

    def checked(self, processes: int) -> "Options":
        """Itself; CourseError where a value makes no sense."""
        whole = ("pairs", "d_model", "heads", "layers", "d_ff", "batch", "accumulate", "warmup", "log_every",
                 "save_every", "threads")
        for name in (*whole, "peak", "clip"):
            if getattr(self, name) <= 0:
                raise CourseError(f"--{name.replace('_', '-')} {getattr(self, name)}: must be above 0")
        if self.d_model % self.heads or self.d_model % 2:
            raise CourseError(f"--d-model {self.d_model}: must be even and a multiple of --heads {self.heads}")
        if self.pairs > 25_000:
            raise CourseError(f"--pairs {self.pairs}: there are 25000; ask for fewer")
        if self.steps < 0 or not (0 <= self.dropout < 1 and 0 <= self.smoothing < 1):
            raise CourseError("--steps must be 0 or more, --dropout and --smoothing in [0, 1)")
        for path in (self.csv, self.checkpoint):
            if path is not None and not (path.parent.is_dir() and os.access(path.parent, os.W_OK)):
                raise CourseError(f"{path}: its folder is not there or cannot be written to; make it or name another")
        if self.batch < processes:
            raise CourseError(f"--batch {self.batch}: {processes} processes share it; give each a pair at least")
        return self

    @classmethod
    def fixed(cls) -> list[str]:
        """The names of what a resumed run may not change."""
        return [one.name for one in dataclasses.fields(cls) if one.metadata["fixed"]]


@dataclass(frozen=True)
class Processes:
    """This process among those that train together; torchrun starts them, and alone there is one."""

    rank: int
    count: int
    device: torch.device

    @classmethod
    def join(cls, wanted: str) -> "Processes":
        """Find the device, and the others: by nccl on CUDA, by gloo elsewhere."""
        rank, count, local = (int(os.environ.get(name, default)) for name, default in
                              (("RANK", 0), ("WORLD_SIZE", 1), ("LOCAL_RANK", 0)))
        device = find_device(wanted, local)
        if device.type == "cuda":
            torch.cuda.set_device(device)
        if count > 1:
            distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
        return cls(rank, count, device)

    def leave(self) -> None:
        if self.count > 1:
            distributed.destroy_process_group()

    def total(self, value: torch.Tensor) -> torch.Tensor:
        """The sum over all processes; `value` keeps its own."""
        value = value.clone()
        if self.count > 1:
            distributed.all_reduce(value)
        return value

    def add_up_gradients(self, net: nn.Module) -> None:
        """Every process gets the sum of all gradients, in one message."""
        if self.count > 1:
            gradients = [one.grad for one in net.parameters() if one.grad is not None]
            whole = self.total(torch.cat([one.flatten() for one in gradients]))
            for gradient, part in zip(gradients, whole.split([one.numel() for one in gradients])):
                gradient.copy_(part.view_as(gradient))

    def gather(self, thing: Any) -> list[Any]:
        """Everybody's thing, in the order of the ranks."""
        things = [thing] * self.count
        if self.count > 1:
            distributed.all_gather_object(things, thing)
        return things


def find_device(wanted: str, local: int) -> torch.device:
    """The device that was asked for, or with auto the best; CourseError where there is none."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    kind = next(name for name, is_there in there.items() if is_there) if wanted == "auto" else wanted
    if not there[kind]:
        raise CourseError(f"--device {kind}: this machine or this build of torch has none; use --device auto")
    if kind == "cuda" and local >= torch.cuda.device_count():
        raise CourseError(f"process {local} finds {torch.cuda.device_count()} GPUs; start no more processes than GPUs")
    return torch.device(kind, local) if kind == "cuda" else torch.device(kind)


class Run:
    """Model, optimizer, data order and step count: all that a checkpoint holds, and the step that moves them on."""

    def __init__(self, options: Options, words: Any, data: Task, processes: Processes):
        self.options, self.words, self.data, self.processes = options, words, data, processes
        random.seed(options.seed)
        np.random.seed(options.seed)
        torch.manual_seed(options.seed)                                # every process makes the same weights
        self.net = transformer.Transformer(
            len(data.source_ids), len(data.target_ids), options.d_model, options.heads, options.layers, options.d_ff,
            options.dropout, words.PAD, max_len=32, norm=options.norm).to(processes.device)
        if processes.rank:
            torch.manual_seed(options.seed + 1_000_003 * processes.rank)    # but drops its own features
        self.forward = torch.compile(self.net) if options.compile else self.net
        fused = processes.device.type in ("cuda", "cpu")
        self.adam = torch.optim.AdamW(self.net.parameters(), betas=(0.9, 0.98), eps=1e-9, fused=fused)
        self.order = torch.Generator().manual_seed(options.seed)
        self.step, self.seen, self.seconds = 0, 0, 0.0
        self.loss, self.labels = torch.zeros((), device=processes.device), 0    # since the last row of the log

    def batch(self) -> tuple[tuple[torch.Tensor, torch.Tensor], int]:
        """This process's share of the next batch, and the number of labels in all of it."""
        src, tgt = self.words.draw_batch(self.data.train, self.order, self.options.batch)
        labels = int((tgt[:, 1:] != self.words.PAD).sum())
        if self.options.compile:                                       # one shape, one compilation
            src, tgt = (nn.functional.pad(ids, (0, whole.shape[1] - ids.shape[1]), value=self.words.PAD)
                        for ids, whole in zip((src, tgt), self.data.train))
        mine = slice(self.processes.rank, None, self.processes.count)
        return (src[mine].to(self.processes.device), tgt[mine].to(self.processes.device)), labels

    def rate(self) -> float:
        """The learning rate of this step: Noam's shape with a peak of its own, cooled at the end."""
        o = self.options
        shape = (transformer.noam_rate(self.step, o.d_model, o.warmup)
                 / transformer.noam_rate(o.warmup, o.d_model, o.warmup))
        return o.peak * (min(shape, 2 * (1 - self.step / o.steps)) if o.cool else shape)

    def advance(self) -> dict[str, float] | None:
        """One step; at the end of an interval what the log says about it."""
        o, start = self.options, time.perf_counter()
        self.step += 1
        rate = self.rate()
        self.adam.param_groups[0]["lr"] = rate
        batch, labels = self.batch()
        self.net.train()
        self.adam.zero_grad(set_to_none=True)
        self.loss += transformer.add_gradients(self.forward, batch, labels, pad_id=self.words.PAD, parts=o.accumulate,
                                               smoothing=o.smoothing, amp=o.amp)
        self.processes.add_up_gradients(self.net)
        norm = nn.utils.clip_grad_norm_(self.net.parameters(), o.clip)
        self.adam.step()
        self.labels, self.seen = self.labels + labels, self.seen + labels
        row = None
        if self.step % o.log_every == 0:                               # the only reads from the device
            row = {"step": self.step, "loss": self.processes.total(self.loss).item() / self.labels, "rate": rate,
                   "gradient_norm": norm.item(), "labels": self.seen}
            self.loss, self.labels = torch.zeros_like(self.loss), 0
            if not math.isfinite(row["loss"]):
                raise CourseError(f"step {self.step}: the loss is {row['loss']}; lower --peak or raise --warmup")
        self.seconds += time.perf_counter() - start
        return row and {**row, "seconds": round(self.seconds, 3)}

    def save(self, path: Path) -> None:
        """Write all of it; every process takes part, the first one writes."""
        mine = {"random": checkpoint.random_states(self.processes.device), "loss": self.loss.cpu()}
        everybody = self.processes.gather(mine)
        if self.processes.rank == 0:
            options = {name: getattr(self.options, name) for name in (*Options.fixed(), "steps")}
            checkpoint.save(path, {
                "options": options, "step": self.step, "seen": self.seen, "seconds": self.seconds,
                "labels": self.labels, "model": self.net.state_dict(), "optimizer": self.adam.state_dict(),
                "order": self.order.get_state(), "everybody": everybody})

    def restore(self, state: dict[str, Any]) -> None:
        """Become the run that was saved; CourseError where it had another number of processes."""
        if len(state["everybody"]) != self.processes.count:
            raise CourseError(f"the checkpoint is of {len(state['everybody'])} processes, these are "
                              f"{self.processes.count}; start as many")
        self.net.load_state_dict(state["model"])
        self.adam.load_state_dict(state["optimizer"])
        self.order.set_state(state["order"])
        self.step, self.seen, self.labels = state["step"], state["seen"], state["labels"]
        self.seconds = state["seconds"]
        mine = state["everybody"][self.processes.rank]
        self.loss = mine["loss"].to(self.processes.device)
        checkpoint.set_random_states(mine["random"], self.processes.device)
