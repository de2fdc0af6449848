"""A learner's first minutes in a real JupyterLab: open the chapter, type an answer, run it, see the tests speak."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nbformat
import pytest
from browser import browser
from playwright.sync_api import Locator, Page, expect

from autograder.course import Project

CHAPTER, EXERCISE, UNANSWERED = "03_scaling", "softmax_jacobian", "predicted_variance"
ANSWER = "def softmax_jacobian(p):\n    return torch.diag(p) - torch.outer(p, p)\n"
SHORT = "short.ipynb"
# A traceback and anything else that a cell complains of.
ERRORS = "[data-mime-type='application/vnd.jupyter.stderr']"
START_S, RUN_S = 60, 120
SETTINGS = {
    # Every cell stands in the page, not only those in view.
    "notebook-extension/tracker": {"windowingMode": "none"},
    # The answer is typed as it stands.
    "codemirror-extension/plugin": {"defaultConfig": {"autoClosingBrackets": False}},
    "apputils-extension/notification": {"checkForUpdates": False, "fetchNews": "false"},
}


@contextmanager
def jupyterlab(folder: Path, home: Path) -> Iterator[str]:
    """The address of a JupyterLab on `folder` that leaves the user's own settings and sessions alone."""
    home.mkdir()
    for name, values in SETTINGS.items():
        file = home / "settings/@jupyterlab" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values))
    places = {"JUPYTER_CONFIG_DIR": "config", "JUPYTER_DATA_DIR": "data", "JUPYTER_RUNTIME_DIR": "runtime",
              "IPYTHONDIR": "ipython", "JUPYTERLAB_SETTINGS_DIR": "settings", "JUPYTERLAB_WORKSPACES_DIR": "workspaces"}
    env = {**os.environ, **{name: str(home / place) for name, place in places.items()}}
    options = ["--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1", "--ServerApp.port=0",
               "--IdentityProvider.token=", f"--ServerApp.root_dir={folder}",
               "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate", "--LabApp.news_url=None"]
    log = (home / "log").open("w")
    server = subprocess.Popen([sys.executable, "-m", "jupyter", "lab", *options], env=env, stdin=subprocess.DEVNULL,
                              stdout=log, stderr=log)
    try:
        yield address(server, home)
    finally:
        server.terminate()
        server.wait(timeout=30)
        log.close()


def address(server: subprocess.Popen, home: Path) -> str:
    """Where the server listens, as soon as it says so."""
    end = time.monotonic() + START_S
    while time.monotonic() < end and server.poll() is None:
        for file in (home / "runtime").glob("jpserver-*.json"):
            text = file.read_text()
            if text.rstrip().endswith("}"):   # written to its end
                return json.loads(text)["url"]
        time.sleep(0.1)
    raise AssertionError(f"JupyterLab did not start:\n{(home / 'log').read_text()[-2000:]}")


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Iterator[Page]:
    """The student notebook of the chapter, open in JupyterLab with a kernel that waits."""
    work = tmp_path_factory.mktemp("lab")
    chapters = work / "chapters"
    chapters.mkdir()
    # Alone: the promise is that a learner needs this one file and nothing beside it.
    (chapters / f"{CHAPTER}.ipynb").write_bytes(Project.find(Path(__file__)).chapter(CHAPTER).read_bytes())
    nbformat.write(shortened(), chapters / SHORT)
    with jupyterlab(chapters, work / "home") as url, browser() as started:
        page = started.new_page(viewport={"width": 1400, "height": 1000})
        page.goto(f"{url}lab/tree/{CHAPTER}.ipynb", timeout=START_S * 1000)
        ready(page)
        yield page


def shortened() -> nbformat.NotebookNode:
    """The chapter without its text and its experiments: validating runs all that is left."""
    notebook = student()
    kept = ("setup", UNANSWERED, f"{UNANSWERED}-tests")
    notebook.cells = [cell for cell in notebook.cells if cell.id in kept]
    return notebook


def ready(page: Page) -> None:
    """Waits until the notebook is shown and its kernel has started."""
    page.locator(".jp-Notebook .jp-Cell").first.wait_for(timeout=START_S * 1000)
    page.locator("#jp-main-statusbar").get_by_text("| Idle").wait_for(timeout=START_S * 1000)


def idle(page: Page) -> None:
    """Waits until the kernel has nothing left to do."""
    page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").wait_for(timeout=RUN_S * 1000)


def student() -> nbformat.NotebookNode:
    """The notebook that learners get."""
    return nbformat.read(Project.find(Path(__file__)).chapter(CHAPTER), as_version=4)


def number(cell_id: str) -> int:
    """Position of a cell in the student notebook."""
    return [cell.id for cell in student().cells].index(cell_id)


def cell(page: Page, cell_id: str) -> Locator:
    """A cell of the open notebook."""
    return page.locator(".jp-Notebook .jp-Cell").nth(number(cell_id))


def run(page: Page, cell_id: str) -> Locator:
    """The cell after Shift-Enter in it."""
    there = cell(page, cell_id)
    there.locator(".cm-content").click()
    page.keyboard.press("Shift+Enter")
    expect(there.locator(".jp-InputPrompt")).not_to_have_text("[*]:", timeout=RUN_S * 1000)
    idle(page)
    return there


def test_a_learner_answers_one_exercise_and_sees_its_tests_pass(page):
    cell(page, EXERCISE).locator(".cm-content").click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(ANSWER)
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    # Running all stops at the first exercise that is still a stub and says so.
    page.locator(ERRORS).first.wait_for(timeout=RUN_S * 1000)
    expect(page.locator(ERRORS).first).to_contain_text("NotImplementedError")
    idle(page)
    run(page, EXERCISE)
    tests = run(page, f"{EXERCISE}-tests")
    expect(tests.locator(".jp-InputPrompt")).to_have_text(re.compile(r"\[\d+\]:"))
    expect(tests.locator(ERRORS)).to_have_count(0)


def test_an_unanswered_exercise_says_that_it_is_still_to_be_written(page):
    run(page, UNANSWERED)
    expect(run(page, f"{UNANSWERED}-tests")).to_contain_text("NotImplementedError: still to be written")


def test_nbgraders_validate_button_stands_in_the_toolbar_and_says_what_fails(page):
    expect(page.locator(".jp-NotebookPanel-toolbar").get_by_text("Validate")).to_be_visible()
    short = page.context.browser.new_page(viewport={"width": 1400, "height": 1000})
    # In a workspace of its own, where nothing else is open.
    short.goto(page.url.replace(f"lab/tree/{CHAPTER}.ipynb", f"lab/workspaces/short/tree/{SHORT}"))
    ready(short)
    short.locator(".jp-NotebookPanel-toolbar").get_by_text("Validate").click()
    dialog = short.locator(".jp-Dialog")
    expect(dialog).to_contain_text("Validation Results", timeout=RUN_S * 1000)
    expect(dialog).to_contain_text("NotImplementedError")
