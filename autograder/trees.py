"""Python text as a syntax tree, built by one thread at a time.

CPython 3.11 counts how deep it is in a tree for all threads together. Where a collection of garbage in the middle lets
another thread build one, either fails with "SystemError: AST constructor recursion depth mismatch"
(https://github.com/python/cpython/issues/106905): one submission in some hundred was refused over it.
"""

import ast
import threading

_ALONE = threading.RLock()  # a finalizer that parses, in the same thread, must not wait for itself


def parse(text: str) -> ast.Module:
    """What `ast.parse` makes of the text of a module, with its errors."""
    with _ALONE:
        return ast.parse(text)


def parse_expression(text: str) -> ast.expr:
    """The tree of one expression."""
    with _ALONE:
        return ast.parse(text, mode="eval").body
