"""The book: what runs when, what a page shows and hides, and that no problem of a build goes unseen."""

import asyncio
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from html import unescape
from pathlib import Path

import nbformat
import psutil
import pytest
import yaml
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from autograder import book
from autograder.cli import main
from autograder.course import Project
from autograder.errors import CourseError
from autograder.graft import graft
from autograder.release import release

PROJECT = Project.find(Path(__file__))
TINY = "01_tiny"
SECRET = "torch.diag(p) - torch.outer(p, p)"
SOURCE = """\
---
kernelspec: {display_name: Python 3, language: python, name: python3}
---
# 1 A tiny chapter

(aim)=
Why $\\sqrt{d_k}$? Ask {cite:t}`vaswani2017`, {doc}`../book/notation` or {ref}`aim <aim>`.

```{code-cell}
:tags: [setup]
%run setup.py
from autograder.checks import check
```

```{code-cell}
:tags: [demo]
print("six times seven is", 6 * 7)
fig, ax = plt.subplots()
ax.plot([1, 2, 3])
show(fig, alt="A line that rises from 1 to 3")
```

## Exercise 1.1 — the softmax Jacobian `softmax_jacobian` · 5 min · ●○○

```{code-cell}
:tags: [exercise]
:id: softmax_jacobian
def softmax_jacobian(p):
    \"\"\"Derivative of softmax at the weights p.\"\"\"
    ### BEGIN SOLUTION
    return torch.diag(p) - torch.outer(p, p)
    ### END SOLUTION
print("exercise", "ran")
```

:::{hint} The idea of $J$
One term lives on the diagonal only.
:::

```{code-cell}
:tags: [tests]
:id: softmax_jacobian-tests
:points: 2
print("tests", "ran")
expect(softmax_jacobian(torch.ones(2) / 2)[0, 1] < 0, "off the diagonal J is negative")
### BEGIN HIDDEN TESTS
check("softmax_jacobian", softmax_jacobian)
### END HIDDEN TESTS
```

```{code-cell}
:tags: [try]
print("tried:", softmax_jacobian(torch.ones(2) / 2).tolist())
```

:::{quiz} sums
question: What does a row of $J$ sum to?
options:
  - {text: "0", correct: true, why: "Raising all scores together changes nothing."}
  - {text: "1", correct: false, why: "The weights do."}
:::

+++ {"tags": ["written"], "id": "why", "points": 4}

Because it is so, says the model answer.

### BEGIN MARK SCHEME
Two points for the reason.
### END MARK SCHEME
"""


def shell(root: Path, pages: dict[str, str]) -> Project:
    """A project whose book is this one's, but for the pages between the first and the bibliography."""
    shutil.copytree(PROJECT.book, root / "book", ignore=shutil.ignore_patterns("__pycache__", "*.md"))
    shutil.copy(PROJECT.root / "_config.yml", root)
    for folder in ("solutions", "chapters"):
        (root / folder).mkdir()
    shutil.copy(PROJECT.solutions / "setup.py", root / "solutions")
    for name, text in {"book/intro": "# Front page", "book/notation": "# Notation", **pages}.items():
        (root / f"{name}.md").write_text(text)
    (root / "book" / "bibliography.md").write_text("# Bibliography\n\n```{bibliography}\n```\n")
    toc(root, ["book/notation", *(set(pages) - {"book/intro", "book/notation"}), "book/bibliography"])
    return Project(root)


def toc(root: Path, names: list[str]) -> None:
    (root / "_toc.yml").write_text(yaml.safe_dump(
        {"format": "jb-book", "root": "book/intro", "chapters": [{"file": name} for name in names]}))


