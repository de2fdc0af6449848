"""The language between judge and probe: a plan goes out, findings come back, both as plain data, never pickle.

A message is a JSON header and the raw bytes of its arrays. The schema is closed: what is not listed in
`_DECODERS` is refused, and so are dtypes, sizes and nestings beyond the limits below.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

_SHARED_DTYPES = ("float16", "float32", "float64", "bool", "uint8", "int8", "int16", "int32", "int64")
NUMPY_DTYPES = {name: np.dtype(name) for name in _SHARED_DTYPES}
TORCH_DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in (*_SHARED_DTYPES, "bfloat16")}
_TORCH_NAMES = {dtype: name for name, dtype in TORCH_DTYPES.items()}
LAYOUTS = ("contiguous", "strided", "expanded")
MAX_BYTES = 64 << 20  # one message
MAX_TEXT = 4000  # one string that a probe brings back
MAX_DEPTH = 12
MAX_ITEMS = 10_000  # of one list, tuple or dict; arrays are no lists
MAX_BITS = 2048  # of one int


class WireError(ValueError):
    """A message does not follow the schema."""


@dataclass(frozen=True)
class Array:
    """An array or tensor as plain data, in C order.

    lib "numpy" or "torch"; dtype its name there; shape; data the raw bytes. `grad` is requires_grad.
    `layout` says how the probe lays an input out: "contiguous"; "strided", the same numbers in memory
    of the reversed axes, so that view() fails; "expanded", along axis 0 one row seen shape[0] times.
    """

    lib: str
    dtype: str
    shape: tuple[int, ...]
    data: bytes
    grad: bool = False
    layout: str = "contiguous"

    @classmethod
    def of(cls, value: Any, *, grad: bool | None = None, layout: str = "contiguous") -> Array:
        """The plain form of a tensor, array or NumPy scalar; TypeError for anything else or an unlisted dtype."""
        if isinstance(value, torch.Tensor):
            return _of_tensor(value, value.requires_grad if grad is None else grad, layout)
        if isinstance(value, (np.ndarray, np.generic)):
            name = value.dtype.name
            if name not in NUMPY_DTYPES:
                raise TypeError(f"no plain form for NumPy dtype {name}")
            return cls("numpy", name, tuple(value.shape), np.ascontiguousarray(value).tobytes(), False, layout)
        raise TypeError(f"no plain form for {type(value).__name__}")

    def value(self) -> Any:
        """A fresh array or tensor with these numbers and this layout; a leaf where `grad` is set."""
        if self.lib == "numpy":
            return self._ndarray()
        return self._tensor().requires_grad_(self.grad)

    def _ndarray(self) -> np.ndarray:
        plain = np.frombuffer(bytearray(self.data), NUMPY_DTYPES[self.dtype]).reshape(self.shape)
        if self.layout == "strided":
            return np.ascontiguousarray(plain.transpose()).transpose()
        if self.layout == "expanded":
            return np.broadcast_to(plain[:1], self.shape)
        return plain

    def _tensor(self) -> torch.Tensor:
        dtype = TORCH_DTYPES[self.dtype]
        if not self.data:
            return torch.empty(self.shape, dtype=dtype)
        plain = torch.frombuffer(bytearray(self.data), dtype=dtype).reshape(self.shape)
        if self.layout == "strided":
            order = tuple(reversed(range(plain.ndim)))
            return plain.permute(order).contiguous().permute(order)
        if self.layout == "expanded":
            return plain[:1].expand(self.shape)
        return plain

    def double(self) -> np.ndarray:
        """The numbers as float64, for comparing."""
        if self.dtype in NUMPY_DTYPES and self.layout != "expanded":
            return np.frombuffer(self.data, NUMPY_DTYPES[self.dtype]).reshape(self.shape).astype(np.float64)
        value = self.value()
        return value.detach().double().numpy() if isinstance(value, torch.Tensor) else value.astype(np.float64)


def _of_tensor(tensor: torch.Tensor, grad: bool, layout: str) -> Array:
    name = _TORCH_NAMES.get(tensor.dtype)
    if name is None:
        raise TypeError(f"no plain form for torch dtype {str(tensor.dtype).removeprefix('torch.')}")
    plain = tensor.detach()
    if type(plain) is not torch.Tensor:
        plain = plain.as_subclass(torch.Tensor)
    if name == "bfloat16":  # which NumPy has none of
        plain = plain.resolve_neg().contiguous().view(torch.int16)
    return Array("torch", name, tuple(plain.shape), plain.numpy(force=True).tobytes(), bool(grad), layout)


@dataclass(frozen=True)
class Ref:
    """A value made by an earlier step, and a path into it: strings are attributes, numbers are items."""

    name: str
    path: tuple[str | int, ...] = ()

    def __getitem__(self, index: int) -> Ref:
        return Ref(self.name, (*self.path, index))

    def __getattr__(self, attribute: str) -> Ref:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return Ref(self.name, (*self.path, attribute))


ANSWER = Ref("answer")


@dataclass(frozen=True)
class Raised:
    """An exception, as plain facts: its class, the classes it derives from, its text, and the learner's line."""

    kind: str
    bases: tuple[str, ...]
    message: str
    line: str = ""
    step: str = ""


