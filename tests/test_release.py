"""The student notebooks are what nbgrader makes, the same bytes in every run, and nothing in chapters/ is by hand."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import tiny
from click.testing import CliRunner
from tiny import SLUG

from autograder import release, source
from autograder.cli import main
from autograder.course import Project
from autograder.errors import CourseError
from autograder.newcourse import CONFIG

REPOSITORY = Project(Path(__file__).parents[1])
NAME = f"chapters/{SLUG}.ipynb"


@pytest.fixture
def project(tmp_path):
    return tiny.project(tmp_path)


@pytest.fixture
def student(project):
    return release.student_notebook(project, SLUG)


def nbgrader(*arguments, folder):
    """nbgrader's own command, as an instructor runs it."""
    program = Path(sys.executable).parent / "nbgrader"
    return subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True, timeout=120)


def text_of(notebook):
    return "\n".join(cell.source for cell in notebook.cells)


def test_student_notebook_is_what_the_nbgrader_command_makes(project, student, tmp_path):
    folder = tmp_path / "course" / "source" / SLUG
    folder.mkdir(parents=True)
    nbformat.write(release.source_notebook(project, SLUG), folder / f"{SLUG}.ipynb")
    (tmp_path / "course" / "nbgrader_config.py").write_text(CONFIG.format(timeout=30, stub=release.STUB))
    ran = nbgrader("generate_assignment", SLUG, folder=tmp_path / "course")
    assert ran.returncode == 0, ran.stderr
    theirs = nbformat.read(tmp_path / "course" / "release" / SLUG / f"{SLUG}.ipynb", as_version=4)
    assert len(theirs.cells) == len(student.cells)
    for ours, their in zip(student.cells, theirs.cells):
        assert ours == their
    assert student.metadata == theirs.metadata


def test_solutions_hidden_tests_and_mark_schemes_are_gone(project, student):
    secrets = source.regions(source.load(project, SLUG))
    assert len(secrets) == 7
    assert not any(secret.text in text_of(student) for secret in secrets)
    assert not re.search("BEGIN|END|autograder", text_of(student))


def test_stub_says_where_the_code_goes(student):
    stub = next(cell.source for cell in student.cells if cell.id == "weigh")
    assert stub == ('def weigh(values, weights):\n    """The weighted average of values (n,), weights (n,)."""\n'
                    "    # YOUR CODE HERE\n"
                    '    raise NotImplementedError("still to be written: put your code in place of this line")')
    assert next(cell.source for cell in student.cells if cell.id == "why_one") == "YOUR ANSWER HERE"


def test_student_notebook_is_valid_without_outputs_and_with_our_ids(project, student):
    nbformat.validate(student)
    assert (student.nbformat, student.nbformat_minor) == (4, 5)
    assert student.metadata.kernelspec.name == "python3"
    assert [cell.id for cell in student.cells] == [cell.id for cell in source.load(project, SLUG).cells]
    code = [cell for cell in student.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)


def test_nbgrader_validate_runs_on_the_student_notebook(student, tmp_path):
    nbformat.write(student, tmp_path / f"{SLUG}.ipynb")
    ran = nbgrader("validate", f"{SLUG}.ipynb", folder=tmp_path)
    assert ran.returncode == 0, ran.stderr
    # The core has a visible test, which a blank answer fails, the edge and the spread only hidden ones.
    assert "VALIDATION FAILED ON 2 CELL(S)" in ran.stdout
    assert "NotImplementedError: still to be written" in ran.stdout
    assert "You did not provide a response" in ran.stdout


def test_tests_cells_and_given_cells_are_locked(student):
    locked = {cell.id for cell in student.cells if cell.metadata.get("editable") is False}
    assert locked == {"weigh-core-tests", "weigh-edge-tests", "spread-tests", "halve"}
    kept = {cell.id for cell in student.cells if cell.metadata.get("deletable") is False}
    assert kept == locked | {"weigh", "spread", "why_one"}


def test_stamp_follows_whatever_the_notebook_is_made_from(project, student):
    stamps = [student.metadata.course]
    assert stamps[0].chapter == SLUG
    assert re.fullmatch("[0-9a-f]{12}", stamps[0].release)
    for path, old, new in ((f"solutions/{SLUG}.md", "1e-12", "1e-13"), ("solutions/setup.py", "expect", "demand")):
        file = project.root / path
        file.write_text(file.read_text().replace(old, new))
        stamps.append(release.student_notebook(project, SLUG).metadata.course)
    assert len({stamp.release for stamp in stamps}) == 3
    assert release.source_notebook(project, SLUG).metadata.course == stamps[-1]


