"""The public tree: whole, clean, and never put over something that is not ours."""

import ast
import html
import json
import shutil
import sys
from pathlib import Path

import nbformat
import pytest
from test_tooling import LEARNERS, pins

from autograder import audit, book, publish, source
from autograder.course import Project
from autograder.errors import CourseError

PROJECT = Project.find(Path(__file__))


@pytest.fixture(scope="module")
def public(tmp_path_factory) -> Path:
    """The public tree of this project."""
    return publish.publish(PROJECT, tmp_path_factory.mktemp("public") / "tree")


@pytest.fixture
def planted(tmp_path, monkeypatch) -> Path:
    """A copy of the built pages, which the next publish takes for the book."""
    pages = tmp_path / "pages"
    shutil.copytree(book.build(PROJECT), pages)
    monkeypatch.setattr(book, "build", lambda project, say: pages)
    return pages


def test_public_tree_has_what_readers_and_learners_need(public):
    assert {path.name for path in public.iterdir()} == {"README.md", "LICENSE", "LICENSE-TEXT", "CITATION.cff",
                                                        "requirements.txt", "book", "chapters", publish.MANIFEST}
    assert (public / "book" / "index.html").is_file()
    assert sorted(path.stem for path in (public / "chapters").glob("*.ipynb")) == PROJECT.slugs()
    assert not list(public.rglob("*.md.bak")) and not list(public.rglob(".doctrees"))


def test_public_tree_passes_the_audit(public):
    assert audit.audit(PROJECT, public) == []


def test_learners_requirements_are_what_the_notebooks_import(public):
    assert set(pins("requirements.txt", (public / "requirements.txt").read_text())) == LEARNERS
    for chapter in (public / "chapters").glob("*.ipynb"):
        cells = nbformat.read(chapter, as_version=4).cells
        tree = ast.parse("\n".join(cell.source for cell in cells if cell.cell_type == "code"))
        names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        foreign = {name.split(".")[0] for name in names} - set(sys.stdlib_module_names)
        assert foreign <= {"numpy", "torch", "matplotlib", "IPython"}   # Jupyter brings IPython


def test_public_readme_names_every_chapter_and_no_template_is_left(public):
    text = (public / "README.md").read_text()
    assert "{%" not in text and "{{" not in text
    for slug in PROJECT.slugs():
        assert publish.title(PROJECT.chapter(slug)) in text


def plant(pages: Path, kind: str) -> None:
    """Write a secret into a page of the book."""
    page = pages / "chapters" / f"{PROJECT.slugs()[0]}.html"
    text = page.read_text()
    assert "</article>" in text
    page.write_text(text.replace("</article>", f"<pre>{html.escape(secret(kind))}</pre></article>"))


def secret(kind: str) -> str:
    """The longest text of a kind that the audit keeps from the public."""
    secrets = [one for slug in PROJECT.slugs() for one in source.regions(source.load(PROJECT, slug))]
    return max((one.text for one in secrets if kind in one.kind), key=len)


@pytest.mark.parametrize("kind", ["solution", "scheme"])
def test_planted_leak_stops_the_publishing(kind, planted, tmp_path):
    plant(planted, kind)
    with pytest.raises(CourseError, match="not published"):
        publish.publish(PROJECT, tmp_path / "tree")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pages"], "nothing half made may stay"


def test_planted_leak_leaves_the_last_public_tree_as_it_was(planted, tmp_path):
    tree = publish.publish(PROJECT, tmp_path / "tree")
    before = {path: path.stat().st_mtime_ns for path in tree.rglob("*")}
    plant(planted, "solution")
    with pytest.raises(CourseError):
        publish.publish(PROJECT, tree)
    assert {path: path.stat().st_mtime_ns for path in tree.rglob("*")} == before


def test_stale_chapter_stops_the_publishing(tmp_path, monkeypatch):
    monkeypatch.setattr(publish.release, "release", lambda project, check, say: ["chapters/03_scaling.ipynb"])
    with pytest.raises(CourseError, match="run 'autograder release'"):
        publish.publish(PROJECT, tmp_path / "tree")


def test_foreign_folder_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(CourseError, match="is not empty and no public tree"):
        publish.publish(PROJECT, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_repository_and_own_files_survive_the_next_publishing(public, tmp_path):
    """A public tree is usually a repository, with files of its own beside ours."""
    tree = tmp_path / "site"
    (tree / ".git").mkdir(parents=True)
    shutil.copytree(public, tmp_path / "new")
    publish.refuse_foreign(tree)
    publish.move(tmp_path / "new", tree, tmp_path / "old")
    (tree / "CNAME").write_text("mine")
    (tree / "chapters" / "99_gone.ipynb").touch()
    manifest = json.loads((tree / publish.MANIFEST).read_text())
    (tree / publish.MANIFEST).write_text(json.dumps([*manifest, "dropped/page.html"]))
    (tree / "dropped").mkdir()
    shutil.copytree(public, tmp_path / "newer")
    publish.move(tmp_path / "newer", tree, tmp_path / "older")
    assert (tree / ".git").is_dir() and (tree / "CNAME").read_text() == "mine"
    assert not (tree / "chapters" / "99_gone.ipynb").exists() and not (tree / "dropped").exists()
