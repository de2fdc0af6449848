"""The first process in a sandbox that bwrap has put up: takes its limits, gives up its rights, becomes a kernel."""

from __future__ import annotations

import json
import os
import sys
import tarfile

from autograder.sandbox import landlock, linux, seccomp, walls
from autograder.sandbox.policy import Policy

LIBRARY = "/run/lib"  # where bwrap shows what a kernel needs of this package


def main() -> None:
    """Take the request and the files from stdin, then run the kernel to its end."""
    request = json.loads(sys.stdin.buffer.readline())
    for folder in (walls.WORK, walls.HOME):
        os.makedirs(folder)
    with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as archive:
        archive.extractall(walls.WORK, filter="data")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sockets = {int(port): handle for port, handle in request["sockets"].items()}
    linux.close_all_but([*sockets.values()])
    os.chdir(request["cwd"])
    import autograder.probe  # noqa: F401  what is imported now needs no file later
    from autograder.sandbox import kernelapp, zygote  # noqa: F401

    sys.path.remove(LIBRARY)
    walls.limit(Policy(**request["policy"]))
    linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    linux.drop_capabilities()
    if landlock.abi() >= 1:
        walls.restrict()
    seccomp.apply()
    zygote.run_kernel(request["connection"], sockets)
