"""A hostile submission as data: what a learner changes in the notebook of a chapter, and what must come of it."""

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from autograder.cells import grade_id, is_answer

# An answer in every exercise, none of them right.
WRONG = {
    "project_qkv": "def project_qkv(X, W_q, W_k, W_v):\n    return X, X, X",
    "attention_scores": "def attention_scores(Q, K):\n    return Q",
    "softmax": "def softmax(x, axis=-1):\n    return np.zeros_like(x)",
    "attention": "def attention(Q, K, V):\n    return V, Q",
    "previous_token_head": "def previous_token_head(v, n, sharpness=50.0):\n    return np.eye(v + n), np.eye(v + n)",
    "shared_query_key": "An essay.",
}
# What hostile code prints where it got what it wanted. In two parts, so that no traceback of the code shows it.
GOT = "GOT" + "-IN"


@dataclass(frozen=True)
class Case:
    """One submission.

    base: "solved", all right, or "wrong". `code` is a cell of the learner's own, `where`: behind the set-up ("top"), at
    the end, or at the end of the answer of that name. In `answers` and `code`, <<COURSE>>, <<BAIT>>, <<PORT>> and
    <<PID>> stand for the course's folder, a folder that anyone can write, a port that we listen on, the grader;
    <<HOME>> for the home of root.
    Expected: the marks of the base, but 0 in the exercises `lost`; `says`, a pattern in what is told about it.
    """

    name: str
    base: str
    code: str = ""
    where: str = "top"
    answers: Mapping[str, str] = field(default_factory=dict)
    edit: Callable[[NotebookNode], None] | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    lost: tuple[str, ...] = ()
    says: str = ""
    refused: bool = False

    def notebook(self, blank: NotebookNode, solved: Mapping[str, str], names: Mapping[str, str]) -> NotebookNode:
        """What is handed in."""
        notebook = copy.deepcopy(blank)
        texts = {**(solved if self.base == "solved" else WRONG), **self.answers}
        for cell in notebook.cells:
            if is_answer(cell) and grade_id(cell) in texts:
                cell.source = filled(texts[grade_id(cell)], names)
        if self.code:
            self._put(notebook, filled(self.code, names))
        if self.edit is not None:
            self.edit(notebook)
        return notebook

    def _put(self, notebook: NotebookNode, code: str) -> None:
        if self.where in ("top", "end"):
            place = 2 if self.where == "top" else len(notebook.cells)
            notebook.cells.insert(place, new_code_cell(code, id="theirs"))
        else:
            answer = next(cell for cell in notebook.cells if grade_id(cell) == self.where)
            answer.source += "\n\n" + code

    def hand_in(self, folder: Path, chapter: str, notebook: NotebookNode, names: Mapping[str, str]) -> None:
        """Put it where nbgrader collects it."""
        folder.mkdir(parents=True)
        (folder / f"{chapter}.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
        for name, text in self.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(filled(text, names), encoding="utf-8")
        for name, target in self.links.items():
            (folder / name).symlink_to(filled(target, names))


def filled(text: str, names: Mapping[str, str]) -> str:
    """The text with its names filled in."""
    for name, value in names.items():
        text = text.replace(f"<<{name}>>", value)
    return text
