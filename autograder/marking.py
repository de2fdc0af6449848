"""One rebuilt notebook at work: its cells are run in order, and every graded cell gets its result.

A test cell with a hidden line `check("NAME", EXPRESSION, part=…)` is judged in this process: plans go to the kernel,
findings come back, `Trial.verdict` decides; its visible part runs for the learner alone. A test cell of plain asserts,
as other courses have them, is decided by its own outputs as nbgrader does, unless a canary beside it shows that asserts
fail no more. Every result says which of the two it is: that is how far its score can be trusted.

A check decides alone, with models and inputs of its own: where a learner's visible tests fail because an earlier answer
that they use is wrong, nbgrader gives the later one 0, too, and we what it is worth.

Scores are nbgrader's, except where nbgrader is wrong. The whole list, which tests/test_stock.py shows case by case:

- an error fails the cell wherever it stands; nbgrader stops reading at the first result, which code can display
- output on stderr, a warning say, fails nothing; nbgrader gives 0
- a partial mark that is negative, no number or above the maximum is an error of the test and goes to the instructor;
  nbgrader gives full marks, or stops with the submission ungraded
- a dead kernel costs its own cells, and says so; nbgrader leaves the submission ungraded
- a cell tagged skip-execution by the learner is run; nbgrader gives it full marks
- a test cell that was deleted is back; nbgrader leaves it without a mark
- an answer that was moved below its tests counts; nbgrader runs the tests without it
- a notebook whose metadata is gone, or that has another file name, is graded; nbgrader gives it no marks
- a copied cell counts once; nbgrader stops there, with the rest of the class ungraded
- a notebook that keeps asserts from failing gets nothing for the tests that it passes so; nbgrader gives full marks
"""

import ast
import math
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace

from nbformat import NotebookNode

from autograder import trees
from autograder.canary import NEUTRALISED, Canary, around, twisted
from autograder.cells import (
    grade_id,
    is_answer,
    is_graded,
    is_skipped,
    is_tests,
    points,
    released,
    same_text,
    writable,
    written_beside,
)
from autograder.checks import trial
from autograder.judge import Verdict
from autograder.kernels import DEAD, Ran, Session, Stopped
from autograder.outputs import error_output
from autograder.results import ASSERTED, BY_HAND, JUDGED, Hidden, Marked, Result, hidden_line
from autograder.wire import Raised, Seen

# The judge seeds torch's generators and catches what the catalogue's answers print: one at a time.
_JUDGING = threading.Lock()
_LONGEST = 2000  # characters of a message


def mark(nb: NotebookNode, stubs: Mapping[str, str], session: Session, *, secret: str = "") -> Marked:
    """Run the notebook's cells, in place, and mark them.

    `stubs` is the released text of every answer cell, to know an answer that was not given.
    """
    marks = _Marks(nb, stubs, session, secret)
    for place, cell in enumerate(nb.cells):
        if is_tests(cell):
            marks.results.append(marks.tests(place))
        elif cell.cell_type == "code" and cell.source.strip() and not is_skipped(cell):
            marks.put(cell, session.run(cell.source))
        if is_graded(cell) and not is_tests(cell):
            marks.results.append(marks.by_hand(cell))
    marks.once_more()
    return Marked(nb, marks.results, frozenset(grade_id(cell) for cell in nb.cells if marks.is_blank(cell)))


