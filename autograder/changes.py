"""How a grading changes scores that the gradebook holds, and whose doing a change is: the learner's or the course's."""

import functools
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from autograder.cells import grade_id, is_graded, is_tests, points, written_beside
from autograder.course import Course
from autograder.errors import CourseError
from autograder.gradebook import Marks, timestamp_of
from autograder.handin import Handin, digest_of
from autograder.results import Marked, Result


@dataclass(frozen=True)
class Change:
    """One exercise of one learner whose score differs from the gradebook's. A score is None while a person is awaited.

    new: the gradebook has nothing of it yet. ours: the learner handed in the same as before, or the exercise's tests
    are others now, so that the difference is the course's doing.
    """

    student: str
    chapter: str
    exercise: str
    before: float | None
    after: float | None
    max_points: float
    new: bool = False
    ours: bool = False
    verdict: str = ""
    message: str = ""


Scores = Mapping[tuple[str, str], float | None]


def changes_of(
    handin: Handin, marked: Mapping[str, Marked], before: Mapping[str, Marks | None], scores: Scores,
    graded: Path, digest: str,
) -> list[Change]:
    """The changes that these scores would be, by exercise; `graded` is the folder of what was graded before."""
    results = {(name, result.cell): result for name, one in marked.items() for result in one.results}
    basis_in, found = functools.cache(_basis_in), []  # a file is read when its first score differs
    for (name, cell), after in scores.items():
        was, new = _score(before.get(name), cell)
        ours = not new and was != after and name in marked and _is_ours(
            basis_in(graded / f"{name}.ipynb"), basis(marked[name].notebook, digest), cell)
        result = results.get((name, cell)) or Result(cell, cell.removesuffix("-tests"), "", 0.0, 0.0, "error")
        found.append(Change(handin.student, handin.chapter, result.exercise, was, after, result.max_points, new, ours,
                            result.verdict, result.message))
    return [change for change in _by_exercise(found) if change.new or change.before != change.after]


def _score(marks: Marks | None, cell: str) -> tuple[float | None, bool]:
    """What the gradebook holds, and whether it holds nothing yet."""
    mark = marks.cells.get(cell) if marks else None
    if mark is None:
        return None, True
    return (None if mark.auto is None and mark.manual is None else mark.score), False


def _by_exercise(found: Iterable[Change]) -> list[Change]:
    groups: dict[str, list[Change]] = {}
    for change in found:
        groups.setdefault(change.exercise, []).append(change)
    return [_together(group) for group in groups.values()]


def _together(parts: list[Change]) -> Change:
    told = next((part for part in parts if part.before != part.after), parts[0])
    before, after = ([getattr(part, name) for part in parts] for name in ("before", "after"))
    return replace(
        told, before=_sum(before), after=_sum(after), max_points=sum(part.max_points for part in parts),
        new=all(part.new for part in parts), ours=any(part.ours and part.before != part.after for part in parts),
    )


def _sum(scores: list[float | None]) -> float | None:
    given = [score for score in scores if score is not None]
    return sum(given) if len(given) == len(scores) else None


# ---- what a score rests on ----------------------------------------------------------------------------------------


def basis(graded: NotebookNode, digest: str) -> dict[str, Any]:
    """What the scores of a graded notebook rest on, to be kept in it.

    What was handed in, each test with its points, and each answer that a person marks: of a text that with what was
    written beside it, of code all that was handed in, for what it does may hang on any of that.
    """
    tests = {grade_id(cell): f"{points(cell)}\n{cell.source}" for cell in graded.cells if is_tests(cell)}
    answers = {grade_id(cell): digest if cell.cell_type == "code" else "\n".join(written_beside(graded, place))
               for place, cell in enumerate(graded.cells) if is_graded(cell) and not is_tests(cell)}
    return {"handin": digest, "tests": _digests(tests), "answers": _digests(answers)}


def _digests(texts: Mapping[str, str]) -> dict[str, str]:
    return {name: hashlib.sha256(text.encode()).hexdigest()[:16] for name, text in texts.items()}


def _basis_in(path: Path) -> dict[str, Any]:
    """Nothing where nbgrader itself has graded it."""
    try:
        kept = nbformat.read(path, as_version=4).metadata["autograder"]["basis"] if path.is_file() else {}
    except Exception:  # people may have edited it in any way
        kept = {}
    return kept if isinstance(kept, dict) else {}


def is_up_to_date(course: Course, handin: Handin) -> bool:
    """Was this submission graded, and has neither its time, as nbgrader looks at it, nor anything in it changed?"""
    graded = course.path(course.autograded, handin.student, handin.chapter)
    files = sorted(graded.glob("*.ipynb"))
    try:
        now, then = timestamp_of(handin.folder), timestamp_of(graded)
    except CourseError:
        return False
    if not files or (now and then and now > then):
        return False
    kept = {_basis_in(path).get("handin") for path in files} - {None}
    return not kept or kept == {digest_of(handin.folder)}


def same_as_before(
    graded: Path, marked: Mapping[str, Marked], before: Mapping[str, Marks | None], digest: str
) -> list[tuple[str, str]]:
    """The graded cells, by notebook and name, whose mark rests on nothing that has changed since it was given.

    Looked for in notebooks in which a person marked something, as `before` says; of others none is named.
    `graded` is the folder of what was graded before. Of an answer that a person marks it is the answer that counts, of
    tests all that was handed in and they themselves.
    """
    found = []
    for name, one in marked.items():
        marks = before.get(name)
        if not marks or all(mark.manual is None for mark in marks.cells.values()):
            continue  # to read what was graded takes longer than to save it
        old, new = _basis_in(graded / f"{name}.ipynb"), basis(one.notebook, digest)
        same = old.get("handin") == new["handin"]
        for kind, whole in (("tests", False), ("answers", True)):
            before = old.get(kind, {})
            found += [(name, cell) for cell, text in new[kind].items()
                      if (before.get(cell) == text and (whole or same)) or (whole and same and cell not in before)]
    return found


def _is_ours(old: dict[str, Any], new: dict[str, Any], cell: str) -> bool:
    if not old or not new:
        return False
    tests = [one.get("tests", {}).get(cell) for one in (old, new)]
    return old.get("handin") == new["handin"] or tests[0] != tests[1]
