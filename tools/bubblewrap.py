"""Installs bubblewrap where the package manager has it: the tests of --sandbox bwrap are skipped without it."""

import os
import shutil
import subprocess

from autograder.sandbox.bubble import lacks

INSTALL = (("apt-get", "update"), ("apt-get", "install", "--yes", "--no-install-recommends", "bubblewrap"))


def ready() -> str:
    """What there is to say of it, in a line."""
    if shutil.which("bwrap") is None and shutil.which("apt-get") and os.geteuid() == 0:
        print("bubblewrap: not here; installing Debian's package", flush=True)
        for command in INSTALL:
            env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            subprocess.run(command, env=env, stdin=subprocess.DEVNULL, check=False)
    return next(iter(lacks()), f"bubblewrap: {shutil.which('bwrap')}")


if __name__ == "__main__":
    print(ready())
