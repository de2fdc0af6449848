"""The book: solved notebooks run, their outputs put into the student editions, and HTML made of it without a problem.

Notebooks run side by side, one a core, and what they gave is cached by content. Sphinx is not asked to build what
changed: from a warm state it repeats no warning of an unchanged page and misses a reference that broke elsewhere. A
changed book is built whole, an unchanged one not at all.
"""

import asyncio
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import nbformat
from nbformat import NotebookNode

from autograder import source
from autograder.course import Project, cores
from autograder.errors import CourseError

Say = Callable[[str], None]
T = TypeVar("T")

CELL_SECONDS = 600
MOST_KERNELS = 4    # at a time, of 0.4 GiB each
SAY_SECONDS = 2.0   # between two lines of progress
# A change of any of these may change what a notebook prints, or what a page looks like.
RUNS = ("numpy", "torch", "matplotlib", "ipykernel")
BUILDS = ("jupyter-book", "sphinx", "myst-nb", "myst-parser", "sphinx-book-theme", "pydata-sphinx-theme",
          "sphinxcontrib-bibtex")
# As a learner's own kernel starts: one thread, the inline figures of Jupyter, nobody's start-up files.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_PROBLEM = re.compile(r"\b(?:WARNING|ERROR|CRITICAL|SEVERE): ")
_PROGRESS = re.compile(r"(reading sources|writing output)\.\.\. \[ *(\d+)%\]")


def quiet(line: str) -> None:
    """Say nothing."""


def now_and_then(say: Say) -> Say:
    """`say` for a quick succession of lines: the first, and then one every two seconds."""
    last = float("-inf")

    def sometimes(line: str) -> None:
        nonlocal last
        if time.monotonic() - last >= SAY_SECONDS:
            last = time.monotonic()
            say(line)

    return sometimes


def executed_path(project: Project, slug: str) -> Path:
    """Where the executed solved notebook of a chapter is kept."""
    return project.build / "executed" / f"{slug}.ipynb"


def execute(project: Project, slug: str, *, say: Say = quiet) -> NotebookNode:
    """The solved notebook with its outputs, run only if its cells, set-up or libraries changed since the last run."""
    return _awaited(_executed(project, slug, source.load(project, slug), say))


