"""The pipeline: find the submissions of a course, rebuild, run and mark them in parallel, save them one by one.

A submission that can't be graded is refused with a reason and never stops the class: in = graded + refused.
"""

import shutil
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from nbformat import NotebookNode

from autograder.changes import is_up_to_date
from autograder.course import Course
from autograder.editions import edition_for
from autograder.engine import Engine, Here, Lost, limits_of, local_forge, ours
from autograder.errors import CourseError
from autograder.gradebook import Book, complete, timestamp_of
from autograder.handin import Handin, copy_files, digest_of, find_handins, find_notebooks, matches
from autograder.kernels import Limits
from autograder.ledger import alone, is_sample, secret_of, state
from autograder.marking import stubs_of
from autograder.options import mode_of, own_files
from autograder.rebuild import Repair, rebuild
from autograder.records import Editions, Outcome, Record, Stored, by_exercise, stored, stored_records
from autograder.sandbox import bubble, missing
from autograder.saving import RUN, Saving, finish_interrupted, write_graded

if TYPE_CHECKING:
    from autograder.scale import Farm

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
    notebook: str | None = None, update: bool = False, scheduler: str = "", cluster: bool = False,
) -> list[Record]:
    """Grade what was handed in, of one chapter, student or notebook where they are named, by nbgrader's patterns.

    An assignment that is in `source/` and not in the gradebook is first put there, as nbgrader does.
    update: pass over what was graded and has not changed since.
    sandbox: "on", and the run refuses where this machine can't put one up; "bwrap", bubblewrap's in its stead; "off",
    and learners' code has our rights.
    scheduler: the address of a dask scheduler whose workers run the notebooks; cluster: `jobs` new workers on this
    machine do.
    dry_run: change nothing; the outcomes that `watch` gets say what would change. yes: also save what changes a score
    without the learner's doing; else it is held back. wait: for another run on this course, instead of refusing.
    present: grade submissions of an older release against the present one.
    A refused submission has a record of verdict "error" and kind "refused" for each exercise. `watch` is told how
    many are done, of how many, and the last outcome; first with None.
    """
    records: list[Record] = []
    sandbox = settled(course, sandbox, elsewhere=bool(scheduler))
    course.must_be()  # in a folder named by mistake nothing is left behind, not even a lock
    with alone(course, wait=wait):
        handins = find_handins(course, chapter=chapter, student=student)
        complete(course, {handin.chapter for handin in handins}, dry=dry_run)
        with Book(course) as book:
            if not dry_run:
                finish_interrupted(book)
            handins = [handin for handin in handins if not (update and is_up_to_date(course, handin))]
            editions = {name: book.editions(name) for name in sorted({handin.chapter for handin in handins})}
            _must_have(editions, notebook)
            saving = Saving(book, editions, sandbox, dry_run, yes)
            secret, limits = secret_of(course), limits or limits_of(course)
            with (_workplace(course) as place,
                  _engine(course, sandbox, limits, secret, scheduler, jobs if cluster else 0) as engine):
                bench = _Bench(course, editions, place, engine, present, notebook)
                watch(0, len(handins), None)
                jobs = jobs if isinstance(engine, Here) else 2 * engine.width
                for done, outcome in enumerate(bench.outcomes(handins, jobs), 1):
                    outcome = saving.saved(outcome)
                    records += outcome.records
                    # The notebooks of a whole class would fill the memory.
                    watch(done, len(handins), replace(outcome, marked={}))
    return sorted(records, key=lambda record: (record.chapter, record.student))


def _must_have(editions: Mapping[str, Editions], notebook: str | None) -> None:
    known = sorted({name for chapter in editions.values() for name in chapter})
    if editions and not any(matches(name, notebook) for name in known):
        raise CourseError(f"no notebook '{notebook}'; there are: {', '.join(known)}")


