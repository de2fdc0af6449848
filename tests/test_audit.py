"""A part of an answer is found wherever it lies open, and what only looks like one is not."""

import base64
import gzip
import io
import json
import tarfile
import textwrap
import time
import urllib.parse
import zipfile
from html import escape
from pathlib import Path

import nbformat
import pytest
import tiny
from click.testing import CliRunner
from tiny import SLUG

from autograder import audit, needles, release, source, surface
from autograder.cli import main
from autograder.course import Course, Project

REPOSITORY = Project(Path(__file__).parents[1])
SOLUTION = """\
total = np.sum(weights, axis=-1, keepdims=True)
shares = weights / np.maximum(total, 1e-12)
return (shares * values).sum(axis=-1)
"""
TOTAL, SHARES, _ = SOLUTION.splitlines()
ONE_LINE = "np.sqrt(np.mean((values - values.mean()) ** 2))"
SCHEME = "Two points for naming the constant list, two for dividing by the total."
ANSWER = "Otherwise a constant list would not average to its own constant, whatever the weights are."
CHECK = 'check("spread", spread)'
SECRETS = {"solution": SOLUTION, "one-line solution": ONE_LINE, "hidden test": CHECK, "mark scheme": SCHEME,
           "model answer": ANSWER}
KINDS = {"one-line solution": "solution", "hidden test": "hidden tests"}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A released chapter, and a page about teaching."""
    project = tiny.project(tmp_path_factory.mktemp("project"))
    (project.book / "instructors.md").write_text("# Teaching\n\nWeights of a list are public words.\n")
    release.release(project)
    return project


@pytest.fixture(scope="module")
def search(project):
    return audit.Search(project)


def planted(search, name, content):
    """The kinds of secret found in one file."""
    data = content if isinstance(content, bytes) else content.encode()
    return {leak.kind for leak in search.leaks(surface.pieces(name, data))}


def notebook(*cells):
    return nbformat.writes(nbformat.v4.new_notebook(cells=list(cells)))


def code(source="", **more):
    return nbformat.v4.new_code_cell(source, **more)


def shown(**data):
    return code(outputs=[nbformat.v4.new_output("display_data", data)])


def page(body):
    return f"<!DOCTYPE html><html><head><title>Page</title></head><body><main>{body}</main></body></html>"


def highlighted(text):
    """Code as Sphinx writes it, each token in a tag of its own."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    return highlight(text, PythonLexer(), HtmlFormatter())


def indent(text):
    return textwrap.indent(text, "    ")


def zipped(name, text):
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, text)
    return held.getvalue()


def tarred(name, text):
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w:gz") as archive:
        info = tarfile.TarInfo(name)
        info.size = len(text.encode())
        archive.addfile(info, io.BytesIO(text.encode()))
    return held.getvalue()


def wrapped(data):
    return base64.encodebytes(data).decode()


