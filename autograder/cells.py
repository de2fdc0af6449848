"""What a cell of an nbgrader notebook is, and a learner's file read as a notebook of plain cells."""

import json
import re
from typing import Any

import nbformat
from nbformat import NotebookNode

from autograder.errors import CourseError

# What generate_assignment takes out of a cell before a learner gets it.
SECRET = re.compile(r"^[^\n]*\bBEGIN (HIDDEN TESTS|MARK SCHEME)\b.*?\bEND \1\b[^\n]*(?:\n|\Z)", re.S | re.M)
# Our tags of cells that nothing graded depends on; the tag of cells that a learner added.
SKIPPED = frozenset({"demo", "try"})
ADDED = "added"
# More than a learner writes; what is done with a notebook takes time that grows with it.
MOST_CELLS, MOST_TEXT = 2000, 2_000_000
_MAKE = {
    "code": nbformat.v4.new_code_cell,
    "markdown": nbformat.v4.new_markdown_cell,
    "raw": nbformat.v4.new_raw_cell,
}


class Refused(CourseError):
    """A submission that can't be graded as it is; the text is the reason."""


def grade_id(cell: NotebookNode) -> str:
    """nbgrader's name of a cell, "" where it has none or one that is no text."""
    meta = cell.metadata.get("nbgrader", {})
    name = meta.get("grade_id", "") if isinstance(meta, dict) else ""
    return name if isinstance(name, str) else ""


def _flag(cell: NotebookNode, name: str) -> bool:
    return bool(grade_id(cell)) and bool(cell.metadata["nbgrader"].get(name, False))


def is_answer(cell: NotebookNode) -> bool:
    """Does the learner write here? True of answers in code and of written ones."""
    return _flag(cell, "solution")


def is_graded(cell: NotebookNode) -> bool:
    """Has this cell points, given by a test or by hand?"""
    return _flag(cell, "grade") or _flag(cell, "task")


def is_tests(cell: NotebookNode) -> bool:
    """Does this cell give its points by being run?"""
    return _flag(cell, "grade") and not is_answer(cell) and cell.cell_type == "code"


def points(cell: NotebookNode) -> float:
    """The most that a graded cell can give."""
    return float(cell.metadata["nbgrader"].get("points", 0))


def tags(cell: NotebookNode) -> set[str]:
    """The cell's tags."""
    found = cell.metadata.get("tags", [])
    return {tag for tag in found if isinstance(tag, str)} if isinstance(found, list) else set()


def is_added(cell: NotebookNode) -> bool:
    """Is this a cell of a rebuilt notebook that the learner added?"""
    return ADDED in tags(cell) and not grade_id(cell)


def is_skipped(cell: NotebookNode) -> bool:
    """Is this a cell of ours that grading passes over?"""
    return bool(SKIPPED & tags(cell)) and not is_graded(cell)


def released(cell: NotebookNode) -> str:
    """The text of our cell as the learner got it: without hidden tests and mark scheme."""
    return same_text(SECRET.sub("", cell.source))


def same_text(text: str) -> str:
    """Text without what an editor changes by itself: line ends and the space before them."""
    return "\n".join(line.rstrip() for line in text.splitlines()).strip()


def new_cell(kind: str, text: str) -> NotebookNode:
    """A fresh cell of that type."""
    return _MAKE[kind](text)


# ---- reading a learner's file -----------------------------------------------------------------------------------


def parse(raw: bytes) -> NotebookNode:
    """A learner's file as a notebook of plain cells: text, id, metadata, attachments. `Refused` where it is none."""
    if not raw.strip():
        raise Refused("the file is empty; ask for the notebook again")
    try:
        data = json.loads(raw.decode("utf-8-sig"))
    except (ValueError, RecursionError) as problem:
        where = f"line {problem.lineno}" if isinstance(problem, json.JSONDecodeError) else "not text"
        raise Refused(f"the file is no notebook: its JSON is damaged or cut off ({where}); ask for it again") from None
    cells = _cells_of(data)
    if not cells:
        raise Refused("the notebook has no cells; ask for it again")
    length = sum(len(cell.source) for cell in cells)
    if len(cells) > MOST_CELLS or length > MOST_TEXT:
        raise Refused(f"the notebook has {len(cells)} cells and {length} characters of text, which nobody can have "
                      f"written; at most {MOST_CELLS} and {MOST_TEXT} are graded")
    meta = data["metadata"] if isinstance(data.get("metadata"), dict) else {}
    # Made by hand: nbformat would draw new ids where two are the same.
    return nbformat.from_dict({"nbformat": 4, "nbformat_minor": 5, "metadata": meta, "cells": cells})


def _cells_of(data: Any) -> list[NotebookNode]:
    if isinstance(data, dict) and isinstance(data.get("worksheets"), list):
        try:
            data = nbformat.convert(nbformat.from_dict(data), 4)
        except Exception:  # an old notebook may be broken in any way
            raise Refused("the notebook's old format can't be converted; save it anew in JupyterLab") from None
    if not isinstance(data, dict) or not isinstance(data.get("cells"), list):
        raise Refused("the file is JSON but no notebook: it has no list of cells; ask for it again")
    return [cell for item in data["cells"] if (cell := _plain_cell(item)) is not None]


def _plain_cell(item: Any) -> NotebookNode | None:
    if not isinstance(item, dict) or item.get("cell_type") not in _MAKE:
        return None
    cell = new_cell(item["cell_type"], _text_of(item.get("source", "")))
    if isinstance(item.get("metadata"), dict):
        cell.metadata = nbformat.from_dict(item["metadata"])
    cell["id"] = item["id"] if isinstance(item.get("id"), str) else ""
    if _are_attachments(item.get("attachments")):
        cell["attachments"] = nbformat.from_dict(item["attachments"])
    return cell


def _text_of(source: Any) -> str:
    text = "".join(part for part in source if isinstance(part, str)) if isinstance(source, list) else source
    # A lone surrogate, which JSON can hold, could be written to no file.
    return text.encode("utf-8", "replace").decode() if isinstance(text, str) else ""


def _are_attachments(found: Any) -> bool:
    return isinstance(found, dict) and all(
        isinstance(files, dict) and all(isinstance(data, str) for data in files.values()) for files in found.values()
    )
