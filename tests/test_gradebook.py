"""A submission is saved whole or not at all, and what people wrote into the gradebook stays."""

import io
import shutil
import sys
from contextlib import contextmanager

import pytest
from classroom import SOLVED, answered, by_hand, hand_in, make_course, marks, place_of, released, rows, text
from nbgrader.api import Gradebook
from rich.console import Console

from autograder.course import Course
from autograder.errors import CourseError
from autograder.feedback import feedback
from autograder.grade import grade
from autograder.gradebook import Book, timestamp_of
from autograder.progress import Watch, change_table
from autograder.records import stored_records
from autograder.report import class_as_json, report


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    return make_course(tmp_path_factory.mktemp("template") / "course")


@pytest.fixture
def course(template, tmp_path):
    shutil.copytree(template.root, tmp_path / "course")
    return Course(tmp_path / "course")


def text_of(*parts):
    """Tables and lines as they are printed."""
    screen = Console(width=200, file=io.StringIO())
    for part in parts:
        screen.print(part)
    return screen.file.getvalue()


def comment(course, student, cell, text=None):
    with Gradebook(course.db_url) as book:
        row = book.find_comment(cell, "numbers", "ps1", student)
        if text is not None:
            row.manual_comment = text
            book.db.commit()
        return row.comment


def test_answers_not_given_have_nbgraders_comment(course):
    hand_in(course, "ann", answered(released(course), {"double": SOLVED["double"]}))
    grade(course)
    assert comment(course, "ann", "mean") == comment(course, "ann", "why") == "No response."
    assert comment(course, "ann", "double") is None


def test_manual_scores_and_comments_survive_a_regrade(course):
    hand_in(course, "ann", answered(released(course), SOLVED))
    grade(course)
    by_hand(course, "ann", "why", manual_score=4.5, needs_manual_grade=False)
    by_hand(course, "ann", "double-tests", manual_score=1, extra_credit=0.5)
    comment(course, "ann", "why", "Nicely put.")
    hand_in(course, "ann", answered(released(course), {**SOLVED, "double": "def double(x): return 0"}))
    records = {record.exercise: record for record in grade(course)}
    assert marks(course)["ann", "why"] == (None, 4.5, False)
    assert marks(course)["ann", "double-tests"] == (0, 1, True)
    assert comment(course, "ann", "why") == "Nicely put."
    assert records["why"].points == 4.5 and records["why"].verdict == "manual"
    assert records["double"].points == 1.5 and records["double"].verdict == "failed"


def test_a_mark_given_by_hand_stands_until_what_it_was_given_for_changes(course):
    """nbgrader asks for a second look at all of them, whenever it grades; and nothing but its formgrader says so."""
    hand_in(course, "ann", answered(released(course), SOLVED))
    grade(course)
    by_hand(course, "ann", "why", manual_score=4.5, needs_manual_grade=False)
    by_hand(course, "ann", "double-tests", manual_score=1, needs_manual_grade=False)
    again = [record.exercise for record in grade(course) if record.again]
    assert again == [] and marks(course)["ann", "why"] == (None, 4.5, False)
    assert marks(course)["ann", "double-tests"] == (2, 1, False)

    hand_in(course, "ann", answered(released(course), {**SOLVED, "why": "I thought again."}))
    with Watch(dry_run=True) as watch:
        grade(course, dry_run=True, watch=watch)
    assert "to be looked at again" in text_of(change_table(watch.outcomes)) and marks(course)["ann", "why"][2] is False
    with Watch() as watch:
        records = grade(course, watch=watch)
    assert {record.exercise for record in records if record.again} == {"double", "why"}
    assert marks(course)["ann", "why"] == (None, 4.5, True) and marks(course)["ann", "double-tests"] == (2, 1, True)
    told = "given by hand, waits for a second look"
    assert f"changed   ann ps1: double 1, {told}, why 4.5, {told}" in watch.summary()
    assert {record.exercise for record in stored_records(course) if record.again} == {"double", "why"}
    assert "? 4.5" in text_of(*report(course, learners=True))
    assert '"waiting": 1' in class_as_json(stored_records(course))
    (page,) = feedback(course)
    assert page.read_text().count("will look at this one, too") == 2

    by_hand(course, "ann", "why", manual_score=5, needs_manual_grade=False)
    assert [record.exercise for record in grade(course) if record.again] == ["double"]

    more = answered(released(course), {**SOLVED, "why": "I thought again."})
    more.cells.insert(place_of(more, "why") + 1, text("And once more.", "mine"))
    hand_in(course, "ann", more)
    assert [record.exercise for record in grade(course) if record.again] == ["double", "why"]


def test_gradebook_that_is_none_is_said_in_one_line(course):
    hand_in(course, "ann", answered(released(course), SOLVED))
    path = course.base / "gradebook.db"
    for harm in (path.read_bytes()[:5000], b"no database" * 1000):
        path.write_bytes(harm)
        with pytest.raises(CourseError, match="gradebook.db: the gradebook can't be used .*; put a copy of it"):
            grade(course)


def test_grading_again_changes_nothing(course):
    hand_in(course, "ann", answered(released(course), SOLVED))
    hand_in(course, "ben", released(course))
    first = grade(course)
    before = rows(course)
    assert grade(course) == first and rows(course) == before


def test_failure_in_mid_save_leaves_neither_score_nor_file(course, monkeypatch):
    hand_in(course, "ann", answered(released(course), {"double": SOLVED["double"]}))
    grade(course)
    before = rows(course)
    graded = course.path(course.autograded, "ann", "ps1") / "numbers.ipynb"
    text = graded.read_text()
    hand_in(course, "ann", answered(released(course), SOLVED))

    def broken(*_):
        raise OSError("disk full")

    monkeypatch.setattr(Book, "_save_penalty", broken)
    records = grade(course)
    assert {record.kind for record in records} == {"refused"} and "disk full" in records[0].message
    assert rows(course) == before and graded.read_text() == text