PLACES = {
    "code cell": lambda text: ("a.ipynb", notebook(code(text))),
    "indented code cell": lambda text: ("a.ipynb", notebook(code(f"def f(values, weights):\n{indent(text)}"))),
    "markdown cell": lambda text: ("a.ipynb", notebook(nbformat.v4.new_markdown_cell(f"So:\n\n{text}\n\nEnd."))),
    "markdown quote": lambda text: ("a.ipynb", notebook(nbformat.v4.new_markdown_cell(
        "> ```python\n" + "".join(f"> {line}\n" for line in text.split("\n")) + "> ```"))),
    "folded hint": lambda text: ("a.ipynb", notebook(nbformat.v4.new_markdown_cell(
        f"<details><summary>Hint</summary>\n\n```python\n{text}\n```\n\n</details>"))),
    "raw cell": lambda text: ("a.ipynb", notebook(nbformat.v4.new_raw_cell(text))),
    "stream output": lambda text: ("a.ipynb", notebook(code(outputs=[nbformat.v4.new_output("stream", text=text)]))),
    "traceback": lambda text: ("a.ipynb", notebook(code(outputs=[nbformat.v4.new_output(
        "error", ename="E", evalue="e", traceback=text.split("\n"))]))),
    "result as repr": lambda text: ("a.ipynb", notebook(shown(**{"text/plain": repr(text)}))),
    "HTML output": lambda text: ("a.ipynb", notebook(shown(**{"text/html": highlighted(text)}))),
    "image's alt text": lambda text: ("a.ipynb", notebook(shown(**{
        "image/svg+xml": f'<svg><image alt="{escape(text)}"/></svg>'}))),
    "output metadata": lambda text: ("a.ipynb", notebook(code(outputs=[nbformat.v4.new_output(
        "display_data", {"text/plain": "1"}, metadata={"alt": text})]))),
    "cell metadata": lambda text: ("a.ipynb", notebook(code(metadata={"note": {"deep": [text, 1]}}))),
    "cell attachment": lambda text: ("a.ipynb", notebook(nbformat.v4.new_markdown_cell(
        "x", attachments={"a.txt": {"text/plain": wrapped(text.encode())}}))),
    "notebook metadata": lambda text: ("a.ipynb", json.dumps({"cells": [], "metadata": {"backup": text}, "nbformat": 4,
                                                              "nbformat_minor": 5})),
    "JSON with lines": lambda text: ("a.json", json.dumps({"x": text.splitlines(keepends=True)})),
    "highlighted page": lambda text: ("a.html", page(f'<div class="highlight">{highlighted(text)}</div>')),
    "paragraph": lambda text: ("a.html", page(f"<p>Now {escape(text)}</p>")),
    "emphasis": lambda text: ("a.html", page(" ".join(f"<em>{escape(word)}</em>" for word in text.split()))),
    "entities": lambda text: ("a.html", page("<p>" + "".join(f"&#{ord(char)};" for char in text) + "</p>")),
    "attribute": lambda text: ("a.html", page(f'<img alt="{escape(text)}" src="x.png">')),
    "comment": lambda text: ("a.html", page(f"<!-- {text} -->")),
    "script": lambda text: ("a.html", page(f"<script>const cells = {json.dumps([text])}</script>")),
    "data address": lambda text: ("a.html", page(f'<a href="data:text/plain,{urllib.parse.quote(text)}">x</a>')),
    "base64 address": lambda text: ("a.html", page(
        f'<a href="data:text/plain;base64,{base64.b64encode(text.encode()).decode()}">x</a>')),
    "page source": lambda text: (f"_sources/chapters/{SLUG}.ipynb", notebook(code(text))),
    "markdown source": lambda text: (f"_sources/chapters/{SLUG}.md.txt", f"# Title\n\n```python\n{text}\n```\n"),
    "title in the search index": lambda text: ("searchindex.js", "Search.setIndex(" + json.dumps(
        {"docnames": ["a"], "titles": [text], "terms": {}}) + ")"),
    "zip": lambda text: ("_downloads/a.zip", zipped(f"{SLUG}.ipynb", notebook(code(text)))),
    "zip in a zip": lambda text: ("a.zip", zipped("b.zip", zipped("c.txt", text))),
    "tar": lambda text: ("a.tar.gz", tarred("deep/solution.py", text)),
    "gzip": lambda text: ("a.ipynb.gz", gzip.compress(notebook(code(text)).encode())),
    "zip in base64 in a notebook": lambda text: ("a.ipynb", notebook(shown(**{
        "text/plain": wrapped(zipped("a.py", text))}))),
    "python file": lambda text: ("a.py", text),
    "file without a suffix": lambda text: ("notes", text),
    "UTF-16 file": lambda text: ("notes.txt", text.encode("utf-16")),
    "style sheet": lambda text: ("a.css", f"/* {text} */"),
}


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("place", PLACES)
def test_planted_leak_is_found(search, place, secret):
    name, content = PLACES[place](SECRETS[secret])
    assert planted(search, name, content) == {KINDS.get(secret, secret)}


@pytest.mark.parametrize("place", PLACES)
def test_public_text_in_the_same_place_is_no_leak(search, place):
    text = "weights = np.ones(3)\nprint(weigh(values, weights))"
    assert planted(search, *PLACES[place](text)) == set()


