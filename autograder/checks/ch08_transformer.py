"""Chapter 8: the whole model, its loss, its training step, and four ways to decode."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from autograder.checks.answers import ch08_transformer as _answers  # noqa: F401  (fills the catalogue)
from autograder.checks.encoder_decoder import Model, arrays, draw
from autograder.checks.inputs import normal, tensor
from autograder.judge import (
    Case,
    Exercise,
    Sight,
    close,
    defaults,
    expect,
    is_array,
    near,
    pair,
    raised,
    ran,
    unchanged,
)
from autograder.wire import ANSWER, Array, Opaque, Plan, Raised, Ref

CHAPTER = "08_transformer"
PAD, BOS, EOS = 0, 1, 2


def _ids(rng: np.random.Generator, lengths: Sequence[int], vocab: int, pad: int, *, width: int = 0) -> np.ndarray:
    """(B, n) ids below vocab, none of them pad but behind each row's length."""
    n = max(width, *lengths)
    ids = rng.integers(vocab - 1, size=(len(lengths), n))
    ids += ids >= pad
    ids[np.arange(n) >= np.asarray(lengths)[:, None]] = pad
    return ids


# ---- shift_targets --------------------------------------------------------------------------------------------


class ShiftTargets(Exercise):
    """All but the last column, all but the first."""

    name, chapter = "shift_targets", CHAPTER

    def cases(self, rng: np.random.Generator) -> Iterable[Case]:
        for lengths, dtype, layout in (
            ((4, 4, 4, 4), "int64", "contiguous"),  # B = n, so that a slice of the wrong axis has the right size
            ((5, 2, 4), "int64", "contiguous"),
            ((2,), "int64", "contiguous"),
            ((7, 6), "int32", "strided"),
        ):
            ids, bos = _ids(rng, lengths, 50, 0), rng.integers(EOS + 1, 50)  # sentences; bos is another id each time
            ids[:, 0], ids[np.arange(len(ids)), np.asarray(lengths) - 1] = bos, EOS
            yield Case((tensor(ids, dtype, layout=layout),))

    def judge(self, case: Case, seen: Sight) -> None:
        decoder_input, labels = pair(seen.result, "(decoder_input, labels)")
        tgt = case.args[0].value()
        n = tgt.shape[1]
        close(decoder_input, tgt.narrow(1, 0, n - 1), "decoder_input", why="It is every row without its last token")
        close(labels, tgt.narrow(1, 1, n - 1), "labels", why="It is every row without its first token")
        unchanged(seen.after, case.args)


# ---- Transformer ----------------------------------------------------------------------------------------------

LISTS = ("encoder", "decoder")
DEFAULTS = {"d_model": 512, "h": 8, "N": 6, "d_ff": 2048, "dropout": 0.1, "pad_id": 0, "max_len": 512, "norm": "post"}


