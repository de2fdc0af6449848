"""A kernel keeps its limits and names them; a session outlives its kernel."""

import time
from pathlib import Path

import pytest

from autograder.kernels import DEAD, TIME, Kernel, Limits, Session, Stopped
from autograder.outputs import CUT, LINES, Outputs
from autograder.wire import ANSWER, Plan

FAST = Limits(cell=2, probe=2, grace=1)
WARM = "import autograder.probe"  # torch takes its time


@pytest.fixture(scope="module")
def kernel():
    with Kernel(limits=FAST) as started:
        started.run(WARM, timeout=60)
        yield started


def texts(ran):
    return [output.get("text") or output.get("evalue") or output.data["text/plain"] for output in ran.outputs]


def call(*args):
    plan = Plan()
    plan.call(ANSWER, *args)
    return plan


def test_outputs_of_a_cell_come_back(kernel):
    ran = kernel.run("import sys\nprint('out')\nprint('err', file=sys.stderr)\n40 + 2")
    assert (texts(ran), ran.stop) == (["out\n", "err\n", "42"], "")


def test_error_is_an_output_and_no_stop(kernel):
    ran = kernel.run("1 / 0")
    assert ran.outputs[0].ename == "ZeroDivisionError" and not ran.stop


def test_endless_loop_is_interrupted_and_named_and_the_kernel_goes_on(kernel):
    kernel.run("kept = 7")
    ran = kernel.run("print('before')\nwhile True: pass")
    assert ran.stop == TIME and texts(ran) == ["before\n", "stopped after 2 s: the time limit of a cell"]
    assert texts(kernel.run("kept")) == ["7"]


def test_endless_printing_is_cut_off(kernel):
    ran = kernel.run("while True: print('x' * 70)")
    assert ran.stop == TIME
    assert len(texts(ran)[0]) < 100 * LINES and texts(ran)[0].endswith(CUT)
    assert texts(kernel.run("'still here'")) == ["'still here'"]


def test_findings_come_back_and_nothing_that_was_printed(kernel):
    kernel.run("def double(x):\n    print('noise')\n    return 2 * x")
    plan = call(21)
    assert kernel.probe("double", [plan])[0].found == {plan.steps[0].out: 42}


def test_missing_object_is_a_finding(kernel):
    plan = call(1)
    found = kernel.probe("nowhere", [plan])[0].found
    assert found["answer"].kind == "NameError"


def test_endless_answer_stops_the_probe_alone(kernel):
    kernel.run("def endless(x):\n    while True: pass")
    with pytest.raises(Stopped) as stop:
        kernel.probe("endless", [call(1)])
    assert stop.value.kind == TIME
    assert texts(kernel.run("1")) == ["1"]


@pytest.mark.parametrize("serve", ["lambda *a: 1 / 0", "lambda *a: b'rubbish'", "lambda *a: 5"])
def test_no_proper_findings_stop_the_probe_with_the_reason(kernel, serve):
    kernel.run(f"import autograder.probe as p\nkept_serve = p.serve\np.serve = {serve}")
    with pytest.raises(Stopped, match="no findings came back") as stop:
        kernel.probe("int", [call(1)])
    assert stop.value.kind == "no reply"
    kernel.run("p.serve = kept_serve")


def test_environment_is_clean(kernel, monkeypatch):
    monkeypatch.setenv("SECRET_OF_MINE", "x")
    with Kernel(limits=FAST) as fresh:
        fresh.run("from os import environ, listdir")
        ran = fresh.run("('SECRET_OF_MINE' in environ, environ['OMP_NUM_THREADS'], listdir())")
    assert texts(ran) == ["(False, '1', [])"]


def test_files_are_copied_and_the_directory_is_gone_afterwards(tmp_path):
    (tmp_path / "data.txt").write_text("seven")
    with Kernel(tmp_path, limits=FAST) as fresh:
        ran = fresh.run("from pathlib import Path\nfile = Path('data.txt')\nprint(file.read_text(), file.absolute())")
        fresh.run("file.write_text('changed')")
    text, copy = texts(ran)[0].split()
    assert text == (tmp_path / "data.txt").read_text() == "seven"
    assert not Path(copy).exists() and not Path(copy).parent.exists()


def test_what_ignores_the_interrupt_is_killed_with_its_children():
    with Kernel(limits=FAST) as fresh:
        child = fresh.run("import subprocess\np = subprocess.Popen(['sleep', '60'])\nprint(p.pid)")
        pid = int(texts(child)[0])
        ran = fresh.run("import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass")
        assert ran.stop == TIME and not fresh.alive
        assert fresh.run("1").stop == DEAD
    for _ in range(50):
        status = Path(f"/proc/{pid}/stat")
        if not status.exists() or status.read_text().split()[2] == "Z":
            break
        time.sleep(0.1)
    else:
        pytest.fail("the child lives on")


