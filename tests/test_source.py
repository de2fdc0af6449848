"""A source becomes the notebook that it says; a malformed one an error that names the file, the cell and the cure."""

import copy
import hashlib
import json
import re

import nbformat
import pytest
import tiny
from nbgrader.nbgraderformat import MetadataValidator
from tiny import SLUG, changed, prose

from autograder import links, lower, source
from autograder.course import Course, Project
from autograder.errors import CourseError
from autograder.syntax import marker_like


@pytest.fixture
def notebook(tmp_path):
    return source.load(tiny.project(tmp_path), SLUG)


def cell(notebook, identity):
    return next(one for one in notebook.cells if one.id == identity)


def refusal(tmp_path, chapter, **project):
    """The one line that a malformed chapter is refused with."""
    with pytest.raises(CourseError) as caught:
        source.load(tiny.project(tmp_path, chapter, **project), SLUG)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# What a source becomes

def test_loaded_notebook_is_valid_for_jupyter_and_nbgrader(notebook):
    nbformat.validate(notebook)
    MetadataValidator().validate_nb(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    assert notebook.metadata.kernelspec.name == "python3"
    assert notebook.metadata.course == {"chapter": SLUG, "minutes": 60}
    assert "jupytext" not in notebook.metadata


def test_setup_cell_holds_the_text_of_setup_py(notebook):
    assert cell(notebook, "setup").source == tiny.SETUP.strip()


@pytest.mark.parametrize(("identity", "grade", "solution", "locked", "points"), [
    ("weigh", False, True, False, None),
    ("weigh-core-tests", True, False, True, 2),
    ("weigh-edge-tests", True, False, True, 1.5),
    ("why_one", True, True, False, 4),
    ("halve", False, False, True, None),
])
def test_role_becomes_nbgrader_metadata(notebook, identity, grade, solution, locked, points):
    said = cell(notebook, identity).metadata.nbgrader
    assert (said.grade, said.solution, said.locked, said.get("points")) == (grade, solution, locked, points)
    assert said.grade_id == identity
    assert said.schema_version == 3


def test_other_cells_carry_no_nbgrader_metadata(notebook):
    plain = [one for one in notebook.cells if source.role(one) in (None, "setup", "demo", "try")]
    assert len(plain) == 8
    assert all("nbgrader" not in one.metadata for one in plain)


def test_tags_stay_on_the_cell(notebook):
    roles = [source.role(one) for one in notebook.cells if source.role(one)]
    assert roles == ["setup", "exercise", "tests", "tests", "exercise", "tests", "written", "given", "demo", "try"]
    assert [one.metadata.tags for one in notebook.cells if source.role(one) == "demo"] == [["demo", "timed"]]


def test_hidden_line_is_one_that_stock_nbgrader_can_run(notebook):
    assert 'from autograder.checks import check; check("weigh", weigh, part="core")\n' in cell(
        notebook, "weigh-core-tests").source


def test_cell_without_an_id_gets_one_from_its_content(notebook):
    made = [one.id for one in notebook.cells if one.source == "x = 1"]
    first = "t-" + hashlib.sha1(b"code\nx = 1").hexdigest()[:8]
    assert made == [first, f"{first}-2"]


def test_loading_twice_gives_the_same_notebook(tmp_path, notebook):
    assert source.load(Project(tmp_path), SLUG) == notebook


def test_ids_stay_where_other_cells_change(tmp_path, notebook):
    other = source.load(tiny.project(tmp_path / "other", prose("Another text.")), SLUG)
    assert sum(one.id != two.id for one, two in zip(notebook.cells, other.cells, strict=True)) == 1


def test_regions_are_every_secret_and_nothing_else(notebook):
    found = [(secret.kind, secret.cell_id) for secret in source.regions(notebook)]
    assert found == [("solution", "weigh"), ("hidden tests", "weigh-core-tests"), ("hidden tests", "weigh-edge-tests"),
                     ("solution", "spread"), ("hidden tests", "spread-tests"), ("mark scheme", "why_one"),
                     ("model answer", "why_one")]
    assert source.regions(notebook)[5].text.startswith("Two points for")


def test_public_text_is_all_but_the_secrets(notebook):
    shown = source.public(notebook)
    assert shown["why_one"] == ""
    assert shown["weigh"].endswith('weights (n,)."""')
    assert not any(secret.text in "\n".join(shown.values()) for secret in source.regions(notebook))


# What is refused. Each entry: what is changed, which cell is named, words of the problem and of the cure.

SPREAD = ":id: spread-tests\n:points: 1\n"
MALFORMED = {
    "unknown tag": ([("[demo, timed]", "[demmo]")], "code", "unknown tag 'demmo'", "use one of setup, exercise"),
    "unknown field": ([(":points: 2", ":points: 2\n:grade: 1")], "weigh-core-tests", "unknown field 'grade'", "only"),
    "two roles": ([("[try]", "[try, demo]")], "try", "two roles, try and demo", "remove"),
    "field given twice": ([(":points: 2\n", ":points: 2\n:points: 3\n")], "weigh-core-tests", "twice", "remove"),
    "exercise without tests": (
        [(":tags: [tests]\n" + SPREAD, ":tags: [try]\n"),
         ('### BEGIN HIDDEN TESTS\ncheck("spread", spread)\n### END HIDDEN TESTS', "1")],
        "spread", "without a tests cell", "add one with ':id: spread-tests'"),
    "tests without exercise": (
        [(":id: spread-tests", ":id: sprea-tests"), ('check("spread", spread)', 'check("sprea", sprea)')],
        "sprea-tests", "tests without an exercise", "':id: sprea'"),
    "edge without core": (
        [(":id: weigh-core-tests", ":id: weigh-edge2"), ("[tests]", "[given]"), (":points: 2\n", ""),
         ('### BEGIN HIDDEN TESTS\ncheck("weigh", weigh, part="core")\n### END HIDDEN TESTS', "1")],
        "weigh", "core and an edge go together", "weigh-core-tests"),
    "whole and part": (
        [(":id: weigh-core-tests", ":id: weigh-tests"), (', part="core"', "")], "weigh", "the whole and for a part",
        "remove"),
    "id of a tests cell": ([(":id: spread-tests", ":id: spread-test")], "spread-test", "id is NAME-tests", "rename"),
    "tests above the exercise": (
        [("```{code-cell}\n:tags: [exercise]\n:id: spread\ndef spread(values):\n    ### BEGIN SOLUTION\n"
          "    return np.sqrt(np.mean((values - values.mean()) ** 2))\n    ### END SOLUTION\n```\n", ""),
         ("Why do the weights", "```{code-cell}\n:tags: [exercise]\n:id: spread\ndef spread(values):\n"
          "    ### BEGIN SOLUTION\n    return 1\n    ### END SOLUTION\n```\nWhy do the weights")],
        "spread-tests", "above their exercise", "move"),
    "duplicate id": ([(":id: halve", ":id: spread")], "spread", "used 2 times", "its own"),
    "duplicate of a made id": ([(":id: halve", ":id: setup"), ("def halve", "def setup")], "setup", "used", "its own"),
    "exercise without an id": ([(":id: weigh\n", "")], "exercise", "need an id", "add ':id: NAME'"),
    "written without an id": ([('"id": "why_one", ', "")], "written", "need an id", '"id": "NAME"'),
    "id with a space": ([(":id: halve", ":id: ha lve")], "ha lve", "an id is a letter", "change"),
    "id that is a number": ([(":id: halve", ":id: 12")], "12", "an id is a letter", "change"),
    "points missing": ([(":points: 2\n", "")], "weigh-core-tests", "need points", "add ':points: 2'"),
    "points missing, written": ([(', "points": 4', "")], "why_one", "need points", 'add "points": 2'),
    "points zero": ([(":points: 2", ":points: 0")], "weigh-core-tests", "positive number, got 0", "change"),
    "points negative": ([(":points: 2", ":points: -1")], "weigh-core-tests", "positive number, got -1", "change"),
    "points a word": ([(":points: 2", ":points: two")], "weigh-core-tests", "positive number, got 'two'", "change"),
    "points true": ([(":points: 2", ":points: true")], "weigh-core-tests", "positive number, got True", "change"),
    "points infinite": ([(":points: 2", ":points: .inf")], "weigh-core-tests", "positive number, got inf", "change"),
    "points not a number": ([(":points: 2", ":points: .nan")], "weigh-core-tests", "positive number", "change"),
    "points on an exercise": ([(":id: weigh\n", ":id: weigh\n:points: 2\n")], "weigh", "carry points", "remove"),
    "region unclosed": ([("    ### END SOLUTION\n", "")], "weigh", "never closed", "add '### END SOLUTION'"),
    "region unopened": ([("    ### BEGIN SOLUTION\n", "")], "weigh", "without its beginning", "add '### BEGIN"),
    "region nested": ([("    shares =", "    ### BEGIN SOLUTION\n    shares =")], "weigh", "inside an open", "close"),
    "region empty": (
        [("    return np.sqrt(np.mean((values - values.mean()) ** 2))\n", "")], "spread", "region is empty", "fill it"),
    "region of a comment": (
        [("    ### BEGIN SOLUTION\n    return np.sqrt(np.mean((values - values.mean()) ** 2))",
          "    n = 1\n    ### BEGIN SOLUTION\n    # nothing")], "spread", "no whole statements",
        "put its markers around"),
    "region of half a statement": (
        [("    ### BEGIN SOLUTION\n    total", "    if True:\n        ### BEGIN SOLUTION\n        0\n    else:\n"
          "        ### END SOLUTION\n        ### BEGIN SOLUTION\n        0\n        ### END SOLUTION\n"
          "    ### BEGIN SOLUTION\n    total")], "weigh", "no whole statements", "whole ones"),
    "exercise without a region": (
        [("    ### BEGIN SOLUTION\n    return np.sqrt", "    return np.sqrt"),
         (" ** 2))\n    ### END SOLUTION\n", " ** 2))\n")], "spread", "without a solution region", "enclose it"),
    "tests without a region": (
        [('### BEGIN HIDDEN TESTS\ncheck("spread", spread)\n### END HIDDEN TESTS', "1")], "spread-tests",
        "without a hidden tests region", "enclose it"),
    "written without a mark scheme": (
        [("### BEGIN MARK SCHEME\n", ""), ("### END MARK SCHEME\n", "")], "why_one", "without a mark scheme", "encl"),
    "written without a model answer": (
        [("Otherwise a constant list would not average to its own constant, whatever the weights are.\n", "")],
        "why_one", "no model answer", "write one"),
    "marker of another role": (
        [("x = 1", "### BEGIN SOLUTION\nx = 1\n### END SOLUTION")], "code", "has no place", "tag"),
    "marker in prose": (
        [("An average weighs", "### BEGIN SOLUTION\n\nAn average weighs")], "markdown", "no place", "tag"),
    "marker words in prose": (
        [("An average", "Between BEGIN SOLUTION and END an average")], "markdown", "looks like one",
                              "other words"),
    "no check line": ([('check("spread", spread)', "assert spread([1]) == 0")], "spread-tests", "is no check line",
                      "it holds exactly one line"),
    "two check lines": ([('check("spread", spread)', 'check("spread", spread)\ncheck("spread", spread)')],
                        "spread-tests", "not one check line", "exactly one line"),
    "check line commented out": ([('check("spread", spread)', '# check("spread", spread)')], "spread-tests",
                                 "no check line", "exactly one"),
    "check line of another exercise": ([('check("spread", spread)', 'check("weigh", weigh)')], "spread-tests",
                                       "names another exercise", 'write check("spread", spread)'),
    "check line that hands another object": ([('check("spread", spread)', 'check("spread", weigh)')], "spread-tests",
                                             "no check line", "exactly one"),
    "check line without its part": ([(', part="core"', "")], "weigh-core-tests", "another exercise or part",
                                    'part="core"'),
    "check line in no part": ([('check("spread", spread)', 'check("spread", spread, part="core")')], "spread-tests",
                              "another exercise or part", 'write check("spread", spread)'),
    "id that names nothing": ([("def weigh(", "def weight(")], "weigh", "nothing here defines weigh", "rename"),
    "second setup": ([(":tags: [try]\nspread(np.arange(5.0))", ":tags: [setup]\n%run setup.py\n"
                       "from autograder.checks import check")], "setup", "a second setup cell", "remove"),
    "code before setup": (
        [("# Averages\n", "# Averages\n\n```{code-cell}\nx = 1\n```\n")], "code", "before the setup", "move"),
    "setup that says more": ([("%run setup.py", "%run setup.py\nx = 1")], "setup", "holds exactly", "write that"),
    "timed alone": ([("[demo, timed]", "[timed]")], "code", "only accompanies demo or try", "add"),
    "timed exercise": ([("[exercise]", "[exercise, timed]")], "weigh", "only accompanies demo or try", "remove"),
    "written as code": ([("[try]", "[written]")], "written", "is for markdown cells", "make it a markdown cell"),
    "demo as prose": ([("+++\n\n```{code-cell}\n:tags: [given]", '+++ {"tags": ["demo"]}\n\nText\n\n```{code-cell}\n'
                        ":tags: [given]")], "demo", "is for code cells", "make it a code cell"),
    "raw cell": ([("```{code-cell}\nx = 1", "```{raw-cell}\nx = 1")], "raw", "raw cells have no place", "write"),
    "no Python": ([("x = 1", "x = = 1")], "code", "line 1 of the cell is no Python", "mend"),
    "magic": ([("x = 1", "%matplotlib inline")], "code", "is no Python", "mend"),
    "import of ours": ([("x = 1", "import autograder.checks")], "code", "no 'autograder.checks' to import", "only"),
    "import of another library": ([("x = 1", "from scipy import stats")], "code", "no 'scipy' to import", "only"),
    "nbgrader's own tests": ([("x = 1", "### AUTOTEST x")], "code", "at the word AUTOTEST", "use another"),
    "unknown directive": (
        [("An average", ":::{danger}\nx\n:::\n\nAn average")], "markdown", "unknown directive '{danger}'",
                          "use one of hint"),
    "directive in a code fence": ([("An average", "```{note}\nx\n```\n\nAn average")], "markdown", "unknown directive",
                                  "colon fences"),
    "misspelt code cell": (
        [("```{code-cell}\nx = 1", "```{code-cel}\nx = 1")], "markdown", "unknown directive", "colon"),
    "directive unclosed": (
        [("An average", ":::{hint} One\nAn average")], "markdown", "never closed", "close it with ':::'"),
    "directive closed twice": (
        [("An average", ":::{hint} One\nx\n:::\n:::\n\nAn average")], "markdown", "neither opens",
                               "remove"),
    "directive in a list": ([("An average", "- x\n  :::{hint} One\n  x\n  :::\n\nAn average")], "markdown",
                            "neither opens nor closes", "start of a line"),
    "admonition without a title": (
        [("An average", ":::{admonition}\nx\n:::\n\nAn average")], "markdown", "has its title",
                                   "on the opening line"),
    "option of a directive": ([("An average", ":::{note}\n:width: 3\nx\n:::\n\nAn average")], "markdown",
                              "unknown option 'width'", "remove"),
    "unknown role": (
        [("An average", "{math}`x` An average")], "markdown", "unknown role '{math}'", "use one of cite:p"),
    "equation label": ([("An average", "$$x$$ (eq:x)\n\nAn average")], "markdown", "equation label", "remove"),
    "footnote": ([("An average", "An[^1] average")], "markdown", "the footnote '[^1]'", "say it in the text"),
    "code fence unclosed": ([("An average weighs every number alike.\n", "````\nAn average\n")], "markdown",
                            "code fence", "close it"),
    "quiz that is no YAML": (
        [("An average", ":::{quiz} q\nquestion: [\n:::\n\nAn average")], "markdown", "quiz 'q'", "mend"),
    "quiz without a reason": (
        [("An average", ":::{quiz} q\nquestion: x\noptions: [{text: a, correct: true}]\n:::\n\nAn av")],
                              "markdown", "exactly text, correct and why", "quiz 'q'"),
    "quiz without a right answer": (
        [("An average", ":::{quiz} q\nquestion: x\noptions: [{text: a, correct: false, why: b}]\n:::\n\nAn average")],
        "markdown", "at least one option with correct: true", "quiz 'q'"),
}


@pytest.mark.parametrize("kind", MALFORMED)
def test_malformed_source_is_refused_with_file_cell_and_cure(tmp_path, kind):
    changes, named, problem, cure = MALFORMED[kind]
    said = refusal(tmp_path, changed(*changes))
    assert re.match(rf"solutions/{SLUG}\.md:\d+: cell '{re.escape(named)}': ", said), said
    assert problem in said
    assert cure in said


MISSPELT = [
    "###BEGIN SOLUTION", "# BEGIN SOLUTION", "## BEGIN SOLUTION", "#### BEGIN SOLUTION", "### BEGIN SOLUTIONS",
    "### BEGIN  SOLUTION", "### Begin Solution", "### begin solution", "### BEGIN SOLUTION:", "### BEGIN SOLUTION ###",
    "### BEGIN SOLUTON", "### BEGN SOLUTION", "### BEGIN_SOLUTION", "#BEGIN SOLUTION#", "### START SOLUTION",
    "x = 1  ### BEGIN SOLUTION", "###END SOLUTION", "### END SOLUTIONS", "# END SOLUTION", "### END  SOLUTION",
    "### End solution", "### ENDSOLUTION", "### BEGIN HIDDEN TEST", "###BEGIN HIDDEN TESTS", "# BEGIN HIDDEN TESTS",
    "### BEGIN HIDEN TESTS", "### END HIDDEN TEST", "### End Hidden Tests", "### BEGIN TESTS", "### BEGIN HIDDEN",
    "### BEGIN MARKSCHEME", "### BEGIN MARK-SCHEME", "### BEGIN MARKING SCHEME", "### END MARK SCHEMES",
    "### STOP SOLUTION",
    "### ВEGIN SOLUTION",   # a Cyrillic В
]
ORDINARY = [
    "# the solution of the equation", "total = 0   # begin with nothing", "# hidden states of the network",
    "# test the scaled scores", "### Solutions in closed form", "end = solution", "# marks where each token ends",
    "## What a large score does to learning", "# the mark and the scheme of things", "# beginning of the sequence",
]


@pytest.mark.parametrize("line", MISSPELT)
@pytest.mark.parametrize("where", ["x = 1", "    ### BEGIN SOLUTION\n    return", "An average weighs"])
def test_misspelt_marker_is_refused_wherever_it_stands(tmp_path, line, where):
    new = f"    {line}\n    return" if "return" in where else f"{line}\n\n{where}"
    assert "looks like one; write exactly '### BEGIN" in refusal(tmp_path, changed((where, new)))


@pytest.mark.parametrize("line", ORDINARY)
def test_ordinary_line_is_no_marker(line):
    assert not marker_like(line)


def test_marker_may_be_indented_and_nothing_else(tmp_path):
    source.load(tiny.project(tmp_path, changed(("    ### END SOLUTION", "    ### END SOLUTION  "))), SLUG)


@pytest.mark.parametrize(("chapter", "said"), [
    (changed((":tags: [try]", ":tags: try")), "cannot be read as a MyST notebook"),
    (changed((":tags: [try]", ":tags: [try")), "cannot be read as a MyST notebook"),
    (changed((":tags: [try]", ":try")), "cannot be read as a MyST notebook"),
    (changed(('"points": 4}', '"points": 4')), "cannot be read as a MyST notebook"),
    (changed(("course: {minutes: 60}", "course: {minutes: soon}")), "minutes must be a whole number"),
    (changed(("course: {minutes: 60}", "course: {hours: 1}")), "front matter 'course' is unknown"),
    (changed(("course: {minutes: 60}", "title: x")), "front matter 'title' is unknown"),
    (changed((":tags: [setup]\n%run setup.py\nfrom autograder.checks import check", "x = 1")), "no setup cell; add"),
    (changed(("+++\n\n```{code-cell}\n:tags: [given]", '+++ {"id": "lost"}\n\n```{code-cell}\n:tags: [given]')),
     "its fields would be lost"),
])
def test_malformed_file_is_refused_by_name(tmp_path, chapter, said):
    line = refusal(tmp_path, chapter)
    assert line.startswith(f"solutions/{SLUG}.md: ")
    assert said in line


@pytest.mark.parametrize(("setup", "said"), [
    ("x = = 1", "is no Python"),
    ("import autograder", "no 'autograder' to import"),
    ("x = 1\n### BEGIN SOLUTION\n", "has no place in this cell"),
    ("# begin solution\n", "looks like one"),
])
def test_malformed_setup_is_refused_by_name(tmp_path, setup, said):
    line = refusal(tmp_path, tiny.CHAPTER, setup=setup)
    assert line.startswith("solutions/setup.py:1: ")
    assert said in line


def test_missing_files_are_named(tmp_path):
    project = tiny.project(tmp_path)
    with pytest.raises(CourseError, match=r"solutions/09_none\.md: not there; the chapters are 03_tiny"):
        source.load(project, "09_none")
    (tmp_path / "solutions" / "setup.py").unlink()
    with pytest.raises(CourseError, match=r"solutions/setup\.py: not there"):
        source.load(project, SLUG)


# What plain Markdown it becomes

LINKS = links.Links({"vaswani2017": ("Vaswani et al.", "2017", "https://a.org"), "cho2014": ("Cho et al.", "2014", "")},
                    {"jacobian": ("The Jacobian", "https://b.org/chapters/03_tiny.html#jacobian"), "here": ("Here", ""),
                     "04_multi_head": ("Many heads", "https://b.org/chapters/04_multi_head.html")})


@pytest.mark.parametrize(("rich", "plain"), [
    ("{cite:p}`vaswani2017`", "([Vaswani et al. 2017](https://a.org))"),
    ("{cite:p}`vaswani2017,\ncho2014`", "([Vaswani et al. 2017](https://a.org); Cho et al. 2014)"),
    ("{cite:t}`vaswani2017`", "[Vaswani et al. (2017)](https://a.org)"),
    ("{cite:t}`unknown`", "unknown"),
    ("{ref}`jacobian`", "[The Jacobian](https://b.org/chapters/03_tiny.html#jacobian)"),
    ("{ref}`that one <jacobian>`", "[that one](https://b.org/chapters/03_tiny.html#jacobian)"),
    ("{ref}`here`", "Here"),
    ("{ref}`nowhere`", "nowhere"),
    ("{doc}`/chapters/04_multi_head`", "[Many heads](https://b.org/chapters/04_multi_head.html)"),
    ("{term}`the scores <score>`", "the scores"),
    ("`{ref}` and `` {ref}`x` `` and $\\mathrm{a}$", "`{ref}` and `` {ref}`x` `` and $\\mathrm{a}$"),
    ("(label)=\n# Title", "# Title"),
    ("one\n% a note to ourselves\ntwo", "one\ntwo"),
    ("```\n% {ref}`x`\n(label)=\n:::{hint}\n```", "```\n% {ref}`x`\n(label)=\n:::{hint}\n```"),
    (":::{hint} The `idea` < this\nOne *term*.\n:::",
     "<details><summary>Hint: The <code>idea</code> &lt; this</summary>\n\nOne *term*.\n\n</details>"),
    ("Before\n:::{note}\nOne.\n:::\nAfter", "Before\n\n> **Note**\n>\n> One.\n\nAfter"),
    (":::{admonition} Common {term}`mistakes`\n:class: warning\n- one\n\n- two\n:::",
     "> **Common mistakes**\n>\n> - one\n>\n> - two"),
    ("::::{tip}\n:::{hint} In\nx\n:::\n::::",
     "> **Tip**\n>\n> <details><summary>Hint: In</summary>\n>\n> x\n>\n> </details>"),
    (":::{warning}\n$$\nx\n= 1\n$$\n:::", "> **Warning**\n>\n> $$ x = 1 $$"),
    (":::{quiz} q\nquestion: How {term}`many`?\noptions:\n- {text: \"`2`\", correct: true, why: so}\n"
     "- {text: 3, correct: false, why: \"{term}`not` so\"}\n:::",
     "**Question.** How many?\n\n<details><summary><code>2</code></summary>\n\n✓ **Right.** so\n\n</details>\n\n"
     "<details><summary>3</summary>\n\n✗ **Not so.** not so\n\n</details>"),
])
def test_rich_markdown_becomes_plain(rich, plain):
    assert lower.lower(rich, LINKS) == plain


def test_lowering_is_a_copy_and_lowers_every_markdown_cell(tmp_path):
    loaded = source.load(tiny.project(tmp_path, prose("{cite:t}`vaswani2017`")), SLUG)
    before = copy.deepcopy(loaded)
    lowered = source.lowered(loaded, LINKS)
    assert loaded == before
    assert [one.id for one in lowered.cells] == [one.id for one in loaded.cells]
    assert "(tiny)=" not in json.dumps(lowered)
    assert "[Vaswani et al. (2017)](https://a.org)" in lowered.cells[0].source


def test_links_come_from_the_bibliography_the_labels_and_the_address(tmp_path):
    project = tiny.project(tmp_path, prose("(second_part)=\n## A second part"))
    (tmp_path / "book" / "notation.md").write_text("# Notation\n")
    (tmp_path / "_config.yml").write_text("html: {baseurl: 'https://b.org/'}\n")
    found = links.find(project)
    assert found.citations["hochreiter1997"] == ("Hochreiter & Schmidhuber", "1997", "https://doi.org/10.1162/neco")
    assert found.labels["second_part"] == ("A second part", "https://b.org/chapters/03_tiny.html#second-part")
    assert found.labels["notation"] == ("Notation", "https://b.org/book/notation.html")
    assert found.labels[SLUG] == ("Averages", "https://b.org/chapters/03_tiny.html")


@pytest.mark.parametrize("entry", ["@article{vaswani2017, year = {2017}}", "@article{x, year = "])
def test_malformed_bibliography_is_refused_by_name(tmp_path, entry):
    project = tiny.project(tmp_path)
    path = tmp_path / "book" / "references.bib"
    path.write_text(path.read_text() + entry)
    with pytest.raises(CourseError, match=r"^book/references\.bib: cannot be read \(.+\); mend the entry$"):
        links.find(project)


# Names and paths

def test_project_is_found_from_inside(tmp_path):
    project = tiny.project(tmp_path)
    assert Project.find(tmp_path / "chapters") == Project(tmp_path.resolve())
    assert project.slugs() == [SLUG]
    with pytest.raises(CourseError, match=r"no solutions/setup\.py"):
        Project.find(tmp_path.parent)


def test_course_folders_are_where_nbgrader_puts_them(tmp_path):
    course = Course(tmp_path)
    assert (course.source, course.db) == (tmp_path / "source", tmp_path / "gradebook.db")
    for path in ("source/01_a/01_a.ipynb", "submitted/zoe/01_a/01_a.ipynb", "submitted/adam/01_a/01_a.ipynb"):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).touch()
    (tmp_path / "source" / "notes").mkdir()
    assert course.assignments() == ["01_a"]
    assert course.students("01_a") == ["adam", "zoe"]