class Transformer(Exercise):
    """The course's blocks put together: logits, memory and facts, against a model in NumPy."""

    name, chapter, parts = "Transformer", CHAPTER, ("core", "edge")

    def cases(self, rng: np.random.Generator) -> Iterable[Case]:
        # src_vocab < tgt_vocab, m < n: tables or lengths that are mixed up show
        yield self._case(rng, 1, "post", src=((3, 3, 3), 5), tgt=((4, 4, 4), 7), apart=True, grad=True)
        # facts with tables so large that they tell their deviation
        yield self._case(rng, 2, "post", src=((4, 4), 300), tgt=((3, 3), 400), facts=True, note="N = 2")
        edge: dict[str, Any] = {"part": "edge"}
        pads: dict[str, Any] = {"pad": 2, "apart": True, "ends": True, "note": "padding, pad_id = 2", **edge}
        yield self._case(rng, 1, "post", src=((5, 3, 1), 6), tgt=((2, 5, 3), 8), **pads)
        yield self._case(rng, 1, "pre", src=((4, 2), 300), tgt=((3, 3), 400), facts=True, note='norm="pre"', **edge)
        yield self._case(
            rng, 1, "post", src=((3, 2), 6), tgt=((3, 4), 5), dropped=True, apart=True, note="dropout = 1, train mode",
            **edge,
        )
        yield self._case(
            rng, 1, "post", src=((5, 6), 6), tgt=((6, 5), 5), halved=True, note="dropout = 0.5, train mode", **edge
        )
        yield Case((6, 5, 4, 2, 1, 8, 0.0, 0, 16, "both"), part="edge", note="norm is neither", extra={"refused": True})

    def _case(
        self, rng: np.random.Generator, N: int, norm: str, *, src: Any, tgt: Any, pad: int = 0, facts: bool = False,
        grad: bool = False, apart: bool = False, ends: bool = False, dropped: bool = False, halved: bool = False,
        part: str = "core", note: str = "",
    ) -> Case:  # fmt: skip
        """`apart`: encode and decode are called, too; `ends`: beyond max_len, and on another device."""
        d, h, d_ff, max_len = 6, 3, 5, 9
        weights = draw(rng, src[1], tgt[1], d, d_ff, N, norm)
        ids = {"src": _ids(rng, src[0], src[1], pad), "tgt": _ids(rng, tgt[0], tgt[1], pad)}
        if pad:  # where 0 is a word, a mask that looks for 0 hides it
            ids["src"][0, 0] = ids["tgt"][1, 1] = 0
        extra = {
            "weights": weights, "model": Model(weights, h, pad, norm, dropped), "facts": facts, "N": N,
            "dropped": dropped, "halved": halved, **ids, "grad": grad, "apart": apart, "ends": ends,
            "long": _ids(rng, [max_len + 1] * 2, min(src[1], tgt[1]), pad), "pad": pad,
        }  # fmt: skip
        dropout = 0.5 if halved else float(dropped)
        return Case((src[1], tgt[1], d, h, N, d_ff, dropout, pad, max_len, norm), {}, part, note, extra)

    def plan(self, case: Case, plan: Plan) -> dict[str, Any]:
        extra = case.extra
        module = plan.build(*case.args)
        names: dict[str, Any] = {"module": module}
        if "refused" in extra:
            return names
        if extra["facts"]:
            names["tables"] = [plan.look(module.src_embedding.weight), plan.look(module.output.weight)]
        names["missing"] = plan.load(module, arrays(extra["weights"]))
        plan.mode(module, extra["dropped"] or extra["halved"])
        if extra["halved"]:
            return names | self._watched(case, plan, module)
        src, tgt = (plan.put(tensor(extra[name], "int64")) for name in ("src", "tgt"))
        if extra["apart"]:
            names["memory"] = plan.call(module.encode, src)
            names["decoded"] = plan.call(module.decode, tgt, names["memory"], src)
        names["logits"] = plan.call(module, src, tgt)
        names["after"] = [plan.look(src), plan.look(tgt)]
        if extra["grad"]:
            factor = normal(np.random.default_rng(1), (*extra["tgt"].shape, case.args[1]))
            names["gradients"] = plan.grad([(names["logits"], factor)], [], names=module)
        if extra["ends"]:
            long = plan.put(tensor(extra["long"], "int64"))
            names["too long"] = [plan.call(module.encode, long), plan.call(module.decode, long, names["memory"], src)]
            plan.to(module, "meta")
            reached = plan.bypass(_item(module, "decoder", 0))  # the rest is the course's own, and slow on this device
            names["moved"] = plan.call(module.decode, *(plan.to(ref, "meta") for ref in (tgt, names["memory"], src)))
            names["reached"] = plan.log(reached)
        if extra["facts"]:  # last, for the logits tell most mistakes
            names |= {"facts": plan.facts(module), "pad_id": plan.look(module.pad_id)}
            names["defaults"] = plan.defaults(ANSWER)
        return names

    def _watched(self, case: Case, plan: Plan, module: Ref) -> dict[str, Any]:
        """What goes into the first block of either side; from a seed, so that the same answer drops the same."""
        fed = [plan.watch(_item(module, part, 0), values=True) for part in LISTS]
        plan.reseed(1)
        src, tgt = (plan.put(tensor(case.extra[name], "int64")) for name in ("src", "tgt"))
        logits = plan.call(module, src, tgt)
        return {"logits": logits, "fed": [plan.log(each) for each in fed]}

    def judge(self, case: Case, seen: Sight) -> None:
        extra = case.extra
        if "refused" in extra:
            raised(seen.module, ("ValueError",), 'norm="both" should raise a ValueError')
            return
        ran(seen.module, f"Transformer{tuple(case.args)}")
        if extra["facts"]:
            self._judge_facts(case, seen)
        lacking = ", ".join(seen.missing[:4]) if isinstance(seen.missing, list) else "all"
        expect(not lacking, "parts", f"these parameters are missing or have another shape: {lacking}")
        if extra["halved"]:
            self._judge_dropout(case, seen)
            return
        self._judge_values(case, seen)
        if extra["grad"]:
            ran(seen.gradients, "taking the gradient of your logits")
            dead = [name for name, found in seen.gradients[1].items() if not isinstance(found, Array)]
            expect(not dead, "gradients", f"no gradient reaches {', '.join(dead[:3])}: it is not used, or detached")
        self._judge_edges(case, seen)

    def _judge_values(self, case: Case, seen: Sight) -> None:
        extra, model = case.extra, case.extra["model"]
        memory = model.encode(extra["src"])
        want = torch.tensor(model.decode(extra["tgt"], memory, extra["src"])).float()
        real = torch.tensor(extra["tgt"] != extra["pad"])[:, :, None]  # what is said after a pad is nobody's business
        if extra["apart"]:
            kept = torch.tensor(extra["src"] != extra["pad"])[:, :, None]
            memory = torch.tensor(memory).float() * kept
            close(_where(seen.memory, kept), memory, "encode(src)", check="memory", atol=1e-4)
            close(_where(seen.decoded, real), want * real, "decode(tgt, memory, src)", check="logits", atol=1e-4)
        close(_where(seen.logits, real), want * real, "forward(src, tgt)", check="logits", atol=1e-4)
        unchanged(seen.after, [tensor(extra[name], "int64") for name in ("src", "tgt")], "your model changed the ids")

    def _judge_dropout(self, case: Case, seen: Sight) -> None:
        """Entry by entry 0 or double of what embeddings and positions come to: dropped from once."""
        ran(seen.logits, "forward in train mode")
        for part, which, log in zip(LISTS, ("src", "tgt"), seen.fed):
            if len(log) != 1 or not isinstance(log[0].get("input"), Array):  # called by keyword: nothing to be seen
                continue
            want = 2 * case.extra["model"].embedded(f"{which}_embedding.weight", case.extra[which])
            got = is_array(log[0]["input"], want.shape, f"the input of {part}[0]", lib="torch").double()
            dropped, kept = np.abs(got) < 1e-6, np.abs(got - want) < 1e-4 * (1 + np.abs(want))
            text = f"the {part}'s dropout"
            expect(bool(dropped.any()), "dropout", f"{text} drops nothing of embeddings plus positions")
            text = f"{text} should act once on embeddings plus positions, in PositionalEncoding; yours acts otherwise"
            expect(bool((dropped | kept).all()), "dropout", text)

    def _judge_facts(self, case: Case, seen: Sight) -> None:
        ran(seen.facts, "looking into your model")
        classes, shared = seen.facts["classes"], seen.facts["shared"]
        lists = [name for name in LISTS if "ModuleList" not in classes.get(name, ())]
        expect(
            not lists, "parts", f"{' and '.join(lists)} should be an nn.ModuleList, or its blocks are not registered"
        )
        depth = [sum(name.startswith(f"{part}.") and name.count(".") == 1 for name in classes) for part in LISTS]
        same = [names for names in shared if any("coder." in name for name in names)]
        text = f"encoder and decoder should have N = {case.extra['N']} blocks of their own each"
        expect(depth == [case.extra["N"]] * 2 and not same, "N blocks", text)
        tied = any({"tgt_embedding.weight", "output.weight"} <= set(names) for names in shared)
        expect(tied, "tied", "output.weight and tgt_embedding.weight should be one and the same tensor")
        expect(not any("src_embedding.weight" in names for names in shared), "tied", "src_embedding has its own table")
        expect("output.bias" not in seen.facts["parameters"], "parts", "output should have no bias")
        expect(seen.pad_id == case.extra["pad"], "parts", "the attribute pad_id should keep the pad_id that is given")
        defaults(seen.defaults, DEFAULTS)
        for table, name in zip(seen.tables, ("src_embedding.weight", "output.weight")):
            ran(table, "looking into your model")
            size = is_array(table, table.shape, name, lib="torch").double().std() * math.sqrt(case.args[2])
            text = (
                f"a new model's {name} should be of standard deviation d_model ** -0.5; yours is {size:.2g} times that"
            )
            expect(0.8 < size < 1.25, "initialised", f"{text}. initialise(self, d_model) should come last in __init__")

    def _judge_edges(self, case: Case, seen: Sight) -> None:
        if case.extra["ends"]:
            for found, what in zip(getattr(seen, "too long"), ("encode", "decode")):
                raised(found, ("ValueError",), f"{what} with more than max_len positions should raise a ValueError")
            ran(seen.moved, "after model.to(another device), decode")
            text = "after model.to(device) the logits are elsewhere: make every tensor on the device of the ids"
            stayed = any(devices != ["meta"] for devices in seen.reached)
            expect(seen.moved == Opaque("Tensor on meta") and not stayed, "device", text)


