"""Under pressure: who is refused at once, and in which order loads begin."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from lifecycle_fakes import Call

from lifecycle import LeaseTimeout, LoadTooSlow, ModelRef, QueueFull

if TYPE_CHECKING:
    from collections.abc import Callable

    from lifecycle_fakes import Bench

    MakeBench = Callable[..., Bench]


def load_slowly(b: Bench, name: str, seconds: float) -> None:
    """Load a model for so many seconds of the fake clock."""
    gate = b.loader.hold(name)
    call = b.later(name)
    gate.reached.wait()
    b.clock.now += seconds
    gate.opened.set()
    call.result()


def loaded(b: Bench) -> list[str]:
    """Return the models in the order in which their loads began."""
    return [step[-1] for step in b.loader.order if step.startswith("load ")]


def test_newcomer_is_refused_when_the_queue_is_full(bench: MakeBench) -> None:
    """One caller more than max_waiters is told at once when to come back; a hit and an impatient caller are not."""
    b = bench(3, max_waiters=2)
    for name in "ABCD":
        b.add(name)
    b.use("D")
    load_slowly(b, "A", 8.0)
    b.manager.unload(ModelRef("t", "A"))
    del b.loader.gates["A", "load"]
    gate = b.loader.hold("A")
    waiters = [b.later("A"), b.later("A")]
    gate.reached.wait()
    b.waiting(2)
    b.clock.now += 3.0
    with pytest.raises(QueueFull, match=r"2 callers wait already: ask again in 5\.0 s") as caught:
        b.use("B")
    assert caught.value.retry_after_s == 5.0
    b.use("D")
    with pytest.raises(LeaseTimeout):
        b.use("A", 0.0)
    gate.opened.set()
    for waiter in waiters:
        waiter.result()
    b.use("B")


def test_caller_is_refused_at_once_when_its_model_never_loaded_so_fast(bench: MakeBench) -> None:
    """A deadline shorter than the fastest load so far is hopeless; the load goes on, and the next caller finds it."""
    b = bench(1)
    b.add("A")
    b.add("B")
    load_slowly(b, "A", 10.0)
    for _ in range(2):
        b.use("B")
        b.clock.now += 1.0
    with pytest.raises(LoadTooSlow, match=r"takes 10\.0 s to load, longer than timeout_s \(5\)") as caught:
        b.use("A", 5.0)
    assert caught.value.retry_after_s == 10.0
    b.until(lambda state: any(g.is_open and g.key.digest == "A" for g in state.generations.values()))
    b.use("A", 0.0)


def test_remaining_time_counts_when_the_load_has_begun(bench: MakeBench) -> None:
    """Who joins a load late needs only the patience for the rest of it."""
    b = bench(1)
    b.add("A")
    load_slowly(b, "A", 10.0)
    b.manager.unload(ModelRef("t", "A"))
    del b.loader.gates["A", "load"]
    gate = b.loader.hold("A")
    first = b.later("A")
    gate.reached.wait()
    b.clock.now += 7.0
    second = b.later("A", 4.0)
    b.waiting(2)
    with pytest.raises(LoadTooSlow):
        b.use("A", 2.0)
    gate.opened.set()
    first.result()
    second.result()


def test_prefetched_load_is_raised_when_a_caller_joins(bench: MakeBench) -> None:
    """Loads that somebody waits for begin before the others; one that is joined overtakes one that is not."""
    b = bench(5, max_parallel_loads=1)
    for name in "ABCD":
        b.add(name)
    gate = b.loader.hold("A")
    calls = [b.later("A")]
    gate.reached.wait()
    b.manager.prefetch([ModelRef("t", "B"), ModelRef("t", "C")])
    calls.append(b.later("C"))
    b.waiting(2)
    calls.append(b.later("D"))
    b.waiting(3)
    gate.opened.set()
    for call in calls:
        call.result()
    b.use("B")
    assert loaded(b) == ["A", "C", "D", "B"]


def test_prefetched_load_is_not_starved_when_callers_keep_coming(bench: MakeBench) -> None:
    """After ageing_s a load that nobody waits for ranks with the others, in their order."""
    b = bench(5, max_parallel_loads=1, ageing_s=30.0)
    for name in "ABC":
        b.add(name)
    gate = b.loader.hold("A")
    first = Call(lambda: b.use("A", 100.0))
    gate.reached.wait()
    b.manager.prefetch([ModelRef("t", "B")])
    second = Call(lambda: b.use("C", 100.0))
    b.waiting(2)
    b.clock.now += 31.0
    gate.opened.set()
    first.result()
    second.result()
    assert loaded(b) == ["A", "B", "C"]
