"""The whole class is graded, whatever is in it: in = graded + refused."""

import errno
import json
import shutil
import stat
import time
from textwrap import indent

import nbformat
import pytest
from classroom import (
    SOLVED,
    answer,
    answered,
    asserts,
    cell_of,
    code,
    hand_in,
    make_course,
    marks,
    notebook,
    place_of,
    plain_source,
    released,
    run,
    task,
    text,
    written,
)
from click.testing import CliRunner
from nbformat.v4 import new_code_cell, new_markdown_cell
from rich.console import Console

from autograder import engine, handin, marking, results
from autograder.cli import main
from autograder.course import Course
from autograder.errors import CourseError
from autograder.grade import Record, by_exercise, grade, limits_of, stored_records
from autograder.ledger import log, log_line, refusals, secret_of, state
from autograder.outputs import error_output
from autograder.progress import Watch, console
from autograder.release import STUB
from autograder.report import as_json, class_as_json, class_tables, score_tables, tables_of_run
from autograder.report import report as report_of


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    return make_course(tmp_path_factory.mktemp("template") / "course")


@pytest.fixture
def course(template, tmp_path):
    shutil.copytree(template.root, tmp_path / "course")
    return Course(tmp_path / "course")


def of(records, student, exercise):
    return next(record for record in records if (record.student, record.exercise) == (student, exercise))


def graded(course, student, name="numbers", assignment="ps1"):
    return nbformat.read(course.path(course.autograded, student, assignment) / f"{name}.ipynb", as_version=4)


# ---- the class goes on --------------------------------------------------------------------------------------------


def test_bad_submissions_are_refused_with_a_reason_and_the_rest_is_graded(course):
    nb = released(course)
    other = notebook(text("another course"), code("x = 1", "x"))
    hand_in(course, "ann", answered(nb, SOLVED))
    hand_in(course, "cut", json.dumps(nb).encode()[:500])
    hand_in(course, "empty", b"")
    hand_in(course, "other", other)
    course.path(course.submitted, "nothing", "ps1").mkdir(parents=True)
    hand_in(course, "late", nb).parent.joinpath("timestamp.txt").write_text("soon")
    told = []
    records = grade(course, jobs=2, watch=lambda done, total, outcome: told.append((done, total, outcome)))
    outcomes = [outcome for _, _, outcome in told if outcome]
    assert told[0] == (0, 6, None) and [done for done, _, _ in told] == list(range(7))
    refused = {outcome.handin.student: outcome.refused for outcome in outcomes if outcome.refused}
    assert refused.keys() == {"cut", "empty", "other", "nothing", "late"}
    assert all(refused.values()) and refusals(course) == {("ps1", who): reason for who, reason in refused.items()}
    assert {(r.verdict, r.kind) for r in records if r.student in refused} == {("error", "refused")}
    assert {student for student, _ in marks(course)} == {"ann"}
    assert {r.student for r in records} == {"ann", *refused} and len(records) == 6 * 4


def test_our_own_fault_in_one_submission_stops_nothing(course, monkeypatch):
    for student in ("ann", "ben"):
        hand_in(course, student, answered(released(course), SOLVED))
    original = handin.copy_files
    monkeypatch.setattr("autograder.grade.copy_files",
                        lambda folder, target, **words: 1 / 0 if "ben" in str(folder) else original(folder, target))
    records = grade(course)
    assert of(records, "ann", "double").verdict == "passed"
    assert "ZeroDivisionError" in of(records, "ben", "double").message
    logged = {entry["student"]: entry for entry in map(json.loads, (state(course) / "log.jsonl").open())}
    assert "Traceback" in logged["ben"]["detail"] and logged["ann"]["detail"] == ""


def test_learner_whose_file_is_mended_is_refused_no_more(course):
    hand_in(course, "ann", b"{")
    grade(course)
    hand_in(course, "ann", answered(released(course), SOLVED))
    grade(course)
    assert refusals(course) == {} and marks(course)["ann", "double-tests"][0] == 2


def test_an_endless_loop_costs_only_what_depends_on_it(course):
    looping = "def mean(xs):\n    return sum(xs) / len(xs)\nwhile True:\n    pass"
    hand_in(course, "ann", answered(released(course), {**SOLVED, "mean": looping}))
    records = grade(course)
    assert [record.points for record in records] == [2, 3, 4, None]
    assert "stopped after 5 s" in cell_of(graded(course, "ann"), "mean").outputs[-1].evalue


