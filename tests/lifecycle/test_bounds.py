"""Every number is bounded, and no wait trusts another thread to live."""

from __future__ import annotations

import math
import sys
import threading
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from lifecycle_fakes import Bench, Call, FakeLoader, FakeModel, FakeSpec

from backends.errors import InvalidInput
from backends.running.deadline import Deadline
from backends.running.overtime import Overtime
from lifecycle import LoadFailed, LoadPolicy, ModelConfig, ModelManager, ModelRef
from lifecycle.config import MOST
from lifecycle.errors import KeeperSilent, LeaseTimeout
from lifecycle.keeping import keeper as keeper_module
from lifecycle.keeping import mailbox as mailbox_module
from lifecycle.leasing import waiting
from lifecycle.watchdog import Watchdog

if TYPE_CHECKING:
    from collections.abc import Callable

    MakeBench = Callable[..., Bench]

A, B = ModelRef("t", "A"), ModelRef("t", "B")
FAR = [1e10, 9.3e9, 1e300, sys.float_info.max, 10**19, 10**400, Fraction(10**400, 3), np.float32(3e38)]
NONSENSE = [math.nan, -1.0, -1e300, -(10**400), "1", None, True]
LIMITS = ("unload_timeout_s", "backoff_cap_s", "ageing_s")
CONFIGS = ("ttl_s", "min_residency_s", "load_timeout_s")
CALLS: dict[str, Callable[[ModelManager, Any], object]] = {
    "lease": lambda manager, far: manager.lease(A, far).__enter__(),
    "lease_set": lambda manager, far: manager.lease_set([A, B], far).__enter__(),
    "lease ttl_s": lambda manager, far: manager.lease(A, ttl_s=far).__enter__(),
    "unload": lambda manager, far: manager.unload(A, drain_timeout_s=far),
    "unregister": lambda manager, far: manager.unregister(A, drain_timeout_s=far),
    "replace": lambda manager, far: manager.replace(A, FakeSpec("X", 1, 1), timeout_s=far),
    "watchdog": lambda manager, far: Watchdog(manager, stall_s=far).__enter__().__exit__(None, None, None),
    "close": lambda manager, far: manager.close(timeout_s=far),
}


def managed(config: ModelConfig | None = None, **limits: Any) -> ModelManager:
    """Return a manager of two models by the real clock, since it is timers that are tried."""
    manager = ModelManager(4, resident=lambda: None, **limits)
    loader = FakeLoader()
    for ref in (A, B):
        manager.register(ref, FakeSpec(ref.name, 1, 1), loader, config)
    return manager


def is_served(manager: ModelManager) -> bool:
    """Tell whether cold leases are still given after the keeper has slept once more."""
    manager.reap()
    for ref in (A, B):
        manager.unload(ref)
        with manager.lease(ref, 20.0):
            pass
    return True


@pytest.mark.parametrize("far", FAR, ids=lambda far: type(far).__name__)
@pytest.mark.parametrize("name", [*LIMITS, *CONFIGS])
def test_manager_serves_when_a_setting_is_further_than_timers_go(name: str, far: Any) -> None:
    """L1: a time beyond 2^63 ns, of whatever kind of number, harms no later lease and not the end."""
    config = ModelConfig(**{name: far}) if name in CONFIGS else None
    manager = managed(config, **({name: far} if name in LIMITS else {}))
    with manager.lease(A):
        pass
    assert is_served(manager)
    manager.close()


@pytest.mark.parametrize("far", FAR, ids=lambda far: type(far).__name__)
@pytest.mark.parametrize("name", CALLS)
def test_manager_serves_when_an_argument_is_further_than_timers_go(name: str, far: Any) -> None:
    """L1: so does a time that is given with a call."""
    manager = managed()
    with manager.lease(A):
        pass
    if name == "unregister":
        manager.register(ModelRef("t", "C"), FakeSpec("A", 1, 1), FakeLoader())
    CALLS[name](manager, far)
    if name == "unregister":
        manager.register(A, FakeSpec("A", 1, 1), FakeLoader())
    if name != "close":
        assert is_served(manager)
    manager.close()


