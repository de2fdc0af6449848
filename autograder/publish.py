"""The public tree: what readers and learners get, and nothing that gives an answer away."""

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import nbformat
from jinja2 import Environment, PackageLoader, StrictUndefined

from autograder import audit, book, release
from autograder.course import Project
from autograder.errors import CourseError

COPIED = ("LICENSE", "LICENSE-TEXT", "CITATION.cff")
# The list of what is ours in a public tree: the next publish replaces that and touches nothing else.
MANIFEST = ".published.json"
# Sphinx's own bookkeeping, of no use to a reader.
NOT_PAGES = shutil.ignore_patterns(".doctrees", ".buildinfo*", "objects.inv.bak")


def publish(project: Project, destination: Path, *, say: Callable[[str], None] = lambda line: None) -> Path:
    """The public tree at `destination`, replaced whole; CourseError, and nothing changed, if the audit finds a leak."""
    destination = destination.absolute()
    refuse_foreign(destination)
    if stale := release.release(project, check=True, say=say):
        raise CourseError(f"{', '.join(stale)}: not what solutions/ makes; run 'autograder release'")
    pages = book.build(project, say=say)
    destination.parent.mkdir(parents=True, exist_ok=True)
    # Beside the destination, so that it is moved there and not copied.
    with tempfile.TemporaryDirectory(prefix=f".{destination.name}-", dir=destination.parent) as scratch:
        tree = Path(scratch) / "tree"
        compose(project, pages, tree)
        say("looking for answers in it")
        refuse_leaks(project, tree)
        move(tree, destination, Path(scratch) / "old")
    say(f"{destination}: {sum(1 for file in destination.rglob('*') if file.is_file())} files, none of them an answer")
    return destination


def refuse_foreign(destination: Path) -> None:
    """CourseError unless the destination is free, empty but for a .git, or an earlier public tree."""
    if not destination.exists() or (destination / MANIFEST).is_file():
        return
    if not destination.is_dir() or {path.name for path in destination.iterdir()} - {".git"}:
        raise CourseError(f"{destination}: is not empty and no public tree of this course; name another folder")


def compose(project: Project, pages: Path, tree: Path) -> None:
    """Write the public tree, not yet audited, into a folder of its own."""
    tree.mkdir()
    shutil.copytree(pages, tree / "book", ignore=NOT_PAGES)
    (tree / "book" / ".nojekyll").touch()   # GitHub Pages drops folders that start with _ otherwise
    shutil.copytree(project.chapters, tree / "chapters", ignore=shutil.ignore_patterns(".*"))
    for name in COPIED:
        shutil.copy2(project.root / name, tree / name)
    (tree / "requirements.txt").write_text(learner_requirements((project.root / "requirements.txt").read_text()))
    (tree / "README.md").write_text(readme(project))
    names = sorted(path.relative_to(tree).as_posix() for path in tree.rglob("*") if path.is_file())
    (tree / MANIFEST).write_text(json.dumps(names, indent=0) + "\n")


def learner_requirements(text: str) -> str:
    """The first block of requirements.txt, up to the blank line: what a learner installs."""
    return text.split("\n\n", 1)[0].rstrip("\n") + "\n"


def readme(project: Project) -> str:
    """The front page of the public tree."""
    templates = Environment(loader=PackageLoader("autograder"), undefined=StrictUndefined, keep_trailing_newline=True,
                            autoescape=False)   # Markdown, from our own chapters
    titles = [title(project.chapter(slug)) for slug in project.slugs()]
    return templates.get_template("public-readme.md").render(titles=titles)


def title(chapter: Path) -> str:
    """The first heading of a notebook."""
    cells = nbformat.read(chapter, as_version=4).cells
    lines = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown").splitlines()
    return next((line.removeprefix("# ").strip() for line in lines if line.startswith("# ")), chapter.stem)


def refuse_leaks(project: Project, tree: Path) -> None:
    """CourseError if anything in the tree gives an answer away."""
    if leaks := audit.audit(project, tree):
        raise CourseError(f"not published: {leaks[0]}" + (f" and {len(leaks) - 1} more" if leaks[1:] else "")
                          + "; run 'autograder audit'")


def move(tree: Path, destination: Path, old: Path) -> None:
    """Put the finished tree where it belongs; what lies there besides the last public tree stays."""
    if not destination.exists():
        tree.replace(destination)
        return
    old.mkdir()
    manifest = destination / MANIFEST
    ours = {Path(name).parts[0] for name in json.loads(manifest.read_text())} if manifest.is_file() else set()
    # First of all the new list, so that a publish cut short is no foreign folder to the next one.
    for name in (MANIFEST, *sorted({path.name for path in tree.iterdir()} - {MANIFEST})):
        if (destination / name).exists():
            (destination / name).replace(old / name)
        (tree / name).replace(destination / name)
        ours.discard(name)
    for name in ours:
        if (destination / name).exists():
            (destination / name).replace(old / name)
