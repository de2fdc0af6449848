"""The made-up class is the same each time, lies only where it is told to, and is large enough to show everything."""

import hashlib
import json
import stat

import pytest
from classroom import run, short_project

from autograder.cells import Refused, grade_id, parse
from autograder.errors import CourseError
from autograder.ledger import state
from autograder.newcourse import init
from autograder.sample import LEARNERS, sample

CHAPTER = "03_scaling"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sample")
    project = short_project(folder / "project")
    return project, sample(project, folder / "course")


def digests(course):
    folders = (course.source, course.release, course.submitted)
    files = (path for folder in folders for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(course.root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def handed_in(course, student):
    (path,) = course.path(course.submitted, student, CHAPTER).glob("*.ipynb")
    return path


def test_class_is_the_same_each_time_and_the_second_time_is_quick(made):
    project, course = made
    before = digests(course)
    told = []
    sample(project, course.root, say=told.append)
    assert digests(course) == before and not any("gradebook" in line for line in told)


def test_class_has_every_learner_and_names_nobody(made):
    _, course = made
    assert course.students(CHAPTER) == sorted(LEARNERS) and len(LEARNERS) >= 12
    assert all(name.startswith("learner-") for name in LEARNERS)


def test_learners_hand_in_what_their_names_say(made):
    _, course = made
    with pytest.raises(Refused):
        parse(handed_in(course, "learner-cut-off").read_bytes())
    assert handed_in(course, "learner-renamed").name != f"{CHAPTER}.ipynb"
    stripped = parse(handed_in(course, "learner-stripped").read_bytes())
    assert not any(grade_id(cell) for cell in stripped.cells)
    names = [grade_id(cell) for cell in parse(handed_in(course, "learner-copied-tests").read_bytes()).cells]
    assert len(names) - names.count("") > len(set(names) - {""})
    assert "while True" in handed_in(course, "learner-endless-loop").read_text()
    mistakes = {handed_in(course, name).read_bytes() for name in LEARNERS if "mistake" in name}
    assert len(mistakes) == 6


def test_no_solution_marker_or_hidden_test_is_handed_in(made):
    _, course = made
    for student in LEARNERS:
        text = handed_in(course, student).read_text()
        assert "### BEGIN" not in text and "autograder.checks" not in text


def test_sample_is_put_into_no_course_of_people(made, tmp_path):
    project, _ = made
    with pytest.raises(CourseError, match="people's grades"):
        sample(project, project.root / "course")
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(CourseError, match="not empty"):
        sample(project, tmp_path)
    real = init(project, tmp_path / "real")
    with pytest.raises(CourseError, match="no sample course"):
        sample(project, real.root)


def test_init_makes_a_course_that_nbgrader_knows_and_leaves_settings_alone(made, tmp_path):
    project, _ = made
    course = init(project, tmp_path / "course")
    config = course.root / "nbgrader_config.py"
    assert "# " in config.read_text() and course.config.CourseDirectory.course_id == "transformer"
    assert stat.S_IMODE((state(course) / "secret").stat().st_mode) == 0o600
    listed = run("nbgrader", "db", "assignment", "list", cwd=course.root)
    assert CHAPTER in listed.out + listed.err
    config.write_text("c = get_config()\n# mine\n")
    secret = (state(course) / "secret").read_text()
    source = course.path(course.source, ".", CHAPTER) / f"{CHAPTER}.ipynb"
    source.write_text(json.dumps({}))
    init(project, course.root)
    assert "# mine" in config.read_text() and (state(course) / "secret").read_text() == secret
    assert "BEGIN SOLUTION" in source.read_text()


def test_init_without_chapters_says_what_to_do(tmp_path):
    from autograder.course import Project

    (tmp_path / "solutions").mkdir()
    with pytest.raises(CourseError, match="no chapters"):
        init(Project(tmp_path), tmp_path / "course")
