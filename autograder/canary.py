"""Canaries: checks that must fail, tried around a test of plain asserts, which passes where nothing raises.

A learner's code shares the process with such a test, and can keep asserts from raising, silence the error, or hand out
objects that equal everything. A canary that does not fail tells; one that fails proves nothing, for who knows what to
look for can let it. Pure: code out, a verdict on what came of it in.
"""

import ast
import random
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from autograder.kernels import Ran

# The kind of a result that a canary has struck out.
NEUTRALISED = "asserts neutralised"
_MOST = 8  # helpers of one test that are tried
_FAR = 1_000_003  # from what a test expects to what no right answer gives

# Helpers that tests compare with, by the end of their name, in a use that must fail. {} is the name as the test has it.
_RAISING = (
    "testing.assert_allclose", "testing.assert_equal", "testing.assert_almost_equal", "testing.assert_approx_equal",
    "testing.assert_array_equal", "testing.assert_array_almost_equal", "testing.assert_close",
)  # fmt: skip
_EQUAL = (
    "allclose", "isclose", "array_equal", "equal", "assert_allclose", "assert_equal", "assert_almost_equal",
    "assert_approx_equal", "assert_array_equal", "assert_array_almost_equal", "assert_close", "assertEqual",
    "assertAlmostEqual",
)  # fmt: skip
_LIBRARIES = ("np", "numpy", "math", "torch")
_FALSE = {
    "allclose": "{}(1.0, 2.0)", "isclose": "{}(1.0, 2.0)", "array_equal": "{}([1], [2])", "equal": "{}(1.0, 2.0)",
    "abs": "{}(-3.5) < 1", "fabs": "{}(-3.5) < 1", "norm": "{}([3.0, 4.0]) < 1", "max": "{}([1, 2]) < 2",
    "min": "{}([1, 2]) > 1", "sum": "{}([1, 2]) == 4", "all": "{}([False])", "any": "{}([False])",
    "len": "{}([1, 2]) == 3", "isinstance": "{}(1, str)", "round": "{}(3.7) == 3", "sorted": "{}([2, 1]) == [2, 1]",
    "list": "{}((1,)) == [2]", "tuple": "{}([1]) == (2,)", "set": "{}([1]) == {{2}}", "str": "{}(1) == '2'",
    "type": "{}(1) is str", "hasattr": "{}(1, 'nothing')", "callable": "{}(1)",
}  # fmt: skip


@dataclass(frozen=True)
class Canary:
    """Code that must end in an error, with `says` in its text; where `shows` is given, it must display that instead."""

    what: str
    code: str
    says: str = ""
    shows: str = ""

    def holds(self, ran: Ran) -> bool:
        """Did it come out as it must?"""
        if self.shows:
            results = [output for output in ran.outputs if output.output_type == "execute_result"]
            return [str(output.data.get("text/plain", "")).strip() for output in results] == [self.shows]
        errors = [output for output in ran.outputs if output.output_type == "error"]
        return any(self.says in str(error.evalue) for error in errors)


def around(test: str) -> list[Canary]:
    """The canaries to try before and after a test cell with this text."""
    word, one, two = secrets.token_hex(6), *random.sample(range(10, 99999), 2)
    found = [
        Canary("assert False", f"assert False, '{word}'", word),
        Canary("an assert of two values that differ", f"assert [{one}, 'a'] == [{two}, 'a'], '{word}'", word),
    ]
    body = _parsed(test)
    if body and _shows(body[-1]) and not test.rstrip().endswith(";"):
        found.append(Canary("the display of a number", f"{one} + {two}", shows=str(one + two)))
    return [*found, *list(_helpers(body))[:_MOST]]


def _parsed(test: str) -> list[ast.stmt]:
    """The statements of a test; none where it is more than Python, a magic say."""
    try:
        return ast.parse(test).body
    except (SyntaxError, ValueError, RecursionError):
        return []


def _shows(last: ast.stmt) -> bool:
    """Does a cell that ends so display a value, which nbgrader takes for points?"""
    if not isinstance(last, ast.Expr) or isinstance(last.value, ast.Constant) and isinstance(last.value.value, str):
        return False
    return not (isinstance(last.value, ast.Call) and "assert" in (_dotted(last.value.func) or "").lower())


