"""Scores equal those of stock nbgrader, but for the listed set where it is wrong; and nbgrader's commands work."""

import copy
import csv
import json
import shutil
from types import SimpleNamespace

import nbformat
import pytest
from classroom import (
    SOLVED,
    answered,
    cell_of,
    code,
    ended,
    hand_in,
    make_course,
    marks,
    place_of,
    released,
    run,
    short_project,
    start,
)

from autograder.audit import audit_feedback
from autograder.course import Course
from autograder.feedback import feedback
from autograder.grade import grade
from autograder.sample import LEARNERS, MISTAKEN, sample


def solved(nb, **more):
    return answered(nb, {**SOLVED, **more})


def inserted(nb, before, source):
    nb = copy.deepcopy(nb)
    nb.cells.insert(place_of(nb, before), code(source, "mine"))
    return nb


def retyped(nb, name, kind):
    nb = copy.deepcopy(nb)
    cell = cell_of(nb, name)
    cell.cell_type = kind
    for key in ("outputs", "execution_count"):
        cell.pop(key, None)
    return nb


def raised_points(nb):
    nb = copy.deepcopy(nb)
    for name in ("double-tests", "mean-tests"):
        cell_of(nb, name).metadata.nbgrader.points = 50
        cell_of(nb, name).source = "assert True"
    return nb


def without(nb, *names):
    nb = copy.deepcopy(nb)
    nb.cells = [cell for cell in nb.cells if cell.id not in names]
    return nb


def copied(nb, name):
    nb = copy.deepcopy(nb)
    again = copy.deepcopy(cell_of(nb, name))
    again.id = "again"
    nb.cells.insert(place_of(nb, name) + 1, again)
    return nb


def stripped(nb):
    nb = copy.deepcopy(nb)
    for number, cell in enumerate(nb.cells):
        cell.metadata, cell.id = nbformat.from_dict({}), f"x{number}"
    return nb


# What learners hand in to a course of plain asserts, where both graders must agree.
SAME = {
    "right": solved,
    "blank": lambda nb: nb,
    "wrong": lambda nb: solved(nb, double="def double(x):\n    return 5", partial="share = 1"),
    "wrong-in-secret": lambda nb: solved(nb, double="def double(x):\n    return x ** 2 if x < 3 else 0"),
    "half-a-mark": lambda nb: solved(nb, partial="share = 2.5"),
    "no-number": lambda nb: solved(nb, partial="share = 'all of it'"),
    "raises": lambda nb: solved(nb, mean="def mean(xs):\n    raise KeyError('x')"),
    "syntax-error": lambda nb: solved(nb, mean="def mean(xs:\n    return 2"),
    "endless-loop": lambda nb: solved(nb, mean="def mean(xs):\n    while True:\n        pass"),
    "prints": lambda nb: solved(nb, double="def double(x):\n    print('doubling', x)\n    return 2 * x"),
    "helper": lambda nb: inserted(solved(nb, double="def double(x):\n    return helper(x)"), "double",
                                  "def helper(x):\n    return 2 * x"),
    "broken-helper": lambda nb: inserted(solved(nb), "double", "1 / 0"),
    "import": lambda nb: solved(nb, imports="import math\nimport statistics", mean="mean = statistics.mean"),
    "edited-tests": raised_points,
    "retyped": lambda nb: retyped(solved(nb), "double", "markdown"),
    "no-demo": lambda nb: without(solved(nb), "look", "t-mean"),
    "half-written": lambda nb: answered(nb, {"why": "I think so.", "double": SOLVED["double"]}),
}

FORGED = """def double(x):
    ip = get_ipython().display_pub
    content = {"data": {"text/plain": "2"}, "metadata": {}, "execution_count": 1}
    ip.session.send(ip.pub_socket, "execute_result", content, parent=ip.parent_header, ident=b"execute_result")
    return 0"""
LOUD = "import sys\ndef double(x):\n    print('hm', file=sys.stderr)\n    return 2 * x"
WARNS = "import warnings\ndef mean(xs):\n    warnings.warn('old')\n    return sum(xs) / len(xs)"
DEADLY = "def mean(xs):\n    import os\n    os._exit(1)"

