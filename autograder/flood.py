"""Kernels that flood the grader with messages: libzmq bounds the size of a message's part, not how many it has.

What such a message takes grows in this process, whose memory is the whole class's. So the process watches itself, and
where it grows, finds out through which kernel: the one with which it grows on while all others stand still.
"""

import contextlib
import signal
import threading
import time

import psutil

_GROWTH = 512 << 20  # bytes by which the grader may grow while it waits for one answer
_EVERY = 1.0  # seconds between two looks
_ALONE = 0.2  # seconds for which a kernel is watched alone
_FLOOD = 4 << 20  # bytes by which it then grows if it is this one: half of what a slow and busy machine takes in

_lock = threading.Lock()
_watched: set["Watch"] = set()


def resident() -> int:
    """Bytes of memory that this process holds."""
    return int(psutil.Process().memory_info().rss)


class Watch:
    """Watches this process for one kernel, for as long as the context lasts."""

    def __init__(self, pid: int | None):
        self._process, self._before, self._next = None, 0, 0.0
        if pid is not None:
            with contextlib.suppress(psutil.Error):
                self._process = psutil.Process(pid)  # it knows this process from another of the same number

    def __enter__(self) -> "Watch":
        _watched.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        _watched.discard(self)

    def begin(self) -> None:
        """An answer is waited for from now on."""
        self._before, self._next = resident(), time.monotonic() + _EVERY

    def floods(self) -> bool:
        """Does this process grow, and through this kernel? Takes a moment only once it has grown."""
        if time.monotonic() < self._next:
            return False
        self._next = time.monotonic() + _EVERY
        return resident() - self._before > _GROWTH and self._grows_alone()

    def _grows_alone(self) -> bool:
        with _lock:
            others = [one for one in list(_watched) if one is not self]
            try:
                for other in others:
                    other.send(signal.SIGSTOP)
                time.sleep(_ALONE)  # for what the others had already sent
                if not all(self._grew() for _ in range(2)):
                    return False
                for other in others:
                    other.begin()  # it was not their doing
                return True
            finally:
                for other in others:
                    other.send(signal.SIGCONT)

    def _grew(self) -> bool:
        start = resident()
        time.sleep(_ALONE)
        return resident() - start > _FLOOD

    def send(self, signum: int) -> None:
        """To the kernel's process and all that came from it."""
        if self._process is None:
            return
        with contextlib.suppress(psutil.Error):
            for process in (self._process, *self._process.children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    process.send_signal(signum)
