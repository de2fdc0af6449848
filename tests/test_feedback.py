"""A page of feedback says what was checked and why, shows the learner's own work, and no test and nothing harmful."""

import re
from html.parser import HTMLParser

import pytest
from browser import browser
from classroom import (
    SOLVED,
    answer,
    answered,
    asserts,
    cell_of,
    code,
    hand_in,
    make_course,
    notebook,
    place_of,
    plain_source,
    released,
    text,
    written,
)
from nbgrader.api import Gradebook

from autograder.feedback import _numbers, feedback
from autograder.grade import grade

SCRIPT = "<script>alert(1)</script><img src=x onerror=alert(2)><a href='javascript:alert(3)'>x</a><style>*{}</style>"
HARMFUL = re.compile(r"<script|<img src=x|onerror=|href=.javascript|<iframe|<style>\*")
DISPLAYS = f"""from IPython.display import HTML, display
def double(x):
    return 2 * x
print({SCRIPT!r})
display(HTML({'<table><tr><td>7</td></tr></table>' + SCRIPT!r}))
display({{"image/png": "not base64 <b>"}}, raw=True)
display({{"image/png": "iVBORw0KGgo=", "text/plain": "a plot"}}, raw=True)
"""
TABLE = "| a | b |\n|---|---|\n| 1 | 2 |"
WRITTEN = f"**Because** of $x_1$ and {SCRIPT}\n\n![a](http://example.com/tracker.png)\n\n{TABLE}"


def by_hand(course, student, **changes):
    with Gradebook(course.db_url) as book:
        row = book.find_grade("why", "numbers", "ps1", student)
        for name, value in changes.items():
            setattr(row, name, value)
        book.find_comment("why", "numbers", "ps1", student).manual_comment = "Good <b>thinking</b>."
        book.db.commit()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    course = make_course(tmp_path_factory.mktemp("feedback") / "c")
    nb = released(course)
    hand_in(course, "ann", answered(nb, {**SOLVED, "double": "def double(x):\n    return 4", "mean": ""}))
    hostile = answered(nb, {**SOLVED, "double": DISPLAYS, "why": WRITTEN})
    hostile.cells.insert(place_of(nb, "mean"), code(f"# {SCRIPT}\nraise ValueError({SCRIPT!r})", "mine"))
    hostile.cells.insert(place_of(nb, "mean"), text(SCRIPT, "note"))
    cell_of(hostile, "double-tests").source = "assert True"
    hand_in(course, "<eve>", hostile)
    hand_in(course, "blank", nb)
    hand_in(course, "cut", b"{")
    grade(course, jobs=2)
    by_hand(course, "ann", manual_score=3.5, needs_manual_grade=False)
    made = feedback(course)
    assert len(made) == 4
    return course, {path.parent.parent.name: path.read_text() for path in made}


def shown(page):
    """The words of a page."""
    body = page.split("<body>")[1]
    return " ".join(re.sub(r"<[^>]+>", " ", body).split())


def test_page_lies_where_nbgrader_puts_its_own(pages):
    course, _ = pages
    assert (course.feedback / "ann" / "ps1" / "numbers.html").is_file()


def test_page_says_points_verdicts_and_messages(pages):
    words = shown(pages[1]["ann"])
    assert "Numbers" in words and "secretly three" in words and "not right yet" in words
    assert "7.5 / 14 points" in words  # 0 + 0 + 4 + 3.5 by hand
    assert "return 4" in words and "Because it is so." in words


def test_exercise_has_the_number_of_its_heading():
    heads = "## Exercise 3.4 — the root  `scaled` · 5 min\n\n### Exercise 3.5 — more  `two_words` · ●○○\n\nSee `other`."
    assert _numbers(notebook(text(heads, "a"))) == {"scaled": "Exercise 3.4", "two_words": "Exercise 3.5"}


def test_manual_scores_and_comments_are_shown(pages):
    assert "Your instructor: Good &lt;b&gt;thinking&lt;/b&gt;." in shown(pages[1]["ann"])
    assert re.search(r"why.*?3\.5\s+/ 5", shown(pages[1]["ann"]))


def test_unanswered_and_waiting_are_told_apart(pages):
    assert "0 / 14 points" in shown(pages[1]["blank"]) and shown(pages[1]["blank"]).count("not answered") >= 4
    assert "5 more wait for your instructor" in shown(pages[1]["<eve>"])


def test_no_test_source_is_shown(pages):
    for page in pages[1].values():
        for secret in ("double(3) == 6", "double(2) == 4", "mean([1, 3])", "HIDDEN", "sum(xs) / len(xs)\n    ### END"):
            assert secret not in page