@pytest.mark.parametrize(("kind", "text"), [
    ("other layout", f"{TOTAL[:-1].replace(', ', ',   ')}\n   )\nshares = (weights\n  / np.maximum(total, 1e-12))"),
    ("comments between", f"{TOTAL}   # all\n# then\n{SHARES}"),
    ("first two of three", f"{TOTAL}\n{SHARES}"),
    ("last two of three", f"def f():\n    {SHARES}\n    return (shares * values).sum(axis=-1)"),
    ("inside a branch", f"if x:\n    for i in y:\n{indent(indent(SOLUTION))}"),
    ("one line under another name", "spread_of_it = np.sqrt(np.mean((values - values.mean()) ** 2))"),
    ("one line inside a call", "print(1 + np.sqrt(np.mean((values - values.mean())**2)))"),
    ("with semicolons", SOLUTION.replace("\n", "; ")),
    ("at a console's prompt", ">>> " + "\n>>> ".join(SOLUTION.splitlines())),
    ("below a magic", "%time\n" + SOLUTION),
    ("with a docstring inside", SOLUTION.replace("\nshares", '\n"""Then the shares."""\nshares')),
])
def test_copied_code_is_found_in_another_form(search, kind, text):
    assert planted(search, "a.ipynb", notebook(code(text))) == {"solution"}


@pytest.mark.parametrize(("kind", "text"), [
    ("the same idea in other words", "shares = w / w.sum()\nprint((shares * x).sum())"),
    ("one short statement of a longer answer", SHARES),
    ("other names", SOLUTION.replace("total", "mass").replace("shares", "parts").replace("values", "x")),
    ("the stub", 'def weigh(values, weights):\n    """Doc."""\n    # YOUR CODE HERE\n    raise NotImplementedError()'),
    ("a formula with fewer parts", "np.sqrt(np.mean(values ** 2))"),
    ("prose on the same subject", "A constant list averages to its own constant; name the total."),
    ("a call of what was built", "spread(values)\nweigh(values, weights)"),
    ("part of a check in prose", "the check of spread compares with numpy"),
])
def test_what_only_resembles_an_answer_is_no_leak(search, kind, text):
    assert planted(search, "a.ipynb", notebook(code(text), nbformat.v4.new_markdown_cell(text))) == set()


@pytest.mark.parametrize("marker", ["### BEGIN SOLUTION", "### END HIDDEN TESTS", "BEGIN MARK SCHEME"])
def test_marker_is_found(search, marker):
    assert planted(search, f"chapters/{SLUG}.ipynb", notebook(code(f"x = 1\n{marker}"))) == {"marker"}
    assert planted(search, f"html/chapters/{SLUG}.html", page(f"<p>{marker}</p>")) == {"marker"}


def test_page_about_teaching_may_show_markers_and_a_check_line_and_no_solution(search):
    text = f"<pre>### BEGIN HIDDEN TESTS\n{CHECK}\n### END HIDDEN TESTS</pre>"
    assert planted(search, "_build/html/book/instructors.html", page(text)) == set()
    assert planted(search, "_build/html/book/instructors.html", page(f"<pre>{SOLUTION}</pre>")) == {"solution"}
    assert planted(search, "_build/html/book/other.html", page(text)) == {"hidden tests", "marker"}


def index(words):
    return "Search.setIndex(" + json.dumps({"docnames": [f"chapters/{SLUG}"], "titles": ["x"],
                                            "terms": {word: [0] for word in words}, "titleterms": {}}) + ")"


def test_words_of_an_answer_in_the_search_index_are_found(search):
    words = ["otherwis", "whatev", "own", "weight", "averag", "would", "not"]
    assert planted(search, "searchindex.js", index(words)) == {"model answer"}
    assert planted(search, "searchindex.js", index(["two", "point", "name", "divid", "total"])) == {"mark scheme"}


def test_search_index_made_from_the_solved_chapter_is_found(project, search):
    solved = source.load(project, SLUG)
    words = set().union(*(needles.stems(cell.source) for cell in solved.cells))
    assert "words of the answers" in planted(search, "searchindex.js", index(words))
    words = set().union(*(needles.stems(cell.source) for cell in release.student_notebook(project, SLUG).cells))
    assert planted(search, "searchindex.js", index(words)) == set()