@dataclass(frozen=True)
class Opaque:
    """Something that has no plain form: only the name of its type comes back."""

    kind: str


@dataclass(frozen=True)
class Step:
    """One thing for the probe to do: an operation of its closed list, under which name to keep what comes of it."""

    op: str
    out: str
    args: tuple[Any, ...] = ()
    bring: bool = True


@dataclass
class Plan:
    """What to do with a learner's object in one case; every method adds a step and returns a `Ref` to its result."""

    seed: int = 0
    steps: list[Step] = field(default_factory=list)

    def _add(self, op: str, *args: Any, bring: bool = True) -> Ref:
        name = f"{op}{len(self.steps)}"
        self.steps.append(Step(op, name, args, bring))
        return Ref(name)

    def put(self, value: Any) -> Ref:
        """Make an input once, so that later steps speak of the same object."""
        return self._add("put", value, bring=False)

    def make(self, kind: str, /, *args: Any, **kwargs: Any) -> Ref:
        """Make an object of those in `autograder.probe.objects`: a generator, a layer, a scripted model."""
        return self._add("make", kind, list(args), kwargs, bring=False)

    def call(self, target: Ref, /, *args: Any, **kwargs: Any) -> Ref:
        """Call the learner's object, or anything a `Ref` reaches, and keep the result or the exception."""
        return self._add("call", target, list(args), kwargs)

    def build(self, *args: Any, **kwargs: Any) -> Ref:
        """Call the learner's class to get an object whose type alone comes back."""
        return self.call(ANSWER, *args, **kwargs)

    def look(self, target: Ref) -> Ref:
        """Bring back the present value of something: an attribute, an input after the call."""
        return self._add("look", target)

    def load(self, module: Ref, weights: dict[str, Array]) -> Ref:
        """Copy weights into a module by dotted name; the result lists names that are missing or of another shape."""
        return self._add("load", module, weights)

    def grad(self, of: list[tuple[Ref, Array]], wrt: list[Ref], *, names: Ref | None = None) -> Ref:
        """Gradients of sum((value * G).sum()) with respect to inputs, and to the parameters of `names` by name."""
        return self._add("grad", [list(pair) for pair in of], list(wrt), names)

    def mode(self, module: Ref, training: bool) -> Ref:
        """Put a module into train or eval mode."""
        return self._add("mode", module, training, bring=False)

    def to(self, module: Ref, where: str) -> Ref:
        """Move a module or tensor to a dtype ("float64") or device ("meta"); modules move in place."""
        return self._add("to", module, where, bring=False)

    def facts(self, module: Ref) -> Ref:
        """What a module is made of: classes, parameters, buffers, which names share storage, each one's mode."""
        return self._add("facts", module)

    def weights(self, module: Ref) -> Ref:
        """All parameters and buffers by name."""
        return self._add("weights", module)

    def same(self, left: Ref, right: Ref) -> Ref:
        """Two facts: is it one object; do the two share memory."""
        return self._add("same", left, right)

    def watch(self, module: Ref, *, values: bool = False) -> Ref:
        """From here on, log each call of a module: its first input's shape (and values), mode, whether grad is on."""
        return self._add("watch", module, values, bring=False)

    def bypass(self, module: Ref) -> Ref:
        """From here on a module hands on its first input as it is, and logs the devices of all its inputs."""
        return self._add("bypass", module, bring=False)

    def log(self, target: Ref) -> Ref:
        """The log so far of something watched, bypassed or scripted."""
        return self._add("log", target)

    def defaults(self, target: Ref) -> Ref:
        """The default values of a function's or class's parameters, by name."""
        return self._add("defaults", target)

    def rng(self) -> Ref:
        """A digest of the global random states of torch, NumPy and `random`, and of torch's global switches."""
        return self._add("rng")

    def reseed(self, seed: int) -> Ref:
        """Seed the three global generators."""
        return self._add("reseed", seed, bring=False)


