"""Canaries: checks that must fail, tried around a test of plain asserts, which passes where nothing raises.

A learner's code shares the process with such a test, and can keep asserts from raising, silence the error, or hand out
objects that equal everything. A canary that does not fail tells; one that fails proves nothing, for who knows what to
look for can let it. Pure: code out, a verdict on what came of it in.
"""

import ast
import random
import secrets
import string
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from autograder import trees
from autograder.cells import SECRET
from autograder.kernels import Ran

# The kind of a result that a canary has struck out.
NEUTRALISED = "asserts neutralised"
_MOST = 8  # helpers of one test that are tried
_FAR = 1_000_003  # from what a test expects to what no tolerance reaches
_TIGHT = 0.1  # a tolerance below this hides none of the changes to a number
_EMPTY: tuple[Any, ...] = (None, [], (), "", b"", {}, set())

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
        return trees.parse(test).body
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
    """The test changed so that it must fail; None where it has nothing to change.

    One value that the cell compares with on every run of it, by equality or within a small tolerance, is another one
    now; where it states none, one of its asserts is denied. In the hidden part where that has either: a learner knows
    the rest.
    """
    draw, body = random.Random(seed), _parsed(test)
    secret = [statement for statement in body if any(statement.lineno in lines for lines in _hidden_lines(test))]
    for statements in (secret, body):
        stated = [(one, node) for one in statements if (node := _expected(one)) is not None]
        if stated:
            statement, node = draw.choice(stated)
            return _replaced(test, node, repr(_other(ast.literal_eval(node), None if _is_loose(statement) else draw)))
        claims = [one.test for one in statements if isinstance(one, ast.Assert)]
        if claims:
            return _denied(test, draw.choice(claims), draw)
    return None


# A value that is computed, v, made another of its kind: with the number n, or the word w.
_COMPUTED = (
    "(lambda v, n, w: not v if isinstance(v, bool) else v + type(v)(n) if isinstance(v, (int, float, complex))"
    " else v + w if isinstance(v, str) else type(v)([*v[:-1], n]) if isinstance(v, (list, tuple))"
    " else {{*v, n}} if isinstance(v, set) else {{**v, w: n}} if isinstance(v, dict) else w)({}, {}, {!r})"
)


def _denied(test: str, claim: ast.expr, draw: random.Random) -> str:
    """The test with the opposite of an assert; where it says that two things are equal, one is another of its kind.

    Of its kind, for an object that equals every list would tell a word from a list.
    """
    if isinstance(claim, ast.Compare) and len(claim.ops) == 1 and isinstance(claim.ops[0], ast.Eq):
        right = claim.comparators[0]
        number, word = draw.getrandbits(20) + _FAR + 0.5, f"{draw.getrandbits(48):012x}"
        return _replaced(test, right, _COMPUTED.format(ast.get_source_segment(test, right), number, word))
    return _replaced(test, claim, f"not ({ast.get_source_segment(test, claim)})")


def _hidden_lines(test: str) -> list[range]:
    """Which lines of a test no learner has seen."""
    spans = [(test.count("\n", 0, one.start()), test.count("\n", 0, one.end())) for one in SECRET.finditer(test)]
    return [range(first + 1, last + 1) for first, last in spans]


def _replaced(test: str, node: ast.expr, text: str) -> str:
    """The test with this text where a node stands; where it stands is said in bytes."""
    raw = test.encode()
    lines = raw.splitlines(keepends=True)
    start = sum(map(len, lines[: node.lineno - 1])) + node.col_offset
    end = sum(map(len, lines[: (node.end_lineno or node.lineno) - 1])) + (node.end_col_offset or 0)
    return (raw[:start] + text.encode() + raw[end:]).decode()


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


def _is_loose(statement: ast.stmt) -> bool:
    """Does a comparison say a tolerance of its own that may hide a small change?"""
    words = [word.value for node in ast.walk(statement) if isinstance(node, ast.Call) for word in node.keywords]
    return any(isinstance(size := _value(word), int | float) and not abs(size) < _TIGHT for word in words)


def _other(value: Any, draw: random.Random | None) -> Any:
    """Another value of the same kind, which nobody can foretell who does not know the right one.

    Without `draw` a number is far from the right one; so an object that equals all that is likely would not be caught.
    """
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return _other_number(value, draw)
    if isinstance(value, str):
        return _other_text(value, draw or random.Random(value))
    if isinstance(value, bytes):
        return _other_text(value.decode("latin-1"), draw or random.Random(value)).encode("latin-1")
    items: list[Any] = sorted(value, key=repr) if isinstance(value, dict | set) else list(value)
    at = draw.randrange(len(items)) if draw else 0
    if isinstance(value, dict):
        return {**value, items[at]: _FAR if value[items[at]] in _EMPTY else _other(value[items[at]], draw)}
    items[at] = _FAR if items[at] in _EMPTY else _other(items[at], draw)
    return type(value)(items)


def _other_number(value: float, draw: random.Random | None) -> float:
    """A number more than 1 and a third away, of the same sign if it has one: no default tolerance bridges that."""
    if not abs(value) < _FAR:
        return 0
    if draw is None:
        return value + _FAR
    step = draw.randint(2, 9) + abs(value) // 2
    toward = abs(value) > step and draw.random() < 0.5
    sign = (-1 if value < 0 else 1) if value else draw.choice((-1, 1))
    return value + (-sign if toward else sign) * step


def _other_text(text: str, draw: random.Random) -> str:
    """A text with one letter or digit changed."""
    kinds = (string.ascii_lowercase, string.ascii_uppercase, string.digits)
    places = [(at, kind) for at, letter in enumerate(text) for kind in kinds if letter in kind]
    if not places:
        return text + draw.choice(string.ascii_lowercase)
    at, kind = draw.choice(places)
    return text[:at] + draw.choice(kind.replace(text[at], "")) + text[at + 1 :]
