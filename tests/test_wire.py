"""The wire: everything of the schema makes the round trip, and nothing else comes in."""

import contextlib
import json
import pickle
import struct

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from autograder.wire import (
    ANSWER,
    NUMPY_DTYPES,
    TORCH_DTYPES,
    Array,
    Opaque,
    Plan,
    Raised,
    Seen,
    WireError,
    decode,
    encode,
)


@pytest.mark.parametrize("name", TORCH_DTYPES)
def test_every_torch_dtype_makes_the_round_trip(name):
    tensor = torch.tensor([[0, 1, 0], [1, 1, 0]]).to(TORCH_DTYPES[name])
    back = decode(encode(Array.of(tensor))).value()
    assert back.dtype == tensor.dtype and torch.equal(back, tensor)


@pytest.mark.parametrize("name", NUMPY_DTYPES)
def test_every_numpy_dtype_makes_the_round_trip(name):
    array = np.array([[0, 1, 0], [1, 1, 0]]).astype(name)
    back = decode(encode(Array.of(array))).value()
    assert back.dtype == array.dtype and np.array_equal(back, array)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1, 1), (2, 3, 4)])
def test_every_shape_makes_the_round_trip(shape):
    assert decode(encode(Array.of(torch.ones(shape)))).value().shape == shape
    assert decode(encode(Array.of(np.ones(shape)))).value().shape == shape


def test_layouts_change_memory_and_not_numbers():
    tensor = torch.arange(24.0).reshape(2, 3, 4)
    strided = Array.of(tensor, layout="strided").value()
    assert torch.equal(strided, tensor) and not strided.is_contiguous()
    expanded = Array.of(tensor[:1].expand(5, 3, 4), layout="expanded").value()
    assert expanded.stride(0) == 0 and expanded.shape == (5, 3, 4)
    assert not Array.of(np.ones((2, 3)), layout="strided").value().flags["C_CONTIGUOUS"]


def test_requires_grad_makes_a_leaf():
    value = decode(encode(Array.of(torch.ones(2), grad=True))).value()
    assert value.requires_grad and value.is_leaf


def test_two_values_of_one_array_do_not_share_memory():
    array = Array.of(torch.zeros(3))
    array.value().add_(1)
    assert torch.equal(array.value(), torch.zeros(3))


def test_a_plan_and_its_findings_make_the_round_trip():
    plan = Plan(seed=3)
    x = plan.put(Array.of(torch.ones(2, 3), grad=True))
    result = plan.call(ANSWER, x, mask=None, text="ä", number=float("nan"), size=(2, [3]))
    plan.grad([(result[0].weight, Array.of(torch.ones(2)))], [x])
    again = decode(encode(plan))
    assert repr(again) == repr(plan)
    seen = Seen({"a": Raised("ValueError", ("ValueError", "object"), "no"), "b": Opaque("Linear"), "c": 2**900})
    assert decode(encode(seen)) == seen


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(plain)
@settings(max_examples=200, deadline=None)
def test_any_plain_value_makes_the_round_trip(value):
    assert decode(encode(value)) == value


@given(st.binary(max_size=60), st.integers(0, 400))
@settings(max_examples=300, deadline=None)
def test_damaged_messages_are_refused_and_nothing_else_happens(noise, at):
    message = bytearray(encode([Array.of(torch.ones(2, 3)), Raised("E", (), "x"), {"a": (1, 2.5)}]))
    message[at % len(message) : at % len(message) + len(noise)] = noise
    with contextlib.suppress(WireError):
        decode(bytes(message))


def _message(header: object, blob: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<I", len(text)) + text + blob


@pytest.mark.parametrize(
    "message",
    [
        b"",
        pickle.dumps({"a": 1}),
        _message({"t": "module", "v": []}),
        _message({"t": "array", "v": ["torch", "object", [1], 8, False, "contiguous"]}, bytes(8)),
        _message({"t": "array", "v": ["os", "float32", [1], 4, False, "contiguous"]}, bytes(4)),
        _message({"t": "array", "v": ["torch", "float32", [2], 4, False, "contiguous"]}, bytes(4)),
        _message({"t": "array", "v": ["torch", "float32", [-1], 4, False, "contiguous"]}, bytes(4)),
        _message({"t": "array", "v": ["torch", "float32", [1], 4, False, "sideways"]}, bytes(4)),
        _message({"t": "array", "v": ["torch", "float32", [1], 4, False, "contiguous"]}),
        _message([1, 2], b"left over"),
        _message({"t": "seen", "v": ["not a dict"]}),
        _message({"t": "raised", "v": ["E", "no tuple", "m", "l", "s"]}),
        _message({"t": "dict", "v": [[1, 2]]}),
        b"\x08\x00\x00\x00" + b"[" * 8,
        _message(json.loads("[" * 60 + "]" * 60)),
        _message([0] * 10_001),
        _message({"t": "tuple", "v": [0] * 10_001}),
        _message({"t": "dict", "v": [["k", 0]] * 10_001}),
        _message([1 << 2048]),
    ],
)
def test_what_is_not_of_the_schema_is_refused(message):
    with pytest.raises(WireError):
        decode(message)


def test_what_has_no_plain_form_is_not_sent():
    for value in (object(), lambda: 0, torch.nn.Linear(1, 1), {1, 2}, np.array([object()])):
        with pytest.raises(TypeError):
            encode(Array.of(value) if isinstance(value, np.ndarray) else value)
