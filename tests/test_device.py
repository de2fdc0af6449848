"""The reference model and the trainer keep to the model's device and wait for it a stated number of times."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from elsewhere import StaysOnDevice, elsewhere

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "solutions"), str(ROOT / "tools")]   # instructors run these as scripts, which do the same

import numberwords  # noqa: E402
import trainer  # noqa: E402
from planted_bugs import model_file  # noqa: E402

from autograder.course import Project  # noqa: E402

LENGTH, PARTS = 3, 3
# How often a program may wait for the device: once a step to see whether all rows have ended, once to hand out a loss;
# beam search keeps its hypotheses as Python lists, and reads the best tokens and their gains.
READS = {"forward and backward": 0, "train_step": 1, "greedy_decode": LENGTH, "cached_greedy_decode": LENGTH,
         "beam_search": 2 * LENGTH}


def module(*edits: tuple[str, str]) -> SimpleNamespace:
    """The names of solutions/transformer.py with these edits."""
    return model_file(Project.find(ROOT), list(edits))


def stepped(net: torch.nn.Module) -> tuple[torch.optim.Optimizer, list[torch.Tensor]]:
    """An optimizer that has made its state, and its step counters, which live on the CPU by torch's design."""
    adam = torch.optim.AdamW(net.parameters())
    for parameter in net.parameters():
        parameter.grad = torch.zeros_like(parameter)
    adam.step()
    return adam, [state["step"] for state in adam.state.values()]


def programs(m: SimpleNamespace, norm: str) -> dict[str, Any]:
    """What is watched, by name; all of it on the meta device."""
    net = m.Transformer(30, 32, 16, 2, 1, 32, norm=norm).to("meta")
    src, tgt = (torch.zeros(4, n, dtype=torch.long, device="meta") for n in (5, 6))
    adam, counters = stepped(net)

    def forward_and_backward() -> None:
        given, labels = m.shift_targets(tgt)
        m.label_smoothed_loss(net(src, given), labels, 0).backward()

    return {"counters": counters, "forward and backward": forward_and_backward,
            "train_step": lambda: m.train_step(net, (src, tgt), adam, pad_id=0, accumulate=PARTS),
            "greedy_decode": lambda: m.greedy_decode(net, src, 1, 2, LENGTH),
            "cached_greedy_decode": lambda: m.cached_greedy_decode(net, src, 1, 2, LENGTH),
            "beam_search": lambda: m.beam_search(net, src[:1], 1, 2, LENGTH)}


def reads(m: SimpleNamespace, norm: str) -> dict[str, int]:
    """How often each program waits for the device; AssertionError where it leaves the device, or waits too often."""
    watched, counted = programs(m, norm), {}
    counters = watched.pop("counters")
    for name, program in watched.items():
        with elsewhere(counters) as watch:
            program()
        counted[name] = watch.reads
        assert watch.reads <= READS[name], f"{name}: {watch.reads} reads, at most {READS[name]}"
    return counted


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_model_stays_on_its_device_and_reads_no_more_than_it_must(norm):
    assert reads(module(), norm) == READS


