"""Random inputs for cases, as plain arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from autograder.wire import NUMPY_DTYPES, TORCH_DTYPES, Array


def normal(
    rng: np.random.Generator, shape: Sequence[int], dtype: str = "float32", *, scale: float = 1.0, **options: Any
) -> Array:
    """A tensor of normal draws; options are those of `Array.of`: grad, layout."""
    return tensor(rng.standard_normal(shape) * scale, dtype, **options)


def tensor(
    values: Any, dtype: str = "float32", *, grad: bool = False, layout: str = "contiguous"
) -> Array:
    """A tensor of these numbers."""
    numbers = np.asarray(values)
    if dtype not in NUMPY_DTYPES:
        return Array.of(torch.as_tensor(numbers).to(TORCH_DTYPES[dtype]), grad=grad, layout=layout)
    return Array("torch", dtype, numbers.shape, numbers.astype(NUMPY_DTYPES[dtype]).tobytes(), grad, layout)


def ndarray(values: Any, dtype: str = "float64", **options: Any) -> Array:
    """A NumPy array of these numbers."""
    return Array.of(np.asarray(values).astype(dtype), **options)


def mask(rng: np.random.Generator, shape: Sequence[int], dtype: str = "bool", *, keep: float = 0.6) -> Array:
    """A random mask, True = may attend; at least one key is left in every row."""
    allowed = rng.random(shape) < keep
    first = rng.integers(shape[-1], size=(*shape[:-1], 1))
    np.put_along_axis(allowed, first, True, axis=-1)
    return tensor(allowed, dtype)