class _Marks:
    """The marking of one notebook."""

    def __init__(self, nb: NotebookNode, stubs: Mapping[str, str], session: Session, secret: str):
        self.nb, self.stubs, self.session, self.secret = nb, stubs, session, secret
        self.results: list[Result] = []
        self.stops: dict[str, str] = {}

    def put(self, cell: NotebookNode, ran: Ran) -> None:
        """Keep a cell's outputs, and in what way it did not come to its end."""
        cell["outputs"], cell["execution_count"] = ran.outputs, ran.count
        error = next((output for output in ran.outputs if output.output_type == "error"), None)
        if error is not None:
            self.stops[_key(cell)] = _brief(error)

    def is_blank(self, cell: NotebookNode) -> bool:
        """An answer that is nothing but the stub, or no code at all."""
        text = same_text(cell.source)
        if cell.cell_type != "code" and self._written_beside(cell):
            return False
        empty = not text or (cell.cell_type == "code" and all(not line or line[0] == "#" for line in text.split("\n")))
        return is_answer(cell) and (empty or text == self.stubs.get(grade_id(cell)))

    def _written_beside(self, cell: NotebookNode) -> bool:
        """Did the learner add text next to this cell? An answer in a cell of its own is for a person to see, too."""
        place = next(place for place, other in enumerate(self.nb.cells) if other is cell)
        return any(text.strip() for text in written_beside(self.nb, place)[1:])

    def by_hand(self, cell: NotebookNode) -> Result:
        """A cell that a person grades; what was not answered needs nobody."""
        name = grade_id(cell)
        if self.is_blank(cell):
            return Result(name, name, "", 0.0, points(cell), "blank", message="not answered", trust=BY_HAND)
        return Result(name, name, "", None, points(cell), "manual", trust=BY_HAND)

    def tests(self, place: int) -> Result:
        """Mark a test cell; its outputs are then what the result says."""
        cell = self.nb.cells[place]
        hidden = hidden_line(cell)
        result = self._asserts(place) if hidden is None else self._judged(place, hidden)
        if hidden is not None and result.verdict == "passed":
            cell["outputs"] = []
        elif hidden is not None:
            cell["outputs"] = [error_output("WrongAnswer", result.message)]
        return result

    def _judged(self, place: int, hidden: Hidden) -> Result:
        cell = self.nb.cells[place]
        ran = self.session.run(hidden.visible)
        cell["execution_count"] = ran.count
        blank = Result(grade_id(cell), hidden.exercise, hidden.part or "", 0.0, points(cell), "error", trust=JUDGED)
        blank = replace(blank, visible=next((_said(o) for o in ran.outputs if o.output_type == "error"), ""))
        if ran.stop:
            return replace(blank, kind=ran.stop, message=f"your code, tried by the visible tests, was {_how(ran)}")
        with _JUDGING:
            tried = trial(hidden.exercise, hidden.part, self.secret)
        try:
            found = self.session.probe(hidden.expression, tried.request)
        except Stopped as stop:
            return replace(blank, kind=stop.kind, message=f"your code could not be tried to the end: {stop}")
        with _JUDGING:
            verdict = tried.verdict(found)
        return self._settled(replace(blank, check=verdict.check, cases=len(found)), verdict, found, place, hidden)

    def _settled(self, result: Result, verdict: Verdict, found: Sequence[Seen], place: int, hidden: Hidden) -> Result:
        if verdict.passed:
            return replace(result, verdict="passed", points=result.max_points)
        answer = self._answer_of(place, hidden.exercise)
        if answer is not None and self.is_blank(answer) and _nothing_there(found):
            return replace(result, verdict="blank", message="not answered")
        missing = found[0].found.get("answer") if found else None
        if isinstance(missing, Raised) and missing.step == "answer":
            if missing.kind == "Borrowed":
                return replace(result, kind="borrowed", message=_kept(missing.message))
            return replace(result, kind="not defined", message=_kept(self._undefined(hidden, missing, answer)))
        message = self._cause(hidden.exercise, answer) + verdict.message
        return replace(result, verdict="failed", kind=verdict.kind, message=_kept(message))

    def _cause(self, exercise: str, answer: NotebookNode | None) -> str:
        """What to mend first: the earlier exercises that the answer calls and that did not pass their own tests."""
        called = _names_in(answer.source) if answer is not None else set()
        wrong = {result.exercise for result in self.results if result.verdict in ("failed", "error", "blank")}
        causes = sorted((wrong - {exercise}) & called)
        if not causes:
            return ""
        names, (its, it) = " and your ".join(causes), ("its", "it") if len(causes) == 1 else ("their", "them")
        first = f"which did not pass all of {its} own tests: mend {it} first"
        return f"this calls your {names}, {first}. What was seen here: "

    def _undefined(self, hidden: Hidden, missing: Raised, answer: NotebookNode | None) -> str:
        stop = self._stop_of([answer] if answer is not None else [])
        plain = missing.kind == "NameError"
        text = f"{hidden.expression} is not defined" if plain else f"{missing.kind}: {missing.message}"
        return f"{text}: its cell stopped with {stop}" if stop else f"{text}: no cell of the notebook defines it"

    def _stop_of(self, cells: list[NotebookNode]) -> str:
        """The error with which the first of the cells stopped, "" where all came to their end."""
        return next((self.stops[key] for cell in cells if (key := _key(cell)) in self.stops), "")

    def _answer_of(self, place: int, name: str) -> NotebookNode | None:
        """The answer cell of that name, else the last answer above the test."""
        above = [cell for cell in self.nb.cells[:place] if is_answer(cell) and cell.cell_type == "code"]
        named = [cell for cell in above if grade_id(cell) == name]
        return (named or above or [None])[-1]

    # ---- plain asserts, as nbgrader does

    def _asserts(self, place: int) -> Result:
        """Run a test between its canaries; what it gained counts where they fail as they must."""
        cell = self.nb.cells[place]
        canaries = around(cell.source)
        fault = self._fault(canaries, "before")
        ran = self.session.run(cell.source) if cell.source.strip() else Ran()
        self.put(cell, ran)
        cell["outputs"] = _errors_first(ran.outputs)
        result = self._asserted(cell, ran, place)
        if result.points:
            fault = fault or self._fault(canaries, "after")
        return self._struck_out(cell, result, *fault) if result.points and fault else result

    def _fault(self, canaries: list[Canary], when: str) -> tuple[str, str] | None:
        """The kind and text of what is wrong with the first canary that did not come out as it must."""
        for canary in canaries:
            ran = self.session.run(canary.code, kept=False)
            if ran.stop:
                return ran.stop, f"{canary.what}, tried {when} the tests to see that asserts work, was {_how(ran)}"
            if not canary.holds(ran):
                said = "came out otherwise than it must" if canary.shows else "did not fail"
                text = f"{canary.what}, tried {when} the tests, {said}: this notebook keeps tests from failing"
                return NEUTRALISED, text
        return None

    def _struck_out(self, cell: NotebookNode, result: Result, kind: str, message: str) -> Result:
        cell["outputs"] = [error_output("AssertsNeutralised" if kind == NEUTRALISED else "NotChecked", message)]
        return replace(result, points=0.0, verdict="error", kind=kind, message=message)

    def once_more(self) -> None:
        """Run the notebook in a fresh kernel, each test of plain asserts that it passed changed in one place.

        Now those tests must fail: what passes all the same keeps asserts from failing, or equals everything.
        """
        asserted = ((at, result) for at, result in enumerate(self.results) if result.trust == ASSERTED)
        gained = {result.cell: at for at, result in asserted if result.points}
        changed = {
            name: text for cell in self.nb.cells
            if (name := grade_id(cell)) in gained and (text := twisted(cell.source, self.secret + name))
        }
        if not changed:
            return
        with self.session.again() as session:
            for cell in (cell for cell in self.nb.cells if cell.cell_type == "code" and not is_skipped(cell)):
                if not changed:
                    break
                test = changed.pop(grade_id(cell), None)
                ran = session.run(test or _visible(cell))
                if test and not ran.stop and not any(output.output_type == "error" for output in ran.outputs):
                    at = gained[grade_id(cell)]
                    text = "changed so that no right answer passes it, the test still passes: it can't fail here"
                    self.results[at] = self._struck_out(cell, self.results[at], NEUTRALISED, text)

    def _asserted(self, cell: NotebookNode, ran: Ran, place: int) -> Result:
        name, most = grade_id(cell), points(cell)
        result = Result(name, name.removesuffix("-tests"), "", 0.0, most, "failed", trust=ASSERTED)
        error = next((output for output in cell.outputs if output.output_type == "error"), None)
        if ran.stop:
            return replace(result, verdict="error", kind=ran.stop, message=f"the tests were {_how(ran)}")
        if error is not None:
            return self._assert_failed(result, error, place)
        given = _given(cell.outputs, most)
        if given is None:
            return replace(result, verdict="error", kind="partial mark", message="the test gave a mark out of range")
        whole = given >= most
        return replace(result, points=given, verdict="passed" if whole else "failed",
                       message="" if whole else f"{given:g} of {most:g} points")

    def _assert_failed(self, result: Result, error: NotebookNode, place: int) -> Result:
        answers = self._answers_since(place)
        if answers and all(self.is_blank(answer) for answer in answers):
            return replace(result, verdict="blank", message="not answered")
        stop = self._stop_of(answers)
        if error.ename == "NameError" and stop:
            text = f"{_said(error)}: the answer's cell stopped with {stop}"
            return replace(result, verdict="error", kind="not defined", message=text)
        return replace(result, message=_said(error))

    def _answers_since(self, place: int) -> list[NotebookNode]:
        """The answers between a test cell and the test before it."""
        found: list[NotebookNode] = []
        for cell in reversed(self.nb.cells[:place]):
            if found and is_tests(cell):
                break
            if is_answer(cell) and cell.cell_type == "code":
                found.append(cell)
        return found


