"""What one cell of a source may say: tags, id, points, markers and Python.

Whatever is malformed is an error that names the line, the cell and the cure: nbgrader itself passes a misspelt marker
on to the learner, solution and all.
"""

import ast
import re
import sys
import unicodedata
from dataclasses import dataclass
from difflib import SequenceMatcher
from textwrap import dedent

from autograder import lower, trees
from autograder.errors import CourseError

# What stands in the source, so that it also runs when opened in JupyterLab; loading puts solutions/setup.py here.
SETUP = "%run setup.py\nfrom autograder.checks import check"
# A given cell may be one line `from transformer import NAME, NAME`; loading puts the definitions there.
# role -> (cell type, needs an id, needs points)
ROLES = {
    "setup": ("code", False, False),
    "exercise": ("code", True, False),
    "tests": ("code", True, True),
    "written": ("markdown", True, True),
    "given": ("code", True, False),
    "demo": ("code", False, False),
    "try": ("code", False, False),
}
MARKED = {"exercise": "SOLUTION", "tests": "HIDDEN TESTS", "written": "MARK SCHEME"}
# nbgrader acts on these words anywhere in a line; on these and AUTOTEST, for which it would start a kernel.
WORDS = [f"{edge} {name}" for name in MARKED.values() for edge in ("BEGIN", "END")]
MARKERS = [f"### {words}" for words in WORDS]
# Spellings to measure closeness to: what people write who mean a marker.
_MEANT = [f"{edge} {name}" for edge in ("BEGIN", "END", "START", "STOP")
          for name in (*MARKED.values(), "MARKING SCHEME", "TESTS", "HIDDEN", "TEST")]
# What a student notebook may import: IPython comes with every kernel, PIL with every matplotlib.
LIBRARIES = set(sys.stdlib_module_names) | {"numpy", "torch", "matplotlib", "mpl_toolkits", "IPython", "PIL"}
_CLOSE = 0.82   # of difflib's ratio: one or two wrong letters in a marker's length


@dataclass(frozen=True)
class Cell:
    """One cell of a source file, its fields read; `where` is file:line."""

    where: str
    kind: str
    text: str
    role: str | None = None
    timed: bool = False
    id: str | None = None
    points: int | float | None = None

    def error(self, problem: str) -> CourseError:
        return CourseError(f"{self.where}: cell '{self.id or self.role or self.kind}': {problem}")


def check(cell: Cell) -> None:
    """Raise CourseError for what is wrong with a cell by itself."""
    _check_fields(cell)
    if cell.kind == "markdown":   # first: a code fence left open swallows cells, markers and all
        try:
            lower.inspect(cell.text)
        except CourseError as problem:
            raise cell.error(str(problem)) from problem
    _check_markers(cell)
    if cell.role == "written" and not "".join(public(cell)).strip():
        raise cell.error("no model answer beside the mark scheme; write one, in the same cell")
    if cell.role == "setup":
        if cell.text.strip() != SETUP:
            raise cell.error(f"a setup cell holds exactly {' and '.join(map(repr, SETUP.splitlines()))}; write that")
    elif cell.kind == "code":
        _check_code(cell)


def _check_fields(cell: Cell) -> None:
    kind, needs_id, needs_points = ROLES.get(cell.role or "", (cell.kind, False, False))
    if cell.kind != kind:
        raise cell.error(f"'{cell.role}' is for {kind} cells and this one is {cell.kind}; make it a {kind} cell")
    if cell.timed and cell.role not in ("demo", "try"):
        raise cell.error("'timed' only accompanies demo or try; add one of them or remove it")
    if needs_id and cell.id is None:
        raise cell.error(f"{cell.role} cells need an id; add ':id: NAME'" if kind == "code" else
                         'written cells need an id; add "id": "NAME" to the JSON after +++')
    if cell.id is not None and not (isinstance(cell.id, str) and re.fullmatch(r"[A-Za-z][\w-]{0,63}", cell.id, re.A)):
        raise cell.error("an id is a letter, then letters, digits, _ and -, at most 64 in all; change it")
    if needs_points and cell.points is None:
        raise cell.error(f"{cell.role} cells need points; add " + ("':points: 2'" if kind == "code" else '"points": 2'))
    if not needs_points and cell.points is not None:
        raise cell.error("only tests and written cells carry points; remove them")
    number = isinstance(cell.points, int | float) and not isinstance(cell.points, bool)
    if cell.points is not None and not (number and 0 < cell.points < float("inf")):
        raise cell.error(f"points must be a positive number, got {cell.points!r}; change it")


def _check_markers(cell: Cell) -> None:
    mine = MARKED.get(cell.role or "")
    for line in cell.text.split("\n"):
        if line.strip() in MARKERS:
            if mine is None or not line.strip().endswith(f" {mine}"):
                raise cell.error(f"the marker '{line.strip()}' has no place in this cell; remove it or tag the cell")
        elif marker_like(line, prose=cell.kind == "markdown"):
            raise cell.error(f"'{line.strip()}' is no marker but looks like one; write exactly "
                             f"'### BEGIN {mine or 'SOLUTION'}' or '### END {mine or 'SOLUTION'}' on its own line, "
                             "or other words")
        elif cell.kind == "code" and "AUTOTEST" in line:
            raise cell.error("nbgrader starts a kernel at the word AUTOTEST; use another")
    if mine and not spans(cell, mine):
        cure = f"enclose it in '### BEGIN {mine}' and '### END {mine}'"
        raise cell.error(f"{cell.role} cell without a {mine.lower()} region; {cure}")


