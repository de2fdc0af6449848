"""What a cell of an nbgrader notebook is, and a learner's file read as a notebook of plain cells."""

import functools
import json
import re
import uuid
from collections.abc import Callable
from itertools import takewhile
from typing import Any

import nbformat
from nbformat import NotebookNode

from autograder.errors import CourseError

# What generate_assignment takes out of a cell before a learner gets it.
SECRET = re.compile(r"^[^\n]*\bBEGIN (HIDDEN TESTS|MARK SCHEME)\b.*?\bEND \1\b[^\n]*(?:\n|\Z)", re.S | re.M)
# What it puts in place of an answer; releases differ in what the exception says.
_STUB = re.compile(r"^([ \t]*# YOUR CODE HERE\n[ \t]*raise NotImplementedError)\(.*\)$", re.M)
# Our tags of cells that nothing graded depends on; the tag of cells that a learner added.
SKIPPED = frozenset({"demo", "try"})
ADDED = "added"
# More than a learner writes; what is done with a notebook takes time that grows with it.
MOST_CELLS, MOST_TEXT = 2000, 2_000_000
MOST_PARTS = 300  # of the metadata of a cell or notebook: each is made an object of ours, and copied again and again
MOST_JSON = 2_000_000  # dicts and lists in a file
_DEPTH = 30  # of nested values
_KINDS = frozenset({"code", "markdown", "raw"})


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


def written_beside(notebook: NotebookNode, place: int) -> list[str]:
    """The text of this cell, and those of cells that the learner added next to it."""
    cells = notebook.cells
    beside = [*takewhile(is_added, cells[place + 1 :]), *takewhile(is_added, cells[:place][::-1])]
    return [cells[place].source, *(cell.source for cell in beside if cell.cell_type != "code")]


def released(cell: NotebookNode) -> str:
    """The text of our cell as the learner got it: without hidden tests and mark scheme."""
    return _released(cell.source)


@functools.lru_cache(maxsize=2048)  # every submission asks for those of its chapter, several times
def _released(text: str) -> str:
    return same_text(SECRET.sub("", text))


def same_text(text: str) -> str:
    """Text without what is no change of it: line ends, the space before them, and the words of a stub."""
    text = "\n".join(line.rstrip() for line in text.splitlines()).strip()
    return _STUB.sub(r"\1()", text)


def new_cell(kind: str, text: str) -> NotebookNode:
    """A fresh cell of that type. Not made by nbformat, which holds each against its schema, for half a millisecond."""
    cell = NotebookNode(id=uuid.uuid4().hex[:8], cell_type=kind, metadata=NotebookNode(), source=text)
    if kind == "code":
        cell.update(execution_count=None, outputs=[])
    return cell


def writable(value: Any, depth: int = 0) -> Any:
    """A value out of JSON such that a file can hold it; ValueError where it is nested too deep."""
    if depth > _DEPTH:
        raise ValueError("nested too deep")
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()  # a lone surrogate, which JSON can hold, has no bytes
    if isinstance(value, dict):
        return {writable(key): writable(item, depth + 1) for key, item in value.items()}
    return [writable(item, depth + 1) for item in value] if isinstance(value, list) else value


# ---- reading a learner's file -----------------------------------------------------------------------------------

_FORMATS = (
    (b"%PDF", "a PDF"), (b"PK\x03\x04", "a ZIP archive"), (b"\x1f\x8b", "a compressed file"),
    (b"\x89PNG", "a picture"), (b"\xff\xd8\xff", "a picture"), (b"\xd0\xcf\x11\xe0", "an office document"),
)
_MERGE = re.compile(r"^<<<<<<<( |$)", re.M)
_LIKE_JSON = ("{", "[", '"')

Tell = Callable[[str], None]


def parse(raw: bytes, tell: Tell = lambda what: None) -> NotebookNode:
    """A learner's file as a notebook of plain cells: text, id, metadata, attachments. `Refused` where it is none.

    `tell` hears what was odd about the file.
    """
    data = _unwrapped(_json(_decoded(raw, tell), tell), tell)
    cells = _cells_of(data, tell)
    if not cells:
        raise Refused("the notebook has no cells; ask for it again")
    length = sum(len(cell.source) for cell in cells)
    if len(cells) > MOST_CELLS or length > MOST_TEXT:
        raise Refused(f"the notebook has {len(cells)} cells and {length} characters of text, which nobody can have "
                      f"written; at most {MOST_CELLS} and {MOST_TEXT} are graded")
    # Made by hand: nbformat would draw new ids where two are the same.
    meta = _plain_metadata(data.get("metadata"), tell)
    return nbformat.from_dict({"nbformat": 4, "nbformat_minor": 5, "metadata": meta, "cells": cells})


def _decoded(raw: bytes, tell: Tell) -> str:
    if not raw.strip(b" \t\r\n\0"):
        raise Refused("the file is empty; ask for the notebook again")
    for start, what in _FORMATS:
        if raw.startswith(start):
            raise Refused(f"the file is {what} under a notebook's name; ask for the notebook itself")
    encoding: str = json.detect_encoding(raw)
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError:
        encoding = "cp1252"
        text = raw.decode(encoding, "replace")
    if encoding != "utf-8":
        tell(f"was not plain UTF-8; read as {encoding}")
    whole = text.rstrip("\0")
    if whole != text:
        tell("ended in zero bytes; dropped")
    return whole


