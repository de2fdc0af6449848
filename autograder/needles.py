"""What the audit looks for: secrets as trees, as tokens and as words, in the smallest parts that give them away.

- *A whole one-line answer*: its value, if it has 8 nodes or more, anywhere as an expression. Below that (`x + 1`,
  `2 * d`) it says no more than the formula that the prose derives.
- *Any statement* of an answer with 25 nodes or more, or its value: nobody writes that twice with the same names.
- *Two statements in a row*, 6 nodes or more each and 16 together, at any depth, with the fillers between them: a part
  of an answer copied. Fillers, such as `return y` or `self.h = h`, have fewer than 6.
- *Any statement of a hidden test*, however short: it has no business anywhere.
- *Prose* (mark schemes, model answers): 8 words in a row, or a whole line of 5 to 7, without its mathematics, which a
  derivation repeats. Shorter phrases are the subject's own.
- *A search index* holds words without their order: 3 or more words, and half or more, of those that an answer uses and
  nothing public does; or that all answers of a chapter use and nothing else in it does, which shows that the index was
  made from the solved one.

Trees are compared without comments, docstrings and layout, names included: an experiment that computes the same thing
in its own words is no leak. Text is compared as tokens, so that markup and line breaks make no difference.
"""

import ast
import functools
import io
import re
import tokenize
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from textwrap import dedent
from typing import Any

from autograder import trees
from autograder.source import Secret

ONE_LINE, STATEMENT, OF_A_PAIR, PAIR = 8, 25, 6, 16   # nodes
WORDS, SHORTEST = 8, 5
INDEX_WORDS, INDEX_SHARE = 3, 0.5

_BREAK = re.compile(r"\$\$.*?\$\$|\$[^$\n]+\$|\n\s*\n|\n\s*(?:[-*>]|\d+[.)])", re.DOTALL)


@dataclass(frozen=True)
class Needle:
    """One thing to look for: tokens in a row, words in a row, trees in a row, or words without order."""

    chapter: str
    secret: Secret
    text: str
    tokens: str = ""
    words: str = ""
    trees: tuple[int, ...] = ()
    stems: frozenset[str] = frozenset()

    @functools.cached_property
    def parts(self) -> frozenset[str]:
        """The words without which the needle cannot be there; they are looked up first, since that is quick."""
        return frozenset(re.findall(r"\w+", self.tokens or self.words))

    @functools.cached_property
    def anchor(self) -> str:
        """The most telling of the parts."""
        return max(self.parts, key=lambda part: (len(part), part), default="")


def tokens(text: str) -> str:
    """The words and signs of a text, one space around each: layout makes no difference."""
    return " ".join(["", *re.findall(r"\w+|[^\w\s]", unicodedata.normalize("NFKC", text)), ""])


def words(text: str) -> str:
    """The words of a text in lower case, one space around each."""
    return " ".join(["", *re.findall(r"\w+", unicodedata.normalize("NFKC", text).lower()), ""])


def stems(text: str) -> frozenset[str]:
    """The words of a text as Sphinx's search index has them."""
    return frozenset(_stemmer().stemWord(word) for word in words(text).split() if len(word) > 2 and not word.isdigit())


@functools.cache
def _stemmer() -> Any:
    import snowballstemmer  # Sphinx brings it

    return snowballstemmer.stemmer("porter")


def without_comments(text: str) -> str:
    """Python without its comments; what is no Python, without what follows a # in its lines."""
    try:
        lines = text.split("\n")
        for token in reversed(list(tokenize.generate_tokens(io.StringIO(text).readline))):
            if token.type == tokenize.COMMENT:
                row, column = token.start
                lines[row - 1] = lines[row - 1][:column].rstrip()
        return "\n".join(lines)
    except (tokenize.TokenError, SyntaxError):
        return re.sub(r"#.*", "", text)


def parsed(text: str) -> ast.Module | None:
    """The text as Python, if it is any, also indented as a whole, with a console's prompts or a notebook's magics."""
    bare = re.sub(r"^(?:>>> ?|\.\.\. ?|In \[\d*\]: ?)", "", dedent(text), flags=re.MULTILINE)
    bare = re.sub(r"^\s*[%!].*$", "", bare, flags=re.MULTILINE)
    for attempt in (text, dedent(text), bare):
        try:
            return trees.parse(attempt)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
    return None


