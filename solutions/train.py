"""Train the course's Transformer on chapter 8's number words, from the command line.

    python solutions/train.py                                            chapter 8's German translator
    python solutions/train.py --checkpoint run.pt --csv run.csv          with something to come back to
    python solutions/train.py --resume run.pt --csv run.csv              go on, as if it had never stopped
    torchrun --nproc-per-node 2 solutions/train.py --batch 256           two processes, one batch
"""

import argparse
import contextlib
import csv
import dataclasses
import io
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import checkpoint
import numberwords
import torch
import transformer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from trainer import Options, Processes, Run

from autograder.errors import CourseError

COLUMNS = ("step", "loss", "rate", "gradient_norm", "labels", "seconds")


def parser() -> argparse.ArgumentParser:
    """One option for each field of Options; what is not given does not appear in the result."""
    made = argparse.ArgumentParser(prog="train.py", description=__doc__, argument_default=argparse.SUPPRESS,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)
    for one in dataclasses.fields(Options):
        kind: dict[str, Any] = {"action": argparse.BooleanOptionalAction} if one.type is bool else {
            "type": Path if one.type == Path | None else one.type}
        more = {name: value for name, value in one.metadata.items() if name not in ("help", "fixed")}
        default = "" if one.type is bool or one.default is None else f" ({one.default})"
        made.add_argument(f"--{one.name.replace('_', '-')}", help=one.metadata["help"] + default, **kind, **more)
    return made


def chosen(given: dict[str, Any], saved: dict[str, Any] | None) -> Options:
    """Defaults, then the checkpoint's options, then those given; CourseError where the last two contradict."""
    if saved is None:
        return Options(**given)
    known = saved["options"]
    if set(known) != {*Options.fixed(), "steps"}:
        raise CourseError(f"{given['resume']}: was written by another version of this trainer; train anew")
    may_differ = set() if known["cool"] else {"steps"}
    if other := [name for name in known if given.get(name, known[name]) != known[name] and name not in may_differ]:
        said = ", ".join(f"--{name.replace('_', '-')} {given[name]} (it has {known[name]})" for name in other)
        raise CourseError(f"{given['resume']}: a resumed run keeps its options, but you gave {said}; leave it out")
    return Options(**{"checkpoint": given["resume"], **known, **given})


class Log:
    """The rows of a run so far, in a CSV file: a row is whole or not there, and none is of a step still to come."""

    def __init__(self, path: Path | None, done: int):
        self.path = path
        if path is None:
            return
        rows = []
        if done and path.is_file():
            with path.open(newline="", encoding="utf-8") as file:
                rows = [row for row in csv.DictReader(file)
                        if None not in row.values() and row.get("step", "").isdigit() and int(row["step"]) <= done]
        text = io.StringIO(newline="")
        table = csv.DictWriter(text, COLUMNS, extrasaction="ignore")
        table.writeheader()
        table.writerows(rows)
        checkpoint.write_whole(path, lambda file: file.write(text.getvalue().encode()))

    def add(self, row: dict[str, float]) -> None:
        if self.path is not None:
            with self.path.open("a", newline="", encoding="utf-8") as file:
                csv.DictWriter(file, COLUMNS).writerow(row)


@contextlib.contextmanager
def progress(run: Run) -> Iterator[Callable[[dict[str, float] | None], None]]:
    """A bar with an ETA on a terminal, a line every tenth elsewhere; yields what to call after each step."""
    console, steps, first = Console(stderr=True), run.options.steps, run.step
    if run.processes.rank:
        yield lambda row: None
        return
    bar = Progress(TextColumn("training"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[loss]}"),
                   TimeElapsedColumn(), TextColumn("ETA"), TimeRemainingColumn(), console=console, transient=True,
                   disable=not console.is_terminal)
    with bar:
        task = bar.add_task("", total=steps, completed=first, loss="")

        def watch(row: dict[str, float] | None) -> None:
            tenths = [step * 10 // steps for step in (run.step - run.options.log_every, run.step)]
            if row and not console.is_terminal and tenths[0] < tenths[1]:
                left = run.seconds / run.step * (steps - run.step)
                print(f"step {run.step} of {steps}  loss {row['loss']:.3f}  ETA {left:.0f} s", file=sys.stderr)
            bar.update(task, completed=run.step)
            if row:
                bar.update(task, loss=f"loss {row['loss']:.3f}")
        yield watch


def train(run: Run, log: Log) -> None:
    """Step until all steps are done; log and checkpoint on the way."""
    o = run.options
    with progress(run) as watch:
        while run.step < o.steps:
            row = run.advance()
            if row and run.processes.rank == 0:
                log.add(row)
            if o.checkpoint and (run.step % o.save_every == 0 or run.step == o.steps):
                run.save(o.checkpoint)
            watch(row)


def report(run: Run) -> None:
    """Say how well the model does, on the first process."""
    rate = f", {run.seen / run.seconds:,.0f} labels a second" if run.seconds else ""
    print(f"{run.step} steps, {run.seen:,} labels{rate}, on {run.processes.count} x {run.processes.device}")
    found = numberwords.metrics(run.words, run.net, run.data.tests, transformer.cached_greedy_decode)
    leaks = found.pop("leaks")
    for name, (forced, exact) in found.items():
        print(f"{name:18} teacher-forced {forced:.4f}   greedy exact match {exact:.4f}")
    print(f"{'leak test':18} {'a later word changes what was said before it' if leaks else 'nothing leaks'}")


def run_all(given: dict[str, Any]) -> None:
    """The whole command. The log of a resumed run is cut back to the checkpoint's step before it goes on."""
    saved = checkpoint.load(given["resume"]) if "resume" in given else None
    options = chosen(given, saved)
    processes = Processes.join(options.device)
    try:
        options.checked(processes.count)
        torch.set_num_threads(options.threads)
        torch.set_flush_denormal(True)
        words = numberwords.chapter()
        run = Run(options, words, numberwords.task(words, options.language, pairs=options.pairs), processes)
        if saved is not None:
            run.restore(saved)
        train(run, Log(options.csv if processes.rank == 0 else None, run.step))
        if processes.rank == 0:
            report(run)
    finally:
        processes.leave()


def main(arguments: list[str] | None = None) -> int:
    """Exit code: 0, 1 for what the caller can mend, 130 when interrupted."""
    try:
        run_all(vars(parser().parse_args(arguments)))
    except CourseError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return problem.exit_code
    except torch.OutOfMemoryError:
        print("error: the device is out of memory; raise --accumulate, or lower --batch or the model", file=sys.stderr)
        return 1
    except RuntimeError as problem:
        if not type(problem).__module__.startswith(("torch._dynamo", "torch._inductor")):
            raise
        reason = " ".join([line.strip() for line in str(problem).splitlines() if line.strip()][:2])
        print(f"error: torch can't compile the model here ({reason[:200]}); install a C++ compiler (for CUDA also "
              "Triton), or leave --compile out", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("error: interrupted; --resume goes on from the last checkpoint", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
