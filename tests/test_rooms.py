"""The rooms of the autograder package: each imports only those above it, and a library has one room that knows it."""

import ast
import importlib
from pathlib import Path

import pytest

import autograder

PACKAGE = Path(autograder.__file__).parent
ORDER = (
    "errors", "trees", "course", "options", "wire", "links", "lower", "syntax", "source", "release", "surface",
    "needles", "audit", "graft", "book", "probe", "judge", "checks", "cells", "statements", "pairing", "rebuild",
    "handin", "sandbox", "outputs", "scratch", "flood", "kernels", "canary", "results", "marking", "engine", "scale",
    "ledger", "editions", "gradebook", "newcourse", "changes", "records", "journal", "saving", "grade", "feedback",
    "progress", "report", "intake", "export", "sample", "doctor", "publish", "cli",
)
# What runs beside the learner's code must start anywhere: no package of ours above it, no third-party library
# but the two that the notebook itself imports.
BESIDE_THE_LEARNER = {"wire": set(), "probe": {"wire"}}
# A library that only these rooms may know, so that a change of it is a change in one place.
KEEPERS = {
    "jupytext": {"source"},
    "sqlalchemy": {"gradebook"},
    "sqlite3": {"gradebook"},
    "nbgrader.api": {"gradebook"},
    "click": {"cli"},
    "distributed": {"scale"},
}
# What others build on: notebooks, the instructor's own scripts, the tests of the course.
PROMISED = {
    "errors": ("CourseError", "WrongAnswer"),
    "course": ("Project", "Course"),
    "wire": ("encode", "decode"),
    "source": ("load", "lowered", "regions"),
    "release": ("release", "source_notebook", "student_notebook"),
    "audit": ("audit",),
    "book": ("execute", "build"),
    "probe": ("carry_out", "serve"),
    "judge": ("Trial",),
    "checks": ("EXERCISES", "check"),
    "rebuild": ("rebuild",),
    "kernels": ("Kernel",),
    "grade": ("grade", "Record"),
    "doctor": ("examine", "chromium"),
    "publish": ("publish",),
    "cli": ("main",),
}


def room_of(path: Path) -> str:
    """The room in which a file of the package stands."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(tree: ast.AST, path: Path) -> set[str]:
    """Every module that a file imports, anywhere in it, by its full name."""
    found = set()
    package = ("autograder", *path.relative_to(PACKAGE).parent.parts)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[:len(package) - node.level + 1] if node.level else ()
            base = ".".join((*above, *(node.module or "").split("."))).strip(".")
            found |= {base} | {f"{base}.{alias.name}" for alias in node.names}
    return found


def rooms_used(names: set[str]) -> set[str]:
    """The rooms of ours among imported modules."""
    return {name.split(".")[1] for name in names if name.startswith("autograder.") and name.split(".")[1] in ORDER}


def faults(path: Path, text: str) -> list[str]:
    """Every way in which a file breaks the order of the rooms."""
    room, names = room_of(path), imported(ast.parse(text), path)
    below = [f"{room} imports {used}, which stands below it" for used in sorted(rooms_used(names) - {room})
             if ORDER.index(used) >= ORDER.index(room)]
    strangers = [f"{room} imports {used}; it may import only {sorted(BESIDE_THE_LEARNER[room])}"
                 for used in sorted(rooms_used(names) - {room}) if used not in BESIDE_THE_LEARNER.get(room, {used})]
    kept = [f"{room} imports {library}, which only {sorted(keepers)} may" for library, keepers in KEEPERS.items()
            if room not in keepers and any(name == library or name.startswith(f"{library}.") for name in names)]
    private = [f"{room} imports {name}, which is another room's own" for name in sorted(names)
               if name.startswith("autograder.") and name.split(".")[-1].startswith("_")
               and not name.endswith("__") and name.split(".")[1] != room]
    nodes = ast.walk(ast.parse(text))
    parses = any(isinstance(node, ast.Attribute) and ast.unparse(node) == "ast.parse" for node in nodes)
    alone = [f"{room} calls ast.parse, which only trees may: of two threads at once, one fails"]
    return below + strangers + kept + private + alone * (parses and room != "trees")


FILES = sorted(path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py" or path.parent != PACKAGE)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_room_imports_only_rooms_above_it(path):
    assert room_of(path) in ORDER, f"{path.name} is no room: give it a place in ORDER and in the design"
    assert faults(path, path.read_text()) == []


@pytest.mark.parametrize(("room", "line", "fault"), [
    ("errors.py", "from autograder.course import Project", "errors imports course, which stands below it"),
    ("source.py", "def f():\n    import autograder.grade", "source imports grade, which stands below it"),
    ("release.py", "from . import cli", "release imports cli, which stands below it"),
    ("probe/__init__.py", "from autograder import errors", "probe imports errors; it may import only ['wire']"),
    ("probe/run.py", "from ..judge import Trial", "probe imports judge, which stands below it"),
    ("grade.py", "import sqlite3", "grade imports sqlite3, which only ['gradebook'] may"),
    ("marking.py", "import ast\nast.parse('x')",
     "marking calls ast.parse, which only trees may: of two threads at once, one fails"),
    ("audit.py", "from autograder.source import _x", "audit imports autograder.source._x, which is another room's own"),
])
def test_planted_import_is_caught(room, line, fault):
    assert fault in faults(PACKAGE / room, line)


@pytest.mark.parametrize("room", ["wire", "probe"])
def test_what_runs_beside_the_learner_needs_numpy_and_torch_only(room):
    import sys

    allowed = set(sys.stdlib_module_names) | {"numpy", "torch", "autograder"}
    for path in (path for path in FILES if room_of(path) == room):
        used = {name.split(".")[0] for name in imported(ast.parse(path.read_text()), path)}
        assert used <= allowed, f"{path.name} imports {sorted(used - allowed)}"


@pytest.mark.parametrize(("room", "names"), PROMISED.items(), ids=PROMISED)
def test_room_keeps_the_names_that_others_use(room, names):
    module = importlib.import_module(f"autograder.{room}")
    assert [name for name in names if not hasattr(module, name)] == []
    assert module.__doc__, f"autograder/{room}: say in one sentence what the room is for"


@pytest.mark.parametrize("room", ["errors", "course", "wire", "checks", "judge", "source"])
def test_everything_public_in_a_room_says_what_one_gets(room):
    module = importlib.import_module(f"autograder.{room}")
    own = [thing for name, thing in vars(module).items() if not name.startswith("_") and callable(thing)
           and getattr(thing, "__module__", "").startswith(module.__name__)]
    assert [thing.__name__ for thing in own if not thing.__doc__] == []