class Prints:
    """The fingerprint (a hash, names included) and weight (nodes) of each part of a tree; its rows of statements."""

    def __init__(self, tree: ast.AST):
        self.of: dict[ast.AST, tuple[int, int]] = {}
        self.rows: list[list[ast.stmt]] = []
        self._take(tree)

    def _take(self, node: ast.AST) -> tuple[int, int]:
        content: list[Any] = [type(node).__name__]
        weight = 1
        for name, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                value = [one for one in value if not _is_text(one)]
                self.rows.append(value)
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, ast.expr_context):
                    continue
                if isinstance(one, ast.operator | ast.unaryop | ast.cmpop | ast.boolop):
                    content.append(type(one).__name__)
                elif isinstance(one, ast.AST):
                    inner, more = self._take(one)
                    content.append(inner)
                    weight += more
                elif name not in ("type_comment", "kind"):
                    content.append((type(one).__name__, repr(one)))
            content.append(name)
        self.of[node] = (hash(tuple(content)), weight)
        return self.of[node]

    def found(self, lengths: Iterable[int]) -> set[tuple[int, ...]]:
        """Every part by itself, and every row of so many statements."""
        parts: set[tuple[int, ...]] = {(value,) for value, _ in self.of.values()}
        for row in self.rows:
            values = [self.of[one][0] for one in row]
            for length in lengths:
                parts |= {tuple(values[at:at + length]) for at in range(len(values) - length + 1)}
        return parts


def _is_text(statement: ast.stmt) -> bool:
    """A docstring, or a string that says no more than a comment."""
    return (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            and isinstance(statement.value.value, str))


def needles(chapter: str, secret: Secret, public: frozenset[str]) -> Iterator[Needle]:
    """All that would give one secret away; `public` are the stems of what learners may read."""
    if secret.kind in ("solution", "hidden tests"):
        yield from _code_needles(chapter, secret)
    else:
        yield from _prose_needles(chapter, secret)
    yield from unordered(chapter, secret, public)


def unordered(chapter: str, secret: Secret, public: frozenset[str]) -> Iterator[Needle]:
    """The words of a secret that nothing public has, if they are enough to tell."""
    own = stems(secret.text) - public
    if len(own) >= INDEX_WORDS:
        yield Needle(chapter, secret, " ".join(sorted(own)), stems=own)


def _code_needles(chapter: str, secret: Secret) -> Iterator[Needle]:
    text = without_comments(dedent(secret.text))
    tree = parsed(text)
    if tree is None:   # of another course; in ours a region holds whole statements
        yield from (Needle(chapter, secret, line, tokens=tokens(line)) for line in text.split("\n")
                    if len(tokens(line).split()) >= ONE_LINE)
        return
    prints = Prints(tree)
    for row in _telling(prints, tree, hidden=secret.kind == "hidden tests"):
        segment = "\n".join(ast.get_source_segment(text, node) or ast.unparse(node) for node in row)
        yield Needle(chapter, secret, segment, tokens=tokens(segment), trees=tuple(prints.of[node][0] for node in row))


def _telling(prints: Prints, tree: ast.Module, *, hidden: bool) -> Iterator[list[ast.AST]]:
    """The rows of nodes of an answer, or of a hidden test, that give it away."""
    whole = [one for one in tree.body if not _is_text(one)]
    for row in prints.rows:
        weights = [prints.of[one][1] for one in row]
        for statement, weight in zip(row, weights):
            value = getattr(statement, "value", None)
            if hidden or weight >= STATEMENT:
                yield [statement]
            if value is not None and prints.of[value][1] >= (ONE_LINE if len(whole) == 1 else STATEMENT):
                yield [value]
        heavy = [at for at, weight in enumerate(weights) if weight >= OF_A_PAIR]
        for first, second in zip(heavy, heavy[1:]):
            if weights[first] + weights[second] >= PAIR:
                yield list(row[first:second + 1])


def _prose_needles(chapter: str, secret: Secret) -> Iterator[Needle]:
    for segment in _BREAK.split(secret.text):
        run = words(segment).split()
        if len(run) >= SHORTEST:
            for at in range(max(1, len(run) - WORDS + 1)):
                text = " ".join(run[at:at + WORDS])
                yield Needle(chapter, secret, text, words=f" {text} ")
