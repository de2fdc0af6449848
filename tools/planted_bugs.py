"""Train chapter 8's translator with one planted bug after another, and say what each number would have shown.

    python tools/planted_bugs.py [SEED]

Prints one line a bug for the chapter's table: last training loss, teacher-forced accuracy, greedy exact match, and
whether the leak test finds a look at the future. About six seconds of one core each.
"""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F

from autograder import source
from autograder.course import Project

STEPS, PEAK, WARMUP = 200, 2e-3, 100
MASK = "causal & self.real(tgt)"
CROSS = "self.cross_attention(y, memory, mask=cross_mask, cache=cache)"
OWN = CROSS.replace("memory", "y").replace("cross_mask", "self_mask")
RESIDUAL = "x + self.dropout(sublayer(norm(x)))"
HEADS = "heads = F.scaled_dot_product_attention(Q, K, V, attn_mask=mask)"
AFTER = """heads = (Q @ K.mT / math.sqrt(self.d_k)).softmax(-1)
        heads = (heads if mask is None else heads * mask) @ V"""

# name: edits of solutions/transformer.py, each (old, new); a text instead names a change of the training itself.
BUGS: dict[str, Any] = {
    "none": [],
    "no causal mask": [(MASK, "self.real(tgt)")],
    "the causal mask sees one ahead": [(".tril(m - n)", ".tril(m - n + 1)")],
    "the upper triangle kept": [(".tril(m - n)", ".triu(m - n)")],
    "OR for AND of the masks": [(MASK, MASK.replace("&", "|"))],
    "mask after the softmax": [(HEADS, AFTER)],
    "0/1 mask added to the scores": [(HEADS, HEADS.replace("mask)", "None if mask is None else mask.float())"))],
    "labels not shifted": "labels",
    "softmax before cross-entropy": "softmax",
    "padding counted in the loss": "padding",
    "no label smoothing": "smoothing",
    "no positions": [("return self.position(embedding(ids) * math.sqrt(self.d_model), offset)",
                      "return embedding(ids) * math.sqrt(self.d_model)")],
    "no factor sqrt(d_model)": [("embedding(ids) * math.sqrt(self.d_model)", "embedding(ids)")],
    "no division by sqrt(d_k)": [(HEADS, HEADS.replace("mask)", "mask, scale=1.0)"))],
    "source padding attended to": [("device=tgt.device), self.real(src)", "device=tgt.device), None")],
    "output weight not tied": [("        self.output.weight = self.tgt_embedding.weight", "        pass")],
    "one block N times": [("DecoderBlock(d_model, h, d_ff, dropout, norm) for _ in range(N))",
                           "[DecoderBlock(d_model, h, d_ff, dropout, norm)] * N)")],
    "keys and values of cross-attention from x": [(CROSS, OWN)],
    "no residual connection in the decoder": [(RESIDUAL, RESIDUAL.removeprefix("x + "))],
    "decoding starts with padding": "start",
}


def model_file(project: Project, edits: list[tuple[str, str]]) -> SimpleNamespace:
    """The names of solutions/transformer.py with these edits."""
    text = (project.solutions / "transformer.py").read_text(encoding="utf-8")
    for old, new in edits:
        assert text.count(old) == 1, f"{text.count(old)} times: {old}"
        text = text.replace(old, new)
    names: dict[str, Any] = {"__name__": "transformer"}
    exec(text, names)  # our own file
    return SimpleNamespace(**names)


def task(project: Project) -> SimpleNamespace:
    """What the chapter defines: the grammar, the vocabularies, the data, the batches, the leak test."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in source.load(project, "08_transformer").cells:
        tags = set(cell.metadata.get("tags", []))
        if cell.cell_type == "code" and (not tags or tags == {"setup"} or "train_pairs =" in cell.source):
            exec(cell.source, names)
    return SimpleNamespace(**names)


def loss_of(m: SimpleNamespace, net: Any, src: torch.Tensor, tgt: torch.Tensor, change: Any) -> torch.Tensor:
    logits, labels = net(src, tgt[:, :-1]), tgt[:, :-1] if change == "labels" else tgt[:, 1:]
    if change == "softmax":
        logits = logits.softmax(-1)
    if change == "padding":
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), label_smoothing=0.1)
    return m.label_smoothed_loss(logits, labels, 0, 0.0 if change == "smoothing" else 0.1)


def trained(project: Project, t: SimpleNamespace, change: Any, seed: int) -> tuple[Any, Any, float]:
    m = model_file(project, change if isinstance(change, list) else [])
    torch.manual_seed(seed)
    net = m.Transformer(len(t.source_ids), len(t.target_ids), 64, 4, 2, 256, 0.0, 0, 32, "pre")
    optimizer = torch.optim.AdamW(net.parameters(), lr=PEAK, betas=(0.9, 0.98), eps=1e-9)
    generator, losses = torch.Generator().manual_seed(seed), []
    for step in range(1, STEPS + 1):
        for group in optimizer.param_groups:
            group["lr"] = PEAK * min(step / WARMUP, (WARMUP / step) ** 0.5, 2 * (1 - step / STEPS))
        loss = loss_of(m, net, *t.draw_batch(t.train_pairs, generator), change)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return m, net, sum(losses[-20:]) / 20


def main() -> None:
    torch.set_num_threads(1)
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    project = Project.find(Path(__file__))
    t = task(project)
    test = tuple(ids[:200] for ids in t.test_pairs)
    for name, change in BUGS.items():
        m, net, loss = trained(project, t, change, seed)
        start = 0 if change == "start" else 1
        forced = t.teacher_forced(net, test, copied=change == "labels")
        exact = t.exact_match(m.greedy_decode, net, test, start=start)
        print(f'    ("{name}", {loss:.2f}, {forced:.3f}, {exact:.3f}, {t.leaks(net, t.test_pairs)}),', flush=True)


if __name__ == "__main__":
    main()
