"""Whatever comes in, in whatever packaging: repaired with a receipt, or refused with a reason, and the class goes on.

Each case is one edit of a right submission. It says what is graded of it: the points of double, mean and partial
(2, 3 and 4 at most) and the kinds of repair that are told, or the words of the reason why nothing is.
"""

import base64
import copy
import gzip
import io
import json
import os
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import inprocess
import nbformat
import pytest
from classroom import (
    SOLVED,
    answered,
    code,
    hand_in,
    make_course,
    marks,
    notebook,
    released,
    text,
)

from autograder.grade import grade
from autograder.handin import Handin, find_notebooks
from autograder.ledger import last_entries
from autograder.progress import Watch

FULL = (2, 3, 4)


@dataclass(frozen=True)
class Case:
    """What to put into the folder that was handed in, and what is to come of it."""

    put: Callable
    points: tuple[float, ...] = ()
    repairs: frozenset[str] = frozenset()
    refused: str = ""


CASES: dict[str, Case] = {}


def case(name, points=FULL, repairs="", refused=""):
    """Register a case made from (folder, solved notebook as plain JSON)."""
    def register(put):
        CASES[name] = Case(put, () if refused else points, frozenset(repairs.split()), refused)
        return put
    return register


def write(folder, nb, name="numbers.ipynb"):
    """A notebook (as JSON), a text or bytes, as a file."""
    raw = nb if isinstance(nb, bytes) else nb.encode() if isinstance(nb, str) else json.dumps(nb).encode()
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(raw)


def raw(name, change, points=FULL, repairs="", refused=""):
    """A case made from the file's text."""
    case(name, points, repairs, refused)(lambda folder, nb: write(folder, change(json.dumps(nb, indent=1))))


def edit(name, change, points=FULL, repairs="", refused=""):
    """A case made by changing the notebook's JSON in place."""
    case(name, points, repairs, refused)(lambda folder, nb: write(folder, (change(nb), nb)[1]))


def named(name, file, points=FULL, repairs="renamed", refused=""):
    """A case made by another file name."""
    case(name, points, repairs, refused)(lambda folder, nb: write(folder, nb, file))


def cell(nb, name):
    return next(one for one in nb["cells"] if one.get("id") == name)


def at(nb, name):
    return next(place for place, one in enumerate(nb["cells"]) if one.get("id") == name)


def every(change):
    """A change of every cell, given with its number."""
    return lambda nb: [change(one, number) for number, one in enumerate(nb["cells"])]


def zipped(content):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("numbers.ipynb", content)
    return file.getvalue()


# ---- the file -----------------------------------------------------------------------------------------------------

