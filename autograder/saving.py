"""A graded submission saved: its files and its marks together, or neither, also where the run is killed meanwhile."""

import shutil
import traceback
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import nbformat

from autograder import journal
from autograder.changes import basis, changes_of, same_as_before
from autograder.gradebook import Book
from autograder.ledger import is_logged, log, log_line, state
from autograder.rebuild import Repair
from autograder.records import Editions, Outcome, records_before, records_of, refused_records
from autograder.results import Marked, Result

RUN = "run-"  # workplaces lie in the grader's own folder of the course, under such names


def write_graded(path: Path, marked: Marked, repairs: Iterable[Repair], digest: str) -> None:
    """The graded notebook; the results lie in its metadata, for feedback, reports and the next grading."""
    results = [{**asdict(result), "visible": result.visible[:500]} for result in marked.results]
    kept = {"results": results, "repairs": [asdict(repair) for repair in repairs],
            "basis": basis(marked.notebook, digest)}
    marked.notebook.metadata["autograder"] = kept
    nbformat.write(marked.notebook, path)


class _NotNow(Exception):
    """Takes back what was tried in the gradebook."""


@dataclass(frozen=True)
class Saving:
    """How the outcomes of one run are saved: `dry`, not at all; `yes`, also where a score changes by our own doing."""

    book: Book
    editions: Mapping[str, Editions]
    sandbox: str = "on"
    dry: bool = False
    yes: bool = False

    def saved(self, outcome: Outcome) -> Outcome:
        """Save one outcome and log it; refused where that fails."""
        if not outcome.refused:
            outcome = self._tried(outcome)
        if outcome.refused:
            records = refused_records(outcome, self.editions[outcome.handin.chapter])
            outcome = replace(outcome, records=tuple(records))
        if not self.dry and (outcome.refused or outcome.held):
            log(self.book.course, self._line(outcome))
        return outcome

    def _line(self, outcome: Outcome) -> str:
        return log_line({**outcome.entry(), "sandbox": self.sandbox})

    def _tried(self, outcome: Outcome) -> Outcome:
        note = None
        try:
            with suppress(_NotNow), self.book.transaction():
                outcome = self._entered(outcome)
                if self.dry or outcome.held:
                    raise _NotNow
                note = self._note(outcome)
                journal.begin(self.book.course, note)
                journal.swap(note)
        except Exception as problem:
            if note is not None:
                journal.put_back(note)
                journal.end(self.book.course, note)
            said = f"could not be saved: {type(problem).__name__}: {problem}"
            return replace(outcome, refused=said, detail=traceback.format_exc(), held=False, changes=())
        if note is not None:
            log(self.book.course, note.line)
            journal.end(self.book.course, note)
        if outcome.held and not self.dry:
            outcome = replace(outcome, records=tuple(records_before(self.book, outcome.handin)))
        return outcome

    def _entered(self, outcome: Outcome) -> Outcome:
        """Put the marks into the gradebook, and see what they change in it."""
        handin, book = outcome.handin, self.book
        before = {name: book.marks(handin.student, handin.chapter, name) for name in self.editions[handin.chapter]}
        graded = book.course.path(book.course.autograded, handin.student, handin.chapter)
        same = same_as_before(graded, outcome.marked, before, outcome.digest)
        scores, again = book.save(handin.student, handin.chapter, outcome.marked, outcome.timestamp, outcome.left, same)
        changes = changes_of(handin, outcome.marked, before, scores, graded, outcome.digest)
        held = any(change.ours for change in changes) and not self.yes
        records = tuple(records_of(outcome, scores, again))
        return replace(outcome, changes=tuple(changes), held=held, records=records, same=tuple(same))

    def _note(self, outcome: Outcome) -> journal.Note:
        assert outcome.staged is not None
        course, handin = self.book.course, outcome.handin
        target = course.path(course.autograded, handin.student, handin.chapter).absolute()
        when = outcome.timestamp.isoformat() if outcome.timestamp else None
        unanswered = {name: sorted(marked.unanswered) for name, marked in outcome.marked.items()}
        return journal.Note(handin.student, handin.chapter, str(outcome.staged), str(target), target.exists(), when,
                            unanswered, self._line(outcome), tuple(sorted(outcome.left)), outcome.same)


def finish_interrupted(book: Book) -> None:
    """Carry the save that a killed run had begun to its end, and remove what that run has left lying about.

    Where it can't be carried out any more, all is as it was before.
    """
    note = journal.pending(book.course)
    if note is not None:
        try:
            marked = {name: _read(note.folder / f"{name}.ipynb", names) for name, names in note.unanswered.items()}
            with book.transaction():
                same = [(name, cell) for name, cell in note.same]  # JSON makes lists of them
                book.save(note.student, note.chapter, marked, note.when, note.left, same)
                journal.swap(note)
            if not is_logged(book.course, note.line):
                log(book.course, note.line)
        except Exception:  # the course may be another by now; the submission is graded anew in any case
            journal.put_back(note)
        journal.end(book.course, note)
    for folder in state(book.course).glob(f"{RUN}*"):
        shutil.rmtree(folder, ignore_errors=True)


def _read(path: Path, unanswered: Iterable[str]) -> Marked:
    notebook = nbformat.read(path, as_version=4)
    results = [Result(**result) for result in notebook.metadata["autograder"]["results"]]
    return Marked(notebook, results, frozenset(unanswered))
