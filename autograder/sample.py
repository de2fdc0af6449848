"""A made-up class, from the catalogues of right and wrong answers: every learner is one way of handing in a chapter."""

import ast
import copy
import json
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from autograder import trees
from autograder.cells import grade_id, is_answer, is_tests
from autograder.checks import EXERCISES
from autograder.course import Course, Project
from autograder.errors import CourseError
from autograder.ledger import state
from autograder.newcourse import init, released

# Learners who each make another mistake in every other exercise.
MISTAKEN = 6
HANDED_IN = "2026-01-15 12:00:00 UTC"
_ESSAY = "The scores grow with the width; softmax saturates and its gradient vanishes. Dividing by the root stops that."
_WARNING = ("import sys", 'warnings.warn("this is only a warning")', 'print("still fine", file=sys.stderr)')

Answers = Mapping[str, str]


class Chapter:
    """A chapter as its learners get it, and what the class answers: texts by the id of the answer cell."""

    def __init__(self, notebook: NotebookNode, solved: NotebookNode):
        self.notebook = notebook
        answers = [cell for cell in solved.cells if is_answer(cell)]
        self.exercises = [grade_id(cell) for cell in answers if grade_id(cell) in EXERCISES]
        self.solved = {grade_id(cell): _unmarked(cell.source) for cell in answers if cell.cell_type == "code"}
        self.solved |= {grade_id(cell): _ESSAY for cell in answers if cell.cell_type == "markdown"}

    def answered(self, answers: Answers) -> NotebookNode:
        """A copy of the notebook with these texts in its answer cells."""
        notebook = copy.deepcopy(self.notebook)
        for cell in notebook.cells:
            if is_answer(cell) and grade_id(cell) in answers:
                cell.source = answers[grade_id(cell)]
        return notebook

    def wrong(self, which: int) -> dict[str, str]:
        """In every exercise the wrong answer of that number, counted round."""
        return {name: (found := EXERCISES[name].wrong)[which % len(found)].source for name in self.exercises}

    def right(self, which: int) -> dict[str, str]:
        """In every exercise the right answer of that number, counted round."""
        return {name: (found := EXERCISES[name].right)[which % len(found)].source for name in self.exercises}


def _unmarked(text: str) -> str:
    return "\n".join(line for line in text.split("\n") if not line.strip().startswith("### "))


# ---- the learners: each gives the notebook that is handed in -----------------------------------------------------


def _mistaken(chapter: Chapter, which: int) -> NotebookNode:
    """Mistake number `which` in every other exercise, in the rest a right answer of the catalogue."""
    wrong, right = chapter.wrong(which), chapter.right(which)
    mixed = {name: (wrong if (place + which) % 2 else right)[name] for place, name in enumerate(chapter.exercises)}
    return chapter.answered({**chapter.solved, **mixed})