def test_a_dead_kernel_costs_only_the_cell_that_killed_it(course):
    deadly = "import os\ndef mean(xs):\n    os._exit(3)"
    hand_in(course, "ann", answered(released(course), {**SOLVED, "mean": deadly}))
    records = grade(course)
    assert [record.points for record in records] == [2, 0, 4, None]
    assert (of(records, "ann", "mean").verdict, of(records, "ann", "mean").kind) == ("error", "dead kernel")


def test_the_same_class_gives_the_same_records_whatever_the_jobs(course):
    for number in range(4):
        changed = {**SOLVED, "double": f"def double(x): return 2 * x if {number} % 2 else 0"}
        hand_in(course, f"s{number}", answered(released(course), changed))
    assert grade(course, jobs=1) == grade(course, jobs=3) == stored_records(course)


# ---- which submissions --------------------------------------------------------------------------------------------


def test_a_course_is_graded_by_a_path_relative_to_here(course, monkeypatch):
    hand_in(course, "ann", answered(released(course), SOLVED))
    monkeypatch.chdir(course.root.parent)
    done = CliRunner().invoke(main, ["grade", course.root.name, "--student", "ann", "--json"])
    assert done.exit_code == 0 and all(record["verdict"] in ("passed", "manual") for record in json.loads(done.stdout))


def test_a_run_that_graded_nothing_exits_1(course):
    folder = hand_in(course, "ann", answered(released(course), SOLVED))
    next(course.path(course.submitted, "ann", "ps1").glob("*.ipynb")).write_text("no notebook")
    done = CliRunner().invoke(main, ["grade", str(course.root), "--student", "ann"])
    assert done.exit_code == 1 and "nothing was graded" in done.stderr, folder


def test_one_student_or_chapter_alone_is_graded(course):
    for student in ("ann", "ben"):
        hand_in(course, student, released(course))
    assert {record.student for record in grade(course, student="ben", chapter="ps1")} == {"ben"}
    assert {student for student, _ in marks(course)} == {"ben"}


@pytest.mark.parametrize(("words", "said"), [
    ({"student": "zoe"}, "nothing handed in by 'zoe'"),
    ({"chapter": "ps9"}, "no assignment 'ps9'; there are: ps1"),
])
def test_names_that_are_not_there_are_said(course, words, said):
    hand_in(course, "ann", released(course))
    with pytest.raises(CourseError, match=said):
        grade(course, **words)


def test_course_with_nothing_handed_in_has_no_records(course):
    assert grade(course) == []


def test_assignment_that_was_never_released_is_released_first_but_not_for_a_dry_run(course):
    folder = course.path(course.source, ".", "ps2")
    folder.mkdir()
    nbformat.write(plain_source(), folder / "numbers.ipynb")
    hand_in(course, "ann", plain_source(), assignment="ps2")
    with pytest.raises(CourseError, match="'ps2' is not in the gradebook; run 'nbgrader generate_assignment ps2'"):
        grade(course, dry_run=True)
    assert {record.points for record in grade(course)} == {2, 3, 4, None}
    assert (course.release / "ps2" / "numbers.ipynb").is_file()


def test_notebook_is_known_by_its_cells_not_by_its_name(course):
    nb = answered(released(course), SOLVED)
    hand_in(course, "renamed", nb, file="Copy of numbers (2).ipynb")
    hand_in(course, "two", nb)
    hand_in(course, "two", released(course), file="numbers-backup.ipynb")
    hand_in(course, "wrong-name", notebook(text("scratch")), file="numbers.ipynb")
    hand_in(course, "wrong-name", nb, file="final.ipynb")
    hand_in(course, "broken-name", b"{", file="numbers.ipynb")
    hand_in(course, "broken-name", nb, file="final.ipynb")
    hand_in(course, "checkpoint", nb)
    hand_in(course, "checkpoint", released(course), file=".ipynb_checkpoints/numbers-checkpoint.ipynb")
    records = grade(course, jobs=2)
    assert {r.points for r in records if r.exercise == "double"} == {2} and len(records) == 5 * 4


# ---- files --------------------------------------------------------------------------------------------------------