def _where(found: Any, real: torch.Tensor) -> Any:
    """The finding with zeros where nobody looks; anything that has no such shape as it is."""
    if not isinstance(found, Array) or found.lib != "torch" or found.shape[:2] != tuple(real.shape[:2]):
        return found
    return Array.of(found.value().detach() * real)


# ---- label_smoothed_loss --------------------------------------------------------------------------------------


class LabelSmoothedLoss(Exercise):
    """(1 - eps) of the weight on the label, eps spread over all of the vocabulary; the mean over what is no pad."""

    name, chapter, parts = "label_smoothed_loss", CHAPTER, ("core", "edge")

    def cases(self, rng: np.random.Generator) -> Iterable[Case]:
        yield self._case(rng, (3, 3, 3), 3, 0, note="no padding")
        yield self._case(rng, (4, 2, 3), 5, 0, grad=True, note="some padding")
        yield self._case(rng, (2, 5), 7, 0, smoothing=0.3, note="smoothing = 0.3")
        edge: dict[str, Any] = {"part": "edge"}
        yield self._case(rng, (1, 6, 2), 6, 4, smoothing=0.2, note="pad_id = 4", **edge)
        yield self._case(rng, (4, 3), 5, 0, smoothing=0.0, note="smoothing = 0", **edge)
        yield self._case(rng, (3, 5), 4, 1, dtype="float64", smoothing=0.15, note="float64", layout="strided", **edge)
        yield self._case(rng, (3, 2), 5, 0, scale=3e3, smoothing=0.1, note="logits in the thousands", **edge)
        yield self._case(rng, (1, 0, 0), 6, 0, smoothing=0.1, note="a single label that is no pad", **edge)

    def _case(
        self, rng: np.random.Generator, lengths: Sequence[int], vocab: int, pad: int, *, smoothing: float | None = None,
        dtype: str = "float32", scale: float = 2.0, grad: bool = False, layout: str = "contiguous", part: str = "core",
        note: str = "",
    ) -> Case:  # fmt: skip
        labels = tensor(_ids(rng, lengths, vocab, pad), "int64", layout=layout)
        logits = normal(rng, (*labels.shape, vocab), dtype, scale=scale, grad=grad, layout=layout)
        kwargs = {} if smoothing is None else {"smoothing": smoothing}
        return Case((logits, labels, pad), kwargs, part, note)

    def plan(self, case: Case, plan: Plan) -> dict[str, Any]:
        names = super().plan(case, plan)
        if case.args[0].grad:
            names["gradient"] = plan.grad([(names["result"], tensor(1.0))], names["inputs"][:1])
        return names

    def judge(self, case: Case, seen: Sight) -> None:
        logits = case.args[0].value().detach().double().requires_grad_()
        labels, pad, epsilon = case.args[1].value(), case.args[2], case.kwargs.get("smoothing", 0.1)
        log_p = logits - logits.logsumexp(-1, keepdim=True)
        target = torch.eye(logits.shape[-1]).double()[labels] * (1 - epsilon) + epsilon / logits.shape[-1]
        want = -(target * log_p).sum(-1)[labels != pad].mean()
        dtype = case.args[0].value().dtype
        # Targets made of whole numbers, one_hot(labels) * 0.9, are float32 in a loss of float64: right to 1e-7.
        close(seen.result, want.detach().to(dtype), "the loss", atol=1e-6 if dtype == torch.float64 else None)
        unchanged(seen.after, case.args[:2])
        if case.args[0].grad:
            ran(seen.gradient, "taking the gradient of your loss")
            (slope,) = torch.autograd.grad(want, logits)
            close(seen.gradient[0][0], slope.float(), "the gradient with respect to the logits", check="gradients")


# ---- noam_rate ------------------------------------------------------------------------------------------------


class NoamRate(Exercise):
    """Warm-up in a straight line, then the inverse root."""

    name, chapter = "noam_rate", CHAPTER

    def cases(self, rng: np.random.Generator) -> Iterable[Case]:
        d, warmup = int(rng.integers(20, 90)), int(rng.integers(30, 80))
        yield self._case([(step, d, warmup) for step in (1, 7, warmup - 2)], "while warming up")
        yield self._case([(step, d, warmup) for step in (warmup, warmup + 1, 4 * warmup, 5000)], "after warming up")
        yield self._case([(step, 512, 4000) for step in (1, 3999, 4000, 4001, 100_000)], "the paper's settings")
        yield self._case([(0, 512, 4000), (0, d, warmup)], "step 0")

    def _case(self, calls: list[tuple[int, int, int]], note: str) -> Case:
        return Case(note=note, extra={"calls": calls})

    def plan(self, case: Case, plan: Plan) -> dict[str, Any]:
        return {"rates": [plan.call(ANSWER, *args) for args in case.extra["calls"]]}

    def judge(self, case: Case, seen: Sight) -> None:
        for (step, d, warmup), found in zip(case.extra["calls"], seen.rates):
            rise, fall = step / math.sqrt(d * warmup**3), 1 / math.sqrt(d * step) if step else math.inf
            near(found, min(rise, fall), f"noam_rate({step}, {d}, {warmup})", rtol=1e-5, atol=1e-12)


# ---- train_step -----------------------------------------------------------------------------------------------


