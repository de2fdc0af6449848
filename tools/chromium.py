"""Makes sure that the browser tests have a Chromium: one that is here, or the one of the package manager."""

import os
import shutil
import subprocess
import sys

from autograder import doctor
from autograder.errors import CourseError

INSTALL = (("apt-get", "update"), ("apt-get", "install", "--yes", "--no-install-recommends", "chromium"))


def ready() -> str:
    """The version of the Chromium found or installed; CourseError where there is none to be had."""
    named = "CHROMIUM" in os.environ   # the caller's own choice: say that it is wrong, install nothing beside it
    if doctor.chromium() is None and not named and shutil.which("apt-get") and os.geteuid() == 0:
        install()
    path = doctor.chromium()
    if path is None:
        raise CourseError(f"Chromium: {doctor.browser().detail}; {doctor.browser().cure}")
    run = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    if run.returncode:
        raise CourseError(f"{path}: does not start ({run.stderr.strip()[-200:]}); set CHROMIUM to one that does")
    return f"{run.stdout.strip()} at {path}"


def install() -> None:
    """Chromium from Debian's packages, with apt-get's own progress."""
    print("browser: no Chromium here; installing Debian's package", flush=True)
    for command in INSTALL:
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(command, env=env, stdin=subprocess.DEVNULL, check=False)


if __name__ == "__main__":
    try:
        print(f"browser: {ready()}")
    except CourseError as problem:
        sys.exit(str(problem))
