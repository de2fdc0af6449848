"""What a run of the grader says: a bar while it lasts, then its counts and what people should know, on one screen."""

import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from statistics import median

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from autograder.changes import Change
from autograder.course import Course
from autograder.handin import strays
from autograder.records import Outcome, Record
from autograder.results import ASSERTED, BY_HAND, JUDGED

_LOG_S = 5   # between two lines of progress where there is no terminal
_SECOND_LOOK = "given by hand; handed in anew since, and to be looked at again"
_NAMED = 2   # cells of one kind of repair that are named
_MOST = 12   # lines of one sort in the summary; the log has them all
# What is said of a sandbox that is not ours.
_SANDBOX = {"off": "; sandbox off: learners' code ran with your rights",
            "bwrap": "; sandbox bwrap: bubblewrap's, the weaker one"}


def console(*, error: bool = False) -> Console:
    """Where to print; wide enough for a table when nobody's terminal says how wide."""
    stream = sys.stderr if error else sys.stdout
    return Console(file=stream, width=None if stream.isatty() else 120, highlight=False)


def tell(part: Table | str) -> None:
    """Print a table or a line, as it is."""
    if isinstance(part, str):
        print(part)
    else:
        console().print(part)


def one_line(text: str) -> str:
    """Text of a learner's, a file's name say, that can neither start a line of its own nor move the cursor."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


class Watch:
    """A progress bar on stderr with the time that is left, and afterwards what each submission needed told."""

    def __init__(self, sandbox: str = "on", *, dry_run: bool = False):
        self._sandbox, self._dry = sandbox, dry_run
        self.outcomes: list[Outcome] = []

    def __enter__(self) -> "Watch":
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, TextColumn("left"), TimeRemainingColumn(), console=console(error=True))
        self._task = self._bar.add_task("grading", total=None, visible=False)  # there may be nothing to do
        self._bar.start()
        self._start = self._next = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
        self._took = time.monotonic() - self._start

    def __call__(self, done: int, total: int, outcome: Outcome | None) -> None:
        """Take the news from `grade`."""
        self._bar.update(self._task, completed=done, total=total, visible=True)
        self.outcomes += [outcome] if outcome else []
        # A bar needs a terminal; a log gets a line now and then.
        if not self._bar.console.is_terminal and time.monotonic() > self._next:
            self._next = time.monotonic() + _LOG_S
            print(f"grading: {done} of {total}", file=sys.stderr, flush=True)

    @property
    def code(self) -> int:
        """The exit code that this run deserves: 0, 1 nothing graded, 3 some refused, 4 some held back."""
        refused = [outcome for outcome in self.outcomes if outcome.refused]
        if refused and len(refused) == len(self.outcomes):
            return 1
        if any(outcome.held for outcome in self.outcomes):
            return 4
        return 3 if refused else 0

    def summary(self) -> list[str]:
        """The counts, then a line for each submission that was refused, held back, changed or repaired."""
        return [self._counts(), *self._trust(), *self._lines("refused", lambda outcome: outcome.refused),
                *self._lines("held back", _held), *self._lines("changed", _changed),
                *self._lines("repaired", _repaired), *self._advice()]

    def _counts(self) -> str:
        refused = sum(bool(outcome.refused) for outcome in self.outcomes)
        held = sum(outcome.held for outcome in self.outcomes)
        graded = len(self.outcomes) - refused - held
        counts = f"{len(self.outcomes)} handed in = {graded} graded + {refused} refused"
        counts += f" + {held} held back" if held else ""
        if self._dry:
            counts += "; a dry run: nothing was saved"
        return counts + _SANDBOX.get(self._sandbox, "")

    def _trust(self) -> list[str]:
        """How many scores can be trusted how far."""
        trust: Counter[str] = Counter()
        for outcome in self.outcomes:
            trust.update(outcome.trust)
        told = [f"{trust[kind]} {kind}" for kind in (JUDGED, ASSERTED, BY_HAND) if trust[kind]]
        return [f"scores: {', '.join(told)}"] if told else []

    def _lines(self, kind: str, of: Callable[[Outcome], str]) -> list[str]:
        told = [(outcome, text) for outcome in sorted(self.outcomes, key=_whose) if (text := of(outcome))]
        lines = [one_line(f"{kind:9} {_whose(outcome)}: {text}") for outcome, text in told[:_MOST]]
        more = len(told) - len(lines)
        return [*lines, f"{kind:9} … and {more} more; .autograder/log.jsonl has them all"] if more else lines

    def _advice(self) -> list[str]:
        held = [outcome for outcome in self.outcomes if outcome.held]
        advice = "their scores would change though they handed in the same: see --dry-run, approve with --yes"
        return [f"{len(held)} held back: {advice}"] if held else []

    def cost(self) -> str:
        """How long it took, and how much memory."""
        seconds = [outcome.seconds for outcome in self.outcomes] or [0.0]
        peak = max((outcome.peak for outcome in self.outcomes), default=0)
        return (f"took {self._took:.0f} s; a submission {median(seconds):.1f} s (median), {max(seconds):.1f} s at most"
                + (f"; a kernel at most {peak / 2**20:.0f} MB" if peak else ""))


def misplaced(course: Course) -> list[str]:
    """A line for each notebook that was put where nothing is graded."""
    found = [path.relative_to(course.submitted) for path in strays(course)]
    where = f"{course.path(course.submitted, 'NAME', 'CHAPTER')}/, with a CHAPTER of {course.source}/"
    lines = [one_line(f"{course.submitted / path}: not graded; put it into {where}") for path in found[:_MOST]]
    more = len(found) - len(lines)
    return [*lines, f"{course.submitted}: {more} more notebooks are not graded, for the same reason"] if more else lines


def _whose(outcome: Outcome) -> str:
    return f"{outcome.handin.student} {outcome.handin.chapter}"


def _repaired(outcome: Outcome) -> str:
    cells: dict[str, list[str]] = {}
    for repair in outcome.repairs if not outcome.refused else ():
        cells.setdefault(repair.kind, []).append(repair.cell)
    return ", ".join(_repair(kind, names) for kind, names in cells.items())


def _repair(kind: str, cells: list[str]) -> str:
    """One kind of repair with the cells that have a name, or how many there were."""
    named = [name for name in cells if name]
    if len(named) == len(cells) <= _NAMED:
        return f"{kind} ({', '.join(named)})"
    return f"{kind} {len(cells)}x" if len(cells) > 1 else kind


def _held(outcome: Outcome) -> str:
    return _told(outcome) if outcome.held else ""


def _changed(outcome: Outcome) -> str:
    return "" if outcome.held or outcome.refused else _told(outcome)


def _told(outcome: Outcome) -> str:
    changes = [change for change in outcome.changes if not change.new]
    told = [f"{change.exercise} {_score(change.before)} -> {_score(change.after)}" for change in changes]
    told += [f"{one.exercise} {_score(one.points)}, given by hand, waits for a second look" for one in _again(outcome)]
    return ", ".join(told)


def _again(outcome: Outcome) -> list[Record]:
    """What a person marked and was handed in otherwise since."""
    return [record for record in outcome.records if record.again]


def _score(points: float | None) -> str:
    return "?" if points is None else f"{points:g}"


# ---- what would change --------------------------------------------------------------------------------------------


def change_table(outcomes: list[Outcome]) -> Table | str:
    """Old and new score of each exercise that a regrade changes; what is graded for the first time in one line."""
    if not any(outcome.changes or _again(outcome) for outcome in outcomes):
        return "no score would change"
    table = Table(title="what would change", title_justify="left", header_style="bold")
    for name, justify in (("learner", "left"), ("chapter", "left"), ("exercise", "left"), ("now", "right"),
                          ("then", "right"), ("of", "right"), ("why", "left")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for outcome in sorted(outcomes, key=_whose):
        whose = (outcome.handin.student, outcome.handin.chapter)
        first = [change for change in outcome.changes if change.new]
        if first:
            table.add_row(*whose, f"({len(first)} exercises)", "–", f"{sum(change.after or 0 for change in first):g}",
                          f"{sum(change.max_points for change in first):g}", "graded for the first time")
        for change in outcome.changes:
            if not change.new:
                scores = (_score(change.before), _score(change.after), f"{change.max_points:g}")
                table.add_row(*whose, change.exercise, *scores, _why(change))
        for record in _again(outcome):
            points = _score(record.points)
            table.add_row(*whose, record.exercise, points, f"? {points}", f"{record.max_points:g}", _SECOND_LOOK)
    return table


def _why(change: Change) -> str:
    cause = "the exercise or the grader changed" if change.ours else "handed in anew"
    return one_line(f"{cause}: {change.message}"[:200] if change.message else cause)


def changes_as_json(outcomes: list[Outcome]) -> str:
    """A JSON array with one record per learner and exercise whose score would change, each on its line."""
    lines = [json.dumps(asdict(change)) for outcome in sorted(outcomes, key=_whose) for change in outcome.changes]
    return "[\n" + ",\n".join(lines) + "\n]" if lines else "[]"
