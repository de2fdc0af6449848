"""A submission is our notebook with the learner's answers in it, whatever came back from the learner."""

import copy
import json
import time

import nbformat
import pytest
from classroom import (
    SOLVED,
    answer,
    answered,
    asserts,
    cell_of,
    code,
    given,
    notebook,
    place_of,
    plain_source,
    task,
    text,
    written,
)
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from autograder.cells import Refused, is_added, parse
from autograder.rebuild import rebuild
from autograder.statements import new_definitions

STUB = "def {}(x):\n    # YOUR CODE HERE\n    raise NotImplementedError()"


def edition():
    """What is graded: stubs in the answers, hidden tests in the tests."""
    nb = plain_source()
    for name in ("double", "mean"):
        cell_of(nb, name).source = STUB.format(name)
    cell_of(nb, "partial").source = "share = 0\n# YOUR CODE HERE\nraise NotImplementedError()"
    cell_of(nb, "why").source = "YOUR ANSWER HERE"
    return nb


def handed_out():
    """What the learner gets."""
    return answered(edition(), {"double-tests": "assert double(2) == 4, 'two times two'"})


def back(nb):
    """Through a file, as submissions come."""
    return parse(json.dumps(nb).encode())


def kinds(repairs):
    return {(repair.kind, repair.cell) for repair in repairs}


def sources(nb):
    return [cell.source for cell in nb.cells]


def test_answers_come_in_and_all_else_is_ours():
    made, repairs = rebuild(edition(), back(answered(handed_out(), SOLVED)))
    assert sources(made) == sources(answered(edition(), SOLVED))
    assert repairs == []


def test_rebuilding_does_not_touch_what_it_is_given():
    ours, theirs = edition(), back(answered(handed_out(), SOLVED))
    before = copy.deepcopy((ours, theirs))
    rebuild(ours, theirs)
    assert (ours, theirs) == before


def test_edited_tests_points_tags_and_kernelspec_are_ours_again_and_told():
    nb = answered(handed_out(), SOLVED)
    test = cell_of(nb, "double-tests")
    test.source, test.metadata.nbgrader.points = "assert True", 100
    cell_of(nb, "mean-tests").metadata["tags"] = ["skip-execution"]
    nb.metadata.kernelspec.name = "julia"
    made, repairs = rebuild(edition(), back(nb))
    assert sources(made) == sources(answered(edition(), SOLVED))
    assert cell_of(made, "double-tests").metadata.nbgrader.points == 2
    assert "tags" not in cell_of(made, "mean-tests").metadata
    assert made.metadata.kernelspec.name == "python3"
    assert kinds(repairs) == {("edited", "double-tests"), ("metadata", "double-tests"), ("tags", "mean-tests"),
                              ("kernelspec", "")}


def test_deleted_tests_come_back_and_a_deleted_answer_counts_as_none():
    nb = answered(handed_out(), SOLVED)
    nb.cells = [cell for cell in nb.cells if cell.id not in ("double-tests", "mean", "t-title")]
    made, repairs = rebuild(edition(), back(nb))
    assert sources(made) == sources(answered(edition(), {**SOLVED, "mean": STUB.format("mean")}))
    assert kinds(repairs) == {("missing", "double-tests"), ("missing", "mean")}


def test_our_solution_never_stands_in_for_a_missing_answer():
    nb = handed_out()
    nb.cells = [cell for cell in nb.cells if cell.id != "why"]
    ours = answered(edition(), {"why": "YOUR ANSWER HERE\n### BEGIN MARK SCHEME\n5 points\n### END MARK SCHEME"})
    made, _ = rebuild(ours, back(nb))
    assert cell_of(made, "why").source.strip() == "YOUR ANSWER HERE"