def test_course_folders_honour_its_config(tmp_path):
    (tmp_path / "nbgrader_config.py").write_text(
        "c = get_config()\nc.CourseDirectory.submitted_directory = 'handed_in'\n"
        "c.CourseDirectory.db_url = 'sqlite:////srv/grades.db'\n"
        "c.CourseDirectory.directory_structure = '{nbgrader_step}/{assignment_id}/{student_id}'\n")
    (tmp_path / "handed_in" / "01_a" / "zoe").mkdir(parents=True)
    course = Course(tmp_path)
    assert course.students("01_a") == ["zoe"]
    assert str(course.db) == "/srv/grades.db"
    (tmp_path / "nbgrader_config.py").write_text("c = get_config()\nc.CourseDirectory.feedback_directory = '../back'\n")
    elsewhere = Course(tmp_path)
    assert elsewhere.path(elsewhere.feedback, "zoe", "01_a").resolve() == tmp_path.parent / "back" / "zoe" / "01_a"
    (tmp_path / "nbgrader_config.py").write_text("c = ")
    with pytest.raises(CourseError, match="cannot be read"):
        assert Course(tmp_path).source


GIVEN = """
```{code-cell}
:tags: [given]
:id: blocks
from transformer import mean, Block
```
"""
REFERENCE = '''import torch


def helper():
    return 0


def mean(x):
    """The mean."""
    return x.mean()


class Block:
    size = 3
'''


def test_a_given_cell_hands_out_definitions_of_the_reference_model(tmp_path):
    project = tiny.project(tmp_path, tiny.CHAPTER + GIVEN)
    (project.solutions / "transformer.py").write_text(REFERENCE)
    cell = next(cell for cell in source.load(project, tiny.SLUG).cells if cell.id == "blocks")
    assert cell.source == 'def mean(x):\n    """The mean."""\n    return x.mean()\n\n\nclass Block:\n    size = 3'
    assert cell.metadata.nbgrader.locked


def test_a_given_cell_that_hands_out_what_is_not_there_is_an_error(tmp_path):
    project = tiny.project(tmp_path, tiny.CHAPTER + GIVEN)
    with pytest.raises(CourseError, match=r"'blocks': solutions/transformer.py defines no 'mean'"):
        source.load(project, tiny.SLUG)
