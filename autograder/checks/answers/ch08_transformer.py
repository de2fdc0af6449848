"""Chapter 8: right answers that look different, and the mistakes learners make."""

import functools
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from autograder.checks.catalogue import changed, right, wrong
from autograder.checks.given import DecoderBlock, EncoderBlock, PositionalEncoding, causal_mask, padding_mask

# ---- shift_targets ----------------------------------------------------------------------------------------------------


@right("slices")
def shift_targets(tgt):
    return tgt[:, :-1], tgt[:, 1:]


@right("narrow")
def shift_targets(tgt):
    n = tgt.size(1)
    return tgt.narrow(1, 0, n - 1), tgt.narrow(1, 1, n - 1)


@right("unfold")
def shift_targets(tgt):
    pairs = tgt.unfold(1, 2, 1)
    return pairs[..., 0], pairs[..., 1]


@right("columns put together")
def shift_targets(tgt):
    columns = list(tgt.unbind(dim=1))
    return torch.stack(columns[:-1], dim=1), torch.stack(columns[1:], dim=1)


@right("a list of copies")
def shift_targets(tgt):
    return [tgt[..., :-1].clone(), tgt[..., 1:].contiguous()]


@wrong("swapped", "the two are swapped: the decoder reads from bos on, the labels begin one token later")
def shift_targets(tgt):
    return tgt[:, 1:], tgt[:, :-1]


@wrong("not shifted", "decoder_input and labels are the same: the model would only have to copy what it reads")
def shift_targets(tgt):
    return tgt[:, 1:], tgt[:, 1:]


@wrong("both keep bos", "your labels still begin with bos: they should be what comes one token later")
def shift_targets(tgt):
    return tgt[:, :-1], tgt[:, :-1]


@wrong("nothing cut", "both have n columns; the last token is never read and the first never predicted: n - 1 each")
def shift_targets(tgt):
    return tgt, tgt


@wrong("rolled", "torch.roll brings bos to the end of the labels; cut the first column off instead")
def shift_targets(tgt):
    return tgt, tgt.roll(-1, dims=1)


@wrong("the wrong axis", "you cut the first and the last sentence of the batch; the positions are axis 1")
def shift_targets(tgt):
    return tgt[:-1], tgt[1:]


@wrong("shifted by two", "your labels are two tokens later than the input; the next token is one later")
def shift_targets(tgt):
    return tgt[:, :-2], tgt[:, 2:]


@wrong("only the labels cut", "decoder_input should lose its last column, so that it is as long as the labels")
def shift_targets(tgt):
    return tgt, tgt[:, 1:]


@right("index_select")
def shift_targets(tgt):
    places = torch.arange(tgt.size(1) - 1)
    return tgt.index_select(1, places), tgt.index_select(1, places + 1)


@right("split off")
def shift_targets(tgt):
    n = tgt.size(-1)
    decoder_input, _ = torch.split(tgt, [n - 1, 1], dim=-1)
    _, labels = torch.tensor_split(tgt, [1], dim=-1)
    return decoder_input, labels


@right("lists")
def shift_targets(tgt):
    rows = tgt.tolist()
    return tgt.new_tensor([row[:-1] for row in rows]), tgt.new_tensor([row[1:] for row in rows])


@wrong("only the input cut", "the labels should lose their first column, bos: they are what comes one token later")
def shift_targets(tgt):
    return tgt[:, :-1], tgt


@wrong("eos cut from both", "both lose bos and the last column: the decoder reads from bos on, and is asked for the last token, too")
def shift_targets(tgt):
    return tgt[:, 1:-1], tgt[:, 1:-1]


@wrong("padded back to n", "you put a column of zeros in where one was cut; both are n - 1 long")
def shift_targets(tgt):
    zeros = torch.zeros_like(tgt[:, :1])
    return tgt, torch.cat([tgt[:, 1:], zeros], dim=1)


@wrong("changed in place", "you write into the caller's tgt; it is needed again")
def shift_targets(tgt):
    labels = tgt[:, 1:].clone()
    tgt[:, -1] = 0
    return tgt[:, :-1], labels


@wrong("eos taken out of the input", "decoder_input keeps every id but the last column's: where a sentence is shorter, its eos is read, too")
def shift_targets(tgt):
    decoder_input = tgt[:, :-1]
    return decoder_input.masked_fill(decoder_input == 2, 0), tgt[:, 1:]


@wrong("bos written in as 1", "you put the id 1 in front; bos is the first id of each row, whatever number it is")
def shift_targets(tgt):
    labels = tgt[:, 1:]
    return torch.cat([torch.ones_like(tgt[:, :1]), labels[:, :-1]], dim=1), labels


@wrong("floats", "token ids stay whole numbers: an embedding takes no floats")
def shift_targets(tgt):
    return tgt[:, :-1].float(), tgt[:, 1:].float()


# ---- Transformer ------------------------------------------------------------------------------------------------------


def initialise(model, d_model):  # as the chapter hands it out
    tables = model.src_embedding.weight, model.tgt_embedding.weight
    for parameter in model.parameters():
        if any(parameter is table for table in tables):
            nn.init.normal_(parameter, std=d_model**-0.5)
        elif parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter)


@right("loops")
class Transformer(nn.Module):
    def __init__(self, src_vocab, tgt_vocab, d_model=512, h=8, N=6, d_ff=2048, dropout=0.1, pad_id=0, max_len=512, norm="post"):
        super().__init__()
        if norm not in ("post", "pre"):
            raise ValueError("norm is 'post' or 'pre'")
        self.pad_id = pad_id
        self.src_embedding = nn.Embedding(src_vocab, d_model)
        self.tgt_embedding = nn.Embedding(tgt_vocab, d_model)
        self.position = PositionalEncoding(d_model, max_len, dropout)
        self.encoder = nn.ModuleList([EncoderBlock(d_model, h, d_ff, dropout, norm) for _ in range(N)])
        self.decoder = nn.ModuleList([DecoderBlock(d_model, h, d_ff, dropout, norm) for _ in range(N)])
        self.encoder_norm = nn.LayerNorm(d_model) if norm == "pre" else None
        self.decoder_norm = nn.LayerNorm(d_model) if norm == "pre" else None
        self.output = nn.Linear(d_model, tgt_vocab, bias=False)
        self.output.weight = self.tgt_embedding.weight
        initialise(self, d_model)

    def embed(self, table, ids):
        return self.position(table(ids) * math.sqrt(table.embedding_dim))

    def encode(self, src):
        x = self.embed(self.src_embedding, src)
        src_mask = padding_mask(src, self.pad_id)
        for block in self.encoder:
            x = block(x, src_mask)
        if self.encoder_norm is not None:
            x = self.encoder_norm(x)
        return x

    def decode(self, tgt, memory, src):
        y = self.embed(self.tgt_embedding, tgt)
        self_mask = causal_mask(tgt.shape[1], device=tgt.device) & padding_mask(tgt, self.pad_id)
        cross_mask = padding_mask(src, self.pad_id)
        for block in self.decoder:
            y = block(y, memory, self_mask, cross_mask)
        if self.decoder_norm is not None:
            y = self.decoder_norm(y)
        return self.output(y)

    def forward(self, src, tgt):
        return self.decode(tgt, self.encode(src), src)


_model = functools.partial(changed, Transformer)
_model("no sqrt(d_model)", "the embeddings are not multiplied by sqrt(d_model) before the positions are added",
       (" * math.sqrt(table.embedding_dim)", ""))
_model("positions scaled, too", "the sum was multiplied by sqrt(d_model); only the embedding is, before positions are added",
       ("self.position(table(ids) * math.sqrt(table.embedding_dim))", "self.position(table(ids)) * math.sqrt(table.embedding_dim)"))
_model("divided by sqrt(d_model)", "the embeddings are divided by sqrt(d_model); they are multiplied by it",
       ("(ids) * math", "(ids) / math"))
_model("no positions", "no positions are added: the model can't tell one order of the tokens from another",
       ("self.position(table(ids) * math.sqrt(table.embedding_dim))", "table(ids) * math.sqrt(table.embedding_dim)"))
_model("not causal", "the decoder sees later target tokens: its self-attention needs the causal mask",
       ("causal_mask(tgt.shape[1], device=tgt.device) & padding_mask(tgt, self.pad_id)", "padding_mask(tgt, self.pad_id)"))
_model("causal mask transposed", "the causal mask is the wrong way round: each token sees only itself and later ones",
       ("causal_mask(tgt.shape[1], device=tgt.device) &", "causal_mask(tgt.shape[1], device=tgt.device).T &"))
_model("or for and", "the two masks are joined with |: a key may be seen only if both allow it",
       ("tgt.device) & padding", "tgt.device) | padding"))
_model("source padding seen by the encoder", "the encoder attends to the source's padding: hand its mask to the blocks",
       ("block(x, src_mask)", "block(x)"))
_model("source padding seen by the decoder", "cross-attention sees the source's padding: hand cross_mask to the blocks",
       ("block(y, memory, self_mask, cross_mask)", "block(y, memory, self_mask)"))
_model("masks swapped", "the decoder block got its two masks the wrong way round",
       ("block(y, memory, self_mask, cross_mask)", "block(y, memory, cross_mask, self_mask)"))
_model("tied by copy", "output.weight is a copy of tgt_embedding.weight; make it the same tensor, or they drift apart",
       ("        self.output.weight = self.tgt_embedding.weight\n        initialise(self, d_model)\n",
        "        initialise(self, d_model)\n        self.output.weight = nn.Parameter(self.tgt_embedding.weight.detach().clone())\n"))
_model("not tied", "output.weight is a tensor of its own: set it to tgt_embedding.weight itself, not to a copy",
       ("        self.output.weight = self.tgt_embedding.weight\n", ""))
_model("output bias", "output should have no bias, only the embedding's weight",
       ("tgt_vocab, bias=False)", "tgt_vocab)"))
_model("source table tied, too", "src_embedding shares the target's table; in this exercise it has its own",
       ("self.output = nn", "self.src_embedding.weight = self.tgt_embedding.weight\n        self.output = nn"))
_model("one block N times", "[block] * N is one block with N names: all layers share their weights",
       ("[EncoderBlock(d_model, h, d_ff, dropout, norm) for _ in range(N)]", "[EncoderBlock(d_model, h, d_ff, dropout, norm)] * N"),
       ("[DecoderBlock(d_model, h, d_ff, dropout, norm) for _ in range(N)]", "[DecoderBlock(d_model, h, d_ff, dropout, norm)] * N"))
_model("plain lists", "the blocks are in a plain list: their weights are no parameters of the model; use nn.ModuleList",
       ("nn.ModuleList([EncoderBlock(d_model, h, d_ff, dropout, norm) for _ in range(N)])", "[EncoderBlock(d_model, h, d_ff, dropout, norm) for _ in range(N)]"),
       ("nn.ModuleList([DecoderBlock(d_model, h, d_ff, dropout, norm) for _ in range(N)])", "[DecoderBlock(d_model, h, d_ff, dropout, norm) for _ in range(N)]"))
_model("softmax at the end", "decode returns probabilities; return logits: cross-entropy takes the softmax itself",
       ("return self.output(y)", "return self.output(y).softmax(dim=-1)"))
_model("log_softmax at the end", "decode returns log-probabilities; return the logits as they are",
       ("return self.output(y)", "return self.output(y).log_softmax(dim=-1)"))
_model("final norms missing", 'with norm="pre" the encoder and the decoder each end with a LayerNorm of their own: yours are not applied',
       ("            x = self.encoder_norm(x)", "            pass"), ("            y = self.decoder_norm(y)", "            pass"))
_model("no final norms at all", 'with norm="pre" there should be an encoder_norm and a decoder_norm',
       ('self.encoder_norm = nn.LayerNorm(d_model) if norm == "pre" else None', "self.encoder_norm = None"),
       ('self.decoder_norm = nn.LayerNorm(d_model) if norm == "pre" else None', "self.decoder_norm = None"))
_model("final norms in post-LN, too", 'with norm="post" every block ends with a norm already: no final norm',
       ('self.encoder_norm = nn.LayerNorm(d_model) if norm == "pre" else None', "self.encoder_norm = nn.LayerNorm(d_model)"),
       ('self.decoder_norm = nn.LayerNorm(d_model) if norm == "pre" else None', "self.decoder_norm = nn.LayerNorm(d_model)"))
_model("norm not passed on", "norm is not handed to the blocks: they are post-LN whatever is asked",
       ("[EncoderBlock(d_model, h, d_ff, dropout, norm)", "[EncoderBlock(d_model, h, d_ff, dropout)"),
       ("[DecoderBlock(d_model, h, d_ff, dropout, norm)", "[DecoderBlock(d_model, h, d_ff, dropout)"))
