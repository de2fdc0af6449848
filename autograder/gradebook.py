"""nbgrader's gradebook and its API: the only room that knows either, and SQL.

nbgrader's methods commit one by one; here they run inside one transaction of ours, so that a submission is saved
whole or not at all.
"""

import contextlib
import functools
import os
import sys
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from nbgrader.api import BaseCell, Grade, Gradebook, MissingEntry
from nbgrader.converters import GenerateAssignment
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import AssignLatePenalties
from nbgrader.utils import parse_utc
from sqlalchemy.exc import DatabaseError
from sqlalchemy.orm import scoped_session, sessionmaker, undefer

from autograder.cells import SKIPPED, grade_id, is_tests, tags
from autograder.course import Course
from autograder.errors import CourseError
from autograder.results import Marked, hidden_line

NO_RESPONSE = "No response."


class NoGradebook(CourseError):
    """A course whose gradebook is a file that is not there."""


@dataclass(frozen=True)
class Mark:
    """One cell in the gradebook: what the grader gave, what a person gave, the score that counts, the comment."""

    auto: float | None
    manual: float | None
    extra: float | None
    score: float
    max_score: float
    needs_manual: bool
    comment: str

    @property
    def to_see_again(self) -> bool:
        """Did a person mark something that has changed since?"""
        return self.manual is not None and self.needs_manual


@dataclass(frozen=True)
class Marks:
    """One notebook of one student in the gradebook, by cell; `comments` also of answers that give no points."""

    cells: Mapping[str, Mark]
    comments: Mapping[str, str]
    penalty: float
    timestamp: datetime | None


def timestamp_of(folder: Path) -> datetime | None:
    """When a submission was handed in, in UTC, from nbgrader's timestamp.txt; None without one. CourseError if bad."""
    path = folder / "timestamp.txt"
    text = path.read_text(encoding="utf-8-sig", errors="replace").strip() if path.is_file() else ""
    try:
        return parse_utc(text) if text else None
    except (ValueError, OverflowError, TypeError):
        raise CourseError(f"{path}: '{text[:40]}' is no time; write it as 2026-01-31 23:59:59 UTC") from None


def _directory(course: Course) -> CourseDirectory:
    return CourseDirectory(config=course.config, root=str(course.base.resolve()), db_url=course.db_url)


@contextlib.contextmanager
def _programs() -> Iterator[None]:
    """nbgrader calls `alembic`, which lies beside this Python, whether or not its environment is active."""
    before = os.environ.get("PATH", os.defpath)
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), before])
    try:
        yield
    finally:
        os.environ["PATH"] = before


@contextlib.contextmanager
def _imports_from(*folders: Path) -> Iterator[None]:
    """Modules in these folders can be imported, and are forgotten afterwards: the next course has its own."""
    roots = list(dict.fromkeys(str(folder.resolve()) for folder in folders))
    before, modules = list(sys.path), set(sys.modules)
    sys.path[:0] = roots
    try:
        yield
    finally:
        sys.path[:] = before
        for name in set(sys.modules) - modules:
            if any(Path(getattr(sys.modules[name], "__file__", None) or "/").is_relative_to(root) for root in roots):
                del sys.modules[name]


def register(course: Course, assignment: str) -> None:
    """Release an assignment of `source/`: its notebooks into `release/`, its cells into the gradebook."""
    directory = _directory(course)
    directory.assignment_id, directory.student_id = assignment, "."
    converter = GenerateAssignment(coursedir=directory, config=course.config)
    converter.force = True
    try:
        with _programs(), _quiet():
            converter.start()
    except Exception as problem:  # nbgrader raises its own, RuntimeError, ValidationError and others
        where = course.path(course.source, ".", assignment)
        raise CourseError(f"{where}: nbgrader cannot release it ({problem}); mend the source") from problem