# What runs, and when


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Project:
    """A project with one small chapter of every kind of cell, its book built once."""
    project = shell(tmp_path_factory.mktemp("tiny"), {})
    config = (project.root / "_config.yml").read_text()
    for setting, value in ((" url", "https://github.com/someone/course"), ("colab_url", "https://colab.research.google.com")):
        config = config.replace(f'{setting}: ""', f'{setting}: "{value}"')
    (project.root / "_config.yml").write_text(config)
    project.source(TINY).write_text(SOURCE)
    toc(project.root, ["book/notation", f"chapters/{TINY}", "book/bibliography"])
    release(project)
    book.build(project)
    return project


@pytest.fixture(scope="module")
def page(tiny) -> str:
    return (tiny.build / "html" / "chapters" / f"{TINY}.html").read_text()


def forbid(*args, **kwargs):
    raise AssertionError("this should not have run")


def test_book_that_has_not_changed_is_not_built_again(tiny, monkeypatch):
    for work in ("run", "_jupyter_book"):
        monkeypatch.setattr(book, work, forbid)
    assert book.build(tiny) == tiny.build / "html"


@pytest.mark.parametrize("name", ["_config.yml", "_toc.yml", "book/intro.md", "book/_ext/book_folds.py",
                                  "book/_static/book.css", f"chapters/{TINY}.ipynb"])
def test_change_of_any_part_builds_the_book_again(name, tiny):
    before = book._digest(book._inputs(tiny), book.BUILDS)
    path = tiny.root / name
    text = path.read_text()
    path.write_text(text + "\n")
    try:
        assert book._digest(book._inputs(tiny), book.BUILDS) != before
    finally:
        path.write_text(text)


def test_chapter_runs_again_only_when_source_or_setup_changed(tiny, monkeypatch):
    monkeypatch.setattr(book, "run", forbid)
    book.execute(tiny, TINY)
    for path in (tiny.source(TINY), tiny.solutions / "setup.py"):
        text = path.read_text()
        path.write_text(text.replace("# ", "#  ", 1))
        with pytest.raises(AssertionError, match="should not have run"):
            book.execute(tiny, TINY)
        path.write_text(text)


def test_chapter_runs_again_with_another_torch(tiny, monkeypatch):
    monkeypatch.setattr(book, "run", forbid)
    book.execute(tiny, TINY)
    monkeypatch.setattr(book.metadata, "version", lambda name: "0.0")
    with pytest.raises(AssertionError, match="should not have run"):
        book.execute(tiny, TINY)


@pytest.fixture
def two(tmp_path, monkeypatch) -> Project:
    """A project of two chapters, and two cores."""
    project = shell(tmp_path, {})
    for slug in (TINY, "02_tiny"):
        project.source(slug).write_text(SOURCE)
    toc(project.root, [f"chapters/{TINY}", "chapters/02_tiny"])
    monkeypatch.setattr(book, "cores", lambda: 2)
    monkeypatch.setattr(book, "_jupyter_book", lambda *_, **__: [])
    return project


def test_chapters_run_side_by_side(two, monkeypatch):
    running = []

    async def run(notebook, name, **_):
        running.append(name)
        async with asyncio.timeout(60):
            while len(running) < 2:
                await asyncio.sleep(0.01)

    monkeypatch.setattr(book, "run", run)
    book.build(two)
    assert all(book.executed_path(two, slug).is_file() for slug in (TINY, "02_tiny"))


def test_chapter_that_fails_ends_the_build_and_what_runs_beside_it(two, monkeypatch):
    ended = []

    async def run(notebook, name, **_):
        if TINY in name:
            raise CourseError(f"{name}: cell 'a' failed")
        try:
            await asyncio.sleep(600)
        finally:
            ended.append(name)

    monkeypatch.setattr(book, "run", run)
    with pytest.raises(CourseError, match=f"{TINY}.md: cell 'a' failed"):
        book.build(two)
    assert ended == ["solutions/02_tiny.md"] and not book.executed_path(two, "02_tiny").is_file()


def test_chapters_run_where_a_loop_runs_already(two, monkeypatch):
    async def run(*_, **__):
        await asyncio.sleep(0)

    async def within():
        return book.build(two)

    monkeypatch.setattr(book, "run", run)
    asyncio.run(within())
    assert book.executed_path(two, TINY).is_file()


