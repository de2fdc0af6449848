"""Chapter 8's task for programs: numbers in words, what is trained on, and the numbers that judge a model.

Grammar, vocabulary, batches and metrics are those of the chapter: its cells are run, nothing is written twice.
"""

import ast
import functools
import math
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from autograder import source
from autograder.course import Project
from autograder.errors import CourseError

CHAPTER = "08_transformer"
NEEDED = {"english", "german", "french", "vocabulary", "as_pairs", "draw_batch", "teacher_forced", "exact_match",
          "leaks"}
Pairs = tuple[torch.Tensor, torch.Tensor]      # source ids (B, m), target ids (B, n); each target row begins with <s>


@dataclass(frozen=True)
class Task:
    """One language: its vocabularies, training pairs, and a set of test pairs for each way of being unseen."""

    source_ids: dict[str, int]
    target_ids: dict[str, int]
    train: Pairs
    tests: dict[str, Pairs]


@functools.cache
def chapter() -> SimpleNamespace:
    """All that the chapter's cells define which define one of NEEDED."""
    names: dict[str, Any] = {"torch": torch, "np": np, "F": F, "nn": nn, "math": math, "print": lambda *words: None}
    for cell in source.load(Project.find(Path(__file__)), CHAPTER).cells:
        if cell.cell_type == "code" and NEEDED & {getattr(node, "name", "") for node in ast.parse(cell.source).body}:
            exec(cell.source, names)                                   # our own file
    if missing := NEEDED - set(names):
        raise CourseError(f"solutions/{CHAPTER}.md: no cell defines {min(missing)}; correct NEEDED in numberwords.py")
    return SimpleNamespace(**names)


def task(words: SimpleNamespace, language: str, *, pairs: int = 25_000, tests: int = 300) -> Task:
    """The chapter's splits: unseen numbers, unseen three-digit groups, pairs of tens and units never seen."""
    draw, never = np.random.default_rng(8), {77, 81, 92, 97}
    held_out = set(draw.choice(np.arange(1, 1000), 100, replace=False).tolist())
    numbers = draw.choice(1_000_000, 60_000, replace=False).tolist()
    has_group = {n for n in numbers if {n % 1000, n // 1000} & held_out}
    has_pair = {n for n in numbers if {n % 100, n // 1000 % 100} & never}
    known = [n for n in numbers if n not in has_group and n not in has_pair]
    say = getattr(words, language)
    ids = words.vocabulary(say)
    chosen = {"unseen numbers": known[25_000:25_300][:tests],
              "unseen groups": sorted(has_group - has_pair)[:9_000:45][:tests],
              "pairs never seen": sorted(has_pair - has_group)[:3_200:16][:tests]}
    return Task(words.source_ids, ids, words.as_pairs(known[:pairs], say, ids),
                {name: words.as_pairs(some, say, ids) for name, some in chosen.items()})


def metrics(words: SimpleNamespace, net: nn.Module, tests: dict[str, Pairs], decode: Any) -> dict[str, Any]:
    """Teacher-forced accuracy and greedy exact match on each test set, and whether the model sees the future."""
    device = next(net.parameters()).device
    tests = {name: (src.to(device), tgt.to(device)) for name, (src, tgt) in tests.items()}
    return {name: (words.teacher_forced(net, pairs), words.exact_match(decode, net, pairs))
            for name, pairs in tests.items()} | {"leaks": words.leaks(net, tests["unseen numbers"])}
