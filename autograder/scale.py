"""The engine for classes that outgrow a machine: dask.distributed carries notebooks to workers, and results back.

A worker is trusted like this process: it holds the judge and the course's secret. Learners' code runs in kernels that
it forks, sandboxed as here. Files travel as bytes; the gradebook's one writer stays where the run was started.
"""

import hashlib
import io
import json
import sys
import tarfile
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import nbformat
from distributed import Client, KilledWorker, LocalCluster, Worker, WorkerPlugin, get_worker
from nbformat import NotebookNode

from autograder import sandbox
from autograder.engine import Here, Lost, local_forge, ours
from autograder.errors import CourseError
from autograder.kernels import Limits
from autograder.results import Marked, Result
from autograder.sandbox import bubble

_PLUGIN = "autograder"
_PATIENCE = 30  # seconds, for a scheduler to answer and for its first worker


@dataclass(frozen=True)
class Job:
    """One notebook on its way to a worker."""

    notebook: bytes
    stubs: Mapping[str, str]
    files: bytes


@dataclass(frozen=True)
class Done:
    """What comes back: plain data."""

    notebook: bytes
    results: list[dict[str, Any]]
    unanswered: list[str]
    peak: int


# ---- on the instructor's side -----------------------------------------------------------------------------------


@contextmanager
def farm(
    *, limits: Limits, secret: str, mode: str = "on", hide: tuple[Path, ...] = (), scheduler: str = "", workers: int = 1
) -> Iterator["Farm"]:
    """The workers of the scheduler at that address; without one, so many new ones on this machine.

    mode: "on", "bwrap" or "off", the sandbox that each worker puts up. CourseError where one can't, or where it would
    give other results than this process: with another version of this package or of what it computes with.
    """
    with ExitStack() as ending:
        client = ending.enter_context(_client(scheduler, workers, ending))
        found = client.run(_account, mode)
        for worker, (stamp, lacks) in sorted(found.items()):
            if stamp != _stamp():
                raise CourseError(f"worker {worker}: has {stamp}, and here is {_stamp()}; install the same on both")
            if lacks:
                raise CourseError(f"worker {worker}: no sandbox ({lacks[0]}); mend that, or say --sandbox off")
        client.register_plugin(_Warm(limits, secret, mode, hide), name=_PLUGIN)
        ending.callback(_dismiss, client)
        yield Farm(client, max(1, sum(client.nthreads().values())))


def _client(scheduler: str, workers: int, ending: ExitStack) -> Client:
    where: Any = scheduler
    if not scheduler:
        cluster = LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None, silence_logs=50)
        where = ending.enter_context(cluster)
    try:
        client = Client(where, timeout=_PATIENCE, set_as_default=False)
        client.wait_for_workers(1, timeout=_PATIENCE)
    except (OSError, ValueError, TimeoutError) as problem:
        cure = "start it with 'dask scheduler', and workers with 'dask worker ADDRESS'"
        raise CourseError(f"{scheduler}: no dask scheduler with workers answers there ({problem}); {cure}") from None
    return client


def _dismiss(client: Client) -> None:
    if client.status == "running":
        client.unregister_worker_plugin(_PLUGIN)


@dataclass(frozen=True)
class Farm:
    """An engine that marks notebooks on the workers of a dask scheduler; `width` of them at a time."""

    client: Client
    width: int

    def mark(self, files: Path, notebook: NotebookNode, stubs: Mapping[str, str]) -> tuple[Marked, int]:
        """As the engine's. Where a worker dies over it, dask takes it to another; `Lost` where the scheduler dies."""
        job = Job(json.dumps(notebook).encode(), dict(stubs), _packed(files))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of the size of what is sent
                future = self.client.submit(_marked, job, pure=False)
            done = future.result()
        except KilledWorker:
            raise RuntimeError("every worker that took it was killed, for want of memory perhaps") from None
        except Exception as problem:
            if isinstance(problem, CancelledError) or self.client.status != "running":
                raise Lost("the dask scheduler is gone; what was graded is saved; run again") from problem
            raise
        results = [Result(**result) for result in done.results]
        return Marked(nbformat.from_dict(json.loads(done.notebook)), results, frozenset(done.unanswered)), done.peak


def _packed(folder: Path) -> bytes:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.is_symlink():
                archive.add(path, path.relative_to(folder).as_posix(), recursive=False)
    return whole.getvalue()


# ---- on a worker ------------------------------------------------------------------------------------------------


class _Warm(WorkerPlugin):
    """The prepared process of a worker, from which all its kernels come; a worker that is started anew has one, too."""

    def __init__(self, limits: Limits, secret: str, mode: str, hide: tuple[Path, ...]):
        self._limits, self._secret, self._mode, self._hide = limits, secret, mode, hide

    def setup(self, worker: Worker) -> None:
        """Start it."""
        hide = [*self._hide, *ours(), Path(worker.local_directory)]
        self._ending = ExitStack()
        warm = local_forge(self._mode, hide)
        self.engine = Here(self._ending.enter_context(warm), self._limits, self._secret)

    def teardown(self, worker: Worker) -> None:
        """End it, and with it every kernel."""
        self._ending.close()


def _marked(job: Job) -> Done:
    """One notebook marked."""
    plugin = get_worker().plugins[_PLUGIN]
    assert isinstance(plugin, _Warm)
    with tempfile.TemporaryDirectory(prefix="job-") as folder:
        with tarfile.open(fileobj=io.BytesIO(job.files)) as archive:
            archive.extractall(folder, filter="data")
        notebook = nbformat.from_dict(json.loads(job.notebook))
        marked, peak = plugin.engine.mark(Path(folder), notebook, job.stubs)
    results = [asdict(result) for result in marked.results]
    return Done(json.dumps(marked.notebook).encode(), results, sorted(marked.unanswered), peak)


def _account(mode: str) -> tuple[str, list[str]]:
    """What a worker is made of, and what it lacks for its sandbox."""
    return _stamp(), {"on": sandbox.missing, "bwrap": bubble.lacks}.get(mode, list)()


def _stamp() -> str:
    """All on which a mark may depend, in a line."""
    whole = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        whole.update(path.read_bytes())
    python = ".".join(map(str, sys.version_info[:2]))
    return f"autograder {whole.hexdigest()[:10]}, Python {python}, numpy {version('numpy')}, torch {version('torch')}"
