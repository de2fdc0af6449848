"""A learner's code at work: one IPython kernel per notebook, with limits that name what went over them.

A `Kernel` is one process. A `Session` outlives its kernel: after a death a fresh one runs again all that ran before,
but for the cell that killed it.
"""

import base64
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import zmq
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import KernelManager
from jupyter_core.utils import run_sync
from nbformat import NotebookNode

from autograder.flood import Watch
from autograder.outputs import DEAD, TIME, Outputs, error_output
from autograder.sandbox import Policy
from autograder.sandbox.bubble import Bubble
from autograder.sandbox.warm import Ticket, Zygote, kernel_spec
from autograder.scratch import scratch
from autograder.wire import Plan, Seen, WireError, decode, encode

_TICK = 0.5
# Users that own nothing: the range that systemd keeps for such.
_FIRST_USER = 61184
# Of one message: more than a cell may put out, and than findings take. A longer one breaks the connection.
_LONGEST = 20 << 20
_QUEUED = 50  # messages that may wait for us, on each side
_BASE64 = re.compile(r"'([A-Za-z0-9+/=]*)'")


@dataclass(frozen=True)
class Limits:
    """Seconds that things may take: a cell, one exercise's cases, the kernel's start, to stop when interrupted.

    `notebook` binds all of a notebook together: a learner can add any number of cells.
    """

    cell: float = 30
    probe: float = 30
    start: float = 120
    grace: float = 3
    notebook: float = 600


class Stopped(Exception):
    """The kernel was stopped, or died, before it answered; `kind` is TIME, DEAD or "no reply"."""

    def __init__(self, kind: str, message: str):
        super().__init__(message)
        self.kind = kind


@dataclass
class Ran:
    """What came of a cell: its outputs, its number, and how it was stopped ("" when it ended by itself)."""

    outputs: list[NotebookNode] = field(default_factory=list)
    count: int | None = None
    stop: str = ""


