"""The memory and processors of a sandbox as a whole: the limits of a process bind it alone, and there may be many."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path

_EVERY = 0.3  # seconds between two looks
_KIBI = 1 << 10
_BUSY = 8  # threads that may run at once before all of them yield to whoever else wants a processor
_LAST = 19  # the niceness of who yields


def first_to_go() -> None:
    """Where memory runs out all the same, let the system end this process and its children before any other."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def processes() -> int:
    """A descriptor of /proc as it is now: the kernel will have another one put over it, in which it is process 1."""
    return os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)


def until_ended(pid: int, memory: int, proc: int) -> None:
    """Wait for a child; kill it, and so all of its pid namespace, where they hold more than `memory` bytes."""
    guard(pid, memory, proc)
    os.waitpid(pid, 0)


def guard(pid: int, memory: int, proc: int, *, most: int = 1 << 30) -> None:
    """As long as a process lives; kill it where it and those below it hold too much, or are more than `most`."""
    handle = os.pidfd_open(pid)
    try:
        while not select.select([handle], [], [], _EVERY)[0]:
            family = list(_tree(proc, pid))
            # What is resident is never less than the size, and to look closer takes 2 ms.
            large = all(sum(size(proc, one) for one in family) > memory for size in (_resident, _size))
            if len(family) > most or large:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            yield_where_crowded(proc, family)
    finally:
        os.close(handle)


def yield_where_crowded(proc: int, family: list[int], *, busy: int = _BUSY) -> None:
    """Where more than `busy` threads of these processes run at once, give way to all others with each of them.

    Sixty that loop would leave a neighbour so little of two processors that its time limits run out.
    """
    threads = [(one, int(thread)) for one in family for thread in _tasks(proc, one)]
    if len(threads) > busy and sum(_runs(proc, *thread) for thread in threads) > busy:
        for _, thread in threads:
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, thread, _LAST)


def _runs(proc: int, pid: int, thread: int) -> bool:
    with contextlib.suppress(OSError):
        return _read(proc, f"{pid}/task/{thread}/stat").rpartition(")")[2].split()[0] == "R"
    return False


def _tasks(proc: int, pid: int) -> list[str]:
    with contextlib.suppress(OSError):
        return _names(proc, f"{pid}/task")
    return []


def _tree(proc: int, pid: int) -> Iterator[int]:
    """A process and all below it; those whose parent has ended are children of the namespace's first."""
    waiting = [pid]
    while waiting:
        yield (one := waiting.pop())
        with contextlib.suppress(OSError):
            for task in _tasks(proc, one):
                waiting += map(int, _read(proc, f"{one}/task/{task}/children").split())


def _resident(proc: int, pid: int) -> int:
    """The bytes of memory that a process uses, shared or not."""
    with contextlib.suppress(OSError):
        return int(_read(proc, f"{pid}/statm").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _size(proc: int, pid: int) -> int:
    """The bytes of a process; what it shares, in parts, but in full where it doesn't let us look closer."""
    try:
        lines = _read(proc, f"{pid}/smaps_rollup").splitlines()
        return next(int(line.split()[1]) * _KIBI for line in lines if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return _resident(proc, pid)


def _names(folder: int, path: str) -> list[str]:
    found = os.open(path, os.O_RDONLY | os.O_DIRECTORY, dir_fd=folder)
    try:
        return os.listdir(found)
    finally:
        os.close(found)


def _read(folder: int, path: str) -> str:
    with open(os.open(path, os.O_RDONLY, dir_fd=folder)) as file:
        return file.read()
