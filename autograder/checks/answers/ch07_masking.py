"""Chapter 7: right answers that look different, and the mistakes learners make."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from autograder.checks.catalogue import changed, right, wrong
from autograder.checks.given import FeedForward, MultiHeadAttention

# ---- causal_mask ------------------------------------------------------------------------------------------------------


@right("tril")
def causal_mask(n, m=None):
    m = n if m is None else m
    if m < n:
        raise ValueError(f"{n} queries cannot be the last of {m} positions")
    return torch.ones(n, m, dtype=torch.bool).tril(m - n)


_causal = causal_mask


@right("triu is zero")
def causal_mask(n, m=None):
    m = n if m is None else m
    if m < n:
        raise ValueError("m < n")
    return torch.triu(torch.ones(n, m), diagonal=m - n + 1) == 0


@right("positions compared")
def causal_mask(n, m=None):
    m = n if m is None else m
    if n > m:
        raise ValueError("m < n")
    return torch.arange(m) <= torch.arange(m - n, m)[:, None]


@right("not triu")
def causal_mask(n, m=None):
    m = n if m is None else m
    if m < n:
        raise ValueError("m < n")
    return ~torch.ones(n, m, dtype=torch.bool).triu(1 + m - n)


@right("list comprehension")
def causal_mask(n, m=None):
    if m is None:
        m = n
    if m < n:
        raise ValueError("m < n")
    return torch.tensor([[j <= i + m - n for j in range(m)] for i in range(n)])


@right("loop")
def causal_mask(n, m=None):
    if m is None:
        m = n
    if m < n:
        raise ValueError("m < n")
    allowed = torch.zeros(n, m, dtype=torch.bool)
    for i in range(n):
        allowed[i, : m - n + i + 1] = True
    return allowed


@right("last rows of the square")
def causal_mask(n, m=None):
    m = n if m is None else m
    if m < n:
        raise ValueError("m < n")
    return torch.ones(m, m).tril().bool()[m - n :]


@right("cumulative sum")
def causal_mask(n, m=None):
    m = n if m is None else m
    if m < n:
        raise ValueError("m < n")
    return torch.eye(m).flip(1).cumsum(1).flip(1)[m - n :] > 0


@right("NumPy inside")
def causal_mask(n, m=None):
    m = n if m is None else m
    if m < n:
        raise ValueError("m < n")
    return torch.from_numpy(np.tri(n, m, m - n, dtype=bool))


changed(
    _causal, "upper triangle", "you kept the upper triangle: a query sees itself and the future, and not the past",
    (".tril(m - n)", ".triu(m - n)"),
)  # fmt: skip
changed(
    _causal, "not itself", "a query may attend to its own position, too; without it, query 1 has nothing to attend to",
    (".tril(m - n)", ".tril(m - n - 1)"),
)  # fmt: skip
changed(
    _causal, "one ahead", "query i sees key i + 1, which is the future: the diagonal is one too high",
    (".tril(m - n)", ".tril(m - n + 1)"),
)  # fmt: skip
changed(
    _causal, "polarity inverted", "True means may attend; your mask is True at what is forbidden (torch's "
    "nn.MultiheadAttention reads masks that way round, this course and F.scaled_dot_product_attention do not)",
    ("torch.ones(n, m, dtype=torch.bool).tril(m - n)", "torch.ones(n, m, dtype=torch.bool).triu(m - n + 1)"),
)  # fmt: skip
changed(
    _causal, "numbers, not booleans", "the mask holds numbers; it should be boolean: dtype=torch.bool, or compare",
    ("dtype=torch.bool", "dtype=torch.float32"),
)  # fmt: skip
changed(
    _causal, "integers, not booleans", "the mask holds integers; it should be boolean: dtype=torch.bool, or compare",
    ("dtype=torch.bool", "dtype=torch.int64"),
)  # fmt: skip
changed(
    _causal, "additive", "you return the additive form, 0 and -inf; a boolean mask is asked for, True = may attend",
    ("torch.ones(n, m, dtype=torch.bool).tril(m - n)", "torch.full((n, m), -torch.inf).triu(m - n + 1)"),
)  # fmt: skip
changed(
    _causal, "everything allowed", "every entry is True: nothing is masked; keys later than the query should be False",
    (".tril(m - n)", ""),
)  # fmt: skip
changed(
    _causal, "the past forgotten", "a query sees itself alone; it may also attend to all that came before",
    (".tril(m - n)", ".tril(m - n).triu(m - n)"),
)  # fmt: skip
changed(
    _causal, "aligned top-left", "with m > n the queries are the LAST n of m positions, so the first of them sees "
    "m - n + 1 keys; you aligned them with the first n (as torch's is_causal does)",
    (".tril(m - n)", ".tril()"),
)  # fmt: skip
changed(
    _causal, "m ignored", "the result is (n, n): with m given it is (n, m), one column a key",
    ("torch.ones(n, m, dtype=torch.bool).tril(m - n)", "torch.ones(n, n, dtype=torch.bool).tril()"),
)  # fmt: skip
changed(
    _causal, "axes swapped", "the result is (m, n): queries come down, in n rows, and keys across, in m columns",
    (".tril(m - n)", ".tril(m - n).mT.contiguous()"),
)  # fmt: skip
changed(
    _causal, "new keys all seen", "with m > n every query sees all m keys; the new positions must not see each "
    "other's future either",
    (".tril(m - n)", ".tril((m - n) if m == n else m)"),
)  # fmt: skip
changed(
    _causal, "m < n not refused", "with m < n, fewer positions than queries, a ValueError is asked for",
    ("if m < n:", "if False:"),
)  # fmt: skip
changed(
    _causal, "m = 0 taken for none", "m = 0 is a number of positions, fewer than the queries: ask `m is None`, for 0 counts as False, too",
    ("m = n if m is None else m", "m = m or n"),
)  # fmt: skip
changed(
    _causal, "m = n refused", "m = n is allowed: then the queries are all the positions",
    ("m = n if m is None else m", "m = n if m is None else m - (m == n)"),
)  # fmt: skip
changed(
    _causal, "assert", "you check with an assert; the exercise asks for a ValueError (asserts vanish under python -O)",
    ("if m < n:", "assert m >= n\n    if m < n:"),
)  # fmt: skip
changed(
    _causal, "with leading axes", "the result should be (n, m), without axes for batch and heads: they broadcast",
    (".tril(m - n)", ".tril(m - n)[None, None]"),
)  # fmt: skip
changed(
    _causal, "a NumPy array", "the mask is a NumPy array; from chapter 3 on everything is a torch tensor",
    (".tril(m - n)", ".tril(m - n).numpy()"),
)  # fmt: skip

# ---- padding_mask -----------------------------------------------------------------------------------------------------


@right("axes by None")
def padding_mask(ids, pad_id):
    return (ids != pad_id)[:, None, None, :]


_padding = padding_mask


@right("unsqueeze twice")
def padding_mask(ids, pad_id):
    return ids.ne(pad_id).unsqueeze(1).unsqueeze(1)


@right("view")
def padding_mask(ids, pad_id):
    B, n = ids.shape
    return ~(ids.reshape(B, 1, 1, n) == pad_id)


@right("where")
def padding_mask(ids, pad_id):
    allowed = torch.where(ids == pad_id, torch.tensor(False), torch.tensor(True))
    return allowed.unflatten(0, (-1, 1, 1))


@right("list comprehension")
def padding_mask(ids, pad_id):
    return torch.tensor([[[[token != pad_id for token in row]]] for row in ids.tolist()])


@right("difference")
def padding_mask(ids, pad_id):
    return (ids - pad_id).bool()[:, None, None]


changed(
    _padding, "polarity inverted", "your mask is True at the padding; True means may attend", ("!=", "=="),
)  # fmt: skip
changed(
    _padding, "no axes for heads and queries", "the result is (B, n); make it (B, 1, 1, n), so that it "
    "broadcasts over heads and queries", ("[:, None, None, :]", ""),
)  # fmt: skip
changed(
    _padding, "one axis missing", "the result is (B, 1, n); make it (B, 1, 1, n): there are heads, too",
    ("[:, None, None, :]", "[:, None, :]"),
)  # fmt: skip
changed(
    _padding, "on the query axis", "the result is (B, 1, n, 1), which masks queries; padding must not be attended "
    "TO, so it goes on the last axis, the keys", ("[:, None, None, :]", "[:, None, :, None]"),
)  # fmt: skip
changed(
    _padding, "the query axis, too", "the result is (B, 1, n, n) and masks the rows of padded queries: such rows are "
    "empty, and softmax makes NaN of them. Mask keys alone: (B, 1, 1, n)",
    ("(ids != pad_id)[:, None, None, :]", "(ids != pad_id)[:, None, None, :] & (ids != pad_id)[:, None, :, None]"),
)  # fmt: skip
changed(
    _padding, "pad_id taken as 0", "you compare with 0; compare with pad_id, which may be any number",
    ("!= pad_id", "!= 0"),
)  # fmt: skip
changed(
    _padding, "greater than pad_id", "ids smaller than pad_id are tokens, too: compare with !=, not with >",
    ("!= pad_id", "> pad_id"),
)  # fmt: skip
changed(
    _padding, "numbers, not booleans", "the mask holds numbers; it should be boolean, as a comparison is",
    ("[:, None, None, :]", "[:, None, None, :].float()"),
)  # fmt: skip
changed(
    _padding, "additive", "you return the additive form, 0 and -inf; a boolean mask is asked for, True = may attend",
    ("(ids != pad_id)[:, None, None, :]", "torch.zeros(ids.shape).masked_fill(ids == pad_id, -torch.inf)[:, None, None, :]"),
)  # fmt: skip
changed(
    _padding, "one row for all", "every sequence got the same mask; each has padding of its own",
    ("(ids != pad_id)", "(ids != pad_id).any(0, keepdim=True).expand(ids.shape)"),
)  # fmt: skip
changed(
    _padding, "padding at the end only", "you count the tokens and allow that many positions from the left; padding may "
    "stand anywhere, for instance on the left: compare each id",
    ("(ids != pad_id)", "(torch.arange(ids.shape[1]) < (ids != pad_id).sum(1, keepdim=True))"),
)  # fmt: skip
changed(
    _padding, "ids overwritten", "you wrote into the caller's ids: a comparison makes a new tensor",
    ("return (ids != pad_id)", "ids -= pad_id\n    return (ids != 0)"),
)  # fmt: skip
changed(
    _padding, "all allowed", "no key is masked: those whose id is pad_id should be False", ("!= pad_id", "!= pad_id - 999"),
)  # fmt: skip


@right("filled in a loop")
def padding_mask(ids, pad_id):
    allowed = torch.ones(ids.size(0), 1, 1, ids.size(1), dtype=torch.bool)
    for b, row in enumerate(ids):
        for j, token in enumerate(row):
            if token == pad_id:
                allowed[b, 0, 0, j] = False
    return allowed


@right("logical_not of isin")
def padding_mask(ids, pad_id):
    return torch.isin(ids, torch.tensor([pad_id]), invert=True)[:, None].unsqueeze(-2)


@wrong("only trailing padding", "you cut off the padding at the end alone; pad_id is padding wherever it stands")
def padding_mask(ids, pad_id):
    lengths = [max((j + 1 for j, token in enumerate(row) if token != pad_id), default=0) for row in ids.tolist()]
    return (torch.arange(ids.shape[1]) < torch.tensor(lengths)[:, None])[:, None, None, :]


@wrong("up to the first padding", "you forbid everything from the first pad_id on; a token behind it is a token")
def padding_mask(ids, pad_id):
    return ((ids == pad_id).cumsum(dim=1) == 0)[:, None, None, :]


# ---- combine_masks ----------------------------------------------------------------------------------------------------


@right("and in a loop")
def combine_masks(*masks):
    combined = None
    for mask in masks:
        if mask is not None:
            combined = mask.bool() if combined is None else combined & mask.bool()
    return combined


_combine = combine_masks


@right("list, then and")
def combine_masks(*masks):
    masks = [mask.bool() for mask in masks if mask is not None]
    if not masks:
        return None
    result = masks[0]
    for mask in masks[1:]:
        result = torch.logical_and(result, mask)
    return result


@right("product")
def combine_masks(*masks):
    product = None
    for mask in masks:
        if mask is not None:
            product = mask.long() if product is None else product * mask.long()
    return None if product is None else product == 1


@right("broadcast and all")
def combine_masks(*masks):
    masks = [mask for mask in masks if mask is not None]
    return torch.stack(torch.broadcast_tensors(*[mask != 0 for mask in masks])).all(dim=0) if masks else None


@right("none forbids")
def combine_masks(*masks):
    forbidden = None
    for mask in masks:
        if mask is None:
            continue
        forbidden = mask == 0 if forbidden is None else (mask == 0) | forbidden
    return None if forbidden is None else ~forbidden


@right("True to start with")
def combine_masks(*masks):
    if all(mask is None for mask in masks):
        return None
    result = torch.tensor(True)
    for mask in masks:
        result = result if mask is None else result * (mask > 0)
    return result


@right("minimum")
def combine_masks(*masks):
    left = [mask.int() for mask in masks if mask is not None]
    while len(left) > 1:
        left = [torch.minimum(left[0], left[1]), *left[2:]]
    return left[0].bool() if left else None


changed(
    _combine, "or", "a key is allowed if ALL masks allow it: and, not or. Yours lets in what a single mask allows",
    ("combined & mask", "combined | mask"),
)  # fmt: skip
changed(
    _combine, "xor", "a key is allowed if all masks allow it; yours is False where both do", ("combined & mask", "combined ^ mask"),
)  # fmt: skip
changed(
    _combine, "the last mask", "only the last mask counts; all of them must allow", ("combined & mask.bool()", "(combined | True) & mask.bool()"),
)  # fmt: skip
changed(
    _combine, "the first mask", "only the first mask counts; all of them must allow", ("combined & mask.bool()", "combined & (mask.bool() | True)"),
)  # fmt: skip
changed(
    _combine, "result inverted", "the result is True where a key is forbidden; True means may attend",
    ("return combined", "return None if combined is None else ~combined"),
)  # fmt: skip
changed(
    _combine, "None not skipped", "a mask may be None; it forbids nothing and is skipped",
    ("if mask is not None:", "if True:"),
)  # fmt: skip
changed(
    _combine, "stops at None", "a None ends your loop: skip it and go on with the masks after it",
    ("if mask is not None:", "if mask is None:\n            break\n        if True:"),
)  # fmt: skip
changed(
    _combine, "None wins", "one None made the whole result None; it forbids nothing, but the others still do",
    ("    combined = None\n", "    if any(mask is None for mask in masks):\n        return None\n    combined = None\n"),
)  # fmt: skip
changed(
    _combine, "True for nothing", "with no mask left the result should be None, not a tensor",
    ("return combined", "return torch.tensor(True) if combined is None else combined"),
)  # fmt: skip
changed(
    _combine, "error for nothing", "with no mask left the result should be None; yours raises an error",
    ("return combined", "return combined.bool()"),
)  # fmt: skip
changed(
    _combine, "integers stay integers", "masks of 0 and 1 should give a boolean one: convert with .bool()",
    ("mask.bool() if combined", "mask if combined"), ("combined & mask.bool()", "combined & mask"),
)  # fmt: skip
changed(
    _combine, "one mask unconverted", "a single mask of 0 and 1 comes out as it went in; the result should be boolean",
    ("mask.bool() if combined", "mask if combined"), ("combined & mask.bool()", "combined.bool() & mask.bool()"),
)  # fmt: skip
changed(
    _combine, "in place", "you wrote into the first mask: use &, not &=, or work on a copy",
    ("combined & mask.bool()", "_into(combined, mask.bool())"),
    ("    combined = None\n", "    def _into(first, mask):\n        try:\n            first &= mask\n        except RuntimeError:\n"
     "            first = first & mask\n        return first\n\n    combined = None\n"),
)  # fmt: skip


@wrong("one shape only", "masks of different shapes should broadcast, as in a sum; yours need the same shape")
def combine_masks(*masks):
    masks = [mask.bool() for mask in masks if mask is not None]
    return torch.stack(masks).all(dim=0) if masks else None


@wrong("two masks only", "there may be any number of masks; yours joins the first two")
def combine_masks(*masks):
    masks = [mask.bool() for mask in masks if mask is not None]
    if len(masks) < 2:
        return masks[0] if masks else None
    return masks[0] & masks[1]


@wrong("added up", "you added the masks: True + True is True, and so is True + False; all of them must allow")
def combine_masks(*masks):
    masks = [mask for mask in masks if mask is not None]
    return sum(mask.long() for mask in masks).long() if masks else None


changed(
    _combine, "a mask of False skipped", "a mask that forbids everything is skipped as if it were None: test `is not None`, nothing more",
    ("if mask is not None:", "if mask is not None and mask.any():"),
)  # fmt: skip


@right("reduce")
def combine_masks(*masks):
    from functools import reduce

    return reduce(lambda a, b: b if a is None else a if b is None else a.bool() & b.bool(),
                  [None if mask is None else mask.bool() for mask in masks], None)


# ---- to_additive ------------------------------------------------------------------------------------------------------


@right("masked_fill")
def to_additive(mask, dtype=torch.float32):
    return torch.zeros(mask.shape, dtype=dtype).masked_fill(mask == 0, -torch.inf)


_additive = to_additive


@right("where")
def to_additive(mask, dtype=torch.float32):
    return torch.where(mask.bool(), 0.0, -math.inf).to(dtype)


@right("logarithm")
def to_additive(mask, dtype=torch.float32):
    return mask.to(dtype).log()


@right("indexing")
def to_additive(mask, dtype=torch.float32):
    added = torch.zeros(mask.shape, dtype=dtype)
    added[~mask.bool()] = float("-inf")
    return added


@right("full and fill back")
def to_additive(mask, dtype=torch.float32):
    return torch.full(mask.shape, -torch.inf, dtype=dtype).masked_fill_(mask > 0, 0)


@right("lookup")
def to_additive(mask, dtype=torch.float32):
    return torch.tensor([-torch.inf, 0.0], dtype=dtype)[mask.long()]


changed(
    _additive, "polarity inverted", "0 belongs where the mask is True (may attend), -inf where it is False; yours is "
    "the other way round", ("mask == 0", "mask == 1"),
)  # fmt: skip
changed(
    _additive, "plus infinity", "you add +inf: an infinite score gets all the weight, or NaN; -inf gets none",
    ("-torch.inf", "torch.inf"),
)  # fmt: skip
changed(
    _additive, "-1e9", "forbidden entries should be exactly -inf; -1e9 is a number, so an empty row is not seen as one",
    ("torch.zeros(mask.shape, dtype=dtype).masked_fill(mask == 0, -torch.inf)",
     "torch.zeros(mask.shape).masked_fill(mask == 0, -1e9).to(dtype)"),
)  # fmt: skip
changed(
    _additive, "the smallest number", "forbidden entries should be exactly -inf, not the smallest number of the dtype",
    ("-torch.inf", "torch.finfo(dtype).min"),
)  # fmt: skip
changed(
    _additive, "-1e4", "forbidden entries should be exactly -inf; with -1e4 a score of 10 001 brings the key back",
    ("-torch.inf", "-1e4"),
)  # fmt: skip
changed(
    _additive, "zero times infinity", "0 * -inf is NaN: choose between 0 and -inf, with where or masked_fill, "
    "and multiply nothing",
    ("torch.zeros(mask.shape, dtype=dtype).masked_fill(mask == 0, -torch.inf)", "(1 - mask.to(dtype)) * -torch.inf"),
)  # fmt: skip
changed(
    _additive, "one where allowed", "allowed entries should add 0: adding 1 to them changes nothing in a row without "
    "-inf, but it is not 0", ("torch.zeros", "torch.ones"),
)  # fmt: skip
changed(
    _additive, "still the mask", "you only converted the mask to numbers; adding 0 and 1 to scores forbids nothing",
    ("torch.zeros(mask.shape, dtype=dtype).masked_fill(mask == 0, -torch.inf)", "mask.to(dtype)"),
)  # fmt: skip
changed(
    _additive, "0 and -1", "forbidden entries are -1; a score lowered by 1 still has weight. They should be -inf",
    ("-torch.inf", "-1.0"),
)  # fmt: skip
changed(
    _additive, "dtype ignored", "the result should have the dtype that is asked for, not always float32",
    ("dtype=dtype", "dtype=torch.float32"),
)  # fmt: skip
changed(
    _additive, "float64 by default", "without dtype the result should be float32", ("dtype=torch.float32", "dtype=torch.float64"),
)  # fmt: skip
changed(
    _additive, "tilde on integers", "~ on a mask of 0 and 1 gives -1 and -2, both of them True: convert with .bool() first, "
    "or compare with 0", ("mask == 0", "(~mask).bool()"),
)  # fmt: skip
changed(
    _additive, "integers refused", "a mask of 0 and 1 is not accepted: convert it with .bool(), or compare it with 0",
    ("mask == 0", "~mask"),
)  # fmt: skip
changed(
    _additive, "rows of zeros left open", "a row with nothing allowed should be -inf all over; yours lets everything in",
    ("mask == 0", "(mask == 0) & (mask != 0).any(dim=-1, keepdim=True)"),
)  # fmt: skip



@wrong("caller's mask overwritten", "mask.to(dtype) is the caller's own tensor where it has that dtype already, and you wrote into it: make a new one")
def to_additive(mask, dtype=torch.float32):
    added, forbidden = mask.to(dtype), mask == 0
    added[~forbidden] = 0.0
    added[forbidden] = -torch.inf
    return added


@right("reciprocal of zero")
def to_additive(mask, dtype=torch.float32):
    return (1 - 1 / mask.to(torch.float64)).to(dtype)


@right("number by number")
def to_additive(mask, dtype=torch.float32):
    numbers = [0.0 if allowed else float("-inf") for allowed in mask.flatten().tolist()]
    return torch.tensor(numbers, dtype=dtype).reshape(mask.shape)


# ---- masked_softmax ---------------------------------------------------------------------------------------------------


@right("fill, softmax, fill")
def masked_softmax(scores, mask):
    allowed = mask.bool()
    weights = torch.softmax(scores.masked_fill(~allowed, -torch.inf), dim=-1)
    return weights.masked_fill(~allowed.any(dim=-1, keepdim=True), 0.0)


_softmax = masked_softmax


@right("nan_to_num after fill")
def masked_softmax(scores, mask):
    return torch.nan_to_num(scores.masked_fill(mask == 0, float("-inf")).softmax(-1), nan=0.0)


@right("smallest number, then times the mask")
def masked_softmax(scores, mask):
    allowed = mask.bool()
    filled = torch.where(allowed, scores, torch.finfo(scores.dtype).min)
    return torch.softmax(filled, dim=-1) * allowed


@right("empty rows opened first")
def masked_softmax(scores, mask):
    allowed = mask.bool()
    empty = ~allowed.any(dim=-1, keepdim=True)
    filled = scores.masked_fill(~allowed & ~empty, -torch.inf)
    return filled.softmax(dim=-1).masked_fill(empty, 0)


@right("by hand, largest allowed score subtracted")
def masked_softmax(scores, mask):
    allowed = mask.bool().expand(scores.shape)
    top = scores.detach().masked_fill(~allowed, -torch.inf).amax(dim=-1, keepdim=True)
    shifted = (scores - top.masked_fill(top == -torch.inf, 0)).masked_fill(~allowed, -torch.inf)
    powers = shifted.exp()
    total = powers.sum(dim=-1, keepdim=True)
    return powers / total.masked_fill(total == 0, 1)


@right("additive, empty rows left alone")
def masked_softmax(scores, mask):
    allowed = mask.bool()
    added = torch.zeros(allowed.shape, dtype=scores.dtype).masked_fill(~allowed, -torch.inf)
    added = torch.where(allowed.any(-1, keepdim=True), added, torch.zeros_like(added))
    return (scores + added).softmax(-1).where(allowed.any(-1, keepdim=True), 0.0)


@right("row by row")
def masked_softmax(scores, mask):
    allowed = mask.bool().expand(scores.shape)
    rows = []
    for row, keep in zip(scores.reshape(-1, scores.shape[-1]), allowed.reshape(-1, scores.shape[-1])):
        out = torch.zeros_like(row)
        if keep.any():
            out = out.masked_scatter(keep, row[keep].softmax(0))
        rows.append(out)
    return torch.stack(rows).reshape(scores.shape)


@right("log_softmax")
def masked_softmax(scores, mask):
    empty = (mask == 0).all(dim=-1, keepdim=True)
    filled = scores.masked_fill(mask == 0, -torch.inf).masked_fill(empty, 0)
    return filled.log_softmax(dim=-1).exp() * (mask != 0) * ~empty


@right("float64 inside")
def masked_softmax(scores, mask):
    allowed = mask.bool()
    weights = scores.double().masked_fill(~allowed, -1e9).softmax(-1) * allowed
    return weights.to(scores.dtype)


@right("torch's attention on the identity")
def masked_softmax(scores, mask):
    allowed = mask.bool()
    filled = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
    filled = filled - filled.amax(-1, keepdim=True).detach()
    weights = torch.exp(filled - filled.logsumexp(-1, keepdim=True))
    return torch.where(allowed, weights, torch.zeros((), dtype=scores.dtype))


@right("logsumexp subtracted")
def masked_softmax(scores, mask):
    allowed = mask.bool()
    empty = ~allowed.any(dim=-1, keepdim=True)
    filled = scores.masked_fill(~allowed, -torch.inf).masked_fill(empty, 0)
    return (filled - filled.logsumexp(dim=-1, keepdim=True)).exp().masked_fill(empty, 0)


changed(
    _softmax, "mask ignored", "the mask has no effect: forbidden keys keep their weight",
    ("scores.masked_fill(~allowed, -torch.inf)", "scores"),
)  # fmt: skip
changed(
    _softmax, "polarity inverted", "your mask is upside down: True means may attend; fill where it is False",
    ("allowed = mask.bool()", "allowed = ~mask.bool()"),
)  # fmt: skip
changed(
    _softmax, "masked after softmax", "you zero weights after the softmax: rows no longer sum to 1, and the forbidden "
    "scores still stand in the denominator. Mask the scores, before",
    ("torch.softmax(scores.masked_fill(~allowed, -torch.inf), dim=-1)", "torch.softmax(scores, dim=-1) * allowed"),
)  # fmt: skip


@wrong(
    "masked after softmax, divided again",
    "you mask the weights and divide them again. A forbidden score that is far above the others takes all the weight "
    "first, and nothing is left to divide: mask the scores, before the softmax",
)
def masked_softmax(scores, mask):
    weights = torch.softmax(scores, dim=-1) * mask
    total = weights.sum(dim=-1, keepdim=True)
    return weights / total.masked_fill(total == 0, 1)


changed(
    _softmax, "scores times mask", "scores * mask makes forbidden scores 0, and exp(0) = 1 is no small weight; -inf is what "
    "gives none", ("scores.masked_fill(~allowed, -torch.inf)", "scores * allowed"),
)  # fmt: skip
changed(
    _softmax, "mask added", "you add 0 and 1 to the scores, as if the mask were in additive form: convert it, or fill with -inf",
    ("scores.masked_fill(~allowed, -torch.inf)", "scores + allowed"),
)  # fmt: skip
changed(
    _softmax, "-10 as minus infinity", "-10 is not minus infinity: a forbidden key keeps some weight, more when scores are low",
    ("scores.masked_fill(~allowed, -torch.inf)", "scores.masked_fill(~allowed, -10.0)"),
)  # fmt: skip
changed(
    _softmax, "-1e4 as minus infinity", "-1e4 is not minus infinity: when the allowed scores lie below it, the forbidden keys "
    "get the weight. Fill with -inf", ("scores.masked_fill(~allowed, -torch.inf)", "scores.masked_fill(~allowed, -1e4)"),
)  # fmt: skip
changed(
    _softmax, "-1e4 subtracted", "subtracting 1e4 is not minus infinity: a forbidden score that is larger than that still wins. "
    "Fill with -inf", ("scores.masked_fill(~allowed, -torch.inf)", "scores - 1e4 * ~allowed"),
)  # fmt: skip
changed(
    _softmax, "wrong axis", "softmax runs over the keys, the last axis", ("weights = torch.softmax(scores.masked_fill(~allowed, "
    "-torch.inf), dim=-1)", "weights = torch.softmax(scores.masked_fill(~allowed, -torch.inf), dim=-2).nan_to_num()"),
)  # fmt: skip
changed(
    _softmax, "NaN in empty rows", "a row with nothing to attend to comes out as NaN (0/0): such a row should be 0",
    ("return weights.masked_fill(~allowed.any(dim=-1, keepdim=True), 0.0)", "return weights"),
)  # fmt: skip
changed(
    _softmax, "uniform in empty rows", "with a large negative number for -inf, a row with nothing to attend to spreads its "
    "weight over forbidden keys: such a row should be 0",
    ("scores.masked_fill(~allowed, -torch.inf)", "scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)"),
    ("return weights.masked_fill(~allowed.any(dim=-1, keepdim=True), 0.0)", "return weights"),
)  # fmt: skip
changed(
    _softmax, "NaN in the gradient", "the weights are right, but the gradient is NaN: the softmax of a row of -inf was NaN, and "
    "covering that up afterwards does not mend its derivative. Fill with masked_fill or where, or leave empty rows out",
    ("scores.masked_fill(~allowed, -torch.inf)", "scores + torch.zeros(allowed.shape, dtype=scores.dtype).masked_fill(~allowed, "
     "-torch.inf)"),
)  # fmt: skip
changed(
    _softmax, "zero times infinity", "0 * -inf is NaN: choose with masked_fill or where, multiply nothing with infinity",
    ("scores.masked_fill(~allowed, -torch.inf)", "scores + ~allowed * -torch.inf"),
)  # fmt: skip


@wrong("overflow", "large scores overflow in exp: use torch.softmax, or subtract the largest allowed score of the row first")
def masked_softmax(scores, mask):
    powers = scores.exp().masked_fill(mask == 0, 0)
    total = powers.sum(dim=-1, keepdim=True)
    return powers / total.masked_fill(total == 0, 1)


@wrong(
    "the maximum of all keys",
    "you subtract the largest score of the whole row, forbidden keys included; when a forbidden one is far above the "
    "rest, every allowed exponential becomes 0. Take the maximum over the allowed keys",
)
def masked_softmax(scores, mask):
    powers = (scores - scores.amax(dim=-1, keepdim=True)).exp().masked_fill(mask == 0, 0)
    total = powers.sum(dim=-1, keepdim=True)
    return powers / total.masked_fill(total == 0, 1)


changed(
    _softmax, "caller's scores changed", "masked_fill_ with its underscore writes into the caller's scores; masked_fill makes "
    "a copy", ("scores.masked_fill(~allowed, -torch.inf)", "scores.detach().masked_fill_(~allowed, -torch.inf)"),
)  # fmt: skip
changed(
    _softmax, "detached", "the weights carry no gradient: NumPy, .detach() and .data cut the graph",
    ("scores.masked_fill(~allowed, -torch.inf)", "scores.detach().masked_fill(~allowed, -torch.inf)"),
)  # fmt: skip
changed(
    _softmax, "float32 hard-coded", "the weights should keep the dtype of the scores; you convert to float32",
    ("scores.masked_fill(~allowed, -torch.inf)", "scores.float().masked_fill(~allowed, -torch.inf)"),
)  # fmt: skip
changed(
    _softmax, "-1e9 in half precision", "-1e9 does not fit into float16, whose smallest number is -65504, and "
    "masked_fill raises: use -inf, or torch.finfo(scores.dtype).min",
    ("scores.masked_fill(~allowed, -torch.inf)", "scores.masked_fill(~allowed, -1e9)"),
)  # fmt: skip
changed(
    _softmax, "one empty row empties all", "a single empty row made everything 0: look for empty rows along the keys, "
    "with keepdim=True", ("~allowed.any(dim=-1, keepdim=True)", "~allowed.any(dim=-1).all()"),
)  # fmt: skip
changed(
    _softmax, "mask of one shape", "the mask may have fewer axes or sizes 1: it broadcasts to the scores",
    ("allowed = mask.bool()", "allowed = mask.bool().view(scores.shape)"),
)  # fmt: skip
changed(
    _softmax, "a constant in the denominator", "float64 scores come out less exact than they should: a small number was added to the denominator, "
    "or they went through float32. Empty rows need no such number",
    ("return weights.masked_fill", "return (weights / (weights.sum(dim=-1, keepdim=True) + 1e-6)).masked_fill"),
)  # fmt: skip



@wrong(
    "chosen after exp",
    "the weights are right, but the gradient is NaN: you choose after exp, and the exp of a forbidden score that is far "
    "above the others is inf; its derivative is 0 * inf. Fill the scores with -inf before exp",
)
def masked_softmax(scores, mask):
    allowed = mask.bool()
    top = torch.where(allowed, scores, -torch.inf).amax(dim=-1, keepdim=True).nan_to_num(neginf=0.0)
    powers = torch.where(allowed, (scores - top).exp(), 0)
    total = powers.sum(dim=-1, keepdim=True)
    return torch.where(total > 0, powers / total.masked_fill(total == 0, 1), 0)


@wrong(
    "-1e4, then times the mask",
    "-1e4 is not minus infinity: where the allowed scores lie below it the forbidden keys get the weight, and multiplying "
    "by the mask only takes it away again. Fill with -inf",
)
def masked_softmax(scores, mask):
    allowed = mask.bool()
    return torch.softmax(scores.masked_fill(~allowed, -1e4), dim=-1) * allowed


# ---- DecoderBlock -----------------------------------------------------------------------------------------------------


@right("two branches")
class DecoderBlock(nn.Module):
    def __init__(self, d_model, h, d_ff, dropout=0.1, norm="post"):
        super().__init__()
        if norm not in ("post", "pre"):
            raise ValueError(f'norm is "post" or "pre", not {norm!r}')
        self.self_attention = MultiHeadAttention(d_model, h)
        self.cross_attention = MultiHeadAttention(d_model, h)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.norm1 = nn.LayerNorm(d_model)
        self.norm2 = nn.LayerNorm(d_model)
        self.norm3 = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)
        self.norm = norm

    def forward(self, x, memory, self_mask=None, cross_mask=None):
        if self.norm == "post":
            a = self.self_attention(x, mask=self_mask)[0]
            x = self.norm1(x + self.dropout(a))
            b = self.cross_attention(x, memory, mask=cross_mask)[0]
            y = self.norm2(x + self.dropout(b))
            c = self.feed_forward(y)
            return self.norm3(y + self.dropout(c))
        z = self.norm1(x)
        x = x + self.dropout(self.self_attention(z, mask=self_mask)[0])
        z = self.norm2(x)
        x = x + self.dropout(self.cross_attention(z, memory, mask=cross_mask)[0])
        z = self.norm3(x)
        return x + self.dropout(self.feed_forward(z))


_block = DecoderBlock


@right("arguments handed on")
class DecoderBlock(nn.Module):
    def __init__(self, *args, **kwargs):
        super().__init__()
        self.build(*args, **kwargs)

    def build(self, d_model, h, d_ff, dropout=0.1, norm="post"):
        if norm not in {"post", "pre"}:
            raise ValueError(norm)
        self.pre = norm == "pre"
        self.self_attention, self.cross_attention = MultiHeadAttention(d_model, h), MultiHeadAttention(d_model, h)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.norm1, self.norm2, self.norm3 = nn.LayerNorm(d_model), nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, memory, self_mask=None, cross_mask=None):
        layers = [
            (self.norm1, lambda y: self.self_attention(y, mask=self_mask)[0]),
            (self.norm2, lambda y: self.cross_attention(y, memory, mask=cross_mask)[0]),
            (self.norm3, self.feed_forward),
        ]
        for norm, layer in layers:
            x = x + self.dropout(layer(norm(x))) if self.pre else norm(x + self.dropout(layer(x)))
        return x


@right("one helper for the residual")
class DecoderBlock(nn.Module):
    def __init__(self, d_model, h, d_ff, dropout=0.1, norm="post"):
        super().__init__()
        if norm not in ("post", "pre"):
            raise ValueError(norm)
        self.self_attention, self.cross_attention = MultiHeadAttention(d_model, h), MultiHeadAttention(d_model, h)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(d_model) for _ in range(3))
        self.drop, self.pre = nn.Dropout(dropout), norm == "pre"

    def add(self, x, norm, sublayer):
        return x + self.drop(sublayer(norm(x))) if self.pre else norm(x + self.drop(sublayer(x)))

    def forward(self, x, memory, self_mask=None, cross_mask=None):
        x = self.add(x, self.norm1, lambda y: self.self_attention(y, y, y, mask=self_mask)[0])
        x = self.add(x, self.norm2, lambda y: self.cross_attention(y, memory, memory, mask=cross_mask)[0])
        return self.add(x, self.norm3, self.feed_forward)


@right("a loop over sub-layers")
class DecoderBlock(nn.Module):
    def __init__(self, d_model, h, d_ff, dropout=0.1, norm="post"):
        super().__init__()
        if norm != "post" and norm != "pre":
            raise ValueError("norm")
        self.self_attention = MultiHeadAttention(d_model, h)
        self.cross_attention = MultiHeadAttention(d_model, h)
        self.feed_forward = FeedForward(d_model, d_ff)
        for i in (1, 2, 3):
            setattr(self, f"norm{i}", nn.LayerNorm(d_model))
        self.dropouts = nn.ModuleList(nn.Dropout(dropout) for _ in range(3))
        self.kind = norm

    def forward(self, x, memory, self_mask=None, cross_mask=None):
        sublayers = (
            lambda y: self.self_attention(y, mask=self_mask)[0],
            lambda y: self.cross_attention(y, memory, mask=cross_mask)[0],
            self.feed_forward,
        )
        for sublayer, norm, dropout in zip(sublayers, (self.norm1, self.norm2, self.norm3), self.dropouts):
            if self.kind == "pre":
                x = x + dropout(sublayer(norm(x)))
            else:
                x = norm(x + dropout(sublayer(x)))
        return x


@right("dropout as a function")
class DecoderBlock(nn.Module):
    def __init__(self, d_model, h, d_ff, dropout=0.1, norm="post"):
        super().__init__()
        if norm not in {"post", "pre"}:
            raise ValueError("norm")
        self.self_attention = MultiHeadAttention(d_model, h)
        self.cross_attention = MultiHeadAttention(d_model, h)
        self.feed_forward = FeedForward(d_model, d_ff, F.relu)
        self.norm1, self.norm2, self.norm3 = nn.LayerNorm(d_model), nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.p, self.norm = dropout, norm

    def forward(self, x, memory, self_mask=None, cross_mask=None):
        drop = lambda y: F.dropout(y, self.p, self.training)  # noqa: E731
        pre = self.norm == "pre"
        before = (lambda norm, y: norm(y)) if pre else (lambda norm, y: y)
        after = (lambda norm, y: y) if pre else (lambda norm, y: norm(y))
        x = after(self.norm1, drop(self.self_attention(before(self.norm1, x), mask=self_mask)[0]) + x)
        x = after(self.norm2, drop(self.cross_attention(before(self.norm2, x), memory, mask=cross_mask)[0]) + x)
        return after(self.norm3, drop(self.feed_forward(before(self.norm3, x))) + x)


@right("two forwards")
class DecoderBlock(nn.Module):
    def __init__(self, d_model, h, d_ff, dropout=0.1, norm="post"):
        super().__init__()
        self.forward = {"post": self.post, "pre": self.before}.get(norm)
        if self.forward is None:
            raise ValueError("norm")
        self.self_attention = MultiHeadAttention(d_model, h)
        self.cross_attention = MultiHeadAttention(d_model, h)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.norm1, self.norm2, self.norm3 = [nn.LayerNorm(d_model) for _ in range(3)]
        self.drop = nn.Dropout(p=dropout)

    def post(self, x, memory, self_mask=None, cross_mask=None):
        attended, _ = self.self_attention(x, x, x, self_mask)
        x = self.norm1(x + self.drop(attended))
        attended, _ = self.cross_attention(x, memory, memory, cross_mask)
        x = self.norm2(x + self.drop(attended))
        return self.norm3(x + self.drop(self.feed_forward(x)))

    def before(self, x, memory, self_mask=None, cross_mask=None):
        x = x + self.drop(self.self_attention(self.norm1(x), mask=self_mask)[0])
        x = x + self.drop(self.cross_attention(self.norm2(x), memory, mask=cross_mask)[0])
        return x + self.drop(self.feed_forward(self.norm3(x)))


@right("sub-layers as methods")
class DecoderBlock(nn.Module):
    def __init__(self, d_model, h, d_ff, dropout=0.1, norm="post"):
        super().__init__()
        if norm not in ["pre", "post"]:
            raise ValueError("norm must be pre or post")
        self.self_attention = MultiHeadAttention(d_model, h)
        self.cross_attention = MultiHeadAttention(d_model, h)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.norm1, self.norm2, self.norm3 = nn.LayerNorm(d_model), nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.dropout1, self.dropout2, self.dropout3 = (nn.Dropout(dropout) for _ in range(3))
        self.norm_first = norm == "pre"

    def _self(self, x, mask):
        return self.dropout1(self.self_attention(x, mask=mask)[0])

    def _cross(self, x, memory, mask):
        return self.dropout2(self.cross_attention(query=x, key=memory, value=memory, mask=mask)[0])

    def _feed(self, x):
        return self.dropout3(self.feed_forward(x))

    def forward(self, x, memory, self_mask=None, cross_mask=None):
        if self.norm_first:
            x = x + self._self(self.norm1(x), self_mask)
            x = x + self._cross(self.norm2(x), memory, cross_mask)
            return x + self._feed(self.norm3(x))
        x = self.norm1(x + self._self(x, self_mask))
        x = self.norm2(x + self._cross(x, memory, cross_mask))
        return self.norm3(x + self._feed(x))


@right("masks expanded first")
class DecoderBlock(nn.Module):
    def __init__(self, d_model, h, d_ff, dropout=0.1, norm="post"):
        super().__init__()
        if norm not in ("post", "pre"):
            raise ValueError("norm")
        self.norm, self.dropout = norm, nn.Dropout(dropout)
        self.self_attention = MultiHeadAttention(d_model, h)
        self.cross_attention = MultiHeadAttention(d_model, h)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(d_model) for _ in range(3))

    def forward(self, x, memory, self_mask=None, cross_mask=None):
        n, m = x.shape[1], memory.shape[1]
        self_mask = torch.ones(n, n, dtype=torch.bool) if self_mask is None else self_mask != 0
        cross_mask = torch.ones(n, m, dtype=torch.bool) if cross_mask is None else cross_mask != 0
        post = self.norm == "post"
        x = x + self.dropout(self.self_attention(x if post else self.norm1(x), mask=self_mask)[0])
        x = self.norm1(x) if post else x
        x = x + self.dropout(self.cross_attention(x if post else self.norm2(x), memory, mask=cross_mask)[0])
        x = self.norm2(x) if post else x
        x = x + self.dropout(self.feed_forward(x if post else self.norm3(x)))
        return self.norm3(x) if post else x


@right("norms by function")
class DecoderBlock(nn.Module):
    def __init__(self, d_model, h, d_ff, dropout=0.1, norm="post"):
        super().__init__()
        if norm == "post":
            self.is_post = True
        elif norm == "pre":
            self.is_post = False
        else:
            raise ValueError(f"unknown norm {norm}")
        self.self_attention = MultiHeadAttention(d_model, h)
        self.cross_attention = MultiHeadAttention(d_model, h)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(d_model, eps=1e-5) for _ in range(3))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, memory, self_mask=None, cross_mask=None):
        def step(x, layer, norm, *args, **kwargs):
            out = layer(x if self.is_post else norm(x), *args, **kwargs)
            out = out[0] if isinstance(out, tuple) else out
            total = torch.add(x, self.dropout(out))
            return norm(total) if self.is_post else total

        x = step(x, self.self_attention, self.norm1, mask=self_mask)
        x = step(x, self.cross_attention, self.norm2, memory, mask=cross_mask)
        return step(x, self.feed_forward, self.norm3)


_A = "a = self.self_attention(x, mask=self_mask)[0]\n            x = self.norm1(x + self.dropout(a))"
_B = "b = self.cross_attention(x, memory, mask=cross_mask)[0]\n            y = self.norm2(x + self.dropout(b))"
_C = "c = self.feed_forward(y)\n            return self.norm3(y + self.dropout(c))"
_CROSS = "b = self.cross_attention(x, memory, mask=cross_mask)"
_PRE_CROSS = "self.cross_attention(z, memory, mask=cross_mask)"

changed(
    _block, "no cross-attention to the memory", "cross-attention takes its keys and values from x; they come from memory, the "
    "encoder's output", (_CROSS, "b = self.cross_attention(x, mask=cross_mask)"), (_PRE_CROSS, "self.cross_attention(z, mask=cross_mask)"),
)  # fmt: skip
changed(
    _block, "the memory asks", "cross-attention takes its queries from memory; the decoder asks, so queries come from x, keys and "
    "values from memory", (_CROSS, "b = self.cross_attention(memory, x, mask=cross_mask)"),
    (_PRE_CROSS, "self.cross_attention(memory, z, mask=cross_mask)"),
)  # fmt: skip
changed(
    _block, "values from the decoder", "in cross-attention keys and values both come from memory; your values come from x",
    (_CROSS, "b = self.cross_attention(x, memory, x, mask=cross_mask)"), (_PRE_CROSS, "self.cross_attention(z, memory, z, mask=cross_mask)"),
)  # fmt: skip
changed(
    _block, "cross before self", "the order is self-attention, cross-attention, feed-forward; yours looks at the memory first",
    (_A, "a = self.cross_attention(x, memory, mask=cross_mask)[0]\n            x = self.norm2(x + self.dropout(a))"),
    (_B, "b = self.self_attention(x, mask=self_mask)[0]\n            y = self.norm1(x + self.dropout(b))"),
)  # fmt: skip
changed(
    _block, "feed-forward in the middle", "the feed-forward network comes last, after cross-attention",
    (_B, "b = self.feed_forward(x)\n            y = self.norm3(x + self.dropout(b))"),
    (_C, "c = self.cross_attention(y, memory, mask=cross_mask)[0]\n            return self.norm2(y + self.dropout(c))"),
)  # fmt: skip
changed(
    _block, "feed-forward missing", "the third sub-layer, the feed-forward network, is never used",
    (_C, "return self.norm3(y)"),
)  # fmt: skip
changed(
    _block, "cross-attention missing", "the second sub-layer, cross-attention, is never used: the decoder does not see the source",
    (_B, "y = self.norm2(x)"),
)  # fmt: skip
changed(
    _block, "no residual", "the sub-layers' inputs are not added to their outputs: x + dropout(sublayer(x))",
    ("self.norm1(x + self.dropout(a))", "self.norm1(self.dropout(a))"), ("self.norm2(x + self.dropout(b))", "self.norm2(self.dropout(b))"),
    ("self.norm3(y + self.dropout(c))", "self.norm3(self.dropout(c))"),
)  # fmt: skip
changed(
    _block, "residual from the block's input", "each sub-layer adds to what the one before gave; you add the block's first x every "
    "time", ("a = self.self_attention(x, mask=self_mask)[0]", "a, first = self.self_attention(x, mask=self_mask)[0], x"),
    ("self.norm2(x + self.dropout(b))", "self.norm2(first + self.dropout(b))"), ("self.norm3(y + self.dropout(c))", "self.norm3(first + self.dropout(c))"),
)  # fmt: skip
changed(
    _block, "always pre", 'norm="post" normalises after the sum, norm="pre" before the sub-layer; you do the latter for both',
    ('if self.norm == "post":', "if False:"),
)  # fmt: skip
changed(
    _block, "always post", 'norm="pre" is not heeded: there it is x + sublayer(norm(x))', ('if self.norm == "post":', "if True:"),
)  # fmt: skip
changed(
    _block, "norms exchanged", "norm2 and norm3 are exchanged: norm1, norm2, norm3 follow the order of the sub-layers",
    ("self.norm2(x + self.dropout(b))", "self.norm3(x + self.dropout(b))"), ("self.norm3(y + self.dropout(c))", "self.norm2(y + self.dropout(c))"),
)  # fmt: skip
changed(
    _block, "one norm three times", "norm1 is used after every sub-layer; each has its own: norm1, norm2, norm3",
    ("self.norm2(x + self.dropout(b))", "self.norm1(x + self.dropout(b))"), ("self.norm3(y + self.dropout(c))", "self.norm1(y + self.dropout(c))"),
)  # fmt: skip
changed(
    _block, "self_mask ignored", "self_mask is not handed to self-attention: the decoder sees the future",
    ("a = self.self_attention(x, mask=self_mask)", "a = self.self_attention(x)"),
)  # fmt: skip
changed(
    _block, "cross_mask ignored", "cross_mask is not handed to cross-attention: the decoder attends to padding",
    (_CROSS, "b = self.cross_attention(x, memory)"),
)  # fmt: skip
changed(
    _block, "self_mask for both", "cross-attention got self_mask; source positions have no future to hide: use cross_mask",
    (_CROSS, "b = self.cross_attention(x, memory, mask=self_mask)"),
)  # fmt: skip
changed(
    _block, "causal behind the caller's back", "self_mask=None means no mask; you made a causal one. The caller decides",
    ('if self.norm == "post":', 'self_mask = torch.ones(x.shape[1], x.shape[1]).tril() if self_mask is None else self_mask\n'
     '        if self.norm == "post":'),
)  # fmt: skip
changed(
    _block, "the attention's tuple", "the attention returns (output, weights): take the first of the two before you add",
    ("a = self.self_attention(x, mask=self_mask)[0]", "a = self.self_attention(x, mask=self_mask)"),
)  # fmt: skip
changed(
    _block, "one attention for both", "self_attention and cross_attention are one and the same module; each learns its own weights",
    ("self.cross_attention = MultiHeadAttention(d_model, h)", "self.cross_attention = self.self_attention"),
)  # fmt: skip
changed(
    _block, "memory detached", "no gradient reaches the memory: the encoder would learn nothing. Do not detach it",
    (_CROSS, "b = self.cross_attention(x, memory.detach(), mask=cross_mask)"),
)  # fmt: skip
changed(
    _block, "no dropout", "nothing is dropped in train mode: dropout acts on each sub-layer's output before it is added",
    ("self.dropout = nn.Dropout(dropout)", "self.dropout = nn.Identity()"),
)  # fmt: skip
changed(
    _block, "dropout rate fixed", "the rate is always 0.1: use the argument dropout", ("nn.Dropout(dropout)", "nn.Dropout(0.1)"),
)  # fmt: skip
changed(
    _block, "dropout in eval mode", "F.dropout without self.training also drops in eval mode: use nn.Dropout, or pass training=",
    ("self.dropout = nn.Dropout(dropout)", "self.dropout = lambda y: F.dropout(y, dropout)"),
)  # fmt: skip
changed(
    _block, "dropout after the sum", "you drop out of the sum, and so of x itself; drop out of the sub-layer's output before it is "
    "added", ("self.norm1(x + self.dropout(a))", "self.norm1(self.dropout(x + a))"),
    ("self.norm2(x + self.dropout(b))", "self.norm2(self.dropout(x + b))"), ("self.norm3(y + self.dropout(c))", "self.norm3(self.dropout(y + c))"),
)  # fmt: skip
changed(
    _block, "dropout on the memory", "you drop from the memory; dropout acts on what a sub-layer gives, before it is added, and on nothing else",
    (_CROSS, "b = self.cross_attention(x, self.dropout(memory), mask=cross_mask)"),
    (_PRE_CROSS, "self.cross_attention(z, self.dropout(memory), mask=cross_mask)"),
)  # fmt: skip
changed(
    _block, "masks swapped", "the two masks are swapped: self_mask belongs to self-attention, cross_mask to the attention to the memory",
    ("a = self.self_attention(x, mask=self_mask)", "a = self.self_attention(x, mask=cross_mask)"),
    (_CROSS, "b = self.cross_attention(x, memory, mask=self_mask)"),
)  # fmt: skip
changed(
    _block, "memory normalised", "in pre-LN only x goes through the norm; the memory has had the encoder's final norm",
    (_PRE_CROSS, "self.cross_attention(z, self.norm2(memory), mask=cross_mask)"),
)  # fmt: skip
changed(
    _block, "residual from the norm", "in pre-LN you add to norm(x); add to x itself, so that the gradient has a free way",
    ("x = x + self.dropout(self.self_attention(z", "x = z + self.dropout(self.self_attention(z"),
    ("x = x + self.dropout(self.cross_attention(z", "x = z + self.dropout(self.cross_attention(z"),
    ("return x + self.dropout(self.feed_forward(z))", "return z + self.dropout(self.feed_forward(z))"),
)  # fmt: skip
changed(
    _block, "pre and post together", "in pre-LN nothing is normalised after the last sum: the final norm belongs to the whole stack",
    ("return x + self.dropout(self.feed_forward(z))", "return self.norm3(x + self.dropout(self.feed_forward(z)))"),
)  # fmt: skip
changed(
    _block, "self_mask where there is no cross_mask", "cross_mask=None means no mask; you put self_mask in its place, and source "
    "positions have no future to hide", (_CROSS, "b = self.cross_attention(x, memory, mask=self_mask if cross_mask is None else cross_mask)"),
    (_PRE_CROSS, "self.cross_attention(z, memory, mask=self_mask if cross_mask is None else cross_mask)"),
)  # fmt: skip
changed(
    _block, "self_mask where there is no cross_mask, in pre-LN", 'with norm="pre" self_mask reaches cross-attention where cross_mask '
    "is None: None means no mask", (_PRE_CROSS, "self.cross_attention(z, memory, mask=self_mask if cross_mask is None else cross_mask)"),
)  # fmt: skip
changed(
    _block, "cross_mask where there is no self_mask", "self_mask=None means no mask; you put cross_mask in its place",
    ("a = self.self_attention(x, mask=self_mask)", "a = self.self_attention(x, mask=cross_mask if self_mask is None else self_mask)"),
    ("self.self_attention(z, mask=self_mask)", "self.self_attention(z, mask=cross_mask if self_mask is None else self_mask)"),
)  # fmt: skip
changed(
    _block, "keys without the norm", "in pre-LN self-attention takes queries, keys and values from norm1(x); your keys and values come "
    "from x itself", ("self.self_attention(z, mask=self_mask)", "self.self_attention(z, x, mask=self_mask)"),
)  # fmt: skip
changed(
    _block, "dropout before the feed-forward network", "dropout acts on what the feed-forward network gives, before it is added; yours "
    "acts on what goes into it", ("c = self.feed_forward(y)", "c = self.feed_forward(self.dropout(y))"), ("y + self.dropout(c)", "y + c"),
    ("return x + self.dropout(self.feed_forward(z))", "return x + self.feed_forward(self.dropout(z))"),
)  # fmt: skip
changed(
    _block, "unknown norm accepted", 'a norm other than "post" and "pre" should raise a ValueError',
    ('if norm not in ("post", "pre"):', "if False:"),
)  # fmt: skip

# ---- leaks_future -----------------------------------------------------------------------------------------------------


@right("one changed token after another")
def leaks_future(model, ids, vocab_size, atol=1e-6):
    was_training = model.training
    model.eval()
    with torch.no_grad():
        before, leak = model(ids), False
        for t in range(1, ids.shape[1]):
            other = ids.clone()
            other[:, t] = (other[:, t] + 1) % vocab_size
            change = (model(other) - before)[:, :t].abs().max()
            leak = leak or bool(change > atol)
    model.train(was_training)
    return leak


_leaks = leaks_future


@right("all later tokens at once")
def leaks_future(model, ids, vocab_size, atol=1e-6):
    mode = model.training
    model.eval()
    try:
        with torch.no_grad():
            before = model(ids)
            for t in range(ids.shape[1] - 1):
                late = torch.arange(ids.shape[1]) > t
                other = torch.where(late, (ids + 1) % vocab_size, ids)
                if not torch.allclose(model(other)[:, : t + 1], before[:, : t + 1], rtol=0, atol=atol):
                    return True
        return False
    finally:
        model.train(mode)


@right("one large batch")
def leaks_future(model, ids, vocab_size, atol=1e-6):
    mode = model.training
    model.eval()
    B, n = ids.shape
    others = ids.repeat(n, 1, 1)
    for t in range(n):
        others[t, :, t] = (others[t, :, t] + vocab_size - 1) % vocab_size
    out = model(torch.cat([ids[None], others]).flatten(0, 1)).detach().unflatten(0, (n + 1, B))
    model.train(mode)
    change = (out[1:] - out[0]).abs().amax(dim=(1, 3))  # (n, n): token changed, output
    return bool((change.tril(-1) > atol).any())


@right("random tokens that differ")
def leaks_future(model, ids, vocab_size, atol=1e-6):
    mode = model.training
    model.eval()
    worst = 0.0
    with torch.no_grad():
        before = model(ids)
        for t in range(1, ids.size(1)):
            other = ids.clone()
            step = torch.randint(1, vocab_size, (len(ids),))
            other[:, t] = (ids[:, t] + step) % vocab_size
            worst = max(worst, (model(other)[:, :t] - before[:, :t]).abs().max().item())
    model.train(mode)
    return worst > atol


@right("a tensor of one boolean")
def leaks_future(model, ids, vocab_size, atol=1e-6):
    mode = model.training
    model.eval()
    before, changes = model(ids), []
    for t in range(1, ids.shape[1]):
        other = torch.cat([ids[:, :t], (ids[:, t:] + 2) % vocab_size], dim=1)
        changes.append((model(other) - before)[:, :t].abs().max())
    model.train(mode)
    return torch.stack(changes).max() > atol


_STEP = "other[:, t] = (other[:, t] + 1) % vocab_size"
_CHANGE = "change = (model(other) - before)[:, :t].abs().max()"

changed(
    _leaks, "always False", "your function always says False: change later tokens, and look whether an earlier output moves",
    ("return leak", "return False"),
)  # fmt: skip
changed(
    _leaks, "always True", "your function always says True; a causal model does not leak", ("return leak", "return True"),
)  # fmt: skip
changed(
    _leaks, "inverted", "the answer is inverted: True means that the model sees the future", ("return leak", "return not leak"),
)  # fmt: skip
changed(
    _leaks, "last token only", "only the last token is changed; a model may see later tokens and not the last: change each one",
    ("range(1, ids.shape[1])", "range(ids.shape[1] - 1, ids.shape[1])"),
)  # fmt: skip
changed(
    _leaks, "token 2 only", "only one token is changed, the second; change each later one", ("range(1, ids.shape[1])", "range(1, 2)"),
)  # fmt: skip
changed(
    _leaks, "its own output", "you compare the output at the changed token, too, which may depend on it: compare the outputs before it, and start from a fresh "
    "copy of ids for each token",
    ("[:, :t].abs()", "[:, :t + 1].abs()"),
)  # fmt: skip
changed(
    _leaks, "later outputs", "you look at the outputs after the changed token; those may change. A leak is a change before it",
    ("[:, :t].abs()", "[:, t:].abs()"),
)  # fmt: skip
changed(
    _leaks, "all outputs", "you compare all outputs; those at and after the changed token may change, a leak is a change before it",
    ("[:, :t].abs()", ".abs()"),
)  # fmt: skip
changed(
    _leaks, "first output only", "you look at the first output alone; any output before the changed token may give the leak away",
    ("[:, :t].abs()", "[:, :1].abs()"),
)  # fmt: skip
changed(
    _leaks, "neighbour only", "you look at the output just before the changed token alone; earlier ones may see it, too",
    ("[:, :t].abs()", "[:, t - 1:t].abs()"),
)  # fmt: skip
changed(
    _leaks, "dropout left on", "in train mode dropout changes the output by itself: put the model into eval mode while you test",
    ("    model.eval()\n", ""),
)  # fmt: skip
changed(
    _leaks, "mode not restored", "the model is left in eval mode; put it back into the mode in which it came",
    ("model.train(was_training)", "pass"),
)  # fmt: skip
changed(
    _leaks, "always back to train", "the model is left in train mode, even if it came in eval mode: remember its mode before",
    ("model.train(was_training)", "model.train()"),
)  # fmt: skip
changed(
    _leaks, "ids above the vocabulary", "an id of vocab_size or more does not exist: stay below it, for example with % vocab_size",
    ("(other[:, t] + 1) % vocab_size", "other[:, t] + 1"),
)  # fmt: skip
changed(
    _leaks, "token set to 0", "you change a token to 0; if it was 0 already, nothing is changed and nothing seen. Make sure that it differs",
    (_STEP, "other[:, t] = 0"),
)  # fmt: skip
changed(
    _leaks, "token set to the largest id", "you change a token to vocab_size - 1; if it was that already, nothing is changed. Make sure "
    "that it differs", (_STEP, "other[:, t] = vocab_size - 1"),
)  # fmt: skip
changed(
    _leaks, "token set to 1", "you change a token to 1; if it was 1 already, nothing is changed and nothing seen. Make sure that it differs",
    (_STEP, "other[:, t] = 1"),
)  # fmt: skip
changed(
    _leaks, "ids overwritten", "you wrote into the caller's ids: make a copy with ids.clone()", ("other = ids.clone()", "other = ids"),
)  # fmt: skip
changed(
    _leaks, "tolerance too large", "a small leak is a leak: compare with atol, not with 0.01", ("change > atol", "change > 0.01"),
)  # fmt: skip
changed(
    _leaks, "exact comparison", "differences up to atol are rounding, not a leak: compare with atol", ("change > atol", "change > 0"),
)  # fmt: skip
changed(
    _leaks, "atol ignored", "atol is an argument: compare with it, not with 1e-6 always", ("change > atol", "change > 1e-6"),
)  # fmt: skip
changed(
    _leaks, "all must leak", "one output that sees one later token is enough; yours asks that every one does",
    ("leak = model(ids), False", "leak = model(ids), True"), ("leak = leak or bool", "leak = leak and bool"),
)  # fmt: skip
changed(
    _leaks, "no absolute value", "a change may go up or down: take its absolute value before you look for the largest",
    (".abs().max()", ".max()"),
)  # fmt: skip
changed(
    _leaks, "no absolute value, other side", "you subtract the new output and look for the largest number: a change upwards passes "
    "unseen. Take the absolute value", ("(model(other) - before)[:, :t].abs()", "(before - model(other))[:, :t]"),
)  # fmt: skip
changed(
    _leaks, "mean of the changes", "the mean hides a change of one output among many that stay: take the largest change",
    (".abs().max()", ".abs().mean()"),
)  # fmt: skip
changed(
    _leaks, "allclose with its own rtol", "torch.allclose allows a share of the numbers as well, rtol = 1e-5 by default: pass rtol=0, "
    "so that atol alone counts", (_CHANGE, "change = ~torch.isclose(model(other)[:, :t], before[:, :t], atol=atol)"),
    ("change > atol", "change.any()"),
)  # fmt: skip
changed(
    _leaks, "one flag restored", "model.training = … sets the flag of the model itself; the parts inside, its dropout for one, stay in "
    "eval mode: model.train(mode) sets them all", ("model.train(was_training)", "model.training = was_training"),
)  # fmt: skip
changed(
    _leaks, "one flag switched off", "model.training = False does not reach the parts inside, and its dropout goes on: model.eval() "
    "switches them all", ("    model.eval()\n", "    model.training = False\n"),
)  # fmt: skip
changed(
    _leaks, "first sequence only", "you change or look at the first sequence alone; any sequence of the batch may give the leak away",
    ("[:, :t].abs()", "[:1, :t].abs()"),
)  # fmt: skip
changed(
    _leaks, "first feature only", "you look at one feature of the outputs alone; any of them may give the leak away",
    ("[:, :t].abs()", "[:, :t, 0].abs()"),
)  # fmt: skip
changed(
    _leaks, "sum over the features", "you add the changes up before you take absolute values: one up and one down cancel",
    ("[:, :t].abs()", "[:, :t].sum(-1).abs()"),
)  # fmt: skip
changed(
    _leaks, "token drawn at random", "you draw the new token, which may be the old one: make sure that it differs",
    (_STEP, "other[:, t] = torch.randint(vocab_size, (len(ids),))"),
)  # fmt: skip
changed(
    _leaks, "token mirrored", "vocab_size - 1 - id leaves the id in the middle as it is: make sure that every token changes",
    (_STEP, "other[:, t] = vocab_size - 1 - other[:, t]"),
)  # fmt: skip
changed(
    _leaks, "token set to the one before", "you change a token to the one before it; where the two are alike nothing is changed",
    (_STEP, "other[:, t] = other[:, t - 1]"),
)  # fmt: skip


@right("the last position first")
def leaks_future(model, ids, vocab_size, atol=1e-6):
    mode, n = model.training, ids.size(1)
    model.eval()
    with torch.inference_mode():
        outputs = model(ids)
        found = []
        for j in reversed(range(1, n)):
            changed = torch.cat([ids[:, :j], (ids[:, j:j + 1] + 1) % vocab_size, ids[:, j + 1:]], dim=1)
            found.append(((model(changed) - outputs)[:, :j].abs() > atol).any().item())
    model.train(mode)
    return any(found)


@right("one row of the batch for each change")
def leaks_future(model, ids, vocab_size, atol=1e-6):
    was = model.training
    model.train(False)
    with torch.no_grad():
        n, leak = ids.shape[1], False
        for row in ids:
            change = torch.eye(n, dtype=ids.dtype)
            versions = torch.remainder(row + change, vocab_size)
            difference = (model(versions) - model(row[None])).abs().flatten(2).amax(2)
            leak |= bool((difference.tril(-1) > atol).any())
    model.train(was)
    return leak


@right("NumPy compares")
def leaks_future(model, ids, vocab_size, atol=1e-6):
    training = model.training
    try:
        model.eval()
        before = model(ids).detach().numpy()
        for t in range(1, ids.shape[1]):
            other = ids.numpy().copy()
            other[:, t] = (other[:, t] + 1) % vocab_size
            after = model(torch.from_numpy(other)).detach().numpy()
            if np.max(np.abs(after[:, :t] - before[:, :t])) > atol:
                return np.True_
        return np.False_
    finally:
        model.train(training)


@wrong("weights read", "you read the model's weights, and another model has others: call it, and compare what it says")
def leaks_future(model, ids, vocab_size, atol=1e-6):
    return bool(model.mix.detach().triu(1).abs().max() > atol)