def test_files_beside_the_notebook_are_there_and_ours_win(course):
    source = course.path(course.source, ".", "ps1")
    (source / "data").mkdir()
    (source / "data" / "n.txt").write_text("2")
    reading = "def double(x):\n    return x * int(open('data/n.txt').read()) + int(open('mine.txt').read())"
    path = hand_in(course, "ann", answered(released(course), {**SOLVED, "double": reading}))
    (path.parent / "mine.txt").write_text("0")
    (path.parent / "data").mkdir()
    (path.parent / "data" / "n.txt").write_text("100")
    assert of(grade(course), "ann", "double").verdict == "passed"
    made = course.path(course.autograded, "ann", "ps1")
    assert (made / "data" / "n.txt").read_text() == "2" and (made / "mine.txt").read_text() == "0"
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o444 for path in made.rglob("*") if path.is_file())


def test_links_in_a_submission_are_not_followed(course):
    path = hand_in(course, "ann", answered(released(course), SOLVED))
    (path.parent / "stolen.db").symlink_to(course.db)
    (path.parent / "elsewhere").symlink_to(course.source)
    grade(course)
    made = course.path(course.autograded, "ann", "ps1")
    assert sorted(path.name for path in made.iterdir()) == ["numbers.ipynb"]


def test_notebook_that_is_itself_a_link_is_not_read(course):
    folder = course.path(course.submitted, "ann", "ps1")
    folder.mkdir(parents=True)
    (folder / "numbers.ipynb").symlink_to(course.path(course.source, ".", "ps1") / "numbers.ipynb")
    assert grade(course)[0].kind == "refused"


def test_secret_is_random_and_its_owners_alone(course, tmp_path):
    path = state(course) / "secret"
    assert len(secret_of(course)) >= 32 and secret_of(course) == secret_of(course)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    (tmp_path / "other").mkdir()
    assert secret_of(Course(tmp_path / "other")) != secret_of(course)


def test_nothing_is_left_lying_about(course):
    hand_in(course, "ann", answered(released(course), SOLVED))
    grade(course)
    assert sorted(path.name for path in state(course).iterdir()) == ["lock", "log.jsonl", "secret"]


@pytest.mark.parametrize(("config", "seconds"), [
    ("", 30), ("c.ExecutePreprocessor.timeout = 7", 7), ("c.Execute.timeout = 9", 9), ("c.Execute.timeout = -1", 86400),
])
def test_time_limit_is_nbgraders(tmp_path, config, seconds):
    (tmp_path / "nbgrader_config.py").write_text(f"c = get_config()\n{config}\n")
    assert limits_of(Course(tmp_path)).cell == seconds


# ---- cells of every sort ------------------------------------------------------------------------------------------


def test_demos_are_skipped_and_every_other_sort_of_cell_has_its_mark(tmp_path):
    source = notebook(
        code("raise SystemExit('a demo was run')", "demo", tags=["demo"]),
        code("1 / 0", "try", tags=["try", "timed"]),
        answer("essay", "# YOUR CODE HERE"),
        task("draw", "Draw a picture below.", 7),
        written("why", "model answer", 5),
    )
    source.metadata["course"] = {"chapter": "mixed"}
    by_hand = answer("plot", "### BEGIN SOLUTION\nplot = 1\n### END SOLUTION")
    by_hand.metadata.nbgrader.update(grade=True, points=6)
    source.cells.append(by_hand)
    course = make_course(tmp_path / "c", mixed=source)
    nb = released(course, "mixed")
    hand_in(course, "ann", answered(nb, {"why": "my reasons", "plot": "plot = 2"}), file="mixed.ipynb")
    hand_in(course, "ben", nb, file="mixed.ipynb")
    records = grade(course)
    assert {(r.student, r.exercise): (r.verdict, r.points) for r in records} == {
        ("ann", "draw"): ("manual", None), ("ann", "why"): ("manual", None), ("ann", "plot"): ("manual", None),
        ("ben", "draw"): ("manual", None), ("ben", "why"): ("blank", 0), ("ben", "plot"): ("blank", 0),
    }
    assert {cell: mark[2] for (who, cell), mark in marks(course).items() if who == "ben"} == {
        "draw": True, "why": False, "plot": False}
    assert cell_of(graded(course, "ann", "mixed"), "demo").outputs == []
    assert cell_of(graded(course, "ann", "mixed"), "try").outputs == []