def test_added_cells_keep_their_place_and_no_metadata():
    nb = answered(handed_out(), SOLVED)
    mine = code("def helper():\n    pass", "mine")
    forged = {"grade": True, "points": 50, "grade_id": "mine"}
    mine.metadata = nbformat.from_dict({"nbgrader": forged, "tags": ["demo"]})
    nb.cells.insert(place_of(nb, "mean"), mine)
    made, _ = rebuild(edition(), back(nb))
    found = made.cells[place_of(made, "mean") - 1]
    assert found.source == mine.source and is_added(found)
    assert dict(found.metadata) == {"tags": ["added"]}


def test_cells_moved_about_are_in_our_order_again():
    nb = answered(handed_out(), SOLVED)
    nb.cells.append(nb.cells.pop(place_of(nb, "double")))
    made, repairs = rebuild(edition(), back(nb))
    assert sources(made) == sources(answered(edition(), SOLVED))
    assert kinds(repairs) == {("moved", "")}


@pytest.mark.parametrize("kind", ["markdown", "raw"])
def test_retyped_answer_is_code_again(kind):
    nb = answered(handed_out(), SOLVED)
    cell = cell_of(nb, "double")
    cell.cell_type = kind
    del cell["outputs"], cell["execution_count"]
    made, repairs = rebuild(edition(), back(nb))
    assert cell_of(made, "double").cell_type == "code" and cell_of(made, "double").source == SOLVED["double"]
    assert kinds(repairs) == {("retyped", "double")}


def test_copied_test_cell_counts_once_and_the_copy_is_an_added_cell_if_it_was_changed():
    nb = answered(handed_out(), SOLVED)
    place = place_of(nb, "double-tests")
    for suffix, extra in (("a", ""), ("b", "\nprint('mine')")):
        again = copy.deepcopy(nb.cells[place])
        again.id, again.source = f"copy-{suffix}", again.source + extra
        nb.cells.insert(place + 1, again)
    made, repairs = rebuild(edition(), back(nb))
    added = [cell for cell in made.cells if is_added(cell)]
    assert len(added) == 1 and added[0].source.endswith("print('mine')")
    assert kinds(repairs) == {("copied", "double-tests")}


@pytest.mark.parametrize("order", [
    ("mine", "stub"), ("stub", "mine"), ("old", "mine"), ("old", "mine", "stub"), ("mine", "reworded"),
])
def test_of_copied_answers_the_last_that_holds_something_counts(order):
    nb = handed_out()
    place = place_of(nb, "double")
    stub = nb.cells[place].source
    texts = {"mine": SOLVED["double"], "old": "def double(x):\n    return None", "stub": stub,
             "reworded": stub.replace("Error()", 'Error("in another release")')}
    original = nb.cells.pop(place)
    for step, name in enumerate(order):
        again = copy.deepcopy(original)
        again.id, again.source = f"copy-{step}", texts[name]
        nb.cells.insert(place + step, again)
    made, _ = rebuild(edition(), back(nb))
    assert cell_of(made, "double").source == SOLVED["double"]
    assert [cell.source for cell in made.cells if is_added(cell)] == ([texts["old"]] if "old" in order else [])


def stripped(nb):
    nb = copy.deepcopy(nb)
    nb.metadata = nbformat.from_dict({})
    for number, cell in enumerate(nb.cells):
        cell.metadata, cell.id = nbformat.from_dict({}), f"x{number}"
    return nb


def test_notebook_without_metadata_and_ids_is_matched_by_content():
    made, repairs = rebuild(edition(), back(stripped(answered(handed_out(), SOLVED))))
    assert sources(made) == sources(answered(edition(), SOLVED))
    assert {repair.kind for repair in repairs} == {"metadata"}


def test_stripped_notebook_with_added_cells_keeps_both():
    nb = answered(handed_out(), SOLVED)
    nb.cells.insert(place_of(nb, "mean"), code("helper = 1", "mine"))
    nb.cells.insert(place_of(nb, "why"), text("a note of mine", "note"))
    made, _ = rebuild(edition(), back(stripped(nb)))
    assert cell_of(made, "double").source == SOLVED["double"]
    assert cell_of(made, "mean").source == SOLVED["mean"]
    assert cell_of(made, "partial").source == SOLVED["partial"]
    assert {"helper = 1"} <= {cell.source for cell in made.cells if is_added(cell)}
    assert {"Because it is so.", "a note of mine"} <= set(sources(made))


