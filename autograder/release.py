"""The student notebooks, made by nbgrader's own generate_assignment."""

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from autograder import links, source, trees
from autograder.course import Project
from autograder.errors import CourseError

# What stands in a notebook in place of an answer; its text is what a learner reads who runs the tests first.
STUB = '# YOUR CODE HERE\nraise NotImplementedError("still to be written: put your code in place of this line")'


def source_notebook(project: Project, slug: str) -> NotebookNode:
    """The solved notebook as a course's `source/` holds it: plain Markdown, stamped with its release."""
    notebook = source.lowered(source.load(project, slug), links.find(project))
    notebook.metadata["course"]["release"] = hashlib.sha256(dumps(notebook).encode()).hexdigest()[:12]
    return notebook


def student_notebook(project: Project, slug: str) -> NotebookNode:
    """The notebook that a learner gets: solutions, hidden tests, mark schemes and outputs gone."""
    return generate_assignment(source_notebook(project, slug), project.name(project.source(slug)))


def generate_assignment(notebook: NotebookNode, name: str) -> NotebookNode:
    """What `nbgrader generate_assignment --no-db` makes of a source notebook in a course of ours.

    `name` is what errors call it.
    """
    # Slow to import, and reading names and paths should not wait for it.
    from nbconvert.exporters import NotebookExporter
    from nbgrader.converters import GenerateAssignment
    from nbgrader.coursedir import CourseDirectory
    from traitlets.config import Config

    config = Config({"Exporter": {"default_preprocessors": []}, "SaveCells": {"enabled": False},
                     "ClearSolutions": {"code_stub": {"python": STUB}}})
    exporter = NotebookExporter(config=config)
    for preprocessor in GenerateAssignment(coursedir=CourseDirectory()).preprocessors:
        exporter.register_preprocessor(preprocessor)
    try:
        text, _ = exporter.from_notebook_node(nbformat.from_dict(notebook))
    except Exception as problem:   # nbgrader raises RuntimeError, ValidationError and others
        raise CourseError(f"{name}: nbgrader cannot release it ({problem}); mend the source") from problem
    made = nbformat.reads(text, as_version=4)
    _check_release(made, name)
    return made


def _check_release(notebook: NotebookNode, name: str) -> None:
    nbformat.validate(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            try:
                trees.parse(cell.source)
            except SyntaxError as problem:
                raise CourseError(f"{name}: cell '{cell.id}': without its solution it is no Python ({problem.msg}); "
                                  "put the markers around whole statements") from problem


def dumps(notebook: NotebookNode) -> str:
    """A notebook's one text form: sorted keys, UTF-8 as it is, a newline at the end."""
    return nbformat.writes(notebook).rstrip("\n") + "\n"


def release(project: Project, *, check: bool = False, say: Callable[[str], None] = lambda line: None) -> list[str]:
    """Bring chapters/ up to date; the names of the files that were stale, with `check` left as they are."""
    stale = []
    slugs = project.slugs()
    wanted = {project.chapter(slug): slug for slug in slugs}
    for path, slug in wanted.items():
        say(f"{slug}: reading {project.name(project.source(slug))}")
        made = dumps(student_notebook(project, slug)).encode()
        stale += _put(project, path, made, check=check, say=say)
    for path in sorted(project.chapters.glob("*.ipynb")):
        if path not in wanted:
            stale += _put(project, path, None, check=check, say=say)
    return stale + _release_data(project, check=check, say=say)


def _release_data(project: Project, *, check: bool, say: Callable[[str], None]) -> list[str]:
    """chapters/data is a copy of solutions/data."""
    ours, theirs = project.solutions / "data", project.chapters / "data"
    files = {path.relative_to(ours): path for path in sorted(ours.rglob("*")) if path.is_file()}
    stale = []
    for name, path in files.items():
        stale += _put(project, theirs / name, path.read_bytes(), check=check, say=say)
    for path in sorted(theirs.rglob("*")):
        if path.is_file() and path.relative_to(theirs) not in files:
            stale += _put(project, path, None, check=check, say=say)
    if theirs.is_dir() and not files and not check:
        shutil.rmtree(theirs)
    return stale


def _put(project: Project, path: Path, content: bytes | None, *, check: bool, say: Callable[[str], None]) -> list[str]:
    """Write (or remove, for None) one generated file; its name if it was not so already."""
    there = path.read_bytes() if path.is_file() else None
    if there == content:
        return []
    if not check and content is None:
        path.unlink()
    elif not check and content is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    say(f"{project.name(path)}: " + ("stale" if check else "removed" if content is None else "written"))
    return [project.name(path)]