@pytest.mark.parametrize("below", [True, False])
def test_a_written_answer_in_a_cell_of_its_own_waits_for_a_person(tmp_path, below):
    course = make_course(tmp_path / "c", essay=notebook(code("x = 1", "first"), written("why", "model answer", 5)))
    nb = released(course, "essay")
    place = next(index for index, cell in enumerate(nb.cells) if cell.id == "why")
    nb.cells.insert(place + below, new_markdown_cell("Since the scores would grow with the width.", id="mine"))
    hand_in(course, "ann", nb, file="essay.ipynb")
    nb = released(course, "essay")
    nb.cells.append(new_code_cell("# no answer, a cell of code", id="mine"))
    hand_in(course, "ben", nb, file="essay.ipynb")
    assert [(r.student, r.verdict, r.points) for r in grade(course)] == [("ann", "manual", None), ("ben", "blank", 0)]
    assert [mark[2] for _, mark in sorted(marks(course).items())] == [True, False]


def test_of_several_notebooks_a_missing_one_gets_zero(tmp_path):
    course = make_course(tmp_path / "c", one=plain_source(), two=notebook(
        answer("triple", "def triple(x):\n    ### BEGIN SOLUTION\n    return 3 * x\n    ### END SOLUTION"),
        asserts("triple-tests", "assert triple(1) == 3", 8)))
    hand_in(course, "ann", answered(released(course, "one"), SOLVED), file="one.ipynb")
    two = answered(released(course, "two"), {"triple": "def triple(x):\n    return 3 * x"})
    hand_in(course, "ben", two, file="two.ipynb")
    hand_in(course, "ben", answered(released(course, "one"), SOLVED), file="one.ipynb")
    records = grade(course)
    found = marks(course)
    assert found["ann", "triple-tests"] == (0, None, False) and found["ben", "triple-tests"] == (8, None, False)
    assert found["ann", "double-tests"][0] == found["ben", "double-tests"][0] == 2
    assert of(records, "ben", "triple").points == 8


def hidden(line, before=""):
    return asserts("f-tests", f"assert True\n### BEGIN HIDDEN TESTS\n{before}{line}\n### END HIDDEN TESTS", 1)


def test_hidden_line_is_recognised():
    line = 'from autograder.checks import check; check("softmax_jacobian", softmax_jacobian)'
    found = results.hidden_line(hidden(line))
    assert (found.exercise, found.expression, found.part) == ("softmax_jacobian", "softmax_jacobian", None)
    assert found.visible.strip() == "assert True"
    found = results.hidden_line(hidden('check("scaled_dot_product_attention", f.g, part="edge")'))
    assert (found.expression, found.part) == ("f.g", "edge")
    assert results.hidden_line(hidden("assert f(2) == 3")) is None
    assert results.hidden_line(asserts("f-tests", "assert True", 1)) is None


@pytest.mark.parametrize(("line", "said"), [
    ('check("nonsense", f)', "no checks for 'nonsense'"),
    ('check("softmax_jacobian")', "not of the form"),
    ('check(name, f)', "not of the form"),
    ('check("softmax_jacobian", f, seed=1)', "not of the form"),
    ('check("softmax_jacobian", f)\nassert f(1)', "more than one"),
    ('check("softmax_jacobian", f)\ncheck("softmax_jacobian", g)', "more than one"),
])
def test_malformed_hidden_line_names_the_cell(line, said):
    with pytest.raises(CourseError, match=f"cell 'f-tests': .*{said}"):
        results.hidden_line(hidden(line))


# ---- with checks --------------------------------------------------------------------------------------------------

