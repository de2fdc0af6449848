"""How a catalogue is written: one function of the exercise's name after another, each marked right or wrong."""

from __future__ import annotations

import ast
import bisect
import functools
import inspect
import sys
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
    """The text a learner would have typed: the definition without its mark.

    Several of one name stand in a module: the line of the code, for a class of one of its methods, tells which it is.
    """
    methods = [value for value in vars(answer).values() if inspect.isfunction(value)] if inspect.isclass(answer) else []
    line = min(value.__code__.co_firstlineno for value in methods or [answer])
    lines, starts, nodes = _module(answer.__module__)
    node = nodes[bisect.bisect_right(starts, line) - 1]
    return "".join(lines[node.lineno - 1 : node.end_lineno])


@functools.cache
def _module(name: str) -> tuple[list[str], list[int], list[ast.stmt]]:
    """Lines of a module; where its statements begin, marks included; the statements. Parsed once: it has hundreds."""
    text = inspect.getsource(sys.modules[name])
    body = trees.parse(text).body
    starts = [min([node.lineno, *(mark.lineno for mark in getattr(node, "decorator_list", ()))]) for node in body]
    return text.splitlines(keepends=True), starts, body
