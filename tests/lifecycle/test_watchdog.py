"""The watchdog: it reports what stands still, names who waits and who holds, and is quiet about all else."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

import pytest
from lifecycle_fakes import Call, FakeLoader, FakeSpec

from backends.errors import InvalidInput
from lifecycle import LeaseTimeout, ModelManager, ModelRef
from lifecycle.events import Event, Stalled
from lifecycle.watchdog import Stall, Watchdog

if TYPE_CHECKING:
    from collections.abc import Callable

    from lifecycle_fakes import Bench

    MakeBench = Callable[..., Bench]


def check_after(b: Bench, watchdog: Watchdog, seconds: float) -> Stall | None:
    """Let the clock run and the keeper answer, then check."""
    b.clock.now += seconds
    stall = watchdog.check()
    b.manager.reap()  # after the check's ping: it has been answered when this returns
    return stall


def test_stall_is_reported_when_somebody_waits_and_nothing_moves(
    bench: MakeBench, caplog: pytest.LogCaptureFixture
) -> None:
    """60 s without a move while somebody waits: who waits, for what, and who holds it is told, once."""
    b = bench(1)
    told: list[Stall] = []
    heard: list[Event] = []
    b.manager.subscribe(heard.append)
    watchdog = Watchdog(b.manager, stall_s=60.0, report=told.append)
    b.add("A")
    b.add("B")
    with b.lease("A"):
        waiting = b.later("B", timeout_s=1000.0)
        b.waiting(1)
        assert check_after(b, watchdog, 0.0) is None
        assert check_after(b, watchdog, 59.0) is None
        stall = check_after(b, watchdog, 1.0)
        assert stall is not None
        assert [(w.names, w.waited_s, w.left_s, w.waits_for) for w in stall.waiters] == [("'t/B'", 60.0, 940.0, "room")]
        assert [(holder.name, holder.state, holder.leases) for holder in stall.holders] == [("'t/A'", "ready", 1)]
        assert not stall.keeper_is_silent
        assert check_after(b, watchdog, 30.0) is not None
    waiting.result()
    assert check_after(b, watchdog, 100.0) is None
    assert told == [stall]
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.message == (
        "no lifecycle progress for 60 s: 't/B' waited for 60 s for room; held by 't/A' 1 B (ready, 1 leases)"
    )
    assert vars(record)["waiters"] == stall.waiters
    b.manager.close()
    assert [event.stall for event in heard if isinstance(event, Stalled)] == [stall]


def test_stall_is_seen_when_each_caller_gives_up_before_it_is_long(bench: MakeBench) -> None:
    """Callers who wait 40 s in vain, one after the other, are a stall of 60 s, though none of them waits so long."""
    b = bench(1)
    watchdog = Watchdog(b.manager, stall_s=60.0)
    b.add("A")
    b.add("B")
    with b.lease("A"):
        first = b.later("B", timeout_s=40.0)
        b.waiting(1)
        assert check_after(b, watchdog, 0.0) is None
        assert check_after(b, watchdog, 39.0) is None
        second = b.later("B", timeout_s=40.0)
        b.waiting(2)
        b.pass_time(1.0)
        assert isinstance(first.error(), LeaseTimeout)
        assert check_after(b, watchdog, 20.0) is not None
    second.result()


def test_nothing_is_reported_when_others_are_served(bench: MakeBench) -> None:
    """While loads end, or leases are given to those who waited, a long wait is no stall."""
    b = bench(4)
    watchdog = Watchdog(b.manager, stall_s=60.0)
    b.add("A", 2)
    b.add("B", 3)
    b.add("C", 1)
    with b.lease("A"):
        waiting = b.later("B", timeout_s=1000.0)
        b.waiting(1)
        assert check_after(b, watchdog, 50.0) is None
        b.use("C")
        assert check_after(b, watchdog, 50.0) is None
        b.manager.unload(ModelRef("t", "C"))
        assert check_after(b, watchdog, 50.0) is None
        assert check_after(b, watchdog, 60.0) is not None
        b.use("C")
        assert check_after(b, watchdog, 1.0) is None
        assert check_after(b, watchdog, 60.0) is not None
    waiting.result()


def test_nothing_is_reported_when_nobody_waits(bench: MakeBench) -> None:
    """A manager that has stood still for a day, and then is asked, is not stalled: the wait counts, not the rest."""
    b = bench(1)
    watchdog = Watchdog(b.manager, stall_s=60.0)
    b.add("A")
    b.use("A")
    for _ in range(3):
        assert check_after(b, watchdog, 86_400.0) is None
    b.manager.unload(ModelRef("t", "A"))
    gate = b.loader.hold("A")
    caller = b.later("A", timeout_s=1000.0)
    gate.reached.wait()
    assert check_after(b, watchdog, 59.0) is None
    stall = check_after(b, watchdog, 60.0)
    assert stall is not None
    assert stall.waiters[0].waits_for == "load"
    gate.opened.set()
    caller.result()


def test_silent_keeper_is_reported_when_it_hangs(bench: MakeBench) -> None:
    """A keeper stuck in foreign code can't tell of waiters, but that it doesn't answer is told."""
    b = bench(1)
    b.add("A")
    b.use("A")
    watchdog = Watchdog(b.manager, stall_s=60.0)
    stuck, go_on = threading.Event(), threading.Event()
    hanging = Call(lambda: b.manager._keeper.call(lambda: (stuck.set(), go_on.wait())))
    stuck.wait()
    assert watchdog.check() is None
    b.clock.now += 60.0
    stall = watchdog.check()
    assert stall is not None
    assert stall.keeper_is_silent
    assert "has not answered for 60 s; held by 't/A'" in str(stall)
    go_on.set()
    hanging.result()
    assert check_after(b, watchdog, 0.0) is None


def test_watchdog_checks_by_itself_when_it_is_entered() -> None:
    """As a context manager, entered again as well, it reports on a thread of its own, whatever its callback raises."""
    loader = FakeLoader()
    gate = loader.hold("A")
    told = threading.Event()

    def report(_: Stall) -> None:
        told.set()
        raise ZeroDivisionError

    with ModelManager(1) as manager:
        manager.register(ModelRef("t", "A"), FakeSpec("A", 1, 1), loader)
        watchdog = Watchdog(manager, stall_s=0.01, report=report)
        with watchdog:
            caller = Call(lambda: lease_once(manager))
            assert told.wait(600.0)
            gate.opened.set()
            caller.result()
        told.clear()
        gate.opened.clear()
        manager.unload(ModelRef("t", "A"))
        with watchdog:
            caller = Call(lambda: lease_once(manager))
            assert told.wait(600.0)
            gate.opened.set()
            caller.result()


def lease_once(manager: ModelManager) -> None:
    """Take and return a lease."""
    with manager.lease(ModelRef("t", "A")):
        pass


def test_watchdog_is_refused_when_its_time_makes_no_sense(bench: MakeBench) -> None:
    """The time after which a stall is one must be positive."""
    with pytest.raises(InvalidInput, match="stall_s is 0"):
        Watchdog(bench(1).manager, stall_s=0)
