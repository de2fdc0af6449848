"""The pipeline: find the submissions of a course, rebuild, run and mark them in parallel, save them one by one.

A submission that can't be graded is refused with a reason and never stops the class: in = graded + refused.
"""

import shutil
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from nbformat import NotebookNode

from autograder.course import Course
from autograder.editions import edition_for
from autograder.errors import CourseError
from autograder.gradebook import Book, complete, timestamp_of
from autograder.handin import Handin, copy_files, digest_of, find_handins, find_notebooks
from autograder.kernels import Forge, Limits, Session, forge
from autograder.ledger import alone, is_sample, secret_of, state
from autograder.marking import mark, stubs_of
from autograder.rebuild import Repair, rebuild
from autograder.records import Editions, Outcome, Record, Stored, by_exercise, stored, stored_records
from autograder.sandbox import missing
from autograder.saving import RUN, Saving, finish_interrupted, write_graded

# What others build on; some of it stands in the rooms above.
__all__ = [
    "Outcome", "Record", "Stored", "Watch", "by_exercise", "find_handins", "grade", "limits_of", "settled", "stored",
    "stored_records",
]

Watch = Callable[[int, int, Outcome | None], None]


def grade(
    course: Course, *, chapter: str | None = None, student: str | None = None, jobs: int = 1,
    limits: Limits | None = None, sandbox: str = "on", watch: Watch = lambda done, of, outcome: None,
    dry_run: bool = False, yes: bool = False, wait: bool = False, present: bool = False,
) -> list[Record]:
    """Grade what was handed in, of one chapter or one student where they are named.

    An assignment that is in `source/` and not in the gradebook is first put there, as nbgrader does.
    sandbox: "on", and the run refuses where this machine can't put one up; "off", and learners' code has our rights.
    dry_run: change nothing; the outcomes that `watch` gets say what would change. yes: also save what changes a score
    without the learner's doing; else it is held back. wait: for another run on this course, instead of refusing.
    present: grade submissions of an older release against the present one.
    A refused submission has a record of verdict "error" and kind "refused" for each exercise. `watch` is told how
    many are done, of how many, and the last outcome; first with None.
    """
    records: list[Record] = []
    sandbox = settled(course, sandbox)
    with alone(course, wait=wait):
        handins = find_handins(course, chapter=chapter, student=student)
        complete(course, {handin.chapter for handin in handins}, dry=dry_run)
        with Book(course) as book:
            if not dry_run:
                finish_interrupted(book)
            editions = {name: book.editions(name) for name in sorted({handin.chapter for handin in handins})}
            saving = Saving(book, editions, sandbox, dry_run, yes)
            with _workplace(course) as place, _forge(course, sandbox) as warm:
                bench = _Bench(course, editions, secret_of(course), limits or limits_of(course), place, warm, present)
                watch(0, len(handins), None)
                for done, outcome in enumerate(bench.outcomes(handins, jobs), 1):
                    outcome = saving.saved(outcome)
                    records += outcome.records
                    # The notebooks of a whole class would fill the memory.
                    watch(done, len(handins), replace(outcome, marked={}))
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
    place = Path(tempfile.mkdtemp(prefix=RUN, dir=state(course)))
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
    present: bool = False

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
            outcome = self._mark(handin)
        except CourseError as reason:
            outcome = Outcome(handin, refused=str(reason))
        except Exception as problem:
            said = f"could not be graded: {type(problem).__name__}: {problem}"
            outcome = Outcome(handin, refused=said, detail=traceback.format_exc())
        return replace(outcome, seconds=time.monotonic() - start)

    def _mark(self, handin: Handin) -> Outcome:
        when, digest = timestamp_of(handin.folder), digest_of(handin.folder)
        notebooks, repairs = find_notebooks(handin, self.editions[handin.chapter])
        staged = Path(tempfile.mkdtemp(dir=self.place))
        staged.chmod(0o755)
        copy_files(handin.folder, staged)
        copy_files(self.course.path(self.course.source, ".", handin.chapter), staged)
        rebuilt = {name: self._rebuilt(handin, name, notebook) for name, notebook in notebooks.items()}
        marked, peak = {}, 0
        for name, (edition, notebook, _) in rebuilt.items():
            with Session(staged, limits=self.limits, warm=self.warm) as session:
                marked[name] = mark(notebook, stubs_of(edition), session, secret=self.secret)
            peak = max(peak, session.peak)
        for name, (_, _, mended) in rebuilt.items():
            repairs += mended
            write_graded(staged / f"{name}.ipynb", marked[name], mended, digest)
        for path in staged.rglob("*"):
            if path.is_file():
                path.chmod(0o444)
        return Outcome(handin, marked, repairs, when, staged=staged, digest=digest, peak=peak)

    def _rebuilt(
        self, handin: Handin, name: str, submitted: NotebookNode
    ) -> tuple[NotebookNode, NotebookNode, list[Repair]]:
        """The edition that a notebook is graded against, the notebook rebuilt from it, and what was repaired."""
        edition = self.editions[handin.chapter][name]
        told: list[Repair] = []
        if not self.present:
            edition, told = edition_for(self.course, handin.chapter, name, edition, submitted)
        notebook, mended = rebuild(edition, submitted)
        return edition, notebook, [*told, *mended]