def test_stripped_answer_with_a_syntax_error_is_found_by_its_name():
    broken = "def double(x):\n    return ("
    made, _ = rebuild(edition(), back(stripped(answered(handed_out(), {**SOLVED, "double": broken}))))
    assert cell_of(made, "double").source == broken


def test_answer_typed_into_a_new_cell_is_found():
    nb = answered(handed_out(), SOLVED)
    nb.cells[place_of(nb, "double")] = code(SOLVED["double"], "fresh")
    made, _ = rebuild(edition(), back(nb))
    assert cell_of(made, "double").source == SOLVED["double"]


def test_old_format_without_ids_is_matched_by_grade_id():
    nb = answered(handed_out(), SOLVED)
    nb.nbformat_minor = 4
    for cell in nb.cells:
        del cell["id"]
    made, _ = rebuild(edition(), back(nb))
    assert sources(made) == sources(answered(edition(), SOLVED))


def test_edition_of_an_old_format_gets_no_ids():
    ours, theirs = edition(), answered(handed_out(), SOLVED)
    theirs.cells.append(code("extra = 1", "mine"))
    ours.nbformat_minor = 4
    for cell in ours.cells:
        del cell["id"]
    made, _ = rebuild(ours, back(theirs))
    assert not any("id" in cell for cell in made.cells)
    nbformat.validate(made)


def test_edited_free_cell_runs_after_ours():
    nb = answered(handed_out(), {**SOLVED, "imports": "import math\nmy_pi = 3"})
    made, repairs = rebuild(edition(), back(nb))
    place = place_of(made, "imports")
    assert [cell.source for cell in made.cells[place:place + 2]] == ["import math", "import math\nmy_pi = 3"]
    assert repairs == []


def test_of_an_edited_demo_only_new_definitions_stay():
    text_of = "print('changed')\nimport itertools\ndef helper():\n    return 1\nx = helper()"
    made, _ = rebuild(edition(), back(answered(handed_out(), {**SOLVED, "look": text_of})))
    place = place_of(made, "look")
    assert made.cells[place].source == "print('only to look at')"
    assert made.cells[place + 1].source == "import itertools\ndef helper():\n    return 1"


def test_of_a_given_cell_nothing_that_it_defines_can_be_replaced():
    tool, other = "def tool():\n    return 1", "def other():\n    return 2"
    ours = notebook(given("tool", tool), answer("f", STUB.format("f")), asserts("f-tests", "assert f(1)", 1))
    theirs = answered(ours, {"tool": f"def tool():\n    return 99\n{other}", "f": "def f(x): return x"})
    made, repairs = rebuild(ours, back(theirs))
    assert sources(made)[:2] == [tool, other]
    assert ("edited", "tool") in kinds(repairs)


def test_task_cell_is_ours_and_what_was_written_below_it_stays():
    ours = notebook(task("draw", "Draw something below.", 3), text("the end", "t-end"))
    theirs = copy.deepcopy(ours)
    theirs.cells[0].source = "changed"
    theirs.cells.insert(1, code("drawing = 1", "mine"))
    made, _ = rebuild(ours, back(theirs))
    assert sources(made) == ["Draw something below.", "drawing = 1", "the end"]


def test_pictures_pasted_into_a_written_answer_stay():
    nb = answered(handed_out(), SOLVED)
    cell_of(nb, "why")["attachments"] = {"a.png": {"image/png": "aGk="}}
    made, _ = rebuild(edition(), back(nb))
    assert cell_of(made, "why").attachments == {"a.png": {"image/png": "aGk="}}
    nbformat.validate(made)