class _OwnPython(KernelSpecManager):
    """Whatever a notebook or this machine calls "python3": the Python that runs this."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        return KernelSpec(argv=[*argv, "--HistoryManager.hist_file=:memory:"], display_name="Python", language="python")


class _Given(KernelSpecManager):
    """One kernel spec, whatever it is asked for."""

    def __init__(self, spec: KernelSpec):
        super().__init__()
        self._spec = spec

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        return self._spec


def clean_environment(home: Path) -> dict[str, str]:
    """The environment of learner code: nothing of the instructor's but what a program needs to run.

    One thread for the linear algebra: two kernels on two cores lose by more.
    """
    kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "SYSTEMROOT", "TZ") if name in os.environ}
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    places = dict.fromkeys(("HOME", "TMPDIR", "IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "MPLCONFIGDIR"), str(home))
    path = os.pathsep.join([str(Path(sys.executable).parent), os.defpath])
    quiet = {"PYTHONNOUSERSITE": "1", "PYTHONDONTWRITEBYTECODE": "1", "MPLBACKEND": "agg", "NO_COLOR": ""}
    return {**kept, **threads, **places, **quiet, "PATH": path, "LANG": "C.UTF-8", "NBGRADER_EXECUTION": "autograde"}


@dataclass(frozen=True)
class Forge:
    """Where kernels come from: a zygote, or bwrap in its stead; and, unless the sandbox is off, what it lets through.

    Each kernel takes a user of its own off `users`, so that a limit on processes binds it alone, and puts it back.
    Kernels have their folders in `place`.
    """

    zygote: Zygote | Bubble
    sandboxed: bool
    users: SimpleQueue[int]
    place: Path
    hide: tuple[str, ...] = ()

    def policy(self, files: Path | None, user: int) -> Policy | None:
        """The sandbox of one kernel: its work starts as a copy of `files`."""
        return Policy(str(files or ""), self.hide, user) if self.sandboxed else None


@contextmanager
def forge(*, sandboxed: bool, bwrap: bool = False, hide: Sequence[Path] = ()) -> Iterator[Forge]:
    """A prepared process to fork kernels from, for as long as the context lasts; they see nothing of `hide`.

    bwrap: no such process; bubblewrap starts each kernel in a sandbox of its own.
    """
    users: SimpleQueue[int] = SimpleQueue()
    for user in range(_FIRST_USER, _FIRST_USER + 64):
        users.put(user)
    kept = tuple(str(path) for path in hide)
    with scratch() as place, ExitStack() as ending:
        (place / "home").mkdir()
        zygote = Zygote(clean_environment(place / "home"), place=place)
        source = ending.enter_context(Bubble()) if bwrap else ending.enter_context(zygote)
        yield Forge(source, sandboxed or bwrap, users, place, kept)


class Kernel:
    """One kernel process in a scratch directory that starts as a copy of `files`; dies with the context.

    It is forked from `warm`'s zygote where that is given, else a process of its own, without a sandbox.
    """

    def __init__(self, files: Path | None = None, *, limits: Limits = Limits(), warm: Forge | None = None):
        self.limits = limits
        # Absolute: the process that forks has a working directory of its own.
        self._files, self._warm = files.resolve() if files else None, warm
        self._stopped = False
        self._ending = ExitStack()
        self.peak = 0

    def __enter__(self) -> "Kernel":
        # A short path: a socket's name has room for some hundred characters.
        self._home = Path(tempfile.mkdtemp(prefix="kernel-", dir=self._warm.place if self._warm else None))
        self._ending.callback(shutil.rmtree, self._home, ignore_errors=True)
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self) -> None:
        work, own, sockets = (self._home / name for name in ("work", "home", "s"))
        for folder in (own, sockets):
            folder.mkdir()
        inside = self._warm is not None and self._warm.sandboxed
        if self._files and not inside:
            shutil.copytree(self._files, work, symlinks=True)
        else:
            work.mkdir()
        self._manager = KernelManager(
            kernel_name="python3", transport="ipc", ip=str(sockets / "k"), kernel_spec_manager=self._spec(),
            connection_file=str(self._home / "kernel.json"),
        )
        self._ending.callback(self._end)
        with (self._home / "log").open("wb") as log:
            # What the process itself writes must never mix with our own output.
            self._manager.start_kernel(env=clean_environment(own), cwd=str(work), stdout=log, stderr=log)
        self._client = self._manager.client()
        self._client.context.setsockopt(zmq.MAXMSGSIZE, _LONGEST)
        self._client.context.setsockopt(zmq.RCVHWM, _QUEUED)
        self._client.start_channels(stdin=False, hb=False)
        self._ending.callback(self._client.stop_channels)
        self._wait_until_ready()
        self._watch = self._ending.enter_context(Watch(getattr(self._manager.provisioner, "pid", None)))

    def _spec(self) -> KernelSpecManager:
        if self._warm is None:
            return _OwnPython()
        user = self._warm.users.get()
        self._ending.callback(self._warm.users.put, user)
        ticket = Ticket(self._warm.zygote, self._warm.policy(self._files, user), self._home)
        return _Given(self._ending.enter_context(kernel_spec(ticket)))

    def _wait_until_ready(self) -> None:
        """Until the kernel answers and its output arrives; the client's own wait sleeps for half a second in all."""
        deadline, heard = time.monotonic() + self.limits.start, False
        shell, iopub = self._client.shell_channel, self._client.iopub_channel
        while time.monotonic() < deadline:
            asked = self._client.kernel_info()
            again = time.monotonic() + (1.0 if self._warm is None else 0.3)
            answered = False
            while time.monotonic() < again and not (answered and heard):
                heard = heard or bool(iopub.socket.poll(5 if answered else 0) and _take(iopub, asked))
                answered = answered or bool(shell.socket.poll(5) and _take(shell, asked))
            if answered and heard:
                return
            if not self._manager.is_alive():
                break
        tail = (self._home / "log").read_text(errors="replace").strip().splitlines()[-1:]
        raise Stopped(DEAD, f"the kernel did not start: {tail[0] if tail else 'it gave no answer'}")

    def _end(self) -> None:
        """Kill and reap: the manager's own way to it sleeps a tenth of a second."""
        provisioner = self._manager.provisioner
        if provisioner is not None and provisioner.has_process:
            self.peak = max(self.peak, _peak(getattr(provisioner, "pid", None)))
            run_sync(provisioner.kill)()
            run_sync(provisioner.wait)()
        self._manager.cleanup_resources()

    def __exit__(self, *_: object) -> None:
        self._ending.close()

    @property
    def alive(self) -> bool:
        """Can more code be run here?"""
        return not self._stopped

    def run(self, code: str, timeout: float | None = None, *, kept: bool = True) -> Ran:
        """Run a cell; never raises for what the cell does. One that is not `kept` has no number and no history."""
        limit, outputs = timeout or self.limits.cell, Outputs()
        try:
            reply = self._execute(code, limit, outputs, kept=kept)
        except Stopped as stop:
            note = error_output("TimeLimit" if stop.kind == TIME else "DeadKernel", str(stop))
            return Ran([*outputs.without_interrupt(), note], None, stop.kind)
        count = reply.get("execution_count")
        return Ran(outputs.done(reply), count if isinstance(count, int) and 0 < count < 10**6 else None)

    def probe(self, expression: str, plans: Sequence[Plan] | bytes, timeout: float | None = None) -> list[Seen]:
        """Carry out plans on what `expression` is over there; `Stopped` where no proper answer comes back.

        The plans may come encoded. The findings return in the reply, not through the learner's output.
        """
        request = base64.b64encode(plans if isinstance(plans, bytes) else encode(list(plans))).decode()
        served = f"__import__('autograder.probe').probe.serve({expression!r}, base64.b64decode({request!r}), globals())"
        call = f"(lambda base64: base64.b64encode({served}).decode())(__import__('base64'))"
        reply = self._execute("", timeout or self.limits.probe, Outputs(), {"found": call})
        try:
            return _findings(reply)
        except Exception as problem:  # a hostile reply may break anything on its way
            raise Stopped("no reply", f"no findings came back ({str(problem)[:200]})") from None

    # ---- one request and its answers

    def _execute(
        self, code: str, limit: float, outputs: Outputs, wanted: dict[str, str] | None = None, *, kept: bool = True
    ) -> Any:
        """The content of the kernel's reply. `Stopped` after the limit, with the kernel interrupted or killed."""
        if self._stopped:
            raise Stopped(DEAD, "the kernel was stopped earlier")
        request = self._client.execute(
            code, silent=wanted is not None, store_history=kept and wanted is None, user_expressions=wanted or {},
            allow_stdin=False, stop_on_error=False,
        )
        reply = self._wait(request, time.monotonic() + limit, outputs)
        if reply is not None:
            return reply
        self._manager.interrupt_kernel()
        if self._wait(request, time.monotonic() + self.limits.grace, outputs) is None:
            self._kill()
            raise Stopped(TIME, f"stopped after {limit:g} s, and did not heed the interrupt")
        raise Stopped(TIME, f"stopped after {limit:g} s: the time limit of a cell")

    def _wait(self, request: str, deadline: float, outputs: Outputs) -> Any:
        """Take in messages until the request is answered and its outputs are complete; None at the deadline.

        What has come by then is taken in first: it may be we who were late.
        """
        late = 2 * _QUEUED
        shell, iopub = self._client.shell_channel, self._client.iopub_channel
        poller, reply, idle = zmq.Poller(), None, False
        self._watch.begin()
        for channel in (shell, iopub):
            poller.register(channel.socket, zmq.POLLIN)
        while not (reply is not None and idle):
            left = deadline - time.monotonic()
            if left <= 0 and (late := late - 1) < 0:
                return reply
            ready = dict(poller.poll(int(1000 * min(left, _TICK)) + 1 if left > 0 else 0))
            if left <= 0 and not ready:
                return reply
            if shell.socket in ready and (message := _take(shell, request)):
                # After the reply the outputs are already on their way.
                reply = message["content"] if isinstance(message["content"], dict) else {}
                deadline = min(deadline, time.monotonic() + self.limits.grace)
            if iopub.socket in ready and (message := _take(iopub, request)):
                idle = idle or _is_idle(message)
                outputs.take(message)
            if self._watch.floods():
                self._kill()
                raise Stopped(DEAD, "the kernel was ended: it flooded the grader with messages")
            if not ready and not self._manager.is_alive():
                self._stopped = True
                raise Stopped(DEAD, "the kernel died while this ran")
        return reply

    def _kill(self) -> None:
        self._stopped = True
        self._end()


