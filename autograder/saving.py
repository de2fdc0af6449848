"""A graded submission saved: its files and its marks together, or neither."""

import shutil
import traceback
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import nbformat

from autograder.gradebook import Book
from autograder.marking import Marked
from autograder.rebuild import Repair
from autograder.records import Editions, Outcome, Record, records_of, refused_records


def write_graded(path: Path, marked: Marked, repairs: Iterable[Repair]) -> None:
    """The graded notebook; the results lie in its metadata, for feedback and reports."""
    results = [{**asdict(result), "visible": result.visible[:500]} for result in marked.results]
    marked.notebook.metadata["autograder"] = {"results": results, "repairs": [asdict(repair) for repair in repairs]}
    nbformat.write(marked.notebook, path)


def saved(book: Book, outcome: Outcome, records: list[Record], editions: Mapping[str, Editions]) -> Outcome:
    """Save one outcome, files and gradebook together, and add its records; refused where that fails."""
    handin, scores = outcome.handin, {}
    if not outcome.refused and outcome.staged is not None:
        target = book.course.path(book.course.autograded, handin.student, handin.chapter)
        try:
            with ExitStack() as undo:
                with book.transaction():
                    scores = book.save(handin.student, handin.chapter, outcome.marked, outcome.timestamp)
                    _swap(outcome.staged, target, undo)
                undo.pop_all()
        except Exception as problem:
            said = f"could not be saved: {type(problem).__name__}: {problem}"
            outcome = Outcome(handin, refused=said, detail=traceback.format_exc(), seconds=outcome.seconds)
    if outcome.refused:
        records += refused_records(outcome, editions[handin.chapter])
    else:
        records += records_of(outcome, scores)
    return outcome


def _swap(staged: Path, target: Path, undo: ExitStack) -> None:
    """Put the new folder in the old one's place; `undo` puts the old one back if the gradebook refuses."""
    for path in staged.rglob("*"):
        if path.is_file():
            path.chmod(0o444)
    staged.chmod(0o755)
    target.parent.mkdir(parents=True, exist_ok=True)
    old = staged.with_name(staged.name + "-old")
    if target.exists():
        target.replace(old)
        undo.callback(lambda: old.replace(target))
    shutil.move(staged, target)
    undo.callback(lambda: shutil.rmtree(target, ignore_errors=True))
