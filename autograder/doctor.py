"""What this machine has for the course and what it lacks, one line each with the cure."""

import json
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from autograder import sandbox
from autograder.course import cores

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PLAYWRIGHT_CACHES = ("~/.cache/ms-playwright", "~/Library/Caches/ms-playwright", "~/AppData/Local/ms-playwright")
PLAYWRIGHT_BROWSERS = ("chromium-*/chrome-linux*/chrome", "chromium-*/chrome-mac*/*.app/Contents/MacOS/*",
                       "chromium-*/chrome-win*/chrome.exe")
# Needed by everyone who runs the course; what only `make test` needs is reported, not demanded.
PACKAGES = ("numpy", "torch", "matplotlib", "jupyterlab", "nbgrader", "jupyter-book")
FREE_GIB = 1.0


@dataclass(frozen=True)
class Finding:
    """One thing looked at: `missing` stops the course, `note` costs something less."""

    name: str
    state: Literal["ok", "note", "missing"]
    detail: str
    cure: str = ""

    def line(self) -> str:
        """The finding as one line of text."""
        return f"{self.state:<8} {self.name:<18} {self.detail}" + (f"; {self.cure}" if self.cure else "")


def found(name: str, here: bool, detail: str, cure: str, *, needed: bool = True) -> Finding:
    """A finding whose cure is shown only where the thing is not here."""
    state: Literal["ok", "note", "missing"] = "ok" if here else "missing" if needed else "note"
    return Finding(name, state, detail, "" if here else cure)


def chromium() -> Path | None:
    """The Chromium for the browser tests: $CHROMIUM, one on the PATH, or one that Playwright installed."""
    named = os.environ.get("CHROMIUM")
    if named:
        return Path(named) if shutil.which(named) else None
    for name in BROWSERS:
        if path := shutil.which(name):
            return Path(path)
    caches = [os.environ.get("PLAYWRIGHT_BROWSERS_PATH", ""), *PLAYWRIGHT_CACHES]
    for cache in (Path(name).expanduser() for name in caches if name):
        for pattern in PLAYWRIGHT_BROWSERS:
            if hits := sorted(cache.glob(pattern)):
                return hits[-1]
    return None


def examine(root: Path | None = None) -> list[Finding]:
    """Everything looked at, in the order in which it is printed; `root` is the folder whose disk is measured."""
    return [python(), *packages(), kernel(), validate_button(), browser(), git(), disk(root or Path.cwd()),
            processors(), memory(), accelerator(), *walls()]


def python() -> Finding:
    """The interpreter, which must be 3.11 or newer."""
    return found("python", sys.version_info >= (3, 11), f"{platform.python_version()} in {sys.prefix}",
                 "install Python 3.11 or newer, then: make clean setup PYTHON=python3.11")


def packages() -> Iterator[Finding]:
    """Each package that the course cannot do without, at the version installed."""
    for name in PACKAGES:
        try:
            yield found(name, True, metadata.version(name), "")
        except metadata.PackageNotFoundError:
            yield found(name, False, "not installed", "run: make setup")


def kernel() -> Finding:
    """Whether the kernel 'python3' starts the interpreter that has the packages."""
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

    try:
        argv = KernelSpecManager().get_kernel_spec("python3").argv
    except NoSuchKernel:
        return found("kernel python3", False, "not installed", "run: make setup")
    # 'python' without a folder means the running interpreter to jupyter_client.
    own = Path(argv[0]).name == argv[0] or Path(argv[0]).resolve() == Path(sys.executable).resolve()
    return found("kernel python3", own, argv[0], f"another environment's kernel; run: {sys.executable} -m ipykernel "
                 "install --sys-prefix")


def validate_button() -> Finding:
    """Whether nbgrader's extension for JupyterLab is installed, which brings the Validate button."""
    manifest = Path(sys.prefix) / "share/jupyter/labextensions/@jupyter/nbgrader/package.json"
    if not manifest.is_file():
        return found("Validate button", False, "nbgrader's JupyterLab extension is not installed", "run: make setup",
                     needed=False)
    return found("Validate button", True, f"nbgrader extension {json.loads(manifest.read_text())['version']}", "")


def browser() -> Finding:
    """Chromium, which only the browser tests use."""
    path, named = chromium(), os.environ.get("CHROMIUM")
    absent = f"CHROMIUM={named} is no program" if named else "not found"
    return found("Chromium", path is not None, str(path or absent),
                 "only make test needs it; install it (Debian, Ubuntu: apt-get install chromium), run "
                 "'playwright install chromium', or set CHROMIUM to its path", needed=False)


def git() -> Finding:
    """git, which only maintainers need."""
    path = shutil.which("git")
    return found("git", path is not None, path or "not found", "only changing the course needs it; install git",
                 needed=False)


def disk(root: Path) -> Finding:
    """Free space where the project lies."""
    free = shutil.disk_usage(root).free / 2**30
    return found("disk", free >= FREE_GIB, f"{free:.1f} GiB free", f"free some: the builds need {FREE_GIB:.0f} GiB")


def processors() -> Finding:
    """Processors that this process may use."""
    threads = os.environ.get("OMP_NUM_THREADS", "not set")
    return found("processors", True, f"{cores()} usable, OMP_NUM_THREADS {threads}", "")


def memory() -> Finding:
    """Memory of the machine; a notebook that trains needs about one GiB."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    except (AttributeError, ValueError, OSError):
        return found("memory", False, "could not be read", "2 GiB are enough", needed=False)
    return found("memory", total >= 2, f"{total:.1f} GiB", "2 GiB are enough to run a chapter; close other programs",
                 needed=False)


def accelerator() -> Finding:
    """The device on which torch computes; the course needs no GPU."""
    try:
        import torch
    except ImportError:
        return found("device", False, "torch cannot be imported", "run: make setup")
    if torch.cuda.is_available():
        return found("device", True, f"cuda, {torch.cuda.get_device_name()}", "")
    mps = torch.backends.mps.is_available()
    return found("device", True, "mps" if mps else "cpu (every chapter runs on it)", "")


def walls() -> Iterator[Finding]:
    """What the grader needs to wall off learners' code, which nobody needs to read or to learn."""
    lacking = sandbox.missing()
    for line in lacking:
        from autograder.sandbox import bubble

        other = "off" if bubble.lacks() else "bwrap"
        layer, _, cure = line.partition(": ")
        yield found("sandbox", False, f"no {layer}", f"grading needs --sandbox {other} here, or: {cure}", needed=False)
    if not lacking:
        yield found("sandbox", True, "namespaces, landlock and seccomp", "")
