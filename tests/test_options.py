"""What a course's nbgrader_config.py and the command line say is followed, as stock follows it."""

import json
import shutil
from types import SimpleNamespace

import nbformat
import pytest
from classroom import SOLVED, answer, answered, asserts, ended, hand_in, marks, notebook, plain_source, run, start
from click.testing import CliRunner
from nbgrader.api import Gradebook

from autograder import options
from autograder.changes import is_up_to_date
from autograder.cli import main
from autograder.course import Course
from autograder.engine import limits_of
from autograder.errors import CourseError
from autograder.grade import grade
from autograder.gradebook import complete
from autograder.handin import find_handins

CONFIG = """
c = get_config()
c.CourseDirectory.root = "inner"
c.CourseDirectory.source_directory = "masters"
c.CourseDirectory.release_directory = "out"
c.CourseDirectory.submitted_directory = "in"
c.CourseDirectory.autograded_directory = "graded"
c.CourseDirectory.feedback_directory = "back"
c.CourseDirectory.db_url = "sqlite:///marks.db"
c.CourseDirectory.student_id_exclude = "ghost,other"
c.CourseDirectory.groupshared = True
c.Execute.timeout = 3
c.Autograde.exclude_overwriting = {"ps1": ["mine.txt"]}
c.AssignLatePenalties.plugin_class = "lateness.Halve"
"""
PLUGIN = """
from nbgrader.plugins import BasePlugin
class Halve(BasePlugin):
    def late_submission_penalty(self, student_id, score, total_seconds_late):
        return score / 2
"""
TWO = notebook(
    answer("triple", "def triple(x):\n    ### BEGIN SOLUTION\n    return 3 * x\n    ### END SOLUTION"),
    asserts("triple-tests", "assert triple(1) == 3", 8),
)
TRIPLE = {"triple": "def triple(x):\n    return 3 * x"}
READS = {
    **SOLVED,
    "double": "def double(x):\n    two, none = open('mine.txt').read(), open('ours.txt').read()\n"
              "    return x * int(two) + int(none)",
    "mean": "import time\ndef mean(xs):\n    time.sleep(4)\n    return sum(xs) / len(xs)",
}


def blank(course, name="numbers", assignment="ps1"):
    return nbformat.read(course.path(course.release, ".", assignment) / f"{name}.ipynb", as_version=4)


@pytest.fixture(scope="module")
def configured(tmp_path_factory):
    """A course with every option set, graded by stock and by us, who are told of it by its config file alone."""
    folder = tmp_path_factory.mktemp("options")
    course, stock = Course(folder / "ours"), Course(folder / "stock")
    (course.root / "inner" / "masters" / "ps1").mkdir(parents=True)
    (course.root / "nbgrader_config.py").write_text(CONFIG)
    (course.root / "lateness.py").write_text(PLUGIN)
    nbformat.write(plain_source(), course.source / "ps1" / "numbers.ipynb")
    for name, text in {"mine.txt": "7", "ours.txt": "0"}.items():
        (course.source / "ps1" / name).write_text(text)
    complete(course, ["ps1"])
    with Gradebook(course.db_url) as book:
        book.update_or_create_assignment("ps1", duedate="2026-01-10 12:00:00 UTC")
    for student, answers, when in (("late", SOLVED, 13), ("early", READS, 11), ("ghost", SOLVED, 11)):
        path = hand_in(course, student, answered(blank(course), answers))
        (path.parent / "timestamp.txt").write_text(f"2026-01-10 {when}:00:00 UTC")
        (path.parent / "mine.txt").write_text("2")
        (path.parent / "ours.txt").write_text("9")
    shutil.copytree(course.root, stock.root)
    running = start("nbgrader", "autograde", "ps1", cwd=stock.root)
    done = run("autograder", "grade", "ours", "--assignment", "ps1", "--json", cwd=folder)
    return SimpleNamespace(course=course, stock=stock, done=done, finished=ended(running))


def penalties(course):
    with Gradebook(course.db_url) as book:
        return {one.student.id: one.notebooks[0].late_submission_penalty for one in book.assignment_submissions("ps1")}