def _names_in(text: str) -> set[str]:
    """The names that a cell's code reads or calls; none where it is no Python."""
    try:
        return {node.id for node in ast.walk(trees.parse(text)) if isinstance(node, ast.Name)}
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()


def _visible(cell: NotebookNode) -> str:
    """What a cell runs beside the learner's code."""
    hidden = hidden_line(cell) if is_tests(cell) else None
    return hidden.visible if hidden else cell.source


def _key(cell: NotebookNode) -> str:
    return cell.get("id") or grade_id(cell)


def _nothing_there(found: Sequence[Seen]) -> bool:
    """Did the probe meet a stub, or no object at all?"""
    raised = [value for seen in found for value in seen.found.values() if isinstance(value, Raised)]
    return any(value.kind == "NotImplementedError" or value.step == "answer" for value in raised)


def _kept(message: str) -> str:
    """A message as it is stored: an exception's text may be of any length, and what no file can hold."""
    return str(writable(message))[:_LONGEST]


def _how(ran: Ran) -> str:
    said = next((str(output.evalue) for output in ran.outputs if output.output_type == "error"), ran.stop)
    return said if ran.stop != DEAD else f"not run to the end: {said}"


def _said(error: NotebookNode) -> str:
    """The text of an error in one line; an assert without a text says at least that it failed."""
    text = " ".join(str(error.evalue).split())[:500]
    return text if error.ename == "AssertionError" and text else f"{error.ename}: {text}".rstrip(": ")