def _peak(pid: int | None) -> int:
    """The most memory that a process has held, in bytes, shared pages included; 0 where the system does not say."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        return 0


def _is_idle(message: dict[str, Any]) -> bool:
    content = message.get("content")
    return message.get("msg_type") == "status" and content == {"execution_state": "idle"}


def _take(channel: Any, request: str) -> Any:
    """The message that waits on a channel, None where it belongs to another request or is none at all."""
    try:
        message = channel.get_msg(timeout=0)
        return message if message["parent_header"]["msg_id"] == request else None
    except Exception:  # learner code has the kernel's key: it can sign anything
        return None


def _findings(reply: dict[str, Any]) -> list[Seen]:
    """What the probe's expression came to."""
    answer = reply["user_expressions"]["found"]
    if answer["status"] != "ok":
        raise WireError(f"{answer['ename']}: {answer['evalue']}")
    text = _BASE64.fullmatch(answer["data"]["text/plain"])
    found = decode(base64.b64decode(text[1])) if text else None
    if not isinstance(found, list) or not all(isinstance(seen, Seen) for seen in found):
        raise WireError("the reply holds none")
    return found


class Session:
    """The kernel of one notebook from its first cell to its last, whatever the cells do to it.

    `peak`: afterwards, the most memory that one of its kernels held, in bytes; 0 where nothing says.
    """

    def __init__(
        self, files: Path | None = None, *, limits: Limits = Limits(), lives: int = 8, warm: Forge | None = None
    ):
        self._files, self._limits, self._lives, self._warm = files, limits, lives, warm
        self._kernel: Kernel | None = None
        self._done: list[str] = []
        self.peak = 0
        self._until = time.monotonic() + limits.notebook

    def __enter__(self) -> "Session":
        self._kernel = self._fresh()
        return self

    def again(self) -> "Session":
        """Another one for the same notebook, which knows nothing of this one."""
        return Session(self._files, limits=self._limits, lives=2, warm=self._warm)

    def __exit__(self, *_: object) -> None:
        if self._kernel is not None:
            self._kernel.__exit__()
            self.peak = max(self.peak, self._kernel.peak)
            self._kernel = None

    def _fresh(self) -> Kernel:
        return Kernel(self._files, limits=self._limits, warm=self._warm).__enter__()

    def run(self, code: str, timeout: float | None = None, *, kept: bool = True) -> Ran:
        """Run a cell; after a death, a fresh kernel stands where this one stood before the cell.

        What is not `kept` leaves no trace in the history, and is not run again.
        """
        if self._over():
            return Ran([error_output("TimeLimit", self._late)], None, TIME)
        if self._kernel is None:
            return Ran([error_output("DeadKernel", "not run: kernels died too often before")], None, DEAD)
        ran = self._kernel.run(code, self._left(timeout or self._limits.cell), kept=kept)
        if kept and not ran.stop:
            self._done.append(code)
        self._revive()
        return ran

    def probe(self, expression: str, plans: Sequence[Plan] | bytes, timeout: float | None = None) -> list[Seen]:
        """As `Kernel.probe`."""
        if self._over():
            raise Stopped(TIME, self._late)
        if self._kernel is None:
            raise Stopped(DEAD, "not tried: kernels died too often before")
        try:
            return self._kernel.probe(expression, plans, self._left(timeout or self._limits.probe))
        finally:
            self._revive()

    @property
    def _late(self) -> str:
        return f"not run: the notebook's {self._limits.notebook:g} s were over"

    def _over(self) -> bool:
        return time.monotonic() >= self._until

    def _left(self, limit: float) -> float:
        return max(0.1, min(limit, self._until - time.monotonic()))

    def _revive(self) -> None:
        while self._kernel is not None and not self._kernel.alive:
            self.__exit__()
            self._lives -= 1
            if self._lives > 0:
                self._kernel = self._fresh()
                self._again(self._kernel)

    def _again(self, kernel: Kernel) -> None:
        """Run again what ran before; what stops now is left out from now on."""
        for code in list(self._done):
            if self._over() or kernel.run(code, self._left(self._limits.cell)).stop:
                self._done.remove(code)
            if not kernel.alive:
                return
