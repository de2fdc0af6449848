"""Every answer of the catalogues, in a real notebook, through rebuild, kernel, probe and judge.

The k-th answers of all exercises make one submission. One kernel serves a whole chapter: it is the answers that are
tested here, and each submission defines every name anew.
"""

import json
from pathlib import Path

import pytest
from classroom import answered, cell_of

from autograder.cells import parse
from autograder.checks import EXERCISES
from autograder.course import Project
from autograder.kernels import Limits, Session
from autograder.marking import mark, stubs_of
from autograder.rebuild import rebuild
from autograder.release import generate_assignment, source_notebook

PROJECT = Project.find(Path(__file__).parent)
CHAPTERS = [slug for slug in PROJECT.slugs() if any(one.chapter == slug for one in EXERCISES.values())]

# Visible tests try it on the learner's own model, into which it looks: right variants of both need not fit together.
ON_ANOTHER = {"cached_greedy_decode"}


class Chapter:
    """A chapter as it is handed out and as it is graded, and the kernel that runs its submissions."""

    def __init__(self, slug, session):
        solved = source_notebook(PROJECT, slug)
        self.handed_out = generate_assignment(solved, slug)
        tests = {cell.id: cell.source for cell in solved.cells if cell.id.endswith("-tests")}
        self.edition = answered(self.handed_out, tests)
        ids = {cell.id for cell in self.handed_out.cells}
        self.exercises = [one for one in EXERCISES.values() if one.chapter == slug and one.name in ids]
        texts = {cell.id: cell.source for cell in solved.cells}
        self.solution = {one.name: texts[one.name] for one in self.exercises}
        self.session = session

    def marked(self, answers):
        """exercise -> the verdicts of its parts."""
        submitted = parse(json.dumps(answered(self.handed_out, answers)).encode())
        notebook, repairs = rebuild(self.edition, submitted)
        assert repairs == []
        verdicts = {}
        for result in mark(notebook, stubs_of(self.edition), self.session).results:
            verdicts.setdefault(result.exercise, []).append(result)
        return verdicts

    def each(self, catalogue):
        """Every entry of a catalogue, with the results that it got."""
        lists = {one.name: getattr(one, catalogue) for one in self.exercises}
        for number in range(max(map(len, lists.values()))):
            chosen = {name: entries[number] for name, entries in lists.items() if number < len(entries)}
            found = self.marked({name: entry.source for name, entry in chosen.items()})
            yield from ((name, entry, found[name]) for name, entry in chosen.items())


@pytest.fixture(scope="module", params=CHAPTERS)
def chapter(request):
    with Session(limits=Limits(notebook=3600)) as session:   # some thirty submissions in one kernel
        yield Chapter(request.param, session)


def test_every_wrong_answer_fails_and_every_right_variant_passes_in_a_notebook(chapter):
    passed = [f"{name}: {entry.kind}" for name, entry, results in chapter.each("wrong")
              if all(result.verdict == "passed" for result in results)]
    failed = [f"{name}: {entry.kind}: {result.message or result.visible}"
              for name, entry, results in chapter.each("right")
              for result in results if result.verdict != "passed" or result.visible and name not in ON_ANOTHER]
    assert (passed, failed) == ([], [])


def test_visible_tests_of_an_answer_on_another_pass_where_the_other_is_the_solution(chapter):
    for name in ON_ANOTHER & {one.name for one in chapter.exercises}:
        for entry in EXERCISES[name].right:
            found = chapter.marked(chapter.solution | {name: entry.source})[name]
            assert [(entry.kind, result.visible) for result in found if result.visible] == []


def test_solved_chapter_has_full_marks_and_the_blank_one_none(chapter):
    solved = chapter.marked(chapter.solution)
    results = [result for one in chapter.exercises for result in solved[one.name]]
    assert {(result.verdict, result.visible) for result in results} == {("passed", "")}
    # Solved and then blank in one kernel: a stub must take the solution's place.
    blank = chapter.marked({})
    assert {(result.verdict, result.points) for results in blank.values() for result in results} == {("blank", 0.0)}
    # A learner who runs the tests first reads what to do, whatever they catch.
    tried = [result.visible for one in chapter.exercises for result in blank[one.name]]
    assert [said for said in tried if "still to be written: put your code" not in said] == []
    assert cell_of(chapter.edition, chapter.exercises[0].name).source


@pytest.mark.parametrize(
    ("slug", "cause", "exercise"),
    [
        ("02_query_key_value", "attention_scores", "attention"),
        ("04_multi_head", "split_heads", "MultiHeadAttention"),
        ("05_positional_encoding", "sinusoidal_encoding", "PositionalEncoding"),
    ],
)
def test_a_right_answer_on_a_wrong_one_is_told_what_to_mend_first(slug, cause, exercise):
    """The solution of `exercise` calls `cause`. A wrong answer that calls nothing is not told so."""
    mistakes = {name: EXERCISES[name].wrong[0].source for name in (cause, exercise)}
    hint = f"this calls your {cause}, which did not pass all of its own tests: mend it first."
    with Session() as session:
        chapter = Chapter(slug, session)
        solved = chapter.solution
        for answers, told in (
            (solved | {cause: mistakes[cause]}, True),
            ({name: text for name, text in solved.items() if name != cause}, True),  # not done yet
            (solved | mistakes, False),
            (solved | {exercise: mistakes[exercise]}, False),
        ):
            found = [result.message for result in chapter.marked(answers)[exercise] if result.verdict == "failed"]
            assert found and all(message.startswith(hint) == told for message in found)
