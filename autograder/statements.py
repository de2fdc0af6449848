"""Statements of a learner's code by the names that they bind, cut out of its text to the letter."""

import ast
import re
from collections.abc import Callable

from autograder import trees

_HEAD = re.compile(r"^(?:async +def|def|class) +(\w+)", re.M)


def parsed(text: str) -> list[ast.stmt] | None:
    """The statements at the top level, None where the text is no Python."""
    try:
        return trees.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def defined(text: str) -> set[str]:
    """The functions and classes at the top level; also of text that does not parse, from its lines."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    body = parsed(text)
    return set(_HEAD.findall(text)) if body is None else {node.name for node in body if isinstance(node, kinds)}


def assigned(text: str) -> set[str]:
    """All names that the top level binds but by imports: functions, classes, variables."""
    return {name for node in parsed(text) or () for name in [*_targets(node), *_defined_by(node)]}


def new_definitions(ours: str, theirs: str) -> str:
    """The imports, functions and classes at the top level of `theirs` whose names `ours` does not bind."""
    known = {name for node in parsed(ours) or () for name in _bound(node)}
    if parsed(ours) is None:
        return ""
    return _cut(theirs, lambda node: bool(_bound(node)) and not known & set(_bound(node)))


def binding(text: str, wanted: set[str]) -> str:
    """The statements that bind one of the names."""
    return _cut(text, lambda node: bool(wanted & {*_targets(node), *_defined_by(node)}))


def beyond(ours: str, theirs: str) -> str:
    """The statements of `theirs` that `ours` does not have."""
    known = {ast.dump(node) for node in parsed(ours) or ()}
    return _cut(theirs, lambda node: ast.dump(node) not in known)


def _cut(text: str, wanted: Callable[[ast.stmt], bool]) -> str:
    lines = [line.encode() for line in re.split(r"\r\n|\r|\n", text)]
    try:
        return "\n".join(_segment(lines, node) for node in parsed(text) or () if wanted(node))
    except RecursionError:  # what can be parsed can still be too deep to look into
        return ""


def _segment(lines: list[bytes], node: ast.stmt) -> str:
    """The text of a node, its decorators with it; ast.get_source_segment splits the whole text for every node."""
    decorators = getattr(node, "decorator_list", [])
    own = lines[(decorators[0] if decorators else node).lineno - 1 : node.end_lineno]
    own[-1] = own[-1][: node.end_col_offset]
    own[0] = own[0] if decorators else own[0][node.col_offset :]
    return b"\n".join(own).decode()


def _bound(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name.split(".")[0] for alias in node.names]
    return _defined_by(node)


def _defined_by(node: ast.stmt) -> list[str]:
    return [node.name] if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) else []


def _targets(node: ast.stmt) -> list[str]:
    found = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in found if isinstance(target, ast.Name)]
