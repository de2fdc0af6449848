"""The trainer, solutions/train.py: exact after a resume and a kill, alike on two processes, plain in its errors."""

import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch._inductor.exc import InvalidCxxCompiler

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "solutions"))   # instructors run these as scripts, which do the same

import checkpoint  # noqa: E402
import numberwords  # noqa: E402
import train  # noqa: E402
import trainer  # noqa: E402
import transformer  # noqa: E402

from autograder.errors import CourseError  # noqa: E402

TINY = ["--pairs=200", "--d-model=16", "--heads=2", "--layers=1", "--d-ff=32", "--batch=9", "--log-every=3",
        "--device=cpu", "--no-cool"]
SOFTMAX_IGNORES = "W_k.bias"    # a key bias shifts a row of scores: its gradient is rounding noise, Adam enlarges it
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.fixture(autouse=True)
def one_thread():
    yield
    torch.set_num_threads(1)


def run(folder: Path, name: str, *arguments: str) -> dict:
    """Train in this process; the final checkpoint."""
    assert train.main([*TINY, f"--checkpoint={folder / name}.pt", f"--csv={folder / name}.csv", *arguments]) == 0
    return checkpoint.load(folder / f"{name}.pt")


def rows(path: Path) -> list[list[str]]:
    """A log without its last column, which is time."""
    with path.open(newline="") as file:
        return [row[:-1] for row in csv.reader(file)]


def same(left: object, right: object) -> bool:
    """Whether two checkpoints hold the same, bit for bit."""
    if isinstance(left, torch.Tensor):
        return isinstance(right, torch.Tensor) and torch.equal(left, right)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left if key != "seconds")
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right


def weight_difference(left: dict, right: dict) -> float:
    """The largest difference of two models' weights, key biases aside."""
    return max((left["model"][name] - right["model"][name]).abs().max().item()
               for name in left["model"] if not name.endswith(SOFTMAX_IGNORES))