def _json(text: str, tell: Tell) -> Any:
    if (parts := text.count("{") + text.count("[")) > MOST_JSON:
        raise Refused(f"the file has {parts} parts, mostly outputs or widgets; ask for it with its outputs cleared")
    try:
        return json.loads(text)
    except RecursionError:
        raise Refused("the file is no notebook: its JSON is nested too deep; ask for it again") from None
    except ValueError as problem:
        return _mended(text.lstrip("\ufeff \t\r\n"), f"line {getattr(problem, 'lineno', '?')}", tell)


def _mended(text: str, where: str, tell: Tell) -> Any:
    """What can be read of damaged JSON: a whole notebook with something behind it, or bare line ends in its text."""
    if _MERGE.search(text):
        raise Refused(f"the file holds an unfinished git merge ({where}: <<<<<<< and >>>>>>>); ask for it resolved")
    if text.startswith("<"):
        raise Refused("the file is a web page, not the notebook; ask for the file itself, downloaded, not 'saved as'")
    if not text.startswith(_LIKE_JSON):
        raise Refused(f"the file is no notebook: it begins with {text[:20]!r}; ask for the .ipynb file")
    try:
        data, end = json.JSONDecoder(strict=False).raw_decode(text)
    except (ValueError, RecursionError):
        raise Refused(f"the file is no notebook: its JSON is damaged or cut off ({where}); ask for it again") from None
    tell("had something behind its end; left out" if text[end:].strip() else "had control characters in its text")
    return data


def _unwrapped(data: Any, tell: Tell) -> dict[str, Any]:
    """A notebook out of what programs put around it: Jupyter's own contents API, or JSON in a JSON text."""
    if isinstance(data, str) and data.lstrip().startswith("{"):
        tell("was JSON within a text of JSON; unpacked")
        data = _json(data, tell)
    if isinstance(data, dict) and "cells" not in data and isinstance(data.get("content"), dict):
        tell("was a server's answer with the notebook in it; unpacked")
        data = data["content"]
    return data if isinstance(data, dict) else {}


def _cells_of(data: dict[str, Any], tell: Tell) -> list[NotebookNode]:
    if isinstance(data.get("worksheets"), list):
        try:
            data = nbformat.convert(nbformat.from_dict(data), 4)
        except Exception:  # an old notebook may be broken in any way
            raise Refused("the notebook's old format can't be converted; save it anew in JupyterLab") from None
        tell("was of an old format; converted")
    if not isinstance(data.get("cells"), list):
        raise Refused("the file is JSON but no notebook: it has no list of cells; ask for it again")
    return [cell for item in data["cells"] if (cell := _plain_cell(item, tell)) is not None]


def _plain_cell(item: Any, tell: Tell) -> NotebookNode | None:
    if not isinstance(item, dict) or item.get("cell_type") not in _KINDS:
        return None
    cell = new_cell(item["cell_type"], _text_of(item.get("source", "")))
    cell.metadata = nbformat.from_dict(_plain_metadata(item.get("metadata", {}), tell))
    cell["id"] = writable(item["id"]) if isinstance(item.get("id"), str) else ""
    if _are_attachments(item.get("attachments")):
        cell["attachments"] = nbformat.from_dict(writable(item["attachments"]))
    return cell


def _plain_metadata(found: Any, tell: Tell) -> dict[str, Any]:
    kept, left = {}, MOST_PARTS
    found = found if isinstance(found, dict) else {}
    sizes = {key: _parts(value) for key, value in found.items() if key != "widgets"}  # large, and nobody reads them
    for key in sorted(sizes, key=sizes.__getitem__):
        left -= sizes[key]
        if left < 0:
            tell("had more metadata than a notebook needs; the largest left out")
            break
        kept[key] = found[key]
    try:
        return writable(kept)
    except ValueError:
        tell("had metadata nested too deep; left out")
        return {}


def _parts(value: Any) -> int:
    """How many values there are in a value; counted no further than matters."""
    waiting, count = [value], 0
    while waiting and count <= MOST_PARTS:
        one, count = waiting.pop(), count + 1
        waiting += one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
    return count


def _text_of(source: Any) -> str:
    if isinstance(source, list):
        lines = [part for part in source if isinstance(part, str)]
        # Some programs leave the line ends out.
        bare = len(lines) > 1 and not any(line.endswith(("\n", "\r")) for line in lines[:-1])
        source = ("\n" if bare else "").join(lines)
    # A lone surrogate, which JSON can hold, could be written to no file.
    return writable(source) if isinstance(source, str) else ""


def _are_attachments(found: Any) -> bool:
    return isinstance(found, dict) and all(
        isinstance(files, dict) and all(isinstance(data, str) for data in files.values()) for files in found.values()
    )
