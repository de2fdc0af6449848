"""Which cell of a submission is which of ours: by nbgrader's id, by cell id, and where those are gone by content."""

import difflib
from dataclasses import dataclass, field

from nbformat import NotebookNode

from autograder.cells import grade_id, is_answer, is_graded, released, same_text
from autograder.statements import defined

# From here on two texts are versions of one cell: a stub and an answer to it share signature and docstring.
ALIKE = 0.5

# Characters and cells: the time that it takes grows with the product of both lengths, and worse where they repeat.
_COMPARED, _CANDIDATES = 2000, 20

Cells = list[NotebookNode]


@dataclass
class Pairs:
    """`chosen[ours] = theirs` by place; `copies[ours]` are further cells of theirs under the same id,
    `used` those that went into an answer beside its own.

    `sure`: is theirs a copy of ours at all? Chapters share a set-up cell, and blank written answers look alike.
    """

    chosen: dict[int, int] = field(default_factory=dict)
    copies: dict[int, list[int]] = field(default_factory=dict)
    used: set[int] = field(default_factory=set)
    sure: bool = False

    def open(self, ours: Cells) -> list[int]:
        """Our cells that have no partner yet."""
        return [place for place in range(len(ours)) if place not in self.chosen]

    def free(self, theirs: Cells) -> list[int]:
        """Their cells that are nobody's partner yet."""
        taken = {*self.chosen.values(), *(copy for copies in self.copies.values() for copy in copies)}
        return [index for index in range(len(theirs)) if index not in taken]


def pair(ours: Cells, theirs: Cells) -> Pairs:
    """Pair the cells, the surest signs first."""
    pairs = Pairs()
    work = {place for place, cell in enumerate(ours) if is_answer(cell) or is_graded(cell)}
    _by_grade_id(ours, theirs, pairs)
    _by_id(ours, theirs, pairs)
    pairs.sure = bool(work & pairs.chosen.keys())
    _by_text(ours, theirs, pairs)
    _by_name(ours, theirs, pairs)
    pairs.sure |= any(ours[place].cell_type == "code" for place in work & pairs.chosen.keys())
    pairs.sure |= 2 * len(pairs.chosen) >= len(ours)
    if pairs.sure:
        _by_place(ours, theirs, pairs)
    return pairs


def _by_grade_id(ours: Cells, theirs: Cells, pairs: Pairs) -> None:
    """Where an answer was copied, the last copy with something in it counts, as it does when the cells run in order."""
    for place, cell in enumerate(ours):
        name = grade_id(cell)
        found = [index for index, other in enumerate(theirs) if name and grade_id(other) == name]
        if not found:
            continue
        written = [index for index in found if same_text(theirs[index].source) != released(cell)]
        best = written[-1] if is_answer(cell) and written else found[0]
        pairs.chosen[place] = best
        if len(found) > 1:
            pairs.copies[place] = [index for index in found if index != best]


def _by_id(ours: Cells, theirs: Cells, pairs: Pairs) -> None:
    free = {theirs[index].get("id"): index for index in reversed(pairs.free(theirs))}
    for place in pairs.open(ours):
        name = ours[place].get("id")
        if name and name in free:
            pairs.chosen[place] = free.pop(name)


def _by_text(ours: Cells, theirs: Cells, pairs: Pairs) -> None:
    """Cells whose text nobody changed, in their order."""
    places, free = pairs.open(ours), [index for index in pairs.free(theirs) if theirs[index].source.strip()]
    left = [(ours[place].cell_type, released(ours[place])) for place in places]
    right = [(theirs[index].cell_type, same_text(theirs[index].source)) for index in free]
    for block in difflib.SequenceMatcher(None, left, right, autojunk=False).get_matching_blocks():
        for step in range(block.size):
            pairs.chosen[places[block.a + step]] = free[block.b + step]


def _by_name(ours: Cells, theirs: Cells, pairs: Pairs) -> None:
    """An answer that defines what the stub defines; of several the last, as it is when the cells run in order."""
    for place in pairs.open(ours):
        wanted = defined(ours[place].source) if is_answer(ours[place]) else set()
        found = [index for index in pairs.free(theirs) if wanted & defined(theirs[index].source)]
        if found:
            pairs.chosen[place] = found[-1]


def _by_place(ours: Cells, theirs: Cells, pairs: Pairs) -> None:
    """An answer between two neighbours that are known: the likest cell there, or the only one that is left."""
    for place in [place for place in pairs.open(ours) if is_answer(ours[place])]:
        low, high = _window(place, pairs, len(theirs))
        kind = ours[place].cell_type
        near = [i for i in pairs.free(theirs) if low < i < high and theirs[i].cell_type == kind]
        found = [i for i in near if theirs[i].source.strip()]
        rivals = [p for p in pairs.open(ours) if is_answer(ours[p]) and _window(p, pairs, len(theirs)) == (low, high)]
        if not found:
            continue
        best = found[0]
        if len(found) > len(rivals):
            likeness = {i: _likeness(ours[place].source, theirs[i].source) for i in found[:_CANDIDATES]}
            best = max(likeness, key=lambda i: (likeness[i], -i))
            if likeness[best] < ALIKE and kind == "code":
                continue
        pairs.chosen[place] = best


def _window(place: int, pairs: Pairs, end: int) -> tuple[int, int]:
    low = max((theirs for ours, theirs in pairs.chosen.items() if ours < place), default=-1)
    high = min((theirs for ours, theirs in pairs.chosen.items() if ours > place and theirs > low), default=end)
    return low, high


def _likeness(stub: str, text: str) -> float:
    return difflib.SequenceMatcher(None, stub[:_COMPARED], text[:_COMPARED], autojunk=False).ratio()