def losses(path: Path) -> list[float]:
    return [float(row[1]) for row in rows(path)[1:]]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A folder with an uninterrupted run of 12 steps that draws random numbers for dropout."""
    folder = tmp_path_factory.mktemp("whole")
    run(folder, "run", "--steps=12", "--dropout=0.2", "--save-every=5")
    return folder


def test_resumed_run_is_the_uninterrupted_one_bit_for_bit(whole, tmp_path):
    run(tmp_path, "run", "--steps=5", "--dropout=0.2")          # between two rows of the log
    resumed = run(tmp_path, "run", "--steps=12", f"--resume={tmp_path / 'run.pt'}")
    assert same(resumed, checkpoint.load(whole / "run.pt"))
    assert rows(tmp_path / "run.csv") == rows(whole / "run.csv")


@pytest.mark.parametrize("forgotten", ["random", "order", "optimizer", "step", "loss"])
def test_resume_that_forgets_something_is_told_from_the_right_one(whole, tmp_path, monkeypatch, forgotten):
    run(tmp_path, "run", "--steps=5", "--dropout=0.2")
    restore = trainer.Run.restore

    def forgetful(self, state):
        fresh = {"order": self.order.get_state(), "optimizer": self.adam.state_dict(), "step": 4}
        mine = {"random": checkpoint.random_states(self.processes.device), "loss": self.loss}
        everybody = [{**one, **{key: mine[key] for key in mine if key == forgotten}} for one in state["everybody"]]
        restore(self, {**state, **{key: fresh[key] for key in fresh if key == forgotten}, "everybody": everybody})

    monkeypatch.setattr(trainer.Run, "restore", forgetful)
    resumed = run(tmp_path, "run", "--steps=12", f"--resume={tmp_path / 'run.pt'}")
    assert not same(resumed, checkpoint.load(whole / "run.pt")) or rows(tmp_path / "run.csv") != rows(whole / "run.csv")


def test_every_generator_comes_back():
    import random

    import numpy as np

    cpu = torch.device("cpu")
    states = checkpoint.random_states(cpu)
    drawn = random.random(), np.random.rand(), torch.rand(1).item()
    checkpoint.set_random_states(states, cpu)
    assert drawn == (random.random(), np.random.rand(), torch.rand(1).item())


def test_run_that_is_killed_goes_on_exactly(tmp_path):
    killed = subprocess.Popen(
        [sys.executable, ROOT / "solutions" / "train.py", *TINY, "--steps=120", "--dropout=0.2", "--save-every=20",
         f"--csv={tmp_path / 'run.csv'}", f"--checkpoint={tmp_path / 'run.pt'}"],
        env=ENVIRONMENT, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not (tmp_path / "run.pt").is_file() and killed.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    assert 0 < checkpoint.load(tmp_path / "run.pt")["step"] < 120
    resumed = run(tmp_path, "run", f"--resume={tmp_path / 'run.pt'}", "--save-every=20")
    straight = run(tmp_path, "straight", "--steps=120", "--dropout=0.2", "--save-every=60")
    assert same(resumed, straight)
    assert rows(tmp_path / "run.csv") == rows(tmp_path / "straight.csv")


def test_two_processes_are_one_on_the_same_batch(tmp_path):
    one = run(tmp_path, "one", "--steps=6")
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
         ROOT / "solutions" / "train.py", *TINY, "--steps=6", f"--checkpoint={tmp_path / 'two.pt'}",
         f"--csv={tmp_path / 'two.csv'}"], env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("on 2 x cpu") == 1
    two = checkpoint.load(tmp_path / "two.pt")
    assert len(two["everybody"]) == 2
    print(f"two processes and one differ by {weight_difference(one, two):.1e} in a weight")
    assert weight_difference(one, two) < 2e-6
    assert losses(tmp_path / "one.csv") == pytest.approx(losses(tmp_path / "two.csv"), rel=1e-6)


def test_shares_of_the_batch_hold_unequal_numbers_of_labels():
    """Or the test above would not tell a mean of means from the mean."""
    words = numberwords.chapter()
    data = numberwords.task(words, "german", pairs=200)
    options, counts = trainer.Options(pairs=200, batch=9, d_model=16, heads=2, layers=1, d_ff=32), []
    for rank in range(2):
        one = trainer.Run(options, words, data, trainer.Processes(rank, 2, torch.device("cpu")))
        (_, tgt), labels = one.batch()
        counts.append(int((tgt[:, 1:] != words.PAD).sum()))
    assert sum(counts) == labels and counts[0] != counts[1]


@pytest.mark.parametrize("parts", [2, 9, 50])
def test_parts_together_are_the_whole_batch(tmp_path, parts):
    one = run(tmp_path, "one", "--steps=6")
    cut = run(tmp_path, "cut", "--steps=6", f"--accumulate={parts}")
    assert weight_difference(one, cut) < 2e-6
    assert losses(tmp_path / "one.csv") == pytest.approx(losses(tmp_path / "cut.csv"), rel=1e-6)


def test_mean_of_the_parts_means_is_told_from_the_mean(tmp_path, monkeypatch):
    right = transformer.add_gradients
    one = run(tmp_path, "one", "--steps=6")

    def mean_of_means(model, batch, tokens, *, parts, **more):
        halves = list(zip(*(ids.tensor_split(2) for ids in batch)))
        return sum(right(model, half, 2 * int((half[1][:, 1:] != 0).sum()), **more) for half in halves)

    monkeypatch.setattr(transformer, "add_gradients", mean_of_means)
    assert weight_difference(one, run(tmp_path, "cut", "--steps=6", "--accumulate=2")) > 2e-5


def test_bfloat16_trains_alike_and_is_not_the_same(tmp_path):
    run(tmp_path, "full", "--steps=30")
    half = run(tmp_path, "half", "--steps=30", "--amp")
    full_losses, half_losses = losses(tmp_path / "full.csv"), losses(tmp_path / "half.csv")
    assert full_losses != half_losses and full_losses == pytest.approx(half_losses, rel=0.02)
    assert {weight.dtype for weight in half["model"].values()} == {torch.float32}


def test_compiled_model_trains_the_same_on_one_shape(tmp_path, monkeypatch):
    shapes, compile_ = set(), torch.compile

    def watched(net):
        net.register_forward_pre_hook(lambda module, ids: shapes.add(tuple(one.shape for one in ids)))
        return compile_(net, backend="eager")                           # traced like any other; not built by a compiler

    plain = run(tmp_path, "plain", "--steps=6")
    monkeypatch.setattr(torch, "compile", watched)
    monkeypatch.setattr(train, "report", lambda run: None)              # which decodes, in other shapes
    compiled = run(tmp_path, "compiled", "--steps=6", "--compile")
    assert len(shapes) == 1 and weight_difference(plain, compiled) < 2e-6


def test_without_a_compiler_compile_is_one_line_that_says_so(monkeypatch, capsys):
    compile_ = torch.compile

    def build(graph, inputs):
        raise InvalidCxxCompiler

    monkeypatch.setattr(torch, "compile", lambda net: compile_(net, backend=build))
    torch._dynamo.reset()
    assert train.main([*TINY, "--steps=1", "--compile"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: torch can't compile the model here (") and said.count("\n") == 1
    assert "No working C++ compiler" in said and "leave --compile out" in said


def chapter_cell(text: str) -> dict:
    """The names after running the chapter's code cell that holds this text."""
    cells = numberwords.source.load(numberwords.Project.find(ROOT), numberwords.CHAPTER).cells
    names = {**vars(transformer), **vars(numberwords.chapter())}
    exec(next(cell.source for cell in cells if text in cell.source and cell.cell_type == "code"), names)
    return names


