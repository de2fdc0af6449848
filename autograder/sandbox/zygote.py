"""The process from which kernels are forked: it has imported the heavy modules, started no thread, and holds no secret.

Run as `python -m autograder.sandbox.zygote FD`, a socket of whole messages. A request {"connection": …, "policy": …
or null, "cwd": …, "environment": …} is answered with {"pid": …} and the process's pidfd; {"error": …} where it failed.
At the end of the socket every kernel is killed and the zygote ends.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import random
import select
import signal
import socket
import sys
import tempfile
from typing import Any

from autograder.sandbox import linux, walls, watch
from autograder.sandbox.policy import Policy

MESSAGE = 1 << 16
# What ipykernel and IPython import when a kernel starts; a test holds the list complete.
_LATE = (
    "encodings.idna", "encodings.utf_16_be", "faulthandler", "sqlite3", "IPython.core.completerlib",
    "IPython.core.debugger", "IPython.core.logger", "IPython.core.oinspect", "IPython.extensions.storemagic",
    "tornado.platform.asyncio",
)


def main(descriptor: int) -> None:
    """Warm up, say how it went, then fork on request until the socket closes."""
    channel = socket.socket(fileno=descriptor)
    gc.disable()  # to look through half-imported modules takes a tenth of the time
    try:
        _warm_up()
        refuse_threads()
    except Exception as error:
        channel.send(json.dumps({"error": f"{type(error).__name__}: {error}"}).encode())
        return
    gc.enable()
    gc.collect()
    gc.freeze()  # what is here stays: the collector must not touch, and so copy, shared pages
    channel.send(b'{"ready": true}')
    children: set[int] = set()
    while True:
        ready, _, _ = select.select([channel], [], [], 1.0)
        _reap(children)
        if not ready:
            continue
        request = channel.recv(MESSAGE)
        if not request:
            break
        _serve(channel, json.loads(request), children)
    for pid in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _warm_up() -> None:
    """Import what every notebook imports, and draw and fail once, so that no kernel has to."""
    import matplotlib

    matplotlib.use("agg")
    import ipykernel.ipkernel  # noqa: F401
    import IPython.core.pylabtools  # noqa: F401
    import matplotlib.pyplot as plt
    import matplotlib_inline.backend_inline  # noqa: F401
    import numpy as np
    import torch

    import autograder.probe
    import autograder.sandbox.kernelapp  # noqa: F401

    _import_late_ones()
    autograder.sandbox.kernelapp.QuietKernelApp.modules = frozenset(sys.modules)
    torch.set_num_threads(1)
    figure, axes = plt.subplots()
    axes.plot([0, 1], label="x")
    axes.set(title="$x$", xlabel="x")
    axes.legend()
    figure.canvas.draw()
    plt.close(figure)
    layer = torch.nn.Linear(2, 2)
    layer(torch.ones(1, 2)).sum().backward()
    torch.ones(1, device="meta") * 2  # where checks move models to: its first operation imports 800 modules, in 2 s
    repr(torch.ones(1))
    np.linalg.norm(np.eye(2) @ np.eye(2))


def _import_late_ones() -> None:
    """What a kernel would import at its start and at its first traceback.

    Less debugpy: no debugger comes to these kernels, and it would be the half of their start.
    """
    sys.modules["debugpy"] = None  # type: ignore[assignment]  # as if it were not installed
    importlib.import_module("ipykernel.debugger")
    del sys.modules["debugpy"]
    for name in _LATE:
        importlib.import_module(name)
    from IPython.core.ultratb import AutoFormattedTB

    try:
        raise ValueError
    except ValueError:
        AutoFormattedTB(mode="Context").text(*sys.exc_info())


def refuse_threads() -> None:
    """RuntimeError where this process has more than one thread."""
    names = os.listdir("/proc/self/task") if os.path.isdir("/proc/self/task") else ["one"]
    if len(names) > 1:
        raise RuntimeError(f"{len(names)} threads run before the fork: their locks would hang every kernel")


def _reap(children: set[int]) -> None:
    for pid in list(children):
        if os.waitpid(pid, os.WNOHANG)[0]:
            children.discard(pid)


def _serve(channel: socket.socket, request: dict[str, Any], children: set[int]) -> None:
    try:
        refuse_threads()
        pid, child = _fork_kernel(request)
        children.add(child)
        handle = os.pidfd_open(pid)
    except (OSError, RuntimeError) as error:
        channel.send(json.dumps({"error": str(error)}).encode())
        return
    socket.send_fds(channel, [json.dumps({"pid": pid}).encode()], [handle])
    os.close(handle)


def _fork_kernel(request: dict[str, Any]) -> tuple[int, int]:
    """A new kernel's pid, and our child's.

    In a sandbox a process in between makes the namespaces and waits; the kernel is the first process in them. Each
    dies with the one above it.
    """
    if request["policy"] is None:
        pid = os.fork()
        if pid == 0:
            _child(request, None)
        return pid, pid
    policy = Policy(**request["policy"])
    up, down = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    between = os.fork()
    if between == 0:
        down.close()
        _between(up, request, policy)
    up.close()
    try:
        _expect(down, b"apart")
        walls.map_users(between, policy.user)
        down.send(b"mapped")
        answer = down.recv(200)
    except OSError:
        os.kill(between, signal.SIGKILL)
        os.waitpid(between, 0)
        raise
    finally:
        down.close()
    if not answer.isdigit():
        os.waitpid(between, 0)
        raise OSError(f"no sandbox: {answer.decode(errors='replace') or 'the process in between died'}")
    return int(answer), between


def _expect(channel: socket.socket, word: bytes) -> None:
    answer = channel.recv(200)
    if answer != word:
        raise OSError(f"no sandbox: {answer.decode(errors='replace') or 'the process in between died'}")


def _between(up: socket.socket, request: dict[str, Any], policy: Policy) -> None:
    try:
        linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
        watch.first_to_go()
        walls.spaces()
        up.send(b"apart")
        _expect(up, b"mapped")
        proc = watch.processes()
        pid = os.fork()
        if pid == 0:
            _child(request, policy)
        up.send(str(pid).encode())
        up.close()
        watch.until_ended(pid, policy.memory, proc)
        os._exit(0)
    except BaseException as error:
        up.send(str(error).encode()[:200] or b"failed")
        os._exit(1)


def _child(request: dict[str, Any], policy: Policy | None) -> None:
    """The kernel's process, from the fork to its end."""
    from autograder.sandbox.kernelapp import listen

    try:
        if policy is None:  # in a sandbox the process in between sees to it
            linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
        os.setsid()
        log = os.open(request["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        sockets = listen(request["connection"])
        linux.close_all_but([*sockets.values()])
        if policy is not None:
            walls.enter(policy)
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["cwd"])
        run_kernel(request["connection"], sockets)
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(1)


def run_kernel(connection: dict[str, Any], sockets: dict[int, int]) -> None:
    """The kernel, from new random numbers to its end."""
    import numpy as np
    import torch

    from autograder.sandbox.kernelapp import QuietKernelApp

    random.seed(int.from_bytes(os.urandom(8), "little"))
    np.random.seed(int.from_bytes(os.urandom(4), "little"))
    torch.default_generator.manual_seed(int.from_bytes(os.urandom(7), "little"))
    sys.path[:] = [path for path in sys.path if path]
    tempfile.tempdir = None  # what was looked up before the fork is not here
    path = os.path.join(os.environ["HOME"], "kernel.json")
    with open(path, "w") as file:
        json.dump(connection, file)
    QuietKernelApp.listening = sockets
    app = QuietKernelApp.instance(connection_file=path)
    app.initialize([])
    app.start()


if __name__ == "__main__":
    main(int(sys.argv[1]))