_model("dropout not passed on", "dropout is not handed to the blocks: they use their own default",
       ("[EncoderBlock(d_model, h, d_ff, dropout, norm)", "[EncoderBlock(d_model, h, d_ff, norm=norm)"),
       ("[DecoderBlock(d_model, h, d_ff, dropout, norm)", "[DecoderBlock(d_model, h, d_ff, norm=norm)"))
_model("no dropout on the embeddings", "hand dropout to PositionalEncoding as well: it drops from embeddings plus positions",
       ("PositionalEncoding(d_model, max_len, dropout)", "PositionalEncoding(d_model, max_len)"))
_model("max_len not passed on", "max_len is not handed to PositionalEncoding: a longer sequence should raise a ValueError",
       ("PositionalEncoding(d_model, max_len, dropout)", "PositionalEncoding(d_model, dropout=dropout)"))
_model("pad_id 0 written in", "the masks look for the id 0; the id of padding is self.pad_id",
       ("padding_mask(src, self.pad_id)\n        for block in self.encoder", "padding_mask(src, 0)\n        for block in self.encoder"),
       ("cross_mask = padding_mask(src, self.pad_id)", "cross_mask = padding_mask(src, 0)"))
_model("mask on the CPU", "the causal mask is made on the CPU whatever the device of the ids: causal_mask(n, device=tgt.device)",
       ("causal_mask(tgt.shape[1], device=tgt.device)", "causal_mask(tgt.shape[1])"))
_model("memory after one block only", "every encoder block should run, each on the output of the one before it",
       ("x = block(x, src_mask)", "memory = block(x, src_mask)"), ("x = self.encoder_norm(x)", "memory = self.encoder_norm(x)"),
       ("        return x\n", "        return memory\n"))
_model("vocabularies swapped", "src_embedding has tgt_vocab rows and the other way round",
       ("self.src_embedding = nn.Embedding(src_vocab", "self.src_embedding = nn.Embedding(tgt_vocab"),
       ("self.tgt_embedding = nn.Embedding(tgt_vocab", "self.tgt_embedding = nn.Embedding(src_vocab"),
       ("nn.Linear(d_model, tgt_vocab", "nn.Linear(d_model, src_vocab"))
_model("h and N swapped", "h and N are mixed up: N blocks of h heads",
       ("[EncoderBlock(d_model, h, d_ff, dropout, norm) for _ in range(N)]", "[EncoderBlock(d_model, N, d_ff, dropout, norm) for _ in range(h)]"),
       ("[DecoderBlock(d_model, h, d_ff, dropout, norm) for _ in range(N)]", "[DecoderBlock(d_model, N, d_ff, dropout, norm) for _ in range(h)]"))
_model("not initialised", "initialise(self, d_model), the last line of __init__, is gone: the embeddings are too large for the positions",
       ("        initialise(self, d_model)\n", ""))
_model("tied after initialise, the wrong way", "you tie after initialise, and give the embedding the output's own numbers, which are small: tie before it",
       ("        self.output.weight = self.tgt_embedding.weight\n        initialise(self, d_model)\n",
        "        initialise(self, d_model)\n        self.tgt_embedding.weight = self.output.weight\n"))
_model("dropout on the target twice", "PositionalEncoding drops from the target's embeddings already; yours drop a second time",
       ("self.output = nn", "self.dropout = nn.Dropout(dropout)\n        self.output = nn"),
       ("y = self.embed(self.tgt_embedding, tgt)", "y = self.dropout(self.embed(self.tgt_embedding, tgt))"))
_model("pad_id 0 written in everywhere", "all your masks look for the id 0; the id of padding is self.pad_id",
       ("padding_mask(src, self.pad_id)\n        for block in self.encoder", "padding_mask(src, 0)\n        for block in self.encoder"),
       ("cross_mask = padding_mask(src, self.pad_id)", "cross_mask = padding_mask(src, 0)"),
       ("padding_mask(tgt, self.pad_id)", "padding_mask(tgt, 0)"))
_model("pad_id 0 in the target's mask", "the mask of the target's padding looks for the id 0; the id of padding is self.pad_id",
       ("padding_mask(tgt, self.pad_id)", "padding_mask(tgt, 0)"))
_model("dropout not passed to the decoder", "dropout is not handed to the decoder's blocks: they use their own default",
       ("[DecoderBlock(d_model, h, d_ff, dropout, norm)", "[DecoderBlock(d_model, h, d_ff, norm=norm)"))
_model("dropout not passed to the encoder", "dropout is not handed to the encoder's blocks: they use their own default",
       ("[EncoderBlock(d_model, h, d_ff, dropout, norm)", "[EncoderBlock(d_model, h, d_ff, norm=norm)"))
_model("no positions in the decoder", "the decoder's tokens get no positions: both sides need them",
       ("y = self.embed(self.tgt_embedding, tgt)", "y = self.tgt_embedding(tgt) * math.sqrt(self.tgt_embedding.embedding_dim)"))
_model("no positions in the encoder", "the encoder's tokens get no positions: both sides need them",
       ("x = self.embed(self.src_embedding, src)", "x = self.src_embedding(src) * math.sqrt(self.src_embedding.embedding_dim)"))
_model("sqrt(d_model) in the encoder alone", "only the source's embeddings are multiplied by sqrt(d_model); the target's are, too",
       ("y = self.embed(self.tgt_embedding, tgt)", "y = self.position(self.tgt_embedding(tgt))"))
_model("sqrt(d_model) in the decoder alone", "only the target's embeddings are multiplied by sqrt(d_model); the source's are, too",
       ("x = self.embed(self.src_embedding, src)", "x = self.position(self.src_embedding(src))"))
_model("causal encoder", "the encoder got a causal mask; it may look both ways and needs the source's padding mask alone",
       ("src_mask = padding_mask(src, self.pad_id)", "src_mask = causal_mask(src.shape[1], device=src.device) & padding_mask(src, self.pad_id)"))
_model("no norm after the encoder", 'with norm="pre" the memory goes through encoder_norm; yours does not',
       ("            x = self.encoder_norm(x)", "            pass"))
_model("no norm after the decoder", 'with norm="pre" what the last decoder block gives goes through decoder_norm; yours does not',
       ("            y = self.decoder_norm(y)", "            pass"))
_model("one final norm for both", "encoder_norm and decoder_norm are one and the same module; each stack has its own",
       ('self.decoder_norm = nn.LayerNorm(d_model) if norm == "pre" else None', "self.decoder_norm = self.encoder_norm"))
_model("norm not passed to the encoder", "norm is not handed to the encoder's blocks: they are post-LN whatever is asked",
       ("[EncoderBlock(d_model, h, d_ff, dropout, norm)", "[EncoderBlock(d_model, h, d_ff, dropout)"))
_model("norm not passed to the decoder", "norm is not handed to the decoder's blocks: they are post-LN whatever is asked",
       ("[DecoderBlock(d_model, h, d_ff, dropout, norm)", "[DecoderBlock(d_model, h, d_ff, dropout)"))
_model("detached memory", "no gradient reaches the encoder: the memory is detached on its way into the decoder",
       ("self.decode(tgt, self.encode(src), src)", "self.decode(tgt, self.encode(src).detach(), src)"))


@right("as the file of the course")
class Transformer(nn.Module):
    def __init__(self, src_vocab, tgt_vocab, d_model=512, h=8, N=6, d_ff=2048, dropout=0.1, pad_id=0, max_len=512, norm="post"):
        super().__init__()
        self.pad_id, self.d_model = pad_id, d_model
        if norm != "post" and norm != "pre":
            raise ValueError(norm)
        self.src_embedding, self.tgt_embedding = nn.Embedding(src_vocab, d_model), nn.Embedding(tgt_vocab, d_model)
        self.position = PositionalEncoding(d_model, max_len, dropout)
        self.encoder = nn.ModuleList(EncoderBlock(d_model, h, d_ff, dropout, norm) for _ in range(N))
        self.decoder = nn.ModuleList(DecoderBlock(d_model, h, d_ff, dropout, norm) for _ in range(N))
        final = nn.LayerNorm if norm == "pre" else nn.Identity
        self.encoder_norm, self.decoder_norm = final(d_model), final(d_model)
        self.output = nn.Linear(d_model, tgt_vocab, bias=False)
        self.tgt_embedding.weight = self.output.weight
        initialise(self, d_model)

    def encode(self, src):
        x = self.position(self.d_model**0.5 * self.src_embedding(src))
        mask = (src != self.pad_id)[:, None, None, :]
        for block in self.encoder:
            x = block(x, mask)
        return self.encoder_norm(x)

    def decode(self, tgt, memory, src):
        n = tgt.shape[1]
        causal = torch.arange(n, device=tgt.device)[:, None] >= torch.arange(n, device=tgt.device)
        x = self.position(self.d_model**0.5 * self.tgt_embedding(tgt))
        for block in self.decoder:
            x = block(x, memory, causal, (src != self.pad_id)[:, None, None, :])
        return self.output(self.decoder_norm(x))

    def forward(self, src, tgt):
        memory = self.encode(src)
        return self.decode(tgt, memory, src)


@right("no mask for the target's padding")
class Transformer(nn.Module):
    def __init__(self, src_vocab, tgt_vocab, d_model=512, h=8, N=6, d_ff=2048, dropout=0.1, pad_id=0, max_len=512, norm="post"):
        super().__init__()
        if norm not in {"pre", "post"}:
            raise ValueError("norm")
        self.pad_id, self.scale, self.norm = pad_id, math.sqrt(d_model), norm
        self.src_embedding = nn.Embedding(src_vocab, d_model, padding_idx=pad_id)
        self.tgt_embedding = nn.Embedding(tgt_vocab, d_model)
        self.position = PositionalEncoding(d_model, max_len, dropout)
        blocks = dict(d_model=d_model, h=h, d_ff=d_ff, dropout=dropout, norm=norm)
        self.encoder, self.decoder = nn.ModuleList(), nn.ModuleList()
        for _ in range(N):
            self.encoder.append(EncoderBlock(**blocks))
            self.decoder.append(DecoderBlock(**blocks))
        if norm == "pre":
            self.encoder_norm = nn.LayerNorm(d_model)
            self.decoder_norm = nn.LayerNorm(d_model)
        self.output = nn.Linear(d_model, tgt_vocab, bias=False)
        self.output.weight = self.tgt_embedding.weight
        initialise(self, d_model)

    def encode(self, src):
        x = self.position(self.src_embedding(src) * self.scale)
        for block in self.encoder:
            x = block(x, padding_mask(src, self.pad_id))
        return self.encoder_norm(x) if self.norm == "pre" else x

    def decode(self, tgt, memory, src):
        x = self.position(self.tgt_embedding(tgt) * self.scale)
        for block in self.decoder:
            x = block(x, memory, causal_mask(tgt.size(1)).to(tgt.device), padding_mask(src, self.pad_id))
        x = self.decoder_norm(x) if self.norm == "pre" else x
        return F.linear(x, self.output.weight)

    def forward(self, src, tgt):
        return self.decode(tgt, self.encode(src), src)


@right("masks as 0 and 1, torch's own helper, own length check")
class Transformer(nn.Module):
    def __init__(self, src_vocab, tgt_vocab, d_model=512, h=8, N=6, d_ff=2048, dropout=0.1, pad_id=0, max_len=512, norm="post"):
        super().__init__()
        self.pad_id, self.max_len = pad_id, max_len
        self.src_embedding = nn.Embedding(src_vocab, d_model)
        self.tgt_embedding = nn.Embedding(tgt_vocab, d_model)
        self.position = PositionalEncoding(d_model, dropout=dropout)
        self.encoder = nn.ModuleList(EncoderBlock(d_model, h, d_ff, dropout, norm) for _ in range(N))
        self.decoder = nn.ModuleList(DecoderBlock(d_model, h, d_ff, dropout, norm) for _ in range(N))
        self.encoder_norm = nn.LayerNorm(d_model) if norm == "pre" else nn.Identity()
        self.decoder_norm = nn.LayerNorm(d_model) if norm == "pre" else nn.Identity()
        self.output = nn.Linear(d_model, tgt_vocab, bias=False)
        self.output.weight = self.tgt_embedding.weight
        self.register_buffer("scale", torch.tensor(float(d_model)).sqrt())
        initialise(self, d_model)

    def start(self, table, ids):
        if ids.shape[1] > self.max_len:
            raise ValueError("longer than max_len")
        return self.position(table(ids) * self.scale)

    def encode(self, src):
        x, mask = self.start(self.src_embedding, src), src.ne(self.pad_id).long()[:, None, None]
        for block in self.encoder:
            x = block(x, mask)
        return self.encoder_norm(x)

    def decode(self, tgt, memory, src):
        x, n = self.start(self.tgt_embedding, tgt), tgt.shape[1]
        future = torch.ones(n, n, device=tgt.device).triu(1)
        for block in self.decoder:
            x = block(x, memory, 1 - future, src.ne(self.pad_id).long()[:, None, None])
        return self.output(self.decoder_norm(x))

    def forward(self, src, tgt):
        return self.decode(tgt, self.encode(src), src)


