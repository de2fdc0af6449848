"""MyST source to the solved notebook: the only place that knows jupytext and, with syntax.py, tags and markers.

From a cell's tags, id and points come nbgrader's metadata (schema 3) and an id that does not change from one release
to the next; jupytext and nbformat would draw a random one.
"""

import ast
import hashlib
import itertools
import re
import warnings
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import jupytext.myst
import nbformat
from nbformat import NotebookNode

from autograder import lower, syntax, trees
from autograder.course import Project
from autograder.errors import CourseError
from autograder.links import Links
from autograder.syntax import MARKED, Cell

KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
PARTS = ("core", "edge")
# role -> nbgrader's grade, solution, locked; other cells are none of nbgrader's business
_GRADER = {
    "exercise": (False, True, False),
    "tests": (True, False, True),
    "written": (True, True, False),
    "given": (False, False, True),
}


@dataclass(frozen=True)
class Secret:
    """What must reach no learner: a "solution", "hidden tests", "mark scheme" or "model answer" of one cell."""

    kind: str
    cell_id: str
    text: str


def load(project: Project, slug: str) -> NotebookNode:
    """The solved nbgrader source notebook of a chapter: set-up filled in, markdown still rich."""
    path = project.source(slug)
    if not path.is_file():
        raise CourseError(f"{project.name(path)}: not there; the chapters are {', '.join(project.slugs()) or 'none'}")
    name = project.name(path)
    cells, front = _read(path.read_text(encoding="utf-8"), name)
    minutes = _minutes(front, name)
    _check_together(cells, name)
    notebook = nbformat.v4.new_notebook(metadata={
        "kernelspec": KERNEL, "language_info": {"name": "python"}, "course": {"chapter": slug, **minutes}})
    setup = _setup(project)
    identities = _identities(cells)   # of the text as written: what is handed out may change, the cell stays the same
    cells = [_with_definitions(project, cell) for cell in cells]
    notebook.cells = [_expanded(cell, identity, setup) for cell, identity in zip(cells, identities)]
    return notebook


def _read(text: str, name: str) -> tuple[list[Cell], dict[str, Any]]:
    """The cells of a source file, each checked, and its front matter."""
    try:
        with warnings.catch_warnings(action="error"):
            book = jupytext.myst.myst_to_notebook(text, add_source_map=True)
    except Exception as problem:   # of jupytext, yaml, nbformat or markdown-it, as they please
        reason = " ".join(str(problem).split("\n\n")[0].split()) or type(problem).__name__
        raise CourseError(f"{name}: cannot be read as a MyST notebook: {reason}; mend the cell's options") from problem
    lines, cells = text.split("\n"), []
    for raw, line in zip(book.cells, book.metadata.pop("source_map"), strict=True):
        while raw.cell_type == "markdown" and not lines[line].strip():
            line += 1
        number = line + (raw.cell_type == "markdown")   # jupytext counts from 1 for code and from 0 for markdown
        cells.append(_cell(raw, lines[number - 1:], f"{name}:{number}"))
        syntax.check(cells[-1])
    given = sum(bool(re.match(r"\+\+\+\s*\{.*\w.*\}", line)) for line in lines)
    if given != sum(bool(raw.metadata) for raw in book.cells if raw.cell_type == "markdown"):
        raise CourseError(f"{name}: a '+++ {{…}}' line has no markdown cell below it; its fields would be lost")
    return cells, dict(book.metadata)


def _cell(raw: NotebookNode, lines: list[str], where: str) -> Cell:
    """The fields of one of jupytext's cells; `lines` are the source from its first line on."""
    data = dict(raw.metadata)
    tags = data.get("tags", [])
    roles = [tag for tag in tags if tag in syntax.ROLES]
    cell = Cell(where, raw.cell_type, raw.source, roles[0] if roles else None, "timed" in tags, data.get("id"),
                data.get("points"))
    if cell.kind == "raw":
        raise cell.error("raw cells have no place here; write a code or markdown cell")
    if unknown := sorted(set(data) - {"tags", "id", "points"}):
        raise cell.error(f"unknown field '{unknown[0]}'; a cell has tags, id and points only")
    if strange := [tag for tag in tags if tag not in syntax.ROLES and tag != "timed"]:
        raise cell.error(f"unknown tag '{strange[0]}'; use one of {', '.join(syntax.ROLES)}, timed")
    if len(roles) > 1 or len(tags) != len(set(tags)):
        raise cell.error(f"two roles, {' and '.join(roles)}; a cell has one, remove the other")
    names = [line.split(":")[1] for line in itertools.takewhile(lambda line: line.startswith(":"), lines[1:])]
    if cell.kind == "code" and len(names) != len(set(names)):
        raise cell.error("a field given twice; remove one")
    return cell