RIGHT = "def softmax_jacobian(p):\n    return torch.diag(p) - torch.outer(p, p)"
SOURCE = RIGHT.replace("    return", "    ### BEGIN SOLUTION\n    return") + "\n    ### END SOLUTION"
OTHER_STUB = f"def softmax_jacobian(p):\n{indent(STUB, '    ')}"   # the course's own says nothing
LATER = "def softmax_jacobian(p):\n    x = 1\n    raise NotImplementedError('later')"
FORGED = """def softmax_jacobian(p):
    return None
import autograder.checks, autograder.errors
autograder.checks.check = lambda *a, **k: None
def check(*a, **k):
    return None
class Everything:
    def __eq__(self, other):
        return True"""


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    line = 'from autograder.checks import check; check("softmax_jacobian", softmax_jacobian)'
    test = hidden(line)
    test.metadata.nbgrader.grade_id = test["id"] = "softmax_jacobian-tests"
    test.source = test.source.replace("assert True", "assert softmax_jacobian(torch.ones(1)).shape == (1, 1), 'shape'")
    source = notebook(code("import torch", "imports"), answer("softmax_jacobian", SOURCE), test)
    course = make_course(tmp_path_factory.mktemp("checked") / "c", jacobian=source)
    nb = released(course, "jacobian")
    class_ = {
        "right": {"softmax_jacobian": RIGHT}, "blank": {},
        "blank-of-another-release": {"softmax_jacobian": OTHER_STUB},
        "emptied": {"softmax_jacobian": "# nothing yet\n"},
        "not-defined": {"softmax_jacobian": "jacobian = 1"},
        "half-done": {"softmax_jacobian": LATER},
        "no-function": {"softmax_jacobian": "softmax_jacobian = 7"},
        "forged": {"softmax_jacobian": FORGED},
        "exits": {"softmax_jacobian": "import sys\ndef softmax_jacobian(p):\n    sys.exit(0)"},
    }
    for student, answers in class_.items():
        hand_in(course, student, answered(nb, answers), file="jacobian.ipynb")
    elsewhere = answered(nb, {})
    elsewhere.cells.insert(place_of(nb, "softmax_jacobian") + 1, code(RIGHT, "mine"))
    hand_in(course, "elsewhere", elsewhere, file="jacobian.ipynb")
    records = grade(course, jobs=2)
    return course, {record.student: record for record in records}


@pytest.mark.parametrize(("student", "verdict", "kind", "said"), [
    ("right", "passed", None, ""),
    ("elsewhere", "passed", None, ""),
    ("blank", "blank", None, "not answered"),
    ("blank-of-another-release", "blank", None, "not answered"),
    ("emptied", "blank", None, "not answered"),
    ("not-defined", "error", "not defined", "softmax_jacobian is not defined: no cell"),
    ("half-done", "failed", None, "not done yet"),
    ("no-function", "failed", None, "TypeError"),
    ("forged", "failed", None, "None: is a return missing?"),
    ("exits", "failed", None, "SystemExit"),
])
def test_verdict_of_a_check_is_the_judges(checked, student, verdict, kind, said):
    _, records = checked
    record = records[student]
    assert (record.verdict, record.kind) == (verdict, kind) and said in record.message
    assert record.points == (1 if verdict == "passed" else 0)


def test_graded_notebook_shows_what_the_judge_saw(checked):
    course, records = checked
    assert cell_of(graded(course, "right", "jacobian"), "softmax_jacobian-tests").outputs == []
    (output,) = cell_of(graded(course, "no-function", "jacobian"), "softmax_jacobian-tests").outputs
    assert (output.ename, output.evalue) == ("WrongAnswer", records["no-function"].message)


# ---- what is printed ----------------------------------------------------------------------------------------------


def record(student="ann", exercise="f", part="", points=1.0, verdict="passed", kind=None, message=""):
    return Record(student, "ps1", exercise, part, points, 2.0, verdict, kind, message)


def test_parts_of_an_exercise_are_one_record_and_the_first_that_failed_speaks():
    parts = [record(part="core", points=2.0), record(part="edge", points=0.0, verdict="failed", kind="k", message="m")]
    assert by_exercise(parts) == [Record("ann", "ps1", "f", "", 2.0, 4.0, "failed", "k", "m")]
    waits = [record(points=None, verdict="manual")]
    assert by_exercise(waits)[0].points is None


def test_json_is_one_record_a_line_with_the_promised_fields():
    printed = as_json([record(), record(exercise="g", points=None, verdict="manual")])
    assert [list(found) for found in json.loads(printed)] == [
        ["student", "chapter", "exercise", "points", "max_points", "verdict", "kind", "message", "trust"]] * 2
    assert len(printed.splitlines()) == 4 and json.loads(as_json([])) == []