@right("a subclass of its own parts, masks of rank 3")
class Transformer(nn.Module):
    def __init__(self, src_vocab, tgt_vocab, d_model=512, h=8, N=6, d_ff=2048, dropout=0.1, pad_id=0, max_len=512, norm="post"):
        super().__init__()
        self.pad_id = pad_id
        self.d_model = d_model
        self.output = nn.Linear(d_model, tgt_vocab, bias=False)
        self.tgt_embedding = nn.Embedding.from_pretrained(self.output.weight, freeze=False)
        self.tgt_embedding.weight = self.output.weight
        self.src_embedding = nn.Embedding(src_vocab, d_model)
        self.position = PositionalEncoding(d_model, max_len=max_len, dropout=dropout)
        self.encoder = nn.ModuleList([EncoderBlock(d_model, h, d_ff, dropout, norm=norm) for i in range(N)])
        self.decoder = nn.ModuleList([DecoderBlock(d_model, h, d_ff, dropout, norm=norm) for i in range(N)])
        self.encoder_norm = self.decoder_norm = None
        if norm == "pre":
            self.encoder_norm, self.decoder_norm = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        initialise(self, d_model)

    def encode(self, src):
        x = self.src_embedding(src) * math.sqrt(self.d_model)
        x = self.position(x)
        keep = (src != self.pad_id)[:, None, :].expand(-1, src.shape[1], -1)
        for block in self.encoder:
            x = block(x, keep)
        return x if self.encoder_norm is None else self.encoder_norm(x)

    def decode(self, tgt, memory, src):
        x = self.tgt_embedding(tgt) * math.sqrt(self.d_model)
        x = self.position(x)
        n = tgt.shape[1]
        keep = torch.ones(len(tgt), n, n, dtype=torch.bool, device=tgt.device).tril()
        cross = (src != self.pad_id)[:, None, :].expand(-1, n, -1)
        for block in self.decoder:
            x = block(x, memory, self_mask=keep, cross_mask=cross)
        return self.output(x if self.decoder_norm is None else self.decoder_norm(x))

    def forward(self, src, tgt):
        return self.decode(tgt, self.encode(src), src)


@right("forward first, embedding twice through F")
class Transformer(nn.Module):
    def __init__(self, src_vocab, tgt_vocab, d_model=512, h=8, N=6, d_ff=2048, dropout=0.1, pad_id=0, max_len=512, norm="post"):
        nn.Module.__init__(self)
        self.pad_id, self.d_model, self.norm = pad_id, d_model, norm
        self.src_embedding, self.tgt_embedding = (nn.Embedding(size, d_model) for size in (src_vocab, tgt_vocab))
        self.position = PositionalEncoding(d_model, max_len, dropout)
        self.add_module("encoder", nn.ModuleList(EncoderBlock(d_model, h, d_ff, dropout, norm) for _ in range(N)))
        self.add_module("decoder", nn.ModuleList(DecoderBlock(d_model, h, d_ff, dropout, norm) for _ in range(N)))
        self.encoder_norm = nn.LayerNorm(d_model) if norm == "pre" else (lambda x: x)
        self.decoder_norm = nn.LayerNorm(d_model) if norm == "pre" else (lambda x: x)
        self.output = nn.Linear(d_model, tgt_vocab, bias=False)
        self.output.weight = self.tgt_embedding.weight
        initialise(self, d_model)

    def forward(self, src, tgt):
        return self.decode(tgt, self.encode(src), src)

    def encode(self, src):
        x = self.position(F.embedding(src, self.src_embedding.weight) * self.d_model**0.5)
        for i in range(len(self.encoder)):
            x = self.encoder[i](x, padding_mask(src, self.pad_id))
        return self.encoder_norm(x)

    def decode(self, tgt, memory, src):
        x = self.position(F.embedding(tgt, self.tgt_embedding.weight) * self.d_model**0.5)
        mask = torch.logical_and(causal_mask(tgt.shape[1], device=tgt.device), padding_mask(tgt, self.pad_id))
        for i in range(len(self.decoder)):
            x = self.decoder[i](x, memory, mask, padding_mask(src, self.pad_id))
        return self.output(self.decoder_norm(x))


@right("output by hand")
class Transformer(nn.Module):
    def __init__(self, src_vocab, tgt_vocab, d_model=512, h=8, N=6, d_ff=2048, dropout=0.1, pad_id=0, max_len=512, norm="post"):
        super().__init__()
        self.src_embedding = nn.Embedding(src_vocab, d_model)
        self.tgt_embedding = nn.Embedding(tgt_vocab, d_model)
        self.output = nn.Linear(d_model, tgt_vocab, bias=False)
        self.output.weight = self.tgt_embedding.weight
        self.position = PositionalEncoding(d_model, max_len, dropout)
        encoder, decoder = [], []
        for _ in range(N):
            encoder += [EncoderBlock(d_model, h, d_ff, dropout, norm)]
            decoder += [DecoderBlock(d_model, h, d_ff, dropout, norm)]
        self.encoder, self.decoder = nn.ModuleList(encoder), nn.ModuleList(decoder)
        self.pre, self.pad_id = norm == "pre", pad_id
        if self.pre:
            self.encoder_norm, self.decoder_norm = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        initialise(self, d_model)

    def encode(self, src):
        x = self.src_embedding(src)
        x = self.position(x.mul(x.shape[-1] ** 0.5))
        for layer in self.encoder:
            x = layer(x, mask=padding_mask(src, self.pad_id))
        if self.pre:
            return self.encoder_norm(x)
        return x

    def decode(self, tgt, memory, src):
        x = self.tgt_embedding(tgt)
        x = self.position(x.mul(x.shape[-1] ** 0.5))
        future = torch.triu(torch.ones_like(tgt[0]).bool().repeat(tgt.shape[1], 1), 1)
        for layer in self.decoder:
            x = layer(x, memory, ~future, padding_mask(src, self.pad_id))
        if self.pre:
            x = self.decoder_norm(x)
        return x @ self.tgt_embedding.weight.T

    def forward(self, src, tgt):
        return self.decode(tgt, self.encode(src), src)


@right("float masks of ones and zeros multiplied")
class Transformer(nn.Module):
    def __init__(self, src_vocab, tgt_vocab, d_model=512, h=8, N=6, d_ff=2048, dropout=0.1, pad_id=0, max_len=512, norm="post"):
        super().__init__()
        assert h > 0
        if norm != "pre" and norm != "post":
            raise ValueError("norm should be pre or post")
        self.pad_id = pad_id
        self.d_model = d_model
        self.src_embedding = nn.Embedding(src_vocab, d_model)
        self.tgt_embedding = nn.Embedding(tgt_vocab, d_model)
        self.position = PositionalEncoding(d_model, max_len, dropout)
        self.encoder = nn.ModuleList([EncoderBlock(d_model, h, d_ff, dropout, norm) for _ in range(N)])
        self.decoder = nn.ModuleList([DecoderBlock(d_model, h, d_ff, dropout, norm) for _ in range(N)])
        self.encoder_norm = None if norm == "post" else nn.LayerNorm(d_model, eps=1e-5)
        self.decoder_norm = None if norm == "post" else nn.LayerNorm(d_model, eps=1e-5)
        self.output = nn.Linear(d_model, tgt_vocab, False)
        self.output.weight = self.tgt_embedding.weight
        initialise(self, d_model)

    def source_mask(self, src):
        return (src != self.pad_id).unsqueeze(1).unsqueeze(2)

    def target_mask(self, tgt):
        look_back = torch.tril(torch.ones((tgt.shape[1], tgt.shape[1]), dtype=torch.int64, device=tgt.device))
        return (look_back * (tgt != self.pad_id).unsqueeze(1).unsqueeze(2)).bool()

    def encode(self, src):
        x = self.position(self.src_embedding(src) * np.sqrt(self.d_model))
        for block in self.encoder:
            x = block(x, self.source_mask(src))
        return self.encoder_norm(x) if self.encoder_norm else x

    def decode(self, tgt, memory, src):
        x = self.position(self.tgt_embedding(tgt) * np.sqrt(self.d_model))
        for block in self.decoder:
            x = block(x, memory, self.target_mask(tgt), self.source_mask(src))
        return self.output(self.decoder_norm(x) if self.decoder_norm else x)

    def forward(self, src, tgt):
        return self.decode(tgt, self.encode(src), src)


# ---- label_smoothed_loss ----------------------------------------------------------------------------------------------


@right("torch")
def label_smoothed_loss(logits, labels, pad_id, smoothing=0.1):
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=pad_id, label_smoothing=smoothing)


@right("classes second")
def label_smoothed_loss(logits, labels, pad_id, smoothing=0.1):
    return F.cross_entropy(logits.transpose(1, 2), labels, ignore_index=pad_id, label_smoothing=smoothing)


@right("nn.CrossEntropyLoss")
def label_smoothed_loss(logits, labels, pad_id, smoothing=0.1):
    loss = nn.CrossEntropyLoss(ignore_index=pad_id, label_smoothing=smoothing)
    return loss(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1))


@right("by hand")
def label_smoothed_loss(logits, labels, pad_id, smoothing=0.1):
    log_p = logits.log_softmax(dim=-1)
    hit = log_p.gather(-1, labels[..., None])[..., 0]
    loss = -(1 - smoothing) * hit - smoothing * log_p.mean(dim=-1)
    keep = labels != pad_id
    return (loss * keep).sum() / keep.sum()


@right("one-hot targets")
def label_smoothed_loss(logits, labels, pad_id, smoothing=0.1):
    V = logits.shape[-1]
    target = F.one_hot(labels, V).to(logits.dtype) * (1 - smoothing) + smoothing / V
    return -(target * logits.log_softmax(-1)).sum(-1)[labels != pad_id].mean()


@right("whole numbers times 0.9")
def label_smoothed_loss(logits, labels, pad_id, smoothing=0.1):
    V = logits.shape[-1]
    target = F.one_hot(labels, V) * (1 - smoothing) + smoothing / V
    loss = -(target * logits.log_softmax(dim=-1)).sum(dim=-1)
    real = labels != pad_id
    return (loss * real).sum() / real.sum()


@right("padding taken out first")
def label_smoothed_loss(logits, labels, pad_id, smoothing=0.1):
    keep = labels != pad_id
    return F.cross_entropy(logits[keep], labels[keep], label_smoothing=smoothing)


@right("probabilities as targets")
def label_smoothed_loss(logits, labels, pad_id, smoothing=0.1):
    keep = labels.ne(pad_id)
    V = logits.size(-1)
    target = torch.full_like(logits[keep], smoothing / V)
    target.scatter_add_(1, labels[keep][:, None], torch.full_like(target[:, :1], 1 - smoothing))
    return F.cross_entropy(logits[keep], target)


@right("logsumexp and einsum")
def label_smoothed_loss(logits, labels, pad_id, smoothing=0.1):
    B, n, V = logits.shape
    target = torch.full((B, n, V), smoothing / V, dtype=logits.dtype, device=logits.device)
    target.scatter_(2, labels.unsqueeze(2), 1 - smoothing + smoothing / V)
    each = logits.logsumexp(-1) - torch.einsum("bnv,bnv->bn", target, logits)
    return each.masked_select(labels != pad_id).mean()


@right("a loop over tokens")
def label_smoothed_loss(logits, labels, pad_id, smoothing=0.1):
    losses = []
    for row, label in zip(logits.flatten(0, 1), labels.flatten()):
        if label != pad_id:
            log_p = F.log_softmax(row, dim=0)
            losses.append(-(1 - smoothing) * log_p[label] - smoothing * log_p.mean())
    return torch.stack(losses).mean()


@right("sum, then divided")
def label_smoothed_loss(logits, labels, pad_id, smoothing=0.1):
    total = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=pad_id, label_smoothing=smoothing, reduction="sum")
    return total / (labels != pad_id).sum()


@wrong("padding counted", "padding counts in your loss: leave the labels that are pad_id out (ignore_index)")
def label_smoothed_loss(logits, labels, pad_id, smoothing=0.1):
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), label_smoothing=smoothing)


@wrong("divided by all labels", "the sum leaves padding out, but it is divided by the number of all labels, padding with them")
def label_smoothed_loss(logits, labels, pad_id, smoothing=0.1):
    total = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=pad_id, label_smoothing=smoothing, reduction="sum")
    return total / labels.numel()