class TrainStep(Exercise):
    """One optimizer step on the mean loss per token, however the batch is cut, against the same step in float64."""

    name, chapter, parts = "train_step", CHAPTER, ("core", "edge")

    def cases(self, rng: np.random.Generator) -> Iterable[Case]:
        yield self._case(rng, (6, 2, 3), steps=2, training=False, note="padding; the model comes in eval mode")
        # gradients so small that clip leaves them as they are, and hides nothing
        small: dict[str, Any] = {"scale": 0.3}
        yield self._case(rng, (7, 6, 2, 2), accumulate=2, **small, note="accumulate = 2, parts of unlike lengths")
        edge: dict[str, Any] = {"part": "edge"}
        seven: dict[str, Any] = {"accumulate": 3, "pad": 2, "note": "7 rows, accumulate = 3"}
        yield self._case(rng, (7, 2, 4, 5, 2, 3, 6), **seven, **small, **edge)
        yield self._case(rng, (6, 2), accumulate=5, steps=2, note="2 rows, accumulate = 5", **edge)
        yield self._case(rng, (5, 3, 2, 4), accumulate=2, clip=0.05, note="clip = 0.05", **edge)
        yield self._case(rng, (6, 4, 5), clip=90.0, scale=4.0, note="clip = 90 and large gradients", **edge)
        yield self._case(rng, (5, 3, 6), amp=True, note="amp=True", **edge)
        for meta in ("the model", "the source", "the target"):
            yield self._case(rng, (4, 3), meta=meta, note=f"{meta} on another device", **edge)

    def _case(
        self, rng: np.random.Generator, lengths: Sequence[int], *, accumulate: int = 1, clip: float | None = None,
        amp: bool = False, pad: int = 0, steps: int = 1, training: bool = True, meta: str = "", scale: float = 1.0,
        part: str = "core", note: str = "",
    ) -> Case:  # fmt: skip
        d, src_vocab, tgt_vocab = 4, 6, 7
        weights = [normal(rng, shape) for shape in ((src_vocab, d), (tgt_vocab, d))]
        weights.append(normal(rng, (d, tgt_vocab), scale=scale))  # the others' gradients grow with it
        batches = [
            [_ids(rng, [3] * len(lengths), src_vocab, pad), _ids(rng, lengths, tgt_vocab, pad)] for _ in range(steps)
        ]
        kwargs: dict[str, Any] = {"pad_id": pad}
        kwargs |= {"accumulate": accumulate} if accumulate > 1 else {}
        kwargs |= {"amp": True} if amp else {}
        kwargs |= {} if clip is None else {"clip": clip}
        return Case(
            (), kwargs, part, note, {"weights": weights, "batches": batches, "training": training, "meta": meta}
        )

    def plan(self, case: Case, plan: Plan) -> dict[str, Any]:
        extra = case.extra
        model = plan.make("tiny_seq2seq", *extra["weights"])
        plan.mode(model, extra["training"])
        if extra["meta"] == "the model":
            plan.to(model, "meta")
        optimizer = plan.make("optimizer", "SGD", model, lr=0.5)
        losses, puts = [], []
        for batch in extra["batches"]:
            puts.append([plan.put(tensor(ids, "int64")) for ids in batch])
            moved = [plan.to(ref, "meta") if extra["meta"] == what else ref
                     for ref, what in zip(puts[-1], ("the source", "the target"))]  # fmt: skip
            losses.append(plan.call(ANSWER, model, tuple(moved), optimizer, **case.kwargs))
        names = {"losses": losses, "log": plan.log(model), "norms": plan.log(optimizer)}
        names |= {"training": plan.look(model.training), "defaults": plan.defaults(ANSWER)}
        names["after"] = [plan.look(ref) for batch in puts for ref in batch]
        if not extra["meta"]:
            names["weights"] = plan.weights(model)
        return names

    def judge(self, case: Case, seen: Sight) -> None:
        if case.extra["meta"]:
            self._judge_device(case.extra["meta"], seen)
            return
        for loss in seen.losses:
            ran(loss)
        defaults(seen.defaults, {"accumulate": 1, "clip": 1.0, "amp": False})
        amp = case.kwargs.get("amp", False)
        losses, norms, weights = self._oracle(case)
        for got, want in zip(seen.losses, losses):
            near(
                got, want, "the loss that you return", rtol=3e-2 if amp else 1e-4, why="It is the mean over all labels"
            )
        self._judge_calls(case, seen, amp)
        count = f"optimizer.step() should run once for each batch; it ran {len(seen.norms)} times"
        expect(len(seen.norms) == len(losses), "one step", count)
        for got, want in zip(seen.norms, norms):
            near(got, want, "the gradient's norm at the step", rtol=5e-2 if amp else 1e-3, atol=1e-6)
        for name, table in zip(("src", "tgt", "head"), weights):
            close(
                seen.weights[name], table.float(), f"{name} after the step", check="weights", atol=3e-2 if amp else 1e-4
            )
        batches = [tensor(ids, "int64") for batch in case.extra["batches"] for ids in batch]
        unchanged(seen.after, batches, "your function changed the batch in place")
        expect(isinstance(seen.losses[0], float), "type", "return a Python float (loss.item()), not a tensor")

    def _judge_calls(self, case: Case, seen: Sight, amp: bool) -> None:
        log, rows = seen.log, len(case.extra["batches"][0][0])
        parts = min(case.kwargs.get("accumulate", 1), rows)
        sizes = [len(call["src"]) for call in log]
        text = f"the batch of {rows} rows should go through the model in {parts} near-equal parts; yours were {sizes}"
        even = len(sizes) == parts * len(case.extra["batches"]) and sum(sizes) == rows * len(case.extra["batches"])
        expect(even and max(sizes) - min(sizes) <= 1, "parts", text)
        expect(all(call["training"] for call in log), "train mode", "call model.train() before the forward pass")
        text = "model.training = True does not reach the parts inside, such as its dropout: call model.train()"
        expect(all(call["dropout"] for call in log), "train mode", text)
        expect(seen.training is True, "train mode", "your function should leave the model in train mode")
        want = "torch.bfloat16" if amp else False
        text = "with amp=True forward runs in bfloat16 autocast, without it in none"
        expect(all(call["autocast"] == want for call in log), "amp", text)

    def _judge_device(self, elsewhere: str, seen: Sight) -> None:
        """No number comes back from there, so the step ends in an error; where the ids went is in the log."""
        text = "the batch should go to the device of the model's parameters, whatever it is; yours stayed elsewhere"
        home, stopped = "meta" if elsewhere == "the model" else "cpu", seen.losses[0]
        stayed = any(device != home for call in seen.log for device in call["devices"])
        expect(not stayed and not isinstance(stopped, float), "device", text)
        if not seen.log and isinstance(stopped, Raised):
            expect("meta" in stopped.message.lower(), "device", text)
        if elsewhere == "the source":  # which nobody needs to look at before it is moved, and moving it raises this
            ran_to = isinstance(stopped, Raised) and "copy out of meta" in stopped.message.lower()
            expect(ran_to, "device", text)

    def _oracle(self, case: Case) -> tuple[list[float], list[float], list[torch.Tensor]]:
        weights = [array.value().double() for array in case.extra["weights"]]
        losses, norms = [], []
        for src, tgt in case.extra["batches"]:
            leaves = [weight.detach().requires_grad_() for weight in weights]
            loss = _token_loss(leaves, torch.tensor(src), torch.tensor(tgt), case.kwargs["pad_id"])
            slopes = torch.autograd.grad(loss, leaves)
            norm = math.sqrt(sum(float((slope**2).sum()) for slope in slopes))
            share = min(1.0, case.kwargs.get("clip", 1.0) / (norm + 1e-6))
            weights = [leaf.detach() - 0.5 * share * slope for leaf, slope in zip(leaves, slopes)]
            losses.append(float(loss.detach()))
            norms.append(share * norm)
        return losses, norms, weights


