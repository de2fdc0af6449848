"""Chapter 5: right answers that look different, and the mistakes learners make."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from autograder.checks.catalogue import changed, right, wrong

# ---- is_permutation_equivariant -------------------------------------------------------------------------------


@right("eval, compare, restore")
def is_permutation_equivariant(layer, x, perm, atol=1e-5):
    mode = layer.training
    layer.eval()
    with torch.no_grad():
        first, second = layer(x), layer(x[:, perm])
    layer.train(mode)
    if isinstance(first, tuple):
        first, second = first[0], second[0]
    return bool((second - first[:, perm]).abs().max() <= atol)


# The wrong answers below are this one with a line or two changed, so that only the mistake meets the eye.
_EQUIVARIANT = is_permutation_equivariant


@right("undo the permutation")
def is_permutation_equivariant(layer, x, perm, atol=1e-5):
    def output(tokens):
        result = layer(tokens)
        return result[0] if isinstance(result, tuple) else result

    was, inverse = layer.training, torch.argsort(perm)
    try:
        layer.eval()
        return torch.allclose(output(x[:, perm])[:, inverse], output(x), rtol=0, atol=atol)
    finally:
        layer.train(was)


@right("permutation matrix")
def is_permutation_equivariant(layer, x, perm, atol=1e-5):
    P = torch.eye(x.shape[1], dtype=x.dtype)[perm]
    before = layer.training
    layer.train(False)
    out = layer(x)
    moved = layer(P @ x)
    layer.train(before)
    if not torch.is_tensor(out):
        out, moved = out[0], moved[0]
    return (moved - P @ out).abs().max().item() <= atol


@right("token by token")
def is_permutation_equivariant(layer, x, perm, atol=1e-5):
    training = layer.training
    layer.eval()
    a, b = layer(x), layer(x.index_select(1, perm))
    if training:
        layer.train()
    a = a[0] if isinstance(a, (tuple, list)) else a
    b = b[0] if isinstance(b, (tuple, list)) else b
    return all((b[:, i] - a[:, int(j)]).abs().max().item() <= atol for i, j in enumerate(perm))


@right("a copy of the layer")
def is_permutation_equivariant(layer, x, perm, atol=1e-5):
    import copy

    twin = copy.deepcopy(layer).eval()
    out, moved = twin(x), twin(x[:, perm])
    if isinstance(out, tuple):
        out, moved = out[0], moved[0]
    return np.allclose(moved.detach().numpy(), out.detach().numpy()[:, perm.numpy()], rtol=0, atol=atol)


@right("a tensor that is true or false")
def is_permutation_equivariant(layer, x, perm, atol=1e-5):
    mode = layer.training
    with torch.inference_mode():
        outs = [layer.eval()(tokens) for tokens in (x, x[:, perm])]
    layer.train(mode)
    out, moved = (y if torch.is_tensor(y) else y[0] for y in outs)
    return torch.all(torch.abs(moved - out[:, perm]) <= atol)


changed(
    _EQUIVARIANT,
    "invariance",
    "you ask whether the output stays as it is; equivariant means that it is reordered as the input is: compare with "
    "out[:, perm]",
    ("first[:, perm]", "first"),
)
changed(
    _EQUIVARIANT,
    "input not permuted",
    "the layer never saw the tokens in another order: feed it x[:, perm], too",
    ("layer(x[:, perm])", "layer(x)"),
)
changed(
    _EQUIVARIANT,
    "inverse permutation",
    "the output is put back into order and then compared as if it were not: layer(x[:, perm]) should equal "
    "layer(x)[:, perm], with the same perm on both sides",
    ("first[:, perm]", "first[:, torch.argsort(perm)]"),
)
changed(
    _EQUIVARIANT,
    "batch axis",
    "you reordered the sequences of the batch; perm reorders the tokens, axis 1 of x (B, n, d)",
    ("layer(x[:, perm])", "layer(x[perm])"),
    ("first[:, perm]", "first[perm]"),
)
changed(
    _EQUIVARIANT,
    "feature axis",
    "you reordered the features; perm reorders the tokens, axis 1 of x (B, n, d)",
    ("layer(x[:, perm])", "layer(x[..., perm])"),
    ("first[:, perm]", "first[..., perm]"),
)
changed(
    _EQUIVARIANT,
    "output not permuted on the token axis",
    "the input is reordered along its tokens and the output along its batch: both along axis 1",
    ("first[:, perm]", "first[perm]"),
)
changed(
    _EQUIVARIANT,
    "not in eval mode",
    "in train mode dropout draws anew at each call, so that no layer is equivariant: call layer.eval() first",
    ("    layer.eval()\n", ""),
)
changed(
    _EQUIVARIANT,
    "left in eval mode",
    "the layer came in train mode and you leave it in eval mode: note layer.training first and restore it",
    ("    layer.train(mode)\n", ""),
)
changed(
    _EQUIVARIANT,
    "always put into train mode",
    "a layer that came in eval mode should leave in eval mode: layer.train(mode) restores either",
    ("layer.train(mode)", "layer.train()"),
)
changed(
    _EQUIVARIANT,
    "tuple not taken apart",
    "some layers return a tuple that starts with the output: take its first item",
    ("    if isinstance(first, tuple):\n        first, second = first[0], second[0]\n", ""),
)
changed(
    _EQUIVARIANT,
    "last of the tuple",
    "of a tuple the first item is the output; you took the last",
    ("first, second = first[0], second[0]", "first, second = first[-1], second[-1]"),
)
changed(
    _EQUIVARIANT,
    "always the first item",
    "not every layer returns a tuple: of a tensor, [0] is the first sequence",
    (
        "    if isinstance(first, tuple):\n        first, second = first[0], second[0]\n",
        "    first, second = first[0], second[0]\n",
    ),
)
changed(
    _EQUIVARIANT,
    "atol not used",
    "the tolerance is the argument atol, and not always 1e-5",
    ("<= atol", "<= 1e-5"),
)
changed(
    _EQUIVARIANT,
    "exactly equal",
    "sums in another order are rounded otherwise: compare with the tolerance atol, not exactly",
    ("bool((second - first[:, perm]).abs().max() <= atol)", "torch.equal(second, first[:, perm])"),
)
changed(
    _EQUIVARIANT,
    "one place is enough",
    "every entry must agree within atol; you ask whether any does",
    ("bool((second - first[:, perm]).abs().max() <= atol)", "bool(((second - first[:, perm]).abs() <= atol).any())"),
)
changed(
    _EQUIVARIANT,
    "differences cancel",
    "take the absolute value before you average or sum: positive and negative differences cancel",
    (".abs().max() <= atol", ".mean().abs() <= atol"),
)
changed(
    _EQUIVARIANT,
    "signed mean",
    "differences above and below zero cancel in a mean, and one below zero is never too large: take the largest "
    "absolute value",
    (".abs().max() <= atol", ".mean() <= atol"),
)
changed(
    _EQUIVARIANT,
    "as a set",
    "you compare the outputs as a set; each output must also come at the place of its own token",
    ("second - first[:, perm]", "second.sort(dim=1).values - first.sort(dim=1).values"),
)
changed(
    _EQUIVARIANT,
    "another permutation",
    "the order to try is the argument perm; yours always turns the sequence round",
    ("layer(x[:, perm])", "layer(x.flip(1))"),
    ("first[:, perm]", "first.flip(1)"),
)
changed(
    _EQUIVARIANT,
    "turned round",
    "your answers are the wrong way round: True means that the layer is equivariant",
    ("<= atol", "> atol"),
)
changed(
    _EQUIVARIANT,
    "x changed in place",
    "your function reorders the caller's x in place: index into it, x[:, perm] is a new tensor",
    ("first, second = layer(x), layer(x[:, perm])", "first = layer(x)\n        x[:] = x[:, perm]\n        second = layer(x)"),
)


_LARGEST = "bool((second - first[:, perm]).abs().max() <= atol)"
changed(
    _EQUIVARIANT,
    "no absolute value",
    "you look for the largest difference and not for the largest absolute one: differences below zero pass unseen",
    (".abs().max() <= atol", ".max() <= atol"),
)
changed(
    _EQUIVARIANT,
    "no absolute value, other side",
    "you look for the largest difference and not for the largest absolute one: where the second output is larger, it "
    "passes unseen",
    ("(second - first[:, perm]).abs().max()", "(first[:, perm] - second).max()"),
)
changed(
    _EQUIVARIANT,
    "mean of the differences",
    "the mean hides a difference in few places, the more the larger the output: the largest one must be within atol",
    (".abs().max() <= atol", ".abs().mean() <= atol"),
)
changed(
    _EQUIVARIANT,
    "largest square",
    "the square of a small difference is far smaller than the difference: compare the absolute value with atol",
    ("(second - first[:, perm]).abs().max() <= atol", "((second - first[:, perm]) ** 2).max() <= atol"),
)
changed(
    _EQUIVARIANT,
    "norm of the difference",
    "a norm or a sum adds up the differences of all entries and grows with the size of the output: each entry has to "
    "be within atol, so take the largest",
    (".abs().max() <= atol", ".norm() <= atol"),
)
changed(
    _EQUIVARIANT,
    "allclose with its own rtol",
    "torch.allclose allows a share of the numbers as well, rtol = 1e-5 by default: pass rtol=0, so that atol alone counts",
    (_LARGEST, "torch.allclose(second, first[:, perm], atol=atol)"),
)
changed(
    _EQUIVARIANT,
    "relative difference",
    "you divide the difference by the output; atol is a bound on the difference itself",
    ("(second - first[:, perm]).abs().max() <= atol", "((second - first[:, perm]) / first[:, perm]).abs().max() <= atol"),
)
changed(
    _EQUIVARIANT,
    "first sequence only",
    "you compare the first sequence of the batch alone: compare all of them",
    ("(second - first[:, perm])", "(second[0] - first[0, perm])"),
)
changed(
    _EQUIVARIANT,
    "first token only",
    "you compare the first token alone: every token has to come where the input put it",
    ("(second - first[:, perm])", "(second - first[:, perm])[:, 0]"),
)
changed(
    _EQUIVARIANT,
    "a random order",
    "the order to try is the argument perm; you draw one of your own",
    ("    mode = layer.training\n", "    mode, perm = layer.training, torch.randperm(x.shape[1])\n"),
)
changed(
    _EQUIVARIANT,
    "one flag restored",
    "layer.training = mode sets the flag of the layer itself; the parts inside, its dropout for one, stay in eval mode: "
    "layer.train(mode) sets them all",
    ("layer.train(mode)", "layer.training = mode"),
)
changed(
    _EQUIVARIANT,
    "one flag switched off",
    "layer.training = False does not reach the parts inside, and its dropout goes on: layer.eval() switches them all",
    ("    layer.eval()\n", "    layer.training = False\n"),
)


@wrong("always True", "that is True whatever the layer does: compare the two outputs")
def is_permutation_equivariant(layer, x, perm, atol=1e-5):
    return True


@wrong("only the shape", "an equal shape says nothing: compare the values of the two outputs")
def is_permutation_equivariant(layer, x, perm, atol=1e-5):
    mode = layer.training
    layer.eval()
    first, second = layer(x), layer(x[:, perm])
    layer.train(mode)
    if isinstance(first, tuple):
        first, second = first[0], second[0]
    return first.shape == second.shape


@right("a context manager for the mode")
def is_permutation_equivariant(layer, x, perm, atol=1e-5):
    from contextlib import contextmanager

    @contextmanager
    def evaluating(module):
        modes = {part: part.training for part in module.modules()}
        module.eval()
        try:
            yield module
        finally:
            for part, mode in modes.items():
                part.training = mode

    with evaluating(layer) as f, torch.no_grad():
        y, z = f(x), f(torch.gather(x, 1, perm[None, :, None].expand_as(x)))
    y, z = (out if isinstance(out, torch.Tensor) else out[0] for out in (y, z))
    return float((torch.index_select(y, 1, perm) - z).abs().max()) <= atol


@right("both in one batch")
def is_permutation_equivariant(layer, x, perm, atol=1e-5):
    mode = layer.training
    out = layer.eval()(torch.cat([x, x[:, perm]]))
    layer.train(mode)
    first, second = (out[0] if type(out) is tuple else out).detach().split(len(x))
    return not ((first[:, perm] - second).abs() > atol).any()


# ---- sinusoidal_encoding --------------------------------------------------------------------------------------


@right("assign to even and odd columns")
def sinusoidal_encoding(n, d_model, base=10000.0):
    if d_model % 2 != 0:
        raise ValueError("d_model must be even")
    position = torch.arange(n, dtype=torch.float32).unsqueeze(1)
    angle = position / torch.pow(base, torch.arange(0, d_model, 2) / d_model)
    pe = torch.zeros(n, d_model)
    pe[:, 0::2] = torch.sin(angle)
    pe[:, 1::2] = torch.cos(angle)
    return pe


_SINUSOID = sinusoidal_encoding


@right("exp of logs")
def sinusoidal_encoding(n, d_model, base=10000.0):
    if d_model % 2 == 1:
        raise ValueError(f"odd d_model: {d_model}")
    pe = torch.zeros(n, d_model)
    position = torch.arange(0, n).unsqueeze(1)
    div_term = torch.exp(torch.arange(0, d_model, 2) * -(math.log(base) / d_model))
    pe[:, 0::2] = torch.sin(position * div_term)
    pe[:, 1::2] = torch.cos(position * div_term)
    return pe


@right("stack and flatten")
def sinusoidal_encoding(n, d_model, base=10000.0):
    if d_model % 2:
        raise ValueError("sines and cosines come in pairs")
    pairs = torch.arange(d_model // 2)
    angle = torch.outer(torch.arange(float(n)), base ** (-2 * pairs / d_model))
    return torch.stack((angle.sin(), angle.cos()), dim=2).reshape(n, d_model)


@right("a cosine is a sine, a quarter turn ahead")
def sinusoidal_encoding(n, d_model, base=10000.0):
    if d_model % 2:
        raise ValueError("d_model is odd")
    column = torch.arange(d_model)
    exponent = (column - column % 2) / d_model
    phase = math.pi / 2 * (column % 2)
    return torch.sin(torch.arange(n)[:, None] / base**exponent + phase)


@right("double loop")
def sinusoidal_encoding(n, d_model, base=10000.0):
    if d_model & 1:
        raise ValueError("d_model is odd")
    pe = torch.empty((n, d_model))
    for pos in range(n):
        for i in range(d_model // 2):
            angle = pos / base ** (2 * i / d_model)
            pe[pos, 2 * i] = math.sin(angle)
            pe[pos, 2 * i + 1] = math.cos(angle)
    return pe


@right("where, on the parity of the column")
def sinusoidal_encoding(n, d_model, base=10000.0):
    if d_model % 2:
        raise ValueError("d_model is odd")
    column = torch.arange(d_model)
    angle = torch.arange(n)[:, None] / base ** (2 * (column // 2) / d_model)
    return torch.where(column % 2 == 0, angle.sin(), angle.cos())


@right("NumPy, cast at the end")
def sinusoidal_encoding(n, d_model, base=10000.0):
    if d_model % 2:
        raise ValueError("d_model is odd")
    angle = np.arange(n)[:, np.newaxis] / np.power(base, 2 * (np.arange(d_model) // 2) / d_model)
    angle[:, 0::2] = np.sin(angle[:, 0::2])
    angle[:, 1::2] = np.cos(angle[:, 1::2])
    return torch.tensor(angle, dtype=torch.get_default_dtype())


@right("complex numbers in float64")
def sinusoidal_encoding(n, d_model, base=10000.0):
    if d_model % 2:
        raise ValueError("d_model is odd")
    frequency = base ** -(torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    angle = torch.arange(n, dtype=torch.float64)[:, None] * frequency
    hands = torch.polar(torch.ones_like(angle), math.pi / 2 - angle)
    return torch.view_as_real(hands).flatten(1).float()


@right("rows and columns by einsum")
def sinusoidal_encoding(n, d_model, base=10000.0):
    if not d_model % 2 == 0:
        raise ValueError("d_model is odd")
    frequencies = torch.tensor([1.0 / base ** (2 * i / d_model) for i in range(d_model // 2)])
    angle = torch.einsum("p,i->pi", torch.arange(n).float(), frequencies)
    return torch.cat([angle.sin()[..., None], angle.cos()[..., None]], dim=-1).view(n, -1)


changed(
    _SINUSOID,
    "2i doubled again",
    "the exponent is twice too large: arange(0, d_model, 2) counts 2i already, and d_model is what it is divided by",
    ("torch.arange(0, d_model, 2) / d_model", "2 * torch.arange(0, d_model, 2) / d_model"),
)
changed(
    _SINUSOID,
    "i for 2i",
    "the exponent is 2i / d_model for pair i; yours is i / d_model, so the hands are too fast",
    ("torch.arange(0, d_model, 2) / d_model", "torch.arange(d_model // 2) / d_model"),
)
changed(
    _SINUSOID,
    "a frequency of its own for the cosine",
    "sine and cosine of a pair share one angle; your cosine uses an exponent of its own, that of the next column",
    (
        "torch.cos(angle)",
        "torch.cos(position / torch.pow(base, torch.arange(1, d_model, 2) / d_model))",
    ),
)
changed(
    _SINUSOID,
    "a frequency for each column",
    "column j should have the exponent 2 (j // 2) / d_model; yours has 2 j / d_model, so a pair does not share it",
    (
        "angle = position / torch.pow(base, torch.arange(0, d_model, 2) / d_model)",
        "angle = position / torch.pow(base, 2 * torch.arange(d_model) / d_model)",
    ),
    ("torch.sin(angle)", "torch.sin(angle[:, 0::2])"),
    ("torch.cos(angle)", "torch.cos(angle[:, 1::2])"),
)
changed(
    _SINUSOID,
    "base 1000",
    "the wavelengths grow with 1000, not with base (10000 by default)",
    ("torch.pow(base,", "torch.pow(1000.0,"),
)
changed(
    _SINUSOID,
    "base not used",
    "base is an argument; yours is always 10000",
    ("torch.pow(base,", "torch.pow(10000.0,"),
)
changed(
    _SINUSOID,
    "sine and cosine swapped",
    "even columns are sines and odd ones cosines; yours are the other way round",
    ("pe[:, 0::2]", "pe[:, 1::2 ]"),
    ("pe[:, 1::2] ", "pe[:, 0::2] "),
)
changed(
    _SINUSOID,
    "two halves",
    "all sines stand on the left and all cosines on the right; the formula alternates them: sin, cos, sin, cos, …",
    ("    pe = torch.zeros(n, d_model)\n", ""),
    ("    pe[:, 0::2] = torch.sin(angle)\n", ""),
    ("    pe[:, 1::2] = torch.cos(angle)\n", ""),
    ("return pe", "return torch.cat([torch.sin(angle), torch.cos(angle)], dim=1)"),
)
changed(
    _SINUSOID,
    "positions from 1",
    "positions count from 0: the first row is 0, 1, 0, 1, …",
    ("torch.arange(n, dtype", "torch.arange(1, n + 1, dtype"),
)
changed(
    _SINUSOID,
    "angle multiplied",
    "the angle is position / base^…; you multiply, and the hands turn faster and faster from pair to pair",
    ("position / torch.pow", "position * torch.pow"),
)
changed(
    _SINUSOID,
    "last exponent 1",
    "the exponents run up to (d_model - 2) / d_model; yours reach 1, as in some libraries: divide by d_model",
    ("torch.arange(0, d_model, 2) / d_model", "torch.linspace(0, 1, d_model // 2)"),
)
changed(
    _SINUSOID,
    "whole turns",
    "the angle is in radians as it stands; you multiplied it by 2 pi",
    ("angle = position /", "angle = 2 * math.pi * position /"),
)
changed(
    _SINUSOID,
    "degrees",
    "torch.sin takes radians; you turned the angle as if it were in degrees",
    ("angle = position /", "angle = math.pi / 180 * position /"),
)
changed(
    _SINUSOID,
    "all frequencies alike",
    "every pair has the same frequency: 2i // d_model is 0 for all pairs, divide with /",
    ("2) / d_model", "2) // d_model"),
)
changed(
    _SINUSOID,
    "frequencies in reverse",
    "the fast hands come first: pair 0 turns by 1 radian a position, the last pair slowest",
    ("torch.arange(0, d_model, 2) / d_model", "torch.arange(0, d_model, 2).flip(0) / d_model"),
)
changed(
    _SINUSOID,
    "sines only",
    "every second column should be a cosine: with sines alone a hand does not say which half of its turn it is in",
    ("torch.cos(angle)", "torch.sin(angle)"),
)
changed(
    _SINUSOID,
    "positions as fractions",
    "the position is divided by n: then a step means something else in every length",
    ("unsqueeze(1)", "unsqueeze(1) / n"),
)
changed(
    _SINUSOID,
    "transposed",
    "the table came out as (d_model, n): one row per position",
    ("return pe", "return pe.T"),
)
changed(
    _SINUSOID,
    "with a batch axis",
    "the table is (n, d_model), without an axis for the batch: it broadcasts by itself",
    ("return pe", "return pe.unsqueeze(0)"),
)
changed(
    _SINUSOID,
    "scaled",
    "the entries are sines and cosines as they are, from -1 to 1; yours are divided by sqrt(d_model)",
    ("return pe", "return pe / math.sqrt(d_model)"),
)
changed(
    _SINUSOID,
    "NumPy array",
    "return a tensor, not a NumPy array",
    ("return pe", "return pe.numpy()"),
)
changed(
    _SINUSOID,
    "float64",
    "the table should have torch's default dtype, float32 here; yours is float64",
    ("return pe", "return pe.double()"),
)
changed(
    _SINUSOID,
    "odd width not refused",
    "an odd d_model should raise a ValueError that says so; yours returns a table with a sine that has no cosine",
    ("    if d_model % 2 != 0:\n        raise ValueError(\"d_model must be even\")\n", ""),
    ("torch.cos(angle)", "torch.cos(angle)[:, : d_model // 2]"),
)
changed(
    _SINUSOID,
    "odd width crashes",
    "for an odd d_model some other error appeared: check it first and raise a ValueError that says so",
    ("    if d_model % 2 != 0:\n        raise ValueError(\"d_model must be even\")\n", ""),
)
changed(
    _SINUSOID,
    "assert",
    "you check with an assert; the exercise asks for a ValueError (asserts vanish under python -O)",
    ("    if d_model % 2 != 0:\n        raise ValueError(\"d_model must be even\")\n", "    assert d_model % 2 == 0\n"),
)


# ---- wavelengths ----------------------------------------------------------------------------------------------


@right("2 pi times a power")
def wavelengths(d_model, base=10000.0):
    return 2 * math.pi * base ** (torch.arange(0, d_model, 2) / d_model)


_WAVES = wavelengths


@right("2 pi over the frequency")
def wavelengths(d_model, base=10000.0):
    frequency = torch.exp(-math.log(base) * torch.arange(0, d_model, 2) / d_model)
    return 2 * torch.pi / frequency


@right("list of numbers")
def wavelengths(d_model, base=10000.0):
    return torch.tensor([2 * math.pi * base ** (2 * i / d_model) for i in range(d_model // 2)])


@right("logspace in float64")
def wavelengths(d_model, base=10000.0):
    exponent = np.linspace(0, 1, d_model // 2, endpoint=False)
    return torch.from_numpy(2 * np.pi * np.power(base, exponent)).to(torch.get_default_dtype())


@right("each from the one before")
def wavelengths(d_model, base=10000.0):
    ratio = torch.full((d_model // 2,), base ** (2 / d_model), dtype=torch.float64)
    ratio[0] = 2 * math.pi
    return ratio.cumprod(0).float()


changed(
    _WAVES,
    "last exponent 1",
    "the longest wavelength is not 2 pi base: the last exponent is (d_model - 2) / d_model, and not 1",
    ("torch.arange(0, d_model, 2) / d_model", "torch.linspace(0, 1, d_model // 2)"),
)
changed(
    _WAVES,
    "no 2 pi",
    "after base^(2i/d_model) positions the angle has grown by 1 radian; a whole turn is 2 pi",
    ("2 * math.pi * ", ""),
)
changed(
    _WAVES,
    "frequencies",
    "those are the frequencies, radians per position; a wavelength is 2 pi divided by that",
    ("2 * math.pi * base ** (", "base ** (-"),
)
changed(
    _WAVES,
    "over 2 pi",
    "the wavelength is 2 pi times base^(2i/d_model); you divided by 2 pi",
    ("2 * math.pi * base ** (torch.arange(0, d_model, 2) / d_model)", "base ** (torch.arange(0, d_model, 2) / d_model) / (2 * math.pi)"),
)
changed(
    _WAVES,
    "one for each column",
    "a pair of columns shares one wavelength: there are d_model // 2 of them",
    ("torch.arange(0, d_model, 2) / d_model)", "torch.arange(0, d_model, 2) / d_model).repeat_interleave(2)"),
)
changed(
    _WAVES,
    "2i doubled again",
    "the exponent is twice too large: arange(0, d_model, 2) counts 2i already",
    ("torch.arange(0, d_model, 2) / d_model", "2 * torch.arange(0, d_model, 2) / d_model"),
)
changed(
    _WAVES,
    "i for 2i",
    "the exponent is 2i / d_model for pair i; yours is i / d_model",
    ("torch.arange(0, d_model, 2) / d_model", "torch.arange(d_model // 2) / d_model"),
)
changed(
    _WAVES,
    "base not used",
    "base is an argument; yours is always 10000",
    ("base ** (", "10000.0 ** ("),
)
changed(
    _WAVES,
    "longest first",
    "pair 0 has the shortest wavelength, 2 pi; yours come in reverse",
    ("torch.arange(0, d_model, 2) / d_model)", "torch.arange(0, d_model, 2) / d_model).flip(0)"),
)
changed(
    _WAVES,
    "evenly spaced",
    "the wavelengths grow by a constant factor from pair to pair, not by a constant amount",
    ("base ** (torch.arange(0, d_model, 2) / d_model)", "(1 + (base - 1) * torch.arange(0, d_model, 2) / d_model)"),
)
changed(
    _WAVES,
    "float64",
    "the wavelengths should have torch's default dtype, float32 here; yours are float64",
    ("torch.arange(0, d_model, 2)", "torch.arange(0, d_model, 2, dtype=torch.float64)"),
)
changed(
    _WAVES,
    "pi for 2 pi",
    "half a turn is pi; a whole one, after which the hand is back, is 2 pi",
    ("2 * math.pi", "math.pi"),
)
changed(
    _WAVES,
    "not a tensor",
    "return a tensor of torch's default dtype",
    ("2 * math.pi * base ** (", "(2 * math.pi * base ** ("),
    ("d_model)\n", "d_model)).tolist()\n"),
)


@right("float64 inside, cast at the end")
def wavelengths(d_model, base=10000.0):
    i = torch.arange(d_model // 2, dtype=torch.float64)
    return torch.pow(torch.tensor(base, dtype=torch.float64), 2 * i / d_model).mul(math.tau).to(torch.float32)


@right("exponent of a sum of logarithms")
def wavelengths(d_model, base=10000.0):
    return torch.exp(math.log(2 * math.pi) + torch.arange(0, d_model, 2) * (math.log(base) / d_model))


@right("map over the pairs")
def wavelengths(d_model, base=10000.0):
    pairs = range(0, d_model, 2)
    return torch.stack([torch.tensor(2 * math.pi / (1 / base) ** (pair / d_model)) for pair in pairs])


# ---- shift_matrix ---------------------------------------------------------------------------------------------


@right("even and odd rows")
def shift_matrix(k, d_model, base=10000.0):
    angle = k / base ** (torch.arange(0, d_model, 2) / d_model)
    even, odd = torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)
    M = torch.zeros(d_model, d_model)
    M[even, even] = angle.cos()
    M[even, odd] = angle.sin()
    M[odd, even] = -angle.sin()
    M[odd, odd] = angle.cos()
    return M


_SHIFT = shift_matrix


@right("block_diag")
def shift_matrix(k, d_model, base=10000.0):
    blocks = []
    for i in range(d_model // 2):
        c, s = math.cos(k / base ** (2 * i / d_model)), math.sin(k / base ** (2 * i / d_model))
        blocks.append(torch.tensor([[c, s], [-s, c]]))
    return torch.block_diag(*blocks)


@right("slices with a step")
def shift_matrix(k, d_model, base=10000.0):
    angle = k * torch.exp(-math.log(base) * torch.arange(0, d_model, 2) / d_model)
    M = torch.zeros(d_model, d_model)
    M[0::2, 0::2] = torch.diag(torch.cos(angle))
    M[1::2, 1::2] = torch.diag(torch.cos(angle))
    M[0::2, 1::2] = torch.diag(torch.sin(angle))
    M[1::2, 0::2] = -torch.diag(torch.sin(angle))
    return M


@right("one step, k times")
def shift_matrix(k, d_model, base=10000.0):
    one = torch.zeros(d_model, d_model, dtype=torch.float64)
    for i in range(0, d_model, 2):
        w = base ** (-i / d_model)
        one[i, i] = one[i + 1, i + 1] = math.cos(w)
        one[i, i + 1], one[i + 1, i] = math.sin(w), -math.sin(w)
    return torch.linalg.matrix_power(one, k).float()


@right("what it does to the unit vectors")
def shift_matrix(k, d_model, base=10000.0):
    hands = torch.eye(d_model, dtype=torch.float64).view(d_model, -1, 2)
    z = torch.complex(hands[..., 1], hands[..., 0])
    w = torch.tensor([base ** (-2 * i / d_model) for i in range(d_model // 2)], dtype=torch.float64)
    z = z * torch.exp(1j * k * w)
    return torch.stack([z.imag, z.real], dim=-1).view(d_model, d_model).T.float()


@right("Kronecker products")
def shift_matrix(k, d_model, base=10000.0):
    angle = k / base ** (torch.arange(0, d_model, 2) / d_model)
    spin = torch.tensor([[0.0, 1.0], [-1.0, 0.0]])
    return torch.kron(angle.cos().diag(), torch.eye(2)) + torch.kron(angle.sin().diag(), spin)


changed(
    _SHIFT,
    "shifts back",
    "your matrix shifts by -k: sin(p + k) = sin p cos k + cos p sin k, so the + stands in the even row",
    ("= angle.sin()", "= -angle.sin() "),
    ("= -angle.sin()\n", "= angle.sin()\n"),
)
changed(
    _SHIFT,
    "no minus",
    "cos(p + k) = cos p cos k - sin p sin k: the minus in the odd row is missing, and without it nothing turns",
    ("-angle.sin()", "angle.sin()"),
)
changed(
    _SHIFT,
    "no mixing",
    "a hand does not only shrink and grow: sin(p + k) also needs cos p, beside the diagonal",
    ("    M[even, odd] = angle.sin()\n", ""),
    ("    M[odd, even] = -angle.sin()\n", ""),
)
changed(
    _SHIFT,
    "sine on the diagonal",
    "cosines stand on the diagonal and sines beside it: for k = 0 the matrix must be the identity",
    ("M[even, even] = angle.cos()", "M[even, even] = angle.sin() "),
    ("M[even, odd] = angle.sin()\n", "M[even, odd] = angle.cos() \n"),
    ("M[odd, even] = -angle.sin()", "M[odd, even] = -angle.cos()  "),
    ("M[odd, odd] = angle.cos()\n", "M[odd, odd] = angle.sin()\n"),
)
changed(
    _SHIFT,
    "halves paired",
    "you pair column i with column i + d_model/2; in this encoding a pair stands side by side, 2i and 2i + 1",
    (
        "even, odd = torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)",
        "even, odd = torch.arange(d_model // 2), torch.arange(d_model // 2, d_model)",
    ),
)
changed(
    _SHIFT,
    "one frequency",
    "every pair has a frequency of its own, base^(-2i/d_model); yours all turn by k radians",
    ("k / base ** (torch.arange(0, d_model, 2) / d_model)", "k * torch.ones(d_model // 2)"),
)
changed(
    _SHIFT,
    "i for 2i",
    "the exponent is 2i / d_model for pair i; yours is i / d_model",
    ("torch.arange(0, d_model, 2) / d_model)", "torch.arange(d_model // 2) / d_model)"),
)
changed(
    _SHIFT,
    "2i doubled again",
    "the exponent is twice too large: arange(0, d_model, 2) counts 2i already",
    ("base ** (torch.arange(0, d_model, 2)", "base ** (2 * torch.arange(0, d_model, 2)"),
)
changed(
    _SHIFT,
    "angle multiplied",
    "the angle is k / base^(2i/d_model); you multiply, so that later pairs turn faster",
    ("k / base", "k * base"),
)
changed(
    _SHIFT,
    "always one step",
    "k is not used: your matrix always goes one step",
    ("angle = k / base", "angle = 1 / base"),
)
changed(
    _SHIFT,
    "size of k only",
    "a negative k should shift back; yours goes forward by |k|",
    ("angle = k / base", "angle = abs(k) / base"),
)
changed(
    _SHIFT,
    "base not used",
    "base is an argument; yours is always 10000",
    ("k / base", "k / 10000.0"),
)
changed(
    _SHIFT,
    "one step, times k",
    "k steps are k rotations in a row, an angle k times as large; you multiplied the matrix of one step by k",
    ("angle = k / base", "angle = 1 / base"),
    ("return M", "return k * M"),
)
changed(
    _SHIFT,
    "whole turns",
    "the angle is in radians as it stands; you multiplied it by 2 pi",
    ("angle = k /", "angle = 2 * math.pi * k /"),
)


changed(
    _SHIFT,
    "float64",
    "M should have torch's default dtype, float32 here; yours is float64",
    ("return M", "return M.double()"),
)


@wrong("moves entries", "your matrix moves the entries of a vector to other places; a shift of the position turns each pair by an angle")
def shift_matrix(k, d_model, base=10000.0):
    return torch.roll(torch.eye(d_model), k, dims=0)


@right("matrix exponential")
def shift_matrix(k, d_model, base=10000.0):
    generator = torch.zeros(d_model, d_model, dtype=torch.float64)
    for i in range(0, d_model, 2):
        generator[i, i + 1], generator[i + 1, i] = k * base ** (-i / d_model), -k * base ** (-i / d_model)
    return torch.linalg.matrix_exp(generator).float()


@right("blocks into a four-dimensional view")
def shift_matrix(k, d_model, base=10000.0):
    angle = torch.tensor([k / base ** (2 * i / d_model) for i in range(d_model // 2)])
    M, pair = torch.zeros(d_model // 2, 2, d_model // 2, 2), torch.arange(d_model // 2)
    M[pair, 0, pair, 0] = M[pair, 1, pair, 1] = torch.cos(angle)
    M[pair, 0, pair, 1], M[pair, 1, pair, 0] = torch.sin(angle), torch.sin(-angle)
    return M.view(d_model, d_model)


# ---- PositionalEncoding ---------------------------------------------------------------------------------------


@right("buffer")
class PositionalEncoding(nn.Module):
    def __init__(self, d_model, max_len=5000, dropout=0.0):
        super().__init__()
        position = torch.arange(max_len).unsqueeze(1)
        angle = position / 10000.0 ** (torch.arange(0, d_model, 2) / d_model)
        table = torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)
        self.register_buffer("table", table)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, offset=0):
        n = x.shape[1]
        if n + offset > len(self.table):
            raise ValueError("longer than max_len")
        rows = self.table[offset : offset + n].to(x.dtype)
        return self.dropout(x + rows)


_MODULE = PositionalEncoding


@right("not persistent, with a batch axis")
class PositionalEncoding(nn.Module):
    def __init__(self, d_model, max_len=5000, dropout=0.0):
        super().__init__()
        self.dropout = nn.Dropout(p=dropout)
        self.max_len = max_len
        pe = torch.zeros(max_len, d_model)
        position = torch.arange(0, max_len, dtype=torch.float).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2).float() * (-math.log(10000.0) / d_model))
        pe[:, 0::2] = torch.sin(position * div_term)
        pe[:, 1::2] = torch.cos(position * div_term)
        self.register_buffer("pe", pe.unsqueeze(0), persistent=False)

    def forward(self, x, offset=0):
        if offset + x.size(1) > self.max_len:
            raise ValueError(f"{offset + x.size(1)} positions, and the table has {self.max_len}")
        return self.dropout(x + self.pe[:, offset : offset + x.size(1)].requires_grad_(False)).to(x.dtype)


@wrong(
    "frozen parameter",
    "the table is a parameter, frozen or not: an optimizer and a count of the parameters see it. A table that is fixed "
    "is a buffer: self.register_buffer",
)
class PositionalEncoding(nn.Module):
    def __init__(self, d_model, max_len=5000, dropout=0.0):
        super().__init__()
        column = torch.arange(d_model)
        angle = torch.arange(max_len)[:, None] / 10000 ** (2 * (column // 2) / d_model)
        self.table = nn.Parameter(torch.where(column % 2 == 0, angle.sin(), angle.cos()), requires_grad=False)
        self.p = dropout

    def forward(self, x, offset=0):
        end = offset + x.shape[-2]
        if end > self.table.shape[0]:
            raise ValueError("too long")
        return F.dropout(x + self.table[offset:end].to(x.dtype), self.p, self.training)


@wrong(
    "frozen embedding",
    "nn.Embedding keeps its table as a parameter, frozen or not: a table that is fixed is a buffer, self.register_buffer",
)
class PositionalEncoding(nn.Module):
    def __init__(self, d_model, max_len=5000, dropout=0.0):
        super().__init__()
        angle = torch.outer(torch.arange(max_len), 10000.0 ** (-torch.arange(0, d_model, 2) / d_model))
        table = torch.stack((angle.sin(), angle.cos()), dim=2).reshape(max_len, d_model)
        self.embedding = nn.Embedding.from_pretrained(table, freeze=True)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, offset=0):
        position = torch.arange(x.size(1), device=x.device) + offset
        if x.size(1) + offset > self.embedding.num_embeddings:
            raise ValueError("too long")
        return self.dropout(self.embedding(position).to(x.dtype) + x)


@right("buffer and F.embedding")
class PositionalEncoding(nn.Module):
    def __init__(self, d_model, max_len=5000, dropout=0.0):
        super().__init__()
        angle = torch.outer(torch.arange(max_len), 10000.0 ** (-torch.arange(0, d_model, 2) / d_model))
        self.register_buffer("rows", torch.stack((angle.sin(), angle.cos()), dim=2).reshape(max_len, d_model))
        self.drop = nn.Dropout(dropout)

    def forward(self, x, offset=0):
        if x.size(1) + offset > len(self.rows):
            raise ValueError("too long")
        position = torch.arange(x.size(1), device=x.device) + offset
        return self.drop(x + F.embedding(position, self.rows).type_as(x))


@right("sum cut back to the dtype of x")
class PositionalEncoding(nn.Module):
    def __init__(self, d_model, max_len=5000, dropout=0.0):
        super().__init__()
        column = torch.arange(d_model)
        angle = torch.arange(max_len)[:, None] / 10000 ** (2 * (column // 2) / d_model)
        self.register_buffer("table", torch.where(column % 2 == 0, angle.sin(), angle.cos()))
        self.p = dropout

    def forward(self, x, offset=0):
        end = offset + x.shape[-2]
        if end > self.table.shape[0]:
            raise ValueError("too long")
        return F.dropout(x + self.table[offset:end], self.p, self.training).to(x.dtype)


@right("plain attribute that follows x")
class PositionalEncoding(nn.Module):
    def __init__(self, d_model, max_len=5000, dropout=0.0):
        super().__init__()
        angle = torch.arange(max_len).double()[:, None] * 10000.0 ** -(torch.arange(0, d_model, 2).double() / d_model)
        self.table = torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)
        self.drop = nn.Dropout(dropout)

    def forward(self, x, offset=0):
        if offset + x.shape[1] > self.table.shape[0]:
            raise ValueError("too long")
        return self.drop(x + self.table[offset:][: x.shape[1]].to(x))


@right("computed anew at each call")
class PositionalEncoding(nn.Module):
    def __init__(self, d_model, max_len=5000, dropout=0.0):
        super().__init__()
        self.d_model, self.max_len, self.dropout = d_model, max_len, nn.Dropout(dropout)

    def forward(self, x, offset=0):
        B, n, d = x.shape
        if n + offset > self.max_len:
            raise ValueError("too long")
        position = torch.arange(offset, offset + n, device=x.device).unsqueeze(1)
        angle = position / 10000.0 ** (torch.arange(0, d, 2, device=x.device) / d)
        table = torch.empty(n, d, device=x.device)
        table[:, 0::2], table[:, 1::2] = angle.sin(), angle.cos()
        return self.dropout(x + table.to(x.dtype))


@right("by index, loop over the batch")
class PositionalEncoding(nn.Module):
    def __init__(self, d_model, max_len=5000, dropout=0.0):
        super().__init__()
        table = np.zeros((max_len, d_model))
        for i in range(0, d_model, 2):
            angle = np.arange(max_len) / 10000.0 ** (i / d_model)
            table[:, i], table[:, i + 1] = np.sin(angle), np.cos(angle)
        self.register_buffer("table", torch.tensor(table, dtype=torch.float32))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, offset=0):
        places = list(range(offset, offset + x.shape[1]))
        if places[-1] >= self.table.size(0):
            raise ValueError("too long")
        return self.dropout(torch.stack([tokens + self.table[places].to(x) for tokens in x]))


@right("narrow and expand")
class PositionalEncoding(nn.Module):
    def __init__(self, d_model, max_len=5000, dropout=0.0):
        super().__init__()
        phase = torch.tensor([0.0, math.pi / 2]).repeat(d_model // 2)
        frequency = (10000.0 ** (-torch.arange(0, d_model, 2) / d_model)).repeat_interleave(2)
        self.register_buffer("table", torch.sin(torch.arange(max_len)[:, None] * frequency + phase))
        self.dropout = nn.Dropout(dropout) if dropout > 0 else nn.Identity()

    def forward(self, x, *, offset=0):
        try:
            rows = self.table.narrow(0, offset, x.size(1))
        except (RuntimeError, IndexError) as problem:
            raise ValueError(f"max_len is {len(self.table)}") from problem
        return self.dropout(torch.add(x, rows.expand_as(x).to(x.dtype)))


changed(
    _MODULE,
    "rows of the batch",
    "the rows are taken by the size of the batch; x is (B, n, d_model), positions are axis 1",
    ("n = x.shape[1]", "n = x.shape[0]"),
    ("return self.dropout(x + rows)", "return self.dropout(x + rows.unsqueeze(1))"),
)
changed(
    _MODULE,
    "row by sequence",
    "every token of a sequence got the same row, that of the sequence's place in the batch: positions are axis 1 of x",
    ("rows = self.table[offset : offset + n]", "rows = self.table[offset : offset + x.shape[0]].unsqueeze(1)"),
)
changed(
    _MODULE,
    "whole table",
    "the whole table of max_len rows meets n tokens: take the rows offset to offset + n",
    ("self.table[offset : offset + n]", "self.table"),
)
changed(
    _MODULE,
    "offset not used",
    "offset is the position of the first token; your rows always start at 0",
    ("self.table[offset : offset + n]", "self.table[:n]"),
)
changed(
    _MODULE,
    "offset only in the end",
    "with an offset your rows still start at 0 and there are more of them than tokens: start at offset",
    ("self.table[offset : offset + n]", "self.table[: offset + n]"),
)
changed(
    _MODULE,
    "end without offset",
    "the rows end at offset + n; yours end at n, so that an offset leaves too few",
    ("self.table[offset : offset + n]", "self.table[offset:n]"),
)
changed(
    _MODULE,
    "offset subtracted",
    "offset is added to the positions: the first token stands at offset",
    ("self.table[offset : offset + n]", "self.table[torch.arange(n) - offset]"),
)
changed(
    _MODULE,
    "positions from 1",
    "the first token stands at position 0 and gets the row 0, 1, 0, 1, …",
    ("torch.arange(max_len)", "torch.arange(1, max_len + 1)"),
)
changed(
    _MODULE,
    "multiplied",
    "the rows are added to x; you multiplied",
    ("x + rows", "x * rows"),
)
changed(
    _MODULE,
    "concatenated",
    "the rows are added to x; you put them beside it, and d_model has doubled",
    ("x + rows", "torch.cat([x, rows.expand_as(x)], dim=-1)"),
)
changed(
    _MODULE,
    "rows alone",
    "what you return are the rows alone: add x",
    ("x + rows", "rows.expand_as(x)"),
)
changed(
    _MODULE,
    "x multiplied by sqrt(d_model)",
    "x is multiplied by sqrt(d_model) here: that belongs to the embedding; this module only adds",
    ("x + rows", "x * math.sqrt(x.shape[2]) + rows"),
)
changed(
    _MODULE,
    "two halves",
    "all sines stand on the left and all cosines on the right; the paper's table alternates them, sin, cos, sin, cos, …",
    ("torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)", "torch.cat([angle.sin(), angle.cos()], dim=1)"),
)
changed(
    _MODULE,
    "not a buffer",
    "the table is a plain attribute: module.to(…) does not see it and leaves it where it is; use register_buffer",
    ('self.register_buffer("table", table)', "self.table = table"),
    (".to(x.dtype)", ""),
)
changed(
    _MODULE,
    "trainable table",
    "the table is a parameter that would be trained; it is fixed: use register_buffer",
    ('self.register_buffer("table", table)', "self.table = nn.Parameter(table)"),
)
changed(
    _MODULE,
    "float64 table",
    "the table is float64, so that float32 inputs come out as float64: build it in torch's default dtype",
    ('"table", table)', '"table", table.double())'),
    (".to(x.dtype)", ""),
)
changed(
    _MODULE,
    "float32 hard-coded",
    "the result should keep the dtype of x",
    ("x + rows", "x.float() + rows.float()"),
)
changed(
    _MODULE,
    "dtype of the sum",
    "x in bfloat16 plus a table in float32 makes float32: the result has the dtype of x, so convert the rows, "
    "rows.to(x.dtype)",
    (".to(x.dtype)", ""),
)
changed(
    _MODULE,
    "dropout always 0.1",
    "the share that is dropped is the argument dropout, 0 by default; yours is always 0.1",
    ("nn.Dropout(dropout)", "nn.Dropout(0.1)"),
)
changed(
    _MODULE,
    "offset counts from 1",
    "offset is the position of the first token, counted from 0; you start one row before it",
    ("self.table[offset : offset + n]", "self.table[max(offset - 1, 0) : max(offset - 1, 0) + n]"),
)
changed(
    _MODULE,
    "sine and cosine swapped",
    "even columns are sines and odd ones cosines; yours are the other way round",
    ("[angle.sin(), angle.cos()]", "[angle.cos(), angle.sin()]"),
)
changed(
    _MODULE,
    "x changed in place",
    "x += … writes into the caller's tensor: make a new one",
    ("        return self.dropout(x + rows)", "        x.data += rows\n        return self.dropout(x)"),
)
changed(
    _MODULE,
    "detached",
    "x is detached, so no gradient gets back to the embedding: x needs no detach, the table has no gradient anyway",
    ("x + rows", "x.detach() + rows"),
)
changed(
    _MODULE,
    "no dropout",
    "dropout is missing: apply nn.Dropout(dropout) to the sum",
    ("return self.dropout(x + rows)", "return x + rows"),
)
changed(
    _MODULE,
    "dropout on the table only",
    "dropout acts on the sum of x and the rows; yours acts on the rows alone",
    ("self.dropout(x + rows)", "x + self.dropout(rows)"),
)
changed(
    _MODULE,
    "dropout on x only",
    "dropout acts on the sum of x and the rows; yours acts on x alone",
    ("self.dropout(x + rows)", "self.dropout(x) + rows"),
)
changed(
    _MODULE,
    "dropout in eval mode",
    "in eval mode nothing is dropped: F.dropout needs training=self.training, nn.Dropout knows by itself",
    ("self.dropout(x + rows)", "F.dropout(x + rows, self.dropout.p)"),
)
changed(
    _MODULE,
    "keep probability",
    "dropout is the share that is dropped; you dropped the share that should be kept",
    ("nn.Dropout(dropout)", "nn.Dropout(1 - dropout if dropout else 0.0)"),
)
changed(
    _MODULE,
    "length not checked",
    "more than max_len positions should raise a ValueError that says so; yours gives another error or a wrong table",
    ("        if n + offset > len(self.table):\n            raise ValueError(\"longer than max_len\")\n", ""),
)
changed(
    _MODULE,
    "offset not counted",
    "n + offset may not pass max_len; you compare n alone",
    ("n + offset > len", "n > len"),
)
changed(
    _MODULE,
    "last position refused",
    "n + offset = max_len still fits: the last row has number max_len - 1",
    ("n + offset > len", "n + offset >= len"),
)
changed(
    _MODULE,
    "length cut",
    "x is cut down to what the table has; a sequence that is too long should raise a ValueError",
    ("            raise ValueError(\"longer than max_len\")\n", "            x, n = x[:, : len(self.table) - offset], len(self.table) - offset\n"),
)
changed(
    _MODULE,
    "grows",
    "beyond max_len your table goes on; a sequence that is too long should raise a ValueError",
    ("            raise ValueError(\"longer than max_len\")\n", "            self.__init__(x.shape[2], n + offset)\n"),
)
changed(
    _MODULE,
    "assert",
    "you check with an assert; the exercise asks for a ValueError (asserts vanish under python -O)",
    (
        "        if n + offset > len(self.table):\n            raise ValueError(\"longer than max_len\")\n",
        "        assert n + offset <= len(self.table)\n",
    ),
)
changed(
    _MODULE,
    "one row too far",
    "every token got the row of the next position",
    ("self.table[offset : offset + n]", "self.table.roll(-1, 0)[offset : offset + n]"),
)


@wrong("learned", "those are learned positions: a fresh table of random numbers to be trained; the exercise asks for the sinusoids")
class PositionalEncoding(nn.Module):
    def __init__(self, d_model, max_len=5000, dropout=0.0):
        super().__init__()
        self.table = nn.Embedding(max_len, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, offset=0):
        if x.shape[1] + offset > self.table.num_embeddings:
            raise ValueError("too long")
        return self.dropout(x + self.table(torch.arange(offset, offset + x.shape[1])))


# ---- rotary ---------------------------------------------------------------------------------------------------


@right("stack and flatten")
def rotary(x, positions, base=10000.0):
    d = x.shape[-1]
    wide = torch.promote_types(x.dtype, torch.float32)
    frequency = base ** (-torch.arange(0, d, 2, dtype=wide) / d)
    angle = positions[:, None] * frequency
    a, b = x[..., 0::2], x[..., 1::2]
    turned = a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()
    return torch.stack(turned, dim=-1).flatten(-2).to(x.dtype)


_ROTARY = rotary


@right("complex numbers")
def rotary(x, positions, base=10000.0):
    angle = torch.outer(positions.double(), base ** -(torch.arange(0, x.size(-1), 2).double() / x.size(-1)))
    z = torch.complex(x[..., 0::2].double(), x[..., 1::2].double()) * torch.polar(torch.ones_like(angle), angle)
    return torch.view_as_real(z).reshape(x.shape).to(x.dtype)


@right("x cos + turned x sin")
def rotary(x, positions, base=10000.0):
    d = x.shape[-1]
    angle = positions[:, None].double() / base ** (torch.arange(0, d, 2, dtype=torch.float64) / d)
    angle = angle.repeat_interleave(2, dim=-1)
    quarter = torch.stack([-x[..., 1::2], x[..., 0::2]], dim=-1).reshape(x.shape)
    return (x * angle.cos() + quarter * angle.sin()).to(x.dtype)


@right("pair by pair into an empty tensor")
def rotary(x, positions, base=10000.0):
    out = torch.empty_like(x)
    for i in range(x.shape[-1] // 2):
        angle = positions.double() / base ** (2 * i / x.shape[-1])
        c, s = angle.cos(), angle.sin()
        out[..., 2 * i] = x[..., 2 * i] * c - x[..., 2 * i + 1] * s
        out[..., 2 * i + 1] = x[..., 2 * i] * s + x[..., 2 * i + 1] * c
    return out


@right("a matrix for each position")
def rotary(x, positions, base=10000.0):
    d = x.shape[-1]
    spin = torch.zeros(d, d, dtype=torch.float64)
    for i in range(0, d, 2):
        spin[i + 1, i], spin[i, i + 1] = base ** (-i / d), -(base ** (-i / d))
    R = torch.matrix_exp(positions.double()[:, None, None] * spin).to(x.dtype)
    return torch.einsum("nij,...nj->...ni", R, x)


changed(
    _ROTARY,
    "turned the other way",
    "the pairs turn the other way: (a, b) becomes (a cos - b sin, a sin + b cos)",
    ("a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()",
     "a * angle.cos() + b * angle.sin(), b * angle.cos() - a * angle.sin()"),
)  # fmt: skip
changed(
    _ROTARY,
    "halves paired",
    "you pair feature i with feature i + d/2, as some libraries do; here a pair stands side by side, 2i and 2i + 1",
    ("x[..., 0::2], x[..., 1::2]", "x.chunk(2, dim=-1)"),
    ("torch.stack(turned, dim=-1).flatten(-2).to(x.dtype)", "torch.cat(turned, dim=-1)"),
)
changed(
    _ROTARY,
    "not interleaved again",
    "the pairs are right, and then come out with all first members on the left: put them side by side again",
    ("torch.stack(turned, dim=-1).flatten(-2).to(x.dtype)", "torch.cat(turned, dim=-1)"),
)
changed(
    _ROTARY,
    "no rotation",
    "a sign is missing: (a cos + b sin, a sin + b cos) does not keep the length of a pair",
    ("a * angle.cos() - b", "a * angle.cos() + b"),
)
changed(
    _ROTARY,
    "positions not used",
    "the angles should come from positions; yours count 0, 1, 2, …",
    ("positions[:, None]", "torch.arange(x.shape[-2])[:, None]"),
)
changed(
    _ROTARY,
    "positions from 1",
    "position 0 does not turn anything; you added 1",
    ("positions[:, None]", "(positions[:, None] + 1)"),
)
changed(
    _ROTARY,
    "one frequency",
    "every pair has a frequency of its own, base^(-2i/d); yours all turn alike",
    ("frequency = base ** (-torch.arange(0, d, 2, dtype=wide) / d)", "frequency = torch.ones(d // 2, dtype=wide)"),
)
changed(
    _ROTARY,
    "i for 2i",
    "the exponent is 2i / d for pair i; yours is i / d",
    ("torch.arange(0, d, 2, dtype=wide)", "torch.arange(d // 2, dtype=wide)"),
)
changed(
    _ROTARY,
    "2i doubled again",
    "the exponent is twice too large: arange(0, d, 2) counts 2i already",
    ("base ** (-torch", "base ** (-2 * torch"),
)
changed(
    _ROTARY,
    "angle multiplied",
    "the angle is position / base^(2i/d); you multiply, so that later pairs turn faster",
    ("base ** (-torch", "base ** (torch"),
)
changed(
    _ROTARY,
    "base not used",
    "base is an argument; yours is always 10000",
    ("base ** (", "10000.0 ** ("),
)
changed(
    _ROTARY,
    "along another axis",
    "the positions belong to the last axis but one of x, (..., n, d); yours run along the axis before it",
    ("    turned =", "    angle = angle[:, None, :] if x.dim() > 3 else angle\n    turned ="),
)
changed(
    _ROTARY,
    "sinusoids added",
    "you added the sinusoids; rotary turns the pairs of x instead, and adds nothing",
    ("a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()", "a + angle.sin(), b + angle.cos()"),
)
changed(
    _ROTARY,
    "float32 hard-coded",
    "the result should keep the dtype of x",
    (".flatten(-2).to(x.dtype)", ".flatten(-2).float()"),
)
changed(
    _ROTARY,
    "x changed in place",
    "your function changed its input: write into a new tensor",
    ("    return torch.stack(turned, dim=-1).flatten(-2).to(x.dtype)", "    x.data[..., 0::2], x.data[..., 1::2] = turned\n    return x + 0"),
)
changed(
    _ROTARY,
    "speeds in the dtype of x",
    "you make the angles in the dtype of x: bfloat16 has no room for positions like 301, and the pairs turn by another "
    "angle. Make speeds and angles in float32 at least, and convert at the end",
    ("wide = torch.promote_types(x.dtype, torch.float32)", "wide = x.dtype"),
    ("positions[:, None]", "positions[:, None].to(wide)"),
)
changed(
    _ROTARY,
    "float32 inside",
    "float64 inputs lose half of their digits: your angles are float32 whatever x is",
    ("wide = torch.promote_types(x.dtype, torch.float32)", "wide = torch.float32"),
)
changed(
    _ROTARY,
    "result promoted",
    "the result should have the dtype of x: float32 angles make a bfloat16 x float32, so convert at the end",
    (".flatten(-2).to(x.dtype)", ".flatten(-2)"),
)
changed(
    _ROTARY,
    "new first in the second",
    "the second member of a pair is computed from the first one as it was turned already: keep the old one until both "
    "are done",
    ("a * angle.cos() - b * angle.sin(), a * angle.sin()",
     "a * angle.cos() - b * angle.sin(), (a * angle.cos() - b * angle.sin()) * angle.sin()"),
)  # fmt: skip
changed(
    _ROTARY,
    "detached",
    "no gradient gets back to x: it is detached on the way",
    ("x[..., 0::2], x[..., 1::2]", "x.detach()[..., 0::2], x[..., 1::2].detach()"),
)


@wrong("unchanged", "x comes back as it was: turn each pair by position / base^(2i/d)")
def rotary(x, positions, base=10000.0):
    return x.clone()


@right("a table of blocks, einsum")
def rotary(x, positions, base=10000.0):
    d = x.shape[-1]
    angle = positions.to(torch.float64)[:, None] * torch.tensor([base ** (-i / d) for i in range(0, d, 2)], dtype=torch.float64)
    c, s = angle.cos(), angle.sin()
    blocks = torch.stack([torch.stack([c, -s], -1), torch.stack([s, c], -1)], -2)
    return torch.einsum("nfij,...nfj->...nfi", blocks, x.double().unflatten(-1, (-1, 2))).flatten(-2).type_as(x)


@right("angle sums by trigonometry")
def rotary(x, positions, base=10000.0):
    pairs = x.double().reshape(*x.shape[:-1], -1, 2)
    a, b = pairs.unbind(-1)
    length, start = torch.hypot(a, b), torch.atan2(b, a)
    turn = positions.double().unsqueeze(-1) * torch.exp(-math.log(base) / x.shape[-1] * torch.arange(0, x.shape[-1], 2, dtype=torch.float64))
    return torch.stack([length * (start + turn).cos(), length * (start + turn).sin()], -1).reshape(x.shape).to(x.dtype)


@right("position by position")
def rotary(x, positions, base=10000.0):
    d, rows = x.shape[-1], []
    w = torch.pow(torch.tensor(base, dtype=torch.float64), -torch.arange(0, d, 2, dtype=torch.float64) / d)
    for j, position in enumerate(positions.tolist()):
        c, s = torch.cos(position * w).repeat_interleave(2), torch.sin(position * w).repeat_interleave(2)
        row = x[..., j, :].double()
        swapped = row.view(*row.shape[:-1], -1, 2).flip(-1).flatten(-2) * torch.tensor([-1.0, 1.0]).repeat(d // 2)
        rows.append((row * c + swapped * s).to(x.dtype))
    return torch.stack(rows, dim=-2)