def test_every_option_gives_stocks_marks_and_penalties(configured):
    assert configured.done.code == 0, configured.done.err
    assert configured.finished.code == 0, configured.finished.err[-2000:]
    ours, stock = marks(configured.course), marks(configured.stock)
    assert ours == stock
    assert {student for student, _ in ours} == {"late", "early"}  # student_id_exclude
    assert ours["early", "double-tests"][0] == 2                  # exclude_overwriting, and the other file is ours
    assert ours["early", "mean-tests"][0] == 0                    # timeout
    assert penalties(configured.course) == penalties(configured.stock) == {"late": 4.5, "early": None}


def test_renamed_folders_and_the_gradebook_are_where_stock_has_them(configured):
    for course in (configured.course, configured.stock):
        here = {path.name for path in course.root.iterdir()}
        assert here - {"__pycache__"} == {"inner", "nbgrader_config.py", "lateness.py"}
        assert {"masters", "out", "in", "graded", "marks.db"} <= {path.name for path in course.base.iterdir()}
        assert (course.base / "graded" / "late" / "ps1" / "numbers.ipynb").stat().st_mode & 0o777 == 0o664


def test_a_late_penalty_survives_a_regrade(configured):
    grade(configured.course, student="late")
    assert penalties(configured.course)["late"] == 4.5


# ---- the command line -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A course with two notebooks in ps1 and one in ps2, graded once; every answer is missing."""
    made = Course(tmp_path_factory.mktemp("template") / "course")
    for assignment, notebooks in {"ps1": {"one": plain_source(), "two": TWO}, "ps2": {"two": TWO}}.items():
        for name, nb in notebooks.items():
            path = made.path(made.source, ".", assignment) / f"{name}.ipynb"
            path.parent.mkdir(parents=True, exist_ok=True)
            nbformat.write(nb, path)
    (made.root / "nbgrader_config.py").write_text("c = get_config()\n")
    complete(made, ["ps1", "ps2"])
    for student in ("ann", "ada", "[b]"):
        for assignment, name in (("ps1", "one"), ("ps1", "two"), ("ps2", "two")):
            path = hand_in(made, student, blank(made, name, assignment), file=f"{name}.ipynb", assignment=assignment)
            (path.parent / "timestamp.txt").write_text("2026-01-10 12:00:00 UTC")
    grade(made, jobs=2)
    return made


def answers(course, student, name, texts, assignment="ps1"):
    hand_in(course, student, answered(blank(course, name, assignment), texts), file=f"{name}.ipynb",
            assignment=assignment)


@pytest.mark.parametrize(("names", "wanted"), [
    ({"chapter": "ps2"}, {("ann", "ps2"), ("ada", "ps2"), ("[b]", "ps2")}),
    ({"student": "a*", "chapter": "ps2"}, {("ann", "ps2"), ("ada", "ps2")}),
    ({"student": "[b]", "chapter": "ps?"}, {("[b]", "ps1"), ("[b]", "ps2")}),
])
def test_names_choose_as_nbgraders_patterns_do(course, names, wanted):
    assert {(handin.student, handin.chapter) for handin in find_handins(course, **names)} == wanted


def to_update(course):
    return {(handin.student, handin.chapter) for handin in find_handins(course)
            if not is_up_to_date(course, handin)}


def test_update_passes_over_what_has_not_changed_and_a_named_notebook_leaves_the_other_as_it_was(course, tmp_path):
    course = Course(shutil.copytree(course.root, tmp_path / "course"))
    assert to_update(course) == set()
    with Gradebook(course.db_url) as book:
        mark = book.find_grade("triple-tests", "two", "ps1", "ann")
        mark.manual_score, mark.needs_manual_grade = 5, False
        book.db.commit()
    before = (course.path(course.autograded, "ann", "ps1") / "two.ipynb").read_bytes()
    answers(course, "ann", "one", SOLVED)
    answers(course, "ann", "two", TRIPLE)
    shutil.rmtree(course.path(course.autograded, "ada", "ps2"))
    (course.path(course.submitted, "[b]", "ps2") / "timestamp.txt").write_text("2026-01-11 12:00:00 UTC")
    assert to_update(course) == {("ann", "ps1"), ("ada", "ps2"), ("[b]", "ps2")}
    words = ["--update", "--student", "ann", "--notebook", "o*", "--json"]
    done = CliRunner().invoke(main, ["grade", str(course.root), *words])
    assert done.exit_code == 0 and {record["exercise"] for record in json.loads(done.stdout)} == {
        "double", "mean", "partial", "why"}
    found = marks(course)
    assert found["ann", "double-tests"][0] == 2 and found["ann", "triple-tests"] == (0, 5, False)
    assert (course.path(course.autograded, "ann", "ps1") / "two.ipynb").read_bytes() == before