def test_public_words_in_the_search_index_are_no_leak(search):
    words = ["averag", "weight", "valu", "everi", "number", "own", "point"]
    assert planted(search, "searchindex.js", index(words)) == set()


def test_released_chapter_and_its_source_tell_public_from_secret(project, search):
    assert audit.audit(project) == []
    solved = release.dumps(release.source_notebook(project, SLUG))
    assert planted(search, "a.ipynb", solved) == {"solution", "hidden tests", "mark scheme", "model answer", "marker"}


def test_audit_looks_at_chapters_and_the_built_book(project):
    html = project.build / "html" / "_downloads"
    html.mkdir(parents=True)
    (html / "all.zip").write_bytes(zipped("a.py", SOLUTION))
    said = []
    try:
        leaks = audit.audit(project, say=said.append)
    finally:
        (html / "all.zip").unlink()
    assert said == ["chapters: looking", "_build/html: looking"]
    assert [(leak.where, leak.cell_id) for leak in leaks] == [("_build/html/_downloads/all.zip!a.py", "weigh")]
    assert str(leaks[0]).startswith(f"_build/html/_downloads/all.zip!a.py: shows the solution of solutions/{SLUG}.md, "
                                    "cell 'weigh': total = np.sum(")


def test_audit_looks_at_a_public_tree(project, tmp_path):
    (tmp_path / "README.md").write_text(f"# Course\n\nBy the way: {ANSWER}\n")
    assert [leak.kind for leak in audit.audit(project, tmp_path)] == ["model answer"]


# Cells that may say what an answer says

GIVEN = "def halve(x):\n    return x / 2"


def given(root, allowed, monkeypatch):
    """A project whose later chapter has a `given` cell that says what an exercise asks for."""
    answer = f"def halve(values, weights):\n{indent(SOLUTION.strip())}"
    project = tiny.project(root)
    (project.solutions / "04_later.md").write_text(tiny.changed((GIVEN, answer)))
    monkeypatch.setattr(audit, "ALLOWED", allowed)
    return project, answer


def test_given_cell_is_no_leak_where_it_is_allowed_by_id(tmp_path, monkeypatch):
    project, answer = given(tmp_path, {"04_later": {"halve": "the next chapter builds on it"}}, monkeypatch)
    search = audit.Search(project)
    for name, content in (("04_later.ipynb", notebook(code(answer))), ("04_later.html", page(highlighted(answer)))):
        assert planted(search, name, content) == set(), name
        assert planted(search, name.replace("04_later", SLUG), content) == {"solution"}, "not in an earlier chapter"
    both = notebook(code(answer), code(SOLUTION))
    assert planted(search, "04_later.ipynb", both) == {"solution"}, "not elsewhere in that chapter"


def test_tag_given_alone_allows_nothing(tmp_path, monkeypatch):
    project, answer = given(tmp_path, {}, monkeypatch)
    assert planted(audit.Search(project), "04_later.ipynb", notebook(code(answer))) == {"solution"}


def test_every_allowed_cell_exists_and_is_given():
    for slug in set(audit.ALLOWED) & set(REPOSITORY.slugs()):
        roles = {cell.id: source.role(cell) for cell in source.load(REPOSITORY, slug).cells}
        assert {roles.get(identity) for identity in audit.ALLOWED[slug]} <= {"given", "demo"}, slug


# Secrets of any nbgrader course, feedback

def test_hidden_asserts_of_another_course_are_secrets(tmp_path):
    cell = code("assert f(1) == 2\n### BEGIN HIDDEN TESTS\nassert abs(f(2.5) - 6.25) < 1e-9\n### END HIDDEN TESTS",
                metadata={"nbgrader": {"grade": True, "solution": False}})
    secrets = source.regions(nbformat.v4.new_notebook(cells=[cell]))
    assert [(secret.kind, secret.text) for secret in secrets] == [("hidden tests", "assert abs(f(2.5) - 6.25) < 1e-9")]
    assert source.public(nbformat.v4.new_notebook(cells=[cell])) == {cell.id: "assert f(1) == 2"}


