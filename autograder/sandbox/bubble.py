"""The sandbox of `--sandbox bwrap`: kernels that the program bubblewrap starts, for machines that lack a layer of ours.

A kernel of its own for each notebook, not forked, so that it takes seconds to start. Namespaces, mounts and
capabilities are bubblewrap's; limits and seccomp are ours; Landlock is, where the system has it. With neither a user of
its own for each kernel nor, as root, a limit on processes that binds, it is the weaker one.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from autograder.sandbox import watch
from autograder.sandbox.inside import LIBRARY
from autograder.sandbox.kernelapp import listen
from autograder.sandbox.policy import MACHINES, Policy, hidden, no_namespaces, readable
from autograder.sandbox.walls import SETTINGS

_BOOT = f"import sys; sys.path.insert(0, {LIBRARY!r}); from autograder.sandbox.inside import main; main()"
_PACKAGE = Path(__file__).parents[1]
# What of this package a kernel needs; nothing of it knows an answer.
_NEEDED = ("__init__.py", "wire.py", "probe", "sandbox")


def lacks() -> list[str]:
    """One line for what keeps `--sandbox bwrap` from working here, with its cure; empty where it works."""
    if sys.platform != "linux":
        return no_namespaces()
    if os.uname().machine not in MACHINES:
        return [f"seccomp: no table of system calls for {os.uname().machine}"]
    program = shutil.which("bwrap")
    if program is None:
        return ["bubblewrap: there is no bwrap; install it (Debian, Ubuntu: apt-get install bubblewrap)"]
    tried = subprocess.run([program, "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "true"],
                           capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)  # fmt: skip
    if tried.returncode == 0:
        return []
    said = tried.stderr.strip().splitlines()[-1:] or [f"it ended with {tried.returncode}"]
    return [f"bubblewrap: {said[0]}; let this user make namespaces, or install bwrap setuid"]


class Bubble:
    """Starts kernels with bwrap, as `Zygote` forks them; ends them with the context. Serves any number of threads."""

    def __init__(self) -> None:
        self._running: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Bubble:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._running:
            process.kill()  # and with it all that it started
            process.wait()

    def fork(self, request: dict[str, Any]) -> tuple[int, int]:
        """A new kernel: its pid and a pidfd. OSError where the sandbox can't be put up."""
        self._running = [process for process in self._running if process.poll() is None]
        policy = Policy(**request["policy"])
        sockets = listen(request["connection"])
        status, told = os.pipe()
        command = ["bwrap", *arguments(policy), "--json-status-fd", str(told), "--", sys.executable, "-c", _BOOT]
        try:
            with open(request["log"], "ab") as log:
                process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log,
                                           pass_fds=[*sockets.values(), told], env=request["environment"])  # fmt: skip
        finally:
            for handle in (*sockets.values(), told):
                os.close(handle)
        self._running.append(process)
        with open(status, encoding="utf-8") as answers:
            line = answers.readline()
        if "child-pid" not in line:
            said = Path(request["log"]).read_text(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
            raise OSError(f"no sandbox: {said[0]}")
        pid = json.loads(line)["child-pid"]
        handle = os.pidfd_open(pid)
        threading.Thread(target=_guard, args=(pid, policy), daemon=True).start()
        with contextlib.suppress(BrokenPipeError):  # it has died: who waits for an answer will see
            _send(process, {**request, "sockets": sockets}, policy)
        return pid, handle


def _guard(pid: int, policy: Policy) -> None:
    proc = watch.processes()
    with contextlib.suppress(OSError):
        watch.guard(pid, policy.memory, proc, most=policy.processes)
    os.close(proc)


def _send(process: subprocess.Popen[bytes], request: dict[str, Any], policy: Policy) -> None:
    """The request in a line, then the files that the kernel's work starts with."""
    assert process.stdin is not None
    with process.stdin as pipe:
        pipe.write(json.dumps(request).encode() + b"\n")
        with tarfile.open(fileobj=pipe, mode="w|") as archive:
            for path in _files(Path(policy.files)) if policy.files else ():
                archive.add(path, path.relative_to(policy.files).as_posix(), recursive=False)


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink())


def arguments(policy: Policy) -> list[str]:
    """What bwrap is told: all namespaces, read-only places, small writable ones, and a package with nothing in it."""
    size = str(policy.disk)
    words = ["--unshare-all", "--as-pid-1", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--uid", "1000",
             "--gid", "1000", "--hostname", "sandbox", "--proc", "/proc", "--dev", "/dev", "--size", size, "--tmpfs",
             "/dev/shm", "--remount-ro", "/dev", "--size", size, "--tmpfs", "/tmp"]  # fmt: skip
    places = readable()
    for path in places:
        words += ["--symlink", os.readlink(path), path] if os.path.islink(path) else ["--ro-bind", path, path]
    for name in SETTINGS:
        words += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    for path in (os.path.realpath(path) for path in (*hidden(), *policy.hide)):
        if os.path.isdir(path) and any(path.startswith(place + "/") for place in places):
            words += ["--size", "4096", "--tmpfs", path, "--remount-ro", path]
    for name in _NEEDED:
        words += ["--ro-bind", str(_PACKAGE / name), f"{LIBRARY}/autograder/{name}"]
    return [*words, "--remount-ro", "/"]