# Where stock is wrong, as the docstring of autograder.marking lists it: what is handed in, then what stock and we give
# for the tests of double, mean and partial. None: never graded, and left to a person.
NONE = (None, None, None)
TESTS = ("double-tests", "mean-tests", "partial-tests")
DIFFERENT = {
    "output on stderr": (lambda nb: solved(nb, double=LOUD), (0, 3, 4), (2, 3, 4)),
    "a warning": (lambda nb: solved(nb, mean=WARNS), (2, 0, 4), (2, 3, 4)),
    "a displayed result": (lambda nb: solved(nb, double=FORGED), (2, 3, 4), (0, 3, 4)),
    "a skip tag": (lambda nb: tagged(nb, "double-tests", "skip-execution"), (2, 0, 0), (0, 0, 0)),
    "metadata gone": (lambda nb: stripped(solved(nb)), NONE, (2, 3, 4)),
    "a test deleted": (lambda nb: without(solved(nb), "mean-tests"), (2, None, 4), (2, 3, 4)),
    "an answer moved": (lambda nb: at_the_end(solved(nb), "double"), (0, 3, 4), (2, 3, 4)),
    "a mark too high": (lambda nb: solved(nb, partial="share = 400"), (2, 3, None), (2, 3, 0)),
    "a negative mark": (lambda nb: solved(nb, partial="share = -1"), (2, 3, 4), (2, 3, 0)),
    "a mark of nan": (lambda nb: solved(nb, partial="share = float('nan')"), (2, 3, 4), (2, 3, 0)),
    "a dead kernel": (lambda nb: solved(nb, mean=DEADLY), NONE, (2, 0, 4)),
    "another file name": (solved, NONE, (2, 3, 4)),
}
# These stop stock at once, with the whole class ungraded.
STOPPING = {
    "a test copied": (lambda nb: copied(solved(nb), "double-tests"), (2, 3, 4)),
    "an answer copied": (lambda nb: copied(solved(nb), "double"), (2, 3, 4)),
}


def tagged(nb, name, tag):
    nb = copy.deepcopy(nb)
    cell_of(nb, name).metadata["tags"] = [tag]
    return nb


def at_the_end(nb, name):
    nb = copy.deepcopy(nb)
    nb.cells.append(nb.cells.pop(place_of(nb, name)))
    return nb


def both(folder, class_):
    """Our marks and stock's of the same class, and the stock course; the two run at the same time."""
    ours = make_course(folder / "ours")
    nb = released(ours)
    for name, make in class_.items():
        file = "numbers (1).ipynb" if name == "another file name" else "numbers.ipynb"
        hand_in(ours, name.replace(" ", "-"), make(nb), file=file)
    stock = Course(folder / "stock")
    shutil.copytree(ours.root, stock.root)
    for name in STOPPING:
        shutil.rmtree(stock.submitted / name.replace(" ", "-"), ignore_errors=True)
    running = start("nbgrader", "autograde", "ps1", cwd=stock.root)
    grade(ours)
    return marks(ours), stock, ended(running)


@pytest.fixture(scope="module")
def same(tmp_path_factory):
    return both(tmp_path_factory.mktemp("same"), SAME)


@pytest.fixture(scope="module")
def different(tmp_path_factory):
    handed_in = {name: made for name, (made, *_) in {**DIFFERENT, **STOPPING}.items()}
    return both(tmp_path_factory.mktemp("different"), handed_in)


@pytest.mark.parametrize("student", SAME)
def test_plain_asserts_score_as_in_stock(same, student):
    ours, stock, finished = same
    assert finished.code == 0, finished.err[-2000:]
    mine = {cell: mark for (who, cell), mark in ours.items() if who == student}
    theirs = {cell: mark for (who, cell), mark in marks(stock).items() if who == student}
    assert mine == theirs and len(mine) == 4


def test_the_class_that_must_agree_has_every_sort_of_mark(same):
    ours, _, _ = same
    assert {mark for (_, cell), (mark, _, _) in ours.items() if cell == "partial-tests"} == {0, 1, 2.5, 4}


@pytest.mark.parametrize("case", DIFFERENT)
def test_scores_differ_from_stock_where_stock_is_wrong(different, case):
    ours, stock, _ = different
    who, theirs = case.replace(" ", "-"), marks(stock)
    assert tuple(theirs.get((who, cell), NONE)[0] for cell in TESTS) == DIFFERENT[case][1]
    assert tuple(ours[who, cell][0] for cell in TESTS) == DIFFERENT[case][2]


