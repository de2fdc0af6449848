"""The pipeline: find the submissions of a course, rebuild, run and mark them in parallel, save them one by one.

A submission that can't be graded is refused with a reason and never stops the class: in = graded + refused.
"""

import shutil
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from autograder.cells import is_graded, points
from autograder.course import Course
from autograder.errors import CourseError
from autograder.gradebook import Book, Marks, timestamp_of
from autograder.handin import Handin, copy_files, find_notebooks
from autograder.kernels import Forge, Limits, Session, forge
from autograder.ledger import is_sample, log, refusals, secret_of, state
from autograder.marking import Marked, Result, exercise_of, mark, stubs_of
from autograder.rebuild import Repair, rebuild
from autograder.sandbox import missing

Editions = Mapping[str, NotebookNode]


@dataclass(frozen=True)
class Record:
    """One exercise, or one part of one, of one learner. `points` is None while it waits for a person.

    verdict: "passed", "failed", "blank", "error" (could not be judged), "manual".
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


@dataclass(frozen=True)
class Outcome:
    """What became of one submission; `refused` is the reason why it was not graded, "" if it was."""

    handin: Handin
    marked: dict[str, Marked] = field(default_factory=dict)
    repairs: list[Repair] = field(default_factory=list)
    timestamp: datetime | None = None
    refused: str = ""
    detail: str = ""
    seconds: float = 0.0
    staged: Path | None = None

    def entry(self) -> dict[str, Any]:
        """What the log keeps of it."""
        return {
            "student": self.handin.student, "chapter": self.handin.chapter, "seconds": round(self.seconds, 3),
            "refused": self.refused, "repairs": [asdict(repair) for repair in self.repairs],
            "detail": self.detail,
        }


Watch = Callable[[int, int, Outcome | None], None]


def grade(
    course: Course, *, chapter: str | None = None, student: str | None = None, jobs: int = 1,
    limits: Limits | None = None, sandbox: str = "on", watch: Watch = lambda done, of, outcome: None,
) -> list[Record]:
    """Grade what was handed in, of one chapter or one student where they are named.

    sandbox: "on", and the run refuses where this machine can't put one up; "off", and learners' code has our rights.
    A refused submission has a record of verdict "error" and kind "refused" for each exercise. `watch` is told how
    many are done, of how many, and the last outcome; first with None.
    """
    records: list[Record] = []
    sandbox = settled(course, sandbox)
    with Book(course) as book, _workplace(course) as place, _forge(course, sandbox) as warm:
        handins = find_handins(course, chapter=chapter, student=student)
        editions = {name: book.editions(name) for name in sorted({handin.chapter for handin in handins})}
        bench = _Bench(course, editions, secret_of(course), limits or limits_of(course), place, warm)
        watch(0, len(handins), None)
        for done, outcome in enumerate(bench.outcomes(handins, jobs), 1):
            outcome = _saved(book, outcome, records, editions)
            log(course, {**outcome.entry(), "sandbox": sandbox})
            watch(done, len(handins), outcome)
    return sorted(records, key=lambda record: (record.chapter, record.student))


def settled(course: Course, sandbox: str) -> str:
    """The mode that a run of this course will have; CourseError where a sandbox is wanted and can't be had.

    Our own sample class alone falls back by itself: its code is ours.
    """
    lacks = missing() if sandbox == "on" else []
    if lacks and not is_sample(course):
        raise CourseError(f"no sandbox on this machine ({lacks[0]}); mend that, or say --sandbox off, and learners' "
                          "code runs with your rights")
    return "off" if lacks else sandbox


def find_handins(course: Course, *, chapter: str | None = None, student: str | None = None) -> list[Handin]:
    """The submissions to grade; CourseError where a named chapter or student has none."""
    known = course.assignments()
    if chapter is not None and chapter not in known:
        raise CourseError(f"{course.source}: no assignment '{chapter}'; there are: {', '.join(known) or 'none'}")
    found = [
        Handin(name, assignment, course.path(course.submitted, name, assignment))
        for assignment in ([chapter] if chapter else known)
        for name in course.students(assignment)
    ]
    chosen = [handin for handin in found if student in (None, handin.student)]
    if student is not None and not chosen:
        wanted = f"'{student}'" + (f" for {chapter}" if chapter else "")
        raise CourseError(f"{course.submitted}: nothing handed in by {wanted}; look for the folder's name there")
    return chosen


def limits_of(course: Course) -> Limits:
    """The time limit of a cell is nbgrader's: 30 seconds, or what the course's configuration says."""
    for section in ("Execute", "ExecutePreprocessor"):
        seconds = course.config.get(section, {}).get("timeout")
        if isinstance(seconds, int | float):
            seconds = seconds if seconds > 0 else 24 * 3600.0
            return Limits(cell=seconds, probe=seconds, notebook=20 * seconds)
    return Limits()


def _forge(course: Course, sandbox: str) -> AbstractContextManager[Forge]:
    """Kernels that see nothing of the course, nor of this project's sources, wherever the two lie."""
    ours = Path(__file__).parents[1] / "solutions"
    return forge(sandboxed=sandbox == "on", hide=[course.root.resolve(), course.base.resolve(), ours])