@pytest.fixture
def course(project, tmp_path):
    """Two learners: one wrote our solution, one nothing; and feedback for both."""
    course = Course(tmp_path)
    solved = release.student_notebook(project, SLUG)
    answer = next(cell for cell in solved.cells if cell.id == "weigh")
    answer.source = f"def weigh(values, weights):\n{indent(SOLUTION)}"
    for student, theirs in (("ann", solved), ("ben", release.student_notebook(project, SLUG))):
        for folder in (course.source / SLUG, course.submitted / student / SLUG, course.feedback / student / SLUG):
            folder.mkdir(parents=True, exist_ok=True)
        nbformat.write(theirs, course.source / SLUG / f"{SLUG}.ipynb")
        nbformat.write(theirs, course.submitted / student / SLUG / f"{SLUG}.ipynb")
        text = "".join(f"<pre>{escape(cell.source)}</pre>" for cell in theirs.cells)
        (course.feedback / student / SLUG / f"{SLUG}.html").write_text(page(text))
    return course


def test_feedback_may_show_what_the_learner_wrote(project, course):
    assert audit.audit_feedback(project, course) == []


@pytest.mark.parametrize("secret", SECRETS)
def test_feedback_that_shows_a_secret_is_found(project, course, secret):
    path = course.feedback / "ben" / SLUG / f"{SLUG}.html"
    path.write_text(path.read_text() + f"<pre>{escape(SECRETS[secret])}</pre>")
    assert [leak.kind for leak in audit.audit_feedback(project, course)] == [KINDS.get(secret, secret)]


def test_feedback_that_shows_another_answer_is_found_though_the_learner_wrote_one(project, course):
    path = course.feedback / "ann" / SLUG / f"{SLUG}.html"
    path.write_text(path.read_text() + f"<pre>{ONE_LINE}</pre>")
    assert [leak.cell_id for leak in audit.audit_feedback(project, course)] == ["spread"]


# The command, the cost, the real thing

def test_command_lists_the_leaks_and_exits_1(project, tmp_path):
    def run(*arguments):
        return CliRunner().invoke(main, ["--project", str(project.root), "audit", *map(str, arguments)])

    clean = run()
    assert (clean.exit_code, clean.stdout.splitlines()[-1]) == (0, "nothing leaks")
    (tmp_path / "notes.txt").write_text(SCHEME)
    found = run(tmp_path)
    assert found.exit_code == 1
    assert f"{tmp_path}/notes.txt: shows the mark scheme of solutions/{SLUG}.md, cell 'why_one'" in found.stdout
    assert found.stderr.startswith("error: 1 leaks, listed above")


def test_eight_chapters_and_a_book_take_less_than_five_seconds(tmp_path):
    project = tiny.project(tmp_path)
    filler = "".join(f"\n```{{code-cell}}\nvalue_{n} = [{n}, 'word {n}', x * {n}]\n```\n\nProse {n} on {n * n} things, "
                     "with a formula $x^2$ and some words more.\n" for n in range(120))
    for number in range(1, 9):
        (project.solutions / f"{number:02}_part.md").write_text(tiny.CHAPTER + filler)
    project.source(SLUG).unlink()
    release.release(project)
    html = project.build / "html"
    (html / "_sources").mkdir(parents=True)
    for path in project.chapters.glob("*.ipynb"):
        (html / "_sources" / path.name).write_bytes(path.read_bytes())
        cells = nbformat.read(path, as_version=4).cells
        (html / f"{path.stem}.html").write_text(page("".join(highlighted(cell.source) for cell in cells) * 2))
    (html / "vendor.js").write_text("function a(b){return b+1}; // some code\n" * 50_000)
    start = time.process_time()
    assert audit.audit(project) == []
    assert time.process_time() - start < 5, "CPU seconds"


@pytest.mark.skipif(not REPOSITORY.slugs(), reason="no chapter is written yet")
def test_nothing_leaks_from_the_chapters_and_the_book_as_built():
    assert list(map(str, audit.audit(REPOSITORY))) == []