def marker_like(line: str, *, prose: bool = False) -> bool:
    """Would nbgrader, or a hurried eye, take this line for a marker?"""
    if any(words in line for words in WORDS):
        return True
    for text in (line if prose else "", line.partition("#")[2]):
        words = re.sub(r"[\W\d_]+", " ", unicodedata.normalize("NFKC", text).upper()).strip()
        if 7 <= len(words) <= 24 and any(SequenceMatcher(None, words, meant).ratio() >= _CLOSE for meant in _MEANT):
            return True
    return False


def spans(cell: Cell, name: str) -> list[tuple[int, int]]:
    """The regions between `### BEGIN name` and `### END name`, as line numbers of the two markers."""
    found, start = [], None
    for at, line in enumerate(cell.text.split("\n")):
        if line.strip() == f"### BEGIN {name}":
            if start is not None:
                raise cell.error(f"'### BEGIN {name}' inside an open region; close that with '### END {name}' first")
            start = at
        elif line.strip() == f"### END {name}":
            if start is None:
                raise cell.error(f"'### END {name}' without its beginning; add '### BEGIN {name}' above it")
            if not "".join(cell.text.split("\n")[start + 1:at]).strip():
                raise cell.error(f"the {name.lower()} region is empty; fill it")
            found.append((start, at))
            start = None
    if start is not None:
        raise cell.error(f"the region '### BEGIN {name}' is never closed; add '### END {name}'")
    return found


def public(cell: Cell) -> list[str]:
    """A cell's lines but for those of its regions, markers included."""
    lines = cell.text.split("\n")
    hidden = {at for name in MARKED.values() for begin, end in spans(cell, name) for at in range(begin, end + 1)}
    return [line for at, line in enumerate(lines) if at not in hidden]


def handed_out(cell: Cell) -> list[str]:
    """The names that a given cell hands out of the reference model: those of its one line `from transformer import`."""
    match = re.fullmatch(r"from transformer import (\w+(?:, \w+)*)", cell.text.strip())
    return match[1].split(", ") if match and cell.role == "given" else []


def _check_code(cell: Cell) -> None:
    if handed_out(cell):
        return
    try:
        tree = trees.parse(cell.text)
    except SyntaxError as problem:
        raise cell.error(f"line {problem.lineno} of the cell is no Python ({problem.msg}); mend it") from problem
    _check_imports(cell, tree)
    if cell.role == "exercise":
        if cell.id not in _bound(tree):
            raise cell.error(f"an exercise's id is the name that it defines and nothing here defines {cell.id}; "
                             "rename one of the two")
        _check_solutions(cell)


def _check_solutions(cell: Cell) -> None:
    """Whole statements only: then the stub is Python, and the audit can compare syntax trees."""
    for begin, end in spans(cell, MARKED["exercise"]):
        try:
            whole = trees.parse(dedent("\n".join(cell.text.split("\n")[begin + 1:end])))
        except SyntaxError:
            whole = ast.Module([], [])
        if not whole.body:
            raise cell.error("a solution region holds no whole statements; put its markers around whole ones")


def _check_imports(cell: Cell, tree: ast.Module) -> None:
    """A learner has one file and three libraries, whatever else lies on our disk."""
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for strange in (name for name in names if name.split(".")[0] not in LIBRARIES):
            raise cell.error(f"a learner has no '{strange}' to import; use the standard library, numpy, torch and "
                             "matplotlib only")


def _bound(tree: ast.Module) -> set[str]:
    """The names that a cell defines at its top level."""
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    targets = [node.targets for node in tree.body if isinstance(node, ast.Assign)]
    return names | {target.id for group in targets for target in group if isinstance(target, ast.Name)}


def check_line(cell: Cell) -> tuple[int, str, str | None]:
    """A tests cell's one hidden line: its line number in the cell, the exercise and the part that it names."""
    cure = "it holds exactly one line, check(\"NAME\", NAME) or check(\"NAME\", NAME, part=\"core\")"
    regions = spans(cell, MARKED["tests"])
    lines = cell.text.split("\n")
    held = [at for begin, end in regions for at in range(begin + 1, end) if lines[at].strip()]
    if len(regions) != 1 or len(held) != 1:
        raise cell.error(f"the hidden region is not one check line; {cure}")
    try:
        call = trees.parse_expression(lines[held[0]])
    except SyntaxError:
        call = None
    match call:
        case ast.Call(ast.Name("check"), [ast.Constant(str(name)), ast.Name(answer)], []) if name == answer:
            return held[0], name, None
        case ast.Call(ast.Name("check"), [ast.Constant(str(name)), ast.Name(answer)],
                      [ast.keyword("part", ast.Constant(str(part)))]) if name == answer:
            return held[0], name, part
    raise cell.error(f"'{lines[held[0]].strip()}' is no check line; {cure}")
