"""Older releases of a chapter, kept in the course as they are graded, so that what learners got before still counts."""

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from autograder.cells import grade_id, is_graded
from autograder.course import Course
from autograder.ledger import state
from autograder.rebuild import Repair

OLDER = "older release"  # the kind of repair that says so
_STAMP = re.compile(r"[0-9a-f]{12}")


def release_of(notebook: NotebookNode) -> str:
    """The release that a notebook says it is of, "" where it says none."""
    stamp = notebook.metadata.get("course")
    found = stamp.get("release") if isinstance(stamp, dict) else None
    return found if isinstance(found, str) and _STAMP.fullmatch(found) else ""


def _folder(course: Course, chapter: str, release: str) -> Path:
    return state(course) / "editions" / chapter / release


def keep(course: Course, chapter: str, editions: Mapping[str, NotebookNode]) -> None:
    """Keep the editions of a chapter by their release, and the source of each; what is kept already stays."""
    for name, edition in editions.items():
        release = release_of(edition)
        path = _folder(course, chapter, release) / f"{name}.ipynb"
        if not release or path.is_file():
            continue
        source = course.path(course.source, ".", chapter) / f"{name}.ipynb"
        (path.parent / "source").mkdir(parents=True, exist_ok=True)
        if source.is_file():
            shutil.copyfile(source, path.parent / "source" / source.name)
        new = path.with_suffix(".new")
        nbformat.write(edition, new)
        new.replace(path)


def edition_for(
    course: Course, chapter: str, name: str, present: NotebookNode, submitted: NotebookNode
) -> tuple[NotebookNode, list[Repair]]:
    """What a submission is graded against: the release that it came from where that was kept, else the present one."""
    release = release_of(submitted)
    path = _folder(course, chapter, release) / f"{name}.ipynb"
    if not release or release == release_of(present) or not path.is_file():
        return present, []
    edition = nbformat.read(path, as_version=4)
    told = f"graded against its own release {release}; the present one is {release_of(present) or 'another'}"
    old, new = ({grade_id(cell) for cell in nb.cells if is_graded(cell)} for nb in (edition, present))
    if lost := sorted(old - new):
        told += f"; the gradebook has no place for {', '.join(lost)}"
    if later := sorted(new - old):
        told += f"; it had no {', '.join(later)}, counted as 0"
    return edition, [Repair(OLDER, "", told)]
