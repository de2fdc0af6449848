"""A page of feedback for each graded notebook: what was checked, what came of it, the learner's own answer.

Made from the results, never from the text of test cells; whatever is the learner's is escaped or goes through nh3.
"""

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import mistune
import nh3
from markupsafe import Markup
from nbformat import NotebookNode
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from autograder.cells import grade_id, is_added, is_answer, is_graded
from autograder.course import Course
from autograder.gradebook import NO_RESPONSE, Book, Mark, Marks
from autograder.ledger import refusals
from autograder.records import Stored, stored
from autograder.results import Result

_STATES = {
    "passed": ("✓", "passed"),
    "failed": ("✗", "not right yet"),
    "blank": ("–", "not answered"),
    "error": ("!", "could not be checked"),
    "manual": ("…", "graded by hand"),
}
_AGAIN = "Your instructor marked what you handed in before, and will look at this one, too."
_RANK = ("error", "failed", "blank", "manual", "passed")
_LINES, _IMAGE = 120, 4_000_000
_HEADING = re.compile(r"^#{2,4} (Exercise [\d.]+) .*`(\w+)`", re.M)
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")
_TAGS = {
    "p", "br", "hr", "strong", "em", "del", "code", "pre", "blockquote", "ul", "ol", "li", "h1", "h2", "h3", "h4", "h5",
    "h6", "span", "div", "sub", "sup", "table", "thead", "tbody", "tr", "th", "td", "a",
}


def feedback(course: Course, *, chapter: str | None = None, student: str | None = None) -> list[Path]:
    """Write the pages into `feedback/`, where nbgrader writes its own; the paths, in order."""
    pages = []
    with Book(course) as book:
        refused = refusals(course)
        for one in stored(course, chapter=chapter, student=student):
            if (one.chapter, one.student) not in refused:
                marks = book.marks(one.student, one.chapter, one.name)
                pages.append(_write(course, one.student, one.chapter, one.name, _page(one, marks)))
        for (assignment, name), reason in sorted(refused.items()):
            if chapter in (None, assignment) and student in (None, name):
                what = reason.partition("; ask for ")[0]  # the rest is for the instructor
                for nb, edition in book.editions(assignment).items():
                    page = {"student": name, "title": _title(edition, assignment), "refused": what}
                    pages.append(_write(course, name, assignment, nb, page))
    return sorted(pages)


def _write(course: Course, student: str, chapter: str, name: str, page: dict[str, Any]) -> Path:
    path = course.path(course.feedback, student, chapter) / f"{name}.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)  # nbgrader's own may be there, read-only
    path.write_text(_template().render(page=page), encoding="utf-8")
    return path


@cache
def _template() -> jinja2.Template:
    return jinja2.Environment(loader=jinja2.PackageLoader("autograder"), autoescape=True).get_template("feedback.html")


def _page(one: Stored, marks: Marks | None) -> dict[str, Any]:
    """All that the template shows."""
    found = marks.cells if marks else {}
    numbers = _numbers(one.notebook)
    exercises = [{"number": numbers.get(name, ""), **_exercise(name, group, one.notebook, found, marks)}
                 for name, group in _groups(one.results).items()]
    given = [exercise["points_now"] for exercise in exercises]
    penalty = marks.penalty if marks else 0.0
    waiting = sum(exercise["waiting"] for exercise in exercises)
    return {
        "student": one.student, "title": _title(one.notebook, one.chapter), "exercises": exercises,
        "handed_in": marks.timestamp if marks else None, "penalty": _number(penalty) if penalty else "",
        "total": _number(max(sum(given) - penalty, 0.0)),
        "most": _number(sum(result.max_points for result in one.results)),
        "waiting": _number(waiting) if waiting else "", "repairs": one.repairs,
        "added": [_cell(cell) for cell in one.notebook.cells if is_added(cell)],
    }


def _numbers(notebook: NotebookNode) -> dict[str, str]:
    """exercise -> "Exercise 3.4", where a heading of the notebook says so."""
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    return {match[2]: match[1] for match in _HEADING.finditer(text)}


def _title(notebook: NotebookNode, name: str) -> str:
    heads = (re.search(r"^# +(.+)$", cell.source, re.M) for cell in notebook.cells if cell.cell_type == "markdown")
    return next((head[1].strip() for head in heads if head), name)


def _groups(results: Iterable[Result]) -> dict[str, list[Result]]:
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(result.exercise, []).append(result)
    return groups