@dataclass
class Seen:
    """What a probe found, by the name of the step."""

    found: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, ref: Ref) -> Any:
        value = self.found[ref.name]
        for part in ref.path:
            if isinstance(value, Raised):
                return value
            try:
                value = value[part]
            except (TypeError, KeyError, IndexError):
                return Opaque("nothing")
        return value


# ---- encoding -------------------------------------------------------------------------------------------------

_SCALARS = (bool, int, str, type(None))


def encode(value: Any) -> bytes:
    """One message. TypeError where a value has no plain form; WireError where it is too large or too deep."""
    blobs: list[bytes] = []
    header = json.dumps(_pack(value, blobs, 0), separators=(",", ":")).encode()
    message = b"".join([struct.pack("<I", len(header)), header, *blobs])
    if len(message) > MAX_BYTES:
        raise WireError(f"a message of {len(message)} bytes is over the limit of {MAX_BYTES}")
    return message


def _pack(value: Any, blobs: list[bytes], depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise WireError(f"nested deeper than {MAX_DEPTH}")
    if type(value) in _SCALARS:
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"t": "float", "v": repr(value)}
    if type(value) in (list, tuple):
        packed = [_pack(item, blobs, depth + 1) for item in value]
        return packed if type(value) is list else {"t": "tuple", "v": packed}
    if type(value) is dict:
        return {"t": "dict", "v": [[str(key), _pack(item, blobs, depth + 1)] for key, item in value.items()]}
    if type(value) is Array:
        blobs.append(value.data)
        plain = [value.lib, value.dtype, list(value.shape), len(value.data), value.grad, value.layout]
        return {"t": "array", "v": plain}
    tag = _TAGS.get(type(value))
    if tag is None:
        raise TypeError(f"no plain form for {type(value).__name__}")
    return {"t": tag[0], "v": [_pack(getattr(value, name), blobs, depth + 1) for name in tag[1]]}


_TAGS: dict[type, tuple[str, tuple[str, ...]]] = {
    Ref: ("ref", ("name", "path")),
    Raised: ("raised", ("kind", "bases", "message", "line", "step")),
    Opaque: ("opaque", ("kind",)),
    Step: ("step", ("op", "out", "args", "bring")),
    Plan: ("plan", ("seed", "steps")),
    Seen: ("seen", ("found",)),
}


