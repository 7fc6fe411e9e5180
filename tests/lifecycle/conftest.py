"""Let the tests of this folder import the fakes and the explorer that lie beside them."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

sys.path.insert(0, str(Path(__file__).parent / "support"))

from lifecycle_fakes import Bench


@pytest.fixture
def bench() -> Iterator[Callable[..., Bench]]:
    """Make benches, and close them at the end: whatever a test did, nothing may be left behind."""
    before = set(threading.enumerate())
    made: list[Bench] = []

    def make(budget: int, **limits: Any) -> Bench:
        made.append(Bench(budget, **limits))
        return made[-1]

    yield make
    for one in made:
        one.finish()
    for thread in set(threading.enumerate()) - before:
        thread.join(600.0)
        assert not thread.is_alive(), f"{thread} was left behind"