def _exercise(
    name: str, results: list[Result], notebook: NotebookNode, found: Any, marks: Marks | None
) -> dict[str, Any]:
    answers = _answers(name, results, notebook)
    parts = [_part(result, found.get(result.cell)) for result in results]
    verdict = min((part["verdict"] for part in parts), key=_RANK.index)
    given = [part["points_now"] for part in parts]
    named = [result.cell for result in results] + [grade_id(answer) for answer in answers]
    comments = [marks.comments[cell] for cell in dict.fromkeys(named) if marks and cell in marks.comments]
    known = None not in given
    sign, state = _STATES[verdict]
    by_hand = any(part["by_hand"] for part in parts)
    again = any(mark.to_see_again for result in results if (mark := found.get(result.cell)))
    if verdict == "manual" and known:
        sign, state = "", "to be looked at again" if again else "graded by hand"
    return {
        "name": name, "verdict": verdict, "sign": sign, "state": state, "parts": [p for p in parts if p["shown"]],
        "points": _number(sum(given)) if known else None, "points_now": sum(value or 0.0 for value in given),
        "most": _number(sum(result.max_points for result in results)),
        "waiting": sum(result.max_points for result, value in zip(results, given) if value is None),
        "by_hand": _AGAIN if again else "Your instructor set the points." if by_hand else "",
        "comments": [comment for comment in comments if comment != NO_RESPONSE],
        "answers": [_cell(answer) for answer in answers],
    }


def _part(result: Result, mark: Mark | None) -> dict[str, Any]:
    """One graded cell: what was checked of it and what came of that."""
    given = result.points
    if mark is not None:
        given = None if mark.manual is None and mark.auto is None else mark.score
    by_hand = mark is not None and (mark.manual is not None or bool(mark.extra)) and result.verdict != "manual"
    message, _, tried = result.message.partition("\nTried with: ")
    details = [f"tried with {tried}" if tried else "", f"check: {result.check}" if result.check else ""]
    wrong = result.verdict in ("failed", "error")
    if result.verdict == "passed":
        inputs = "one set of inputs" if result.cases == 1 else f"{result.cases} different inputs"
        message = f"every check passed, on {inputs}" if result.cases else "every test passed"
    heard = result.verdict == "failed" and result.visible not in result.message
    return {
        "verdict": result.verdict, "sign": _STATES[result.verdict][0], "name": result.part, "by_hand": by_hand,
        "points": None if given is None else _number(given), "points_now": given, "most": _number(result.max_points),
        "message": message if wrong or result.verdict == "passed" else "",
        "detail": "; ".join(detail for detail in details if detail) if wrong else "",
        "visible": result.visible if heard else "",
        "shown": result.verdict != "manual" and (result.verdict != "blank" or bool(result.part)),
    }


def _answers(name: str, results: list[Result], notebook: NotebookNode) -> list[NotebookNode]:
    """The cells in which the learner answered: of that name, else those between this test and the one before."""
    cells = notebook.cells
    tested = {result.cell for result in results}
    named = [cell for cell in cells if is_answer(cell) and grade_id(cell) in {name, *tested}]
    if named:
        return named
    place = next((place for place, cell in enumerate(cells) if grade_id(cell) in tested), 0)
    start = max((at for at, cell in enumerate(cells[:place]) if is_graded(cell)), default=-1) + 1
    return [cell for cell in cells[start:place] if is_answer(cell)]


def _cell(cell: NotebookNode) -> dict[str, Any]:
    """A cell of the learner's, safe to show."""
    if cell.cell_type != "code":
        return {"text": _markdown(cell.source), "outputs": []}
    code = highlight(cell.source, PythonLexer(stripall=False), HtmlFormatter(nowrap=True))
    return {"code": Markup(nh3.clean(code, tags={"span"}, attributes={"span": {"class"}})) or " ",
            "outputs": [shown for output in cell.outputs if (shown := _output(output))]}


def _output(output: NotebookNode) -> dict[str, Any] | None:
    if output.output_type == "error":
        return {"text": _short("\n".join(output.traceback) or f"{output.ename}: {output.evalue}"), "error": True}
    if output.output_type == "stream":
        return {"text": _short(output.text)} if output.name == "stdout" or output.text.strip() else None
    data = output.get("data", {})
    image = re.sub(r"\s", "", str(data.get("image/png", "")))
    if image and len(image) < _IMAGE and re.fullmatch(r"[A-Za-z0-9+/]+={0,2}", image):
        return {"image": image, "alt": str(output.metadata.get("alt", "") or data.get("text/plain", ""))[:500]}
    if "text/html" in data:
        return {"html": _clean(str(data["text/html"])[:200_000])}
    return {"text": _short(str(data["text/plain"]))} if "text/plain" in data else None


def _short(text: str) -> str:
    lines = _ANSI.sub("", text).rstrip().split("\n")
    return "\n".join(line[:2000] for line in lines[:_LINES]) + ("\n…" if len(lines) > _LINES else "")


def _markdown(text: str) -> Markup:
    render = mistune.create_markdown(escape=False, plugins=["table", "strikethrough", "math"])
    return _clean(str(render(text[:200_000])))


def _clean(html: str) -> Markup:
    """What is left of a learner's HTML: text and its structure; nothing that loads, runs or styles."""
    return Markup(nh3.clean(html, tags=_TAGS, attributes={"a": {"href"}}, url_schemes={"http", "https"}))


def _number(value: float) -> str:
    return f"{value:g}"
