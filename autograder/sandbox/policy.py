"""What a sandbox lets through, as data; and what of it this machine can't give."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from autograder.sandbox import landlock

MEBI = 1 << 20
MACHINES = ("x86_64", "aarch64")  # whose system calls our seccomp filter knows


@dataclass(frozen=True)
class Policy:
    """One sandbox: the files it starts with, what to keep out of sight, and its limits (bytes, seconds, counts).

    `memory` binds each process and all of them together.
    """

    files: str = ""
    hide: tuple[str, ...] = ()
    user: int = 61184
    memory: int = 4096 * MEBI
    disk: int = 256 * MEBI
    file: int = 64 * MEBI
    processes: int = 64
    descriptors: int = 256
    cpu: int = 900

    def plain(self) -> dict[str, Any]:
        """As JSON takes it."""
        return asdict(self)


def readable() -> list[str]:
    """The directories that a Python with its packages needs: the system's libraries, this Python, its environment."""
    wanted = ["/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", sys.base_prefix, sys.prefix]
    wanted += [os.path.realpath(sys.prefix), str(Path(os.path.realpath(sys.executable)).parents[1])]
    return list(dict.fromkeys(path for path in wanted if os.path.isdir(path)))


def hidden() -> list[str]:
    """What lies in those directories and is the course's own: this package, where it is installed into one of them."""
    return [str(Path(__file__).parents[1])]


# What people do whose system has no sandbox; the instructor's guide says more.
CONTAINER = ("docker run --rm -it --security-opt seccomp=unconfined --security-opt systempaths=unconfined "
             '-v "$PWD":/work -w /work python:3.12 bash')
_CURE = {"darwin": f"grade in a Linux container: {CONTAINER}", "win32": "grade in WSL 2: wsl --install, then there"}


def no_namespaces() -> list[str]:
    """The one line for a system that is not Linux; empty on Linux."""
    if sys.platform == "linux":
        return []
    cure = _CURE.get(sys.platform, "grade on Linux, in a container or a virtual machine")
    return [f"namespaces: {sys.platform} has none; {cure}"]


def missing() -> list[str]:
    """One line for each layer that this machine lacks, with its cure; empty where the sandbox can stand."""
    if sys.platform != "linux":
        return no_namespaces()
    lacks = []
    if os.uname().machine not in MACHINES:
        lacks.append(f"seccomp: no table of system calls for {os.uname().machine}")
    if landlock.abi() < 1:
        lacks.append("landlock: this kernel offers none; boot Linux 5.13 or newer with lsm=landlock")
    if not _namespaces():
        lacks.append("user namespaces: refused; set kernel.unprivileged_userns_clone=1 and "
                     "kernel.apparmor_restrict_unprivileged_userns=0, or run the container with that right")
    return lacks


def _namespaces() -> bool:
    from autograder.sandbox import linux

    child = os.fork()
    if child == 0:
        try:
            linux.unshare(linux.NAMESPACES)
            os._exit(0)
        except OSError:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0
