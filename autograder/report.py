"""What grading came to: the scores, and how the class did in each exercise."""

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from autograder.course import Course
from autograder.editions import OLDER
from autograder.ledger import last_entries
from autograder.progress import console, one_line
from autograder.records import Record, by_exercise, stored_records
from autograder.results import ASSERTED, BY_HAND, JUDGED

_STYLE = {"passed": "green", "failed": "red", "blank": "dim", "error": "magenta", "manual": "yellow"}
_SIGN = {"blank": "·", "manual": "?", "error": "!"}
# How far a score can be trusted, short enough for a column.
_TRUST = {JUDGED: "judged", ASSERTED: "asserted", BY_HAND: "by hand"}
_KEYS = "! could not be judged   · not answered   ? waits for a person   ? 3 waits again"
_MANY = 30  # learners
_WIDE = 110  # columns of a screen: on a narrower one the names of the class table fold, too
_FOLDS = (11, 7)  # characters of a name in one line of a table's head
_FIELDS = ("student", "chapter", "exercise", "points", "max_points", "verdict", "kind", "message", "trust")


def as_json(records: Iterable[Record]) -> str:
    """A JSON array with one record per learner and exercise, each on its line."""
    lines = [json.dumps({name: asdict(record)[name] for name in _FIELDS}) for record in by_exercise(records)]
    return "[\n" + ",\n".join(lines) + "\n]" if lines else "[]"


# ---- tables -----------------------------------------------------------------------------------------------------


def score_tables(records: Iterable[Record], *, width: int | None = None) -> list[Table]:
    """For each chapter, learners down and exercises across.

    Where their names do not fit into `width` columns, those of the console by default, the exercises have numbers and
    the names stand below.
    """
    width = width or console().width
    return [_scores(chapter, found, width) for chapter, found in _by_chapter(by_exercise(records)).items()]


def tables_of_run(records: list[Record]) -> list[Any]:
    """What fits on a screen: everybody's scores, of a large class how it did."""
    large = len({record.student for record in records}) > _MANY
    hint = ["autograder report --learners prints everybody's scores"]
    return [*class_tables(records), *hint] if large else score_tables(records)


def _by_chapter(records: Iterable[Record]) -> dict[str, list[Record]]:
    chapters: dict[str, list[Record]] = {}
    for record in records:
        chapters.setdefault(record.chapter, []).append(record)
    return chapters


def _scores(chapter: str, records: list[Record], width: int) -> Table:
    names = _unique(record.exercise for record in records)
    trust = {record.exercise: _TRUST.get(record.trust, record.trust) for record in records}
    for most in _FOLDS:
        table = _score_table(chapter, records, {name: f"{_folded(name, most)}\n{trust[name]}" for name in names})
        if Console(width=10_000).measure(table).maximum <= width:
            return table
    numbers = {name: str(number) for number, name in enumerate(names, 1)}
    table = _score_table(chapter, records, numbers)
    table.caption = "\n".join([_KEYS, *(f"{number:>2} {name}, {trust[name]}" for name, number in numbers.items())])
    return table


def _score_table(chapter: str, records: list[Record], heads: dict[str, str]) -> Table:
    """The scores under these heads of the exercises."""
    most = {record.exercise: record.max_points for record in records}
    table = Table(title=chapter, caption=_KEYS, title_justify="left", caption_justify="left", header_style="bold")
    table.add_column("learner", no_wrap=True)
    for name, head in heads.items():
        table.add_column(f"{head}\n/ {most[name]:g}", justify="right", overflow="fold")
    table.add_column(f"total\n/ {sum(most.values()):g}", justify="right", style="bold", no_wrap=True)
    for student in _unique(record.student for record in records):
        row = {record.exercise: record for record in records if record.student == student}
        total = f"{sum(record.points or 0.0 for record in row.values()):g}"
        total += " + ?" if any(record.points is None for record in row.values()) else ""
        refused = any(record.kind == "refused" for record in row.values())
        shown = [_shown(row[name]) if name in row else Text("") for name in heads]
        table.add_row(Text(one_line(student)), *shown, Text("refused", "magenta") if refused else total)
    return table


def _shown(record: Record) -> Text:
    if record.kind == "refused":
        return Text("")
    points = "" if record.points is None else f"{record.points:g}"
    sign = "" if record.verdict == "manual" and points else _SIGN.get(record.verdict, "")
    sign = _SIGN["manual"] if record.again else sign
    return Text(f"{sign} {points}".strip(), _STYLE[record.verdict])


def _folded(name: str, most: int) -> str:
    """A long name in lines of at most so many characters, or of one word: of those in snake_case or in CamelCase."""
    lines = [""]
    for part in re.findall(r"[^_A-Z]*_+|[A-Z]*[^_A-Z]+|[A-Z]+", name):
        if lines[-1] and len(lines[-1] + part) > most:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def class_tables(records: Iterable[Record]) -> list[Table]:
    """For each chapter, how the class did in each exercise and part, and with which mistakes it failed."""
    return [_class(chapter, found) for chapter, found in _by_chapter(records).items()]