def test_defaults_train_as_the_chapter_does():
    words = numberwords.chapter()
    data = numberwords.task(words, "german", pairs=500)
    one = trainer.Run(trainer.Options(pairs=500, log_every=1, steps=6, warmup=3), words, data,
                      trainer.Processes(0, 1, torch.device("cpu")))
    ours = [one.advance()["loss"] for _ in range(6)]
    torch.manual_seed(0)
    net = transformer.Transformer(len(data.source_ids), len(data.target_ids), 64, 4, 2, 256, 0.0, 0, 32, "pre")
    theirs = []
    chapter_cell("def learn(")["learn"](net, data.train, 6, warmup=3, watch=lambda step, loss: theirs.append(loss))
    assert ours == pytest.approx(theirs, rel=1e-5)


def test_log_has_one_whole_row_an_interval(whole):
    with (whole / "run.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert list(table[0]) == list(train.COLUMNS) and [row["step"] for row in table] == ["3", "6", "9", "12"]
    assert all(float(value) > 0 for row in table for value in row.values())


def test_torn_row_and_rows_of_steps_to_come_leave_the_log_on_resume(tmp_path):
    path = tmp_path / "run.csv"
    path.write_text("step,loss,rate,gradient_norm,labels,seconds\n3,4.0,1,1,9,1\n6,3.0,1,1,9,1\n9,2.")
    train.Log(path, 3).add(dict.fromkeys(train.COLUMNS, 6))
    assert path.read_text().splitlines()[1:] == ["3,4.0,1,1,9,1", "6,6,6,6,6,6"]


def test_writing_that_fails_leaves_the_previous_checkpoint(tmp_path):
    checkpoint.save(tmp_path / "run.pt", {"step": 1})

    def disk_full(file):
        file.write(b"half of it")
        raise OSError(28, "No space left on device")

    with pytest.raises(CourseError, match=r"run.pt: cannot be written \(No space left on device\)"):
        checkpoint.write_whole(tmp_path / "run.pt", disk_full)
    assert checkpoint.load(tmp_path / "run.pt")["step"] == 1 and len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(("arguments", "message"), [
    (["--resume=none.pt"], "none.pt: there is no checkpoint; name one"),
    (["--resume=garbage.pt"], "garbage.pt: is damaged or no checkpoint"),
    (["--resume=other.pt"], "other.pt: is no checkpoint of this trainer"),
    (["--resume=run.pt", "--batch=7", "--seed=1"], "you gave --batch 7 (it has 9), --seed 1 (it has 0); leave it out"),
    (["--resume=cooled.pt", "--steps=13"], "you gave --steps 13 (it has 12); leave it out"),
    (["--device=cuda"], "--device cuda: this machine or this build of torch has none"),
    (["--heads=3"], "--d-model 64: must be even and a multiple of --heads 3"),
    (["--steps=-1"], "--steps must be 0 or more"),
    (["--pairs=30000"], "--pairs 30000: there are 25000"),
    (["--warmup=0"], "--warmup 0: must be above 0"),
    (["--csv=nowhere/run.csv"], "nowhere/run.csv: its folder is not there"),
])
def test_error_is_one_line_that_says_what_to_do(whole, tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    if message.startswith("--device cuda") and torch.cuda.is_available():
        pytest.skip("a machine with CUDA has no such error")
    (tmp_path / "run.pt").write_bytes((whole / "run.pt").read_bytes())
    (tmp_path / "garbage.pt").write_bytes((whole / "run.pt").read_bytes()[:5000])
    torch.save({"model": {}}, tmp_path / "other.pt")
    state = checkpoint.load(whole / "run.pt")
    checkpoint.save(tmp_path / "cooled.pt", {**state, "options": {**state["options"], "cool": True}})
    assert train.main(arguments) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: ") and message in said and said.count("\n") == 1


def test_checkpoint_that_would_run_code_is_refused(tmp_path):
    class Runs:
        def __reduce__(self):
            return (os.system, ("touch ran",))

    torch.save({"format": checkpoint.FORMAT, "model": Runs()}, tmp_path / "run.pt")
    with pytest.raises(CourseError, match="is damaged or no checkpoint"):
        checkpoint.load(tmp_path / "run.pt")


def test_other_number_of_processes_is_refused_on_resume(whole):
    words = numberwords.chapter()
    state = checkpoint.load(whole / "run.pt")
    run_ = trainer.Run(trainer.Options(**state["options"]), words, numberwords.task(words, "german", pairs=200),
                       trainer.Processes(0, 1, torch.device("cpu")))
    with pytest.raises(CourseError, match="the checkpoint is of 2 processes, these are 1; start as many"):
        run_.restore({**state, "everybody": state["everybody"] * 2})


def test_help_names_every_option(capsys):
    with pytest.raises(SystemExit) as ended:
        train.main(["--help"])
    said = capsys.readouterr().out
    assert ended.value.code == 0
    assert all(f"--{one.replace('_', '-')}" in said for one in trainer.Options.__dataclass_fields__)


def test_splits_are_the_chapters():
    words = numberwords.chapter()
    names = chapter_cell("train_pairs =")
    ours = numberwords.task(words, "german")
    theirs = [names[f"{name}_pairs"] for name in ("train", "test", "group", "never")]
    assert all(torch.equal(a, b) for left, right in zip([ours.train, *ours.tests.values()], theirs)
               for a, b in zip(left, right))
