"""Random inputs for cases, as plain arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from autograder.wire import TORCH_DTYPES, Array


def normal(
    rng: np.random.Generator, shape: Sequence[int], dtype: str = "float32", *, scale: float = 1.0, **options: Any
) -> Array:
    """A tensor of normal draws; options are those of `Array.of`: grad, layout."""
    return tensor(rng.standard_normal(shape) * scale, dtype, **options)


def tensor(values: Any, dtype: str = "float32", **options: Any) -> Array:
    """A tensor of these numbers."""
    return Array.of(torch.as_tensor(np.asarray(values)).to(TORCH_DTYPES[dtype]), **options)


def ndarray(values: Any, dtype: str = "float64", **options: Any) -> Array:
    """A NumPy array of these numbers."""
    return Array.of(np.asarray(values).astype(dtype), **options)


def mask(rng: np.random.Generator, shape: Sequence[int], dtype: str = "bool", *, keep: float = 0.6) -> Array:
    """A random mask, True = may attend; at least one key is left in every row."""
    allowed = rng.random(shape) < keep
    first = rng.integers(shape[-1], size=(*shape[:-1], 1))
    np.put_along_axis(allowed, first, True, axis=-1)
    return tensor(allowed, dtype)
