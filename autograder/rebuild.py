"""A submission put back together: our notebook with the learner's answers in it, and the cells they added, in place.

Pure: notebooks in, a notebook out. From the learner come the text of answers and of added cells, nothing else; test
cells, points, tags, ids and kernelspec are ours again, and every repair is told.
"""

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import nbformat
from nbformat import NotebookNode

from autograder.cells import (
    ADDED,
    SECRET,
    Refused,
    grade_id,
    is_answer,
    is_skipped,
    is_tests,
    new_cell,
    released,
    same_text,
    tags,
)
from autograder.pairing import Pairs, pair
from autograder.statements import assigned, beyond, binding, new_definitions, parsed

_OURS = ("grade", "solution", "locked", "task", "points")


@dataclass(frozen=True)
class Repair:
    """One thing that was put right in a submission: of what kind, in which cell ("" for the notebook), what."""

    kind: str
    cell: str
    detail: str


@dataclass
class _Work:
    """The notebook in the making; `behind[i]` are cells of theirs that follow our cell i (-1: ahead of all)."""

    ours: list[NotebookNode]
    repairs: list[Repair] = field(default_factory=list)
    behind: dict[int, list[NotebookNode]] = field(default_factory=dict)

    def tell(self, kind: str, cell: str, detail: str) -> None:
        self.repairs.append(Repair(kind, cell, detail))

    def add(self, place: int, kind: str, text: str, attachments: Any = None) -> None:
        if text.strip():
            cell = new_cell(kind, text)
            cell.metadata["tags"] = [ADDED]
            if attachments and kind == "markdown":
                cell["attachments"] = attachments
            self.behind.setdefault(place, []).append(cell)


def rebuild(source: NotebookNode, submitted: NotebookNode) -> tuple[NotebookNode, list[Repair]]:
    """The notebook to grade, and what was repaired.

    `source` is our stored edition: stubs in its answer cells, hidden tests in its test cells. `Refused` where
    nothing says that `submitted` is a copy of it.
    """
    work = _Work([copy.deepcopy(cell) for cell in source.cells])
    pairs = pair(source.cells, submitted.cells)
    if not pairs.sure:
        raise Refused("none of the assignment's answer cells is in it; is it the notebook of another assignment?")
    _tell_notebook(work, source, submitted)
    for place, cell in enumerate(work.ours):
        chosen = pairs.chosen.get(place)
        if chosen is None:
            _put_back(work, cell, _merged(place, pairs, source.cells, submitted.cells))
        else:
            _take_over(work, place, submitted.cells[chosen])
            _rejoin(work, place, pairs, submitted.cells)
    _tell_places(work, pairs)
    _add_theirs(work, pairs, source.cells, submitted.cells)
    return _assemble(source, work), work.repairs


def _tell_notebook(work: _Work, source: NotebookNode, submitted: NotebookNode) -> None:
    ours, theirs = (nb.metadata.get("kernelspec", {}) for nb in (source, submitted))
    if isinstance(theirs, dict) and theirs.get("name", ours.get("name")) != ours.get("name"):
        work.tell("kernelspec", "", f"asked for kernel {theirs['name']!r}; graded with {ours.get('name')!r}")
    ours, theirs = (nb.metadata.get("course", {}) for nb in (source, submitted))
    if isinstance(theirs, dict) and ours and theirs.get("release", ours.get("release")) != ours.get("release"):
        work.tell("release", "", f"made from release {theirs['release']!r}; graded against {ours.get('release')!r}")


def _put_back(work: _Work, cell: NotebookNode, merged: str) -> None:
    if is_answer(cell) and merged:
        cell.source = merged
        work.tell("merged", grade_id(cell), "the answer stood in another cell; taken from there")
    elif is_answer(cell):
        cell.source = SECRET.sub("", cell.source)
        work.tell("missing", grade_id(cell), "the answer cell was gone; counted as not answered")
    elif grade_id(cell):
        work.tell("missing", grade_id(cell), "the cell was gone; put back")


def _merged(place: int, pairs: Pairs, ours: list[NotebookNode], theirs: list[NotebookNode]) -> str:
    """An answer without a cell of its own, out of a cell of ours that it was merged into; "" where it is in none."""
    wanted = assigned(ours[place].source) if is_answer(ours[place]) and ours[place].cell_type == "code" else set()
    for other, index in sorted(pairs.chosen.items(), reverse=True):
        text = theirs[index].source
        if wanted and same_text(text) != released(ours[other]) and (found := binding(text, wanted)):
            # Of a cell that is ours again everything of theirs would be lost.
            return found if is_answer(ours[other]) else beyond(SECRET.sub("", ours[other].source), text)
    return ""


