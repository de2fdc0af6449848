"""A real browser for the tests: a Chromium that cannot reach the network, and a server for a folder of pages."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from autograder import doctor

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # Any host but this machine is unknown: a page that needs the network shows it by failing.
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1 , EXCLUDE localhost",
]


def chromium() -> str:
    """Path of a Chromium, or a test failure that says how to get one."""
    found = doctor.chromium()
    if not found:
        pytest.fail("no Chromium on this machine; `make test` installs one, or set CHROMIUM to its path", pytrace=False)
    return str(found)


@contextmanager
def browser() -> Iterator[Browser]:
    """A headless Chromium with an empty profile of its own, closed at the end."""
    with sync_playwright() as play:
        started = play.chromium.launch(executable_path=chromium(), args=FLAGS)
        try:
            yield started
        finally:
            started.close()


class Quiet(SimpleHTTPRequestHandler):
    """Serves files and keeps no log."""

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    """The address at which `folder` is served on this machine until the block ends."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
