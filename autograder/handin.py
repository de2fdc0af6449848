"""What learners handed in: whose it is, which of its files is which notebook, and the files beside them."""

import fnmatch
import hashlib
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from nbformat import NotebookNode

from autograder.cells import Refused, grade_id, parse
from autograder.course import Course
from autograder.errors import CourseError
from autograder.rebuild import Repair

# As nbgrader passes over them; the size is its limit too.
_IGNORED = (".ipynb_checkpoints", "*.pyc", "__pycache__", "feedback", ".autograder")
_LARGEST = 100_000_000


@dataclass(frozen=True)
class Handin:
    """One submission: whose, of what, and where it lies."""

    student: str
    chapter: str
    folder: Path


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


Found = tuple[dict[str, NotebookNode], list[Repair]]


def find_notebooks(handin: Handin, editions: Mapping[str, NotebookNode]) -> Found:
    """The notebooks of a submission, read, by the name of the edition that each is a copy of.

    A notebook is known by its cells; its file name decides only between two that know as many. `Refused` where there
    is none at all, or where the only one for an edition can't be read.
    """
    read: dict[Path, NotebookNode] = {}
    broken: dict[Path, Refused] = {}
    for path in (path for path in _files(handin.folder) if path.suffix.lower() == ".ipynb"):
        try:
            read[path] = parse(path.read_bytes())
        except Refused as reason:
            broken[path] = Refused(f"{path.relative_to(handin.folder)}: {reason}")
    if not read:
        raise next(iter(broken.values()), Refused("no notebook was handed in; ask for it again"))
    found, repairs = {}, []
    for name, edition in editions.items():
        best = _best(name, edition, read, alone=len(editions) == 1)
        named = handin.folder / f"{name}.ipynb"
        if best is None and named in broken:
            raise broken[named]
        if best is not None:
            found[name] = read[best]
            if best != named:
                repairs.append(Repair("renamed", "", f"{best.name} was taken for {name}.ipynb: its cells are"))
    if not found:
        raise Refused("no notebook of the assignment was handed in; is it another assignment's?")
    return found, repairs


def _best(name: str, edition: NotebookNode, read: Mapping[Path, NotebookNode], *, alone: bool) -> Path | None:
    ours = _names(edition)
    scores = {path: (len(ours & _names(nb)), path.stem == name) for path, nb in read.items()}
    known = [path for path, (shared, named) in scores.items() if shared or named or (alone and len(read) == 1)]
    return max(known, key=lambda path: scores[path]) if known else None


def _names(nb: NotebookNode) -> set[str]:
    """The ids of a notebook's cells, nbgrader's first of all."""
    return {name for cell in nb.cells for name in (grade_id(cell), cell.get("id", "")) if name}


def _files(folder: Path) -> Iterator[Path]:
    """The plain files of a folder; a link could lead anywhere, so none is followed."""
    for path in sorted(folder.iterdir()) if folder.is_dir() and not folder.is_symlink() else ():
        if path.is_symlink() or any(fnmatch.fnmatch(path.name, pattern) for pattern in _IGNORED):
            continue
        if path.is_dir():
            yield from _files(path)
        elif path.is_file() and path.stat().st_size <= _LARGEST:
            yield path


def digest_of(folder: Path) -> str:
    """A digest of all that was handed in, but for the time."""
    whole = hashlib.sha256()
    for path in _files(folder):
        if path != folder / "timestamp.txt":
            for part in (str(path.relative_to(folder)).encode("utf-8", "surrogateescape"), path.read_bytes()):
                whole.update(hashlib.sha256(part).digest())
    return whole.hexdigest()


def copy_files(folder: Path, target: Path) -> None:
    """Copy the files that are no notebooks, over those that are there."""
    for path in _files(folder):
        if path.suffix.lower() != ".ipynb":
            copy = target / path.relative_to(folder)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
