"""`unload`, `close`, `replace` and `unregister` return by their own time plus a second, whatever the loaders do."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lifecycle_fakes import Bench, Call, FakeClock, FakeSpec

from lifecycle import LifecycleError, LoadFailed, ModelConfig, ModelRef
from lifecycle.errors import LeaseTimeout

if TYPE_CHECKING:
    from collections.abc import Callable

A, B = ModelRef("t", "A"), ModelRef("t", "B")
FAR_S = 60.0  # real seconds until a test gives up
ERRORS = (OSError, SystemExit, KeyboardInterrupt, GeneratorExit, MemoryError)
SECONDS = (0.0, 1e-9, 0.3, 7.0, 1e4, 1e10, 1e300)
STEPS = [(name, step) for name in "ABX" for step in ("load", "nbytes", "warm_up", "close")]
STEPS.append(("X", "estimate"))
ORDERS: dict[str, Callable[[Bench, float, bool], object]] = {
    "unload": lambda b, s, _: b.manager.unload(A, drain_timeout_s=s),
    "close": lambda b, s, _: b.manager.close(timeout_s=s),
    "replace": lambda b, s, drain: b.manager.replace(A, FakeSpec("X", 1, 1), timeout_s=s, drain_first=drain),
    "unregister": lambda b, s, _: b.manager.unregister(A, drain_timeout_s=s),
}
BEFORE: dict[str, Callable[[Bench], object]] = {
    "used": lambda b: b.later("A", 5.0),
    "leased": lambda b: Call(lambda: b.lease("A", 5.0).__enter__()),
    "wanted": lambda b: b.later("B", 500.0),
    "set": lambda b: Call(lambda: b.use_all("AB", 50.0)),
    "prefetched": lambda b: b.manager.prefetch([A, B]),
    "unloading": lambda b: Call(lambda: b.manager.unload(A, drain_timeout_s=700.0)),
    "unloading too": lambda b: Call(lambda: b.manager.unload(A, drain_timeout_s=0.1)),
    "replacing": lambda b: Call(lambda: b.manager.replace(A, FakeSpec("Y", 1, 1), timeout_s=900.0, drain_first=True)),
    "closing": lambda b: Call(lambda: b.manager.close(timeout_s=800.0)),
    "later": lambda b: b.pass_time(1.0),
}


class WatchedClock(FakeClock):
    """A clock that tells when a thread has looked at it."""

    def __init__(self) -> None:
        super().__init__()
        self.reader: threading.Thread | None = None
        self.was_read = threading.Event()

    def __call__(self) -> float:
        """Return the time."""
        if threading.current_thread() is self.reader:
            self.was_read.set()
        return self.now


def ends_in_time(b: Bench, order: Callable[[], object], seconds: float) -> bool:
    """Give an order, let its time and a second pass, and tell whether it ends without any more."""
    clock = b.clock
    assert isinstance(clock, WatchedClock)

    def begin() -> None:
        clock.reader = threading.current_thread()
        try:
            order()
        finally:
            clock.was_read.set()

    call = Call(begin)
    clock.was_read.wait(FAR_S)
    b.clock.now += seconds + 1.0
    until = time.monotonic() + FAR_S
    while call.is_alive() and time.monotonic() < until:
        with suppress(LifecycleError):
            b.manager.reap()
        call.join(0.005)
    if call.is_alive():
        return False
    error = call.error()
    assert error is None or isinstance(error, LifecycleError), error
    return True


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_order_ends_by_its_own_time_whatever_loaders_do(data: st.DataObject) -> None:
    """L4: never later than its time and a second, though loads and closes hang or raise, and others wait or drain."""
    order, seconds = data.draw(st.sampled_from(sorted(ORDERS))), data.draw(st.sampled_from(SECONDS))
    b = Bench(2, max_parallel_loads=data.draw(st.integers(1, 2)))
    b.clock = b.manager.clock = b.manager._keeper._clock = WatchedClock()
    config = ModelConfig(load_timeout_s=1e9)
    for name in "AB":
        b.add(name, config=config)
    for step in data.draw(st.sets(st.sampled_from(STEPS), max_size=3)):
        b.loader.hold(*step)
    for step, kind in data.draw(st.dictionaries(st.sampled_from(STEPS), st.sampled_from(ERRORS), max_size=3)).items():
        b.loader.faults[step] = [kind("no")]
    drain_first = data.draw(st.booleans())
    try:
        for what in data.draw(st.lists(st.sampled_from(sorted(BEFORE)), max_size=4)):
            with suppress(LifecycleError):
                BEFORE[what](b)
        b.manager.reap()
        assert ends_in_time(b, lambda: ORDERS[order](b, seconds, drain_first), seconds)
    finally:
        for gate in b.loader.gates.values():
            gate.opened.set()
        with suppress(LifecycleError):
            b.manager.close(timeout_s=0.0)


def test_replace_ends_by_its_own_time_when_an_estimate_hangs() -> None:
    """L4: what a loader is asked before its load may hang as well; the name means what it meant."""
    b = Bench(2)
    b.add("A")
    gate = b.loader.hold("X", "estimate")
    with pytest.raises(LeaseTimeout, match="estimate"):
        b.manager.replace(A, FakeSpec("X", 1, 1), timeout_s=0.0)
    gate.opened.set()
    assert b.manager.key_of(A).digest == "A"
    b.finish()


@pytest.mark.parametrize("error", ERRORS)
def test_replace_fails_when_an_estimate_raises(error: type[BaseException]) -> None:
    """L8: whatever it is, an error of the loader's is told as one, and doesn't end the caller."""
    b = Bench(2)
    b.add("A")
    b.loader.faults["X", "estimate"] = [error("no")]
    with pytest.raises(LoadFailed, match=error.__name__):
        b.manager.replace(A, FakeSpec("X", 1, 1))
    assert b.manager.key_of(A).digest == "A"
    b.finish()


def test_close_returns_in_time_when_a_hook_hangs() -> None:
    """L4: a hook is waited for no longer than `close` was given."""
    b = Bench(1)
    b.add("A")
    stuck, go_on = threading.Event(), threading.Event()

    def hook(_event: Any) -> None:
        stuck.set()
        go_on.wait()

    b.manager.subscribe(hook)
    b.use("A")
    stuck.wait()
    b.manager.close(timeout_s=0.0)
    go_on.set()
    b.finish()