LOOPS = """\
import sys
from autograder import book
from autograder.course import Project
from pathlib import Path
book.cores, book._jupyter_book = lambda: 2, lambda *_, **__: []
book.build(Project(Path(sys.argv[1])), say=lambda line: print(line, flush=True))
"""


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_build_that_is_interrupted_leaves_no_kernel(sent, two):
    endless = SOURCE.replace('print("six times seven is", 6 * 7)', "import time\ntime.sleep(600)")
    for slug in (TINY, "02_tiny"):
        two.source(slug).write_text(endless)
    building = subprocess.Popen([sys.executable, "-c", LOOPS, str(two.root)], stdout=subprocess.PIPE, text=True,
                                stderr=subprocess.DEVNULL)
    try:
        assert all("running cell" in building.stdout.readline() for _ in range(2))
        kernels = psutil.Process(building.pid).children(recursive=True)
        assert len(kernels) == 2
        time.sleep(3)   # past the set-up, in the endless cell
        building.send_signal(sent)
        assert building.wait(60) != 0
    finally:
        building.kill()
        building.communicate()
    assert psutil.wait_procs(kernels, timeout=30)[1] == []


def test_failing_cell_is_an_error_that_names_file_cell_and_reason():
    notebook = new_notebook(cells=[new_code_cell("1 + 1", id="good"), new_code_cell("[][3]", id="bad")])
    with pytest.raises(CourseError, match=r"09_x\.md: cell 'bad' failed with IndexError: list index out of range"):
        asyncio.run(book.run(notebook, "09_x.md"))


@pytest.mark.parametrize(("code", "said"), [
    ("import time\ntime.sleep(60)", "cell 'bad' ran longer than 1 s"),
    ("import os\nos._exit(1)", "the kernel died in cell 'bad'"),
])
def test_cell_that_never_ends_or_kills_the_kernel_is_an_error(code, said, monkeypatch):
    monkeypatch.setattr(book, "CELL_SECONDS", 1)
    notebook = new_notebook(cells=[new_code_cell("1 + 1", id="good"), new_code_cell(code, id="bad")])
    with pytest.raises(CourseError, match=f"x.md: {said}"):
        asyncio.run(book.run(notebook, "x.md"))


def test_notebook_runs_in_one_thread_in_an_empty_directory():
    notebook = new_notebook(cells=[new_code_cell("import os\nprint(os.listdir(), os.environ['OMP_NUM_THREADS'])")])
    asyncio.run(book.run(notebook, "x.md"))
    assert notebook.cells[0].outputs[0].text == "[] 1\n"


def test_progress_is_said_at_once_and_then_every_two_seconds(monkeypatch):
    said, clock = [], iter([0.0, 0.0, 0.5, 1.9, 2.0, 2.0, 3.9])
    monkeypatch.setattr(book.time, "monotonic", lambda: next(clock))
    say = book.now_and_then(said.append)
    for line in ("0 s", "0.5 s", "1.9 s", "2 s", "3.9 s"):
        say(line)
    assert said == ["0 s", "2 s"]


def test_missing_chapter_is_an_error_that_names_the_chapters(tiny):
    with pytest.raises(CourseError, match=r"solutions/05_gone\.md: not there; the chapters are 01_tiny"):
        book.execute(tiny, "05_gone")


# What a chapter's page shows, and what it hides


def test_page_shows_the_output_of_what_is_not_graded(page):
    for printed in ("six times seven is 42", "tried: [[0.25, -0.25], [-0.25, 0.25]]"):
        assert printed in page


def test_page_shows_no_output_of_a_graded_cell(page):
    assert "exercise ran" not in page and "tests ran" not in page