def _helpers(body: list[ast.stmt]) -> Iterator[Canary]:
    calls = (node.func for statement in body for node in ast.walk(statement) if isinstance(node, ast.Call))
    for name in dict.fromkeys(name for call in calls if (name := _dotted(call))):
        library, _, own = name.rpartition(".")
        if name.endswith(_RAISING):
            yield Canary(name, f"{name}(1.0, 2.0)")
        elif own in _FALSE and (not library or library.partition(".")[0] in _LIBRARIES):
            yield Canary(name, f"assert {_FALSE[own].format(name)}")


def _dotted(node: ast.expr) -> str | None:
    """A name, or names with dots between them, as text."""
    if isinstance(node, ast.Name):
        return node.id
    head = _dotted(node.value) if isinstance(node, ast.Attribute) else None
    return f"{head}.{node.attr}" if head and isinstance(node, ast.Attribute) else None


# ---- a test turned into a canary --------------------------------------------------------------------------------


def twisted(test: str, seed: str) -> str | None:
    """The test with one value that it expects changed, so that it must fail; None where no such value stands in it.

    Only a literal that the cell compares with on every run of it, by equality or within a small tolerance: no right
    answer equals both.
    """
    wanted = [node for statement in _parsed(test) if (node := _expected(statement)) is not None]
    if not wanted:
        return None
    node = random.Random(seed).choice(wanted)
    raw = test.encode()
    lines = raw.splitlines(keepends=True)
    start = sum(map(len, lines[: node.lineno - 1])) + node.col_offset
    end = sum(map(len, lines[: (node.end_lineno or node.lineno) - 1])) + (node.end_col_offset or 0)
    return (raw[:start] + repr(_other(ast.literal_eval(node))).encode() + raw[end:]).decode()


def _expected(statement: ast.stmt) -> ast.expr | None:
    """The literal that a statement at the top of a cell compares with."""
    test = statement.test if isinstance(statement, ast.Assert) else getattr(statement, "value", None)
    if isinstance(test, ast.Call) and isinstance(statement, ast.Assert | ast.Expr):
        named = (_dotted(test.func) or "").rpartition(".")[2]
        small = all(_tolerance(word.value) for word in test.keywords)
        return _literal_of(test.args[:2]) if named in _EQUAL and small and len(test.args) == 2 else None
    if not isinstance(statement, ast.Assert) or not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    right = test.comparators[0]
    if isinstance(test.ops[0], ast.Eq):
        return _literal_of([test.left, right])
    if isinstance(test.ops[0], ast.Lt | ast.LtE) and _tolerance(right) and isinstance(test.left, ast.Call):
        gap = test.left.args[0] if (_dotted(test.left.func) or "").endswith("abs") and test.left.args else None
        if isinstance(gap, ast.BinOp) and isinstance(gap.op, ast.Sub):
            return _literal_of([gap.left, gap.right])
    return None


def _literal_of(sides: list[ast.expr]) -> ast.expr | None:
    """The side that is a literal, by itself or made an array; None unless it is just one."""
    made = ("array", "asarray", "tensor")
    bare = [
        side.args[0] if isinstance(side, ast.Call) and side.args and (_dotted(side.func) or "").endswith(made) else side
        for side in sides
    ]
    found = [side for side in bare if _value(side) is not None]
    return found[0] if len(found) == 1 and _value(found[0]) not in ([], (), "", b"", {}) else None


def _value(node: ast.expr) -> Any:
    """What a literal stands for; None where it is none that can be changed."""
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    return value if isinstance(value, bool | int | float | str | bytes | list | tuple | set | dict) else None


def _tolerance(node: ast.expr) -> bool:
    """Is it too small to hide what `_other` changes?"""
    value = _value(node)
    return isinstance(value, str | bool) or isinstance(value, int | float) and abs(value) < 1


def _other(value: Any) -> Any:
    """A value of the same kind that is far from this one."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + _FAR if abs(value) < _FAR else 0
    if isinstance(value, str):
        return value + "~"
    if isinstance(value, bytes):
        return value + b"~"
    if isinstance(value, dict):
        return {**value, _FAR: _FAR}
    if isinstance(value, set):
        return value | {_FAR}
    changed = _other(value[0]) if value and value[0] is not None else _FAR
    return type(value)([changed, *value[1:]])