EMBED = "self.position(embedding(ids) * math.sqrt(self.d_model), offset)"
CLIP = "nn.utils.clip_grad_norm_(model.parameters(), clip)"
PLANTED = {
    "causal mask on the CPU": ("torch.ones(n, m, dtype=torch.bool, device=device)", "torch.ones(n, m).bool()"),
    "causal mask asked for without a device": ("(tgt.shape[1], device=tgt.device)", "(tgt.shape[1])"),
    "position table that does not move": (
        'self.register_buffer("table", table.to(torch.get_default_dtype()), persistent=False)',
        "self.table = table.to(torch.get_default_dtype())"),
    "positions counted on the CPU": (
        "self.table[offset:offset + x.shape[1]]", "self.table[torch.arange(offset, offset + x.shape[1])]"),
    "constant on the CPU": (EMBED, EMBED.replace("math.sqrt(self.d_model)", "torch.tensor(self.d_model).sqrt()")),
    "constant inside the attention": ("        heads = F.s", "        Q = Q * torch.ones(())\n        heads = F.s"),
    "factor as a tensor": ("= model(part, decoder_input) ", "= model(part, decoder_input) * torch.ones(1) "),
    "sum of losses begun on the CPU": ("torch.zeros((), device=src.device)", "torch.zeros(())"),
    "flags of ended rows on the CPU": (
        "torch.zeros_like(rows, dtype=torch.bool)", "torch.zeros(len(rows), dtype=torch.bool)"),
    "hypotheses on the CPU": ("for tokens, _, _ in alive], device=src.device)", "for tokens, _, _ in alive])"),
    "answer of beam search on the CPU": ("torch.tensor([tokens], dtype=src.dtype, device=src.device)",
                                         "torch.tensor([tokens], dtype=src.dtype)"),
    "loss read in every part": ("total += loss.detach()", "total += loss.item()"),
    "labels counted on the host": ("= (tgt[:, 1:] != pad_id).sum()", "= (tgt[:, 1:] != pad_id).sum().item()"),
    "norm of the gradient read": (CLIP, f"float({CLIP})"),
    "token read and put back": ("ids.append(token)", "ids.append(token := token.new_tensor([int(i) for i in token]))"),
    "rows asked one by one": ("if ended.all():", "if sum(bool(one) for one in ended) == len(ended):"),
    "gains read one by one": ("best.values.tolist()", "[[float(one) for one in row] for row in best.values]"),
    "a truth asked in the attention": ("        if mask is not None:\n            mask = mask.bool()",
                                       "        if mask is not None and not mask.all():\n"
                                       "            mask = mask.bool()"),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_planted_tensor_or_read_on_the_host_is_caught(fault):
    with pytest.raises(AssertionError, match=r"returns a CPU tensor|reads, at most"):
        reads(module(PLANTED[fault]), "pre")


@pytest.mark.parametrize("copy", [torch.Tensor.cpu, torch.Tensor.numpy, lambda x: x.to("cpu")])
def test_copy_to_the_host_is_no_read_and_raises(copy):
    with elsewhere(), pytest.raises((AssertionError, NotImplementedError, TypeError)):
        copy(torch.zeros(3, device="meta"))


def test_step_counters_alone_are_exempt():
    net = torch.nn.Linear(2, 2).to("meta")
    adam, counters = stepped(net)
    with elsewhere(counters) as watch:
        adam.step()
    assert watch.reads == 0 and counters[0].device.type == "cpu"
    with StaysOnDevice(), pytest.raises(AssertionError, match="returns a CPU tensor"):
        adam.step()


def trainer_on_meta(log_every: int) -> trainer.Run:
    words = numberwords.chapter()
    options = trainer.Options(pairs=50, d_model=16, heads=2, layers=1, d_ff=32, accumulate=2, log_every=log_every)
    run = trainer.Run(options, words, numberwords.task(words, "german", pairs=50),
                      trainer.Processes(0, 1, torch.device("meta")))
    batch = run.batch()                       # data is drawn on the CPU and then sent
    run.batch = lambda: batch                 # type: ignore[method-assign]
    return run


def test_trainer_waits_for_the_device_only_to_log():
    run = trainer_on_meta(log_every=2)
    run.adam, counters = stepped(run.net)
    with elsewhere(counters) as watch:
        assert run.advance() is None and watch.reads == 0
        assert run.advance() is not None and watch.reads == 2
    assert all(one.device.type == "meta" for one in (*run.net.parameters(), *run.net.buffers(), run.loss))


def test_trainer_that_reads_its_loss_every_step_is_caught(monkeypatch):
    run = trainer_on_meta(log_every=2)
    run.adam, counters = stepped(run.net)
    add = trainer.transformer.add_gradients
    monkeypatch.setattr(trainer.transformer, "add_gradients", lambda *given, **more: add(*given, **more).item())
    with elsewhere(counters) as watch:
        run.advance()
    assert watch.reads > 0