def _minutes(front: dict[str, Any], name: str) -> dict[str, int]:
    """The `course: {minutes: 75}` of the front matter, the only thing there that is ours."""
    unknown = sorted(set(front) - {"jupytext", "kernelspec", "course"})
    course = front.get("course", {})
    if unknown or not isinstance(course, dict) or set(course) - {"minutes"}:
        strange = unknown[0] if unknown else "course"
        raise CourseError(f"{name}: front matter '{strange}' is unknown; it holds jupytext, kernelspec and "
                          "'course: {minutes: 75}'")
    if "minutes" in course and not (type(course["minutes"]) is int and course["minutes"] > 0):
        raise CourseError(f"{name}: front matter: minutes must be a whole number above 0; change it")
    return dict(course)


def _setup(project: Project) -> str:
    path = project.solutions / "setup.py"
    if not path.is_file():
        raise CourseError(f"{project.name(path)}: not there; it holds the set-up cell of every chapter, write it")
    text = path.read_text(encoding="utf-8").strip("\n")
    syntax.check(Cell(f"{project.name(path)}:1", "code", text))
    return text


def _with_definitions(project: Project, cell: Cell) -> Cell:
    """A given cell with the definitions that it hands out of solutions/transformer.py; any other as it is."""
    names = syntax.handed_out(cell)
    if not names:
        return cell
    path = project.solutions / "transformer.py"
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    found = {node.name: ast.get_source_segment(text, node) for node in trees.parse(text).body
             if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    if missing := [name for name in names if name not in found]:
        raise cell.error(f"{project.name(path)} defines no '{missing[0]}'; correct the name or write it there")
    return replace(cell, text="\n\n\n".join(str(found[name]) for name in names))


def _check_together(cells: list[Cell], name: str) -> None:
    """Raise CourseError for what is wrong between cells."""
    code = [cell for cell in cells if cell.kind == "code"]
    setups = [cell for cell in code if cell.role == "setup"]
    if not setups:
        raise CourseError(f"{name}: no setup cell; add one with ':tags: [setup]' before all other code")
    if len(setups) > 1:
        raise setups[1].error("a second setup cell; remove it")
    if code[0] is not setups[0]:
        raise code[0].error("code before the setup cell; move it below")
    named = [cell.id or cell.role for cell in cells if cell.id or cell.role == "setup"]   # whose id is its role
    for identity, count in Counter(named).items():
        if count > 1:
            again = [cell for cell in cells if cell.id == identity][-1]
            raise again.error(f"the id '{identity}' is used {count} times; give each cell its own")
    exercises = [cell for cell in cells if cell.role == "exercise"]
    for cell in cells:
        if cell.role == "tests":
            _check_tests(cell, cells, exercises)
    for exercise in exercises:
        _check_exercise(exercise, cells)


def _check_tests(tests: Cell, cells: list[Cell], exercises: list[Cell]) -> None:
    """A tests cell stands below its exercise, and its id, hidden line and part agree."""
    match = re.fullmatch(rf"(.+?)(?:-({'|'.join(PARTS)}))?-tests", tests.id or "")
    if not match:
        raise tests.error("a tests cell's id is NAME-tests, NAME-core-tests or NAME-edge-tests; rename it")
    _, named, part = syntax.check_line(tests)
    exercise = next((cell for cell in exercises if cell.id == match[1]), None)
    if exercise is None:
        raise tests.error(f"tests without an exercise; add a cell tagged exercise with ':id: {match[1]}'")
    if cells.index(exercise) > cells.index(tests):
        raise tests.error(f"tests above their exercise; move them below '{match[1]}'")
    if (named, part) != (match[1], match[2]):
        wanted = f'check("{match[1]}", {match[1]}{f", part={chr(34)}{match[2]}{chr(34)}" if match[2] else ""})'
        raise tests.error(f"the check line names another exercise or part; write {wanted}")


def _check_exercise(exercise: Cell, cells: list[Cell]) -> None:
    """An exercise has one tests cell, or one each for its core and its edge."""
    whole, *parts = [f"{exercise.id}-tests", *(f"{exercise.id}-{part}-tests" for part in PARTS)]
    found = [cell.id for cell in cells if cell.id in (whole, *parts) and cell.role == "tests"]
    if not found:
        raise exercise.error(f"exercise without a tests cell; add one with ':id: {whole}'")
    if whole in found and len(found) > 1:
        raise exercise.error(f"tests for the whole and for a part; remove '{whole}' or the parts")
    if whole not in found and len(found) == 1:
        missing = next(part for part in parts if part not in found)
        raise exercise.error(f"a core and an edge go together; add the tests cell ':id: {missing}'")


def _identities(cells: list[Cell]) -> list[str]:
    """Every cell's id: its own, or one made from its content, so that it is the same in every run."""
    taken = {cell.id for cell in cells if cell.id} | {"setup"}
    found = []
    for cell in cells:
        made = "t-" + hashlib.sha1(f"{cell.kind}\n{cell.text}".encode()).hexdigest()[:8]
        identity, count = cell.id or ("setup" if cell.role == "setup" else made), 1
        while cell.id is None and cell.role != "setup" and identity in taken:
            count += 1
            identity = f"{made}-{count}"
        taken.add(identity)
        found.append(identity)
    return found


def _expanded(cell: Cell, identity: str, setup: str) -> NotebookNode:
    metadata: dict[str, Any] = {}
    if cell.role or cell.timed:
        metadata["tags"] = [tag for tag in (cell.role, "timed" if cell.timed else None) if tag]
    if cell.role in _GRADER:
        grade, solution, locked = _GRADER[cell.role]
        metadata["nbgrader"] = {"schema_version": 3, "grade": grade, "solution": solution, "locked": locked,
                                "task": False, "grade_id": identity}
        if cell.points is not None:
            metadata["nbgrader"]["points"] = cell.points
    text = setup if cell.role == "setup" else cell.text
    if cell.role == "tests":
        lines = text.split("\n")
        at, _, _ = syntax.check_line(cell)
        lines[at] = f"from autograder.checks import check; {lines[at]}"   # so that stock nbgrader can run it
        text = "\n".join(lines)
    make = nbformat.v4.new_code_cell if cell.kind == "code" else nbformat.v4.new_markdown_cell
    return make(text, metadata=metadata, id=identity)


def lowered(notebook: NotebookNode, links: Links | None = None) -> NotebookNode:
    """A copy whose markdown needs no MyST: directives, roles, labels and comments as plain Markdown."""
    copy = nbformat.from_dict(notebook)
    for cell in copy.cells:
        if cell.cell_type == "markdown":
            cell.source = lower.lower(cell.source, links or Links())
    return copy


def role(cell: NotebookNode) -> str | None:
    """The role of a notebook's cell ("exercise", "demo", …), None for prose and ordinary code."""
    return next((tag for tag in cell.metadata.get("tags", []) if tag in syntax.ROLES), None)


def regions(notebook: NotebookNode) -> list[Secret]:
    """Every solution region, hidden test, mark scheme and model answer of an nbgrader source notebook."""
    secrets = []
    for one in notebook.cells:
        cell, lines = Cell(one.id, one.cell_type, one.source), one.source.split("\n")
        secrets += [Secret(name.lower(), one.id, "\n".join(lines[begin + 1:end]))
                    for name in MARKED.values() for begin, end in syntax.spans(cell, name)]
        if _is_written(one):
            secrets.append(Secret("model answer", one.id, "\n".join(syntax.public(cell))))
    return [secret for secret in secrets if secret.text.strip()]


def public(notebook: NotebookNode) -> dict[str, str]:
    """The text that learners may see, by cell id: that of an nbgrader source notebook but for its secrets."""
    return {one.id: "" if _is_written(one) else "\n".join(syntax.public(Cell(one.id, one.cell_type, one.source)))
            for one in notebook.cells}


def _is_written(cell: NotebookNode) -> bool:
    return cell.cell_type == "markdown" and bool(cell.metadata.get("nbgrader", {}).get("solution"))
