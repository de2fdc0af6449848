"""Automatic mutants of every solution die, or are listed with the reason why they are right answers too."""

import contextlib
import io
import signal
from functools import cache
from pathlib import Path

import pytest
import torch
import yaml
from mutants import mutants

from autograder import source
from autograder.checks import EXERCISES
from autograder.course import Project
from autograder.judge import Trial

PROJECT = Project.find(Path(__file__))
EQUIVALENT = yaml.safe_load((Path(__file__).parent / "equivalent_mutants.yml").read_text())
SOLVED = [
    pytest.param(slug, cell.metadata.nbgrader.grade_id, id=cell.metadata.nbgrader.grade_id)
    for slug in PROJECT.slugs()
    for cell in source.load(PROJECT, slug).cells
    if cell.metadata.get("nbgrader", {}).get("solution") and cell.cell_type == "code"
]


@cache
def chapter(slug):
    """The names that a learner's answer meets, as the solved chapter makes them, and each exercise's cell."""
    namespace, cells = {"__name__": "__main__"}, {}
    for cell in source.load(PROJECT, slug).cells:
        tags = set(cell.metadata.get("tags", []))
        if cell.cell_type != "code" or tags & {"demo", "try", "tests"}:
            continue
        with contextlib.redirect_stdout(io.StringIO()):
            exec(cell.source, namespace)
        if "exercise" in tags:
            cells[cell.id] = cell.source
    return namespace, cells


def survives(exercise, text, namespace):
    scope = dict(namespace)
    try:
        with _at_most(seconds=10):
            exec(text, scope)
            return Trial(exercise).attempt(scope[exercise.name], diagnose=False).passed
    except Exception:  # it does not even define the name, or never ends
        return False


@cache
def _warm():
    torch.ones(1, device="meta") * 2  # its first operation imports 800 modules, which takes long on a busy machine


@contextlib.contextmanager
def _at_most(*, seconds):
    def stop(*_):
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    _warm()
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("slug, name", SOLVED)
def test_mutants_of_a_solution_die_or_are_listed(slug, name):
    namespace, cells = chapter(slug)
    listed = {entry["change"] for entry in EQUIVALENT.get(name, [])}
    assert survives(EXERCISES[name], cells[name], namespace), "the solution itself must pass"
    tried = list(mutants(cells[name]))
    alive = {what for what, text in tried if survives(EXERCISES[name], text, namespace)}
    assert len(tried) >= 3
    assert alive - listed == set(), "these changes of the solution still pass: add a case, or list them with a reason"
    assert listed - alive == set(), "listed as equivalent, but the check catches them: take them off the list"


def test_every_listed_mutant_has_a_reason():
    assert all(entry["why"] for entries in EQUIVALENT.values() for entry in entries)
