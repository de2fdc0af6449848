"""A course that is graded again: what would change is shown, our own changes wait for approval, and no two runs mix."""

import hashlib
import json
import shutil
import subprocess
import sys
from types import SimpleNamespace

import inprocess
import nbformat
import pytest
from classroom import (
    SOLVED,
    answered,
    cell_of,
    ended,
    environment,
    hand_in,
    make_course,
    marks,
    plain_source,
    released,
    start,
)
from click.testing import CliRunner
from nbgrader.api import Gradebook

from autograder import newcourse
from autograder.cli import main
from autograder.course import Course, Project
from autograder.editions import keep, release_of
from autograder.errors import CourseError
from autograder.grade import grade
from autograder.gradebook import Book, register
from autograder.ledger import alone, last_entries, state
from autograder.progress import Watch
from autograder.report import report

OLD, NEW, LOST = "0123456789ab", "ba9876543210", "cccccccccccc"


def stamped(nb, release):
    nb.metadata["course"] = {"release": release}
    return nb


@pytest.fixture(scope="module", autouse=True)
def no_kernels():
    with pytest.MonkeyPatch.context() as patch:
        inprocess.install(patch.setattr)
        yield


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A course of a stamped release, in which ann and ben are graded: ann all right, ben blank."""
    course = make_course(tmp_path_factory.mktemp("template") / "course", numbers=stamped(plain_source(), OLD))
    hand_in(course, "ann", answered(released(course), SOLVED))
    hand_in(course, "ben", released(course))
    grade(course, sandbox="off")
    return course


@pytest.fixture
def course(template, tmp_path):
    return Course(shutil.copytree(template.root, tmp_path / "course"))


def changed_tests(course, release=OLD):
    """The exercise changes after submissions came in: double is tripled now, and counts 6."""
    path = course.path(course.source, ".", "ps1") / "numbers.ipynb"
    nb = stamped(nbformat.read(path, as_version=4), release)
    test = cell_of(nb, "double-tests")
    test.source = "assert double(2) == 6"
    test.metadata.nbgrader.points = 6
    nbformat.write(nb, path)
    register(course, "ps1")


def told(course, **words):
    """What grading says: records, watch."""
    with Watch("off", dry_run=words.get("dry_run", False)) as watch:
        records = grade(course, sandbox="off", watch=watch, **words)
    return SimpleNamespace(records=records, watch=watch)


def footprint(course):
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in course.root.rglob("*")
            if path.is_file() and path != state(course) / "lock"}


def scores(course, student):
    return {cell: mark[0] for (who, cell), mark in marks(course).items() if who == student}


# ---- dry run ------------------------------------------------------------------------------------------------------


def test_dry_run_shows_old_and_new_scores_and_writes_nothing(course):
    hand_in(course, "ben", answered(released(course), {"double": SOLVED["double"]}))
    hand_in(course, "cyd", answered(released(course), SOLVED))
    hand_in(course, "dan", b"{")
    before = footprint(course)
    found = told(course, dry_run=True)
    assert footprint(course) == before
    changes = {(c.student, c.exercise): (c.before, c.after, c.new) for o in found.watch.outcomes for c in o.changes}
    assert changes["ben", "double"] == (0, 2, False) and changes["cyd", "double"] == (None, 2, True)
    assert {who for who, _ in changes} == {"ben", "cyd"} and len(changes) == 1 + 4
    assert found.watch.summary()[0].startswith("4 handed in = 3 graded + 1 refused; a dry run: nothing was saved")
    assert "changed   ben ps1: double 0 -> 2" in found.watch.summary()
    grade(course, sandbox="off")
    assert scores(course, "ben")["double-tests"] == 2


def test_dry_run_of_the_command_prints_the_changes_and_exits_as_the_run_would(course):
    changed_tests(course)
    runner = CliRunner()
    said = runner.invoke(main, ["grade", str(course.root), "--dry-run", "--sandbox", "off"])
    assert said.exit_code == 4 and "what would change" in said.output and "exercise or the grader" in said.output
    said = runner.invoke(main, ["grade", str(course.root), "--dry-run", "--json", "--sandbox", "off"])
    (one,) = [change for change in json.loads(said.stdout) if change["student"] == "ann"]
    assert (one["exercise"], one["before"], one["after"], one["ours"]) == ("double", 2, 0, True)


def test_dry_run_in_which_nothing_changes_says_so_without_a_table(course):
    said = CliRunner().invoke(main, ["grade", str(course.root), "--dry-run", "--sandbox", "off"])
    assert said.stdout.startswith("no score would change\n") and "┃" not in said.stdout


NO_COURSE = pytest.mark.parametrize("command", [
    ["grade", "--sandbox", "off"], ["feedback"], ["report"], ["report", "--json"], ["audit", "--feedback"],
])


@NO_COURSE
def test_a_folder_that_is_no_course_is_named_and_left_as_it_is(command, tmp_path):
    said = CliRunner().invoke(main, [*command, str(tmp_path)])
    assert said.exit_code == 1 and f"{tmp_path}: no course" in said.output and "autograder init" in said.output
    assert not list(tmp_path.iterdir())


@NO_COURSE
def test_courses_below_a_folder_that_is_none_are_named_and_their_settings_not_run(command, tmp_path):
    for name in ("graded", "new", "other"):
        (tmp_path / name / "source" / "ps1").mkdir(parents=True)
        (tmp_path / name / "nbgrader_config.py").write_text("raise SystemExit")
    (tmp_path / "graded" / "gradebook.db").touch()
    (tmp_path / "new" / "source" / "ps1" / "ps1.ipynb").touch()
    (tmp_path / "notes.txt").touch()
    said = CliRunner().invoke(main, [*command, str(tmp_path)])
    assert said.exit_code == 1
    assert said.output.endswith(f"; below it there is: {tmp_path / 'graded'}, {tmp_path / 'new'}\n")


def test_notebooks_put_where_nothing_is_graded_are_named(course):
    (right,) = (course.submitted / "ann").rglob("*.ipynb")
    wrong = [course.submitted / path
             for path in ("flat.ipynb", "cyd/ps1.ipynb", "ps1/dan/ps1.ipynb", "eve/ps7/ps1.ipynb")]
    for path in (*wrong, course.submitted / "cyd/.ipynb_checkpoints/ps1.ipynb", right.parent / "more/again.ipynb"):
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(right, path)
    said = CliRunner().invoke(main, ["grade", str(course.root), "--sandbox", "off", "--json"])
    notes = [line for line in said.stderr.splitlines() if line.startswith("note: ")]
    assert notes == [f"note: {path}: not graded; put it into {course.submitted}/NAME/CHAPTER/, "
                     f"with a CHAPTER of {course.source}/" for path in sorted(wrong)]
    assert json.loads(said.stdout)


# ---- approval -----------------------------------------------------------------------------------------------------


def test_score_that_changes_by_our_doing_is_held_back_until_it_is_approved(course):
    changed_tests(course)
    graded = course.path(course.autograded, "ann", "ps1") / "numbers.ipynb"
    text = graded.read_bytes()
    found = told(course)
    assert found.watch.code == 4 and "held back ann ps1: double 2 -> 0" in found.watch.summary()
    assert found.watch.summary()[0].startswith("2 handed in = 1 graded + 0 refused + 1 held back")
    assert scores(course, "ann")["double-tests"] == 2 and graded.read_bytes() == text
    assert {r.points for r in found.records if (r.student, r.exercise) == ("ann", "double")} == {2}
    assert last_entries(course)["ps1", "ann"]["held"] is True
    assert told(course, yes=True).watch.code == 0
    assert scores(course, "ann")["double-tests"] == 0 and graded.read_bytes() != text
    assert told(course).watch.code == 0


def test_learner_who_hands_in_anew_needs_no_approval_but_where_the_tests_changed(course):
    hand_in(course, "ann", answered(released(course), {**SOLVED, "mean": "mean = 1"}))
    assert told(course).watch.code == 0 and scores(course, "ann")["mean-tests"] == 0
    changed_tests(course)
    hand_in(course, "ann", answered(released(course), SOLVED))
    found = told(course)
    assert found.watch.code == 4 and scores(course, "ann")["mean-tests"] == 0
    assert "held back ann ps1: double 2 -> 0, mean 0 -> 3" in found.watch.summary()


def test_points_and_comments_of_people_and_penalties_survive_an_approved_regrade(course):
    with Gradebook(course.db_url) as book:
        book.update_or_create_assignment("ps1", duedate="2026-01-10 12:00:00 UTC")
        book.find_grade("why", "numbers", "ps1", "ann").manual_score = 4.5
        book.find_comment("why", "numbers", "ps1", "ann").manual_comment = "Nicely put."
        book.db.commit()
    zero = "c = get_config()\nc.LateSubmissionPlugin.penalty_method = 'zero'\n"
    (course.root / "nbgrader_config.py").write_text(zero)
    course = Course(course.root)
    (course.path(course.submitted, "ann", "ps1") / "timestamp.txt").write_text("2026-01-11 12:00:00 UTC")
    for _ in range(2):
        grade(course, sandbox="off")
        with Gradebook(course.db_url) as book:
            nb = book.find_submission_notebook("numbers", "ps1", "ann")
            assert (nb.late_submission_penalty, nb.score) == (13.5, 13.5)
            assert book.find_comment("why", "numbers", "ps1", "ann").comment == "Nicely put."
    changed_tests(course)
    grade(course, sandbox="off", yes=True)
    with Gradebook(course.db_url) as book:
        assert book.find_submission_notebook("numbers", "ps1", "ann").late_submission_penalty == 11.5
        assert book.find_grade("why", "numbers", "ps1", "ann").manual_score == 4.5


# ---- older releases -----------------------------------------------------------------------------------------------


def test_submission_is_graded_against_the_release_that_it_came_from(course):
    old = released(course)
    with Book(course) as book:
        keep(course, "ps1", book.editions("ps1"))
    changed_tests(course, NEW)
    tripled = {**SOLVED, "double": "def double(x): return 3 * x"}
    assert release_of(old) == OLD and release_of(released(course)) == NEW
    hand_in(course, "new", answered(released(course), tripled))
    hand_in(course, "lost", stamped(answered(released(course), tripled), LOST))
    hand_in(course, "odd", stamped(answered(released(course), tripled), ["../../x"]))
    found = told(course)
    points = {r.student: (r.points, r.max_points) for r in found.records if r.exercise == "double"}
    assert points == {"ann": (2, 2), "ben": (0, 2), "new": (6, 6), "lost": (6, 6), "odd": (6, 6)}
    assert scores(course, "ann")["double-tests"] == 2 and found.watch.code == 0
    kinds = {who: {repair["kind"] for repair in entry["repairs"]} for (_, who), entry in last_entries(course).items()}
    assert kinds == {"ann": {"older release"}, "ben": {"older release"}, "new": set(), "lost": {"release"},
                     "odd": {"release"}}
    (said,) = [part for part in report(course) if isinstance(part, str) and part.startswith("older")]
    assert said == f"older    ps1: 2 graded against its own release {OLD}; the present one is {NEW}: ann, ben"


def test_present_release_is_for_all_where_that_is_asked_for_and_approved(course):
    with Book(course) as book:
        keep(course, "ps1", book.editions("ps1"))
    changed_tests(course, NEW)
    assert told(course, present=True).watch.code == 4 and scores(course, "ann")["double-tests"] == 2
    assert told(course, present=True, yes=True).watch.code == 0 and scores(course, "ann")["double-tests"] == 0


def started(tmp_path, monkeypatch):
    """A project of one chapter, a list whose one member is its source, and the course that was made of it."""
    (tmp_path / "project" / "solutions").mkdir(parents=True)
    (tmp_path / "project" / "solutions" / "03_tiny.md").write_text("")
    project, source = Project(tmp_path / "project"), [stamped(plain_source(), OLD)]
    monkeypatch.setattr(newcourse, "source_notebook", lambda *_: source[0])
    course = newcourse.init(project, tmp_path / "course")
    return project, source, course


def test_init_keeps_the_release_that_it_replaces(tmp_path, monkeypatch):
    project, source, course = started(tmp_path, monkeypatch)
    source[0] = stamped(plain_source(), NEW)
    cell_of(source[0], "mean-tests").source = "assert mean([2]) == 2"
    newcourse.init(project, course.root)
    (kept,) = (state(course) / "editions").rglob("03_tiny/*/03_tiny.ipynb")
    assert kept.parent.name == OLD
    nb = nbformat.read(kept, as_version=4)
    assert "secretly three" in cell_of(nb, "double-tests").source and "2 * x" not in cell_of(nb, "double").source
    assert "2 * x" in (kept.parent / "source" / "03_tiny.ipynb").read_text()
    assert release_of(released(course, "03_tiny", "03_tiny")) == NEW


def test_init_puts_the_source_back_where_nbgrader_refuses_the_new_one(tmp_path, monkeypatch):
    project, source, course = started(tmp_path, monkeypatch)
    path = course.path(course.source, ".", "03_tiny") / "03_tiny.ipynb"
    before = path.read_bytes()
    source[0] = stamped(plain_source(), NEW)
    cell_of(source[0], "mean-tests").metadata.nbgrader.grade_id = "double-tests"
    for _ in range(2):
        with pytest.raises(CourseError, match="nbgrader cannot release it"):
            newcourse.init(project, course.root)
        assert path.read_bytes() == before


# ---- one at a time ------------------------------------------------------------------------------------------------

HOLDER = """
import sys
from pathlib import Path
from autograder.course import Course
from autograder.ledger import alone
with alone(Course(Path(sys.argv[1]))):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(course):
    """Another process that is at work on the course."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(course.root)], env=environment(), text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_second_run_on_a_course_refuses_with_one_line_and_the_lock_dies_with_its_holder(course, holder):
    before = footprint(course)
    said = CliRunner().invoke(main, ["grade", str(course.root), "--sandbox", "off"])
    assert said.exit_code == 1 and said.stdout == ""
    line = said.stderr.strip().splitlines()[-1]
    assert line.startswith(f"error: {course.root}: process {holder.pid}, since 20") and line.endswith("or say --wait")
    with pytest.raises(CourseError, match="is at work on this course"):
        newcourse.init(Project.find(), course.root)
    assert footprint(course) == before
    holder.kill()
    holder.wait()
    with alone(course):
        pass


def test_run_that_waits_goes_on_when_the_other_ends(course, holder):
    waiting = start("autograder", "grade", str(course.root), "--wait", "--sandbox", "off", "--student", "ann",
                    cwd=course.root)
    assert "waiting for its end" in iter_until(waiting.stderr, "waiting")
    holder.stdin.close()
    done = ended(waiting)
    assert done.code == 0 and "1 handed in = 1 graded + 0 refused" in done.out


def iter_until(stream, word):
    """The first line of a stream that has the word."""
    return next(line for line in stream if word in line)


# ---- exit codes ---------------------------------------------------------------------------------------------------


def test_exit_codes_tell_graded_refused_and_nothing_apart(course):
    def code(*words):
        return CliRunner().invoke(main, ["grade", str(course.root), "--sandbox", "off", *words]).exit_code

    assert code("--student", "ann") == 0 and code("--no-such-option") == 2 and code("--student", "zoe") == 1
    hand_in(course, "dan", b"{")
    assert code("--student", "dan") == 1 and code() == 3
    said = CliRunner().invoke(main, ["grade", "--help"]).output
    assert all(word in said for word in ("Exit code: 0", "3  some submissions were refused", "4  some were held back"))
