"""The numbers in the prose: a cell of the chapter prints each one or holds it, rounded as the prose rounds it."""

import ast
import bisect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from autograder import book
from autograder.course import Project

PROJECT = Project.find(Path(__file__))

# No claims: blocks and spans of code, roles and addresses, numbers of sections, headings, wrong options of a quiz.
NO_CLAIM = re.compile(r"(?s:```.*?```)|`[^`\n]*`|\]\([^)\n]*\)|<[^>\n]*>|\b(?i:exercise|section|chapter) [\d.]+"
                      r"|^#+ .*$|^\s*- text: .*(?=\n\s*correct: false)", re.MULTILINE)
# Decimals and powers of ten: 0.401, 1.3e-14, 1.3\cdot 10^{-14}, 10^{-4}.
NUMBER = re.compile(r"(?<![\w.])(?:(?P<digits>\d+(?:\.\d+)?)(?:e(?P<e>[-+]?\d+)|(?:\s*\\?,?\s*(?:\\cdot|\\times|·|×)\s*"
                    r"10\^\{?(?P<power>-?\d+)\}?))|10\^\{?(?P<bare>-?\d+)\}?|(?P<plain>\d+\.\d+))(?![\w]|\.\d)(?P<percent>\s?\\?%)?")
PRINTED = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d*)?(?:e[-+]?\d+)?")


def claims(prose: str) -> Iterator[tuple[str, float, float]]:
    """Each number that a text claims: as written, its value, and half a unit of its last digit."""
    for match in NUMBER.finditer(NO_CLAIM.sub(" ", prose.replace("−", "-"))):
        digits = match["digits"] or match["plain"] or "1"
        power = int(match["e"] or match["power"] or match["bare"] or 0)
        places = len(digits.partition(".")[2])
        # A bare power of ten claims an order, nothing more.
        half = 10.0 ** (power - places) / 2 if not match["bare"] else 10.0 ** power * 0.7
        share = 100 if match["percent"] else 1   # a percentage is printed as a share
        yield match[0], float(digits) * 10.0 ** power / share, half / share


def evidence(cells: list[NotebookNode]) -> list[float]:
    """Every number, sorted, that a cell prints or that stands in its code; a comment is no evidence."""
    found: set[float] = set()
    for cell in (cell for cell in cells if cell.cell_type == "code"):
        tree = ast.parse(re.sub(r"(?m)^[%!].*$", "", cell.source))
        found |= {abs(float(node.value)) for node in ast.walk(tree)
                  if isinstance(node, ast.Constant) and isinstance(node.value, int | float)}
        for output in cell.get("outputs", []):
            text = output.get("text", "") or output.get("data", {}).get("text/plain", "")
            found |= {abs(float(number)) for number in PRINTED.findall(text)}
    return sorted(found)


def sections(notebook: NotebookNode) -> list[list[NotebookNode]]:
    """The cells between one second-level heading and the next."""
    made: list[list[NotebookNode]] = [[]]
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and re.search(r"(?m)^##? ", cell.source):
            made.append([])
        made[-1].append(cell)
    return made


def unbacked(notebook: NotebookNode) -> list[str]:
    """The numbers in the prose of an executed chapter that no cell of their section, or of the one before, stands for.

    Nearby cells only, since among all of a chapter's numbers a wrong one finds its like by chance. A section without
    code, such as a summary, may speak of the whole chapter.
    """
    made, missing = sections(notebook), []
    for at, cells in enumerate(made):
        coded = any(cell.cell_type == "code" for cell in cells)
        known = evidence([*(made[at - 1] if at else []), *cells] if coded else notebook.cells)
        for cell in (cell for cell in cells if cell.cell_type == "markdown"):
            missing += [f"cell '{cell.id}': {text}" for text, value, half in claims(cell.source)
                        if not holds(known, value, half * 1.001)]
    return missing


def holds(known: list[float], value: float, room: float) -> bool:
    """Whether a sorted list has a number within `room` of `value`."""
    at = bisect.bisect_left(known, value - room)
    return at < len(known) and known[at] <= value + room


@pytest.mark.parametrize("slug", PROJECT.slugs())
def test_every_number_in_the_prose_comes_from_a_run(slug):
    assert unbacked(book.execute(PROJECT, slug)) == [], "print it or assert it in the cell it comes from"


@pytest.mark.parametrize(("prose", "found"), [
    ("The weights are 0.401 and 0.20.", []),
    ("The weights are 0.411 and 0.20.", ["cell 'prose': 0.411"]),
    ("It is $1.3\\cdot 10^{-14}$, or 1.3e-14, about $10^{-14}$.", []),
    ("It is $1.3\\cdot 10^{-13}$.", ["cell 'prose': 1.3\\cdot 10^{-13}"]),
    ("That is 40.1 % of it.", []),
    ("### Exercise 3.7\nSection 9.9 shows `0.77`, see [there](x-0.55).", []),
    ("options:\n  - text: 0.99 of it\n    correct: false\n    why: 0.98 is wrong\n", ["cell 'prose': 0.98"]),
])
def test_planted_claim_is_caught(prose, found):
    output = new_output("stream", name="stdout", text="weights 0.40111\n")
    code = new_code_cell("print(w)   # 0.411\nassert abs(x - 1.3e-14) < 1 and y < 0.198", outputs=[output])
    assert unbacked(new_notebook(cells=[new_markdown_cell(prose, id="prose"), code])) == found


def test_number_of_a_far_section_is_no_evidence():
    output = new_output("stream", name="stdout", text="0.555\n")
    far = [new_markdown_cell("## One"), new_code_cell("print(x)", outputs=[output])]
    near = [new_markdown_cell("## Two"), new_code_cell("y = 2"), new_markdown_cell("## Three"), new_code_cell("z = 3")]
    assert unbacked(new_notebook(cells=[*far, *near, new_markdown_cell("So 0.555.")]))[0].endswith("0.555")
    assert unbacked(new_notebook(cells=[*far, *near, new_markdown_cell("## Summary\nSo 0.555.")])) == []
