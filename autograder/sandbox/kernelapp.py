"""The IPython kernel, less what a sandboxed one can't have or doesn't need."""

from __future__ import annotations

from typing import Any

import zmq
from ipykernel.iostream import IOPubThread
from ipykernel.kernelapp import IPKernelApp


class QuietKernelApp(IPKernelApp):
    """No heartbeat, no watch on the parent, and no TCP socket for the output of subprocesses.

    With that socket refused, by the network namespace or by seccomp, libzmq aborts the process.
    """

    def init_iopub(self, context: zmq.Context[Any]) -> None:
        self.iopub_socket = context.socket(zmq.XPUB)
        self.iopub_socket.linger = 1000
        self.iopub_port = self._bind_socket(self.iopub_socket, self.iopub_port)
        self.configure_tornado_logger()
        self.iopub_thread = IOPubThread(self.iopub_socket, pipe=False, session=self.session)
        self.iopub_thread.start()
        self.iopub_socket = self.iopub_thread.background_socket

    def init_heartbeat(self) -> None:
        self.heartbeat = None

    def init_poller(self) -> None:
        self.poller = None
