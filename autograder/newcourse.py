"""A new nbgrader course of the project's chapters: source, release, gradebook, settings and a secret of its own."""

from collections.abc import Callable
from pathlib import Path

import nbformat

from autograder.course import Course, Project
from autograder.editions import keep
from autograder.errors import CourseError
from autograder.gradebook import Book, register
from autograder.ledger import alone, secret_of
from autograder.release import STUB, dumps, source_notebook

CONFIG = '''\
# Settings of this nbgrader course: https://nbgrader.readthedocs.io
# Both `nbgrader` and `autograder` read them; run either in this folder.
c = get_config()  # noqa: F821

# The course's name on the exchange, if you use one.
c.CourseDirectory.course_id = "transformer"

# Seconds that one cell of a learner may run.
c.ExecutePreprocessor.timeout = {timeout}

# A late submission keeps its marks; "zero" takes them all. Due dates are set in the formgrader,
# the time of a submission stands in its timestamp.txt.
c.LateSubmissionPlugin.penalty_method = "none"

# What a learner finds in place of an answer, and reads who runs its tests first.
c.ClearSolutions.code_stub = {{"python": {stub!r}}}

# The gradebook, if not gradebook.db beside this file.
# c.CourseDirectory.db_url = "sqlite:////absolute/path/gradebook.db"
'''

# May lie in the folder before the course is made.
_FIRST = {"submitted", "downloaded", "source", "release", "autograded", "feedback", "gradebook.db", "README.md"}


def init(
    project: Project, folder: Path, *, timeout: int = 30, say: Callable[[str], None] = lambda line: None
) -> Course:
    """Make the course in `folder`, or bring the chapters of one that is there up to date; settings stay as they are."""
    if not project.slugs():
        raise CourseError(f"{project.solutions}: no chapters to make a course of; write solutions/NN_slug.md first")
    config = folder / "nbgrader_config.py"
    _must_be_free(folder, config)
    folder.mkdir(parents=True, exist_ok=True)
    if not config.exists():
        config.write_text(CONFIG.format(timeout=timeout, stub=STUB))
    course = Course(folder.resolve())
    course.submitted.mkdir(parents=True, exist_ok=True)
    with alone(course):
        secret_of(course)
        known = _released(course)
        for slug in project.slugs():
            path = course.path(course.source, ".", slug) / f"{slug}.ipynb"
            text = dumps(source_notebook(project, slug))
            if slug in known and path.is_file() and path.read_text(encoding="utf-8") == text:
                continue
            say(f"{slug}: into source/, release/ and the gradebook")
            if slug in known:
                _keep(course, slug, say)
            _put(course, slug, path, text)
    return course


def _must_be_free(folder: Path, config: Path) -> None:
    """CourseError where a folder holds something else than a course, or than what may lie in one before it is made."""
    if folder.is_dir() and not config.exists():
        names = sorted(path.name for path in folder.iterdir())
        others = [name for name in names if not name.startswith(".") and name not in _FIRST]
        if others:
            raise CourseError(f"{folder}: holds {', '.join(others[:3])} and is no course; name a new folder for it")


def _released(course: Course) -> set[str]:
    try:
        with Book(course) as book:
            return set(book.assignments())
    except CourseError:  # no gradebook yet
        return set()


def _keep(course: Course, slug: str, say: Callable[[str], None]) -> None:
    """Keep the release that is about to be replaced: what learners got of it is graded against it."""
    try:
        with Book(course) as book:
            keep(course, slug, book.editions(slug))
    except CourseError as problem:
        say(f"{slug}: the release before can't be kept ({problem})")


def _put(course: Course, slug: str, path: Path, text: str) -> None:
    """A chapter's new source, released; the old source again where nbgrader refuses the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    before = path.read_bytes() if path.is_file() else None
    path.write_text(text, encoding="utf-8")
    try:
        register(course, slug)
    except CourseError:
        path.unlink()
        if before is not None:
            path.write_bytes(before)
        raise


def released(course: Course, slug: str) -> nbformat.NotebookNode:
    """The notebook of a chapter as this course's learners get it."""
    return nbformat.read(course.path(course.release, ".", slug) / f"{slug}.ipynb", as_version=4)
