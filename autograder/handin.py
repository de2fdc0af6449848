"""What learners handed in: whose it is, which of its files is which notebook, and the files beside them."""

import fnmatch
import hashlib
import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from nbformat import NotebookNode

from autograder.cells import Refused, grade_id, parse, released, same_text, writable
from autograder.course import Course
from autograder.errors import CourseError
from autograder.options import left_out
from autograder.rebuild import Repair

# As nbgrader passes over them; the size is its limit too.
_IGNORED = (".ipynb_checkpoints", "*.pyc", "__pycache__", "feedback", ".autograder")
_LARGEST = 100_000_000
_DEEPEST = 30  # folders within folders


@dataclass(frozen=True)
class Handin:
    """One submission: whose, of what, and where it lies."""

    student: str
    chapter: str
    folder: Path


def matches(name: str, pattern: str | None) -> bool:
    """Is it the name itself, or one that the pattern takes in, as nbgrader writes patterns? All are, without one."""
    return pattern in (None, name) or fnmatch.fnmatchcase(name, pattern or "")


def find_handins(course: Course, *, chapter: str | None = None, student: str | None = None) -> list[Handin]:
    """The submissions to grade; CourseError where a named chapter or student has none."""
    known = course.assignments()
    chapters = [name for name in known if matches(name, chapter)]
    if chapter is not None and not chapters:
        raise CourseError(f"{course.source}: no assignment '{chapter}'; there are: {', '.join(known) or 'none'}")
    out = left_out(course)
    found = [
        Handin(name, assignment, course.path(course.submitted, name, assignment))
        for assignment in chapters
        for name in course.students(assignment) if name not in out
    ]
    chosen = [handin for handin in found if matches(handin.student, student)]
    if student is not None and not chosen:
        wanted = f"'{student}'" + (f" for {chapter}" if chapter else "")
        raise CourseError(f"{course.submitted}: nothing handed in by {wanted}; look for the folder's name there")
    return chosen


def strays(course: Course) -> list[Path]:
    """The notebooks under `submitted/` that lie in no learner's folder of an assignment: nothing grades them."""
    known = {course.path(course.submitted, name, assignment)
             for assignment in course.assignments() for name in course.students(assignment)}
    found = []
    for folder, inside, files in os.walk(course.submitted):
        here = Path(folder)
        inside[:] = [name for name in inside if here / name not in known and not name.startswith(".")]
        found += [here / name for name in files if name.lower().endswith(".ipynb")] if here not in known else []
    return sorted(found)


Found = tuple[dict[str, NotebookNode], list[Repair]]


def find_notebooks(handin: Handin, editions: Mapping[str, NotebookNode]) -> Found:
    """The notebooks of a submission, read, by the name of the edition that each is a copy of.

    A notebook is known by its cells; of several that are, one that was written in counts, and then its file name.
    `Refused` where there is none at all, or where the only one for an edition can't be read.
    """
    read, broken, repairs = _read(handin.folder)
    if not read:
        raise next(iter(broken.values()), Refused(f"no notebook was handed in{_instead(handin.folder)}"))
    found = {}
    for name, edition in editions.items():
        ranked = _ranked(name, editions, read)
        named = handin.folder / f"{name}.ipynb"
        if not ranked and named in broken:
            raise broken[named]
        if ranked:
            found[name] = read[ranked[0]]
            repairs += _told(name, edition, ranked, named)
    if not found:
        raise Refused("no notebook of the assignment was handed in; is it another assignment's?")
    return found, repairs


def _read(folder: Path) -> tuple[dict[Path, NotebookNode], dict[Path, Refused], list[Repair]]:
    """The files that are notebooks; those that should be, with what is wrong with them; and what was odd in reading."""
    read: dict[Path, NotebookNode] = {}
    broken: dict[Path, Refused] = {}
    repairs: list[Repair] = []
    for path in _entries(folder):
        if path.suffix.lower() == ".ipynb":
            try:
                _open(path, read, repairs)
            except Refused as reason:
                broken[path] = Refused(f"{writable(str(path.relative_to(folder)))}: {reason}")
    for path in _entries(folder) if not read else ():  # saved under another kind of name, by a browser say
        with suppress(Refused):
            if path.suffix.lower() != ".ipynb":
                _open(path, read, repairs)
    return read, broken, repairs