def _brief(error: NotebookNode) -> str:
    """An error in one line; of the place of a syntax error its line alone, the file being the kernel's."""
    said = " ".join(str(error.evalue)[:_LONGEST].split())  # the pattern takes the square of its length
    text = re.sub(r"\(\S+\.py, (line \d+)\)$", r"(\1)", said)
    return f"{error.ename}: {text[:200]}".rstrip(": ")


def _errors_first(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """Outputs from which nbgrader reads what we decided: nothing on stderr, an error ahead of any result."""
    kept = [output for output in outputs if output.get("name") != "stderr"]
    results = [output for output in kept if output.output_type == "execute_result"]
    rest = [output for output in kept if output.output_type not in ("execute_result", "error")]
    return [*rest, *(output for output in kept if output.output_type == "error"), *results[-1:]]


def _given(outputs: list[NotebookNode], most: float) -> float | None:
    """The points that a test without an error gives: its value where that is a number, else all; None out of range."""
    value = next((output for output in reversed(outputs) if output.output_type == "execute_result"), None)
    if value is None:
        return most
    try:
        given = float(value.data.get("text/plain", ""))
    except ValueError:
        return most
    return given if math.isfinite(given) and 0 <= given <= most else None


def stubs_of(edition: NotebookNode) -> dict[str, str]:
    """The released text of every answer cell of an edition."""
    return {grade_id(cell): released(cell) for cell in edition.cells if is_answer(cell)}