raw("empty", lambda t: b"", refused="the file is empty; ask for the notebook again")
raw("blank", lambda t: " \n\n", refused="the file is empty")
raw("zeros", lambda t: b"\0" * 5000, refused="the file is empty")
raw("cut-off", lambda t: t[: len(t) // 2], refused="damaged or cut off")
raw("bom", lambda t: b"\xef\xbb\xbf" + t.encode(), repairs="file")
raw("utf-16", lambda t: t.encode("utf-16"), repairs="file")
raw("utf-16-without-mark", lambda t: t.encode("utf-16-be"), repairs="file")
raw("utf-32", lambda t: t.encode("utf-32"), repairs="file")
raw("latin-1", lambda t: t.replace("Because it is so.", "Grün, weil è.").encode("latin-1"), repairs="file")
raw("crlf", lambda t: t.replace("\n", "\r\n"))
raw("one-line", lambda t: json.dumps(json.loads(t), separators=(",", ":")))
raw("merge-markers", lambda t: t.replace(' "metadata"', '<<<<<<< HEAD\n=======\n>>>>>>> mine\n "metadata"'),
    refused="unfinished git merge")
raw("html", lambda t: f"<!DOCTYPE html><html><body><pre>{t}</pre></body></html>", refused="web page")
raw("zip", zipped, refused="a ZIP archive")
raw("gzip", lambda t: gzip.compress(t.encode()), refused="a compressed file")
raw("pdf", lambda t: b"%PDF-1.7\n%\xe2\xe3", refused="a PDF")
raw("script-renamed", lambda t: "import torch\n\ndef double(x):\n    return 2 * x\n", refused="begins with 'import")
raw("json-but-no-notebook", lambda t: '{"a": 1}', refused="no list of cells")
raw("a-list", lambda t: "[1, 2]", refused="no list of cells")
raw("zero-bytes-behind", lambda t: t.encode() + b"\0" * 3000, repairs="file")
raw("garbage-behind", lambda t: t + "\n}\n],,", repairs="file")
raw("twice-in-one-file", lambda t: t + t, repairs="file")
raw("line-ends-in-strings", lambda t: t.replace(r"def double(x):\n", "def double(x):\n"), repairs="file")
raw("nested-too-deep", lambda t: "[" * 100_000, refused="nested too deep")
raw("numbers-that-are-none", lambda t: t.replace('"metadata": {}', '"metadata": {"a": NaN, "b": -Infinity}'))
raw("keys-twice", lambda t: t.replace('"cell_type": "code"', '"cell_type": "raw", "cell_type": "code"'))
raw("json-in-json", lambda t: json.dumps(t), repairs="file")
raw("server-answer", lambda t: json.dumps({"name": "numbers.ipynb", "type": "notebook", "content": json.loads(t)}),
    repairs="file")

# ---- the notebook -------------------------------------------------------------------------------------------------


@case("format-3", repairs="file")
def _(folder, nb):
    write(folder, nbformat.convert(nbformat.from_dict(nb), 3))


@case("format-2", points=FULL, repairs="file metadata")
def _(folder, nb):
    old = nbformat.convert(nbformat.from_dict(nb), 3)
    sheets = [{"cells": [{key: one[key] for key in ("cell_type", "input", "source") if key in one} |
                         {"outputs": [], "language": "python", "collapsed": False} for one in old.worksheets[0].cells]}]
    write(folder, {"nbformat": 2, "nbformat_minor": 0, "metadata": {"name": "x"}, "worksheets": sheets})


for minor in range(5):
    @case(f"format-4.{minor}")
    def _(folder, nb, minor=minor):
        for one in nb["cells"]:
            del one["id"]
        write(folder, {**nb, "nbformat_minor": minor})

edit("future-format", lambda nb: nb.update(nbformat=5, nbformat_minor=1))
edit("future-minor", lambda nb: nb.update(nbformat_minor=99))
edit("format-is-a-text", lambda nb: nb.update(nbformat="four", nbformat_minor=None))
edit("no-format", lambda nb: [nb.pop("nbformat"), nb.pop("nbformat_minor")])
edit("no-metadata", lambda nb: nb.pop("metadata"))
edit("metadata-is-a-list", lambda nb: nb.update(metadata=[1]))
edit("no-cells", lambda nb: nb.update(cells=[]), refused="no cells")
edit("cells-of-no-type", lambda nb: nb["cells"].extend([{}, None, 3, "x", {"cell_type": "heading", "source": "x"}]))
edit("thousands-of-cells", lambda nb: nb["cells"].extend([nb["cells"][0]] * 2001), refused="which nobody can have")
edit("many-empty-cells", lambda nb: nb["cells"].extend({"cell_type": "code", "source": ""} for _ in range(300)))
edit("kernel-r", lambda nb: nb["metadata"].update(kernelspec={"name": "ir", "language": "R"}), repairs="kernelspec")
edit("kernel-julia", lambda nb: nb["metadata"]["kernelspec"].update(name="julia-1.10"), repairs="kernelspec")
edit("kernel-none", lambda nb: nb["metadata"].pop("kernelspec"))
edit("kernel-is-a-list", lambda nb: nb["metadata"].update(kernelspec=["python3"]))
edit("widgets", lambda nb: nb["metadata"].update(widgets={"application/vnd.jupyter.widget-state+json": {
    "state": {f"{n:032x}": {"model_name": "IntSliderModel", "state": {"value": n}} for n in range(500)}}}))
edit("deep-metadata", lambda nb: nb["metadata"].update(deep=json.loads("[" * 900 + "]" * 900)), repairs="file")


@case("notebook-of-another-course", refused="another assignment")
def _(folder, nb):
    write(folder, notebook(text("# Poems"), code("x = 1", "x"), code("poem = 'a'", "y")))


@case("another-assignment-under-our-name", refused="another assignment")
def _(folder, nb):
    nb["cells"] = [one for one in nb["cells"] if one["id"] == "imports"] + [dict(code("def triple(x): return 3", "t"))]
    write(folder, nb)


# ---- ids and metadata ---------------------------------------------------------------------------------------------

edit("ids-missing", every(lambda one, n: one.pop("id")))
edit("ids-all-the-same", every(lambda one, n: one.update(id="same")))
edit("ids-are-numbers", every(lambda one, n: one.update(id=n)))
edit("ids-new", every(lambda one, n: one.update(id=f"#VSC-{n:08x}")))
edit("grade-ids-gone", every(lambda one, n: one["metadata"].pop("nbgrader", None)), repairs="metadata")
edit("metadata-gone", every(lambda one, n: one.update(metadata={})), repairs="metadata")
edit("metadata-null", every(lambda one, n: one.update(metadata=None)), repairs="metadata")


@case("colab", repairs="metadata")
def _(folder, nb):
    """Its own metadata instead of ours, ids in the metadata, format 4.0."""
    cells = [{"cell_type": one["cell_type"], "source": one["source"].splitlines(keepends=True),
              "metadata": {"id": f"aB{n}", "colab": {"base_uri": "x"}, "outputId": "1"},
              **({"execution_count": None, "outputs": []} if one["cell_type"] == "code" else {})}
             for n, one in enumerate(nb["cells"])]
    write(folder, {"nbformat": 4, "nbformat_minor": 0, "cells": cells, "metadata": {
        "colab": {"provenance": []}, "kernelspec": {"name": "python3", "display_name": "Python 3"}}})


edit("kaggle", every(lambda one, n: [one.pop("id"), one["metadata"].update(_uuid=str(n), execution={}, trusted=True)]))
edit("grade-id-is-a-list", lambda nb: cell(nb, "double")["metadata"]["nbgrader"].update(grade_id=["double"]),
     repairs="metadata")
edit("nbgrader-is-a-text", lambda nb: cell(nb, "double")["metadata"].update(nbgrader="double"), repairs="metadata")
edit("nbgrader-of-wrong-types", lambda nb: cell(nb, "double-tests")["metadata"]["nbgrader"].update(
    points="many", grade="yes", schema_version="x", locked=[]), repairs="metadata")
edit("tags-with-half-characters", lambda nb: cell(nb, "mean-tests")["metadata"].update(tags=["\ud800", 3]),
     repairs="tags")

# ---- cells --------------------------------------------------------------------------------------------------------

edit("source-as-lines", every(lambda one, n: one.update(source=one["source"].splitlines(keepends=True))))
edit("source-as-bare-lines", every(lambda one, n: one.update(source=one["source"].splitlines())))
edit("source-missing", lambda nb: cell(nb, "double").pop("source"), points=(0, 3, 4))
edit("source-null", lambda nb: cell(nb, "double").update(source=None), points=(0, 3, 4))
edit("source-crlf", every(lambda one, n: one.update(source=one["source"].replace("\n", "\r\n"))))
edit("source-cr", every(lambda one, n: one.update(source=one["source"].replace("\n", "\r"))))
edit("zero-byte-in-an-answer", lambda nb: cell(nb, "double").update(source="x = '\0'\n" + SOLVED["double"]), (0, 3, 4))
edit("half-characters-in-an-answer", lambda nb: cell(nb, "double").update(
    source=SOLVED["double"] + "  # \ud83d \udc00"))
edit("attachments", lambda nb: cell(nb, "why").update(
    attachments={"a.png": {"image/png": base64.b64encode(b"x" * 100_000).decode()}}))
edit("attachments-of-wrong-types", lambda nb: cell(nb, "why").update(attachments={"a": 3}))
edit("outputs-of-wrong-types", lambda nb: cell(nb, "double").update(outputs={"x": 1}, execution_count="many"))
edit("outputs-deep", lambda nb: cell(nb, "double").update(outputs=[json.loads("[" * 900 + "]" * 900)]))
edit("outputs-huge", lambda nb: cell(nb, "double").update(outputs=[
    {"output_type": "stream", "name": "stdout", "text": "x" * 30_000_000}]))
edit("retyped-to-markdown", lambda nb: cell(nb, "double").update(cell_type="markdown"), repairs="retyped")
edit("retyped-to-raw", lambda nb: [cell(nb, "double").update(cell_type="raw"), cell(nb, "why").update(cell_type="raw")],
     repairs="retyped")
edit("tests-retyped", lambda nb: cell(nb, "double-tests").update(cell_type="markdown"), repairs="retyped")
edit("all-retyped", every(lambda one, n: one.update(cell_type="raw")), repairs="retyped")
edit("tests-deleted", lambda nb: nb.update(cells=[one for one in nb["cells"] if "tests" not in one["id"]]),
     repairs="missing")
edit("answer-deleted", lambda nb: nb["cells"].pop(at(nb, "double")), points=(0, 3, 4), repairs="missing")
edit("prose-deleted", lambda nb: nb.update(cells=[one for one in nb["cells"] if one["cell_type"] == "code"]),
     repairs="missing")
edit("only-one-answer-left", lambda nb: nb.update(cells=[cell(nb, "mean")]), points=(0, 3, 0), repairs="missing")
edit("reversed", lambda nb: nb["cells"].reverse(), repairs="moved")
edit("answers-below", lambda nb: nb["cells"].append(nb["cells"].pop(at(nb, "double"))), repairs="moved")
edit("answer-copied", lambda nb: nb["cells"].insert(at(nb, "double"), copy.deepcopy(cell(nb, "double"))),
     repairs="copied")
edit("whole-notebook-twice", lambda nb: nb["cells"].extend(copy.deepcopy(nb["cells"])), repairs="copied")
edit("tests-edited", lambda nb: cell(nb, "double-tests").update(source="assert True"), repairs="edited")


def split(nb, name, texts, keep_metadata):
    place = at(nb, name)
    parts = [{**copy.deepcopy(nb["cells"][place]), "source": part} for part in texts]
    for number, part in enumerate(parts[1:]):
        part["id"] = f"part-{number}"
        if not keep_metadata:
            part["metadata"] = {}
    nb["cells"][place:place + 1] = parts


HELPER = "def twice(x):\n    return x + x"
USES = "def double(x):\n    return twice(x)"
HALVES = ("def double(x):\n    y = x\n", "    return x + y")
edit("split-between-functions", lambda nb: split(nb, "double", (HELPER, USES), True), repairs="copied")
edit("split-between-functions-metadata-gone", lambda nb: split(nb, "double", (HELPER, USES), False))
edit("split-within-a-function", lambda nb: split(nb, "double", HALVES, True), repairs="split")
edit("split-within-a-function-metadata-gone", lambda nb: split(nb, "double", HALVES, False), repairs="split")
edit("split-in-three", lambda nb: split(nb, "double", ("def double(x):", "    y = x", "    return x + y"), True),
     repairs="split")


def merge(nb, *names, into=0):
    """Several cells in one, as an editor merges them; it keeps the id and metadata of one of them."""
    places = [at(nb, name) for name in names]
    nb["cells"][places[into]]["source"] = "\n\n".join(nb["cells"][place]["source"] for place in places)
    nb["cells"] = [one for place, one in enumerate(nb["cells"]) if place not in places or place == places[into]]


edit("merged-with-its-tests", lambda nb: merge(nb, "double", "double-tests"), repairs="missing")
edit("merged-into-its-tests", lambda nb: merge(nb, "double", "double-tests", into=1), repairs="merged edited")
edit("helper-and-answer-merged-into-the-tests", lambda nb: [
    cell(nb, "double").update(source=f"{HELPER}\n{USES}"), merge(nb, "double", "double-tests", into=1)],
     repairs="merged edited")
edit("two-answers-merged", lambda nb: merge(nb, "double", "double-tests", "mean"), repairs="merged missing")
edit("a-variable-merged", lambda nb: merge(nb, "mean", "mean-tests", "partial"), repairs="merged missing")
edit("all-code-in-one-cell", lambda nb: merge(nb, *[
    one["id"] for one in nb["cells"] if one["cell_type"] == "code"], into=1), repairs="merged missing")
edit("all-code-in-a-new-cell", lambda nb: [
    nb["cells"].append({"cell_type": "code", "source": "\n\n".join(SOLVED[n] for n in ("double", "mean", "partial"))}),
    nb.update(cells=[one for one in nb["cells"] if one.get("id") not in ("double", "mean", "partial")])],
     repairs="merged")

# ---- names of files -----------------------------------------------------------------------------------------------

named("browser-copy", "numbers (1).ipynb")
named("editor-copy", "numbers-Copy1.ipynb")
named("copy-of", "Copy of numbers.ipynb")
named("upper-case", "NUMBERS.IPYNB")
named("saved-as-text", "numbers.ipynb.txt")
named("saved-as-json", "numbers.ipynb.json")
named("no-extension", "numbers")
named("unicode", "Übung – Zahlen ✓ 数.ipynb")
named("brackets", "numbers[1]{a}*?.ipynb")
named("quotes", "num'b\"ers`$(x).ipynb")
named("line-end-in-name", "numbers\n1 handed in = 1 graded.ipynb")
named("no-unicode-in-name", os.fsdecode(b"num\xff\xfe.ipynb"))
named("spaces", "  numbers .ipynb")
named("dash", "-rf.ipynb")
named("hidden", ".numbers.ipynb")
named("very-long", "n" * 240 + ".ipynb")
named("nested", "work/final/numbers.ipynb")
named("in-its-own-folder", "ps1/ps1/numbers.ipynb")
named("folder-named-as-notebook", "numbers.ipynb/numbers.ipynb")
named("checkpoint-only", ".ipynb_checkpoints/numbers-checkpoint.ipynb", refused="no notebook was handed in")


@case("two-both-written", repairs="several")
def _(folder, nb):
    write(folder, nb)
    cell(nb, "double")["source"] = "def double(x): return 0"
    write(folder, nb, "numbers-old.ipynb")


@case("two-the-named-one-is-blank", repairs="several renamed")
def _(folder, nb):
    write(folder, nb, "numbers (1).ipynb")
    write(folder, CLEAN[0])


@case("two-the-written-one-is-stripped", repairs="several renamed metadata")
def _(folder, nb):
    for number, one in enumerate(nb["cells"]):
        one["metadata"], one["id"] = {}, f"x{number}"
    write(folder, nb, "numbers_colab.ipynb")
    write(folder, CLEAN[0])


@case("backup-has-a-cell-more", points=(2, 3, 4), repairs="several missing")
def _(folder, nb):
    write(folder, CLEAN[0] | {"cells": [*CLEAN[0]["cells"], code("x = 1", "mine")]}, "backup.ipynb")
    nb["cells"].pop(at(nb, "double-tests"))
    write(folder, nb)


@case("beside-other-files")
def _(folder, nb):
    write(folder, nb)
    write(folder, b"\0" * 1000, "scan.pdf")
    write(folder, notebook(text("scratch"), code("1 / 0", "s")), "Untitled.ipynb")
    write(folder, "x", os.fsdecode(b"\xff\xfe.txt"))
    os.mkfifo(folder / "pipe")
    (folder / "gone.csv").symlink_to("/nowhere")


@case("broken-beside-the-right-one", repairs="renamed")
def _(folder, nb):
    write(folder, b"{", "numbers.ipynb")
    write(folder, nb, "numbers-2.ipynb")


# ---- what is no file, or none that can be read --------------------------------------------------------------------

case("nothing", refused="no notebook was handed in; ask for it again")(lambda folder, nb: None)
case("script", refused="but numbers.py; ask for the .ipynb file")(
    lambda folder, nb: write(folder, "x = 1", "numbers.py"))
case("folder-instead", refused="no notebook was handed in")(lambda folder, nb: (folder / "numbers.ipynb").mkdir())
case("link", refused="it is a link")(lambda folder, nb: (folder / "numbers.ipynb").symlink_to("/etc/passwd"))
case("broken-link", refused="it is a link")(lambda folder, nb: (folder / "numbers.ipynb").symlink_to("/nowhere"))
case("pipe", refused="it is no file")(lambda folder, nb: os.mkfifo(folder / "numbers.ipynb"))


@case("too-large", refused="it has 100 MB, mostly outputs; ask for it with its outputs cleared")
def _(folder, nb):
    write(folder, nb)
    os.truncate(folder / "numbers.ipynb", 105_000_000)


def timed(name, stamp, refused=""):
    @case(name, refused=refused)
    def _(folder, nb):
        write(folder, nb)
        write(folder, stamp, "timestamp.txt")


timed("time-is-no-time", "soon", refused="is no time; write it as 2026-01-31 23:59:59 UTC")
timed("time-is-binary", b"\xff\xfe\x00\x01", refused="is no time")
timed("time-with-bom", b"\xef\xbb\xbf2026-01-15 12:00:00 UTC\r\n")
timed("time-of-another-zone", "2026-01-15 12:00:00 +02:00")
timed("time-empty", "")

CLEAN = []


# What a kernel has to do with; around it, a stand-in shows the same and costs nothing.
WITH_KERNEL = ("zero-byte-in-an-answer", "half-characters-in-an-answer", "source-cr", "source-crlf", "outputs-huge",
               "split-within-a-function", "merged-into-its-tests", "no-unicode-in-name", "beside-other-files", "utf-16",
               "attachments", "folder-instead", "line-end-in-name")


def class_of(folder, names):
    """A course in which each case is handed in, and two right submissions among them."""
    course = make_course(folder)
    CLEAN[:] = [json.loads(json.dumps(released(course)))]
    solved = answered(released(course), SOLVED)
    for name in names:
        place = course.path(course.submitted, name, "ps1")
        place.mkdir(parents=True)
        CASES[name].put(place, json.loads(json.dumps(solved)))
    for student in ("aa-right", "zz [x] o'neill ✓"):
        hand_in(course, student, solved)
    return course


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    course = class_of(tmp_path_factory.mktemp("malformed") / "course", CASES)
    with pytest.MonkeyPatch.context() as patch, Watch("off") as watch:
        inprocess.install(patch.setattr)
        grade(course, jobs=2, sandbox="off", watch=watch)
    return course, watch, marks(course), last_entries(course)


@pytest.mark.parametrize("name", CASES)
def test_malformed_submission_is_repaired_and_told_or_refused_with_the_reason(graded, name):
    _, _, found, log = graded
    entry, wanted = log["ps1", name], CASES[name]
    if wanted.refused:
        assert wanted.refused in entry["refused"] and entry["detail"] == ""
        assert (name, "double-tests") not in found
        return
    assert not entry["refused"], entry
    points = tuple(found[name, f"{cell}-tests"][0] for cell in ("double", "mean", "partial"))
    assert points == wanted.points, entry["repairs"]
    told = {repair["kind"] for repair in entry["repairs"]}
    assert wanted.repairs <= told and (wanted.repairs or not told - {"metadata"}), entry["repairs"]


def test_class_that_holds_them_all_is_graded_to_its_end(graded):
    course, watch, found, log = graded
    refused = [name for name, one in CASES.items() if one.refused]
    total = len(CASES) + 2
    assert len(CASES) >= 40 and len(log) == total
    assert watch.summary()[0].startswith(
        f"{total} handed in = {total - len(refused)} graded + {len(refused)} refused")
    wanted = sum(sum(one.points) for one in CASES.values()) + 2 * sum(FULL)
    assert sum(mark[0] or 0 for mark in found.values()) == wanted
    assert len(watch.summary()) < 40 and all(line.isprintable() for line in watch.summary())
    print(watch.summary()[0], watch.cost())


def test_graded_notebooks_of_all_of_them_can_be_read(graded):
    course, _, _, _ = graded
    for path in course.autograded.rglob("numbers.ipynb"):
        nbformat.validate(nbformat.read(path, as_version=4))


def test_file_that_may_not_be_read_is_refused_with_the_reason(graded, tmp_path, monkeypatch):
    write(tmp_path, CLEAN[0])

    def forbidden(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", forbidden)
    with pytest.raises(Exception, match=r"numbers.ipynb: it can't be read \(Permission denied\); give yourself"):
        find_notebooks(Handin("ann", "ps1", tmp_path), {"numbers": nbformat.from_dict(CLEAN[0])})


def test_kernels_give_the_same(graded, tmp_path):
    course = class_of(tmp_path / "course", WITH_KERNEL)
    grade(course, jobs=2, sandbox="off")
    found = marks(course)
    assert found == {key: mark for key, mark in graded[2].items() if key in found}
    assert {who for who, _ in found} >= {name for name in WITH_KERNEL if not CASES[name].refused}