@wrong("softmax first", "you took softmax before the cross-entropy, which takes it again: hand it the logits")
def label_smoothed_loss(logits, labels, pad_id, smoothing=0.1):
    return F.cross_entropy(logits.softmax(-1).flatten(0, 1), labels.flatten(), ignore_index=pad_id, label_smoothing=smoothing)


@wrong("no smoothing", "smoothing has no effect on your loss")
def label_smoothed_loss(logits, labels, pad_id, smoothing=0.1):
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=pad_id)


@wrong("smoothing always 0.1", "your loss smooths by 0.1, whatever smoothing is")
def label_smoothed_loss(logits, labels, pad_id, smoothing=0.1):
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=pad_id, label_smoothing=0.1)


@wrong("smoothing over V - 1", "smoothing is spread over the V - 1 wrong tokens; torch spreads it over all V, the right one with them")
def label_smoothed_loss(logits, labels, pad_id, smoothing=0.1):
    V = logits.shape[-1]
    target = torch.full_like(logits, smoothing / (V - 1)).scatter(-1, labels[..., None], 1 - smoothing)
    return -(target * logits.log_softmax(-1)).sum(-1)[labels != pad_id].mean()


@wrong("smoothing over V - 2", "smoothing is spread over V - 2 tokens, without label and padding; torch spreads it over all V")
def label_smoothed_loss(logits, labels, pad_id, smoothing=0.1):
    V = logits.shape[-1]
    target = torch.full_like(logits, smoothing / (V - 2)).scatter(-1, labels[..., None], 1 - smoothing)
    target[..., pad_id] = 0
    return -(target * logits.log_softmax(-1)).sum(-1)[labels != pad_id].mean()


@wrong("label not smoothed", "the label's own weight stays 1: it should lose smoothing before eps / V is added")
def label_smoothed_loss(logits, labels, pad_id, smoothing=0.1):
    log_p = logits.log_softmax(dim=-1)
    loss = -log_p.gather(-1, labels[..., None])[..., 0] - smoothing * log_p.mean(dim=-1)
    return loss[labels != pad_id].mean()


@wrong("weights swapped", "smoothing and 1 - smoothing are swapped: the label should keep 1 - smoothing")
def label_smoothed_loss(logits, labels, pad_id, smoothing=0.1):
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=pad_id, label_smoothing=1 - smoothing)


@wrong("uniform part summed", "smoothing multiplies the sum over the vocabulary; it is spread, so it multiplies the mean")
def label_smoothed_loss(logits, labels, pad_id, smoothing=0.1):
    log_p = logits.log_softmax(dim=-1)
    loss = -(1 - smoothing) * log_p.gather(-1, labels[..., None])[..., 0] - smoothing * log_p.sum(dim=-1)
    return loss[labels != pad_id].mean()


@wrong("sum instead of mean", "your loss is the sum over the labels; divide by how many there are without padding")
def label_smoothed_loss(logits, labels, pad_id, smoothing=0.1):
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=pad_id, label_smoothing=smoothing, reduction="sum")


@wrong("one loss a token", "your result is a loss for each token; return their mean, one number")
def label_smoothed_loss(logits, labels, pad_id, smoothing=0.1):
    losses = F.cross_entropy(logits.transpose(1, 2), labels, ignore_index=pad_id, label_smoothing=smoothing, reduction="none")
    return losses


@wrong("mean of the rows' means", "you averaged the rows' means: a token of a short sentence then counts more than one of a long")
def label_smoothed_loss(logits, labels, pad_id, smoothing=0.1):
    rows = [F.cross_entropy(row[label != pad_id], label[label != pad_id], label_smoothing=smoothing)
            for row, label in zip(logits, labels) if (label != pad_id).any()]
    return torch.stack(rows).mean()


@wrong("pad_id always 0", "your loss leaves out the label 0; padding is pad_id, which may be another number")
def label_smoothed_loss(logits, labels, pad_id, smoothing=0.1):
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=0, label_smoothing=smoothing)


@wrong("log of softmax", "the logarithm of softmax is -inf where softmax has become 0: use log_softmax")
def label_smoothed_loss(logits, labels, pad_id, smoothing=0.1):
    log_p = logits.softmax(dim=-1).log()
    loss = -(1 - smoothing) * log_p.gather(-1, labels[..., None])[..., 0] - smoothing * log_p.mean(dim=-1)
    return loss[labels != pad_id].mean()


@wrong("detached", "your loss carries no gradient: it was made into a number on the way")
def label_smoothed_loss(logits, labels, pad_id, smoothing=0.1):
    logits = logits.detach()
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=pad_id, label_smoothing=smoothing)


@wrong("axes regrouped", "view(-1, V) on the transposed logits mixes tokens and vocabulary: flatten the first two axes")
def label_smoothed_loss(logits, labels, pad_id, smoothing=0.1):
    mixed = logits.transpose(1, 2).reshape(-1, logits.shape[-1])
    return F.cross_entropy(mixed, labels.flatten(), ignore_index=pad_id, label_smoothing=smoothing)


@wrong("not negated", "your loss has the wrong sign: the log-probability of the label is below 0, the loss above")
def label_smoothed_loss(logits, labels, pad_id, smoothing=0.1):
    return -F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=pad_id, label_smoothing=smoothing)


@wrong("Kullback-Leibler", "kl_div leaves out the entropy of the smoothed targets: asked for is the cross-entropy")
def label_smoothed_loss(logits, labels, pad_id, smoothing=0.1):
    V = logits.shape[-1]
    kept = labels != pad_id
    target = torch.full_like(logits[kept], smoothing / V)
    target.scatter_add_(1, labels[kept][:, None], torch.full_like(target[:, :1], 1 - smoothing))
    return F.kl_div(logits[kept].log_softmax(-1), target, reduction="batchmean")


@wrong("nothing for the pad class", "eps / V is spread over the whole vocabulary, pad_id among it; you leave its class out")
def label_smoothed_loss(logits, labels, pad_id, smoothing=0.1):
    kept = labels != pad_id
    log_p = logits[kept].log_softmax(-1)
    target = torch.full_like(log_p, smoothing / logits.shape[-1])
    target.scatter_add_(1, labels[kept][:, None], torch.full_like(target[:, :1], 1 - smoothing))
    target[:, pad_id] = 0
    return -(target * log_p).sum(-1).mean()


@wrong("uniform part over padding", "the part that is spread evenly counts the padding, too: leave it out of both parts")
def label_smoothed_loss(logits, labels, pad_id, smoothing=0.1):
    log_p = logits.log_softmax(-1)
    own = F.nll_loss(log_p.flatten(0, -2), labels.flatten(), ignore_index=pad_id)
    return (1 - smoothing) * own - smoothing * log_p.mean()


# ---- noam_rate --------------------------------------------------------------------------------------------------------


@right("min")
def noam_rate(step, d_model, warmup):
    if step == 0:
        return 0.0
    return d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


@right("two branches")
def noam_rate(step, d_model, warmup):
    if step < warmup:
        return step / math.sqrt(d_model * warmup**3)
    return 1 / math.sqrt(d_model * step)


@right("a tensor")
def noam_rate(step, d_model, warmup):
    s = torch.tensor(float(max(step, 1)), dtype=torch.float64)
    return (step > 0) * d_model**-0.5 * torch.minimum(s.rsqrt(), s * warmup**-1.5)


@right("a peak and a shape")
def noam_rate(step, d_model, warmup):
    peak = 1 / np.sqrt(d_model * warmup)
    return float(peak * min(step / warmup, np.sqrt(warmup / max(step, 1e-9))))


@right("as a loop would")
def noam_rate(step, d_model, warmup):
    rise = d_model**-0.5 * warmup**-1.5 * step
    return rise if step <= warmup else rise * (warmup / step) ** 1.5


@wrong("max for min", "max takes the larger of the two: the rate should rise first and fall then")
def noam_rate(step, d_model, warmup):
    if step == 0:
        return 0.0
    return d_model**-0.5 * max(step**-0.5, step * warmup**-1.5)


@wrong("only the rise", "your rate never falls: after warmup it should go down with the root of the step")
def noam_rate(step, d_model, warmup):
    return d_model**-0.5 * step * warmup**-1.5


@wrong("only the fall", "your rate does not warm up: it should rise in a straight line first")
def noam_rate(step, d_model, warmup):
    return 0.0 if step == 0 else d_model**-0.5 * step**-0.5


@wrong("step 0 divides", "step 0 raised an error: 0 ** -0.5 is a division by 0; return 0 there")
def noam_rate(step, d_model, warmup):
    return d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


@wrong("times sqrt(d_model)", "d_model ** 0.5 should be d_model ** -0.5: wider models get smaller steps")
def noam_rate(step, d_model, warmup):
    return 0.0 if step == 0 else d_model**0.5 * min(step**-0.5, step * warmup**-1.5)


@wrong("no d_model", "the factor d_model ** -0.5 is missing")
def noam_rate(step, d_model, warmup):
    return 0.0 if step == 0 else min(step**-0.5, step * warmup**-1.5)


@wrong("warmup ** -0.5", "warmup ** -1.5 is what lets both lines meet at step warmup; yours has another exponent")
def noam_rate(step, d_model, warmup):
    return 0.0 if step == 0 else d_model**-0.5 * min(step**-0.5, step * warmup**-0.5)


@wrong("a linear fall", "after warmup the rate falls like 1 / step; it should fall like 1 / sqrt(step)")
def noam_rate(step, d_model, warmup):
    if step == 0:
        return 0.0
    return (d_model * warmup) ** -0.5 * min(step / warmup, warmup / step)


@wrong("constant after warm-up", "your rate stays at its peak; it should fall with the root of the step")
def noam_rate(step, d_model, warmup):
    return (d_model * warmup) ** -0.5 * min(step / warmup, 1.0)


@wrong("counted from step + 1", "your rate is that of the next step: step 0 should give 0")
def noam_rate(step, d_model, warmup):
    step = step + 1
    return d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


@wrong("the root of step + 1", "after warmup your rate is that of the next step: both terms take the same step, and 0 is a case of its own")
def noam_rate(step, d_model, warmup):
    return d_model**-0.5 * min((step + 1) ** -0.5, step * warmup**-1.5)


@wrong("step 0 as step 1", "step 0 gives the rate of step 1; it should give 0")
def noam_rate(step, d_model, warmup):
    step = max(step, 1)
    return d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


@right("a sum of two indicators")
def noam_rate(step, d_model, warmup):
    rising = step < warmup
    slope = 1 / math.sqrt(warmup) ** 3
    return (rising * step * slope + (not rising) * max(step, 1) ** -0.5) / math.sqrt(d_model)


@right("logarithms")
def noam_rate(step, d_model, warmup):
    if not step:
        return 0
    log = min(-0.5 * math.log(step), math.log(step) - 1.5 * math.log(warmup))
    return math.exp(log - 0.5 * math.log(d_model))


@right("np.where")
def noam_rate(step, d_model, warmup):
    with np.errstate(divide="ignore"):
        fall = np.float64(step) ** -0.5
    return np.where(step <= warmup, step * np.float64(warmup) ** -1.5, fall) * np.float64(d_model) ** -0.5


@wrong("warmup always 4000", "your rate warms up over 4000 steps, whatever warmup is")
def noam_rate(step, d_model, warmup):
    return 0.0 if step == 0 else d_model**-0.5 * min(step**-0.5, step * 4000**-1.5)


@wrong("d_model always 512", "your rate is that of d_model = 512, whatever d_model is")
def noam_rate(step, d_model, warmup):
    return 0.0 if step == 0 else 512**-0.5 * min(step**-0.5, step * warmup**-1.5)


# ---- train_step -------------------------------------------------------------------------------------------------------


@right("sums divided by the batch's tokens")
def train_step(model, batch, optimizer, *, pad_id, accumulate=1, clip=1.0, amp=False):
    device = next(model.parameters()).device
    src, tgt = (ids.to(device) for ids in batch)
    tokens = (tgt[:, 1:] != pad_id).sum()
    model.train()
    optimizer.zero_grad()
    total, parts = 0.0, min(accumulate, len(src))
    for part, target in zip(src.tensor_split(parts), tgt.tensor_split(parts)):
        given, labels = target[:, :-1], target[:, 1:]
        with torch.autocast(device.type, torch.bfloat16, enabled=amp):
            logits = model(part, given)
        loss = F.cross_entropy(logits.float().flatten(0, 1), labels.flatten(), ignore_index=pad_id, reduction="sum")
        loss = loss / tokens
        loss.backward()
        total += loss.item()
    nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    return total


_step = functools.partial(changed, train_step)
_step("not divided by the tokens", "the losses are summed and never divided by the number of labels in the batch",
      ("        loss = loss / tokens\n", ""))
