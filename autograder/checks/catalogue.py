"""How a catalogue is written: one function of the exercise's name after another, each marked right or wrong."""

from __future__ import annotations

import ast
import functools
import inspect
import sys
import textwrap
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from autograder import trees
from autograder.judge import Entry

WRONG: dict[str, list[Entry]] = defaultdict(list)
RIGHT: dict[str, list[Entry]] = defaultdict(list)


def wrong(kind: str, message: str) -> Callable[[Any], Any]:
    """Mark an answer as a known mistake: its kind, and what the learner is told."""
    return lambda answer: _enter(WRONG, answer, Entry(kind, message, answer, _source(answer)))


def right(kind: str) -> Callable[[Any], Any]:
    """Mark an answer as right: it must get full marks, however unusual."""
    return lambda answer: _enter(RIGHT, answer, Entry(kind, "", answer, _source(answer)))


def changed(base: Any, kind: str, message: str, *edits: tuple[str, str]) -> None:
    """Enter a copy of an answer as a known mistake: each edit (old, new) replaces a text that `base` has once."""
    text = _source(base)
    for old, new in edits:
        if text.count(old) != 1:
            raise ValueError(f"{base.__name__}, '{kind}': the text to change is there {text.count(old)} times: {old!r}")
        text = text.replace(old, new)
    names = dict(vars(sys.modules[base.__module__]))
    exec(compile(text, f"<{base.__name__}: {kind}>", "exec"), names)  # our own text, from this catalogue
    answer = names[base.__name__]
    _enter(WRONG, answer, Entry(kind, message, answer, text))


def _enter(catalogue: dict[str, list[Entry]], answer: Any, entry: Entry) -> Any:
    entries = catalogue[answer.__name__]
    if any(entry.kind == other.kind for other in entries):
        raise ValueError(f"{answer.__name__}: two entries of kind '{entry.kind}'")
    entries.append(entry)
    return answer


def _source(answer: Any) -> str:
    """The text a learner would have typed: the definition without its mark."""
    text = _class_text(answer) if inspect.isclass(answer) else textwrap.dedent(inspect.getsource(answer))
    node = trees.parse(text).body[0]
    return "".join(text.splitlines(keepends=True)[node.lineno - 1 :])


def _class_text(answer: Any) -> str:
    """Of several classes of one name `inspect` finds the first; the line of a method tells which one it is."""
    line = min(value.__code__.co_firstlineno for value in vars(answer).values() if inspect.isfunction(value))
    text, body = _module(answer.__module__)
    node = next(node for node in body if node.lineno <= line <= (node.end_lineno or node.lineno))
    return "".join(text.splitlines(keepends=True)[node.lineno - 1 : node.end_lineno])


@functools.cache
def _module(name: str) -> tuple[str, list[ast.stmt]]:
    text = inspect.getsource(sys.modules[name])
    return text, trees.parse(text).body