def test_answers_are_nowhere_in_the_book(tiny):
    secrets = (SECRET, 'check("softmax_jacobian"', "model answer", "Two points for the reason")
    for path in (tiny.build / "html").rglob("*"):
        if path.is_file():
            text = unescape(re.sub("<[^>]*>", "", path.read_bytes().decode("utf-8", "replace")))
            assert not [secret for secret in secrets if secret in text], path


def test_built_book_does_not_know_where_it_was_built(tiny):
    for path in (tiny.build / "html").rglob("*"):
        assert path.is_dir() or str(tiny.root).encode() not in path.read_bytes(), path


def test_exercise_shows_its_stub_without_a_traceback(page):
    text = unescape(re.sub("<[^>]*>", "", page))
    assert "def softmax_jacobian(p):" in text and "raise NotImplementedError(" in text
    assert "Traceback" not in text and "output traceback" not in page


def test_points_stand_above_the_tests_and_the_written_answer(page):
    assert "<strong>2 points</strong> · the visible tests" in page
    assert "<strong>4 points</strong> · your answer, in words" in page


def test_exercise_heading_shows_name_minutes_and_difficulty(page):
    heading = re.sub("<[^>]*>", "", re.search(r"<h2>(Exercise.*?)</h2>", page)[1])
    assert heading.startswith("Exercise 1.1 — the softmax Jacobian softmax_jacobian · 5 min · ●○○")


def test_figure_has_the_alternative_text_of_its_cell(page):
    assert [re.search('alt="([^"]*)"', tag)[1] for tag in re.findall("<img[^>]*>", page) if "_images" in tag] == [
        "A line that rises from 1 to 3"]


def test_hints_and_options_are_closed_details(page):
    folds = re.findall(r"<details[^>]*book-(?:hint|option)[^>]*>", page)
    assert len(folds) == 3 and not [fold for fold in folds if " open" in fold]
    assert re.search(r"<summary><strong>Hint</strong>: The idea of <span class=\"math[^>]*>J</span></summary>", page)
    assert "✓ <strong>Right.</strong>" in page and "✗ <strong>Not so.</strong>" in page


def test_setup_is_folded(page):
    assert "Show the set-up that every chapter shares" in page


def test_citations_and_references_are_links(page):
    assert "bibliography.html#id" in page and "notation.html" in page and 'href="#aim"' in page


def test_download_is_the_clean_student_notebook(tiny, page):
    links = set(re.findall(r'href="(\.\./_sources/[^"]*\.ipynb)"', page))
    assert links == {f"../_sources/chapters/{TINY}.ipynb"}
    served = tiny.build / "html" / "_sources" / "chapters" / f"{TINY}.ipynb"
    assert served.read_bytes() == tiny.chapter(TINY).read_bytes()


def test_colab_button_needs_only_the_address_of_the_repository(page):
    assert f"https://colab.research.google.com/github/someone/course/blob/main/chapters/{TINY}.ipynb" in page


def test_own_config_has_no_launch_button():
    config = yaml.safe_load((PROJECT.root / "_config.yml").read_text())
    assert config["repository"]["url"] == "" and config["launch_buttons"]["colab_url"] == ""


def pair(*changes):
    """A student and an executed notebook of a demo and an exercise; changes are applied to the student's cells."""
    image = new_output("display_data", data={"image/png": "aGk="}, metadata={"alt": "a"})
    tagged = {"tags": ["exercise"], "nbgrader": {"solution": True, "grade": False, "grade_id": "f"}}
    executed = new_notebook(cells=[new_markdown_cell(":::{hint}\nx\n:::", id="t"),
                                   new_code_cell("1", id="d", outputs=[image]),
                                   new_code_cell("def f(): return 7", id="f", outputs=[image], metadata=tagged)])
    student = nbformat.from_dict(executed)
    for cell in student.cells[1:]:
        cell.outputs = []
    student.cells[0].source, student.cells[2].source = "plain", "def f(): ..."
    for change in changes:
        change(student.cells)
    return student, executed


