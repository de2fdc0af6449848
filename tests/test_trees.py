"""Syntax trees from several threads at once: CPython 3.11 fails at it, and a submission was refused over it."""

import ast
import gc
import sys
import threading
import time

import pytest

from autograder import trees

TEXT = "x = [((a + b) * c, {d: e}) for f in (g(h)(i) for j in k) if l]\n" * 20


class Litter:
    """Garbage whose collection runs Python, so that threads change in the middle of a tree."""

    def __init__(self):
        self.itself = self

    def __del__(self):
        sum(range(50))


@pytest.fixture
def switching():
    """Threads that change, and garbage that is collected, as often as can be."""
    interval, threshold = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(20)
    yield
    gc.set_threshold(*threshold)
    sys.setswitchinterval(interval)


def failures(parse, seconds: float) -> list[str]:
    """What four threads say that parse the same text over and over, until one fails."""
    end, said = time.monotonic() + seconds, list[str]()

    def work() -> None:
        while not said and time.monotonic() < end:
            Litter()
            try:
                parse(TEXT)
            except SystemError as error:
                said.append(str(error))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return said


def test_trees_are_built_by_four_threads_at_once(switching):
    assert failures(trees.parse, 3) == []


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="seen with CPython 3.11 only")
def test_without_the_lock_they_are_not(switching):
    assert failures(ast.parse, 60)


def test_errors_are_those_of_ast():
    for wrong, error in (("x =", SyntaxError), ("x\0", (SyntaxError, ValueError))):
        with pytest.raises(error):
            trees.parse(wrong)
    assert ast.unparse(trees.parse_expression("f(1)")) == "f(1)"
