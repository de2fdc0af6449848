"""A folder for a run's work in progress; what a killed run leaves there, the next run removes."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX = "grading-"


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder among the temporary files that goes with the context, or at the latest with the next run's start."""
    _remove_leftovers()
    hidden = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}"))
    place = hidden.with_name(hidden.name[1:])
    lock = os.open(hidden, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        hidden.replace(place)  # only now can others find it, and find it in use
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
        os.close(lock)


def _remove_leftovers() -> None:
    """A folder whose lock is free has no run any more: the system frees it, however a process ends."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(folder).st_uid == os.getuid():
                    fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(folder)