def give(name: str, manager: ModelManager, seconds: Any) -> None:
    """Give seconds to a call, to a config or to a new manager."""
    if name in CALLS:
        CALLS[name](manager, seconds)
    elif name in CONFIGS:
        ModelConfig(**{name: seconds})
    else:
        ModelManager(1, **{name: seconds})


@pytest.mark.parametrize("nonsense", NONSENSE, ids=str)
@pytest.mark.parametrize("name", [*CALLS, *LIMITS, *CONFIGS, "backoff_s"])
def test_times_are_refused_when_they_are_none(name: str, nonsense: Any) -> None:
    """L1: NaN, what is negative, and what is no number are refused by every argument, with its name."""
    if nonsense is None and name in {"ttl_s", "lease ttl_s"}:
        pytest.skip("None is never, or the config's")
    with managed() as manager, pytest.raises(InvalidInput, match="seconds"):
        give(name, manager, nonsense)


def test_sizes_are_refused_when_no_memory_is_so_large(bench: MakeBench) -> None:
    """L1: a size of more than 63 bits is refused where it comes from: a setting, an estimate, or a measurement."""
    b = bench(MOST)
    for size in (MOST + 1, 10**400, 10**5000):
        with pytest.raises(InvalidInput, match="bits"):
            b.manager.set_budget(size)
        with pytest.raises(InvalidInput, match="bits"):
            b.manager.set_tenant("t", guaranteed_nbytes=size)
        with pytest.raises(InvalidInput, match="more than"):
            b.add("A", size)
    b.add("A", 1, measured=10**400)
    with pytest.raises(LoadFailed, match="more than"):
        b.use("A")
    b.add("B", np.int64(5))  # type: ignore[arg-type]  # as a loader may tell it
    b.use("B")


def test_caller_leaves_when_the_deadline_is_further_than_timers_go() -> None:
    """L1: a `Deadline` of 1e300 s is no more than a timer takes, wherever it is waited for."""
    overtime = Overtime(most=1)
    assert overtime.run(lambda: 7, Deadline.after(1e300)) == 7
    overtime.close()
    assert Deadline.after(1e300).left_s <= threading.TIMEOUT_MAX


