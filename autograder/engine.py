"""Where a notebook is run and marked: on this machine, or wherever another engine with this method sends it."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from nbformat import NotebookNode

from autograder.course import Course
from autograder.errors import CourseError
from autograder.kernels import Forge, Limits, Session, forge
from autograder.marking import mark
from autograder.options import EXECUTE, option
from autograder.results import Marked
from autograder.sandbox.policy import readable

# nbgrader's own number of seconds for a cell; then, where it sets none, a day.
_CELL, _ENDLESS = 30.0, 24 * 3600.0


def limits_of(course: Course) -> Limits:
    """The time limit of a cell is nbgrader's: 30 seconds, or what the course's configuration says; so is the kernel's
    time to start.
    """
    seconds, start = option(course, "timeout", *EXECUTE, default=_CELL), option(course, "startup_timeout", *EXECUTE)
    seconds = float(seconds) if isinstance(seconds, int | float) and seconds > 0 else _ENDLESS
    start = float(start) if isinstance(start, int | float) and start > 0 else Limits().start
    return Limits(cell=seconds, probe=seconds, start=start, notebook=20 * seconds)


def ours() -> list[Path]:
    """The folders of this repository, should it lie among the system's files: no learner may read them.

    But for those that hold this Python.
    """
    root = Path(__file__).parents[1]
    if not (root / "solutions").is_dir():  # the package alone, installed
        return []
    python = [Path(place) for place in readable()]
    folders = [path for path in root.iterdir() if path.is_dir()]
    return [path for path in folders if not any(place.is_relative_to(path) for place in python)]


class Lost(CourseError):
    """The engine itself is gone: the run ends, and what was saved stays."""


class Engine(Protocol):
    """Runs and marks notebooks; serves any number of threads."""

    def mark(self, files: Path, notebook: NotebookNode, stubs: Mapping[str, str]) -> tuple[Marked, int]:
        """The notebook marked, run beside a copy of `files`, and the most bytes of memory that its kernel held.

        `stubs` as in `marking.mark`.
        """
        ...


@dataclass(frozen=True)
class Here:
    """The engine of this process: kernels from `warm`, new ones without it; the judge in the calling thread."""

    warm: Forge | None
    limits: Limits
    secret: str

    def mark(self, files: Path, notebook: NotebookNode, stubs: Mapping[str, str]) -> tuple[Marked, int]:
        """As the engine's."""
        with Session(files, limits=self.limits, warm=self.warm) as session:
            marked = mark(notebook, stubs, session, secret=self.secret)
        return marked, session.peak


@contextmanager
def local_forge(sandbox: str, hide: Sequence[Path]) -> Iterator[Forge | None]:
    """Where kernels come from in a mode of the sandbox; None, and each is started anew, where nothing can be forked."""
    if sys.platform != "linux":
        yield None
    else:
        with forge(sandboxed=sandbox == "on", bwrap=sandbox == "bwrap", hide=hide) as warm:
            yield warm
