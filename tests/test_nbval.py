"""nbval: a solved notebook that is run again prints what it printed before."""

import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from autograder import book
from autograder.course import Project

PROJECT = Project.find(Path(__file__))


def nbval(notebook, folder: Path) -> subprocess.CompletedProcess:
    """Run an executed notebook again with nbval, which compares; what is tagged `timed` varies and is only run."""
    for cell in notebook.cells:
        if "timed" in cell.metadata.get("tags", []):
            cell.metadata.tags.append("nbval-ignore-output")
    nbformat.write(notebook, folder / "notebook.ipynb")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--nbval", "--nbval-current-env",
               "--nbval-cell-timeout", str(book.CELL_SECONDS), "notebook.ipynb"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("slug", PROJECT.slugs())
def test_solved_notebook_run_again_prints_the_same(slug, tmp_path):
    done = nbval(book.execute(PROJECT, slug), tmp_path)
    assert done.returncode == 0, done.stdout[-6000:]


@pytest.mark.parametrize(("printed", "tags", "passes"), [
    ("0.401\n", [], True), ("0.402\n", [], False), ("0.402\n", ["demo", "timed"], True)])
def test_nbval_catches_a_number_that_is_no_longer_printed(printed, tags, passes, tmp_path):
    output = new_output("stream", name="stdout", text=printed)
    cell = new_code_cell("print(0.401)", execution_count=1, outputs=[output], metadata={"tags": tags})
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    done = nbval(new_notebook(cells=[cell], metadata={"kernelspec": kernel}), tmp_path)
    assert (done.returncode == 0) is passes, done.stdout