def test_release_stamp_of_another_release_is_told():
    ours, theirs = edition(), handed_out()
    ours.metadata["course"], theirs.metadata["course"] = {"release": "new"}, {"release": "old"}
    _, repairs = rebuild(ours, back(theirs))
    assert kinds(repairs) == {("release", "")}


def test_notebook_of_another_assignment_is_refused():
    other = notebook(text("Something else"), code("x = 1", "a"), written("essay", "My essay.", 3))
    with pytest.raises(Refused, match="another assignment"):
        rebuild(edition(), back(other))


@pytest.mark.parametrize(("raw", "reason"), [
    (b"", "empty"),
    (b"  \n", "empty"),
    (b'{"cells": [', "cut off"),
    (b"<html>", "web page"),
    (b"[1, 2]", "no list of cells"),
    (b'{"cells": 3}', "no list of cells"),
    (b'{"cells": []}', "no cells"),
    (b'{"cells": [{"cell_type": "nonsense"}]}', "no cells"),
    (b"[" * 100_000, "too deep"),
    ("<<<<<<< HEAD\n{}".encode("utf-16"), "unfinished git merge"),
])
def test_what_is_no_notebook_is_refused_with_the_reason(raw, reason):
    with pytest.raises(Refused, match=reason):
        parse(raw)


@pytest.mark.parametrize("change", [
    lambda raw: b"\xef\xbb\xbf" + raw,
    lambda raw: raw.replace(b"\n", b"\r\n"),
    lambda raw: json.dumps(json.loads(raw)).encode(),
])
def test_odd_but_readable_files_are_read(change):
    nb = answered(handed_out(), SOLVED)
    made, _ = rebuild(edition(), parse(change(nbformat.writes(nb).encode())))
    assert cell_of(made, "double").source == SOLVED["double"]


@pytest.mark.parametrize("cell", [
    {"cell_type": "code", "source": ["a = 1\n", 5, "b = 2"]},
    {"cell_type": "code", "source": None, "metadata": [], "id": 7},
    {"cell_type": "markdown", "source": "\ud800", "attachments": {"a": 1}},
    {"cell_type": "code", "source": "x", "metadata": {"nbgrader": [], "tags": 3}},
    {"cell_type": "code", "source": "x", "metadata": {"nbgrader": {"grade_id": ["double"]}, "tags": [[], "a"]}},
    "nothing", None, {},
])
def test_malformed_cells_stop_nothing(cell):
    nb = json.loads(json.dumps(answered(handed_out(), SOLVED)))
    nb["cells"].insert(3, cell)
    made, _ = rebuild(edition(), parse(json.dumps(nb).encode()))
    assert cell_of(made, "double").source == SOLVED["double"]
    nbformat.writes(made).encode()


def test_notebook_of_format_3_is_read():
    old = nbformat.convert(nbformat.from_dict(json.loads(json.dumps(answered(handed_out(), SOLVED)))), 3)
    made, _ = rebuild(edition(), parse(json.dumps(old).encode()))
    assert cell_of(made, "double").source == SOLVED["double"]


@pytest.mark.parametrize(("ours", "theirs", "kept"), [
    ("import a", "import a\nimport b", "import b"),
    ("def f(): pass", "def f():\n    return 1", ""),
    ("x = 1", "x = 2", ""),
    ("x = 1", "import os.path as p", "import os.path as p"),
    ("x = 1", "this is no python", ""),
    ("class A: pass", "class A: pass\nclass B: pass", "class B: pass"),
])
def test_new_definitions(ours, theirs, kept):
    assert new_definitions(ours, theirs) == kept


junk = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=8),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
                    max_leaves=6)


