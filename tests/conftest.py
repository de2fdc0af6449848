"""What every test leaves as it found it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from autograder import kernels
from autograder.sandbox.warm import Zygote

# Files that take a minute or more, the longest first: begun last, one would keep a single core busy at the end.
LONG = ("seeds", "catalogues", "nbval", "stock", "hostile", "publish", "foreign", "scale", "grade", "book", "checks")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first, each file's tests in their order."""
    places = {f"test_{name}": place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.path.stem, len(LONG)))


@pytest.fixture(autouse=True)
def small_numbers_stay() -> Iterator[None]:
    """Tests run the set-up cell in this process, and it turns denormal numbers into 0 for all that comes after."""
    yield
    torch.set_flush_denormal(False)


class _Lent(Zygote):
    """A zygote that outlives its context: the test run's one, or a new one where that was ended."""

    one: Zygote | None = None
    place: Path

    def __init__(self, environment: dict[str, str], *, place: Path | None = None):
        super().__init__(environment, place=_Lent.place)

    def __enter__(self) -> Zygote:
        if _Lent.one is None or _Lent.one._process.poll() is not None:
            _Lent.one = super().__enter__()
        return _Lent.one

    def __exit__(self, *_: object) -> None:
        """Nothing ends here."""


@pytest.fixture(scope="session", autouse=True)
def one_zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Gradings of one test run fork their kernels from one process, which takes seconds to get ready."""
    _Lent.place = tmp_path_factory.mktemp("zygote")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "Zygote", _Lent)
        yield
    if _Lent.one is not None:
        Zygote.__exit__(_Lent.one)