@pytest.mark.parametrize("case", ["a dead kernel", "a mark too high", "a negative mark", "a mark of nan"])
def test_what_may_not_be_the_learners_fault_is_left_for_a_person_to_look_at(different, case):
    ours, _, _ = different
    cell = "mean-tests" if case == "a dead kernel" else "partial-tests"
    assert ours[case.replace(" ", "-"), cell] == (0, None, True)


@pytest.mark.parametrize("case", STOPPING)
def test_copied_cells_stop_stock_with_the_whole_class_and_not_us(different, case):
    ours, stock, _ = different
    make, wanted = STOPPING[case]
    who = case.replace(" ", "-")
    assert tuple(ours[who, cell][0] for cell in TESTS) == wanted
    hand_in(stock, who, make(released(stock)))
    stopped = run("nbgrader", "autograde", "ps1", f"--student={who}", cwd=stock.root)
    assert stopped.code != 0 and "nbgrader update" in stopped.err
    assert not any(student == who and mark[0] is not None for (student, _), mark in marks(stock).items())


# ---- a chapter of the project, with its checks --------------------------------------------------------------------

CHAPTER = "03_scaling"
CLASS = len(LEARNERS) - MISTAKEN + 2
# Learners of the sample class whose scores must agree; at others stock stops, or the list above speaks.
AGREED = [f"learner-{name}" for name in ("perfect", "blank", "mistake-1", "mistake-2", "edited-tests")]


@pytest.fixture(scope="module")
def classroom(tmp_path_factory):
    """The sample class of a chapter without its demos, graded by us, and some of it by stock at the same time."""
    folder = tmp_path_factory.mktemp("class")
    project = short_project(folder / "project")
    course = sample(project, folder / "course")
    for which in range(2, MISTAKEN):  # two of the mistaken ones will do here
        shutil.rmtree(course.submitted / f"learner-mistake-{which + 1}")
    stock = Course(folder / "stock")
    shutil.copytree(course.root, stock.root, ignore=shutil.ignore_patterns(".autograder"))
    for path in stock.submitted.iterdir():
        if path.name not in AGREED:
            shutil.rmtree(path)
    running = start("nbgrader", "autograde", CHAPTER, cwd=stock.root)
    records = grade(course)
    return SimpleNamespace(project=project, course=course, records=records, stock=stock, finished=ended(running))


def test_solved_notebook_without_its_demos_has_full_automatic_marks(classroom):
    perfect = [record for record in classroom.records if record.student == "learner-perfect"]
    assert {record.verdict for record in perfect} == {"passed", "manual"}
    assert all(record.points == record.max_points for record in perfect if record.verdict == "passed")


def test_blank_submission_scores_zero(classroom):
    blank = [record for record in classroom.records if record.student == "learner-blank"]
    assert {(record.points, record.verdict) for record in blank} == {(0.0, "blank")}


def test_checks_score_as_in_stock(classroom):
    assert classroom.finished.code == 0, classroom.finished.err[-2000:]
    ours, stock = (
        {key: mark for key, mark in marks(course, CHAPTER).items() if key[0] in AGREED}
        for course in (classroom.course, classroom.stock)
    )
    assert ours == stock and len(ours) == 6 * len(AGREED)


def test_every_way_of_handing_in_scores_what_it_deserves(classroom):
    """Of the 13 automatic points; for whom the catalogue decides, some but not all."""
    points = {}
    for record in classroom.records:
        points[record.student] = points.get(record.student, 0) + (record.points or 0)
    full = {"perfect", "own-way", "copied-tests", "stripped", "warns", "helper", "renamed"}
    none = {"blank", "edited-tests", "cut-off"}
    whole = sum(r.max_points for r in classroom.records if r.student == "learner-perfect" and r.verdict != "manual")
    assert {name for name, given in points.items() if given == whole} == {f"learner-{name}" for name in full}
    assert {name for name, given in points.items() if given == 0} == {f"learner-{name}" for name in none}
    assert len(points) == CLASS >= 12


def test_mistakes_are_named_and_what_could_not_be_judged_says_why(classroom):
    found = {(r.student, r.verdict, r.kind) for r in classroom.records if r.verdict in ("failed", "error")}
    assert {kind for student, verdict, kind in found if student == "learner-endless-loop"} == {"time limit"}
    assert {kind for student, verdict, kind in found if student == "learner-syntax-error"} == {"not defined"}
    assert {kind for student, verdict, kind in found if student == "learner-cut-off"} == {"refused"}
    mistakes = [kind for student, verdict, kind in found if "mistake" in student]
    assert len(mistakes) >= 4 and None not in mistakes


