"""What grading came to: the scores, and how the class did in each exercise."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from statistics import fmean
from typing import Any

from rich.table import Table
from rich.text import Text

from autograder.course import Course
from autograder.editions import OLDER
from autograder.ledger import last_entries
from autograder.progress import one_line
from autograder.records import Record, by_exercise, stored_records
from autograder.results import ASSERTED, BY_HAND, JUDGED

_STYLE = {"passed": "green", "failed": "red", "blank": "dim", "error": "magenta", "manual": "yellow"}
_SIGN = {"blank": "·", "manual": "?", "error": "!"}
# How far a score can be trusted, short enough for a column.
_TRUST = {JUDGED: "judged", ASSERTED: "asserted", BY_HAND: "by hand"}
_KEYS = "! could not be judged   · not answered   ? waits for a person"
_MANY = 30  # learners
_FIELDS = ("student", "chapter", "exercise", "points", "max_points", "verdict", "kind", "message", "trust")


def as_json(records: Iterable[Record]) -> str:
    """A JSON array with one record per learner and exercise, each on its line."""
    lines = [json.dumps({name: asdict(record)[name] for name in _FIELDS}) for record in by_exercise(records)]
    return "[\n" + ",\n".join(lines) + "\n]" if lines else "[]"


# ---- tables -----------------------------------------------------------------------------------------------------


def score_tables(records: Iterable[Record]) -> list[Table]:
    """For each chapter, learners down and exercises across."""
    return [_scores(chapter, found) for chapter, found in _by_chapter(by_exercise(records)).items()]


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


def _scores(chapter: str, records: list[Record]) -> Table:
    names = _unique(record.exercise for record in records)
    most = {record.exercise: record.max_points for record in records}
    trust = {record.exercise: _TRUST.get(record.trust, record.trust) for record in records}
    table = Table(title=chapter, caption=_KEYS, title_justify="left", caption_justify="left", header_style="bold")
    table.add_column("learner", no_wrap=True)
    for name in names:
        table.add_column(f"{_folded(name)}\n{trust[name]}\n/ {most[name]:g}", justify="right")
    table.add_column(f"total\n/ {sum(most.values()):g}", justify="right", style="bold")
    for student in _unique(record.student for record in records):
        row = {record.exercise: record for record in records if record.student == student}
        total = sum(record.points or 0.0 for record in row.values())
        refused = any(record.kind == "refused" for record in row.values())
        shown = [_shown(row[name]) if name in row else Text("") for name in names]
        table.add_row(student, *shown, Text("refused", "magenta") if refused else f"{total:g}")
    return table


def _shown(record: Record) -> Text:
    if record.kind == "refused":
        return Text("")
    points = "" if record.points is None else f"{record.points:g}"
    sign = "" if record.verdict == "manual" and points else _SIGN.get(record.verdict, "")
    return Text(f"{sign} {points}".strip(), _STYLE[record.verdict])


def _folded(name: str) -> str:
    """A long name in lines short enough for a column."""
    lines = [""]
    for part in name.split("_"):
        joined = f"{lines[-1]}_{part}" if lines[-1] else part
        lines[-1:] = [joined] if len(joined) <= 11 or not lines[-1] else [f"{lines[-1]}_", part]
    return "\n".join(lines)


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def class_tables(records: Iterable[Record]) -> list[Table]:
    """For each chapter, how the class did in each exercise and part, and with which mistakes it failed."""
    return [_class(chapter, found) for chapter, found in _by_chapter(records).items()]


def _class(chapter: str, records: list[Record]) -> Table:
    graded = [record for record in records if record.kind != "refused"]
    refused = {record.student for record in records if record.kind == "refused"}
    count = len({record.student for record in graded})
    title = f"{chapter}: {count} graded, {len(refused)} refused"
    table = Table(title=title, title_justify="left", header_style="bold")
    for name in ("exercise", "mean", "of", "passed", "failed", "blank", "error", "trust"):
        table.add_column(name, justify="left" if name in ("exercise", "trust") else "right")
    table.add_column("failed with", ratio=1)
    for label in _unique(_label(record) for record in graded):
        table.add_row(label, *_row([record for record in graded if _label(record) == label]))
    return table


def _label(record: Record) -> str:
    return f"{record.exercise} · {record.part}" if record.part else record.exercise


def _row(records: list[Record]) -> list[str]:
    scored = [record.points for record in records if record.points is not None]
    verdicts = Counter(record.verdict for record in records)
    kinds = Counter(record.kind or "other" for record in records if record.verdict in ("failed", "error"))
    told = [f"{kind} ({count})" if count > 1 else kind for kind, count in kinds.most_common()]
    waits = len(records) - len(scored)
    told += [f"{waits} wait for a person"] if waits else []
    mean = f"{fmean(scored):.2f}" if not waits else "–"
    counts = [str(verdicts[name] or "") for name in ("passed", "failed", "blank", "error")]
    trust = ", ".join(sorted({_TRUST.get(record.trust, record.trust) for record in records}))
    return [mean, f"{records[0].max_points:g}", *counts, trust, ", ".join(told)]


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