def test_after_a_death_everything_runs_again_but_the_killer():
    with Session(limits=Limits(cell=30, probe=20, grace=1)) as session:
        session.run(WARM, timeout=60)
        session.run("import os\nruns = 1")
        assert session.run("runs = 99\nos._exit(1)").stop == DEAD
        assert texts(session.run("runs += 1\nruns")) == ["2"]
        session.run("def deadly(x):\n    os._exit(1)")
        with pytest.raises(Stopped) as stop:
            session.probe("deadly", [call(1)])
        assert stop.value.kind == DEAD
        assert texts(session.run("runs")) == ["2"]


def test_session_gives_up_after_so_many_deaths():
    with Session(limits=FAST, lives=2) as session:
        for _ in range(3):
            assert session.run("import os\nos._exit(1)").stop == DEAD
        with pytest.raises(Stopped, match="too often"):
            session.probe("x", [call(1)])


def message(kind, **content):
    return {"msg_type": kind, "header": {"msg_type": kind}, "content": content}


def gathered(*messages):
    outputs = Outputs()
    for one in messages:
        outputs.take(one)
    return outputs.done({"status": "ok"})


def test_streams_are_joined_and_cleared():
    out = gathered(message("stream", name="stdout", text="a"), message("stream", name="stdout", text="b"),
                   message("clear_output", wait=True), message("stream", name="stdout", text="c"))
    assert [output.text for output in out] == ["c"]


def test_displays_are_updated_by_their_id():
    shown = {"data": {"text/plain": "1"}, "metadata": {}, "transient": {"display_id": "d"}}
    out = gathered(message("display_data", **shown),
                   message("update_display_data", **{**shown, "data": {"text/plain": "2"}}))
    assert out[0].data["text/plain"] == "2" and "display_id" not in out[0]


@pytest.mark.parametrize("content", [{}, {"name": 3}, {"data": None, "metadata": None}, {"text": 4, "name": "stdout"}])
@pytest.mark.parametrize("kind", ["stream", "display_data", "execute_result", "error", "update_display_data"])
def test_malformed_messages_stop_nothing(kind, content):
    gathered(message(kind, **content))


def test_outputs_are_kept_to_a_size():
    many = [message("display_data", data={"text/plain": "x" * 1000}, metadata={}) for _ in range(1000)]
    assert len(gathered(*many)) <= 200
    long = gathered(message("stream", name="stdout", text="line\n" * 5000))
    assert long[0].text.count("\n") <= LINES + 1 and long[0].text.endswith(CUT)
    deep = gathered(message("error", ename="E", evalue="v", traceback=[str(i) for i in range(1000)]))
    assert len(deep[0].traceback) <= 101


def test_time_of_a_whole_notebook_is_bounded():
    limits = Limits(cell=30, probe=30, grace=1, notebook=3)
    with Session(limits=limits) as session:
        start = time.monotonic()
        first = session.run("import time\ntime.sleep(20)")
        assert first.stop == TIME and "the notebook's 3 s were over" in texts(session.run("1"))[0]
        with pytest.raises(Stopped, match="notebook's 3 s were over"):
            session.probe("int", [call(1)])
        assert time.monotonic() - start < 10


def test_flood_of_errors_and_updates_stays_small():
    error = message("error", ename="E" * 10**6, evalue="v" * 10**6, traceback=["t" * 10**6] * 3)
    kept = gathered(*[error] * 100)
    assert len(kept) <= 20 and sum(len(str(output)) for output in kept) < 10_000_000
    shown = {"metadata": {}, "transient": {"display_id": "d"}}
    big = message("update_display_data", data={"text/plain": "x" * 5_000_000}, **shown)
    kept = gathered(message("display_data", data={"text/plain": "1"}, **shown), big, big, big)
    assert len(kept[0].data["text/plain"]) == 5_000_000


def test_what_no_file_can_hold_is_made_so_that_it_can():
    kept = gathered(message("stream", name="stdout", text="a\ud800b"))
    assert kept[0].text == "a?b"


@pytest.mark.parametrize("reply", [
    {}, {"user_expressions": []}, {"user_expressions": {"found": 3}}, {"user_expressions": {"found": {"status": "ok"}}},
    {"user_expressions": {"found": {"status": "ok", "data": {"text/plain": "(" * 10**6}}}},
    {"user_expressions": {"found": {"status": "ok", "data": {"text/plain": "__import__('os')"}}}},
])
def test_replies_of_any_form_hold_no_findings(kernel, reply, monkeypatch):
    monkeypatch.setattr(kernel, "_execute", lambda *args: reply)
    with pytest.raises(Stopped, match="no findings came back"):
        kernel.probe("int", [call(1)])


def test_reply_that_came_in_time_counts_though_we_are_late(kernel):
    """The grader itself may have been held up: that is not the learner's time."""
    outputs = Outputs()
    request = kernel._client.execute("print('done')", store_history=False, allow_stdin=False)
    time.sleep(1)
    reply = kernel._wait(request, time.monotonic() - 0.5, outputs)
    assert reply["status"] == "ok" and outputs.done(reply)[0].text == "done\n"
    assert kernel._wait("nobody", time.monotonic() - 0.5, outputs) is None