def class_as_json(records: Iterable[Record]) -> str:
    """A JSON array with what the class tables say, one record per exercise and part, each on its line."""
    lines = [json.dumps(asdict(row)) for found in _by_chapter(records).values() for row in _class_rows(found)]
    return "[\n" + ",\n".join(lines) + "\n]" if lines else "[]"


@dataclass(frozen=True)
class _ClassRow:
    """How the class did in one exercise or part.

    mean: None while scores of it are missing. failed_with: kinds of mistakes, the most frequent first, and how many
    made it. waiting: scores that wait for a person, or wait for one again.
    """

    chapter: str
    exercise: str
    part: str
    graded: int
    refused: int
    mean: float | None
    max_points: float
    passed: int
    failed: int
    blank: int
    error: int
    trust: list[str]
    failed_with: dict[str, int]
    waiting: int


def _class_rows(records: list[Record]) -> list[_ClassRow]:
    """The rows of one chapter."""
    graded = [record for record in records if record.kind != "refused"]
    labels = dict.fromkeys(_label(record) for record in graded)
    return [_class_row([record for record in graded if _label(record) == label], *_handed_in(records))
            for label in labels]


def _handed_in(records: list[Record]) -> tuple[int, int]:
    """How many learners were graded and how many refused."""
    refused = {record.student for record in records if record.kind == "refused"}
    return len({record.student for record in records if record.kind != "refused"}), len(refused)


def _class_row(records: list[Record], graded: int, refused: int) -> _ClassRow:
    first = records[0]
    scored = [record.points for record in records if record.points is not None]
    waiting = sum(record.points is None or record.again for record in records)
    verdicts = Counter(record.verdict for record in records)
    kinds = Counter(record.kind or "other" for record in records if record.verdict in ("failed", "error"))
    return _ClassRow(
        chapter=first.chapter, exercise=first.exercise, part=first.part, graded=graded, refused=refused,
        mean=fmean(scored) if len(scored) == len(records) else None, max_points=first.max_points,
        passed=verdicts["passed"], failed=verdicts["failed"], blank=verdicts["blank"], error=verdicts["error"],
        trust=sorted({record.trust for record in records}), failed_with=dict(kinds.most_common()), waiting=waiting)


def _class(chapter: str, records: list[Record]) -> Table:
    graded, refused = _handed_in(records)
    title = f"{chapter}: {graded} graded, {refused} refused"
    table = Table(title=title, title_justify="left", header_style="bold")
    table.add_column("exercise", no_wrap=console().width >= _WIDE, overflow="fold")
    for name in ("mean", "of", "passed", "failed", "blank", "error", "trust"):
        table.add_column(name, justify="left" if name == "trust" else "right", no_wrap=True)
    table.add_column("failed with", ratio=1)
    for row in _class_rows(records):
        table.add_row(*_shown_row(row))
    return table


def _label(record: Record) -> tuple[str, str]:
    return record.exercise, record.part


def _shown_row(row: _ClassRow) -> list[str]:
    told = [f"{kind} ({count})" if count > 1 else kind for kind, count in row.failed_with.items()]
    told += [f"{row.waiting} wait for a person"] if row.waiting else []
    mean = f"{row.mean:.2f}" if row.mean is not None else "–"
    counts = [str(count or "") for count in (row.passed, row.failed, row.blank, row.error)]
    name = f"{row.exercise} · {row.part}" if row.part else row.exercise
    trust = ", ".join(sorted({_TRUST.get(kind, kind) for kind in row.trust}))
    return [name, mean, f"{row.max_points:g}", *counts, trust, ", ".join(told)]


def report(course: Course, *, chapter: str | None = None, learners: bool = False) -> list[Any]:
    """The tables of a graded course, with `learners` each learner's scores first, and where to look next."""
    records = stored_records(course, chapter=chapter)
    scores = score_tables(records) if learners else []
    refused = {(record.student, record.chapter): record.message for record in records if record.kind == "refused"}
    lines = [one_line(f"refused  {student} {name}: {reason}") for (student, name), reason in sorted(refused.items())]
    lines += _older(course, chapter)
    places = {"gradebook": course.db_url, "graded notebooks": course.autograded, "feedback": course.feedback}
    found = [f"{name:17} {place}" for name, place in places.items()]
    return [*scores, *class_tables(records), *lines, *found] if records else [f"{course.root}: nothing graded yet"]


def _older(course: Course, chapter: str | None) -> list[str]:
    """Which submissions were graded against an older release, a line for each release."""
    found: dict[tuple[str, str], list[str]] = {}
    for (name, student), entry in last_entries(course).items():
        for repair in entry.get("repairs", []) if chapter in (None, name) and not entry["refused"] else ():
            if repair.get("kind") == OLDER:
                found.setdefault((name, repair["detail"]), []).append(student)
    return [one_line(f"older    {name}: {len(who)} {told}: {', '.join(sorted(who))}")
            for (name, told), who in sorted(found.items())]