def test_json_of_a_class_says_what_its_table_says():
    records = [record(), record("ben", points=0.0, verdict="failed", kind="no scale"),
               record("cyd", points=0.0, verdict="error", kind="refused", message="no notebook"),
               record("dan", points=0.0, verdict="blank"), record("eve", points=0.5, verdict="failed", kind="no scale"),
               record(exercise="g", part="core", points=None, verdict="manual")]
    graded, waits = json.loads(class_as_json(records))
    assert graded == {
        "chapter": "ps1", "exercise": "f", "part": "", "graded": 4, "refused": 1, "mean": 0.375, "max_points": 2.0,
        "passed": 1, "failed": 2, "blank": 1, "error": 0, "trust": [""], "failed_with": {"no scale": 2},
        "waiting": 0}
    assert (waits["part"], waits["mean"], waits["waiting"]) == ("core", None, 1)
    assert json.loads(class_as_json([])) == []


@pytest.mark.parametrize("width", [80, 120, 240])
def test_no_name_is_cut_or_broken_within_a_word_in_the_table_of_scores(width):
    names = [f"{word}_of_the_{word}" for word in ("shift", "smoothed", "noam", "cached", "greedy", "beam", "train")]
    records = [record(student, exercise=name) for student in ("ann", "ben") for name in [*names, "PositionalEncoding"]]
    out = Console(width=width)
    with out.capture() as shown:
        out.print(*score_tables(records, width=width))
    text = shown.get()
    assert "…" not in text and all(len(line) <= width for line in text.splitlines())
    if width == 80:   # then the names stand below
        assert all(f" {number} {name}," in text for number, name in enumerate([*names, "PositionalEncoding"], 1))
    else:
        assert all(word in text for word in ("smoothed_", "Positional", "Encoding"))


def test_tables_have_every_learner_exercise_and_mistake():
    records = [record(), record("ben", points=0.0, verdict="failed", kind="no scale"),
               record("cyd", points=0.0, verdict="error", kind="refused", message="no notebook"),
               record("dan", points=None, verdict="manual")]
    out = console()
    with out.capture() as shown:
        for table in [*score_tables(records), *class_tables(records)]:
            out.print(table)
    for word in ("ann", "ben", "refused", "no scale", "1 wait", "3 graded, 1 refused", "0 + ?"):
        assert word in shown.get(), word


def test_scores_of_a_large_class_are_told_by_exercise_so_that_they_fit_on_a_screen():
    few, many = ([record(f"s{number}") for number in range(count)] for count in (30, 31))
    assert [table.row_count for table in tables_of_run(few)] == [30]
    table, hint = tables_of_run(many)
    assert table.row_count == 1 and "autograder report --learners" in hint


def test_line_that_a_crash_has_cut_off_costs_no_other_line_of_the_log(course):
    (state(course) / "log.jsonl").write_text('{"chapter": "ps1", "stud')
    log(course, log_line({"student": "ann", "chapter": "ps1", "refused": "empty"}))
    assert refusals(course) == {("ps1", "ann"): "empty"}


def test_commands_print_what_they_promise(course):
    noisy = "print('noise')\nimport os\nos.write(1, b'noise')"
    hand_in(course, "ann", answered(released(course), {**SOLVED, "double": noisy}))
    hand_in(course, "ben", b"nonsense")
    made = run("autograder", "grade", str(course.root), "--json", "--jobs", "2", cwd=course.root)
    assert made.code == 3 and len(json.loads(made.out)) == 8, made.err
    runner = CliRunner()
    said = runner.invoke(main, ["grade", str(course.root), "--chapter", "ps1"])
    assert "2 handed in = 1 graded + 1 refused" in said.output and "refused   ben ps1: numbers.ipynb" in said.output
    wrong = runner.invoke(main, ["grade", str(course.root), "--student", "zoe"])
    assert wrong.exit_code == 1 and wrong.output.splitlines()[-1].startswith("error: ")
    in_json = json.loads(runner.invoke(main, ["report", "--json", str(course.root)]).stdout)
    assert {(row["graded"], row["refused"]) for row in in_json} == {(1, 1)}
    told = json.loads(runner.invoke(main, ["report", "--json", "--learners", str(course.root)]).stdout)
    assert {row["student"] for row in told} > {"ann"} and "points" in told[0]
    report = runner.invoke(main, ["report", str(course.root)])
    assert "1 graded, 1 refused" in report.output and str(course.autograded) in report.output


