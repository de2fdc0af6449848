"""The guards of `make test`, each shown its fault in a copy of the project."""

import shutil
import subprocess
from pathlib import Path

import nbformat
import pytest
from click.testing import CliRunner
from test_prose import claims, unbacked

from autograder import book, cli, source
from autograder.course import Project

PROJECT = Project.find(Path(__file__))
SLUG = PROJECT.slugs()[0]


@pytest.fixture
def copy(tmp_path) -> Project:
    """The tracked files of the project in another folder."""
    listed = subprocess.run(["git", "ls-files", "-z", "solutions", "chapters", "book"], cwd=PROJECT.root, text=True,
                            capture_output=True, check=True)
    for name in listed.stdout.split("\0")[:-1]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PROJECT.root / name, tmp_path / name)
    return Project(tmp_path)


def autograder(project: Project, *arguments: str) -> tuple[int, str]:
    """Exit code and output of a command on a project, as `make test` runs it."""
    done = CliRunner().invoke(cli.main, ["--project", str(project.root), *arguments])
    return done.exit_code, done.output


def test_copy_without_a_fault_passes(copy):
    assert autograder(copy, "release", "--check")[0] == 0
    assert autograder(copy, "audit", str(copy.chapters))[0] == 0


def test_deleted_chapters_come_back_byte_for_byte(copy):
    before = {path.name: path.read_bytes() for path in copy.chapters.glob("*.ipynb")}
    shutil.rmtree(copy.chapters)
    assert autograder(copy, "release")[0] == 0
    assert {path.name: path.read_bytes() for path in copy.chapters.glob("*.ipynb")} == before != {}


def test_edited_chapter_is_caught(copy):
    chapter = copy.chapter(SLUG)
    chapter.write_text(chapter.read_text().replace("Exercise", "exercise", 1))
    code, said = autograder(copy, "release", "--check")
    assert code == 1 and f"chapters/{SLUG}.ipynb: stale" in said


@pytest.mark.parametrize("marker", ["BEGIN SOLUTION", "END SOLUTION", "BEGIN HIDDEN TESTS", "END MARK SCHEME"])
def test_misspelt_marker_is_caught(marker, copy):
    text = copy.source(SLUG).read_text()
    copy.source(SLUG).write_text(text.replace(f"### {marker}", f"### {marker[:-2]}", 1))
    code, said = autograder(copy, "release", "--check")
    assert code == 1 and f"error: solutions/{SLUG}.md" in said


def test_planted_leak_is_caught(copy):
    secret = max((one for one in source.regions(source.load(copy, SLUG)) if one.kind == "solution"),
                 key=lambda one: len(one.text))
    notebook = nbformat.read(copy.chapter(SLUG), as_version=4)
    notebook.cells[-1].source += f"\n\n```python\n{secret.text}\n```\n"
    nbformat.write(notebook, copy.chapter(SLUG))
    code, said = autograder(copy, "audit", str(copy.chapters))
    assert code == 1 and f"the solution of solutions/{SLUG}.md, cell '{secret.cell_id}'" in said


def test_wrong_claim_in_the_prose_is_caught():
    notebook = book.execute(PROJECT, SLUG)
    cell, written = next((cell, written) for cell in notebook.cells if cell.cell_type == "markdown"
                         for written, _, _ in claims(cell.source)
                         if len(written) > 5 and written.isascii() and written[-1].isdigit())
    wrong = written[:-1] + str((int(written[-1]) + 5) % 10)
    cell.source = cell.source.replace(written, wrong)
    assert f"cell '{cell.id}': {wrong}" in unbacked(notebook)