def _token_loss(leaves: Sequence[torch.Tensor], src: torch.Tensor, tgt: torch.Tensor, pad: int) -> torch.Tensor:
    """Cross-entropy per label of the registry's tiny model."""
    table, words, head = leaves
    given, labels = tgt[:, :-1], tgt[:, 1:]
    running = words[given].cumsum(1) / torch.arange(1, given.shape[1] + 1)[:, None]
    log_p = (torch.tanh(table[src].mean(1, keepdim=True) + running) @ head).log_softmax(-1)
    return -log_p.gather(-1, labels[..., None])[labels != pad].mean()


# ---- decoders on a scripted model -----------------------------------------------------------------------------

def _source(rng: np.random.Generator, B: int, pad: int) -> np.ndarray:
    """Sources that differ from row to row."""
    src = _ids(rng, [4] * B, 30, pad)
    src[:, 0] = [token + (token >= pad) for token in rng.choice(28, B, replace=False)]
    return src


def _saying(rng: np.random.Generator, vocab: int, token: int) -> np.ndarray:
    """Logits whose largest is the token's; the token before it is nearly as likely."""
    logits = rng.uniform(-2, 2, vocab)
    logits[token] = 2.5 + rng.random()
    if token:
        logits[token - 1] = logits[token] - 2e-5
    return logits


class GreedyDecode(Exercise):
    """A scripted model tells each source row what to say; the rows end at different steps."""

    name, chapter, parts = "greedy_decode", CHAPTER, ("core", "edge")
    takes = ("src", "max_len")

    def cases(self, rng: np.random.Generator) -> Iterable[Case]:
        yield self._case(rng, (3, 3), 3, note="both rows run into max_len")
        yield self._case(rng, (4, 1, 3), 9, note="the rows end at different steps")
        yield self._case(rng, (2, 5), 5, training=False, note="a row ends exactly at max_len; eval mode")
        edge: dict[str, Any] = {"part": "edge"}
        yield self._case(rng, (2, 7, 4), 5, special=(5, 3, 4), note="pad 5, bos 3, eos 4; one row is cut off", **edge)
        yield self._case(rng, (5, 2), 6, pads=2, note="a row says pad before its eos", **edge)
        yield self._case(rng, (1, 1), 6, note="every row ends at once", **edge)
        yield self._case(rng, (3,), 6, note="one row", **edge)
        yield self._case(rng, (4, 2), 1, note="max_len = 1", **edge)

    def _case(
        self, rng: np.random.Generator, lengths: Sequence[int], max_len: int, *,
        special: tuple[int, int, int] = (0, 1, 2), pads: int = 0,
        training: bool = True, part: str = "core", note: str = "",
    ) -> Case:  # fmt: skip
        """`lengths`: at which step each row says eos; `special`: pad, bos, eos; `pads`: when the first says pad."""
        pad, bos, eos = special
        src, vocab, script = _source(rng, len(lengths), pad), 9, []
        said: list[list[int]] = []
        words = [token for token in reversed(range(vocab)) if token not in special]  # the first is no 0
        for row, length in zip(src, lengths):
            tokens = [*rng.choice(words[1:], length - 1).tolist(), eos]
            if pads and not said:
                tokens[pads - 1] = pad
            said.append(tokens)
            for at in range(length):
                logits = tensor(_saying(rng, vocab, tokens[at]), "float32")
                script.append([[int(i) for i in row if i != pad], [bos, *tokens[:at]], logits])
        for start, word in ((pad, words[1]), (eos, words[2])):  # so that a wrong first token can be told
            script.append([[int(i) for i in src[0] if i != pad], [start], tensor(_saying(rng, vocab, word))])
        extra = {"script": script, "default": tensor(_saying(rng, vocab, words[0])), "special": special, "said": said}
        return Case((tensor(src, "int64"), max_len), {}, part, note, {**extra, "training": training})

    def plan(self, case: Case, plan: Plan) -> dict[str, Any]:
        extra = case.extra
        pad, bos, eos = extra["special"]
        model = plan.make("scripted", extra["script"], extra["default"], pad)
        plan.mode(model, extra["training"])
        src = plan.put(case.args[0])
        result = plan.call(ANSWER, model, src, bos, eos, case.args[1])
        return {
            "result": result,
            "log": plan.log(model),
            "after": [plan.look(src)],
            "training": plan.look(model.training),
        }

    def judge(self, case: Case, seen: Sight) -> None:
        want = _padded(case.extra["said"], case.args[1], case.extra["special"][0])
        _judge_ids(seen.result, want)
        unchanged(seen.after, [case.args[0]])
        _judge_log(seen, case.extra["training"])
        _judge_encoded(seen)
        text = "after every row has ended your loop still asked the model"
        asked = sum(call["shape"][0] for call in seen.log if call["call"] == "decode")  # all at once, or one by one
        expect(asked <= want.numel(), "stop", text)