def test_graft_puts_back_rich_text_and_ungraded_outputs_only():
    student, executed = pair()
    shown = graft(student, executed, "01_x").cells
    assert [cell.source for cell in shown if cell.id in "tdf"] == [":::{hint}\nx\n:::", "1", "def f(): ..."]
    assert [len(cell.get("outputs", [])) for cell in shown if cell.id in "tdf"] == [0, 1, 0]
    assert student.cells[0].source == "plain", "the notebook that it was given stays as it was"


@pytest.mark.parametrize(("change", "named"), [
    (lambda cells: cells[1].update(source="2"), "d"),
    (lambda cells: cells.pop(1), "d"),
    (lambda cells: cells.append(new_code_cell("3", id="extra")), "extra"),
], ids=["edited", "missing", "added"])
def test_stale_chapter_is_named(change, named):
    with pytest.raises(CourseError, match=rf"chapters/01_x\.ipynb: cell '{named}' .* run 'autograder release'"):
        graft(*pair(change), "01_x")


# No problem goes unseen

FAULTS = {
    "broken reference": ("{ref}`nowhere`", "undefined label: 'nowhere'"),
    "bad directive": (":::{nosuch}\n:::", "Unknown directive type: 'nosuch'"),
    "missing citation": ("{cite:p}`nobody2099`", 'could not find bibtex key "nobody2099"'),
    "missing figure": ("![A figure](missing.png)", "image file not readable: book/missing.png"),
    "figure without alternative text": ("![](_static/favicon.svg)", "figure without alternative text"),
    "unknown term": ("{term}`phlogiston`", "term not in glossary: 'phlogiston'"),
    "broken quiz": (":::{quiz} q\nquestion: x\n:::", "quiz 'q': write 'question: …'"),
}


@pytest.fixture(scope="module")
def faulty(tmp_path_factory) -> tuple[Project, str]:
    """A project with every fault on a page of its own, and what its build said."""
    pages = {f"book/fault{at}": f"# Page {at}\n\n{fault}\n" for at, (fault, _) in enumerate(FAULTS.values())}
    project = shell(tmp_path_factory.mktemp("faulty"), pages)
    with pytest.raises(CourseError) as problem:
        book.build(project)
    return project, str(problem.value)


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_fault_is_listed_with_its_page(fault, faulty):
    page = f"book/fault{list(FAULTS).index(fault)}.md"
    said = [line for line in faulty[1].splitlines() if page in line]
    assert len(said) == 1 and FAULTS[fault][1] in said[0], faulty[1]


def test_message_counts_the_problems(faulty):
    assert faulty[1].splitlines()[0] == f"book: {len(FAULTS)} problems; mend each:"
    assert len(faulty[1].splitlines()) == len(FAULTS) + 1


@pytest.mark.parametrize("fault", ["broken reference", "bad directive", "missing citation", "missing figure"])
def test_planted_fault_alone_fails_the_build(fault, tmp_path):
    text, message = FAULTS[fault]
    project = shell(tmp_path, {"book/notation": f"# Notation\n\n{text}\n"})
    with pytest.raises(CourseError, match=re.escape(message)):
        book.build(project)


def test_second_build_sees_the_same_problems(faulty):
    with pytest.raises(CourseError) as problem:
        book.build(faulty[0])
    assert str(problem.value) == faulty[1]


def test_wrong_setting_fails_the_build_though_jupyter_book_passes_it(tmp_path):
    project = shell(tmp_path, {})
    config = project.root / "_config.yml"
    config.write_text(config.read_text().replace("home_page_in_navbar: true", 'home_page_in_navbar: "yes"'))
    with pytest.raises(CourseError, match="_config.yml: 'yes' is not of type 'boolean'"):
        book.build(project)


def test_malformed_toc_is_said_in_one_line(tmp_path):
    project = shell(tmp_path, {})
    (project.root / "_toc.yml").write_text("format: jb-book\nroot: book/intro\nchapters: []\n")
    with pytest.raises(CourseError, match="exit code 1: .*'chapters' not a non-empty list"):
        book.build(project)


