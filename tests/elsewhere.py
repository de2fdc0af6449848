"""A device that is no CPU, without having one: torch's meta device, watched.

On the meta device every op runs as on a GPU would be launched: shapes, types and devices, no numbers. The watch raises
where an op makes a CPU tensor. What a program reads back (a number, a truth, a list) it answers itself, and counts:
each is a wait for a GPU.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

READ = torch.ops.aten._local_scalar_dense.default


class StaysOnDevice(TorchDispatchMode):
    """Raises where an op returns a CPU tensor, answers reads with `number`; step counters of optimizers are exempt."""

    def __init__(self, counters: Iterable[torch.Tensor] = (), number: float = 0.0):
        super().__init__()
        self.counters, self.number, self.reads = {id(one) for one in counters}, number, 0

    def __torch_dispatch__(self, op: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if op is READ:
            return self.answer(args[0])
        with self:                                 # inference mode sends whole what is made of several operations
            parts = op.decompose(*args, **(kwargs or {}))
        if parts is not NotImplemented:
            return parts
        result = op(*args, **(kwargs or {}))
        for one in tree_leaves(result):
            if isinstance(one, torch.Tensor) and one.device.type == "cpu" and id(one) not in self.counters:
                raise AssertionError(f"{op} returns a CPU tensor of shape {tuple(one.shape)}")
        return result

    def answer(self, tensor: torch.Tensor) -> Any:
        if id(tensor) in self.counters:
            return tensor.detach().numpy().item()
        self.reads += 1
        return {torch.bool: bool, torch.int64: int}.get(tensor.dtype, float)(self.number)


class ListsAreRead(TorchFunctionMode):
    """tolist() of a tensor on the device is one read, whatever its size."""

    def __init__(self, watch: StaysOnDevice):
        super().__init__()
        self.watch = watch

    def __torch_function__(self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if function is torch.Tensor.tolist and args[0].device.type != "cpu":
            self.watch.reads += 1
            return np.zeros(args[0].shape, float if args[0].is_floating_point() else int).tolist()
        return function(*args, **(kwargs or {}))


@contextmanager
def elsewhere(counters: Iterable[torch.Tensor] = (), number: float = 0.0) -> Iterator[StaysOnDevice]:
    """All that runs inside stays on the device; yields the watch, whose `reads` counts the answers."""
    watch = StaysOnDevice(counters, number)
    without_autocast = mock.patch.object(torch, "autocast", lambda *args, **more: nullcontext())   # meta has none
    with watch, ListsAreRead(watch), without_autocast:
        yield watch