class Elements(HTMLParser):
    """Every element of a page, with its attributes."""

    def __init__(self, page):
        super().__init__()
        self.found = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def test_what_the_learner_wrote_can_harm_nobody(pages):
    page = pages[1]["<eve>"]
    found = Elements(page).found
    assert {tag for tag, _ in found}.isdisjoint({"script", "iframe", "object", "embed", "form", "link", "base", "svg"})
    assert sum(tag == "style" for tag, _ in found) == 1
    assert not [name for _, attrs in found for name in attrs if name.startswith("on")]
    places = [attrs.get("src") or attrs.get("href") for _, attrs in found if "src" in attrs or "href" in attrs]
    assert all(re.fullmatch(r"data:image/png;base64,[A-Za-z0-9+/=]+|#e\d+", place) for place in places), places
    assert "&lt;script&gt;" in page and "<eve>" not in page


def test_written_answers_keep_their_form_and_outputs_their_table_and_plot(pages):
    page = pages[1]["<eve>"]
    assert "<strong>Because</strong>" in page and page.count("<table>") == 2 and 'alt="a plot"' in page


def test_added_cells_and_repairs_are_told(pages):
    words = shown(pages[1]["<eve>"])
    assert "Cells that you added (2)" in words and "ours is back" in words


def test_refused_learner_is_told_why(pages):
    assert "could not be graded" in shown(pages[1]["cut"]) and "damaged or cut off" in shown(pages[1]["cut"])
    assert "ask for" not in shown(pages[1]["cut"])  # that is for the instructor
    assert "<h1>Numbers" in pages[1]["cut"]  # the assignment's title, as on the others' pages


def test_page_needs_no_other_file(pages):
    for page in pages[1].values():
        assert not re.search(r"(?:src|href)=\"(?!data:image/png|#)", page.replace("https://", "")), page[:200]
        assert "default-src 'none'" in page


def test_feedback_replaces_what_nbgrader_wrote_read_only(pages):
    course, _ = pages
    path = course.feedback / "ann" / "ps1" / "numbers.html"
    path.write_text("nbgrader's")
    path.chmod(0o444)
    assert feedback(course, student="ann", chapter="ps1") == [path] and "Numbers" in path.read_text()


def test_answers_of_other_courses_are_found_by_their_place(tmp_path):
    source = notebook(
        answer("part-a", "a = 1  # YOUR CODE HERE"), answer("part-b", "b = 1"), asserts("both", "assert a + b == 3", 2),
        answer("c", "c = 0"), asserts("c-check", "assert c == 1", 1), written("essay", "text", 1))
    course = make_course(tmp_path / "c", several=source)
    nb = answered(released(course, "several"), {"part-a": "a = 111", "part-b": "b = 222", "c": "c = 333"})
    hand_in(course, "ann", nb, file="several.ipynb")
    grade(course)
    sections = [shown(f"<body>{part}") for part in feedback(course)[0].read_text().split("<section")[1:]]
    assert [re.findall(r"\b\d{3}\b", part) for part in sections[:2]] == [["111", "222"], ["333"]]


def test_page_reads_well_on_a_phone_and_in_the_dark(pages):
    course, _ = pages
    path = course.feedback / "<eve>" / "ps1" / "numbers.html"
    problems = []
    with browser() as started:
        for scheme in ("light", "dark"):
            context = started.new_context(viewport={"width": 360, "height": 800}, color_scheme=scheme)
            page = context.new_page()
            page.on("console", lambda message: problems.append(message.text))
            page.goto(path.as_uri())
            assert page.evaluate("document.documentElement.scrollWidth") <= 360
            ratios = page.evaluate(CONTRAST)
            assert ratios and min(ratios.values()) >= 4.5, (scheme, ratios)
            context.close()
    assert problems == []


# The contrast of every piece of text with the background that it stands on, by WCAG's formula: {text: ratio}.
CONTRAST = """() => {
  const parse = c => c.match(/[\\d.]+/g).map(Number)
  const light = c => { const [r, g, b] = c.map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
                       return 0.2126 * r + 0.7152 * g + 0.0722 * b }
  const found = {}
  for (const node of document.body.querySelectorAll('*')) {
    if (![...node.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue
    let under = node, back = [0, 0, 0, 0]
    while (under && back[3] === 0) { const c = parse(getComputedStyle(under).backgroundColor)
      back = c.length === 4 ? c : [...c, 1]; under = under.parentElement }
    if (back[3] === 0) back = parse(getComputedStyle(document.documentElement).backgroundColor)
    const ink = light(parse(getComputedStyle(node).color).slice(0, 3)), paper = light(back.slice(0, 3))
    const [a, b] = [Math.max(ink, paper), Math.min(ink, paper)]
    found[node.textContent.trim().slice(0, 30)] = (a + 0.05) / (b + 0.05)
  }
  return found
}"""


def test_made_up_source_is_the_one_tested():
    assert "secretly three" in cell_of(plain_source(), "double-tests").source
