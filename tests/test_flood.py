"""A message may have any number of parts, and each takes memory of the grader's: a kernel that sends so is ended."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from autograder import flood, outputs
from autograder.kernels import DEAD, TIME, Kernel, Limits, forge
from autograder.sandbox import missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"no sandbox here: {missing()}")
LIMITS = Limits(cell=20, grace=1)
# Frames of ZeroMQ's protocol, one byte each, every one with more to come, down all of the kernel's connections.
FLOOD = """
import os, socket, stat, threading
def pour(copy):
    while True:
        copy.sendall(b"\\x01\\x01x" * 20_000)
for name in os.listdir("/proc/self/fd"):
    try:
        if stat.S_ISSOCK(os.stat(f"/proc/self/fd/{name}").st_mode):
            copy = socket.socket(fileno=os.dup(int(name)))
            copy.getpeername()
            copy.setblocking(True)
            threading.Thread(target=pour, args=[copy], daemon=True).start()
    except OSError:
        pass
import time
time.sleep(60)
"""


@pytest.fixture
def soon(monkeypatch):
    """After less growth than a class of learners would notice."""
    monkeypatch.setattr(flood, "_GROWTH", 48 << 20)


def test_kernel_that_floods_is_ended_and_its_neighbour_goes_on(soon):
    with (
        forge(sandboxed=True) as warm, ThreadPoolExecutor() as threads,
        Kernel(limits=LIMITS, warm=warm) as one, Kernel(limits=LIMITS, warm=warm) as two,
    ):
        honest = threads.submit(two.run, "import time\nfor _ in range(40):\n    time.sleep(0.1)\n6 * 7")
        hostile = one.run(FLOOD)
        assert hostile.stop == DEAD and "flooded" in hostile.outputs[-1].evalue
        assert not honest.result().stop and honest.result().outputs[-1].data["text/plain"] == "42"


def test_unwatched_a_flood_goes_on_to_the_time_limit(monkeypatch):
    monkeypatch.setattr(flood.Watch, "floods", lambda watch: False)
    before = flood.resident()
    with forge(sandboxed=True) as warm, Kernel(limits=Limits(cell=6, grace=0.5), warm=warm) as kernel:
        assert kernel.run(FLOOD).stop == TIME and flood.resident() - before > 48 << 20


def test_memory_that_the_grader_itself_takes_is_nobodys_flood(soon):
    with forge(sandboxed=True) as warm, Kernel(limits=LIMITS, warm=warm) as kernel, ThreadPoolExecutor() as threads:
        running = threads.submit(kernel.run, "import time\ntime.sleep(3)\n6 * 7")
        taken = bytearray(b"x") * (100 << 20)
        assert not running.result().stop and len(taken) > 48 << 20


def test_a_display_larger_than_all_that_is_kept_is_not_looked_into(monkeypatch):
    looked = []
    monkeypatch.setattr(outputs, "writable", lambda value: looked.append(value) or value)
    taken = outputs.Outputs()
    for values in ([[]] * (outputs.DATA // 3), [1]):
        content = {"data": {"application/json": values}, "metadata": {}}
        taken.take({"msg_type": "display_data", "header": {"msg_type": "display_data"}, "content": content})
    assert [len(content["data"]["application/json"]) for content in looked] == [1]
    assert taken.done({}) == []  # as before: what comes behind it is left out, too
