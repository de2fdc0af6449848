"""The built book in a real browser without network: nothing fails, nothing is fetched, everybody can use it."""

import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from browser import browser, serve
from playwright.sync_api import Browser, Page

from autograder import book
from autograder.course import Project

PROJECT = Project.find(Path(__file__))
CHAPTERS = [f"chapters/{slug}" for slug in PROJECT.slugs()]
PAGES = [f"book/{path.stem}" for path in sorted(PROJECT.book.glob("*.md"))] + CHAPTERS
# Bytes before compression; a chapter adds its figures. The theme's own style sheet is 0.4 MB of it, KaTeX another 0.4.
BUDGET, FIGURES = 1_200_000, 1_500_000
PHONE, DESK = {"width": 390, "height": 844}, {"width": 1280, "height": 900}

NAMELESS = """() => [...document.querySelectorAll('button, a[href], summary, input')].filter(e =>
    e.checkVisibility() && !(e.innerText || '').trim() && !e.ariaLabel && !e.title && !e.placeholder
    && !e.querySelector('img[alt]')).map(e => e.outerHTML.slice(0, 120))"""
CONTRASTS = """(selector) => {
  const parse = colour => { const v = colour.match(/[\\d.]+/g).map(Number); return v.length < 4 ? [...v, 1] : v; };
  const linear = v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => .2126 * linear(r / 255) + .7152 * linear(g / 255) + .0722 * linear(b / 255);
  const behind = e => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor);
    if (c[3] === 1) return c; } return [255, 255, 255, 1]; };
  return [...document.querySelectorAll(selector)].filter(e => e.innerText.trim()).map(e => {
    const [a, b] = [light(parse(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => y - x);
    return [(a + .05) / (b + .05), e.innerText.slice(0, 40)]; });
}"""
OURS = ("p.book-caption, p.book-caption *, p.book-start, p.book-start a, details > summary, details[open] p, "
        "div.book-quiz > p")


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """The address of the book on this machine, built if anything changed."""
    with serve(book.build(PROJECT)) as address:
        yield address


@pytest.fixture(scope="module")
def chrome() -> Iterator[Browser]:
    with browser() as started:
        yield started


@pytest.fixture
def chapter(chrome, site) -> Iterator[Page]:
    """The last chapter's page on a desk."""
    page = chrome.new_page(viewport=DESK)
    page.goto(f"{site}/{CHAPTERS[-1]}.html")
    yield page
    page.close()


@pytest.mark.parametrize("name", [*PAGES, "search", "genindex"])
def test_page_loads_whole_light_and_from_here_alone(name, chrome, site):
    page = chrome.new_page(viewport=DESK)
    wrong, hosts, weight = [], set(), []
    page.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("requestfailed", lambda request: wrong.append(f"failed: {request.url}"))
    page.on("request", lambda request: hosts.add(urlsplit(request.url).netloc))
    page.on("response", lambda got: wrong.append(f"{got.status}: {got.url}") if got.status >= 400
            else weight.append(len(got.body())))
    page.goto(f"{site}/{name}.html", wait_until="networkidle")
    page.close()
    assert wrong == [] and hosts == {urlsplit(site).netloc}
    assert sum(weight) <= BUDGET + FIGURES * (name in CHAPTERS), f"{sum(weight):,} bytes"


@pytest.mark.parametrize("name", PAGES)
def test_page_is_sound_to_read_and_to_hear(name, chrome, site):
    page = chrome.new_page(viewport=DESK)
    page.goto(f"{site}/{name}.html", wait_until="load")
    assert page.locator("html").get_attribute("lang") == "en"
    assert page.locator("img:not([alt]), img[alt='']").count() == 0
    headings = page.locator("article :is(h1,h2,h3,h4,h5,h6)")
    levels = headings.evaluate_all("es => es.map(e => Number(e.tagName[1]))")
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(below <= above + 1 for above, below in zip(levels, levels[1:])), levels
    ids = page.locator("[id]").evaluate_all("es => es.map(e => e.id)")
    assert sorted(ids) == sorted(set(ids))
    assert page.evaluate(NAMELESS) == []
    page.close()


@pytest.mark.parametrize("name", PAGES)
def test_every_formula_is_set(name, chrome, site):
    page = chrome.new_page(viewport=DESK)
    page.goto(f"{site}/{name}.html")
    formulas = page.locator("span.math, div.math")
    assert formulas.count() == page.locator(":is(span.math, div.math):has(.katex-html)").count()
    assert page.locator(".katex-error").evaluate_all("es => es.map(e => e.title)") == []
    assert name not in CHAPTERS or formulas.count() > 0
    page.close()


@pytest.mark.parametrize("name", PAGES)
def test_page_does_not_scroll_sideways_on_a_phone(name, chrome, site):
    page = chrome.new_page(viewport=PHONE)
    page.goto(f"{site}/{name}.html")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    page.close()


def code(page: Page) -> tuple[int, int]:
    """How many cells of code have to be scrolled sideways, and how high all are together."""
    boxes = page.locator("div.cell_input pre:visible")
    sizes = boxes.evaluate_all("es => es.map(e => [e.scrollWidth > e.clientWidth + 1, e.clientHeight])")
    return sum(cut for cut, _ in sizes), sum(height for _, height in sizes)


