"""Runs pieces of code, each in a sandbox of its own with some of its layers taken out, and prints what they print.

A program: `python sandboxed.py FILE`, a JSON list of [code, layers to leave out, changes of the policy].
"""

import json
import os
import sys
import tempfile
from pathlib import Path

from autograder.sandbox import kernelapp, linux, seccomp, walls, watch, zygote
from autograder.sandbox.policy import Policy


def without(layer):
    """Take a layer out of this process's copy of the sandbox."""
    nothing = lambda *args: None  # noqa: E731
    plant = {
        "seccomp": (seccomp, "apply", nothing), "landlock": (walls, "restrict", nothing),
        "files": (walls, "_root_directory", nothing), "limits": (walls, "limit", nothing),
        "capabilities": (linux, "drop_capabilities", nothing), "user": (walls, "_user", nothing),
        "hiding": (walls, "_hide", nothing), "watch": (watch, "until_ended", lambda pid, *_: os.waitpid(pid, 0)),
        "network": (linux, "NAMESPACES", linux.NAMESPACES & ~linux.CLONE_NEWNET),
        "processes": (linux, "NAMESPACES", linux.NAMESPACES & ~linux.CLONE_NEWPID),
    }  # fmt: skip
    setattr(*plant[layer])


def tried(code):
    """Run the code; what it printed must be out before the process ends as kernels do."""
    try:
        exec(code, {"__name__": "inside"})
    finally:
        sys.stdout.flush()


def said(code, left_out, changes):
    """What the code prints, its exception last."""
    with tempfile.NamedTemporaryFile() as log:
        if os.fork() == 0:
            for layer in left_out:
                without(layer)
            kernelapp.listen = lambda connection: {}
            zygote.run_kernel = lambda connection, sockets: tried(code)
            request = {"policy": Policy(**changes).plain(), "environment": {"PATH": os.defpath}, "log": log.name,
                       "cwd": "/tmp", "connection": {}}
            try:
                _, between = zygote._fork_kernel(request)
                os.waitpid(between, 0)
            except OSError as error:
                Path(log.name).write_text(str(error))
            os._exit(0)
        os.wait()
        return Path(log.name).read_text()


if __name__ == "__main__":
    print(json.dumps([said(*one) for one in json.loads(Path(sys.argv[1]).read_text())]))