def settled(course: Course, sandbox: str, *, elsewhere: bool = False) -> str:
    """The mode that a run of this course will have; CourseError where a sandbox is wanted and can't be had.

    Our own sample class alone falls back by itself: its code is ours. elsewhere: other machines put it up.
    """
    lacks = [] if elsewhere else {"on": missing, "bwrap": bubble.lacks}.get(sandbox, list)()
    if not lacks:
        return sandbox
    if is_sample(course):
        return "off"
    other = ", try --sandbox bwrap," if sandbox == "on" and not bubble.lacks() else ","
    raise CourseError(f"no sandbox on this machine ({lacks[0]}); mend that{other} or say --sandbox off, and learners' "
                      "code runs with your rights")


@contextmanager
def _engine(
    course: Course, sandbox: str, limits: Limits, secret: str, scheduler: str, workers: int
) -> Iterator["Here | Farm"]:
    """What runs notebooks: this process or workers, in kernels that see nothing of the course, nor of our sources."""
    hide = (course.root.resolve(), course.base.resolve(), *ours())
    if scheduler or workers:
        try:
            from autograder.scale import farm
        except ImportError as problem:
            raise CourseError(f"no dask.distributed here ({problem}); run: pip install '.[scale]'") from None
        with farm(limits=limits, secret=secret, mode=sandbox, hide=hide, scheduler=scheduler, workers=workers) as found:
            yield found
    else:
        with local_forge(sandbox, hide) as warm:
            yield Here(warm, limits, secret)


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
    place: Path
    engine: Engine
    present: bool = False
    named: str | None = None  # the notebooks to grade, as a pattern

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
        """Mark one submission. Raises `Lost` alone: what else goes wrong here must not stop the others."""
        start = time.monotonic()
        try:
            outcome = self._mark(handin)
        except Lost:
            raise
        except CourseError as reason:
            outcome = Outcome(handin, refused=str(reason))
        except Exception as problem:
            said = f"could not be graded: {type(problem).__name__}: {problem}"
            outcome = Outcome(handin, refused=said, detail=traceback.format_exc())
        return replace(outcome, seconds=time.monotonic() - start)

    def _mark(self, handin: Handin) -> Outcome:
        when, digest = timestamp_of(handin.folder), digest_of(handin.folder)
        editions = self.editions[handin.chapter]
        notebooks, repairs = find_notebooks(handin, editions)
        left = frozenset(name for name in editions if not matches(name, self.named))
        staged = self._stage(handin)
        wanted = {name: notebook for name, notebook in notebooks.items() if name not in left}
        rebuilt = {name: self._rebuilt(handin, name, notebook) for name, notebook in wanted.items()}
        marked, peaks = {}, [0]
        for name, (edition, notebook, _) in rebuilt.items():
            marked[name], peak = self.engine.mark(staged, notebook, stubs_of(edition))
            peaks.append(peak)
        for name, (_, _, mended) in rebuilt.items():
            repairs += mended
            write_graded(staged / f"{name}.ipynb", marked[name], mended, digest)
        self._copy_graded(handin, left, staged)
        mode = mode_of(self.course)
        for path in staged.rglob("*"):
            if path.is_file():
                path.chmod(mode)
        return Outcome(handin, marked, repairs, when, staged=staged, digest=digest, peak=max(peaks), left=left)

    def _stage(self, handin: Handin) -> Path:
        """The files beside the notebooks: the learner's, ours over them."""
        staged = Path(tempfile.mkdtemp(dir=self.place))
        staged.chmod(0o755)
        copy_files(handin.folder, staged)
        source = self.course.path(self.course.source, ".", handin.chapter)
        copy_files(source, staged, but=own_files(self.course, handin.chapter))
        return staged

    def _copy_graded(self, handin: Handin, left: frozenset[str], staged: Path) -> None:
        """The notebooks that this run leaves alone, as they were graded before."""
        graded = self.course.path(self.course.autograded, handin.student, handin.chapter)
        for name in left:
            if (graded / f"{name}.ipynb").is_file():
                shutil.copyfile(graded / f"{name}.ipynb", staged / f"{name}.ipynb")

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
