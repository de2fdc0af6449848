"""The memory of a sandbox as a whole: the limits of a process bind each one alone, and there may be many."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path

_EVERY = 0.3  # seconds between two looks
_KIBI = 1 << 10


def first_to_go() -> None:
    """Where memory runs out all the same, let the system end this process and its children before any other."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def until_ended(pid: int, memory: int) -> None:
    """Wait for a child; kill it, and so all of its pid namespace, where they hold more than `memory` bytes."""
    handle = os.pidfd_open(pid)
    while not select.select([handle], [], [], _EVERY)[0]:
        if sum(map(_size, _tree(pid))) > memory:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    os.close(handle)
    os.waitpid(pid, 0)


def _tree(pid: int) -> Iterator[int]:
    """A process and all below it; those whose parent has ended are children of the namespace's first."""
    waiting = [pid]
    while waiting:
        yield (one := waiting.pop())
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{one}/task"):
                waiting += map(int, Path(f"/proc/{one}/task/{task}/children").read_text().split())


def _size(pid: int) -> int:
    """The bytes of a process; what it shares, in parts."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * _KIBI
    return 0
