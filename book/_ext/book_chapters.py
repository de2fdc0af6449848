"""Chapter pages: the student edition with the outputs of the solved run put back, and the clean file to download."""

import hashlib
import re
from base64 import b64decode
from pathlib import Path

import nbformat
from docutils import nodes
from sphinx.util import logging

from autograder.book import executed_path
from autograder.course import Project
from autograder.errors import CourseError
from autograder.graft import graft

logger = logging.getLogger(__name__)


def is_chapter(docname: str) -> bool:
    return docname.startswith("chapters/")


def graft_chapter(app, docname, source):
    """Show the solved run in the student notebook; the file itself, which readers download, stays as it is."""
    if not is_chapter(docname):
        return
    slug = Path(docname).name
    executed = executed_path(Project(Path(app.srcdir)), slug)
    if not executed.is_file():
        logger.warning("its solved notebook has not been run; run 'autograder book'", location=docname)
        return
    try:
        page = graft(nbformat.reads(source[0], as_version=4), nbformat.read(executed, as_version=4), slug)
    except CourseError as problem:
        logger.warning("%s", problem, location=docname)
        return
    for cell in page.cells:
        refuse_stderr(cell, docname)
    app.env.temp_data["book_alts"] = dict(figures(page))
    source[0] = nbformat.writes(page)


def refuse_stderr(cell, docname):
    """A page shows no warning of a library: the chapter that causes it is not finished."""
    for output in cell.get("outputs", []):
        if output.get("name") == "stderr":
            said = re.sub(r"^\S+:\d+: ", "", " ".join(output.text.split()))
            logger.warning("cell '%s' prints to stderr: %s", cell.id, said, location=docname)
    if cell.cell_type == "code":
        cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]


def figures(page):
    """Each image output as the name that the page will give its file, and its alternative text ("" = none)."""
    for output in (output for cell in page.cells for output in cell.get("outputs", [])):
        for mime, data in output.get("data", {}).items():
            if mime.startswith("image/"):
                content = data.encode() if mime == "image/svg+xml" else b64decode(data)
                said = output.metadata.get("alt") or output.metadata.get(mime, {}).get("alt", "")
                yield hashlib.sha256(content).hexdigest(), said


def name_figures(app, doctree):
    """Give every figure its alternative text, and keep the theme's dark mode from painting behind it."""
    alts = app.env.temp_data.get("book_alts", {})
    for node in doctree.findall(nodes.image):
        name = Path(node["uri"]).stem
        if name in alts:
            node["alt"] = alts[name]
            node["classes"].append("dark-light")
        if not node.get("alt"):
            logger.warning("figure without alternative text; end its cell with show(fig, alt=…)", location=node)


def offer_notebook(app, doctree):
    """Under the chapter's title, the way from the page to the notebook."""
    docname = app.env.docname
    title = next(doctree.findall(nodes.title), None)
    if is_chapter(docname) and title is not None:
        name = f"{Path(docname).name}.ipynb"
        link = f'<a href="../_sources/chapters/{name}" download>Download this chapter as a notebook</a>'
        text = f'<p class="book-start">{link} and do its exercises in JupyterLab, VS Code or Colab.</p>'
        title.parent.insert(title.parent.index(title) + 1, nodes.raw("", text, format="html"))


def setup(app):
    app.connect("source-read", graft_chapter)
    app.connect("doctree-read", name_figures)
    app.connect("doctree-read", offer_notebook)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
