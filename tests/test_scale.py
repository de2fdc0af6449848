"""Workers of a dask scheduler give what this process gives, and lose nothing when one of them is killed."""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from classroom import (
    SOLVED,
    answer,
    answered,
    asserts,
    environment,
    hand_in,
    make_course,
    marks,
    plain_source,
    released,
)

from autograder import scale
from autograder.course import Course
from autograder.errors import CourseError
from autograder.grade import grade
from autograder.kernels import Limits
from autograder.ledger import secret_of, state

RIGHT = "def softmax_jacobian(p):\n    return torch.diag(p) - torch.outer(p, p)"
WRONG = "def softmax_jacobian(p):\n    return torch.outer(p, p)"
CHECK = "from autograder.checks import check; check('softmax_jacobian', softmax_jacobian)"
SLOW = "import time\ntime.sleep(2)\ndef double(x):\n    return x * int(open('two.txt').read())"
CLASS = {
    "right": {**SOLVED, "softmax_jacobian": RIGHT}, "blank": {}, "wrong": {"softmax_jacobian": WRONG},
    **{f"slow-{number}": {**SOLVED, "double": SLOW, "softmax_jacobian": RIGHT} for number in range(3)},
}


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """Plain asserts, a check and a file beside the notebook."""
    source = plain_source()
    source.cells.insert(1, answer("softmax_jacobian", "import torch\ndef softmax_jacobian(p):\n    ### BEGIN SOLUTION\n"
                                  "    return torch.diag(p) - torch.outer(p, p)\n    ### END SOLUTION"))
    hidden = f"### BEGIN HIDDEN TESTS\n{CHECK}\n### END HIDDEN TESTS"
    source.cells.insert(2, asserts("jacobian-tests", hidden, 1))
    made = make_course(tmp_path_factory.mktemp("scale") / "course", numbers=source)
    nb = released(made)
    for student, answers in CLASS.items():
        texts = {name: f"import torch\n{text}" if "jacobian" in name else text for name, text in answers.items()}
        path = hand_in(made, student, answered(nb, texts))
        (path.parent / "two.txt").write_text("2")
        (path.parent / "timestamp.txt").write_text("2026-01-10 12:00:00 UTC")
    secret_of(made)  # the copies share it, and with it the cases of the check
    return made


@pytest.fixture(scope="module")
def local(course):
    """What this process makes of it."""
    here = copied(course, "local")
    return grade(here, jobs=2), marks(here)


def copied(course, name):
    return Course(shutil.copytree(course.root, course.root.with_name(name)))


def program(*words, folder):
    """A long-running command of this environment, its output in a file."""
    with (folder / f"{words[1]}.log").open("ab") as log:
        return subprocess.Popen([Path(sys.executable).parent / words[0], *words[1:]], cwd=folder, stdout=log,
                                stderr=log, stdin=subprocess.DEVNULL, env=environment())


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A scheduler and two workers, as the guide starts them: the address, the scheduler, the workers."""
    folder = tmp_path_factory.mktemp("dask")
    file = folder / "scheduler.json"
    scheduler = program("dask", "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard",
                        "--scheduler-file", file, folder=folder)
    until = time.monotonic() + 120
    while not (file.is_file() and file.read_text().endswith("}")) and time.monotonic() < until:
        time.sleep(0.1)
    address = json.loads(file.read_text())["address"]
    workers = [program("dask", "worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard", folder=folder)
               for _ in range(2)]
    yield address, scheduler, workers
    for process in (*workers, scheduler):
        process.kill()
        process.wait()


def test_a_local_cluster_gives_the_same_records_and_marks(course, local):
    there = copied(course, "cluster")
    assert (grade(there, jobs=1, cluster=True), marks(there)) == local
    lines = [json.loads(line) for line in (state(there) / "log.jsonl").read_text().splitlines()]
    assert {line["sandbox"] for line in lines} == {"on"} and all(line["memory_mb"] for line in lines)


def test_workers_started_by_command_line_give_the_same_though_one_is_killed_in_mid_run(course, local, cluster):
    address, _, workers = cluster
    there, told = copied(course, "killed"), []

    def watch(done, total, outcome):
        told.append(outcome)
        if done == 1:
            workers[0].send_signal(signal.SIGKILL)

    assert (grade(there, scheduler=address, watch=watch), marks(there)) == local
    assert workers[0].wait(10) == -signal.SIGKILL
    assert not any(outcome.refused for outcome in told if outcome)


def test_without_its_scheduler_a_run_ends_and_a_rerun_completes_it(course, local, cluster):
    address, scheduler, _ = cluster
    there = copied(course, "lost")

    def watch(done, total, outcome):
        if done == 1:
            scheduler.send_signal(signal.SIGKILL)

    with pytest.raises(CourseError, match="the dask scheduler is gone"):
        grade(there, scheduler=address, watch=watch)
    assert 0 < len({student for student, _ in marks(there)}) < len(CLASS)
    assert (grade(there, jobs=2), marks(there)) == local


def test_an_address_where_nobody_answers_is_said(course, monkeypatch):
    monkeypatch.setattr(scale, "_PATIENCE", 2)
    with pytest.raises(CourseError, match="tcp://127.0.0.1:9: no dask scheduler .* 'dask scheduler'"):
        grade(course, scheduler="tcp://127.0.0.1:9")


@pytest.mark.parametrize(("account", "said"), [
    (("autograder 0000, Python 3", []), "has autograder 0000, Python 3, and here is autograder"),
    ((None, ["landlock: none here"]), r"no sandbox \(landlock: none here\)"),
])
def test_a_worker_that_would_give_other_results_is_refused(monkeypatch, account, said):
    class Client:
        def run(self, function, mode):
            return {"tcp://w:1": (account[0] or scale._stamp(), account[1])}

    class Opened:
        def __enter__(self):
            return Client()

        def __exit__(self, *_):
            return None

    monkeypatch.setattr(scale, "_client", lambda *_: Opened())
    with pytest.raises(CourseError, match=f"worker tcp://w:1: {said}"), scale.farm(limits=Limits(), secret="s"):
        pass


def test_without_dask_it_is_said_how_to_get_it(course, monkeypatch):
    monkeypatch.setitem(sys.modules, "autograder.scale", None)
    with pytest.raises(CourseError, match=r"pip install '.\[scale\]'"):
        grade(course, cluster=True)


