"""What every test leaves as it found it."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def small_numbers_stay() -> Iterator[None]:
    """Tests run the set-up cell in this process, and it turns denormal numbers into 0 for all that comes after."""
    yield
    torch.set_flush_denormal(False)