def _awaited(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine; where a loop runs in this thread already, in a notebook say, from a thread beside."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as beside:
        return beside.submit(asyncio.run, work).result()


async def _executed(project: Project, slug: str, notebook: NotebookNode, say: Say) -> NotebookNode:
    kept, key = executed_path(project, slug), _run_key(notebook)
    if kept.is_file():
        before = nbformat.read(kept, as_version=4)
        if before.metadata.get("course", {}).get("executed") == key:
            return before
    await run(notebook, project.name(project.source(slug)), say=say)
    notebook.metadata.setdefault("course", {})["executed"] = key
    _write(kept, nbformat.writes(notebook))
    return notebook


def _run_key(notebook: NotebookNode) -> str:
    return _digest([], RUNS, salt=nbformat.writes(notebook))


def _digest(files: list[Path], packages: tuple[str, ...], salt: str = "") -> str:
    digest = hashlib.sha256(salt.encode())
    for path in files:
        digest.update(f"{path.name}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    for name in packages:
        digest.update(f"{name}=={metadata.version(name)}\0".encode())
    return digest.hexdigest()[:16]


def _write(path: Path, text: str) -> None:
    """Write whole or not at all: a build that is killed leaves no half of a file behind."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


async def run(notebook: NotebookNode, name: str, *, say: Say = quiet) -> None:
    """Run every cell in order in a scratch directory, in place; `name` is what errors and progress call the file."""
    # Slow to import, and a warm build runs nothing.
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    at, say = "?", now_and_then(say)

    def started(cell: NotebookNode, cell_index: int) -> None:
        nonlocal at
        at = cell.id
        say(f"{name}: running cell {cell_index + 1} of {len(notebook.cells)}")

    with tempfile.TemporaryDirectory(prefix="chapter-") as scratch:
        (work := Path(scratch) / "work").mkdir()
        client = NotebookClient(notebook, timeout=CELL_SECONDS, kernel_name="python3", record_timing=False,
                                resources={"metadata": {"path": str(work)}}, on_cell_start=started,
                                extra_arguments=["--log-level=ERROR"])
        env = {key: value for key, value in os.environ.items() if key != "MPLBACKEND"}
        try:
            await client.async_execute(env={**env, **ONE_THREAD, "IPYTHONDIR": f"{scratch}/ipython"})
        except CellExecutionError as problem:
            said = f"{problem.ename}: {problem.evalue}" if problem.ename else str(problem)
            raise CourseError(f"{name}: cell '{at}' failed with {_line(said)}; mend the cell") from problem
        except CellTimeoutError as problem:
            raise CourseError(f"{name}: cell '{at}' ran longer than {CELL_SECONDS} s; make it lighter") from problem
        except DeadKernelError as problem:
            raise CourseError(f"{name}: the kernel died in cell '{at}'; run the cell by hand to see why") from problem


def _line(text: str) -> str:
    """A text that may have colours and many lines, as one line."""
    return " ".join(_COLOUR.sub("", text).split())


def build(project: Project, *, say: Say = quiet) -> Path:
    """The folder of the HTML book, made anew if anything changed; CourseError lists every problem that it has."""
    _check_toc(project)
    keys = [notebook.metadata["course"]["executed"] for notebook in _awaited(_all_executed(project, say))]
    html, stamp = project.build / "html", project.build / "book.json"
    now = {"inputs": _digest(_inputs(project), BUILDS, salt=",".join(keys))}
    if stamp.is_file() and (html / "index.html").is_file() and json.loads(stamp.read_text()) == now:
        say("book: up to date")
        return html
    stamp.unlink(missing_ok=True)
    for old in (html, project.build / ".doctrees", project.build / "jupyter_execute"):
        shutil.rmtree(old, ignore_errors=True)
    problems = _jupyter_book(project, say=say)
    if problems:
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        raise CourseError(f"book: {count}; mend {'it' if len(problems) == 1 else 'each'}:\n" + "\n".join(problems))
    _write(stamp, json.dumps(now))
    return html


async def _all_executed(project: Project, say: Say) -> list[NotebookNode]:
    """Every chapter executed, some at a time; the first that fails, or whose kernel a signal ends, ends them all."""
    loaded = {slug: source.load(project, slug) for slug in project.slugs()}
    turn = asyncio.Semaphore(min(cores(), MOST_KERNELS))

    async def one(slug: str, notebook: NotebookNode) -> NotebookNode:
        async with turn:
            return await _executed(project, slug, notebook, say)

    tasks = [asyncio.create_task(one(*chapter)) for chapter in loaded.items()]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION) if tasks else (tasks, [])
        for task in done:
            task.result()  # raises what it failed with
        return [task.result() for task in tasks]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _check_toc(project: Project) -> None:
    """Raise CourseError unless _toc.yml names the chapters that exist, in order: no page may go missing unseen."""
    text = (project.root / "_toc.yml").read_text(encoding="utf-8")
    named = re.findall(r"^[ -]*file: [\"']?chapters/(\w+)", text, re.MULTILINE)
    if named != project.slugs():
        lines = ", ".join(f"'- file: chapters/{slug}'" for slug in project.slugs())
        raise CourseError(f"_toc.yml: names the chapters {', '.join(named) or 'none'}; for those in solutions/ write "
                          + (lines or "none"))


def _inputs(project: Project) -> list[Path]:
    """The files that the pages are made from."""
    shell = [path for path in project.book.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    ours = [Path(__file__).with_name(name) for name in ("book.py", "graft.py", "lower.py")]
    return [project.root / "_config.yml", project.root / "_toc.yml", *sorted(shell), *ours,
            *sorted(project.chapters.glob("*.ipynb"))]


def _jupyter_book(project: Project, *, say: Say) -> list[str]:
    """Run jupyter-book; what is wrong, one line each, empty only if it said nothing and ended well.

    Its exit code alone is not enough: a pipe hides it and it is 0 where only _config.yml is wrong.
    """
    command = [sys.executable, "-c", "from jupyter_book.cli.main import main; main()", "build", str(project.root),
               "--warningiserror", "--nitpick", "--keep-going"]
    env = {**os.environ, "NO_COLOR": "1", "PYTHONUTF8": "1"}
    say = now_and_then(say)
    with tempfile.TemporaryFile("w+", encoding="utf-8") as errors:
        # cwd: jupyter-book searches the working directory before the installed packages.
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, encoding="utf-8", env=env,
                              cwd=project.root) as process:
            assert process.stdout is not None
            output = []
            for line in process.stdout:
                output.append(_COLOUR.sub("", line))
                if step := _PROGRESS.search(output[-1]):
                    say(f"book: {step[1]} {step[2]} %")
        errors.seek(0)
        said = _COLOUR.sub("", errors.read()).replace(f"{project.root}/", "")
    found = problems("".join(output), said)
    # With warnings alone it says so; else something raised, and that is a problem more.
    if process.returncode and not (found and "returns a non-zero exit code" in "".join(output)):
        found += [f"jupyter-book ended with exit code {process.returncode}: {_last_words(said)}"]
    return found


def _last_words(errors: str) -> str:
    """What a program that died said: the exception that began it, or else its last lines."""
    lines = [line.strip() for line in errors.splitlines() if line.strip(" =\t")]
    raised = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Interrupt): ", line)]
    return _line(" ".join(raised[:1] or lines[-3:])) or "it said nothing"


def problems(output: str, errors: str) -> list[str]:
    """Every warning and error in what jupyter-book printed; lines that carry one on belong to it."""
    found: list[str] = []
    for line in errors.splitlines():
        if _PROBLEM.search(line):
            found.append(line.strip())
        elif found and line.startswith((" ", "\t")) and line.strip():
            found[-1] += f" {line.strip()}"
    if "Validation errors in config" in output:
        found += [f"_config.yml: {line.strip(' -')}" for line in output.splitlines() if "[key path:" in line]
    return found