_step("mean of means", "every part's loss is its own mean: a token of a part with few of them counts more. Weight by tokens",
      ('ignore_index=pad_id, reduction="sum")', "ignore_index=pad_id)"), ("loss / tokens", "loss / parts"))
_step("accumulated without dividing", "the parts' means are added up without a weight: the gradient grows with accumulate",
      ('ignore_index=pad_id, reduction="sum")', "ignore_index=pad_id)"), ("        loss = loss / tokens\n", ""),
      ("return total", "return total / parts"))
_step("divided by all labels", "the sum is divided by the number of all labels; padding should not count",
      ("(tgt[:, 1:] != pad_id).sum()", "tgt[:, 1:].numel()"))
_step("tokens of the whole target", "you counted the tokens of tgt; the labels are one fewer in each row",
      ("(tgt[:, 1:] != pad_id).sum()", "(tgt != pad_id).sum()"))
_step("padding counted", "padding counts in the loss: ignore_index=pad_id is missing",
      (", ignore_index=pad_id", ""), ("(tgt[:, 1:] != pad_id).sum()", "tgt[:, 1:].numel()"))
_step("labels not shifted", "the model is asked for the token that it reads: the labels begin one token later",
      ("target[:, :-1], target[:, 1:]", "target[:, :-1], target[:, :-1]"),
      ("(tgt[:, 1:] != pad_id).sum()", "(tgt[:, :-1] != pad_id).sum()"))
_step("gradients not cleared", "the gradients of the step before are still there: call optimizer.zero_grad() first",
      ("    optimizer.zero_grad()\n", ""))
_step("cleared in the loop", "zero_grad inside the loop throws away all parts but the last",
      ("    optimizer.zero_grad()\n", ""), ("        given, labels", "        optimizer.zero_grad()\n        given, labels"))
_step("a step for every part", "optimizer.step() runs once a part; parts are there to be added up before one step",
      ("    nn.utils.clip_grad_norm_(model.parameters(), clip)\n    optimizer.step()\n",
       "        nn.utils.clip_grad_norm_(model.parameters(), clip)\n        optimizer.step()\n        optimizer.zero_grad()\n"))
_step("not clipped", "the gradient is not clipped: clip_grad_norm_ belongs between backward and step",
      ("    nn.utils.clip_grad_norm_(model.parameters(), clip)\n", ""))
_step("clipped in every part", "each part's gradient is clipped; clip their sum, once, before the step",
      ("    nn.utils.clip_grad_norm_(model.parameters(), clip)\n", ""),
      ("        total += loss.item()", "        nn.utils.clip_grad_norm_(model.parameters(), clip)\n        total += loss.item()"))
_step("clipped by value", "clip_grad_value_ cuts each entry; clip the norm of the whole gradient: clip_grad_norm_",
      ("clip_grad_norm_", "clip_grad_value_"))
_step("clip always 1", "the norm is clipped at 1, whatever clip is", ("model.parameters(), clip)", "model.parameters(), 1.0)"))
_step("no train mode", "the model stays in the mode in which it came: call model.train() first", ("    model.train()\n", ""))
_step("eval at the end", "your function leaves the model in eval mode", ("    return total", "    model.eval()\n    return total"))
_step("no step", "optimizer.step() never runs: the weights stay as they are", ("    optimizer.step()\n", ""))
_step("accumulate ignored", "the batch goes through the model in one piece, whatever accumulate is",
      ("min(accumulate, len(src))", "1"))
_step("only the last part's loss", "the loss that you return is that of the last part; it should be the mean over the batch",
      ("total += loss.item()", "total = loss.item()"))
_step("a tensor returned", "return a Python float, not a tensor", ("total += loss.item()", "total += loss.detach()"))
_step("amp ignored", "amp=True changes nothing: run the forward pass in torch.autocast with bfloat16",
      ("enabled=amp", "enabled=False"))
_step("amp always", "autocast is on although amp is False", ("enabled=amp", "enabled=True"))
_step("float16", "amp is bfloat16; float16 would need its loss scaled", ("torch.bfloat16", "torch.float16"))
_step("the CPU written in", "the batch is sent to the CPU, wherever the model is: use next(model.parameters()).device",
      ("device = next(model.parameters()).device", 'device = torch.device("cpu")'))
_step("not moved", "the batch stays where it is: move src and tgt to the device of the model's parameters",
      ("(ids.to(device) for ids in batch)", "batch"))
_step("only the target moved", "src stays where it is: move it, too, to the device of the model's parameters",
      ("(ids.to(device) for ids in batch)", "batch[0], batch[1].to(device)"))
_step("only the source moved", "tgt stays where it is: move it, too, to the device of the model's parameters",
      ("(ids.to(device) for ids in batch)", "batch[0].to(device), batch[1]"))
_step("one flag", "model.training = True leaves the parts inside as they are, its dropout in eval mode: call model.train()",
      ("    model.train()\n", "    model.training = True\n"))
_step("clip at most 1", "the norm is clipped at 1 where clip is larger: clip at clip", ("model.parameters(), clip)", "model.parameters(), min(clip, 1.0))"))
_step("pad_id 0 written in", "the label 0 is left out; padding is pad_id, which may be another number",
      ("ignore_index=pad_id", "ignore_index=0"), ("(tgt[:, 1:] != pad_id)", "(tgt[:, 1:] != 0)"))
_step("the whole target twice", "the model reads all of tgt and is asked for the same tokens: decoder_input ends one token earlier, the labels begin one later",
      ("target[:, :-1], target[:, 1:]", "target, target"), ("(tgt[:, 1:] != pad_id)", "(tgt != pad_id)"))
_step("labels not shifted, divided by the shifted", "the labels are the tokens that are read, and not those that come next: tgt[:, 1:]",
      ("target[:, :-1], target[:, 1:]", "target[:, :-1], target[:, :-1]"))
_step("loss after the step", "the loss that you return is that of the weights after the step; return the one that gave the gradient",
      ("    return total", "    with torch.no_grad():\n        logits = model(src, tgt[:, :-1])\n"
       "    return F.cross_entropy(logits.flatten(0, 1), tgt[:, 1:].flatten(), ignore_index=pad_id).item()"))
_step("smoothed", "your loss is smoothed; here it is the plain cross-entropy", ('reduction="sum"', 'reduction="sum", label_smoothing=0.1'))
_step("more parts than rows", "with more parts than rows some parts are empty: at most as many as there are rows",
      ("min(accumulate, len(src))", "accumulate"))
_step("leftover rows dropped", "where accumulate does not divide the batch, the rows that are left over are lost",
      ("parts = 0.0, min(accumulate, len(src))", "parts = 0.0, min(accumulate, len(src))\n    src, tgt = (ids[: len(src) // parts * parts] for ids in (src, tgt))"))


@right("weights for means")
def train_step(model, batch, optimizer, *, pad_id, accumulate=1, clip=1.0, amp=False):
    parameters = list(model.parameters())
    device = parameters[0].device
    src, tgt = batch[0].to(device), batch[1].to(device)
    model.train()
    optimizer.zero_grad(set_to_none=True)
    pieces = min(accumulate, src.shape[0])
    everything = (tgt[:, 1:] != pad_id).sum().item()
    loss_sum = 0.0
    for s, t in zip(torch.tensor_split(src, pieces), torch.tensor_split(tgt, pieces)):
        labels = t[:, 1:]
        share = (labels != pad_id).sum().item() / everything
        with torch.autocast(device_type=device.type, dtype=torch.bfloat16, enabled=amp):
            logits = model(s, t[:, :-1])
            loss = F.cross_entropy(logits.transpose(1, 2), labels, ignore_index=pad_id)
        (loss * share).backward()
        loss_sum += float(loss) * share
    torch.nn.utils.clip_grad_norm_(parameters, max_norm=clip)
    optimizer.step()
    return loss_sum


@right("gradients divided at the end")
def train_step(model, batch, optimizer, *, pad_id, accumulate=1, clip=1.0, amp=False):
    device = next(model.parameters()).device
    src, tgt = batch
    model.train()
    optimizer.zero_grad()
    total, tokens = torch.zeros((), device=device), 0
    k = min(accumulate, len(src))
    for s, t in zip(src.tensor_split(k), tgt.tensor_split(k)):
        s, t = s.to(device), t.to(device)
        with torch.autocast(device.type, torch.bfloat16, enabled=amp):
            logits = model(s, t[:, :-1])
        loss = F.cross_entropy(logits.float().flatten(0, 1), t[:, 1:].flatten(), ignore_index=pad_id, reduction="sum")
        loss.backward()
        total, tokens = total + loss.detach(), tokens + (t[:, 1:] != pad_id).sum()
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad.div_(tokens)
    nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    return (total / tokens).item()


@right("autocast only where asked")
def train_step(model, batch, optimizer, *, pad_id, accumulate=1, clip=1.0, amp=False):
    src, tgt = batch
    device = next(iter(model.parameters())).device
    src = src.to(device)
    tgt = tgt.to(device)
    model.train()
    optimizer.zero_grad()
    total = 0.0
    tokens = int((tgt[:, 1:] != pad_id).sum())
    for rows in torch.arange(len(src)).tensor_split(min(accumulate, len(src))):
        if amp:
            with torch.autocast(device.type, dtype=torch.bfloat16):
                logits = model(src[rows], tgt[rows, :-1])
        else:
            logits = model(src[rows], tgt[rows, :-1])
        log_p = logits.float().log_softmax(-1)
        labels = tgt[rows, 1:]
        loss = -log_p.gather(-1, labels[..., None])[labels != pad_id].sum() / tokens
        loss.backward()
        total += loss.item()
    nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    return total