def test_feedback_of_ours_and_of_nbgrader_leak_nothing_and_say_the_score(classroom):
    course = classroom.course
    pages = feedback(course)
    assert len(pages) == CLASS
    assert audit_feedback(classroom.project, course) == []
    made = run("nbgrader", "generate_feedback", CHAPTER, "--force", "--student=learner-perfect", cwd=course.root)
    assert made.code == 0, made.err[-2000:]
    page = course.path(course.feedback, "learner-perfect", CHAPTER) / f"{CHAPTER}.html"
    assert "Score: 13.0 / 17.0" in page.read_text()


def test_nbgrader_exports_and_shows_our_scores(classroom):
    course = classroom.course
    exported = run("nbgrader", "export", "--to=grades.csv", cwd=course.root)
    assert exported.code == 0, exported.err[-2000:]
    rows = list(csv.DictReader((course.root / "grades.csv").open()))
    scores = {row["student_id"]: float(row["score"]) for row in rows}
    assert scores["learner-perfect"] == 13 and scores["learner-blank"] == 0
    assert scores["learner-stripped"] == 13 and len(scores) == CLASS - 1


def test_formgrader_finds_what_is_left_to_grade_by_hand(classroom):
    from nbgrader.apps.api import NbGraderAPI
    from nbgrader.coursedir import CourseDirectory

    api = NbGraderAPI(CourseDirectory(root=str(classroom.course.root)))
    found = {one["student"]: one for one in api.get_notebook_submissions(CHAPTER, CHAPTER)}
    assert found["learner-perfect"]["needs_manual_grade"] and not found["learner-blank"]["needs_manual_grade"]
    assert found["learner-mistake-1"]["failed_tests"] and not found["learner-perfect"]["failed_tests"]
    assert found["learner-perfect"]["code_score"] == 13


def test_nbgrader_reads_our_verdicts_from_the_graded_notebooks(classroom):
    """What `determine_grade` makes of the outputs that we left is what stands in the gradebook."""
    from nbgrader.utils import determine_grade, is_grade

    stored = marks(classroom.course, CHAPTER)
    for student in classroom.course.students(CHAPTER):
        path = classroom.course.path(classroom.course.autograded, student, CHAPTER) / f"{CHAPTER}.ipynb"
        cells = nbformat.read(path, as_version=4).cells if path.exists() else []
        found = {(student, cell.id): determine_grade(cell)[0] for cell in cells if is_grade(cell)}
        assert found == {key: stored[key][0] for key in found}


def test_nbgrader_validates_the_released_and_the_solved_notebook(classroom, tmp_path):
    course = classroom.course
    blank = course.path(course.release, ".", CHAPTER) / f"{CHAPTER}.ipynb"
    solved = course.path(course.submitted, "learner-perfect", CHAPTER) / f"{CHAPTER}.ipynb"
    (tmp_path / "solved.ipynb").write_bytes(solved.read_bytes())
    (tmp_path / "blank.ipynb").write_bytes(blank.read_bytes())
    running = [start("nbgrader", "validate", f"{name}.ipynb", cwd=tmp_path) for name in ("solved", "blank")]
    good, bad = (ended(process) for process in running)
    assert "Success! Your notebook passes all the tests." in good.out, good.out + good.err[-2000:]
    assert "VALIDATION FAILED ON 6 CELL(S)" in bad.out, bad.out + bad.err[-2000:]


def test_commands_grade_report_and_print_json(classroom):
    course = classroom.course
    told = run("autograder", "grade", str(course.root), "--student", "learner-mistake-1", "--jobs", "1", "--json",
               cwd=course.root)
    records = json.loads(told.out)
    assert told.code == 0, told.err
    keys = ["student", "chapter", "exercise", "points", "max_points", "verdict", "kind", "message", "trust"]
    assert [list(record) for record in records] == [keys] * 5
    said = run("autograder", "report", str(course.root), cwd=course.root)
    assert f"{CLASS - 1} graded, 1 refused" in said.out and "no scale" in said.out and "learner-cut-off" in said.out