def _padded(said: Sequence[Sequence[int]], max_len: int, pad: int) -> torch.Tensor:
    rows = [list(tokens[:max_len]) for tokens in said]
    L = max(map(len, rows))
    return torch.tensor([row + [pad] * (L - len(row)) for row in rows])


def _judge_ids(found: Any, want: torch.Tensor) -> None:
    """Fails where the ids are others; says which token at which step, for an id is neither too large nor too small."""
    got = is_array(found, tuple(want.shape), "ids", lib="torch", dtype="int64").double()
    off = np.argwhere(got != want.numpy())
    if len(off):
        row, step = off[0]
        text = f"the ids are wrong: in row {row} at step {step} yours is {got[row, step]:.0f}"
        expect(False, "ids", f"{text}; {len(off)} of {got.size} are others")


def _judge_encoded(seen: Sight) -> None:
    calls = [call["call"] for call in seen.log]
    expect(calls.count("encode") == 1, "encode once", "call model.encode once, before the loop: the source stays")


def _judge_log(seen: Sight, training: bool) -> None:
    """Eval mode and no gradient in every call; the caller's mode afterwards."""
    expect(not any(call["training"] for call in seen.log), "eval", "the model should be in eval mode while you decode")
    expect(not any(call["grad"] for call in seen.log), "no grad", "decode under torch.no_grad(): no gradient is needed")
    mode = "train" if training else "eval"
    expect(seen.training is training, "mode restored", f"the model came in {mode} mode and should be so afterwards")


# ---- cached_greedy_decode -------------------------------------------------------------------------------------


class CachedGreedyDecode(Exercise):
    """A real encoder-decoder with drawn weights; its feed-forward networks are watched."""

    name, chapter, parts = "cached_greedy_decode", CHAPTER, ("core", "edge")
    takes = ("src", "max_len")

    def cases(self, rng: np.random.Generator) -> Iterable[Case]:
        yield self._case(rng, (4, 4, 4), 5, ends=True, note="rows end at different steps")
        yield self._case(rng, (4, 4), 3, N=2, training=False, note="N = 2")
        edge: dict[str, Any] = {"part": "edge"}
        yield self._case(
            rng, (2, 5, 3), 5, norm="pre", pad=3, ends=True, note='norm="pre", padding, pad_id = 3', **edge
        )
        yield self._case(rng, (3,), 5, ends=True, note="one row", **edge)

    def _case(
        self, rng: np.random.Generator, lengths: Sequence[int], max_len: int, *,
        N: int = 1, norm: str = "post", pad: int = 0,
        training: bool = True, ends: bool = False, part: str = "core", note: str = "",
    ) -> Case:  # fmt: skip
        """`ends`: eos is a token that the model says, at different steps of different rows; else the last token."""
        vocab, h, bos, B, eos = 12, 2, pad + 1, len(lengths), None
        while True:
            weights = draw(rng, 9, vocab, 6, 7, N, norm)
            words = weights["tgt_embedding.weight"]
            words[pad], words[pad + 3] = 0, -words[pad + 2]  # one of these two beats padding, which is then never said
            model, src = Model(weights, h, pad, norm), _ids(rng, list(lengths) * (12 if ends else 1), 9, pad)
            found: list[int | None] = [vocab - 1]
            if ends:  # several batches in one run, of which one will do
                free = _free_run(model, src, bos, max_len)
                found = [_ending(free[at : at + B]) for at in range(0, len(src), B)]
            which = next((i for i, token in enumerate(found) if token is not None), None)
            if which is not None:
                src, eos = src[which * B : (which + 1) * B], found[which]
                if norm == "post" or _last_norm_shows(model, src, bos, eos, max_len):
                    break
        extra = {"model": model, "N": N, "norm": norm, "pad": pad, "bos": bos, "eos": eos, "training": training, "h": h}
        return Case((tensor(src, "int64"), max_len), {}, part, note, extra)

    def plan(self, case: Case, plan: Plan) -> dict[str, Any]:
        extra = case.extra
        options = {"h": extra["h"], "pad_id": extra["pad"], "norm": extra["norm"], "dropout": 0.4}
        model = plan.make("encoder_decoder", arrays(extra["model"].w), **options)
        plan.mode(model, extra["training"])
        watched = {
            "fed": [plan.watch(_item(model, "decoder", i).feed_forward, values=True) for i in range(extra["N"])],
            "encoded": [plan.watch(_item(model, "encoder", 0).feed_forward)],
            "memory keys": [plan.watch(_item(model, "decoder", i).cross_attention.W_k) for i in range(extra["N"])],
        }
        src = plan.put(case.args[0])
        result = plan.call(ANSWER, model, src, extra["bos"], extra["eos"], case.args[1])
        names = {name: [plan.log(each) for each in group] for name, group in watched.items()}
        return {"result": result, "after": [plan.look(src)], "training": plan.look(model.training), **names}

    def judge(self, case: Case, seen: Sight) -> None:
        extra, src, max_len = case.extra, case.args[0].double().astype(int), case.args[1]
        ran(seen.result)
        expect(
            isinstance(seen.result, Array) and len(seen.result.shape) == 2, "shape", "the ids should be a tensor (B, L)"
        )
        L = seen.result.shape[1]
        expect(0 < L <= max_len, "length", f"the ids should have 1 to max_len = {max_len} columns; yours have {L}")
        is_array(seen.result, (len(src), L), "the ids", lib="torch", dtype="int64")
        ids = seen.result.double().astype(int)
        over = np.cumsum(ids == extra["eos"], axis=1) - (ids == extra["eos"]) > 0  # behind the end of its row
        self._judge_ids(extra, src, ids, over, max_len)
        unchanged(seen.after, [case.args[0]])
        self._judge_work(extra, seen, len(src), L)
        self._judge_fed(extra, seen, over)

    def _judge_ids(
        self, extra: Mapping[str, Any], src: np.ndarray, ids: np.ndarray, over: np.ndarray, max_len: int
    ) -> None:
        """Each token is the likeliest after those before it, which one pass over the answer's own ids tells."""
        pad, eos = extra["pad"], extra["eos"]
        expect(bool((ids[over] == pad).all()), "pad after eos", "behind eos a row should hold nothing but pad_id")
        inside = ids[~over]
        expect(bool(((inside >= 0) & (inside < 12)).all()), "ids", "the ids should be tokens of the target vocabulary")
        given = np.concatenate([np.full((len(src), 1), extra["bos"]), ids[:, :-1]], axis=1)
        logits = extra["model"](src, given)  # (B, L, V)
        short = logits.max(-1) - np.take_along_axis(logits, ids[..., None], -1)[..., 0]
        off = (short > 1e-4) & ~over
        if off.any():
            b, t = np.argwhere(off)[0]
            text = f"the ids are wrong: in row {b} the token at step {t} is not the likeliest after those before it"
            expect(False, "ids", text)
        ended = (ids == eos).any(axis=1).all()
        expect(bool(ended or ids.shape[1] == max_len), "length", "decoding stopped although a row had not ended")
        expect(
            not bool(over[:, -1].all()), "stop", "the last column is nothing but padding: stop when every row has ended"
        )

    def _judge_work(self, extra: Mapping[str, Any], seen: Sight, B: int, L: int) -> None:
        log = [call for group in (*seen.fed, *seen.encoded) for call in group]
        expect(not any(call["training"] for call in log), "eval", "the model should be in eval mode while you decode")
        expect(not any(call["grad"] for call in log), "no grad", "decode under torch.no_grad()")
        mode = "train" if extra["training"] else "eval"
        text = f"the model came in {mode} mode and should be so afterwards"
        expect(seen.training is extra["training"], "mode restored", text)
        expect(len(seen.encoded[0]) == 1, "encode once", "the encoder should run once; the source does not change")
        for calls in seen.fed:
            rows = [_positions(call["shape"]) for call in calls]
            text = (
                f"one position a step should go through each block's feed_forward; yours: {rows} positions for {B} rows"
            )
            expect(len(rows) == L and max(rows) <= B, "one position a step", text)
        for calls in getattr(seen, "memory keys"):
            text = f"the memory's keys do not change: project them once, not {len(calls)} times"
            expect(len(calls) <= 1, "memory keys once", text)

    def _judge_fed(self, extra: Mapping[str, Any], seen: Sight, over: np.ndarray) -> None:
        """What goes through a block is what the whole prefix would send there: chance can't hide a wrong key."""
        for i, calls in enumerate(seen.fed):
            want = extra["model"].fed[f"decoder.{i}.feed_forward"]  # (B, L, d), of the answer's own ids
            for t, call in enumerate(calls):
                got = call["input"].double().reshape(-1, want.shape[-1])
                if len(got) != len(want):  # only the rows that go on
                    continue
                off = np.abs(got - want[:, t])[~over[:, t]].max() > 1e-3
                text = (
                    f"block {i} at step {t} computes something else than for the whole prefix: wrong keys or positions"  # noqa: E501
                )
                expect(not off, "same states", text)