def test_what_stock_would_grade_again_update_does_too(course, tmp_path):
    stock = Course(shutil.copytree(course.root, tmp_path / "stock"))
    (stock.path(stock.submitted, "ada", "ps2") / "timestamp.txt").write_text("2026-01-11 12:00:00 UTC")
    assert to_update(stock) == {("ada", "ps2")}
    done = run("nbgrader", "autograde", "ps2", cwd=stock.root)
    again = [line for line in done.err.splitlines() if "Updating existing assignment" in line]
    assert done.code == 0 and len(again) == 1 and "/ada/" in again[0]


@pytest.mark.parametrize(("words", "said"), [
    (["--notebook", "three"], "no notebook 'three'; there are: one, two"),
    (["--assignment", "x*"], "no assignment 'x*'; there are: ps1, ps2"),
    (["--update", "--force"], "--update and --force exclude each other"),
    (["--scheduler", "tcp://x:1", "--cluster", "local"], "--scheduler and --cluster exclude each other"),
])
def test_what_can_not_be_meant_is_said(course, words, said):
    done = CliRunner().invoke(main, ["grade", str(course.root), *words])
    assert done.exit_code == 1 and said in done.stderr


# ---- reading the configuration --------------------------------------------------------------------------------------


def made(folder, text="", name="nbgrader_config.py"):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    return Course(folder)


@pytest.mark.parametrize(("line", "cell", "start"), [
    ("", 30, 120), ("c.NotebookClient.timeout = 8", 8, 120), ("c.ExecutePreprocessor.timeout = 7", 7, 120),
    ("c.ExecutePreprocessor.timeout = 7; c.Execute.timeout = 9", 9, 120), ("c.Execute.timeout = None", 86400, 120),
    ("c.Execute.timeout = -1", 86400, 120), ("c.ExecutePreprocessor.startup_timeout = 300", 30, 300),
])
def test_time_limits_are_nbgraders(tmp_path, line, cell, start):
    limits = limits_of(made(tmp_path / "c", f"c = get_config()\n{line}\n"))
    assert (limits.cell, limits.start) == (cell, start)


def test_users_configuration_counts_below_the_courses_own_and_names_no_root(tmp_path, monkeypatch):
    made(tmp_path / "user", "c = get_config()\nc.CourseDirectory.root = '/elsewhere'\nc.Execute.timeout = 5\n"
         "c.CourseDirectory.db_url = 'sqlite:////somewhere/marks.db'")
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path / "user"))
    course = made(tmp_path / "c", json.dumps({"Execute": {"timeout": 6}}), "nbgrader_config.json")
    assert limits_of(course).cell == 6
    assert course.base == tmp_path / "c" and str(course.db) == "/somewhere/marks.db"


def test_a_database_that_is_a_server_is_left_to_sqlalchemy(tmp_path):
    course = made(tmp_path / "c", "c = get_config()\nc.CourseDirectory.db_url = 'postgresql://db/marks'")
    assert course.db_url == "postgresql://db/marks"
    with pytest.raises(CourseError, match="is no file"):
        assert course.db


def test_options_that_are_not_followed_are_told(tmp_path):
    course = made(tmp_path / "c", "c = get_config()\nc.BaseConverter.pre_convert_hook = 'hooks.before'\n"
                  "c.Execute.extra_arguments = ['-x']\nc.CourseDirectory.course_id = 'x'")
    told = [line.rpartition("/")[2] for line in options.unfollowed(course)]
    assert told == ["nbgrader_config.py: BaseConverter.pre_convert_hook is not followed here",
                    "nbgrader_config.py: Execute.extra_arguments is not followed here"]
