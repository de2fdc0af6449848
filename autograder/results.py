"""What a graded cell came to, what its hidden line asks, and how far its score can be trusted."""

import ast
from dataclasses import dataclass
from typing import Any

from nbformat import NotebookNode

from autograder import trees
from autograder.cells import SECRET, grade_id, is_tests
from autograder.errors import CourseError
from autograder.outputs import TIME

# How far a score can be trusted: by whom it was given, and what the learner's code could do about it.
JUDGED, ASSERTED, BY_HAND = "judged apart", "asserted beside the learner's code", "by hand"


@dataclass(frozen=True)
class Result:
    """What one graded cell came to. `points` is None until an instructor has graded it.

    verdict: "passed", "failed" (judged, and wrong), "blank", "error" (could not be judged), "manual".
    trust: JUDGED, ASSERTED or BY_HAND.
    """

    cell: str
    exercise: str
    part: str
    points: float | None
    max_points: float
    verdict: str
    check: str = ""
    kind: str | None = None
    message: str = ""
    visible: str = ""
    cases: int = 0
    trust: str = ""

    @property
    def to_look_at(self) -> bool:
        """Should an instructor look, though there is a mark? Where what failed may not be the answer."""
        return self.verdict == "error" and self.kind not in (TIME, "not defined")


@dataclass(frozen=True)
class Marked:
    """A notebook that was run: with its outputs, a result per graded cell, and the answers that were not given."""

    notebook: NotebookNode
    results: list[Result]
    unanswered: frozenset[str]


@dataclass(frozen=True)
class Hidden:
    """The hidden line of a test cell, and what of the cell the learner sees."""

    exercise: str
    expression: str
    part: str | None
    visible: str


def hidden_line(cell: NotebookNode) -> Hidden | None:
    """The `check(…)` of a test cell, None where the cell is one of plain asserts."""
    region = SECRET.search(cell.source)
    try:
        body = trees.parse(region.group()).body if region else []
    except SyntaxError:
        return None
    calls = [call for node in body if (call := _check_call(node)) is not None]
    if not calls:
        return None
    rest = [node for node in body if _check_call(node) is None and not isinstance(node, ast.ImportFrom)]
    if len(calls) > 1 or rest:
        raise CourseError(f"cell '{grade_id(cell)}': its hidden tests hold more than one check line; split the cell")
    name, expression, part = _arguments(calls[0], grade_id(cell))
    return Hidden(name, expression, part, SECRET.sub("", cell.source))


def _check_call(node: ast.stmt) -> ast.Call | None:
    call = node.value if isinstance(node, ast.Expr) else None
    return call if isinstance(call, ast.Call) and ast.unparse(call.func) == "check" else None


def _arguments(call: ast.Call, cell: str) -> tuple[str, str, str | None]:
    words: dict[str | None, Any] = {word.arg: getattr(word.value, "value", None) for word in call.keywords}
    if len(call.args) != 2 or not isinstance(call.args[0], ast.Constant) or set(words) - {"part"}:
        wanted = 'check("NAME", NAME) or check("NAME", NAME, part="core")'
        raise CourseError(f"cell '{cell}': its hidden line is not of the form {wanted}; mend it")
    name = call.args[0].value
    from autograder.checks import EXERCISES  # with torch: a report has no use for it

    if not isinstance(name, str) or name not in EXERCISES:
        raise CourseError(f"cell '{cell}': there are no checks for {name!r}; add them to autograder/checks")
    return name, ast.unparse(call.args[1]), words.get("part")


def trust_of(cell: NotebookNode) -> str:
    """How far the score of a graded cell can be trusted: JUDGED, ASSERTED or BY_HAND."""
    if not is_tests(cell):
        return BY_HAND
    return ASSERTED if hidden_line(cell) is None else JUDGED


def exercise_of(cell: NotebookNode) -> tuple[str, str]:
    """The exercise, and the part of it, that a graded cell stands for."""
    hidden = hidden_line(cell) if is_tests(cell) else None
    return (hidden.exercise, hidden.part or "") if hidden else (grade_id(cell).removesuffix("-tests"), "")