def test_failure_after_the_files_were_put_in_place_puts_the_old_ones_back(course, monkeypatch):
    hand_in(course, "ann", answered(released(course), {"double": SOLVED["double"]}))
    grade(course)
    before = rows(course)
    graded = course.path(course.autograded, "ann", "ps1") / "numbers.ipynb"
    text = graded.read_text()
    hand_in(course, "ann", answered(released(course), SOLVED))
    original = Book.transaction

    @contextmanager
    def failing(book):
        with original(book):
            yield
            raise OSError("power cut")

    monkeypatch.setattr(Book, "transaction", failing)
    grade(course)
    assert rows(course) == before and graded.read_text() == text
    assert sorted(path.name for path in graded.parent.parent.iterdir()) == ["ps1"]


def test_failed_first_grading_leaves_no_trace_of_the_learner(course, monkeypatch):
    hand_in(course, "ann", answered(released(course), SOLVED))
    monkeypatch.setattr(Book, "_save_cells", lambda *_: 1 / 0)
    grade(course)
    assert rows(course)["student"] == [] and not course.path(course.autograded, "ann", "ps1").exists()


@pytest.mark.parametrize(("config", "penalty"), [
    ("c.LateSubmissionPlugin.penalty_method = 'zero'", 9),
    ("", None),
    ("c.AssignLatePenalties.plugin_class = 'lateness.Halve'", 4.5),
    ("c.AssignLatePenalties.plugin_class = 'lateness.Greedy'", 9),
])
def test_late_penalty_is_the_plugins(course, config, penalty):
    (course.root / "nbgrader_config.py").write_text(f"c = get_config()\n{config}\n")
    plugin = "class {}(BasePlugin):\n    def late_submission_penalty(self, student, score, late):\n        return {}\n"
    plugins = plugin.format("Halve", "score / 2") + plugin.format("Greedy", "1000")
    (course.root / "lateness.py").write_text(f"from nbgrader.plugins import BasePlugin\n{plugins}")
    with Gradebook(course.db_url) as book:
        book.update_or_create_assignment("ps1", duedate="2026-01-10 12:00:00 UTC")
    path = hand_in(course, "late", answered(released(course), SOLVED))
    (path.parent / "timestamp.txt").write_text("2026-01-10 13:00:00 UTC")
    path = hand_in(course, "early", answered(released(course), SOLVED))
    (path.parent / "timestamp.txt").write_text("2026-01-10 11:00:00 UTC")
    grade(Course(course.root))
    with Gradebook(course.db_url) as book:
        found = {who: book.find_submission_notebook("numbers", "ps1", who).late_submission_penalty
                 for who in ("late", "early")}
        assert found == {"late": penalty, "early": None}
        assert book.find_submission("ps1", "late").total_seconds_late == 3600


def test_two_courses_of_one_process_have_each_its_own_plugin(course, tmp_path):
    other = Course(tmp_path / "other")
    shutil.copytree(course.root, other.root)
    found = []
    for place, part in ((course, 2), (other, 3)):
        (place.root / "nbgrader_config.py").write_text(
            "c = get_config()\nc.AssignLatePenalties.plugin_class = 'lateness.Late'\n")
        (place.root / "lateness.py").write_text(
            "from nbgrader.plugins import BasePlugin\n\n\nclass Late(BasePlugin):\n"
            f"    def late_submission_penalty(self, student, score, late):\n        return score / {part}\n")
        with Gradebook(place.db_url) as book:
            book.update_or_create_assignment("ps1", duedate="2026-01-10 12:00:00 UTC")
        path = hand_in(place, "late", answered(released(place), SOLVED))
        (path.parent / "timestamp.txt").write_text("2026-01-10 13:00:00 UTC")
        grade(Course(place.root))
        with Gradebook(place.db_url) as book:
            found.append(book.find_submission_notebook("numbers", "ps1", "late").late_submission_penalty)
    assert found == [4.5, 3] and "lateness" not in sys.modules


def test_timestamp_that_is_none_is_refused_with_the_reason(tmp_path):
    (tmp_path / "timestamp.txt").write_text("yesterday evening")
    with pytest.raises(CourseError, match="is no time"):
        timestamp_of(tmp_path)
    (tmp_path / "timestamp.txt").write_text("")
    assert timestamp_of(tmp_path) is None


def test_course_without_a_gradebook_says_what_to_do_and_makes_none(course):
    course.db.unlink()
    with pytest.raises(CourseError, match="nbgrader generate_assignment"):
        grade(course)
    assert not course.db.exists()


def test_gradebook_that_does_not_fit_the_released_notebook_is_said(course):
    path = course.path(course.release, ".", "ps1") / "numbers.ipynb"
    path.write_text(path.read_text().replace('"grade_id": "mean"', '"grade_id": "median"'))
    hand_in(course, "ann", released(course))
    with pytest.raises(CourseError, match="'mean' is not both here and in the gradebook"):
        grade(course)


def test_hidden_tests_come_from_the_gradebook_also_where_source_was_edited_since(course):
    path = course.path(course.source, ".", "ps1") / "numbers.ipynb"
    path.write_text(path.read_text().replace("double(3) == 6", "double(3) == 7"))
    hand_in(course, "ann", answered(released(course), SOLVED))
    grade(course)
    assert marks(course)["ann", "double-tests"][0] == 2