@pytest.mark.parametrize("name", CHAPTERS)
def test_no_code_is_cut_on_a_desk(name, chrome, site):
    page = chrome.new_page(viewport=DESK)
    page.goto(f"{site}/{name}.html")
    cut, height = code(page)
    page.add_style_tag(content=".bd-article div.cell_input pre { white-space: pre !important }")
    cut_without, least = code(page)
    assert cut == 0 < cut_without
    # Few lines need to be broken for that: there is room for nearly all as they are.
    assert height <= 1.2 * least
    page.close()


def test_figure_scrolls_in_its_own_box_on_a_phone_at_a_readable_size(chrome, site):
    page = chrome.new_page(viewport=PHONE)
    page.goto(f"{site}/{CHAPTERS[-1]}.html", wait_until="load")
    figure = page.get_by_role("img", name="Two columns of boxes")
    box = figure.locator("xpath=..")
    assert figure.evaluate("e => e.clientWidth") >= 500 > PHONE["width"] >= box.evaluate("e => e.clientWidth")
    box.evaluate("e => e.scrollTo(1000, 0)")
    assert figure.bounding_box()["x"] + figure.bounding_box()["width"] <= PHONE["width"]
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    page.close()


@pytest.mark.parametrize(("button", "way"), [("primary", "Notation and conventions"), ("secondary", "Summary")])
def test_menus_open_on_a_phone_and_lead_on(button, way, chrome, site):
    page = chrome.new_page(viewport=PHONE)
    page.goto(f"{site}/{CHAPTERS[-1]}.html", wait_until="load")
    link = page.locator(f"#pst-{button}-sidebar-modal, #pst-{button}-sidebar").get_by_role("link", name=way)
    assert not link.first.is_visible()
    page.locator(f"button.{button}-toggle:visible").click()
    before = page.url
    link.first.click()
    assert page.url != before
    page.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_our_own_text_has_contrast_in_both_themes(theme, chrome, site):
    page = chrome.new_page(viewport=DESK, color_scheme=theme)
    page.goto(f"{site}/{CHAPTERS[-1]}.html")
    assert page.locator("html").get_attribute("data-theme") == theme
    page.evaluate("document.querySelectorAll('details').forEach(e => e.open = true)")
    measured = page.evaluate(CONTRASTS, OURS)
    assert len(measured) > 10
    assert [one for one in measured if one[0] < 4.5] == []
    page.close()


def test_hint_is_closed_and_opens_on_click_and_on_enter(chapter):
    hints = chapter.locator("details.book-hint")
    assert hints.count() >= 3 and chapter.locator("details.book-hint[open]").count() == 0
    hints.nth(0).locator("summary").click()
    hints.nth(1).locator("summary").focus()
    chapter.keyboard.press("Enter")
    assert hints.nth(0).locator("> :not(summary)").first.is_visible()
    assert hints.nth(1).locator("> :not(summary)").first.is_visible()
    assert not hints.nth(2).locator("> :not(summary)").first.is_visible()


def test_self_check_answers_in_words_by_keyboard(chapter):
    for verdict, text in (("right", "✓ Right."), ("wrong", "✗ Not so.")):
        option = chapter.locator(f"details.book-{verdict}").first
        option.locator("summary").focus()
        chapter.keyboard.press("Space")
        assert option.locator("p").first.inner_text().startswith(text)


def test_setup_is_folded_and_unfolds(chapter):
    setup = chapter.locator("details", has_text="Show the set-up that every chapter shares").first
    assert not setup.locator("pre").first.is_visible()
    setup.locator("summary").click()
    assert setup.locator("pre").first.is_visible()


def test_hints_unfold_without_javascript(chrome, site):
    context = chrome.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{site}/{CHAPTERS[-1]}.html")
    page.locator("details.book-hint summary").first.click()
    assert page.locator("details.book-hint").first.locator("> :not(summary)").first.is_visible()
    context.close()


def test_dark_mode_switches_and_leaves_the_figures_transparent(chapter):
    ground = "getComputedStyle(document.body).backgroundColor"
    seen = {}
    for _ in range(3):
        seen[chapter.locator("html").get_attribute("data-theme")] = chapter.evaluate(ground)
        chapter.locator(".theme-switch-button:visible").first.click()
    assert set(seen) == {"light", "dark"} and seen["light"] != seen["dark"]
    while chapter.locator("html").get_attribute("data-theme") != "dark":
        chapter.locator(".theme-switch-button:visible").first.click()
    figures = chapter.locator("article .output img, article .cell_output img")
    assert figures.count() > 0
    styles = figures.evaluate_all("es => es.map(getComputedStyle).map(s => `${s.backgroundColor} ${s.filter}`)")
    assert set(styles) == {"rgba(0, 0, 0, 0) none"}


def test_both_download_links_give_the_clean_notebook(chapter, site):
    clean = (PROJECT.root / f"{CHAPTERS[-1]}.ipynb").read_bytes()
    with chapter.expect_download() as download:
        chapter.locator("p.book-start a").click()
    assert Path(download.value.path()).read_bytes() == clean
    address = chapter.locator("a.btn-download-source-button").evaluate("e => e.href")
    with urllib.request.urlopen(address) as answer:
        assert answer.read() == clean


def test_search_finds_without_network(chrome, site):
    page = chrome.new_page(viewport=DESK)
    page.goto(f"{site}/search.html?q=softmax")
    page.locator("#search-results li").first.wait_for()
    assert page.locator("#search-results li a", has_text="Scaling").count() >= 1
    page.close()


def test_front_page_of_the_site_leads_to_the_book(chrome, site):
    page = chrome.new_page()
    page.goto(site)
    page.wait_for_url("**/book/intro.html")
    page.close()