def _half(chapter: Chapter) -> NotebookNode:
    return chapter.answered({name: chapter.solved[name] for name in chapter.exercises[: len(chapter.exercises) // 2]})


def _syntax_error(chapter: Chapter) -> NotebookNode:
    first = chapter.exercises[0]
    return chapter.answered({**chapter.solved, first: chapter.solved[first].replace("return", "return )", 1)})


def _endless(chapter: Chapter) -> NotebookNode:
    name = next((name for name in chapter.exercises[::-1] if len(EXERCISES[name].parts) == 1), chapter.exercises[-1])
    return chapter.answered({**chapter.solved, name: f"def {name}(*args, **kwargs):\n    while True:\n        pass"})


def _copied_tests(chapter: Chapter) -> NotebookNode:
    """A test cell copied, metadata and all, to try something out; stock nbgrader stops the whole class at it."""
    notebook = chapter.answered(chapter.solved)
    place = next(place for place, cell in enumerate(notebook.cells) if is_tests(cell))
    again = copy.deepcopy(notebook.cells[place])
    again.id, again.source = "copy-of-tests", f"{again.source}\nprint('it works')"
    notebook.cells.insert(place + 1, again)
    return notebook


def _stripped(chapter: Chapter) -> NotebookNode:
    """As some services give a notebook back: no metadata, other ids."""
    notebook = chapter.answered(chapter.solved)
    notebook.metadata = nbformat.from_dict({"kernelspec": {"name": "python3", "display_name": "Python 3"}})
    for number, cell in enumerate(notebook.cells):
        cell.metadata, cell.id = nbformat.from_dict({}), f"cell-{number}"
    return notebook


def _warns(chapter: Chapter) -> NotebookNode:
    """Right, but with a warning and a line on stderr in every call; stock nbgrader gives nothing for that."""
    first = chapter.exercises[0]
    lines = chapter.solved[first].split("\n")
    function = next(node for node in ast.walk(trees.parse(chapter.solved[first])) if isinstance(node, ast.FunctionDef))
    start = function.body[1] if ast.get_docstring(function) else function.body[0]
    lines[start.lineno - 1 : start.lineno - 1] = [" " * start.col_offset + line for line in _WARNING]
    return chapter.answered({**chapter.solved, first: "\n".join(lines)})


def _helper(chapter: Chapter) -> NotebookNode:
    """A helper in a cell of the learner's own, an import in the set-up cell."""
    first = chapter.exercises[0]
    moved = chapter.solved[first].replace(f"def {first}(", f"def my_{first}(", 1)
    short = f"def {first}(*args, **kwargs):\n    return my_{first}(*args, **kwargs)"
    notebook = chapter.answered({**chapter.solved, first: short})
    place = next(place for place, cell in enumerate(notebook.cells) if grade_id(cell) == first)
    notebook.cells.insert(place, nbformat.v4.new_code_cell(moved, id="my-helper"))
    setup = next(cell for cell in notebook.cells if cell.cell_type == "code")
    setup.source = f"import functools\n{setup.source}"
    return notebook


def _edited_tests(chapter: Chapter) -> NotebookNode:
    """Nothing answered, tests emptied, points raised."""
    notebook = copy.deepcopy(chapter.notebook)
    for cell in notebook.cells:
        if is_tests(cell):
            cell.source = "assert True"
            cell.metadata.nbgrader.points = 100
    return notebook


LEARNERS: dict[str, Callable[[Chapter], NotebookNode]] = {
    "learner-perfect": lambda chapter: chapter.answered(chapter.solved),
    "learner-blank": lambda chapter: copy.deepcopy(chapter.notebook),
    "learner-own-way": lambda chapter: chapter.answered({**chapter.solved, **chapter.right(0)}),
    **{f"learner-mistake-{which + 1}": partial(_mistaken, which=which) for which in range(MISTAKEN)},
    "learner-half-done": _half,
    "learner-syntax-error": _syntax_error,
    "learner-endless-loop": _endless,
    "learner-copied-tests": _copied_tests,
    "learner-stripped": _stripped,
    "learner-warns": _warns,
    "learner-helper": _helper,
    "learner-edited-tests": _edited_tests,
    "learner-renamed": lambda chapter: chapter.answered(chapter.solved),
    "learner-cut-off": lambda chapter: chapter.answered(chapter.solved),
}


def sample(project: Project, folder: Path, *, say: Callable[[str], None] = lambda line: None) -> Course:
    """A course with the made-up class in `folder`, the same each time; refuses a folder that is not a sample's."""
    marker = folder / ".autograder" / "sample"
    if folder.resolve() == (project.root / "course").resolve():
        raise CourseError(f"{folder}: people's grades live there; name another folder for the sample")
    if folder.is_dir() and any(folder.iterdir()) and not marker.is_file():
        raise CourseError(f"{folder}: not empty, and no sample course; name another folder")
    folder.mkdir(parents=True, exist_ok=True)
    state(Course(folder.resolve()))
    marker.write_text("made up; may be made again at any time\n")
    course = init(project, folder, timeout=10, say=say)
    for slug in project.slugs():
        say(f"{slug}: a class of {len(LEARNERS)}")
        solved = nbformat.read(course.path(course.source, ".", slug) / f"{slug}.ipynb", as_version=4)
        chapter = Chapter(released(course, slug), solved)
        for student, make in LEARNERS.items():
            _hand_in(course.path(course.submitted, student, slug), slug, student, make(chapter))
    return course


def _hand_in(folder: Path, slug: str, student: str, notebook: NotebookNode) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    name = f"{slug} (1)" if student == "learner-renamed" else slug
    text = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
    if student == "learner-cut-off":
        text = text[: len(text) * 2 // 3]
    (folder / f"{name}.ipynb").write_text(text, encoding="utf-8")
    (folder / "timestamp.txt").write_text(HANDED_IN + "\n")
