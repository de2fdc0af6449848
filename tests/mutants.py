"""Automatic mutants of a solution: one small change each, as a careless learner or a typo would make it."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator

_SWAPS: dict[type, list[type]] = {
    ast.Add: [ast.Sub],
    ast.Sub: [ast.Add],
    ast.Mult: [ast.Div],
    ast.Div: [ast.Mult],
    ast.FloorDiv: [ast.Mult],
    ast.Mod: [ast.FloorDiv],
    ast.Pow: [ast.Mult],
    ast.MatMult: [ast.Mult],
    ast.Lt: [ast.LtE, ast.GtE],
    ast.LtE: [ast.Lt, ast.Gt],
    ast.Gt: [ast.GtE, ast.LtE],
    ast.GtE: [ast.Gt, ast.Lt],
    ast.Eq: [ast.NotEq],
    ast.NotEq: [ast.Eq],
    ast.Is: [ast.IsNot],
    ast.IsNot: [ast.Is],
    ast.And: [ast.Or],
    ast.Or: [ast.And],
    ast.BitAnd: [ast.BitOr],
    ast.BitOr: [ast.BitAnd],
}


# Swapping their first two arguments changes nothing, or only types.
_SYMMETRIC = {"transpose", "swapaxes", "isinstance"}


def mutants(source: str) -> Iterator[tuple[str, str]]:
    """Every mutant of a definition as (what was changed, the new source)."""
    tree = ast.parse(source)
    original, seen = ast.unparse(tree), set()
    for index, node in enumerate(ast.walk(tree)):
        for what, change in _changes(node):
            mutated = copy.deepcopy(tree)
            target = next(each for i, each in enumerate(ast.walk(mutated)) if i == index)
            change(target)
            text = ast.unparse(ast.fix_missing_locations(mutated))
            if text != original and text not in seen:
                seen.add(text)
                yield f"`{ast.unparse(node).splitlines()[0][:60]}`: {what}", text


def _changes(node):
    yield from _operators(node)
    yield from _constants(node)
    yield from _calls(node)
    yield from _statements(node)


def _operators(node):
    if isinstance(node, (ast.BinOp, ast.AugAssign, ast.BoolOp)):
        for other in _SWAPS.get(type(node.op), []):
            yield f"{type(node.op).__name__} -> {other.__name__}", lambda n, o=other: setattr(n, "op", o())
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Sub, ast.Div, ast.MatMult, ast.Pow)):
        yield "operands swapped", _swap_operands
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        for other in _SWAPS.get(type(node.ops[0]), []):
            yield f"{type(node.ops[0]).__name__} -> {other.__name__}", lambda n, o=other: n.ops.__setitem__(0, o())
    if isinstance(node, ast.UnaryOp) and not isinstance(node.operand, ast.Constant):
        yield f"{type(node.op).__name__} dropped", _drop_unary


def _swap_operands(node):
    node.left, node.right = node.right, node.left


def _drop_unary(node):
    """-x becomes +x; `not x` and `~x` become x, said as `x if True else x` so that the node keeps its place."""
    if isinstance(node.op, ast.USub):
        node.op = ast.UAdd()
    else:
        operand = node.operand
        node.__class__ = ast.IfExp
        node.__dict__ = {"test": ast.Constant(True), "body": operand, "orelse": operand}


def _constants(node):
    if not isinstance(node, ast.Constant) or isinstance(node.value, (str, bytes)):
        return
    if isinstance(node.value, bool):
        yield f"{node.value} -> {not node.value}", lambda n: setattr(n, "value", not n.value)
    elif isinstance(node.value, (int, float)):
        for shift in (1, -1):
            yield f"{node.value} -> {node.value + shift}", lambda n, s=shift: setattr(n, "value", n.value + s)


def _calls(node):
    if isinstance(node, ast.Call):
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        plain = len(node.args) >= 2 and not any(isinstance(arg, ast.Starred) for arg in node.args[:2])
        if plain and name not in _SYMMETRIC:
            yield "first two arguments swapped", lambda n: n.args.__setitem__(slice(0, 2), n.args[1::-1])
        for i, keyword in enumerate(node.keywords):
            yield f"argument {keyword.arg} dropped", lambda n, i=i: n.keywords.pop(i)
    if isinstance(node, ast.IfExp):
        yield "branches swapped", lambda n: n.__dict__.update(body=n.orelse, orelse=n.body)
    if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple) and len(node.value.elts) == 2:
        yield "results swapped", lambda n: n.value.elts.reverse()


def _statements(node):
    for field in ("body", "orelse"):
        block = getattr(node, field, None)
        if not isinstance(block, list) or isinstance(node, ast.Module):
            continue
        for i, statement in enumerate(block):
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                continue  # a docstring
            yield f"dropped `{ast.unparse(statement).splitlines()[0][:50]}`", _dropper(field, i)


def _dropper(field, index):
    def drop(node):
        block = getattr(node, field)
        block[index] = ast.Pass()

    return drop