def test_keeper_serves_when_it_can_not_tell_when_to_wake(bench: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """L1: nothing but the end leaves the keeper's loop, not even its own defects and a log that raises."""

    def broken(*_: object, **__: object) -> None:
        raise SystemExit

    b = bench(2)
    b.add("A")
    b.add("B")
    monkeypatch.setattr(mailbox_module._log, "exception", broken)
    monkeypatch.setattr(b.manager._keeper, "pause_s", broken)
    b.use("A")
    b.manager._keeper.send(broken)
    b.use("B")
    assert b.manager._keeper._thread is not None
    assert b.manager._keeper._thread.is_alive()


def test_step_ends_when_times_are_too_short_to_be_told_apart(bench: MakeBench) -> None:
    """L1: a load that is late as it begins, and may be tried again at once, is not tried for ever within one step."""
    b = bench(1, backoff_s=5e-324, backoff_cap_s=5e-324, unload_timeout_s=5e-324)
    gate = b.loader.hold("A")
    b.add("A", config=ModelConfig(load_policy=LoadPolicy.EAGER, load_timeout_s=5e-324, warm_up=False))
    b.manager.reap()
    assert b.loads("A") <= 1
    gate.opened.set()


def kill(bench: Bench) -> None:
    """End the keeper's thread, as no defect may; a letter that comes later stays unread."""
    keeper = bench.manager._keeper
    thread = keeper._thread
    assert thread is not None
    ends = keeper._ends

    def end_once() -> bool:
        keeper._ends = ends  # type: ignore[method-assign]  # put back by itself
        return True

    keeper._ends = end_once  # type: ignore[method-assign]  # once
    keeper.send(keeper.tick)
    thread.join()


@pytest.fixture
def short_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let whoever waits look often."""
    for module in (keeper_module, mailbox_module, waiting):
        monkeypatch.setattr(module, "LOOK_S", 0.01)


@pytest.mark.usefixtures("short_looks")
def test_waiter_is_served_when_the_keeper_dies_meanwhile(bench: MakeBench) -> None:
    """L1: a wait never trusts another thread to live: the waiter notices, and has another one started."""
    b = bench(1)
    b.add("A")
    gate = b.loader.hold("A")
    waiter = b.later("A")
    gate.reached.wait()
    b.waiting(1)
    kill(b)
    gate.opened.set()
    waiter.result()


@pytest.mark.usefixtures("short_looks")
def test_unload_returns_when_the_keeper_dies_meanwhile(bench: MakeBench) -> None:
    """L1: so does an unload, whose letter may be lost with the thread."""
    b = bench(1)
    b.add("A")
    b.use("A")
    gate = b.loader.hold("A", "close")
    unload = Call(lambda: b.manager.unload(A))
    gate.reached.wait()
    kill(b)
    gate.opened.set()
    unload.result()


@pytest.mark.usefixtures("short_looks")
def test_caller_is_told_when_the_keeper_dies_over_its_letter(bench: MakeBench) -> None:
    """L1: a call whose letter was lost raises, since nobody knows what came of it; the next one is answered."""
    b = bench(1)
    b.manager.reap()
    keeper = b.manager._keeper
    take = keeper._next

    def lose_one() -> Callable[[], object]:
        take()
        keeper._next = take  # type: ignore[method-assign]  # put back by itself
        raise SystemExit

    keeper._next = lose_one  # type: ignore[method-assign]  # once
    keeper.send(keeper.tick)  # it waits in the old one
    with pytest.raises(KeeperSilent, match="ask again"):
        b.manager.reap()
    b.manager.reap()


@pytest.mark.usefixtures("short_looks")
def test_waiter_leaves_when_the_keeper_hangs(bench: MakeBench) -> None:
    """L1: once its time is up, a caller goes without an answer from a keeper that is held by foreign code."""
    b = bench(1)
    b.add("A")
    stuck, go_on = threading.Event(), threading.Event()
    hanging = Call(lambda: b.manager._keeper.call(lambda: (stuck.set(), go_on.wait())))
    stuck.wait()
    waiter = b.later("A", 5.0)
    b.clock.now += 6.0
    error = waiter.error()
    with pytest.raises(KeeperSilent, match="has not answered"):
        b.manager._keeper.call(lambda: None, 0.0)
    go_on.set()
    hanging.result()
    assert isinstance(error, LeaseTimeout)
    assert error.waited_for == "answer"
    b.use("A")


class Touchy(FakeModel):
    """A model whose `warm_up` can't even be looked at."""

    @property
    def warm_up(self) -> None:  # type: ignore[override]  # as a descriptor of a foreign model may be
        """Raise what no `except Exception` catches."""
        raise KeyboardInterrupt


def test_effects_are_carried_out_when_a_descriptor_raises(bench: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """L8: a `warm_up` property that raises fails its own load, on its worker, and costs nobody else an answer."""
    b = bench(2)
    b.add("A", config=ModelConfig())
    b.add("B")
    monkeypatch.setattr(
        b.loader, "load_model", lambda spec: b.loader.resident.update([spec.digest]) or Touchy(b.loader, spec)
    )
    with pytest.raises(LoadFailed, match="KeyboardInterrupt"):
        b.use("A")
    assert b.loader.done["A", "close"] == 1
    b.until(lambda state: not state.generations)
    assert b.manager.snapshot().counters.load_failures == 1


def test_other_effects_are_carried_out_when_one_can_not_be(bench: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """L8: of all that follows from a step, nothing is cut short by what one part meets; a start that failed is told."""
    b = bench(2)
    b.add("A")
    b.add("B")
    keeper = b.manager._keeper
    start = keeper._start

    def fail_once(*_: object) -> None:
        monkeypatch.setattr(keeper, "_start", start)
        raise GeneratorExit

    monkeypatch.setattr(keeper, "_start", fail_once)
    with pytest.raises(LoadFailed, match="GeneratorExit"):
        b.use_all("AB")
    b.use("B")
    b.pass_time(1.0)
    b.use("A")


def test_load_ends_when_the_resident_memory_can_not_be_read(bench: MakeBench) -> None:
    """L8: the reading of memory is foreign code too, and what it raises keeps no job's end from being told."""

    def broken() -> int:
        raise SystemExit

    b = bench(1, resident=broken)
    b.add("A")
    b.use("A")
