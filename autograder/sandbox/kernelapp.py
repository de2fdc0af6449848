"""The IPython kernel, less what a sandboxed one can't have or doesn't need."""

from __future__ import annotations

import codecs
import functools
import inspect
import logging
import os
import socket
import subprocess
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import zmq
from ipykernel import compiler, ipkernel, zmqshell
from ipykernel.iostream import IOPubThread, OutStream
from ipykernel.kernelapp import IPKernelApp
from traitlets.config import Config


def listen(connection: dict[str, Any]) -> dict[int, int]:
    """The sockets of a connection over ipc, bound: {port: file descriptor}."""
    found = {}
    for name in ("shell", "iopub", "stdin", "control"):
        port = connection[f"{name}_port"]
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as bound:
            bound.bind(f"{connection['ip']}-{port}")
            bound.listen(8)
            found[port] = bound.detach()
    return found


def system(cmd: str) -> int:
    """Run the command of a line that begins with `!`, showing what it says; its exit status.

    IPython's own opens a terminal for it. A sandbox has none, and a learner's cell ended at `!pip install`.
    """
    pipe, text = subprocess.PIPE, codecs.getincrementaldecoder("utf-8")("replace")
    with subprocess.Popen(cmd, shell=True, stdin=subprocess.DEVNULL, stdout=pipe, stderr=subprocess.STDOUT) as run:
        try:
            while run.stdout is not None and (said := os.read(run.stdout.fileno(), 1 << 16)):
                print(text.decode(said), end="", flush=True)
        except BaseException:
            run.kill()
            raise
    return run.returncode


class Stream(OutStream):
    """Waits for the thread that sends only where there is something to send: each cell flushes four times."""

    def flush(self) -> None:
        with self._buffer_lock:
            waiting = any(buffer.tell() for buffer in self._buffers.values())
        if waiting:
            super().flush()


def find_cells_first() -> None:
    """What inspect looks for in every module's file, five times a traceback, it finds at once where it is a cell's."""
    place, look_for = compiler.get_tmp_directory() + os.sep, inspect.getmodule

    def getmodule(object: Any, _filename: str | None = None) -> ModuleType | None:
        code = getattr(getattr(object, "tb_frame", object), "f_code", object)
        name = _filename or getattr(code, "co_filename", "")
        own = isinstance(name, str) and name.startswith(place) and not callable(object)
        return sys.modules.get("__main__") if own else look_for(object, _filename)

    inspect.getmodule = getmodule


def look_only_once(kernel: Any) -> None:
    """To see whether a cell waits for something, it is transformed and compiled twice more: not without such a word."""
    shell, execute, skipped = kernel.shell, kernel.do_execute, list[str]()
    compiled, transform = shell.should_run_async, shell.transform_cell

    def waits(*texts: str | None) -> bool:
        return any(word in text for text in texts if text for word in ("await", "async"))

    @functools.wraps(execute)
    async def do_execute(code: str, *args: Any, **more: Any) -> Any:
        skipped[:] = [] if waits(code) else [code]
        return await execute(code, *args, **more)

    def transform_cell(raw_cell: str) -> str:
        return skipped.pop() if skipped else transform(raw_cell)  # the first time it is only to see whether it waits

    def should_run_async(raw_cell: str, *, transformed_cell: str | None = None, **more: Any) -> bool:
        return waits(raw_cell, transformed_cell) and compiled(raw_cell, transformed_cell=transformed_cell, **more)

    kernel.do_execute, shell.transform_cell, shell.should_run_async = do_execute, transform_cell, should_run_async


class QuietKernelApp(IPKernelApp):
    """No heartbeat, no watch on the parent, and no TCP socket for the output of subprocesses.

    With that socket refused, by the network namespace or by seccomp, libzmq aborts the process. The sockets that
    the grader talks to were bound before the walls went up (`listen`): from inside, their directory is not seen.
    """

    listening: dict[int, int] = {}  # port: file descriptor
    modules: frozenset[str] = frozenset()  # before the fork: to touch a thousand names copies as many pages
    outstream_class = f"{__name__}.Stream"

    def parse_command_line(self, argv: Any = None) -> None:
        """There is none: to parse nothing costs as much as the shell. What would stand there is said here."""
        self.update_config(Config(HistoryManager={"hist_file": ":memory:"}))

    def _configure_logging(self) -> None:
        """To the log, and no more: a whole configuration goes through every logger of every library."""
        logging.getLogger(type(self).__name__).addHandler(logging.StreamHandler(sys.__stderr__))
        self._logging_configured = True

    def init_code(self) -> None:
        """There is none to run; the names of modules, which `%reset -f aggressive` leaves alone, are noted already."""
        if self.shell is not None:
            self.shell.user_ns_hidden.update(self.shell.user_ns)  # from %who
            self.shell._sys_modules_keys = self.modules or frozenset(sys.modules)

    def _bind_socket(self, s: zmq.Socket[Any], port: int) -> int:
        s.setsockopt(zmq.USE_FD, self.listening[port])
        s.bind(f"ipc://{self.ip}-{port}")
        return port

    def init_iopub(self, context: zmq.Context[Any]) -> None:
        self.iopub_socket = context.socket(zmq.XPUB)
        self.iopub_socket.linger = 1000
        self.iopub_port = self._bind_socket(self.iopub_socket, self.iopub_port)
        self.configure_tornado_logger()
        self.iopub_thread = IOPubThread(self.iopub_socket, pipe=False, session=self.session)
        self.iopub_thread.start()
        self.iopub_socket = self.iopub_thread.background_socket

    def init_kernel(self) -> None:
        """The kernel notes every module's file for a debugger that it hasn't: to touch them all copies 4000 pages."""
        ipkernel.sys = SimpleNamespace(**{**vars(sys), "modules": {}})  # type: ignore[assignment]
        try:
            super().init_kernel()
        finally:
            ipkernel.sys = sys
        self.kernel._publish_execute_input = lambda *_: None  # the one who sent a cell knows it
        look_only_once(self.kernel)

    def init_shell(self) -> None:
        """IPython formats each traceback twice, for the cell and for a history that ends with the kernel: not that."""
        zmqshell.system = system
        find_cells_first()
        super().init_shell()
        if self.shell is not None:
            self.shell._format_exception_for_storage = lambda error, *_, **__: {"ename": type(error).__name__}

    def init_heartbeat(self) -> None:
        self.heartbeat = None

    def init_poller(self) -> None:
        self.poller = None