def test_name_that_is_none_and_an_empty_course_are_errors(course):
    def said(*arguments):
        done = CliRunner().invoke(main, [*arguments, str(course.root)])
        return done.exit_code, (done.stderr or done.stdout).splitlines()[-1]

    code, line = said("grade")
    assert code == 1 and "nothing is handed in; put it into" in line and "submitted/NAME/CHAPTER/CHAPTER.ipynb" in line
    hand_in(course, "ann", answered(released(course), SOLVED))
    assert said("grade")[0] == 0 and said("grade", "--update")[0] == 0
    for command in ("report", "feedback"):
        assert said(command)[0] == 0
        assert said(command, "--chapter", "ps2") == (1, f"error: {course.source}: no assignment 'ps2'; there are: ps1")
    assert "nothing graded of 'bob'; look" in said("feedback", "--student", "bob")[1]
    assert said("feedback", "--student", "ann")[0] == 0


def test_course_that_cannot_be_written_is_said_in_one_line(course, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system", str(course.root / ".autograder" / "lock"))

    monkeypatch.setattr("autograder.grade.alone", refuse)
    done = CliRunner().invoke(main, ["grade", str(course.root)])
    assert done.exit_code == 1 and done.stderr.splitlines()[-1] == (
        f"error: {course.root}/.autograder/lock: Read-only file system; put the course where it can be written")


def test_repairs_are_told(course):
    nb = answered(released(course), SOLVED)
    cell_of(nb, "double-tests").source = "assert True"
    hand_in(course, "ann", nb)
    with Watch() as watch:
        grade(course, watch=watch)
    assert watch.summary() == ["1 handed in = 1 graded + 0 refused",
                               "scores: 3 asserted beside the learner's code, 1 by hand",
                               "repaired  ann ps1: edited (double-tests)"]
    entry = json.loads((state(course) / "log.jsonl").read_text())
    assert entry["repairs"][0]["cell"] == "double-tests" and entry["seconds"] > 0
    assert 50 < entry["memory_mb"] < 5000 and f"at most {entry['memory_mb']} MB" in watch.cost()


def test_name_of_a_file_can_forge_no_line_of_the_report(course):
    hand_in(course, "ann", b"{", file="x\n7 handed in = 7 graded\x1b[2K.ipynb")
    told = Watch()
    grade(course, sandbox="off", watch=lambda done, total, outcome: told.outcomes.extend([outcome] if outcome else []))
    lines = [*told.summary(), *(part for part in report_of(course) if isinstance(part, str))]
    assert any("x\ufffd7 handed in" in line for line in lines)
    assert all(line.isprintable() for line in lines)


def test_text_of_an_error_takes_no_time_however_long():
    """A pattern takes the square of its length: 65 s for this one, with all others waiting."""
    begin = time.process_time()
    said = marking._brief(error_output("ValueError", "(" * 200_000))
    assert said.startswith("ValueError: ((") and time.process_time() - begin < 5


def test_folders_that_nobody_would_make_stop_nothing(course):
    """One that is called like the notebook, as unzipping makes it, and one a thousand deep."""
    nb = answered(released(course), SOLVED)
    folder = hand_in(course, "ann", nb, file="numbers.ipynb/numbers.ipynb").parent.parent
    (folder / "numbers.ipynb" / "helper.py").write_text("x = 1\n")
    deep = folder
    for _ in range(100):
        deep = deep / "d"
        deep.mkdir()
    (deep / "note.txt").write_text("far down")
    records = grade(course)
    assert {record.kind for record in records if record.student == "ann"} != {"refused"}
    assert of(records, "ann", "double").verdict == "passed"


def test_nothing_of_this_repository_is_to_be_seen_but_its_python(tmp_path, monkeypatch):
    """An installation from git lies among the system's files, with the solutions in its history."""
    package = tmp_path / "autograder"
    for name in (".git", "solutions", "tests", "autograder", ".venv/lib"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setattr(engine, "__file__", str(package / "engine.py"))
    monkeypatch.setattr(engine, "readable", lambda: ["/usr", str(tmp_path / ".venv")])
    assert {path.name for path in engine.ours()} == {".git", "solutions", "tests", "autograder"}
    (tmp_path / "solutions").rmdir()
    assert engine.ours() == []                                         # some other package's folder


def test_name_of_a_learners_folder_moves_no_cursor(course):
    hand_in(course, "esc\x1b[2Jx", answered(released(course), SOLVED))
    assert "\x1b" not in run("autograder", "grade", ".", cwd=course.root).out
