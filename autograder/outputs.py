"""What a cell puts out, gathered from the kernel's messages and kept to a size that a notebook can hold."""

import json
from typing import Any

import nbformat
from nbformat import NotebookNode

from autograder.cells import writable

# As much as nbgrader keeps of a stream and of a traceback; then limits that nbgrader has not.
LINES, TRACEBACK, TEXT, DATA, COUNT = 1000, 100, 200_000, 8_000_000, 200
ERRORS, LINE, NAME = 20, 5000, 200
# How a cell may end otherwise than by itself.
TIME, DEAD = "time limit", "dead kernel"
CUT = "... Output truncated ..."


def error_output(name: str, message: str) -> NotebookNode:
    """An error as a cell's output shows it, without a traceback of code."""
    return nbformat.v4.new_output("error", ename=name, evalue=message, traceback=[f"{name}: {message}"])


class Outputs:
    """The outputs of one cell so far."""

    def __init__(self) -> None:
        self._kept: list[NotebookNode] = []
        self._text, self._lines, self._data, self._errors = 0, 0, 0, 0
        self._clear = False

    def take(self, message: dict[str, Any]) -> None:
        """Take in one message from the kernel's public channel."""
        kind, content = message.get("msg_type", ""), message.get("content")
        try:
            if kind.endswith(("display_data", "execute_result")) and self._is_too_large(content):
                return
            self._take(kind, message, writable(content))
        except Exception:
            return  # not what a kernel would send by itself, so there is no saying what is wrong with it

    def _is_too_large(self, content: Any) -> bool:
        """Is it more by itself than all that is kept? To look into millions of values takes seconds from all others."""
        size = len(json.dumps(content))
        self._data += size if size > DATA else 0
        return size > DATA

    def _take(self, kind: str, message: dict[str, Any], content: Any) -> None:
        if kind == "clear_output":
            self._clear = True
            if not content.get("wait"):
                self._cleared()
        elif kind == "update_display_data":
            self._update(content)
        elif kind in ("stream", "display_data", "execute_result", "error"):
            output = nbformat.v4.output_from_msg({**message, "content": content})
            self._cleared()
            self._keep(kind, output, content)

    def _cleared(self) -> None:
        if self._clear:
            self._kept, self._clear = [], False

    def _keep(self, kind: str, output: NotebookNode, content: dict[str, Any]) -> None:
        if kind == "stream":
            self._stream(output)
        elif kind == "error":
            self._errors += 1
            self._kept += [_short_error(output)] if self._errors <= ERRORS else []
        elif len(self._kept) < COUNT and self._fits(output.data, output.metadata):
            output["display_id"] = content.get("transient", {}).get("display_id")
            self._kept.append(output)

    def _stream(self, output: NotebookNode) -> None:
        if self._lines > LINES or self._text > TEXT or len(self._kept) >= COUNT:
            return
        lines = str(output.text)[: TEXT - self._text + 1].split("\n")
        self._text += len(output.text)
        room = LINES - self._lines
        self._lines += len(lines) - 1
        text = "\n".join(lines) if self._lines <= LINES and self._text <= TEXT else "\n".join([*lines[:room], CUT])
        if self._kept and self._kept[-1].output_type == "stream" and self._kept[-1].name == output.name:
            self._kept[-1].text += text
        else:
            self._kept.append(nbformat.v4.new_output("stream", name=output.name, text=text))

    def _fits(self, data: Any, metadata: Any) -> bool:
        self._data += len(json.dumps([data, metadata]))
        return self._data <= DATA

    def _update(self, content: dict[str, Any]) -> None:
        wanted = content.get("transient", {}).get("display_id")
        for output in self._kept:
            if wanted is not None and output.get("display_id") == wanted and self._fits(content["data"], {}):
                output["data"] = nbformat.from_dict(content["data"])

    def done(self, reply: dict[str, Any]) -> list[NotebookNode]:
        """All of them; with the reply's error where the cell's own display of it was lost."""
        for output in self._kept:
            output.pop("display_id", None)
        failed = reply.get("status") == "error" and not any(output.output_type == "error" for output in self._kept)
        extra = [error_output(_cut(reply.get("ename"), NAME), _cut(reply.get("evalue"), TEXT))] if failed else []
        return [*self._kept, *extra]

    def without_interrupt(self) -> list[NotebookNode]:
        """All of them but the KeyboardInterrupt with which we stopped the cell."""
        return [output for output in self.done({}) if output.get("ename") != "KeyboardInterrupt"]


def _short_error(output: NotebookNode) -> NotebookNode:
    lines = [_cut(line, LINE) for line in output["traceback"]]
    if len(lines) > TRACEBACK:
        lines = [*lines[: TRACEBACK // 2], "... Traceback truncated ...", *lines[1 - TRACEBACK // 2 :]]
    name, text = _cut(output.ename, NAME), _cut(output.evalue, TEXT)
    return nbformat.v4.new_output("error", ename=name, evalue=text, traceback=lines)


def _cut(value: Any, most: int) -> str:
    return str(writable(value))[:most]