@contextmanager
def _workplace(course: Course) -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="run-", dir=state(course)))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


@dataclass(frozen=True)
class _Bench:
    """Everything that marking one submission needs; used by several threads, changed by none."""

    course: Course
    editions: Mapping[str, Editions]
    secret: str
    limits: Limits
    place: Path
    warm: Forge

    def outcomes(self, handins: list[Handin], jobs: int) -> Iterator[Outcome]:
        """The outcomes as they come."""
        with ThreadPoolExecutor(max(1, jobs)) as pool:
            waiting: set[Future[Outcome]] = {pool.submit(self.outcome, handin) for handin in handins}
            try:
                while waiting:
                    done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                    yield from (future.result() for future in done)
            finally:
                pool.shutdown(wait=True, cancel_futures=True)

    def outcome(self, handin: Handin) -> Outcome:
        """Mark one submission. Never raises: what goes wrong here must not stop the others."""
        start = time.monotonic()
        try:
            marked, repairs, staged = self._mark(handin)
            when = timestamp_of(handin.folder)
            return Outcome(handin, marked, repairs, when, seconds=time.monotonic() - start, staged=staged)
        except CourseError as reason:
            return Outcome(handin, refused=str(reason), seconds=time.monotonic() - start)
        except Exception as problem:
            said = f"could not be graded: {type(problem).__name__}: {problem}"
            return Outcome(handin, refused=said, detail=traceback.format_exc(), seconds=time.monotonic() - start)

    def _mark(self, handin: Handin) -> tuple[dict[str, Marked], list[Repair], Path]:
        editions = self.editions[handin.chapter]
        notebooks, repairs = find_notebooks(handin, editions)
        staged = Path(tempfile.mkdtemp(dir=self.place))
        copy_files(handin.folder, staged)
        copy_files(self.course.path(self.course.source, ".", handin.chapter), staged)
        rebuilt = {name: rebuild(editions[name], notebook) for name, notebook in notebooks.items()}
        marked = {}
        for name, (notebook, mended) in rebuilt.items():
            repairs += mended
            with Session(staged, limits=self.limits, warm=self.warm) as session:
                marked[name] = mark(notebook, stubs_of(editions[name]), session, secret=self.secret)
        for name in marked:
            _write(staged / f"{name}.ipynb", marked[name], rebuilt[name][1])
        return marked, repairs, staged


def _write(path: Path, marked: Marked, repairs: Iterable[Repair]) -> None:
    """The graded notebook; the results lie in its metadata, for feedback and reports."""
    results = [{**asdict(result), "visible": result.visible[:500]} for result in marked.results]
    marked.notebook.metadata["autograder"] = {"results": results, "repairs": [asdict(repair) for repair in repairs]}
    nbformat.write(marked.notebook, path)


# ---- saving -----------------------------------------------------------------------------------------------------


def _saved(book: Book, outcome: Outcome, records: list[Record], editions: Mapping[str, Editions]) -> Outcome:
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
        records += _refused_records(outcome, editions[handin.chapter])
    else:
        records += _records(outcome, scores)
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


def _records(outcome: Outcome, scores: Mapping[tuple[str, str], float | None]) -> list[Record]:
    return [
        _record(outcome.handin, result, scores.get((name, result.cell), result.points))
        for name, marked in sorted(outcome.marked.items())
        for result in marked.results
    ]


def _record(handin: Handin, result: Result, score: float | None) -> Record:
    return Record(handin.student, handin.chapter, result.exercise, result.part, score, result.max_points,
                  result.verdict, result.kind, result.message)


def _refused_records(outcome: Outcome, editions: Editions) -> list[Record]:
    cells = [cell for _, edition in sorted(editions.items()) for cell in edition.cells if is_graded(cell)]
    student, chapter = outcome.handin.student, outcome.handin.chapter
    return [
        Record(student, chapter, *exercise_of(cell), 0.0, points(cell), "error", "refused", outcome.refused)
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
    return replace(worst, part="", points=total, max_points=sum(part.max_points for part in parts))


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


def stored_records(course: Course, *, chapter: str | None = None) -> list[Record]:
    """The records of all that was graded or refused before, with the scores that the gradebook now holds."""
    records: list[Record] = []
    refused = refusals(course)
    with Book(course) as book:
        for one in stored(course, chapter=chapter):
            if (one.chapter, one.student) in refused:
                continue
            marks = book.marks(one.student, one.chapter, one.name)
            handin = Handin(one.student, one.chapter, course.path(course.submitted, one.student, one.chapter))
            records += [_record(handin, result, _score(marks, result)) for result in one.results]
        for (assignment, student), reason in refused.items():
            if chapter in (None, assignment):
                handin = Handin(student, assignment, course.path(course.submitted, student, assignment))
                records += _refused_records(Outcome(handin, refused=reason), book.editions(assignment))
    return sorted(records, key=lambda record: (record.chapter, record.student))


def _score(marks: Marks | None, result: Result) -> float | None:
    mark = marks.cells.get(result.cell) if marks else None
    if mark is None:
        return result.points
    return None if mark.manual is None and mark.auto is None else mark.score