def decode(message: bytes) -> Any:
    """The value of a message; WireError for anything that `encode` would not have written."""
    try:
        (length,) = struct.unpack_from("<I", message)
        header = json.loads(message[4 : 4 + length])
        blobs = _Blobs(message, 4 + length)
        value = _unpack(header, blobs, 0)
    except WireError:
        raise
    except Exception as error:  # a hostile message may break anything on its way
        raise WireError(f"not a message of this schema: {type(error).__name__}") from None
    if blobs.at != len(message):
        raise WireError("bytes are left over after the last array")
    return value


class _Blobs:
    def __init__(self, message: bytes, at: int):
        self.message, self.at = message, at

    def take(self, size: int) -> bytes:
        if size < 0 or self.at + size > len(self.message):
            raise WireError("an array is larger than its message")
        self.at += size
        return self.message[self.at - size : self.at]


def _unpack(item: Any, blobs: _Blobs, depth: int) -> Any:
    if depth > 3 * MAX_DEPTH:
        raise WireError("nested too deep")
    if isinstance(item, list):
        return [_unpack(each, blobs, depth + 1) for each in _few(item)]
    if isinstance(item, int) and item.bit_length() > MAX_BITS:
        raise WireError(f"a number of more than {MAX_BITS} bits")
    if not isinstance(item, dict):
        return item
    decoder = _DECODERS.get(item.get("t", ""))
    if decoder is None:
        raise WireError("a kind of value that the schema does not list")
    return decoder(item["v"], blobs, depth + 1)


def _unpack_array(plain: Any, blobs: _Blobs, depth: int) -> Array:
    lib, dtype, shape, size, grad, layout = plain
    known: Any = {"torch": TORCH_DTYPES, "numpy": NUMPY_DTYPES}[lib]
    if dtype not in known or layout not in LAYOUTS or not all(type(n) is int and n >= 0 for n in shape):
        raise WireError("an array of an unknown dtype, shape or layout")
    if size != math.prod(shape) * known[dtype].itemsize:
        raise WireError("an array whose bytes do not fit its shape")
    return Array(lib, dtype, tuple(shape), blobs.take(size), bool(grad), layout)


def _unpack_record(kind: type, names: tuple[str, ...]) -> Callable[[Any, _Blobs, int], Any]:
    def unpack(plain: Any, blobs: _Blobs, depth: int) -> Any:
        if len(plain) != len(names):
            raise WireError(f"a {kind.__name__} with {len(plain)} fields")
        values = [_unpack(item, blobs, depth) for item in plain]
        if any(not isinstance(value, _FIELD_TYPES.get(name, object)) for name, value in zip(names, values)):
            raise WireError(f"a {kind.__name__} with a field of another type")
        return kind(**dict(zip(names, values)))

    return unpack


_FIELD_TYPES: dict[str, type] = {
    **dict.fromkeys(("name", "kind", "message", "line", "step", "op", "out"), str),
    **dict.fromkeys(("path", "bases", "args"), tuple),
    **dict.fromkeys(("found",), dict),
    **dict.fromkeys(("bring", "seed"), int),
    "steps": list,
}


def _few(plain: Any) -> Any:
    """Itself; WireError where it has more items than anything that is sent: what is told of them would take long."""
    if len(plain) > MAX_ITEMS:
        raise WireError(f"{len(plain)} items in one list; at most {MAX_ITEMS}")
    return plain


def _pairs(plain: Any) -> Iterator[tuple[str, Any]]:
    for key, item in _few(plain):
        if not isinstance(key, str):
            raise WireError("a key that is no text")
        yield key, item


_DECODERS: dict[str, Callable[[Any, _Blobs, int], Any]] = {
    "float": lambda plain, blobs, depth: float(plain),
    "tuple": lambda plain, blobs, depth: tuple(_unpack(item, blobs, depth) for item in _few(plain)),
    "dict": lambda plain, blobs, depth: {key: _unpack(item, blobs, depth) for key, item in _pairs(plain)},
    "array": _unpack_array,
    **{tag: _unpack_record(kind, names) for kind, (tag, names) in _TAGS.items()},
}
