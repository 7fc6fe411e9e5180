"""Closing and unloading: whoever waits is told, what is loaded leaves, and nothing is left behind."""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING

import pytest
from lifecycle_fakes import Call, FakeLoader, FakeSpec

from lifecycle import (
    BudgetExhausted,
    ManagerClosed,
    ModelConfig,
    ModelManager,
    ModelRef,
    UnloadTimeout,
)
from lifecycle.events import ModelUnloaded

if TYPE_CHECKING:
    from collections.abc import Callable

    from lifecycle_fakes import Bench

    MakeBench = Callable[..., Bench]


def test_waiters_and_newcomers_are_refused_when_the_manager_closes(bench: MakeBench) -> None:
    """Closing refuses the queue, joins the running load, unloads it, and closing again is harmless."""
    b = bench(1)
    b.add("A")
    b.add("B")
    gate = b.loader.hold("A")
    loading, queued = b.later("A"), b.later("B")
    b.waiting(2)
    closing = Call(b.manager.close)
    assert isinstance(loading.error(), ManagerClosed)
    assert isinstance(queued.error(), ManagerClosed)
    assert b.state.charged_nbytes == 1
    gate.opened.set()
    closing.result()
    assert b.state.charged_nbytes == 0
    assert b.loader.done["A", "close"] == 1
    b.manager.close()
    with pytest.raises(ManagerClosed):
        b.use("A")
    with pytest.raises(ManagerClosed):
        b.add("C")


def test_manager_closes_when_its_with_block_ends() -> None:
    """A manager is a context manager, and never used it has nothing to close."""
    with ModelManager(1) as manager:
        assert manager.registered() == ()
    assert manager.snapshot().charged_nbytes == 0


def test_load_in_flight_is_unloaded_after_its_waiters_when_asked(bench: MakeBench) -> None:
    """Unloading a model that still loads lets those who wait have it, then ends it; later callers load anew."""
    b = bench(2)
    ref = b.add("A")
    gate = b.loader.hold("A")
    waiter = b.later("A")
    gate.reached.wait()
    with pytest.raises(UnloadTimeout):
        b.manager.unload(ref, drain_timeout_s=0.0)
    unload = Call(lambda: b.manager.unload(ref))
    b.until(lambda state: state.generations[1].drain_by < math.inf)
    late = b.later("A")
    b.waiting(2)
    gate.opened.set()
    waiter.result()
    unload.result()
    late.result()
    assert b.loads("A") == 2


def test_drain_that_is_too_long_is_told_and_ends_late(bench: MakeBench) -> None:
    """A lease held past the drain's deadline quarantines its model; its release frees the bytes after all."""
    b = bench(1)
    ref = b.add("A")
    with b.lease("A"):
        unload = Call(lambda: b.manager.unload(ref, drain_timeout_s=5.0))
        b.until(lambda state: not state.generations[1].is_open)
        b.pass_time(5.0)
        assert isinstance(unload.error(), UnloadTimeout)
        assert b.manager.snapshot().quarantined_nbytes == 1
        with pytest.raises(BudgetExhausted):
            b.use("A")
    b.until(lambda state: not state.generations)
    b.use("A")


def test_time_passes_by_itself_when_the_clock_is_real() -> None:
    """With the real clock the keeper wakes at the TTL's end without anybody's help."""
    with ModelManager(1) as manager:
        ref = ModelRef("t", "A")
        manager.register(ref, FakeSpec("A", 1, 1), FakeLoader(), ModelConfig(ttl_s=0.02))
        gone = threading.Event()
        manager.subscribe(lambda event: gone.set() if isinstance(event, ModelUnloaded) else None)
        with manager.lease(ref):
            pass
        assert gone.wait(600.0)