def _open(path: Path, read: dict[Path, NotebookNode], repairs: list[Repair]) -> None:
    told: list[str] = []
    if path.is_symlink():
        raise Refused("it is a link, and no link is followed; ask for the file itself")
    if not path.is_file():
        raise Refused("it is no file; ask for the notebook again")
    if path.stat().st_size > _LARGEST:
        raise Refused(f"it has {path.stat().st_size >> 20} MB, mostly outputs; ask for it with its outputs cleared")
    try:
        read[path] = parse(path.read_bytes(), told.append)
    except OSError as problem:
        raise Refused(f"it can't be read ({problem.strerror}); give yourself the right to") from None
    repairs += [Repair("file", "", f"{writable(path.name)[:100]} {what}") for what in dict.fromkeys(told)]


def _instead(folder: Path) -> str:
    """What there is instead of a notebook, as the end of a sentence."""
    there = ", ".join(writable(path.name)[:40] for path in islice(_entries(folder), 5) if path.name != "timestamp.txt")
    return f" but {there}; ask for the .ipynb file" if there else "; ask for it again"


def _told(name: str, edition: NotebookNode, ranked: list[Path], named: Path) -> list[Repair]:
    """What there is to say of the choice of a file."""
    best, *others = ranked
    said = []
    if best != named:
        said.append(Repair("renamed", "", f"{writable(best.name)[:100]} was taken for {name}.ipynb: its cells are"))
    if others:
        names = ", ".join(writable(path.name)[:60] for path in others[:4])
        said.append(Repair("several", "", f"{writable(best.name)[:100]} counts; not {names}"))
    return said


def _ranked(name: str, editions: Mapping[str, NotebookNode], read: Mapping[Path, NotebookNode]) -> list[Path]:
    """The files that are copies of an edition, the one that counts first."""
    known = {path: _shared(editions[name], nb) for path, nb in read.items()
             if all(_shared(editions[name], nb) >= _shared(other, nb) for other in editions.values())}
    most = max(known.values(), default=0)
    copies = [path for path, shared in known.items() if shared and 2 * shared >= most]
    if not copies:  # no cell is known by its id or its text, so its name must do, or that there is no other
        copies = [path for path in read if path.stem == name or (len(read) == len(editions) == 1)]
    ours = {released(cell) for cell in editions[name].cells}
    written = {path: any(same_text(cell.source) not in ours for cell in read[path].cells) for path in copies}
    return sorted(copies, key=lambda path: (not written[path], path.stem != name, -known.get(path, 0), path))


def _shared(edition: NotebookNode, nb: NotebookNode) -> int:
    """How many cells of an edition a notebook has: by id, or where it has lost its ids, by their text."""
    texts = {released(cell) for cell in edition.cells} - {""}
    return max(len(_names(edition) & _names(nb)), len(texts & {same_text(cell.source) for cell in nb.cells}))


def _names(nb: NotebookNode) -> set[str]:
    """The ids of a notebook's cells, nbgrader's first of all."""
    return {name for cell in nb.cells for name in (grade_id(cell), cell.get("id", "")) if name}


def _entries(folder: Path, depth: int = 0) -> Iterator[Path]:
    """All that lies in a folder and below but the folders themselves; a link could lead anywhere: none is followed.

    What lies deeper than anybody would put it is not looked at.
    """
    if depth > _DEEPEST:
        return
    for path in sorted(folder.iterdir()) if folder.is_dir() and not folder.is_symlink() else ():
        if any(fnmatch.fnmatch(path.name, pattern) for pattern in _IGNORED):
            continue
        if path.is_dir() and not path.is_symlink():
            yield from _entries(path, depth + 1)
        else:
            yield path


def _files(folder: Path) -> Iterator[Path]:
    """The plain files of a folder that can be read."""
    for path in _entries(folder):
        if not path.is_symlink() and path.is_file() and path.stat().st_size <= _LARGEST and os.access(path, os.R_OK):
            yield path


def digest_of(folder: Path) -> str:
    """A digest of all that was handed in, but for the time."""
    whole = hashlib.sha256()
    for path in _files(folder):
        if path != folder / "timestamp.txt":
            for part in (str(path.relative_to(folder)).encode("utf-8", "surrogateescape"), path.read_bytes()):
                whole.update(hashlib.sha256(part).digest())
    return whole.hexdigest()


def copy_files(folder: Path, target: Path, *, but: Collection[str] = ()) -> None:
    """Copy the files that are no notebooks, over those that are there; `but` are names from the folder to leave out."""
    for path in _files(folder):
        named = any(part.lower().endswith(".ipynb") for part in path.relative_to(folder).parts)
        if not named and path.relative_to(folder).as_posix() not in but:
            copy = target / path.relative_to(folder)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
