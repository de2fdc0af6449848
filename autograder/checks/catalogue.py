"""How a catalogue is written: one function of the exercise's name after another, each marked right or wrong."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from autograder.judge import Entry

WRONG: dict[str, list[Entry]] = defaultdict(list)
RIGHT: dict[str, list[Entry]] = defaultdict(list)


def wrong(kind: str, message: str) -> Callable[[Any], Any]:
    """Mark an answer as a known mistake: its kind, and what the learner is told."""
    return lambda answer: _enter(WRONG, answer, Entry(kind, message, answer, _source(answer)))


def right(kind: str) -> Callable[[Any], Any]:
    """Mark an answer as right: it must get full marks, however unusual."""
    return lambda answer: _enter(RIGHT, answer, Entry(kind, "", answer, _source(answer)))


def _enter(catalogue: dict[str, list[Entry]], answer: Any, entry: Entry) -> Any:
    entries = catalogue[answer.__name__]
    if any(entry.kind == other.kind for other in entries):
        raise ValueError(f"{answer.__name__}: two entries of kind '{entry.kind}'")
    entries.append(entry)
    return answer


def _source(answer: Any) -> str:
    """The text a learner would have typed: the definition without its mark."""
    text = textwrap.dedent(inspect.getsource(answer))
    node = ast.parse(text).body[0]
    return "".join(text.splitlines(keepends=True)[node.lineno - 1 :])
