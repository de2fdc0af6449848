"""What a check costs: CPU milliseconds of a passing check and of a failing one with its diagnosis.

    python benchmarks/checks.py [EXERCISE ...]

Every answer of the catalogues is checked in turn, seven rounds; printed are the median over rounds of each
exercise's dearest answer, and the share of the design's limits (15 ms passing, 50 ms failing) that it takes.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time

import torch

from autograder.checks import EXERCISES, WrongAnswer, check, trial

LIMITS = {"passing": 15.0, "failing": 50.0}
ROUNDS = 7


def cost(name: str, answer: object) -> float:
    """CPU milliseconds of a first check, which draws the cases; the collector runs before, not in between."""
    trial.cache_clear()
    gc.collect()
    gc.disable()
    start = time.process_time()
    try:
        check(name, answer)
    except WrongAnswer:
        pass
    finally:
        gc.enable()
    return 1000 * (time.process_time() - start)


def dearest(name: str, entries: list) -> tuple[float, str]:
    medians = [(statistics.median(cost(name, e.answer) for _ in range(ROUNDS)), e.kind) for e in entries]
    return max(medians)


def main(names: list[str]) -> int:
    torch.set_num_threads(1)
    over = 0
    print(f"{'exercise':34} {'passing':>9} {'of 15 ms':>9}   {'failing':>9} {'of 50 ms':>9}   dearest failing answer")
    for name in names or EXERCISES:
        exercise = EXERCISES[name]
        passing, _ = dearest(name, exercise.right)
        failing, kind = dearest(name, exercise.wrong)
        shares = passing / LIMITS["passing"], failing / LIMITS["failing"]
        over += any(share > 1 for share in shares)
        print(f"{name:34} {passing:7.1f}ms {shares[0]:9.0%}   {failing:7.1f}ms {shares[1]:9.0%}   {kind}")
    print(f"{over} of {len(names or EXERCISES)} exercises over a limit")
    return int(over > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