def _positions(shape: Any) -> float:
    """How many a tensor of this shape holds; no end of them where it is none that a model has."""
    return math.prod(shape[:-1]) if isinstance(shape, tuple) and len(shape) < 8 else math.inf


def _item(model: Ref, part: str, index: int) -> Any:
    return getattr(model, part)[index]


def _free_run(model: Model, src: np.ndarray, bos: int, steps: int) -> np.ndarray:
    """Greedy ids (B, steps) that nothing ends."""
    memory, ids = model.encode(src), np.full((len(src), 1), bos)
    for _ in range(steps):
        ids = np.concatenate([ids, model.decode(ids, memory, src)[:, -1:].argmax(-1)], axis=1)
    return ids[:, 1:]


def _last_norm_shows(model: Model, src: np.ndarray, bos: int, eos: int | None, steps: int) -> bool:
    """Is another token the likeliest, before its row ends, where the norm of the whole stack is left out?"""
    ids = _free_run(model, src, bos, steps)
    given = np.concatenate([np.full((len(src), 1), bos), ids[:, :-1]], axis=1)
    without = model.decode(given, model.encode(src), src, last_norm=False).argmax(-1)
    ended = np.cumsum(ids == eos, axis=1) - (ids == eos) > 0
    return bool(((without != ids) & ~ended).any())


def _ending(free: np.ndarray) -> int | None:
    """A token that a row says, early but not first, and another row at another step."""
    for token in np.unique(free[:, 1:]):
        said = free == token
        first = np.where(said.any(axis=1), said.argmax(axis=1), 99)
        early = 0 < first.min() < free.shape[1] - 2 and (len(first) == 1 or len(set(first.tolist())) > 1)
        if early:
            return int(token)
    return None


# ---- beam_search ----------------------------------------------------------------------------------------------


