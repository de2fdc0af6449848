"""What became of submissions: outcomes of this run, records by learner and exercise, and what was graded before."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from autograder.cells import is_graded, points
from autograder.changes import Change
from autograder.course import Course
from autograder.errors import CourseError
from autograder.gradebook import Book, Marks
from autograder.handin import Handin
from autograder.ledger import refusals
from autograder.rebuild import Repair
from autograder.results import Marked, Result, exercise_of, trust_of

Editions = Mapping[str, NotebookNode]


@dataclass(frozen=True)
class Record:
    """One exercise, or one part of one, of one learner. `points` is None while it waits for a person.

    verdict: "passed", "failed", "blank", "error" (could not be judged), "manual". trust: how far its score can be
    trusted, as a result says. again: a person gave the points, and what was handed in has changed since.
    """

    student: str
    chapter: str
    exercise: str
    part: str
    points: float | None
    max_points: float
    verdict: str
    kind: str | None = None
    message: str = ""
    trust: str = ""
    again: bool = False


@dataclass(frozen=True)
class Outcome:
    """What became of one submission; `refused` is the reason why it was not graded, "" if it was.

    digest: of what was handed in. peak: the most memory that its kernel held, in bytes, 0 where unknown. changes: how
    the gradebook's scores differ, or would. held: not saved, since a score would change without the learner's doing.
    left: the notebooks of the assignment that were not to be graded. same: the cells, by notebook and name, whose marks
    rest on nothing that has changed.
    """

    handin: Handin
    marked: dict[str, Marked] = field(default_factory=dict)
    repairs: list[Repair] = field(default_factory=list)
    timestamp: datetime | None = None
    refused: str = ""
    detail: str = ""
    seconds: float = 0.0
    staged: Path | None = None
    digest: str = ""
    peak: int = 0
    changes: tuple[Change, ...] = ()
    held: bool = False
    records: tuple[Record, ...] = ()
    left: frozenset[str] = frozenset()
    same: tuple[tuple[str, str], ...] = ()

    @property
    def trust(self) -> dict[str, int]:
        """How many of its scores can be trusted how far."""
        return dict(Counter(record.trust for record in self.records if not self.refused))

    def entry(self) -> dict[str, Any]:
        """What the log keeps of it."""
        return {
            "student": self.handin.student, "chapter": self.handin.chapter, "seconds": round(self.seconds, 3),
            "memory_mb": round(self.peak / 2**20) or None, "refused": self.refused, "held": self.held,
            "trust": self.trust,
            "repairs": [asdict(repair) for repair in self.repairs], "detail": self.detail,
        }


def records_of(
    outcome: Outcome, scores: Mapping[tuple[str, str], float | None], again: Collection[tuple[str, str]]
) -> list[Record]:
    return [
        _record(outcome.handin, result, scores.get((name, result.cell), result.points), (name, result.cell) in again)
        for name, marked in sorted(outcome.marked.items())
        for result in marked.results
    ]


def _record(handin: Handin, result: Result, score: float | None, again: bool) -> Record:
    return Record(handin.student, handin.chapter, result.exercise, result.part, score, result.max_points,
                  result.verdict, result.kind, result.message, result.trust, again)


def refused_records(outcome: Outcome, editions: Editions) -> list[Record]:
    cells = [cell for _, edition in sorted(editions.items()) for cell in edition.cells if is_graded(cell)]
    student, chapter = outcome.handin.student, outcome.handin.chapter
    return [
        Record(student, chapter, *exercise_of(cell), 0.0, points(cell), "error", "refused", outcome.refused,
               trust_of(cell))
        for cell in cells
    ]


def by_exercise(records: Iterable[Record]) -> list[Record]:
    """The records with the parts of an exercise taken together: points added, the first part that failed speaks."""
    groups: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        groups.setdefault((record.student, record.chapter, record.exercise), []).append(record)
    return [_together(group) for group in groups.values()]


def _together(parts: list[Record]) -> Record:
    worst = min(parts, key=lambda part: ("error", "failed", "blank", "manual", "passed").index(part.verdict))
    given = [part.points for part in parts if part.points is not None]
    total = sum(given) if len(given) == len(parts) else None
    trust = ", ".join(sorted({part.trust for part in parts}))
    again = any(part.again for part in parts)
    most = sum(part.max_points for part in parts)
    return replace(worst, part="", points=total, max_points=most, trust=trust, again=again)


# ---- what was graded before -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stored:
    """A graded notebook as it lies in `autograded/`."""

    student: str
    chapter: str
    name: str
    notebook: NotebookNode
    results: list[Result]
    repairs: list[Repair]


def stored(course: Course, *, chapter: str | None = None, student: str | None = None) -> Iterator[Stored]:
    """The notebooks that this grader has graded, in order; those that nbgrader itself graded hold no results."""
    for assignment in [chapter] if chapter else course.assignments():
        for name in course.students(assignment):
            folder = course.path(course.autograded, name, assignment)
            for path in sorted(folder.glob("*.ipynb")) if student in (None, name) else ():
                notebook = nbformat.read(path, as_version=4)
                kept = notebook.metadata.get("autograder")
                if kept is not None:
                    results = [Result(**result) for result in kept["results"]]
                    yield Stored(name, assignment, path.stem, notebook, results, [Repair(**r) for r in kept["repairs"]])


def must_know(course: Course, chapter: str | None = None, student: str | None = None) -> None:
    """CourseError where a chapter is named that is none, or a student of whom nothing was graded or refused."""
    known = course.assignments()
    if chapter is not None and chapter not in known:
        raise CourseError(f"{course.source}: no assignment '{chapter}'; there are: {', '.join(known) or 'none'}")
    names = {(name, assignment) for assignment in known for name in course.students(assignment)
             if course.path(course.autograded, name, assignment).is_dir()}
    names |= {(name, assignment) for assignment, name in refusals(course)}
    if student is not None and not any(name == student and chapter in (None, of) for name, of in names):
        wanted = f"'{student}'" + (f" for {chapter}" if chapter else "")
        raise CourseError(f"{course.autograded}: nothing graded of {wanted}; look for the folder's name there")


def stored_records(course: Course, *, chapter: str | None = None) -> list[Record]:
    """The records of all that was graded or refused before, with the scores that the gradebook now holds."""
    records: list[Record] = []
    refused = refusals(course)
    with Book(course) as book:
        for one in stored(course, chapter=chapter):
            if (one.chapter, one.student) in refused:
                continue
            records += _records_now(book, one)
        for (assignment, student), reason in refused.items():
            if chapter in (None, assignment):
                handin = Handin(student, assignment, course.path(course.submitted, student, assignment))
                records += refused_records(Outcome(handin, refused=reason), book.editions(assignment))
    return sorted(records, key=lambda record: (record.chapter, record.student))


def records_before(book: Book, handin: Handin) -> list[Record]:
    """The records of one submission as it was graded before."""
    found = stored(book.course, chapter=handin.chapter, student=handin.student)
    return [record for one in found for record in _records_now(book, one)]


def _records_now(book: Book, one: Stored) -> list[Record]:
    """The records of a graded notebook with the scores that the gradebook now holds."""
    marks = book.marks(one.student, one.chapter, one.name)
    handin = Handin(one.student, one.chapter, book.course.path(book.course.submitted, one.student, one.chapter))
    return [_record(handin, result, _score(marks, result), _again(marks, result)) for result in one.results]


def _again(marks: Marks | None, result: Result) -> bool:
    mark = marks.cells.get(result.cell) if marks else None
    return mark is not None and mark.to_see_again


def _score(marks: Marks | None, result: Result) -> float | None:
    mark = marks.cells.get(result.cell) if marks else None
    if mark is None:
        return result.points
    return None if mark.manual is None and mark.auto is None else mark.score
