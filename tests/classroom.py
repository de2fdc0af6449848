"""Small nbgrader courses, built in code, and what learners hand in to them."""

import copy
import json
import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from nbgrader.api import Gradebook

from autograder.course import Course, Project
from autograder.gradebook import register

PYTHON = {"name": "python3", "display_name": "Python 3", "language": "python"}


def _meta(name, **flags):
    plain = {"schema_version": 3, "grade_id": name, "grade": False, "solution": False, "locked": False, "task": False}
    return {"nbgrader": {**plain, **flags}}


def text(source, name=None):
    return new_markdown_cell(source, id=name or f"t-{abs(hash(source)) % 10**8}")


def code(source, name, tags=()):
    return new_code_cell(source, id=name, metadata={"tags": list(tags)} if tags else {})


def answer(name, source):
    return new_code_cell(source, id=name, metadata=_meta(name, solution=True))


def asserts(name, source, points):
    return new_code_cell(source, id=name, metadata=_meta(name, grade=True, locked=True, points=points))


def given(name, source):
    return new_code_cell(source, id=name, metadata=_meta(name, locked=True))


def written(name, source, points):
    return new_markdown_cell(source, id=name, metadata=_meta(name, grade=True, solution=True, points=points))


def task(name, source, points):
    return new_markdown_cell(source, id=name, metadata=_meta(name, task=True, locked=True, points=points))


def notebook(*cells):
    return new_notebook(cells=list(cells), metadata={"kernelspec": dict(PYTHON)})


def plain_source():
    """A notebook as other courses write them: plain asserts, a partial mark, a written question."""
    return notebook(
        text("# Numbers", "t-title"),
        code("import math", "imports"),
        answer("double", "def double(x):\n    ### BEGIN SOLUTION\n    return 2 * x\n    ### END SOLUTION"),
        asserts("double-tests", "assert double(2) == 4, 'two times two'\n### BEGIN HIDDEN TESTS\n"
              "assert double(3) == 6, 'secretly three'\n### END HIDDEN TESTS", 2),
        text("Now the mean.", "t-mean"),
        answer("mean", "def mean(xs):\n    ### BEGIN SOLUTION\n    return sum(xs) / len(xs)\n    ### END SOLUTION"),
        asserts("mean-tests", "assert mean([1, 3]) == 2", 3),
        answer("partial", "share = 0\n### BEGIN SOLUTION\nshare = 4\n### END SOLUTION"),
        asserts("partial-tests", "share", 4),
        code("print('only to look at')", "look", tags=["demo"]),
        text("Why?", "t-why"),
        written("why", "Because.", 5),
    )


SOLVED = {
    "double": "def double(x):\n    return x + x",
    "mean": "def mean(xs):\n    return sum(xs) / len(xs)",
    "partial": "share = 4",
    "why": "Because it is so.",
}


def make_course(folder, *, assignment="ps1", config="", **notebooks):
    """An nbgrader course with one released assignment."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "nbgrader_config.py").write_text(f"c = get_config()\nc.ExecutePreprocessor.timeout = 5\n{config}")
    course = Course(folder)
    for name, nb in (notebooks or {"numbers": plain_source()}).items():
        path = course.path(course.source, ".", assignment) / f"{name}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(nb, path)
    register(course, assignment)
    return course


def released(course, name="numbers", assignment="ps1"):
    return nbformat.read(course.path(course.release, ".", assignment) / f"{name}.ipynb", as_version=4)


def answered(nb, answers):
    """A copy with these texts in its cells, by id."""
    nb = copy.deepcopy(nb)
    for cell in nb.cells:
        if cell.id in answers:
            cell.source = answers[cell.id]
    return nb


def cell_of(nb, name):
    return next(cell for cell in nb.cells if cell.get("id") == name)


def place_of(nb, name):
    return next(place for place, cell in enumerate(nb.cells) if cell.get("id") == name)


def hand_in(course, student, nb, *, file="numbers.ipynb", assignment="ps1"):
    """Put a notebook (or bytes) where nbgrader collects it."""
    path = course.path(course.submitted, student, assignment) / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(nb if isinstance(nb, bytes) else json.dumps(nb).encode())
    return path


def environment():
    """The environment of a command line: this Python's programs first, one thread."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def start(*words, cwd):
    """Start a command of this environment; `ended` waits for it."""
    program = Path(sys.executable).parent / words[0]
    pipe = subprocess.PIPE
    return subprocess.Popen([program, *words[1:]], cwd=cwd, env=environment(), stdout=pipe, stderr=pipe, text=True)


def ended(process):
    """The return code, stdout and stderr of a command, once it is done."""
    out, err = process.communicate(timeout=600)
    return SimpleNamespace(code=process.returncode, out=out, err=err)


def run(*words, cwd):
    """Run a command of this environment to its end."""
    return ended(start(*words, cwd=cwd))


def by_hand(course, student, cell, **changes):
    with Gradebook(course.db_url) as book:
        grade_row = book.find_grade(cell, "numbers", "ps1", student)
        for name, value in changes.items():
            setattr(grade_row, name, value)
        book.db.commit()


def marks(course, assignment="ps1"):
    """(student, cell) -> (auto score, manual score, needs a person), from the gradebook."""
    from nbgrader.api import Gradebook

    with Gradebook(course.db_url) as book:
        return {
            (submission.student.id, grade.name): (grade.auto_score, grade.manual_score, grade.needs_manual_grade)
            for submission in book.assignment_submissions(assignment)
            for nb in submission.notebooks
            for grade in nb.grades
        }


DEMO = re.compile(r"^```\{code-cell\}[^\n]*\n(?::[^\n]*\n)*?:tags: \[(?:demo|try)[^\n]*\n.*?^```\n", re.S | re.M)


def short_project(folder, slug="03_scaling"):
    """A project of one real chapter without the cells that grading passes over, so that nbgrader is quick, too."""
    real = Project.find(Path(__file__).parent)
    (folder / "solutions").mkdir(parents=True)
    (folder / "solutions" / "setup.py").write_bytes((real.solutions / "setup.py").read_bytes())
    text = real.source(slug).read_text(encoding="utf-8")
    project = Project(folder)
    project.source(slug).write_text(DEMO.sub("", text), encoding="utf-8")
    for path in real.book.glob("*"):
        if path.suffix in (".bib", ".md"):
            project.book.mkdir(exist_ok=True)
            (project.book / path.name).write_bytes(path.read_bytes())
    return project


def rows(course):
    """Everything that the gradebook holds, but for its random ids."""
    with sqlite3.connect(course.db) as db:
        tables = [name for (name,) in db.execute("select name from sqlite_master where type = 'table' order by name")]
        found = {}
        for table in tables:
            columns = [row[1] for row in db.execute(f"pragma table_info({table})")]
            kept = ", ".join(column for column in columns if column != "id" and not column.endswith("_id")) or "1"
            found[table] = sorted(map(repr, db.execute(f"select {kept} from {table}")))
        return found