def test_release_writes_the_same_bytes_in_another_process(project):
    release.release(project)
    first = project.chapter(SLUG).read_bytes()
    assert first.endswith(b"}\n")
    assert b"\\u" not in first
    shutil.rmtree(project.chapters)
    ran = subprocess.run([sys.executable, "-c", "from autograder.cli import main; main()", "--project", project.root,
                          "release"], capture_output=True, text=True, env={"PYTHONHASHSEED": "7"})
    assert ran.returncode == 0, ran.stderr
    assert project.chapter(SLUG).read_bytes() == first


def test_release_says_what_it_wrote_and_then_finds_nothing_stale(project):
    said = []
    assert release.release(project, say=said.append) == [NAME]
    assert said == [f"{SLUG}: reading solutions/{SLUG}.md", f"{NAME}: written"]
    assert release.release(project, check=True) == []
    assert release.release(project) == []


def test_check_names_each_stale_file_and_changes_nothing(project):
    release.release(project)
    edited = project.chapter(SLUG)
    edited.write_text(edited.read_text().replace("Averages", "Mittelwerte"))
    (project.chapters / "01_gone.ipynb").write_text("{}")
    assert release.release(project, check=True) == [NAME, "chapters/01_gone.ipynb"]
    assert "Mittelwerte" in edited.read_text()
    assert release.release(project) == [NAME, "chapters/01_gone.ipynb"]
    assert not (project.chapters / "01_gone.ipynb").exists()


def test_data_is_copied_and_what_is_gone_is_removed(project):
    data = project.solutions / "data"
    data.mkdir()
    (data / "words.txt").write_text("eins\n")
    assert release.release(project) == [NAME, "chapters/data/words.txt"]
    assert (project.chapters / "data" / "words.txt").read_text() == "eins\n"
    (data / "words.txt").write_text("zwei\n")
    assert release.release(project, check=True) == ["chapters/data/words.txt"]
    shutil.rmtree(data)
    assert release.release(project, check=True) == ["chapters/data/words.txt"]
    assert release.release(project) == ["chapters/data/words.txt"]
    assert not (project.chapters / "data").exists()


def test_stub_that_is_no_python_is_refused(tmp_path):
    chapter = tiny.changed(("    return np.sqrt(np.mean((values - values.mean()) ** 2))\n    ### END SOLUTION",
                            "    x = [1,\n    ### END SOLUTION\n    2]"))
    with pytest.raises(CourseError, match=r"^solutions/03_tiny\.md:\d+: cell 'spread': "):
        release.student_notebook(tiny.project(tmp_path, chapter), SLUG)


def test_rich_markdown_is_plain_in_the_student_notebook(tmp_path):
    project = tiny.project(tmp_path, tiny.prose(":::{hint} One\nSee {cite:t}`vaswani2017`.\n:::"))
    text = json.dumps(release.student_notebook(project, SLUG), ensure_ascii=False)
    assert "<details><summary>Hint: One</summary>" in text
    assert "See [Vaswani et al. (2017)](https://arxiv.org/abs/1706.03762)." in text
    assert ":::" not in text


def test_command_line_says_one_line_and_exits_1(project):
    def run(*arguments):
        return CliRunner().invoke(main, ["--project", str(project.root), "release", *arguments])

    first = run()
    assert (first.exit_code, first.stdout.splitlines()[-1]) == (0, "chapters/ is up to date (1 written)")
    project.chapter(SLUG).unlink()
    stale = run("--check")
    assert (stale.exit_code, stale.stderr) == (1, f"error: 1 stale in chapters/: {NAME}; run 'autograder release'\n")
    project.source(SLUG).write_text(tiny.changed(("### END SOL", "###END SOL")))
    broken = run()
    assert broken.exit_code == 1
    assert broken.stderr.startswith(f"error: solutions/{SLUG}.md:")
    assert broken.stderr.count("\n") == 1


@pytest.mark.skipif(not REPOSITORY.slugs(), reason="no chapter is written yet")
def test_chapters_are_fresh():
    assert release.release(REPOSITORY, check=True) == []


@pytest.mark.parametrize("slug", REPOSITORY.slugs())
def test_chapter_deleted_comes_back_byte_for_byte(slug):
    made = release.dumps(release.student_notebook(REPOSITORY, slug)).encode()
    assert made == REPOSITORY.chapter(slug).read_bytes()
