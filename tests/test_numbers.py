"""Chapter 8's number words: its grammar says what num2words says.

Compared are every three-digit group of every number that the chapter uses, and every tenth of the numbers whole.
"""

import runpy
from pathlib import Path

import pytest
from num2words import num2words

from autograder.course import Project

PROJECT = Project.find(Path(__file__))
SLUG = "08_transformer"


@pytest.fixture(scope="module")
def chapter():
    if SLUG not in PROJECT.slugs():
        pytest.skip(f"solutions/{SLUG}.md is not there")
    return runpy.run_path(str(PROJECT.root / "tools" / "planted_bugs.py"))["task"](PROJECT)


def used(names):
    """Every number below 1000, and every one that the chapter trains on or tests with."""
    later = names.draw.choice(1_000_000, 120_000, replace=False).tolist()  # its next draw, in the last experiments
    return sorted({*range(1000), *names.numbers, *later})


def test_the_later_draw_is_the_one_that_the_chapter_makes():
    if SLUG in PROJECT.slugs():
        text = PROJECT.source(SLUG).read_text()
        assert "everything = draw.choice(1_000_000, 120_000, replace=False).tolist()" in text


def test_grammar_says_what_num2words_says(chapter):
    numbers, wrong = used(chapter), []
    groups = {n for number in numbers for n in (number % 1000, number // 1000)}
    for n in sorted({*groups, *numbers[::10]}):
        if " ".join(chapter.english(n)) != num2words(n).replace(",", "").replace("-", " "):
            wrong.append(("en", n))
        if " ".join(chapter.french(n)) != num2words(n, lang="fr").replace("-", " "):
            wrong.append(("fr", n))
        # num2words writes einhunderteinstausend; before tausend it is ein, as in eintausend
        if "".join(chapter.german(n)) != num2words(n, lang="de").replace("einstausend", "eintausend"):
            wrong.append(("de", n))
    assert wrong == []
