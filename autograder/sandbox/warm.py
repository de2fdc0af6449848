"""Warm kernels: a Jupyter kernel provisioner whose kernels are forks of one prepared process, in a sandbox or not."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpec
from jupyter_client.provisioning import KernelProvisionerBase, KernelProvisionerFactory
from traitlets import Unicode

from autograder.errors import CourseError
from autograder.sandbox.bubble import Bubble
from autograder.sandbox.policy import Policy
from autograder.sandbox.walls import HOME, WORK

MESSAGE = 1 << 16
_ENTRY = "autograder-fork"


class Zygote:
    """The prepared process. One serves any number of threads; it ends with the context or with this process."""

    def __init__(self, environment: dict[str, str], *, patience: float = 120, place: Path | None = None):
        self._environment, self._patience, self._place = environment, patience, place
        self._lock = threading.Lock()

    def __enter__(self) -> Zygote:
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._folder = tempfile.TemporaryDirectory(prefix="zygote-", dir=self._place)
        self._log = Path(self._folder.name) / "log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "autograder.sandbox.zygote", str(theirs.fileno())],
                pass_fds=[theirs.fileno()], env=self._environment, cwd=self._folder.name, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log,
            )  # fmt: skip
        theirs.close()
        self._channel = ours
        ours.settimeout(self._patience)
        answer = self._answer()[0]
        if not answer.get("ready"):
            reason = answer.get("error") or answer.get("ended")
            self._end()
            raise CourseError(f"the process that kernels are forked from did not start: {reason}")

    def _end(self) -> None:
        self._channel.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()

    def fork(self, request: dict[str, Any]) -> tuple[int, int]:
        """A new kernel: its pid and a pidfd. OSError where the sandbox can't be put up.

        Where the prepared process has ended (the system killed it for memory, say) another takes its place.
        """
        message = json.dumps(request).encode()
        with self._lock:
            answer, handles = self._asked(message)
            if "ended" in answer:
                self._end()
                try:
                    self._start()
                except CourseError as problem:
                    raise OSError(str(problem)) from None
                answer, handles = self._asked(message)
        if "pid" not in answer:
            raise OSError(answer.get("error") or answer["ended"])
        return answer["pid"], handles[0]

    def _asked(self, message: bytes) -> tuple[dict[str, Any], list[int]]:
        with contextlib.suppress(OSError):  # it has ended: so says the answer
            self._channel.send(message)
        return self._answer()

    def _answer(self) -> tuple[dict[str, Any], list[int]]:
        """What it says; {"ended": its last line} where it says nothing more."""
        try:
            message, handles, _, _ = socket.recv_fds(self._channel, MESSAGE, 1)
        except OSError:
            self._process.kill()  # its answer, come late, would be taken for another kernel's
            message, handles = b"", []
        if not message:
            lines = self._log.read_text(errors="replace").strip().splitlines() if self._log.is_file() else []
            return {"ended": lines[-1] if lines else "it said nothing"}, []
        return json.loads(message), handles


@dataclass(frozen=True)
class Ticket:
    """Where a kernel is to come from, its sandbox or None, and the folder of its sockets and log."""

    zygote: Zygote | Bubble
    policy: Policy | None
    home: Path


_tickets: dict[str, Ticket] = {}


@contextlib.contextmanager
def kernel_spec(ticket: Ticket) -> Iterator[KernelSpec]:
    """A kernel spec that makes Jupyter launch this kernel through `ForkProvisioner`, a registered provisioner."""
    # Also where the entry point is not found: a checkout's old metadata, first on the path, hides the installed one.
    KernelProvisionerFactory.instance().provisioners.setdefault(
        _ENTRY, EntryPoint(_ENTRY, f"{__name__}:ForkProvisioner", KernelProvisionerFactory.GROUP_NAME)
    )
    name = f"{id(ticket)}"
    _tickets[name] = ticket
    try:
        provisioner = {"provisioner_name": _ENTRY, "config": {"ticket": name}}
        yield KernelSpec(argv=["forked"], display_name="Python", language="python",
                         metadata={"kernel_provisioner": provisioner})  # fmt: skip
    finally:
        del _tickets[name]


class ForkProvisioner(KernelProvisionerBase):
    """Launches a kernel by asking a `Zygote` to fork. Registered as "autograder-fork" in pyproject.toml."""

    ticket = Unicode(config=True)

    _handle: int | None = None
    pid: int | None = None

    @property
    def has_process(self) -> bool:
        return self._handle is not None

    async def poll(self) -> int | None:
        """None while the kernel lives."""
        return None if self._handle is not None and not _ended(self._handle) else 0

    async def wait(self) -> int | None:
        """Until the kernel has ended."""
        while await self.poll() is None:
            await asyncio.sleep(0.005)
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
        return 0

    async def send_signal(self, signum: int) -> None:
        """To the kernel's process; with SIGKILL all others of its pid namespace die too."""
        if self._handle is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signum)

    async def kill(self, restart: bool = False) -> None:
        """End the kernel at once."""
        await self.send_signal(signal.SIGKILL)

    async def terminate(self, restart: bool = False) -> None:
        """End the kernel at once: a notebook's process has nothing to put in order."""
        await self.send_signal(signal.SIGKILL)

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> Any:
        """Fork; the kernel binds the sockets that the manager has chosen."""
        connection: dict[str, Any] = dict(self.connection_info)
        ticket = _tickets[self.ticket]
        inside = ticket.policy is not None
        request = {
            "connection": {
                **{name: connection[name] for name in connection if name.endswith("_port")},
                "transport": connection["transport"],
                "ip": connection["ip"],
                "key": bytes(connection["key"]).decode(),
                "signature_scheme": connection["signature_scheme"],
            },
            "policy": ticket.policy.plain() if ticket.policy is not None else None,
            "cwd": WORK if inside else kwargs["cwd"],
            "environment": _placed(kwargs["env"], HOME) if inside else kwargs["env"],
            "log": str(ticket.home / "log"),
        }
        self.pid, self._handle = ticket.zygote.fork(request)
        return connection

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Choose the connection, as the local provisioner does."""
        manager: Any = self.parent
        manager.write_connection_file()
        self.connection_info = manager.get_connection_info()
        return {**kwargs, "cmd": []}

    async def cleanup(self, restart: bool = False) -> None:
        """Nothing to hand back: the sockets are files in the kernel's own directory."""


def _placed(environment: dict[str, str], home: str) -> dict[str, str]:
    names = ("HOME", "TMPDIR", "IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "MPLCONFIGDIR")
    return {**environment, **dict.fromkeys(names, home)}


def _ended(handle: int) -> bool:
    return bool(select.select([handle], [], [], 0)[0])
