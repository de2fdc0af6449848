"""A chapter's page: the student notebook with rich markdown and outputs put back from the solved run.

Pure: notebooks in, a notebook out. Of a graded cell nothing of ours is shown, neither text nor output.
"""

import re
from collections.abc import Iterator

import nbformat
from nbformat import NotebookNode

from autograder import source
from autograder.errors import CourseError


def graft(student: NotebookNode, executed: NotebookNode, slug: str) -> NotebookNode:
    """The student notebook as its page shows it: rich markdown, and the outputs of every cell that is not graded."""
    solved = {cell.id: cell for cell in executed.cells}
    page = nbformat.from_dict(student)
    page.cells = []
    stale = f"chapters/{slug}.ipynb: cell '{{}}' is not as in solutions/{slug}.md; run 'autograder release'"
    for cell in student.cells:
        if cell.id not in solved:
            raise CourseError(stale.format(cell.id))
        page.cells += _shown(nbformat.from_dict(cell), solved.pop(cell.id), stale)
    for missing in solved:
        raise CourseError(stale.format(missing))
    return page


def _shown(cell: NotebookNode, solved: NotebookNode, stale: str) -> Iterator[NotebookNode]:
    role = source.role(solved)
    if role == "written":
        yield _caption(cell, f"{_points(cell)} · your answer, in words. Write it in the notebook; a person reads it.")
        return
    if role == "exercise":
        yield _caption(cell, f"Your turn · <code>{cell.id}</code> · solve it in the notebook.")
    elif role == "tests":
        part = re.search(r"-(core|edge)-tests$", cell.id)
        which = f" ({part[1]})" if part else ""
        yield _caption(cell, f"{_points(cell)} · the visible tests{which}. Grading tries more than these.")
    elif cell.cell_type == "markdown":
        cell.source = solved.source
    elif cell.source != solved.source:
        raise CourseError(stale.format(cell.id))
    else:
        cell.outputs = solved.outputs
    if role == "setup":
        cell.metadata.tags = [*cell.metadata.get("tags", []), "hide-input"]
        cell.metadata["mystnb"] = {"code_prompt_show": "Show the set-up that every chapter shares",
                                   "code_prompt_hide": "Hide the set-up"}
    yield cell


def _caption(cell: NotebookNode, text: str) -> NotebookNode:
    html = f'<p class="book-caption book-{source.role(cell)}">{text}</p>'
    return nbformat.v4.new_markdown_cell(html, id=f"{cell.id[:50]}-caption")


def _points(cell: NotebookNode) -> str:
    points = cell.metadata["nbgrader"]["points"]
    return f"<strong>{points:g} {'point' if points == 1 else 'points'}</strong>"