@right("clipped by hand")
def train_step(model, batch, optimizer, *, pad_id, accumulate=1, clip=1.0, amp=False):
    device = next(model.parameters()).device
    src, tgt = (ids.to(device) for ids in batch)
    model.train()
    for parameter in model.parameters():
        parameter.grad = None
    parts = min(accumulate, len(src))
    tokens, total = (tgt[:, 1:] != pad_id).sum(), 0.0
    for i in range(parts):
        rows = slice(i * len(src) // parts, (i + 1) * len(src) // parts)
        with torch.autocast(device.type, torch.bfloat16, enabled=amp):
            logits = model(src[rows], tgt[rows, :-1])
        loss = F.nll_loss(logits.float().log_softmax(-1).flatten(0, 1), tgt[rows, 1:].flatten(), ignore_index=pad_id, reduction="sum")
        (loss / tokens).backward()
        total = total + loss.item()
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    norm = torch.sqrt(sum((g**2).sum() for g in grads))
    if norm > clip:
        for g in grads:
            g.mul_(clip / norm)
    optimizer.step()
    return total / tokens.item()


@right("array_split's sizes by list")
def train_step(model, batch, optimizer, *, pad_id, accumulate=1, clip=1.0, amp=False):
    device = next(model.parameters()).device
    src, tgt = batch
    B = src.shape[0]
    parts = min(accumulate, B)
    sizes = [B // parts + (i < B % parts) for i in range(parts)]
    model.train()
    optimizer.zero_grad()
    count = (tgt[:, 1:] != pad_id).sum().item()
    total = 0.0
    for s, t in zip(src.split(sizes), tgt.split(sizes)):
        s, t = s.to(device), t.to(device)
        with torch.amp.autocast(device.type, torch.bfloat16, enabled=amp):
            logits = model(s, t[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), t[:, 1:].flatten(), ignore_index=pad_id, reduction="sum") / count
        loss.backward()
        total += loss.item()
    nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    return total


@right("one backward for all parts")
def train_step(model, batch, optimizer, *, pad_id, accumulate=1, clip=1.0, amp=False):
    device = next(model.parameters()).device
    src, tgt = (ids.to(device) for ids in batch)
    model.train()
    parts, losses = min(accumulate, len(src)), []
    for s, t in zip(src.tensor_split(parts), tgt.tensor_split(parts)):
        with torch.autocast(device.type, torch.bfloat16, enabled=amp):
            logits = model(s, t[:, :-1])
        each = F.cross_entropy(logits.float().transpose(1, 2), t[:, 1:], ignore_index=pad_id, reduction="none")
        losses.append(each.sum())
    loss = torch.stack(losses).sum() / (tgt[:, 1:] != pad_id).sum()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    return loss.item()


@right("cleared afterwards, too")
def train_step(model, batch, optimizer, *, pad_id, accumulate=1, clip=1.0, amp=False):
    device = next(model.parameters()).device
    src, tgt = batch[0].to(device), batch[1].to(device)
    model.train()
    model.zero_grad()
    labels = tgt[:, 1:]
    tokens = labels.ne(pad_id).sum()
    total = 0.0
    chunks = min(accumulate, len(src))
    for s, t in zip(src.tensor_split(chunks), tgt.tensor_split(chunks)):
        with torch.autocast(device.type, torch.bfloat16, enabled=amp):
            logits = model(s, t[:, :-1])
        flat = logits.float().reshape(-1, logits.shape[-1])
        loss = nn.CrossEntropyLoss(ignore_index=pad_id, reduction="sum")(flat, t[:, 1:].reshape(-1)) / tokens
        loss.backward()
        total += loss.detach().item()
    nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    model.zero_grad()
    return total


# ---- greedy_decode ----------------------------------------------------------------------------------------------------


@right("a loop over steps")
def greedy_decode(model, src, bos_id, eos_id, max_len):
    training = model.training
    model.eval()
    with torch.no_grad():
        memory = model.encode(src)
        ids = torch.full((len(src), 1), bos_id, dtype=torch.long, device=src.device)
        ended = torch.zeros(len(src), dtype=torch.bool, device=src.device)
        for _ in range(max_len):
            logits = model.decode(ids, memory, src)
            token = logits[:, -1].argmax(dim=-1)
            token = token.masked_fill(ended, model.pad_id)
            ids = torch.cat([ids, token[:, None]], dim=1)
            ended = ended | (token == eos_id)
            if ended.all():
                break
    model.train(training)
    return ids[:, 1:]


_greedy = functools.partial(changed, greedy_decode)
_greedy("bos included", "the ids begin with bos; it is the model's first input, not something it said",
        ("return ids[:, 1:]", "return ids"))
_greedy("eos cut off", "eos is not in your ids: it should be, with padding only behind it",
        ("return ids[:, 1:]", "return ids[:, 1:].masked_fill(ids[:, 1:] == eos_id, model.pad_id)"))
_greedy("no padding after eos", "a row goes on talking after its eos: fill with pad_id there",
        ("            token = token.masked_fill(ended, model.pad_id)\n", ""))
_greedy("eos repeated", "behind the end of a row you repeat eos; fill with pad_id", ("ended, model.pad_id", "ended, eos_id"))
_greedy("stops with the first row", "decoding stops when one row has ended; go on until all have", ("ended.all()", "ended.any()"))
_greedy("only the first row counts", "decoding stops when the first row has ended; go on until all have", ("ended.all()", "ended[0]"))
_greedy("only this step counts", "you stop when all rows say eos at the same step; remember which have ended before",
        ("ended = ended | (token == eos_id)", "ended = token == eos_id"))
_greedy("never stops", "decoding runs to max_len although every row has ended",
        ("            if ended.all():\n                break\n", ""))
_greedy("starts with padding", "the first input should be bos_id; yours is padding", ("bos_id, dtype", "model.pad_id, dtype"))
_greedy("starts with eos", "the first input should be bos_id; yours is eos_id", ("bos_id, dtype", "eos_id, dtype"))
_greedy("the first position's logits", "the next token is said by the last position; you took the first", ("logits[:, -1]", "logits[:, 0]"))
_greedy("only the last token read", "the decoder is given only the last token; it needs the whole prefix", ("model.decode(ids, memory", "model.decode(ids[:, -1:], memory"))
_greedy("the least likely", "you took the least likely token: argmax, not argmin", ("argmax", "argmin"))
_greedy("drawn at random", "the token is drawn from the distribution; greedy takes the likeliest",
        ("logits[:, -1].argmax(dim=-1)", "torch.multinomial((logits[:, -1] / 2).softmax(-1), 1)[:, 0]"))
_greedy("encoded at every step", "the source is encoded at every step: once before the loop is enough",
        ("            logits = model", "            memory = model.encode(src)\n            logits = model"))
_greedy("no eval", "the model is not in eval mode while it decodes: dropout would be at work", ("    model.eval()\n", ""))
_greedy("mode not restored", "the model stays in eval mode: put it back into the mode in which it came", ("    model.train(training)\n", ""))
_greedy("always back to train", "a model that came in eval mode leaves in train mode: restore what was there", ("model.train(training)", "model.train()"))
_greedy("with gradients", "gradients are recorded while you decode: torch.no_grad() saves memory and time", ("with torch.no_grad():", "if True:"))
_greedy("one step short", "the loop makes one step too few: max_len counts the tokens that are said", ("range(max_len)", "range(max_len - 1)"))
_greedy("one step long", "the loop makes one step too many: max_len counts the tokens that are said", ("range(max_len)", "range(max_len + 1)"))
_greedy("pad ends a row", "a pad that the model says ends a row in yours; only eos does", ("(token == eos_id)", "(token == eos_id) | (token == model.pad_id)"))
_greedy("pad forbidden", "you forbid the model to say pad_id; the likeliest token counts, whichever it is",
        ("            token = token.masked_fill", "            logits[:, -1, model.pad_id] = -torch.inf\n            token = logits[:, -1].argmax(dim=-1)\n            token = token.masked_fill"))
_greedy("rounded", "you round before argmax: of two tokens that are nearly as likely the first wins, not the likelier",
        ("logits[:, -1].argmax(dim=-1)", "logits[:, -1].softmax(dim=-1).round(decimals=2).argmax(dim=-1)"))
_greedy("pad_id 0 written in", "behind the end you fill with 0; the id of padding is model.pad_id", ("ended, model.pad_id", "ended, 0"))


@right("decorated")
def greedy_decode(model, src, bos_id, eos_id, max_len):
    with torch.no_grad():
        was = model.training
        model.eval()
        try:
            memory, B = model.encode(src), src.shape[0]
            ys = src.new_full((B, 1), bos_id)
            done = src.new_zeros(B).bool()
            while ys.shape[1] <= max_len and not done.all():
                best = model.decode(ys, memory, src)[:, -1, :].max(dim=-1).indices
                best = torch.where(done, torch.full_like(best, model.pad_id), best)
                ys = torch.hstack([ys, best.unsqueeze(1)])
                done |= best == eos_id
            return ys[:, 1:]
        finally:
            model.train(was)


@right("filled in place")
def greedy_decode(model, src, bos_id, eos_id, max_len):
    training = model.training
    model.train(False)
    ids = torch.full((len(src), max_len + 1), model.pad_id)
    ids[:, 0] = bos_id
    alive, length = [True] * len(src), 0
    with torch.inference_mode():
        memory = model.encode(src)
        while any(alive) and length < max_len:
            said = torch.argmax(model.decode(ids[:, : length + 1], memory, src)[:, length], dim=1)
            length += 1
            for row, token in enumerate(said.tolist()):
                if alive[row]:
                    ids[row, length] = token
                    alive[row] = token != eos_id
    model.train(training)
    return ids[:, 1 : length + 1].clone()


@right("padded at the end")
def greedy_decode(model, src, bos_id, eos_id, max_len):
    mode = model.training
    model.eval()
    with torch.no_grad():
        memory = model.encode(src)
        ids = torch.full((src.size(0), 1), bos_id, device=src.device)
        for _ in range(max_len):
            token = model.decode(ids, memory, src)[:, -1].topk(1).indices
            ids = torch.cat((ids, token), 1)
            if (ids == eos_id).any(1).all():
                break
        ids = ids[:, 1:]
        over = (ids == eos_id).cumsum(1) - (ids == eos_id).long() > 0
        ids = ids.masked_fill(over, model.pad_id)
    model.train(mode)
    return ids


@right("only rows that are alive")
def greedy_decode(model, src, bos_id, eos_id, max_len):
    training = model.training
    model.eval()
    with torch.no_grad():
        memory = model.encode(src)
        columns, alive = [], torch.ones(len(src), dtype=torch.bool)
        ids = torch.full((len(src), 1), bos_id)
        for _ in range(max_len):
            token = torch.full((len(src),), model.pad_id)
            token[alive] = model.decode(ids[alive], memory[alive], src[alive])[:, -1].argmax(-1)
            columns.append(token)
            ids = torch.cat([ids, token[:, None]], dim=1)
            alive = alive & (token != eos_id)
            if not alive.any():
                break
    model.train(training)
    return torch.stack(columns, dim=1)


@right("rows one after another")
def greedy_decode(model, src, bos_id, eos_id, max_len):
    training = model.training
    model.eval()
    rows = [[bos_id] for _ in src]
    with torch.no_grad():
        memory = model.encode(src)
        for _ in range(max_len):
            logits = model.decode(torch.tensor(rows), memory, src)[:, -1]
            for row, scores in zip(rows, logits):
                row.append(model.pad_id if eos_id in row[1:] else int(scores.argmax()))
            if all(eos_id in row[1:] for row in rows):
                break
    model.train(training)
    return torch.tensor(rows)[:, 1:]


@right("recursion")
def greedy_decode(model, src, bos_id, eos_id, max_len):
    def grow(prefix, memory):
        over = (prefix[:, 1:] == eos_id).any(dim=1)
        if prefix.shape[1] > max_len or over.all():
            return prefix
        token = model.decode(prefix, memory, src)[:, -1].argmax(-1)
        token[over] = model.pad_id
        return grow(torch.cat([prefix, token[:, None]], dim=1), memory)

    training = model.training
    model.eval()
    with torch.no_grad():
        ids = grow(torch.full_like(src[:, :1], bos_id), model.encode(src))
    model.train(training)
    return ids[:, 1:]


@right("log-probabilities")
def greedy_decode(model, src, bos_id, eos_id, max_len):
    training = model.training
    model.eval()
    unfinished = torch.ones(src.shape[0], dtype=torch.long, device=src.device)
    out = torch.empty(src.shape[0], 0, dtype=torch.long, device=src.device)
    bos = torch.full_like(unfinished, bos_id)[:, None]
    with torch.no_grad():
        memory = model.encode(src)
        for _ in range(max_len):
            p = model.decode(torch.cat([bos, out], dim=1), memory, src)[:, -1].log_softmax(dim=-1)
            token = p.argmax(-1) * unfinished + model.pad_id * (1 - unfinished)
            out = torch.cat([out, token[:, None]], dim=1)
            unfinished = unfinished * (token != eos_id).long()
            if unfinished.max() == 0:
                break
    if training:
        model.train()
    return out


# ---- cached_greedy_decode ---------------------------------------------------------------------------------------------


@right("the given cache")
def cached_greedy_decode(model, src, bos_id, eos_id, max_len):
    training = model.training
    model.eval()
    with torch.no_grad():
        memory, cross_mask = model.encode(src), padding_mask(src, model.pad_id)
        caches = [{} for _ in model.decoder]
        token, ids = torch.full((len(src),), bos_id, dtype=torch.long, device=src.device), []
        ended = torch.zeros(len(src), dtype=torch.bool, device=src.device)
        for t in range(max_len):
            x = model.tgt_embedding(token[:, None]) * math.sqrt(model.tgt_embedding.embedding_dim)
            x = model.position(x, offset=t)
            for block, cache in zip(model.decoder, caches):
                x = block(x, memory, None, cross_mask, cache=cache)
            if getattr(model, "decoder_norm", None) is not None:
                x = model.decoder_norm(x)
            token = model.output(x)[:, -1].argmax(dim=-1)
            token = token.masked_fill(ended, model.pad_id)
            ids.append(token)
            ended = ended | (token == eos_id)
            if ended.all():
                break
    model.train(training)
    return torch.stack(ids, dim=1)


_cached = functools.partial(changed, cached_greedy_decode)
_cached("offset forgotten", "every token is placed at position 0: the t-th step needs offset=t", ("model.position(x, offset=t)", "model.position(x)"))
_cached("offset one ahead", "the positions begin at 1: bos, the first input, stands at position 0", ("offset=t)", "offset=t + 1)"))
_cached("no sqrt(d_model)", "the embedding is not multiplied by sqrt(d_model) as in the model", (" * math.sqrt(model.tgt_embedding.embedding_dim)", ""))
_cached("no positions", "no positions are added to the tokens", ("            x = model.position(x, offset=t)\n", ""))
_cached("a new cache every step", "each token sees only itself: hand every block its cache, and keep the caches from step to step",
        ("            x = model.tgt_embedding", "            caches = [{} for _ in model.decoder]\n            x = model.tgt_embedding"))
_cached("one cache for all blocks", "all blocks share one dict: each needs a cache of its own", ("[{} for _ in model.decoder]", "[{}] * len(model.decoder)"))
_cached("memory projected at every step", "the cache of cross-attention is thrown away: the memory's keys are the same at every step",
        ("            if getattr", "            for cache in caches:\n                del cache[\"cross\"]\n            if getattr"))
_cached("encoded at every step", "the encoder runs at every step: once before the loop is enough",
        ("            x = model.tgt_embedding", "            memory = model.encode(src)\n            x = model.tgt_embedding"))
_cached("source padding seen", "cross-attention sees the source's padding: hand it cross_mask", ("memory, None, cross_mask, cache", "memory, None, None, cache"))
_cached("final norm forgotten", 'decoder_norm is not applied: a pre-LN model ends with it', ("                x = model.decoder_norm(x)\n", "                pass\n"))
_cached("no padding after eos", "a row goes on talking after its eos: fill with pad_id there", ("            token = token.masked_fill(ended, model.pad_id)\n", ""))
_cached("stops with the first row", "decoding stops when one row has ended; go on until all have", ("ended.all()", "ended.any()"))
_cached("never stops", "decoding runs to max_len although every row has ended", ("            if ended.all():\n                break\n", ""))
_cached("no eval", "the model is not in eval mode while it decodes: dropout is at work", ("    model.eval()\n", ""))
_cached("mode not restored", "the model stays in eval mode: put it back into the mode in which it came", ("    model.train(training)\n", ""))
_cached("with gradients", "gradients are recorded while you decode: use torch.no_grad()", ("with torch.no_grad():", "if True:"))
_cached("bos included", "the ids begin with bos; it is the first input, not something the model said",
        ("return torch.stack(ids, dim=1)", "return torch.stack([torch.full_like(ids[0], bos_id), *ids], dim=1)"))
_cached("starts with padding", "the first input should be bos_id; yours is padding", ("bos_id, dtype", "model.pad_id, dtype"))
_cached("a list", "return a tensor (B, L), not a list of steps", ("return torch.stack(ids, dim=1)", "return ids"))


@wrong("everything anew", "your answer is right, but every step runs the whole prefix through the blocks: keep keys and values")
def cached_greedy_decode(model, src, bos_id, eos_id, max_len):
    training = model.training
    model.eval()
    with torch.no_grad():
        memory = model.encode(src)
        ids = torch.full((len(src), 1), bos_id, dtype=torch.long)
        ended = torch.zeros(len(src), dtype=torch.bool)
        for _ in range(max_len):
            token = model.decode(ids, memory, src)[:, -1].argmax(-1).masked_fill(ended, model.pad_id)
            ids = torch.cat([ids, token[:, None]], dim=1)
            ended = ended | (token == eos_id)
            if ended.all():
                break
    model.train(training)
    return ids[:, 1:]


@right("prefix kept as a tensor")
def cached_greedy_decode(model, src, bos_id, eos_id, max_len):
    with torch.no_grad():
        was, _ = model.training, model.eval()
        memory, caches = model.encode(src), [dict() for _ in range(len(model.decoder))]
        ids = src.new_full((len(src), 1), bos_id)
        while ids.shape[1] <= max_len and not (ids[:, 1:] == eos_id).any(1).all():
            over = (ids[:, 1:] == eos_id).any(1)
            x = model.position(model.tgt_embedding(ids[:, -1:]) * model.tgt_embedding.embedding_dim**0.5, ids.shape[1] - 1)
            for i, block in enumerate(model.decoder):
                x = block(x, memory, cross_mask=(src != model.pad_id)[:, None, None, :], cache=caches[i])
            norm = getattr(model, "decoder_norm", None)
            logits = model.output(norm(x) if norm else x)[:, 0]
            ids = torch.cat([ids, logits.argmax(-1, keepdim=True).masked_fill(over[:, None], model.pad_id)], dim=1)
        model.train(was)
        return ids[:, 1:]


@right("try and finally")
def cached_greedy_decode(model, src, bos_id, eos_id, max_len):
    training = model.training
    try:
        model.eval()
        with torch.inference_mode():
            memory = model.encode(src)
            mask = padding_mask(src, model.pad_id)
            stores = {block: {} for block in model.decoder}
            out = torch.full((len(src), max_len), model.pad_id)
            last, going, L = torch.full((len(src), 1), bos_id), torch.ones(len(src), 1, dtype=torch.bool), 0
            while going.any() and L < max_len:
                x = model.position(model.tgt_embedding(last) * math.sqrt(model.output.weight.shape[1]), offset=L)
                for block in model.decoder:
                    x = block(x, memory, None, mask, cache=stores[block])
                x = x if model.decoder_norm is None else model.decoder_norm(x)
                last = torch.where(going, (x @ model.output.weight.T).argmax(-1), model.pad_id)
                out[:, L] = last[:, 0]
                going = going & (last != eos_id)
                L += 1
            return out[:, :L].clone()
    finally:
        model.train(training)


@right("its own keys and values")
def cached_greedy_decode(model, src, bos_id, eos_id, max_len):
    def attend(layer, x, K, V, mask):
        heads = F.scaled_dot_product_attention(cut(layer, layer.W_q(x)), K, V, attn_mask=mask)
        return layer.W_o(heads.transpose(1, 2).flatten(2))

    def cut(layer, x):
        return x.view(x.shape[0], x.shape[1], layer.h, layer.d_k).transpose(1, 2)

    training = model.training
    model.eval()
    with torch.no_grad():
        memory, mask = model.encode(src), padding_mask(src, model.pad_id)
        pre = getattr(model, "decoder_norm", None) is not None
        cross = [(cut(b.cross_attention, b.cross_attention.W_k(memory)), cut(b.cross_attention, b.cross_attention.W_v(memory)))
                 for b in model.decoder]
        past = [None] * len(model.decoder)
        token, ids, ended = src.new_full((len(src),), bos_id), [], src.new_zeros(len(src)).bool()
        for t in range(max_len):
            x = model.position(model.tgt_embedding(token[:, None]) * math.sqrt(memory.shape[-1]), offset=t)
            for i, b in enumerate(model.decoder):
                a = b.self_attention
                y = b.norm1(x) if pre else x
                new = cut(a, a.W_k(y)), cut(a, a.W_v(y))
                past[i] = new if past[i] is None else tuple(torch.cat(two, dim=2) for two in zip(past[i], new))
                x = x + attend(a, y, *past[i], None)
                x = x if pre else b.norm1(x)
                x = x + attend(b.cross_attention, b.norm2(x) if pre else x, *cross[i], mask)
                x = x if pre else b.norm2(x)
                x = x + b.feed_forward(b.norm3(x) if pre else x)
                x = x if pre else b.norm3(x)
            token = model.output(model.decoder_norm(x) if pre else x)[:, -1].argmax(-1).masked_fill(ended, model.pad_id)
            ids.append(token)
            ended = ended | (token == eos_id)
            if bool(ended.all()):
                break
    model.train(training)
    return torch.stack(ids, dim=1)


@right("padded at the end")
def cached_greedy_decode(model, src, bos_id, eos_id, max_len):
    training = model.training
    model.train(False)
    with torch.no_grad():
        memory = model.encode(src)
        caches = [{} for block in model.decoder]
        ids = torch.full((len(src), 1), bos_id, device=src.device)
        for t in range(max_len):
            x = model.position(model.tgt_embedding(ids[:, t : t + 1]) * math.sqrt(model.tgt_embedding.weight.shape[1]), offset=t)
            for k in range(len(model.decoder)):
                x = model.decoder[k](x, memory, cross_mask=padding_mask(src, model.pad_id), cache=caches[k])
            if model.decoder_norm is not None:
                x = model.decoder_norm(x)
            ids = torch.cat([ids, model.output(x).argmax(-1)], dim=1)
            if (ids[:, 1:] == eos_id).any(dim=1).all():
                break
        ids = ids[:, 1:]
        seen = (ids == eos_id).long().cumsum(1)
        ids = torch.where((seen > 0) & ~((seen == 1) & (ids == eos_id)), torch.full_like(ids, model.pad_id), ids)
    model.train(training)
    return ids


@right("a generator")
def cached_greedy_decode(model, src, bos_id, eos_id, max_len):
    def tokens():
        caches, memory = [{} for _ in model.decoder], model.encode(src)
        token, ended = torch.full_like(src[:, 0], bos_id), torch.zeros_like(src[:, 0]).bool()
        for t in range(max_len):
            x = model.position(model.tgt_embedding(token)[:, None] * math.sqrt(memory.size(-1)), t)
            for block, cache in zip(model.decoder, caches):
                x = block(x, memory, None, padding_mask(src, model.pad_id), cache=cache)
            x = model.decoder_norm(x) if getattr(model, "decoder_norm", None) else x
            token = torch.where(ended, model.pad_id, model.output(x)[:, 0].argmax(-1))
            ended = ended | (token == eos_id)
            yield token
            if ended.all():
                return

    mode = model.training
    model.eval()
    with torch.no_grad():
        ids = torch.stack(list(tokens()), dim=1)
    model.train(mode)
    return ids


@right("only rows that are alive")
def cached_greedy_decode(model, src, bos_id, eos_id, max_len):
    training = model.training
    model.eval()
    with torch.no_grad():
        memory, mask = model.encode(src), padding_mask(src, model.pad_id)
        caches, rows = [{} for _ in model.decoder], torch.arange(len(src))
        token, columns = torch.full((len(src),), bos_id), []
        for t in range(max_len):
            x = model.position(model.tgt_embedding(token)[:, None] * math.sqrt(memory.shape[-1]), offset=t)
            for block, cache in zip(model.decoder, caches):
                x = block(x, memory[rows], None, mask[rows], cache=cache)
            x = x if model.decoder_norm is None else model.decoder_norm(x)
            token = model.output(x)[:, 0].argmax(-1)
            column = torch.full((len(src),), model.pad_id)
            column[rows] = token
            columns.append(column)
            going = token != eos_id
            if not going.any():
                break
            rows, token = rows[going], token[going]
            for cache in caches:
                for name, (K, V) in cache.items():
                    cache[name] = K[going], V[going]
    model.train(training)
    return torch.stack(columns, dim=1)


@right("a mask that allows everything")
def cached_greedy_decode(model, src, bos_id, eos_id, max_len):
    training = model.training
    model.eval()
    torch.set_grad_enabled(False)
    memory = model.encode(src)
    caches = [{} for _ in model.decoder]
    ids, ended = [], torch.zeros(len(src), 1, dtype=torch.bool)
    token = torch.tensor([[bos_id]] * len(src))
    for t in range(max_len):
        x = model.position(model.tgt_embedding(token) * math.sqrt(model.tgt_embedding.embedding_dim), t)
        for block, cache in zip(model.decoder, caches):
            x = block(x, memory, causal_mask(1, t + 1), padding_mask(src, model.pad_id), cache=cache)
        x = model.decoder_norm(x) if getattr(model, "decoder_norm", None) is not None else x
        token = F.linear(x, model.output.weight).argmax(-1).masked_fill(ended, model.pad_id)
        ids.append(token)
        ended |= token == eos_id
        if ended.all():
            break
    torch.set_grad_enabled(True)
    model.train(training)
    return torch.cat(ids, dim=1)


# ---- beam_search ------------------------------------------------------------------------------------------------------


@right("tuples, sorted")
def beam_search(model, src, bos_id, eos_id, max_len, beam=4, alpha=0.6):
    def score(entry):
        tokens, log_p = entry
        return log_p / ((5 + len(tokens)) / 6) ** alpha

    training = model.training
    model.eval()
    with torch.no_grad():
        memory, kept = model.encode(src), [((), 0.0)]
        for _ in range(max_len):
            grown = [entry for entry in kept if entry[0][-1:] == (eos_id,)]
            alive = [entry for entry in kept if entry[0][-1:] != (eos_id,)]
            if not alive:
                break
            for tokens, log_p in alive:
                logits = model.decode(torch.tensor([[bos_id, *tokens]], device=src.device), memory, src)
                gains = logits[0, -1].log_softmax(dim=-1)
                grown += [((*tokens, token), log_p + gain) for token, gain in enumerate(gains.tolist())]
            kept = sorted(grown, key=score, reverse=True)[:beam]
        ended = [entry for entry in kept if entry[0][-1:] == (eos_id,)]
        best = max(ended or kept, key=score)[0]
    model.train(training)
    return torch.tensor([best], device=src.device)


_beam = functools.partial(changed, beam_search)
_beam("no length penalty", "hypotheses are compared by log-probability alone: short ones win. Divide by the length penalty",
      ("log_p / ((5 + len(tokens)) / 6) ** alpha", "log_p"))
_beam("multiplied by the penalty", "the log-probability is multiplied by the penalty; it is divided by it", ("log_p / ((5", "log_p * ((5"))
_beam("length without eos", "the length in the penalty leaves out eos; it counts", ("(5 + len(tokens)) / 6", "(5 + len(tokens) - (tokens[-1] == eos_id)) / 6"))
_beam("length with bos", "the length in the penalty counts bos; it does not", ("(5 + len(tokens)) / 6", "(6 + len(tokens)) / 6"))
_beam("mean log-probability", "the score is divided by the plain length; the penalty is ((5 + length) / 6) ** alpha",
      ("log_p / ((5 + len(tokens)) / 6) ** alpha", "log_p / max(len(tokens), 1)"))
_beam("alpha always 0.6", "the penalty uses 0.6, whatever alpha is", ("/ 6) ** alpha", "/ 6) ** 0.6"))
_beam("beam always 4", "four hypotheses are kept, whatever beam is", ("[:beam]", "[:4]"))
_beam("greedy", "only the best hypothesis is kept at every step: that is greedy decoding", ("[:beam]", "[:1]"))
_beam("logits added up", "raw logits are added up; a score is a sum of log-probabilities: log_softmax", ("logits[0, -1].log_softmax(dim=-1)", "logits[0, -1]"))
_beam("probabilities added up", "probabilities are added up; log-probabilities are to be added", ("log_softmax(dim=-1)", "softmax(dim=-1)"))
_beam("finished ones dropped", "a finished hypothesis loses its place at the next step", ("grown = [entry for entry in kept if entry[0][-1:] == (eos_id,)]", "grown = []"))
_beam("stops at the first eos", "the search stops as soon as one hypothesis has ended; go on until the best `beam` have",
      ("            if not alive:\n", "            if grown:\n"))
_beam("the best, ended or not", "at max_len you return a hypothesis that has not ended, although one has", ("max(ended or kept", "max(kept"))
_beam("starts with eos", "the first input should be bos_id; yours is eos_id", ("[[bos_id, *tokens]]", "[[eos_id, *tokens]]"))
_beam("ranked by log-probability", "who stays is decided by log-probability, and only the winner by score: rank by score at every step",
      ("sorted(grown, key=score", "sorted(grown, key=lambda entry: entry[1]"))
_beam("penalty on finished ones alone", "only finished hypotheses are divided by the length penalty; the others compete with them, and are, too",
      ("/ 6) ** alpha", "/ 6) ** (alpha if tokens[-1:] == (eos_id,) else 0)"))
_beam("stops when the best has ended", "the search stops as soon as the best hypothesis has ended; one that has not may still become better",
      ("            if not alive:\n", "            if kept[0][0][-1:] == (eos_id,):\n"))
_beam("encoded at every step", "the source is encoded at every step: once before the loop is enough",
      ("            if not alive:\n", "            memory = model.encode(src)\n            if not alive:\n"))
_beam("topk above the vocabulary", "topk(beam) fails where beam is larger than the vocabulary: take min(beam, V)",
      ("for token, gain in enumerate(gains.tolist())", "for gain, token in zip(*(part.tolist() for part in gains.topk(beam)))"))
_beam("padding cut out", "you cut pad_id out of the result; it is what the model said",
      ("best = max(ended or kept, key=score)[0]", "best = [token for token in max(ended or kept, key=score)[0] if token != model.pad_id]"))
_beam("rounded", "you round the log-probabilities: of two hypotheses that are nearly as good the first wins, not the better",
      ("log_p + gain)", "round(log_p + gain, 2))"))
_beam("finished ones go on", "a hypothesis that has said eos is made longer still: it stays as it is",
      ("grown = [entry for entry in kept if entry[0][-1:] == (eos_id,)]", "grown = []"),
      ("alive = [entry for entry in kept if entry[0][-1:] != (eos_id,)]", "alive = kept"))
_beam("the last finished one", "you return the finished hypothesis that comes last; return the one with the best score",
      ("max(ended or kept, key=score)[0]", "(ended or kept)[-1][0]"))
_beam("copies at the start", "you start with `beam` copies of the same hypothesis: they grow alike and take each other's places. Start with one",
      ("[((), 0.0)]", "[((), 0.0)] * beam"))
_beam("bos included", "the ids begin with bos; it is the first input, not something the model said", ("torch.tensor([best]", "torch.tensor([(bos_id, *best)]"))
_beam("no batch axis", "the result should be (1, L), one row", ("torch.tensor([best]", "torch.tensor(best"))
_beam("mode not restored", "the model stays in eval mode: put it back into the mode in which it came", ("    model.train(training)\n", ""))
_beam("no eval", "the model is not in eval mode while it decodes", ("    model.eval()\n", ""))
_beam("with gradients", "gradients are recorded while you decode: use torch.no_grad()", ("with torch.no_grad():", "if True:"))
_beam("one step short", "the loop makes one step too few: max_len counts the tokens that are said", ("range(max_len)", "range(max_len - 1)"))


@right("one batch of hypotheses")
def beam_search(model, src, bos_id, eos_id, max_len, beam=4, alpha=0.6):
    with torch.no_grad():
        was = model.training
        model.eval()
        memory = model.encode(src)
        finished, alive = [], [([bos_id], 0.0)]
        for step in range(1, max_len + 1):
            ids = torch.tensor([tokens for tokens, _ in alive])
            k = len(alive)
            logits = model.decode(ids, memory.expand(k, -1, -1), src.expand(k, -1))[:, -1]
            total = torch.log_softmax(logits.double(), -1) + torch.tensor([s for _, s in alive]).double()[:, None]
            V = total.shape[1]
            values, places = total.flatten().topk(min(beam, total.numel()))
            pool = [(v / ((5 + step) / 6) ** alpha, v, alive[p // V][0] + [p % V]) for v, p in zip(values.tolist(), places.tolist())]
            pool = sorted(pool + finished, key=lambda item: -item[0])[:beam]
            finished = [item for item in pool if item[2][-1] == eos_id]
            alive = [(tokens, v) for _, v, tokens in pool if tokens[-1] != eos_id]
            if not alive:
                break
        best = finished[0][2] if finished else alive[0][0]
        model.train(was)
        return torch.tensor([best[1:]])


@right("a heap")
def beam_search(model, src, bos_id, eos_id, max_len, beam=4, alpha=0.6):
    import heapq

    training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            memory = model.encode(src)
            hypotheses = [{"ids": [], "log_p": 0.0, "done": False, "score": 0.0}]
            for _ in range(max_len):
                if all(one["done"] for one in hypotheses):
                    break
                pool = []
                for one in hypotheses:
                    if one["done"]:
                        pool.append(one)
                        continue
                    prefix = torch.tensor([[bos_id] + one["ids"]])
                    row = F.log_softmax(model.decode(prefix, memory, src)[0, -1].double(), dim=0)
                    for token in row.topk(min(beam, len(row))).indices.tolist():
                        log_p, ids = one["log_p"] + float(row[token]), one["ids"] + [token]
                        pool.append({"ids": ids, "log_p": log_p, "done": token == eos_id,
                                     "score": log_p / math.pow((5 + len(ids)) / 6, alpha)})
                hypotheses = heapq.nlargest(beam, pool, key=lambda one: one["score"])
            best = next((one for one in hypotheses if one["done"]), hypotheses[0])
            ids = torch.tensor(best["ids"])[None]
    finally:
        model.train(training)
    return ids.clone()


@right("tensors of ids")
def beam_search(model, src, bos_id, eos_id, max_len, beam=4, alpha=0.6):
    training = model.training
    model.eval()
    with torch.no_grad():
        memory = model.encode(src)
        beams = [(torch.full((1, 1), bos_id), torch.zeros(()))]
        penalty = lambda ids: ((5 + ids.shape[1] - 1) / 6) ** alpha
        done = lambda ids: ids.shape[1] > 1 and int(ids[0, -1]) == eos_id
        for _ in range(max_len):
            new = []
            for ids, total in beams:
                if done(ids):
                    new.append((ids, total))
                else:
                    log_p = model.decode(ids, memory, src)[0, -1].log_softmax(0)
                    new += [(torch.cat([ids, torch.tensor([[v]])], 1), total + log_p[v]) for v in range(len(log_p))]
            new.sort(key=lambda one: float(one[1] / penalty(one[0])), reverse=True)
            beams = new[:beam]
            if all(done(ids) for ids, _ in beams):
                break
        winners = [ids for ids, _ in beams if done(ids)] + [beams[0][0]]
    model.train(training)
    return winners[0][:, 1:]


@right("recursion")
def beam_search(model, src, bos_id, eos_id, max_len, beam=4, alpha=0.6):
    def score(one):
        return one[1] / ((5 + len(one[0])) / 6) ** alpha

    def longer(kept, left):
        if left == 0 or all(tokens[-1:] == [eos_id] for tokens, _ in kept):
            return kept
        grown = []
        for tokens, total in kept:
            if tokens[-1:] == [eos_id]:
                grown.append((tokens, total))
                continue
            logits = model.decode(torch.tensor([[bos_id] + tokens]), memory, src)
            gains = F.log_softmax(logits[0, len(tokens)], dim=0)
            grown.extend((tokens + [i], total + float(gain)) for i, gain in enumerate(gains))
        return longer(sorted(grown, key=lambda one: -score(one))[:beam], left - 1)

    training = model.training
    with torch.no_grad():
        memory = model.eval().encode(src)
        kept = longer([([], 0.0)], max_len)
    model.train(training)
    ended = [one for one in kept if one[0][-1] == eos_id]
    return torch.tensor(max(ended or kept, key=score)[0]).unsqueeze(0)


@right("a class for a hypothesis")
def beam_search(model, src, bos_id, eos_id, max_len, beam=4, alpha=0.6):
    class Hypothesis:
        def __init__(self, ids, total):
            self.ids, self.total, self.ended = ids, total, bool(ids) and ids[-1] == eos_id
            self.score = total / ((len(ids) + 5) / 6) ** alpha

        def children(self):
            if self.ended:
                yield self
                return
            row = model.decode(src.new_tensor([[bos_id, *self.ids]]), memory, src)[0, -1]
            row = row - row.logsumexp(0)
            for token in range(len(row)):
                yield Hypothesis([*self.ids, token], self.total + row[token].item())

    was, kept = model.training, [Hypothesis([], 0.0)]
    model.eval()
    with torch.no_grad():
        memory = model.encode(src)
        for _ in range(max_len):
            if all(one.ended for one in kept):
                break
            pool = [child for one in kept for child in one.children()]
            kept = sorted(pool, key=lambda one: one.score, reverse=True)[:beam]
    model.train(was)
    best = max(kept, key=lambda one: (one.ended, one.score))
    return torch.tensor([best.ids])


@right("a cache for what was decoded")
def beam_search(model, src, bos_id, eos_id, max_len, beam=4, alpha=0.6):
    known, mode = {}, model.training
    model.eval()
    memory = torch.no_grad()(model.encode)(src)

    def after(ids):
        if ids not in known:
            with torch.no_grad():
                known[ids] = model.decode(torch.tensor([ids]), memory, src)[0, -1].log_softmax(-1).tolist()
        return known[ids]

    beams = {(bos_id,): 0.0}
    rank = lambda item: item[1] / (((5 + len(item[0]) - 1) / 6) ** alpha)
    ends = lambda ids: len(ids) > 1 and ids[-1] == eos_id
    for _ in range(max_len):
        new = {}
        for ids, total in beams.items():
            new.update({ids: total} if ends(ids) else {ids + (i,): total + gain for i, gain in enumerate(after(ids))})
        beams = dict(sorted(new.items(), key=rank, reverse=True)[:beam])
        if all(map(ends, beams)):
            break
    model.train(mode)
    best = next((ids for ids in beams if ends(ids)), next(iter(beams)))
    return torch.tensor(best[1:]).reshape(1, -1)


@right("tensors for the alive, a list for the ended")
def beam_search(model, src, bos_id, eos_id, max_len, beam=4, alpha=0.6):
    mode = model.training
    with torch.no_grad():
        model.eval()
        memory = model.encode(src)
        ids, totals, ended = torch.full((1, 1), bos_id), torch.zeros(1, dtype=torch.float64), []
        for length in range(1, max_len + 1):
            logits = model.decode(ids, memory.repeat(len(ids), 1, 1), src.repeat(len(ids), 1))[:, -1]
            all_totals = totals[:, None] + logits.double().log_softmax(1)
            scores = all_totals / ((5 + length) / 6) ** alpha
            order = scores.flatten().argsort(descending=True)[:beam].tolist()
            V = scores.shape[1]
            pool = [(scores[i // V, i % V].item(), [*ids[i // V].tolist(), i % V], all_totals[i // V, i % V].item()) for i in order]
            pool = sorted(pool + ended, key=lambda one: one[0], reverse=True)[:beam]
            ended = [one for one in pool if one[1][-1] == eos_id]
            alive = [one for one in pool if one[1][-1] != eos_id]
            if not alive:
                break
            ids, totals = torch.tensor([one[1] for one in alive]), torch.tensor([one[2] for one in alive], dtype=torch.float64)
    model.train(mode)
    best = ended[0] if ended else alive[0]
    return torch.tensor([best[1][1:]])