@settings(max_examples=60, deadline=None)
@for_all(st.data())
def test_whatever_is_done_to_a_submission_our_cells_are_in_it_once_and_in_order(data):
    nb = json.loads(json.dumps(answered(handed_out(), SOLVED)))
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(0, len(nb["cells"]) - 1))
        change = data.draw(st.sampled_from(["drop", "copy", "move", "metadata", "id", "source", "type", "junk"]))
        cell = nb["cells"][place]
        if change == "drop" and len(nb["cells"]) > 1:
            nb["cells"].pop(place)
        elif change == "copy":
            nb["cells"].insert(data.draw(st.integers(0, len(nb["cells"]))), copy.deepcopy(cell))
        elif change == "move":
            nb["cells"].insert(data.draw(st.integers(0, len(nb["cells"]) - 1)), nb["cells"].pop(place))
        elif change == "type":
            cell["cell_type"] = data.draw(st.sampled_from(["code", "markdown", "raw"]))
        elif change == "junk":
            nb["cells"].insert(place, data.draw(junk))
            nb["cells"] = [item if isinstance(item, dict) else {} for item in nb["cells"]]
        else:
            cell[change] = data.draw(junk)
    try:
        made, _ = rebuild(edition(), parse(json.dumps(nb).encode()))
    except Refused:
        return
    ours = [cell for cell in made.cells if not is_added(cell)]
    assert [cell.id for cell in ours] == [cell.id for cell in edition().cells]
    locked = [(cell.id, cell.source) for cell in edition().cells if cell.id not in SOLVED]
    assert [(cell.id, cell.source) for cell in ours if cell.id not in SOLVED] == locked
    assert [dict(cell.metadata) for cell in ours] == [dict(cell.metadata) for cell in edition().cells]
    assert len({cell.id for cell in made.cells}) == len(made.cells)
    nbformat.validate(made)


@pytest.mark.parametrize(
    "text", ["-" * 200_000 + "1", "(" * 200_000, "x" + ".x" * 200_000, "1 if 1 else " * 100_000 + "1"]
)
def test_text_too_deep_to_parse_defines_nothing(text):
    assert new_definitions("", text) == ""


def test_definitions_are_cut_out_to_the_letter():
    text = "@a\r\ndef f():\n    return 'ä'; x = 1\nimport é; import b\n"
    assert new_definitions("", text) == "@a\ndef f():\n    return 'ä'; x = 1\nimport é\nimport b"


def test_thousands_of_cells_are_refused():
    cells = [{"cell_type": "code", "source": "1", "metadata": {}}] * 2001
    with pytest.raises(Refused, match="2001 cells"):
        parse(json.dumps({"nbformat": 4, "cells": cells}).encode())


def many_parts(**more):
    cell = {"cell_type": "code", "source": "1", "metadata": {"tags": ["kept"], **more}}
    meta = {"kernelspec": {"name": "python3"}, **more}
    return json.dumps({"nbformat": 4, "metadata": meta, "cells": [cell]}).encode()


@pytest.mark.parametrize("bomb", [[{}] * 5000, {str(i): 0 for i in range(5000)}, [[[0] * 100] * 100]])
def test_metadata_of_thousands_of_parts_is_left_out_and_told(bomb):
    """Each became an object of ours, copied again and again: 190 MB for one of a file."""
    told = []
    nb = parse(many_parts(x=bomb), told.append)
    assert nb.metadata == {"kernelspec": {"name": "python3"}} and nb.cells[0].metadata == {"tags": ["kept"]}
    assert any("more metadata than" in what for what in told)
    assert parse(many_parts(x=[1, 2]), told.append).cells[0].metadata.x == [1, 2]


def test_file_of_millions_of_parts_is_refused():
    with pytest.raises(Refused, match="ask for it with its outputs cleared"):
        parse(many_parts(x=[{}] * 2_000_001))


def test_likeness_of_long_repeating_texts_takes_no_time():
    """Nine such cells took two and a half minutes of the grader, and two thousand may come."""
    nb = handed_out()
    last = nb.cells[place_of(nb, "double-tests")]
    nb.cells = [code(" e" * 9990 + f" {i}", f"c{i}") for i in range(60)] + [last]
    begin = time.process_time()
    rebuild(edition(), back(nb))
    assert time.process_time() - begin < 20                            # half an hour before