def test_extension_that_breaks_is_told_beside_the_warnings(tmp_path):
    project = shell(tmp_path, {"book/notation": "# Notation\n\n:::{nosuch}\n:::\n"})
    with (project.book / "_ext" / "book_theme.py").open("a") as extension:
        extension.write("\n\ndef drop_unused(*_):\n    raise ZeroDivisionError('broken on purpose')\n")
    with pytest.raises(CourseError, match="(?s)2 problems.*Unknown directive type.*broken on purpose"):
        book.build(project)


def test_chapter_that_was_never_run_is_a_problem_of_the_page(tmp_path):
    project = shell(tmp_path, {})
    nbformat.write(new_notebook(cells=[new_markdown_cell("# 2 Not run", id="a")]), project.chapter("02_stray"))
    toc(project.root, ["book/notation", "chapters/02_stray", "book/bibliography"])
    found = book._jupyter_book(project, say=book.quiet)
    assert len(found) == 1 and "chapters/02_stray.ipynb: WARNING: its solved notebook has not been run" in found[0]


@pytest.mark.parametrize(("named", "said"), [([], "none"), (["02_stray", TINY], f"02_stray, {TINY}")])
def test_toc_that_lacks_a_chapter_or_has_one_too_many_stops_the_build(named, said, tmp_path):
    project = shell(tmp_path, {})
    project.source(TINY).write_text(SOURCE)
    toc(project.root, [f"chapters/{name}" for name in named])
    with pytest.raises(CourseError, match=f"_toc.yml: names the chapters {said}; for .*'- file: chapters/{TINY}'"):
        book.build(project)


# The pages of this book


def test_toc_names_the_chapters_that_exist_in_order():
    parts = yaml.safe_load((PROJECT.root / "_toc.yml").read_text())["parts"]
    files = [chapter["file"] for part in parts for chapter in part["chapters"]]
    assert [name for name in files if name.startswith("chapters/")] == [f"chapters/{slug}" for slug in PROJECT.slugs()]
    assert sorted(name for name in files if name.startswith("book/")) == sorted(
        f"book/{path.stem}" for path in PROJECT.book.glob("*.md") if path.stem != "intro")


@pytest.mark.parametrize("name", ["errata", "notation"])
def test_code_on_a_page_prints_what_the_page_says(name, capsys):
    text = (PROJECT.book / f"{name}.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```\n(?:```text\n(.*?)```\n)?", text, re.DOTALL)
    space: dict[str, object] = {}
    assert blocks
    for code, printed in blocks:
        exec(code, space)
        assert capsys.readouterr().out == printed, code


def test_every_source_of_the_bibliography_has_a_link():
    text = (PROJECT.book / "references.bib").read_text()
    entries = re.findall(r"^@\w+\{(\w+),\n(.*?)^\}", text, re.MULTILINE | re.DOTALL)
    assert len(entries) == text.count("\n@")
    assert len({key for key, _ in entries}) == len(entries), "a key is used twice"
    assert [key for key, entry in entries if "url " not in entry and "doi " not in entry] == []


def test_every_command_that_a_page_names_exists():
    text = "".join(path.read_text() for path in PROJECT.book.glob("*.md"))
    named = set(re.findall(r"`autograder (\w+)", text))
    assert named >= {"init", "grade", "feedback", "report", "release", "book", "publish", "audit"}
    assert named <= set(main.commands)
    parameters = [parameter for command in main.commands.values() for parameter in command.params]
    options = {option for parameter in parameters for option in parameter.opts} | {"--help"}
    assert set(re.findall(r"`(--[a-z]+)`", text)) <= options


def test_stamp_is_written_only_by_a_build_without_problems(tiny, faulty):
    assert json.loads((tiny.build / "book.json").read_text())
    assert not (faulty[0].build / "book.json").exists()
