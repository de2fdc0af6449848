"""The minutes that a chapter states: its table adds up to its total, and leaves room for its exercises."""

import re
from pathlib import Path

import pytest

from autograder import source
from autograder.course import Project

PROJECT = Project.find(Path(__file__))
ROW = re.compile(r"^\|[^|]+\|[^|]+\| (\d+)(?:, and (\d+) for the challenge)? \|$", re.MULTILINE)
EXERCISE = re.compile(r"^### Exercise [\d.]+ .* (\d+) min(.*)$", re.MULTILINE)


def unsound(text, total):
    """What is wrong with the minutes in a chapter's text, given the total of its front matter."""
    table = text[text.index("| When you have worked through") :].split("\n\n")[0]
    rows = [(int(plain), int(extra or 0)) for plain, extra in ROW.findall(table)]
    plain, extra = (sum(column) for column in zip(*rows))
    challenges = [re.search(r"challenge", line[0]) is not None for line in EXERCISE.finditer(text)]
    minutes = [int(line[1]) for line in EXERCISE.finditer(text)]
    exercises = sum(each for each, challenge in zip(minutes, challenges) if not challenge)
    said = re.search(r"^\*Chapter \d+ · about (\d+) minutes", text, re.MULTILINE)
    wrong = []
    if not plain == total == int(said[1]):
        wrong.append(f"the table adds up to {plain}, the front matter says {total}, the line below the title {said[1]}")
    if plain < exercises:
        wrong.append(f"the exercises alone take {exercises} minutes, the table has {plain}")
    if extra and extra < sum(each for each, challenge in zip(minutes, challenges) if challenge):
        wrong.append(f"the challenges take more than the {extra} minutes that the table has for them")
    return wrong


@pytest.mark.parametrize("slug", PROJECT.slugs())
def test_the_minutes_of_a_chapter_add_up(slug):
    text = PROJECT.source(slug).read_text()
    assert unsound(text, source.load(PROJECT, slug).metadata.course.minutes) == []


CHAPTER = """*Chapter 9 · about 20 minutes, and 5 for the challenge · NumPy*

| When you have worked through | you can | minutes |
|---|---|---|
| One | do it | 12 |
| Two | do more | 8, and 5 for the challenge |

### Exercise 9.1 — one  `one` · 9 min · ●○○
### Exercise 9.2 — two  `two` · challenge, 5 min · ●●●
"""


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("| 12 |", "| 12 |", ""),
        ("| 12 |", "| 11 |", "adds up to 19"),
        ("about 20", "about 30", "below the title 30"),
        ("· 9 min", "· 21 min", "the exercises alone take 21"),
        ("challenge, 5 min", "challenge, 6 min", "more than the 5 minutes"),
    ],
)
def test_minutes_that_do_not_add_up_are_found(old, new, found):
    assert [found in each for each in unsound(CHAPTER.replace(old, new), 20)] == ([True] if found else [])
