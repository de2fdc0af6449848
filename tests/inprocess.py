"""Gradings without kernels, for tests of all that stands around them: the cells run in the process of the grader."""

import ast
from contextlib import nullcontext

import nbformat

from autograder import kernels
from autograder.kernels import Ran
from autograder.outputs import error_output


def enter(session):
    session.names = {}
    return session


def run(session, code, timeout=None, *, kept=True):
    """Run a cell as a kernel would: an error or the value of the last line comes out."""
    try:
        tree = ast.parse(code)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "cell", "exec"), session.names)
        value = eval(compile(ast.Expression(last.value), "cell", "eval"), session.names) if last else None
    except Exception as error:
        return Ran([error_output(type(error).__name__, str(error))])
    data = {"text/plain": repr(value)}
    return Ran([] if value is None else [nbformat.v4.new_output("execute_result", data=data, execution_count=1)])


def install(patch=setattr):
    """From now on no kernel is started; `patch` is setattr or a MonkeyPatch's."""
    patch(kernels, "Zygote", lambda *args, **words: nullcontext())
    for name, method in (("__enter__", enter), ("__exit__", lambda *_: None), ("run", run)):
        patch(kernels.Session, name, method)