class BeamSearch(Exercise):
    """Scripted log-probabilities, so that which hypothesis wins hangs on one rule at a time."""

    name, chapter = "beam_search", CHAPTER
    takes = ("src",)

    def cases(self, rng: np.random.Generator) -> Iterable[Case]:
        yield self._race(rng, *_rivals(1, 5, -3.4, 0.6, lambda f, n: f(n - 1)), beam=3, note="the length has eos in it")
        yield self._race(
            rng, *_rivals(1, 5, -3.4, 0.6, lambda f, n: f(n + 1)), beam=3, note="the length has no bos in it"
        )
        yield self._race(rng, *_rivals(2, 5, -3.0, 1.0, lambda f, n: f(n) ** 0.6), beam=3, alpha=1.0, note="alpha = 1")
        yield self._race(rng, (2, -3.0), (9, -3.0), max_len=4, beam=2, note="the best at max_len has not ended")
        yield self._race(rng, (4, -2.8), (3, -2.4), beam=1, note="beam = 1, greedy", training=False)
        # at step 3 the second has the worse log-probability and the better score, and there is room for one of the two
        ways = [[-1.7, -0.3], [-1.6, -0.25, -0.25, -0.05, -0.05]]
        yield self._race(rng, *ways, beam=3, decoys=True, note="the penalty decides who stays")
        yield self._race(rng, [-0.5, -0.5], [-1.05, *[-1e-3] * 7], note="the best has ended, another becomes better")
        yield self._race(rng, (4, -3.2), (3, -3.4), padded=True, note="the best says pad")
        yield self._race(rng, [-1.0005] * 3, [-1.0012] * 3, falling=True, note="two that are nearly as likely")
        yield self._race(rng, (2, -2.6), (3, -3.4), beam=15, max_len=3, note="beam larger than the vocabulary")

    def _race(
        self, rng: np.random.Generator, *runners: tuple[int, float] | list[float], beam: int | None = None,
        alpha: float | None = None, decoys: bool = False, padded: bool = False, falling: bool = False,
        max_len: int = 8, training: bool = True, note: str = "",
    ) -> Case:  # fmt: skip
        """Two ways through the script: (length with eos, log-probability), or what each token adds to it.

        `decoys`: two more that lead nowhere, and part at step 3. `padded`: the first says pad.
        `falling`: it begins with the larger of the two ids.
        """
        vocab = 12
        kwargs: dict[str, Any] = {} if beam is None else {"beam": beam}
        kwargs |= {} if alpha is None else {"alpha": alpha}
        words = rng.permutation(np.arange(3, vocab)).tolist()
        if falling:
            words[:2] = sorted(words[:2], reverse=True)
        src = _source(rng, 1, PAD)
        table: dict[tuple[int, ...], dict[int, float]] = {}
        for start, runner in zip(words, runners):
            gains = runner if isinstance(runner, list) else [runner[1] / runner[0]] * runner[0]
            path = [start, *rng.choice(words[3:], max(len(gains) - 2, 0)).tolist()][: len(gains) - 1] + [EOS]
            if padded and start == words[0]:
                path[1] = PAD
            for at, token in enumerate(path):
                table.setdefault((BOS, *path[:at]), {})[token] = gains[at]
            table[(BOS, *path)] = {EOS: -0.01}  # tempting, but an ended hypothesis does not go on
        if decoys:
            table[(BOS,)][words[2]] = -0.5
            table[(BOS, words[2])] = {words[3]: -0.05}
            table[(BOS, words[2], words[3])] = dict.fromkeys(words[4:6], -0.72)
        *said, default = self._logits(rng, vocab, [*table.values(), {}])
        script = [[src[0].tolist(), list(prefix), logits] for prefix, logits in zip(table, said)]
        extra = {"script": script, "default": default, "training": training, "options": kwargs, "max_len": max_len}
        return Case((tensor(src, "int64"),), kwargs, note=note, extra=extra)

    def _logits(self, rng: np.random.Generator, vocab: int, table: list[dict[int, float]]) -> list[Array]:
        """Logits (V,), of no particular sum, that give these tokens these log-probabilities and share out the rest."""
        said = np.full((len(table), vocab), -np.inf)
        for row, given in zip(said, table):
            row[list(given)] = list(given.values())
        share = rng.dirichlet(np.full(vocab, 30.0), len(table))
        share[:, [PAD, BOS, EOS]] *= 1e-3
        share[np.isfinite(said)] = 0
        left = 1 - np.exp(said).sum(1, keepdims=True)
        rest = np.log(np.maximum(share / share.sum(1, keepdims=True) * left, 1e-12))
        log_p = np.where(np.isfinite(said), said, rest)
        return [tensor(row) for row in log_p + rng.uniform(-6, 6, (len(table), 1))]

    def plan(self, case: Case, plan: Plan) -> dict[str, Any]:
        extra = case.extra
        model = plan.make("scripted", extra["script"], extra["default"], PAD)
        plan.mode(model, extra["training"])
        src = plan.put(case.args[0])
        result = plan.call(ANSWER, model, src, BOS, EOS, extra["max_len"], **case.kwargs)
        return {
            "result": result,
            "log": plan.log(model),
            "after": [plan.look(src)],
            "defaults": plan.defaults(ANSWER),
            "training": plan.look(model.training),
        }

    def judge(self, case: Case, seen: Sight) -> None:
        want = _best(case)
        _judge_ids(seen.result, torch.tensor([want]))
        defaults(seen.defaults, {"beam": 4, "alpha": 0.6})
        unchanged(seen.after, case.args)
        _judge_log(seen, case.extra["training"])
        _judge_encoded(seen)


def _rivals(
    short: int, long: int, total: float, alpha: float, wrong: Any
) -> tuple[tuple[int, float], tuple[int, float]]:
    """Two hypotheses that the right penalty ranks one way and the wrong one the other: halfway between both ties."""

    def right(n: int) -> float:
        return ((5 + n) / 6) ** alpha

    ties = [total * right(short) / right(long), total * wrong(right, short) / wrong(right, long)]
    return (short, sum(ties) / 2), (long, total)


def _best(case: Case) -> list[int]:
    """Beam search over the script in float64: hypotheses are ranked together, ended or not."""
    extra, beam, alpha = case.extra, case.kwargs.get("beam", 4), case.kwargs.get("alpha", 0.6)
    script = {tuple(prefix): _log_softmax(logits) for _, prefix, logits in extra["script"]}
    default = _log_softmax(extra["default"])
    ranked: list[tuple[float, float, tuple[int, ...]]] = [(0.0, 0.0, ())]
    for _ in range(extra["max_len"]):
        pool = [entry for entry in ranked if entry[2][-1:] == (EOS,)]
        if len(pool) == len(ranked):
            break
        for _, total, tokens in (entry for entry in ranked if entry[2][-1:] != (EOS,)):
            penalty = ((5 + len(tokens) + 1) / 6) ** alpha
            for token, gain in enumerate(script.get((BOS, *tokens), default)):
                pool.append(((total + gain) / penalty, total + gain, (*tokens, token)))
        ranked = sorted(pool, reverse=True)[:beam]
    ended = [entry for entry in ranked if entry[2][-1:] == (EOS,)]
    return list(max(ended or ranked)[2])


def _log_softmax(logits: Array) -> list[float]:
    numbers = logits.double()
    return (numbers - np.log(np.exp(numbers).sum())).tolist()


EXERCISES = [
    ShiftTargets(), Transformer(), LabelSmoothedLoss(), NoamRate(), TrainStep(), GreedyDecode(), CachedGreedyDecode(),
    BeamSearch(),
]  # fmt: skip