def _rejoin(work: _Work, place: int, pairs: Pairs, theirs: list[NotebookNode]) -> None:
    """An answer that was split within a statement: neither part is Python, both together are."""
    cell, index = work.ours[place], pairs.chosen[place]
    if not is_answer(cell) or cell.cell_type != "code":
        return
    parts = {index, *pairs.free(theirs), *pairs.copies.get(place, ())}
    for first, last in ((index - 1, index), (index, index + 1), (index - 2, index), (index, index + 2)):
        group = list(range(first, last + 1))
        texts = [theirs[one].source for one in group if one in parts]
        joined = "\n".join(texts)
        if len(texts) == len(group) and any(parsed(text) is None for text in texts) and parsed(joined) is not None:
            cell.source = joined
            pairs.used.update(set(group) - {index})
            work.tell("split", grade_id(cell), f"the answer stood in {len(group)} cells; together again")
            return


def _take_over(work: _Work, place: int, theirs: NotebookNode) -> None:
    """Our cell at `place` meets theirs: an answer's text comes in, else ours stands."""
    cell = work.ours[place]
    name = grade_id(cell)
    if name:
        _tell_metadata(work, cell, theirs)
    if is_answer(cell):
        cell.source = theirs.source
        if "attachments" in theirs and cell.cell_type == "markdown":
            cell["attachments"] = theirs["attachments"]
    elif same_text(theirs.source) != released(cell):
        if name:
            work.tell("edited", name, "the cell's text was changed; ours is back")
        work.add(place, cell.cell_type, _kept(cell, theirs), theirs.get("attachments"))


def _kept(cell: NotebookNode, theirs: NotebookNode) -> str:
    """What stays of a cell of ours that they edited: of a free cell all, of the rest what they newly define.

    A learner who adds an import to the set-up cell or a function to a demo has done nothing wrong.
    """
    if is_tests(cell) or theirs.cell_type != cell.cell_type:
        return ""
    if not grade_id(cell) and not is_skipped(cell):
        return theirs.source
    return new_definitions(cell.source, theirs.source) if cell.cell_type == "code" else ""


def _tell_metadata(work: _Work, cell: NotebookNode, theirs: NotebookNode) -> None:
    name, ours, meta = grade_id(cell), cell.metadata["nbgrader"], theirs.metadata.get("nbgrader", {})
    if cell.cell_type != theirs.cell_type:
        work.tell("retyped", name, f"was made a {theirs.cell_type} cell; a {cell.cell_type} cell again")
    if grade_id(theirs) != name:
        work.tell("metadata", name, "nbgrader's metadata was gone; found by its id, its name or its text")
    elif changed := [f"{key} {meta[key]!r}" for key in _OURS if key in meta and meta[key] != ours.get(key)]:
        work.tell("metadata", name, f"changed to {', '.join(changed)[:200]}; ours again")
    if extra := tags(theirs) - tags(cell):
        work.tell("tags", name, f"had the tags {', '.join(sorted(extra))[:200]}; removed")


def _tell_places(work: _Work, pairs: Pairs) -> None:
    order = [pairs.chosen[place] for place in sorted(pairs.chosen) if grade_id(work.ours[place])]
    if order != sorted(order):
        work.tell("moved", "", "cells were moved; ours are in their order again")
    for place, copies in sorted(pairs.copies.items()):
        work.tell("copied", grade_id(work.ours[place]), f"{len(copies) + 1} cells had this id; one of them counts")


def _add_theirs(work: _Work, pairs: Pairs, ours: list[NotebookNode], theirs: list[NotebookNode]) -> None:
    """A cell of theirs that is none of ours goes behind the cell of ours that it followed; unchanged copies go."""
    place_of = {chosen: place for place, chosen in pairs.chosen.items()}
    copy_of = {index: place for place, copies in pairs.copies.items() for index in copies}
    last = -1
    for index, cell in enumerate(theirs):
        if index in place_of:
            last = place_of[index]
        elif index in pairs.used or (index in copy_of and same_text(cell.source) == released(ours[copy_of[index]])):
            continue
        else:
            work.add(last, cell.cell_type, cell.source, cell.get("attachments"))


def _assemble(source: NotebookNode, work: _Work) -> NotebookNode:
    nb = nbformat.from_dict({**copy.deepcopy(dict(source)), "cells": []})
    taken = {cell.get("id") for cell in work.ours}
    names = (name for n in range(1, 1 << 30) if (name := f"{ADDED}-{n}") not in taken)
    for place in range(-1, len(work.ours)):
        nb.cells += [work.ours[place]] if place >= 0 else []
        for cell in work.behind.get(place, []):
            cell["id"] = next(names)
            nb.cells.append(cell)
    _clear(nb.cells, with_ids=(nb.nbformat, nb.nbformat_minor) >= (4, 5))
    return nb


def _clear(cells: Iterable[NotebookNode], *, with_ids: bool) -> None:
    for cell in cells:
        if cell.cell_type == "code":
            cell["outputs"], cell["execution_count"] = [], None
        if not with_ids:
            cell.pop("id", None)