def complete(course: Course, assignments: Iterable[str], *, dry: bool = False) -> list[str]:
    """Release those assignments that are not in the gradebook, as `nbgrader generate_assignment` does; their names.

    CourseError where one was released, so that learners have it, and only the gradebook has lost it; dry: always.
    """
    try:
        with Book(course) as book:
            known = set(book.assignments())
    except NoGradebook:
        known = set()
    absent = sorted(name for name in assignments if name not in known)
    if absent and dry:
        first = f"run 'nbgrader generate_assignment {absent[0]}' first, or autograder without --dry-run"
        raise CourseError(f"{course.root}: '{absent[0]}' is not in the gradebook; {first}")
    for name in absent:
        folder = course.path(course.release, ".", name)
        if any(folder.glob("*.ipynb")):
            again = f"run 'nbgrader generate_assignment {name} --force' to make both anew from source"
            raise CourseError(f"{folder}: is there, but '{name}' is not in the gradebook {course.db_url}; {again}")
        register(course, name)
    return absent


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class Book:
    """A course's gradebook, open."""

    def __init__(self, course: Course):
        self.course = course

    def __enter__(self) -> "Book":
        directory = _directory(self.course)
        if self.course.lacks_db:
            raise NoGradebook(f"{self.course.root}: no gradebook; is it the folder that 'autograder init' made? "
                              "Another course needs 'nbgrader generate_assignment NAME' first")
        try:
            with _programs(), _quiet():
                self._book = Gradebook(directory.db_url, directory.course_id)
        except DatabaseError as problem:
            raise self._unreadable(problem) from problem
        return self

    def __exit__(self, _: object, problem: BaseException | None, *__: object) -> None:
        try:
            self._book.close()
        finally:
            if isinstance(problem, DatabaseError):
                raise self._unreadable(problem) from problem

    def _unreadable(self, problem: DatabaseError) -> CourseError:
        cure = "put a copy of it in its place, or see who else is at work on it"
        return CourseError(f"{self.course.db_url}: the gradebook can't be used ({problem.orig}); {cure}")

    def assignments(self) -> list[str]:
        """The assignments that have been released."""
        return sorted(assignment.name for assignment in self._book.assignments)

    def editions(self, assignment: str) -> dict[str, NotebookNode]:
        """The notebooks of an assignment by name, as they are graded: hidden tests in, stubs for answers.

        Their frame is the released notebook; the text and points of nbgrader's cells are the gradebook's.
        """
        try:
            notebooks = self._book.find_assignment(assignment).notebooks
        except MissingEntry:
            hint = f"run 'nbgrader generate_assignment {assignment}' first"
            raise CourseError(f"{self.course.root}: '{assignment}' is not in the gradebook; {hint}") from None
        return {notebook.name: self._edition(assignment, notebook) for notebook in notebooks}

    def _edition(self, assignment: str, notebook: Any) -> NotebookNode:
        folders = (self.course.path(step, ".", assignment) for step in (self.course.release, self.course.source))
        path = next((file for folder in folders if (file := folder / f"{notebook.name}.ipynb").is_file()), None)
        again = f"run 'nbgrader generate_assignment {assignment} --force'"
        if path is None:
            raise CourseError(f"{self.course.release}: {assignment}/{notebook.name}.ipynb is gone; {again}")
        edition = nbformat.read(path, as_version=4)
        _must_be_python(path, edition)
        _untag(edition)
        stored = {cell.name: cell for cell in notebook.source_cells}
        most = {cell.name: cell.max_score for cell in (*notebook.grade_cells, *notebook.task_cells)}
        named = {grade_id(cell): cell for cell in edition.cells if grade_id(cell)}
        if strange := sorted(stored.keys() ^ named.keys()):
            raise CourseError(f"{path}: cell '{strange[0]}' is not both here and in the gradebook; {again}")
        for name, cell in named.items():
            cell.source = stored[name].source
            cell.metadata.nbgrader.update(checksum=stored[name].checksum, locked=stored[name].locked)
            if name in most:
                cell.metadata.nbgrader["points"] = most[name]
            if is_tests(cell):
                hidden_line(cell)  # says now, not in the middle of a class, where a check is malformed
        return edition

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """All that happens inside is saved at the end, or nothing of it."""
        before = self._book.db
        with _quiet(), self._book.engine.connect() as connection, connection.begin():
            # nbgrader's own commits then write to the connection, which only this transaction commits.
            maker = sessionmaker(bind=connection, autoflush=True, join_transaction_mode="rollback_only")
            self._book.db = scoped_session(maker)
            try:
                yield
                self._book.db.flush()
            finally:
                self._book.db.remove()
                self._book.db = before

    def save(
        self, student: str, assignment: str, marked: Mapping[str, Marked], timestamp: datetime | None,
        left: Collection[str] = (), same: Collection[tuple[str, str]] = (),
    ) -> tuple[dict[tuple[str, str], float | None], set[tuple[str, str]]]:
        """Write one submission, inside `transaction`; the scores that now count, by notebook and cell.

        As nbgrader does: what a person gave or wrote stays; a notebook that was not handed in gets 0; late penalties
        are drawn anew. A score is None while it waits for a person. Notebooks in `left` stay as they are. What a person
        marked is to be looked at again, but for cells that are the `same` as they were then (nbgrader asks for all of
        them); the cells of which that is so are returned, too.
        """
        book = self._book
        book.update_or_create_student(student)
        late = {} if timestamp is None else {"timestamp": timestamp}
        submission = book.update_or_create_submission(assignment, student, **late)
        scores: dict[tuple[str, str], float | None] = {}
        again: set[tuple[str, str]] = set()
        for notebook in (notebook for notebook in submission.notebooks if notebook.name not in left):
            names = self._names(notebook)
            if notebook.name in marked:
                self._save_cells(notebook, marked[notebook.name], names, same)
            else:
                for grade in notebook.grades:
                    grade.auto_score, grade.needs_manual_grade = 0, False
            self._save_penalty(submission, notebook, student)
            for grade in self._grades(notebook):
                waits = grade.manual_score is None and grade.auto_score is None
                scores[notebook.name, names[grade.cell_id]] = None if waits else grade.score
                if grade.manual_score is not None and grade.needs_manual_grade:
                    again.add((notebook.name, names[grade.cell_id]))
        return scores, again

    def _names(self, notebook: Any) -> dict[str, str]:
        """The names of a submitted notebook's cells by their keys: a grade or comment would ask for its own alone."""
        cells = self._book.db.query(BaseCell.id, BaseCell.name).filter(BaseCell.notebook_id == notebook.notebook_id)
        return {cell.id: cell.name for cell in cells}

    def _grades(self, notebook: Any) -> list[Grade]:
        """The grades of a submitted notebook as the database has them now, their scores computed by it."""
        found = self._book.db.query(Grade).options(undefer(Grade.max_score))
        return list(found.filter(Grade.notebook_id == notebook.id).populate_existing())

    def _save_cells(
        self, notebook: Any, marked: Marked, names: Mapping[str, str], same: Collection[tuple[str, str]]
    ) -> None:
        grades = {names[grade.cell_id]: grade for grade in notebook.grades}
        tasks = {grade_id(cell) for cell in marked.notebook.cells if cell.metadata.get("nbgrader", {}).get("task")}
        for result in marked.results:
            # nbgrader leaves the marks of tasks to people altogether; a cell of an older release may have no place.
            if result.cell in tasks or result.cell not in grades:
                continue
            grade = grades.pop(result.cell)
            grade.auto_score = result.points
            seen = grade.manual_score is not None and (notebook.name, result.cell) in same
            by_hand = grade.manual_score is not None or result.points is None
            grade.needs_manual_grade = grade.needs_manual_grade if seen else by_hand or result.to_look_at
        for name in grades.keys() - tasks:  # not in the release that was graded
            grades[name].auto_score, grades[name].needs_manual_grade = 0, False
        for comment in notebook.comments:
            unanswered = names[comment.cell_id] in marked.unanswered
            comment.auto_comment = NO_RESPONSE if unanswered else None

    def _save_penalty(self, submission: Any, notebook: Any, student: str) -> None:
        notebook.late_submission_penalty = None
        self._book.db.flush()
        self._book.db.expire(notebook, ["score"])
        late = submission.total_seconds_late
        if late <= 0:
            return
        with _imports_from(self.course.root, self.course.base):  # a plugin of the course lies beside its config
            self._penalties.init_plugin()
            penalty = self._penalties.plugin_inst.late_submission_penalty(student, notebook.score, late)
        if penalty is not None:
            notebook.late_submission_penalty = min(max(penalty, 0), notebook.score)

    @functools.cached_property
    def _penalties(self) -> AssignLatePenalties:
        """It finds the plugin's class: once, for finding it runs the plugin's module."""
        return AssignLatePenalties(config=self.course.config)

    def marks(self, student: str, assignment: str, notebook: str) -> Marks | None:
        """What the gradebook holds of one notebook of one student, None where it holds nothing."""
        try:
            submission = self._book.find_submission(assignment, student)
            found = self._book.find_submission_notebook(notebook, assignment, student)
        except MissingEntry:
            return None
        names, grades = self._names(found), self._grades(found)
        comments = {names[comment.cell_id]: comment.comment for comment in found.comments if comment.comment}
        cells = {(name := names[grade.cell_id]): _mark(grade, comments.get(name, "")) for grade in grades}
        return Marks(cells, comments, found.late_submission_penalty or 0.0, submission.timestamp)


def _must_be_python(path: Path, edition: NotebookNode) -> None:
    spec, info = edition.metadata.get("kernelspec", {}), edition.metadata.get("language_info", {})
    language = str(spec.get("language") or info.get("name") or "python")
    if not language.lower().startswith("python"):
        raise CourseError(f"{path}: a notebook in {language}; this grader runs Python; use nbgrader autograde for it")


def _untag(edition: NotebookNode) -> None:
    """In another course a cell that is called a demo is run like any other."""
    for cell in edition.cells if "course" not in edition.metadata else ():
        if SKIPPED & tags(cell):
            cell.metadata["tags"] = [tag for tag in cell.metadata["tags"] if tag not in SKIPPED]


def _mark(grade: Any, comment: str) -> Mark:
    return Mark(grade.auto_score, grade.manual_score, grade.extra_credit, grade.score, grade.max_score,
                grade.needs_manual_grade, comment)
