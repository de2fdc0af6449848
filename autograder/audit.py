"""Does anything that reaches a learner or a reader give an answer away?

What counts as giving away is said, with its reasons, in needles.py; what a file says, in surface.py.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from autograder import needles, source, surface
from autograder.course import Course, Project
from autograder.needles import Needle
from autograder.source import Secret
from autograder.surface import Piece

_GIVEN = "given by the curriculum: this chapter builds on it and is released after that one is due"
# Reviewed: chapter -> cell id -> why that cell may say what an answer says. The tag `given` alone gets none on it.
ALLOWED: dict[str, dict[str, str]] = {
    "06_blocks": {"MultiHeadAttention": _GIVEN},
    "07_masking": dict.fromkeys(("MultiHeadAttention", "FeedForward"), _GIVEN),
    "08_transformer": dict.fromkeys(
        ("MultiHeadAttention", "PositionalEncoding", "masks", "EncoderBlock", "DecoderBlock"), _GIVEN),
}
_MARKER = re.compile(r"(?:BEGIN|END) (?:SOLUTION|HIDDEN TESTS|MARK SCHEME)")


@dataclass(frozen=True, order=True)
class Leak:
    """A part of a secret, and where it lies open."""

    where: str
    kind: str
    chapter: str
    cell_id: str
    text: str

    def __str__(self) -> str:
        shown = " ".join(self.text.split())
        shown = shown if len(shown) <= 60 else shown[:59] + "…"
        owner = f" of solutions/{self.chapter}.md" if self.chapter else ""
        owner += f", cell '{self.cell_id}'" if self.cell_id else ""
        return f"{self.where}: shows the {self.kind}{owner}: {shown}"


def audit(project: Project, *places: Path, say: Callable[[str], None] = lambda line: None) -> list[Leak]:
    """Every leak in files and folders: chapters/ and the built book, where no others are named."""
    search, found = Search(project), set()
    for place in places or (project.chapters, project.build / "html"):
        say(f"{project.name(place)}: " + ("looking" if place.exists() else "not there, so not looked at"))
        found |= set(search.leaks(surface.walk(place, project.name(place))))
    return sorted(found)


def audit_feedback(project: Project, course: Course, *, say: Callable[[str], None] = lambda line: None) -> list[Leak]:
    """Every leak in the feedback files of a course, but for what the learner handed in themselves."""
    search, found = Search(project), set()
    for assignment in course.assignments():
        say(f"{assignment}: looking at the feedback for {len(course.students(assignment))} learners")
        for student in course.students(assignment):
            theirs = course.path(course.feedback, student, assignment)
            handed_in = course.path(course.submitted, student, assignment)
            known = {(leak.chapter, leak.cell_id, leak.kind, leak.text)
                     for leak in search.all(surface.walk(handed_in, "")) if leak.kind in ("solution", "model answer")}
            found |= set(search.leaks(surface.walk(theirs, str(theirs)), known=known))
    return sorted(found)


class Search:
    """The secrets of a project, made ready to be looked for."""

    def __init__(self, project: Project):
        loaded = {slug: source.load(project, slug) for slug in project.slugs()}
        shown = {slug: source.public(notebook) for slug, notebook in loaded.items()}
        pages = [path.read_text(encoding="utf-8") for path in sorted(project.book.glob("*.md"))]
        public = needles.stems("\n".join([*pages, *(text for cells in shown.values() for text in cells.values())]))
        made: dict[Needle, None] = {}   # each once, in order
        for slug, notebook in loaded.items():
            secrets = [*source.regions(notebook), *source.regions(source.lowered(notebook))]
            for secret in secrets:
                made.update(dict.fromkeys(needles.needles(slug, secret, public)))
            every = Secret("words of the answers", "", "\n".join(secret.text for secret in secrets))
            made.update(dict.fromkeys(needles.unordered(slug, every, needles.stems("\n".join(shown[slug].values())))))
        self._sort(made)
        self.allowed = {slug: [text for cell_id, text in shown[slug].items() if cell_id in ALLOWED.get(slug, {})]
                        for slug in loaded}
        stems = "|".join(re.escape(path.stem) for path in project.book.glob("*.md")) or "(?!)"
        # The pages about teaching show the markers and a check line; in chapters both would be a slip.
        self.teaching = re.compile(rf"(?:^|/)book/(?:{stems})\.")

    def _sort(self, made: Iterable[Needle]) -> None:
        """By how they are looked up."""
        self.by_anchor: dict[str, list[Needle]] = {}
        self.by_trees: dict[tuple[int, ...], list[Needle]] = {}
        self.by_stems: list[Needle] = []
        for needle in made:
            if needle.anchor:
                self.by_anchor.setdefault(needle.anchor, []).append(needle)
            if needle.trees:
                self.by_trees.setdefault(needle.trees, []).append(needle)
            if needle.stems:
                self.by_stems.append(needle)
        self.lengths = {len(trees) for trees in self.by_trees} - {1}

    def leaks(self, pieces: Iterable[Piece], known: Iterable[tuple[str, ...]] = ()) -> Iterator[Leak]:
        """One leak for each secret and place, its longest; `known` ones are left out."""
        longest: dict[tuple[str, ...], Leak] = {}
        for leak in self.all(pieces):
            key = (leak.where, leak.chapter, leak.cell_id, leak.kind)
            if (leak.chapter, leak.cell_id, leak.kind, leak.text) not in known:
                longest[key] = max(leak, longest.get(key, leak), key=lambda one: len(one.text))
        yield from longest.values()

    def all(self, pieces: Iterable[Piece]) -> Iterator[Leak]:
        """Every part of every secret in the pieces."""
        for piece in pieces:
            teaching = self.teaching.search(piece.where)
            for needle in self._found(piece):
                if not (teaching and needle.secret.kind == "hidden tests"):
                    yield Leak(piece.where, needle.secret.kind, needle.chapter, needle.secret.cell_id, needle.text)
            marker = _MARKER.search(piece.text)
            if marker and not teaching:
                yield Leak(piece.where, "marker", "", "", marker[0])

    def _found(self, piece: Piece) -> Iterator[Needle]:
        if piece.kind == "terms":
            held = frozenset(piece.text.split())
            for needle in self.by_stems:
                enough = max(needles.INDEX_WORDS, needles.INDEX_SHARE * len(needle.stems))
                own_page = needle.secret.cell_id or needle.chapter in piece.where
                if own_page and len(needle.stems & held) >= enough:
                    yield needle
            return
        allowed = [text for slug, texts in self.allowed.items() if slug in piece.where for text in texts]
        yield from self._in_text(piece.text, allowed)
        if "\\n" in piece.text or '\\"' in piece.text:   # a string as repr or JSON writes it
            plain = piece.text.replace("\\n", "\n").replace('\\"', '"').replace("\\'", "'")
            yield from self._in_text(plain, allowed)
        if piece.kind == "code" and needles.tokens(piece.text) not in map(needles.tokens, allowed):
            yield from self._in_code(piece.text)

    def _in_text(self, text: str, allowed: list[str]) -> Iterator[Needle]:
        present = set(re.findall(r"\w+", text))
        present |= {word.lower() for word in present}
        likely = [needle for word in present & self.by_anchor.keys() for needle in self.by_anchor[word]
                  if needle.parts <= present]
        for bare in (False, True) if likely and "#" in text else (False,) if likely else ():
            tokens, words = _read(text, bare=bare), needles.words(text)
            for known in allowed:
                tokens = tokens.replace(_read(known, bare=bare), " \n ")
                words = words.replace(needles.words(known), " \n ")
            yield from (needle for needle in likely
                        if (needle.tokens and needle.tokens in tokens) or (needle.words and needle.words in words))

    def _in_code(self, text: str) -> Iterator[Needle]:
        tree = needles.parsed(text)
        if tree is not None:
            for trees in needles.Prints(tree).found(self.lengths) & self.by_trees.keys():
                yield from self.by_trees[trees]


def _read(text: str, *, bare: bool) -> str:
    return needles.tokens(re.sub(r"#.*", "", text) if bare else text)
