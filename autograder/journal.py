"""The note of a save that has begun: a run that is killed in the middle leaves it, and the next one finishes the save.

Files and gradebook can't be changed in one step. So the note is written first; from then on the save is carried out to
its end, by this run or by the next, and every step of it can be repeated. Without a note nothing has been changed.
"""

import errno
import json
import shutil
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from autograder.course import Course
from autograder.ledger import state


@dataclass(frozen=True)
class Note:
    """One save: whose, the folder that is to stand in `target`'s place, what else the gradebook needs, the log's line.

    `unanswered` has the notebooks by name, and in each the answers that were not given; `left` those to leave alone;
    `same` the cells, by notebook and name, that are as they were when a person marked them.
    """

    student: str
    chapter: str
    staged: str
    target: str
    replaces: bool
    timestamp: str | None
    unanswered: dict[str, list[str]]
    line: str
    left: tuple[str, ...] = ()
    same: tuple[tuple[str, str], ...] = ()

    @property
    def when(self) -> datetime | None:
        return datetime.fromisoformat(self.timestamp) if self.timestamp else None

    @property
    def folder(self) -> Path:
        """Where the new files lie now."""
        return Path(self.staged if Path(self.staged).is_dir() else self.target)


def _path(course: Course) -> Path:
    return state(course) / "saving.json"


def begin(course: Course, note: Note) -> None:
    """Write the note, whole or not at all."""
    _remove(_old(note))
    new = _path(course).with_suffix(".new")
    new.write_text(json.dumps(asdict(note)), encoding="utf-8")
    new.replace(_path(course))


def pending(course: Course) -> Note | None:
    """The note that a killed run has left, None without one."""
    path = _path(course)
    return Note(**json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None


def end(course: Course, note: Note) -> None:
    """The save is done, or given up: the old folder goes, then the note."""
    _remove(_old(note))
    _path(course).unlink(missing_ok=True)


def swap(note: Note) -> None:
    """Put the new folder in the old one's place; nothing where a killed run had done it."""
    staged, target, old = Path(note.staged), Path(note.target), _old(note)
    if not staged.is_dir():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists() and old.exists():
        _remove(target)  # begun before the kill
    elif target.exists():
        target.replace(old)
    _move(staged, target)


def put_back(note: Note) -> None:
    """The old folder in its place again, or none where there was none; the new one where it was staged."""
    staged, target, old = Path(note.staged), Path(note.target), _old(note)
    if note.replaces and not old.exists():
        return
    if target.exists() and staged.exists():
        _remove(target)
    elif target.exists():
        target.replace(staged)
    if old.exists():
        old.replace(target)


def _old(note: Note) -> Path:
    """Beside the target, where a folder is moved in one step; nbgrader passes over hidden names."""
    target = Path(note.target)
    return target.with_name(f".{target.name}.old")


def _move(staged: Path, target: Path) -> None:
    """In one step, also from one disk to another."""
    try:
        staged.replace(target)
    except OSError as problem:
        if problem.errno != errno.EXDEV:
            raise
        near = target.with_name(f".{target.name}.new")
        _remove(near)
        shutil.copytree(staged, near)
        near.replace(target)


def _remove(folder: Path) -> None:
    if folder.exists():
        for path in (folder, *folder.rglob("*")):
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o700)  # nbgrader's own folders can be read-only
        shutil.rmtree(folder)
