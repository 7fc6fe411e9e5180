"""LIFECYCLE's cases, each with its number: unloading, expiry, and what comes after."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from lifecycle_fakes import COLD, Call

from lifecycle import (
    ModelConfig,
    ModelManager,
    ModelRef,
    UnloadTimeout,
)
from lifecycle.heart.states import Phase

if TYPE_CHECKING:
    from collections.abc import Callable

    from lifecycle_fakes import Bench

    MakeBench = Callable[..., Bench]


def test_late_unload_leaves_the_next_generation_alone(bench: MakeBench) -> None:
    """L4: a close that returns after the next generation has loaded takes nothing from it."""
    b = bench(2)
    b.add("A")
    gate = b.loader.hold("A", "close")
    b.use("A")
    unload = Call(lambda: b.manager.unload(ModelRef("t", "A")))
    gate.reached.wait()
    b.use("A")
    assert b.state.charged_nbytes == 2
    gate.opened.set()
    unload.result()
    assert b.state.charged_nbytes == 1
    again = b.lease("A", 0.0)
    with again as model:
        assert (again.cold, model.closed) == (False, False)
    assert b.loads("A") == 2


def test_request_loads_a_new_generation_when_the_model_is_unloading(bench: MakeBench) -> None:
    """L7: a request while the same model unloads gets one new generation, and both are accounted."""
    b = bench(1)
    b.add("A")
    gate = b.loader.hold("A", "close")
    b.use("A")
    unload = Call(lambda: b.manager.unload(ModelRef("t", "A")))
    gate.reached.wait()
    again = b.later("A")
    b.waiting(1)
    assert b.loads("A") == 1, "the old bytes are not free yet"
    gate.opened.set()
    unload.result()
    again.result()
    assert b.loads("A") == 2
    assert b.state.charged_nbytes == 1


def test_state_is_unchanged_when_an_unload_is_refused(bench: MakeBench) -> None:
    """L13: an unload without patience of a model in use is refused, and the model serves on."""
    b = bench(1)
    b.add("A")
    with b.lease("A"):
        before = b.state.generations
        with pytest.raises(UnloadTimeout, match="in use"):
            b.manager.unload(ModelRef("t", "A"), drain_timeout_s=0.0)
        assert b.state.generations == before
        b.use("A")
    b.manager.unload(ModelRef("t", "A"), drain_timeout_s=0.0)
    assert b.state.charged_nbytes == 0


def test_expiry_waits_when_a_lease_is_open(bench: MakeBench) -> None:
    """L25: an expiry due during use can't fire, and while the model drains its bytes stay counted."""
    b = bench(1)
    b.add("A", config=ModelConfig(warm_up=False, ttl_s=5.0))
    gate = b.loader.hold("A", "close")
    with b.lease("A"):
        b.pass_time(100.0)
        assert b.phase("A") == "ready"
        b.pass_time(100.0)
    b.pass_time(4.9)
    assert b.phase("A") == "ready"
    b.pass_time(0.1)
    gate.reached.wait()
    assert b.phase("A") == "unloading"
    assert b.state.charged_nbytes == 1
    gate.opened.set()
    b.until(lambda state: not state.generations)
    assert b.manager.snapshot().counters.expirations == 1


def test_ttl_counts_from_the_last_release_when_a_request_is_long(bench: MakeBench) -> None:
    """L36: a request longer than the TTL is not the model's idle time."""
    b = bench(1)
    b.add("A", config=ModelConfig(warm_up=False, ttl_s=5.0))
    with b.lease("A"):
        b.pass_time(60.0)
    b.pass_time(4.0)
    b.use("A")
    b.pass_time(4.0)
    assert b.loads("A") == 1
    b.pass_time(1.0)
    b.until(lambda state: not state.generations)


def test_model_leaves_with_its_last_lease_when_the_ttl_is_zero(bench: MakeBench) -> None:
    """L38: with a TTL of 0 the model is gone after the last of its leases, without the clock moving."""
    b = bench(1)
    b.add("A", config=ModelConfig(warm_up=False, ttl_s=0.0))
    with b.lease("A"):
        b.use("A")
        b.manager.reap()
        assert b.phase("A") == "ready"
    b.until(lambda state: not state.generations)
    assert b.loads("A") == 1


@pytest.mark.parametrize("jump", [86_400.0, -86_400.0])
def test_nothing_happens_when_the_wall_clock_jumps(
    bench: MakeBench, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    """L39: a day's jump of the wall clock, either way, expires nothing; time read here never runs backwards."""
    with ModelManager(1) as manager:
        assert manager.clock is time.monotonic
    b = bench(1)
    b.add("A", config=ModelConfig(warm_up=False, ttl_s=60.0))
    b.use("A")
    wall = time.time()
    monkeypatch.setattr(time, "time", lambda: wall + jump)
    b.manager.reap()
    assert b.phase("A") == "ready"
    b.pass_time(-10.0)
    assert b.phase("A") == "ready"


def test_quarantined_when_an_unload_passes_its_deadline(bench: MakeBench) -> None:
    """L48, U4: a close that hangs, for a call that never ends too, is named with the way out; its bytes free late."""
    b = bench(2, unload_timeout_s=5.0)
    b.add("A")
    gate = b.loader.hold("A", "close")
    b.use("A")
    unload = Call(lambda: b.manager.unload(ModelRef("t", "A")))
    gate.reached.wait()
    b.pass_time(5.0)
    assert isinstance(error := unload.error(), UnloadTimeout)
    assert "'t/A'" in str(error)
    assert "goes only with its process: unregister the model, then restart that" in str(error)
    assert [(model.refs, model.state) for model in b.manager.snapshot().models] == [
        ((ModelRef("t", "A"),), "quarantined")
    ]
    assert b.manager.snapshot().quarantined_nbytes == 1
    b.use("A")
    assert b.state.charged_nbytes == 2
    gate.opened.set()
    b.until(lambda state: len(state.generations) == 1)
    assert b.manager.snapshot().quarantined_nbytes == 0


def test_phases_are_told_when_a_model_goes_its_way(bench: MakeBench) -> None:
    """A model's status follows it through registered, queued, loading, warming, ready, draining and unloading."""
    b = bench(1)
    b.add("A", config=ModelConfig())
    b.add("B", config=COLD)
    load, warm, close = b.loader.hold("A"), b.loader.hold("A", "warm_up"), b.loader.hold("A", "close")
    seen = [b.phase("A")]
    with b.lease("B"):
        waiter = b.later("A")
        b.waiting(1)
        seen.append(b.phase("A"))
    load.reached.wait()
    seen.append(b.phase("A"))
    load.opened.set()
    warm.reached.wait()
    seen.append(b.phase("A"))
    warm.opened.set()
    waiter.result()
    seen.append(b.phase("A"))
    with b.lease("A"):
        unload = Call(lambda: b.manager.unload(ModelRef("t", "A")))
        b.until(lambda state: any(g.phase is Phase.DRAINING for g in state.generations.values()))
        seen.append(b.phase("A"))
    close.reached.wait()
    seen.append(b.phase("A"))
    close.opened.set()
    unload.result()
    assert seen == ["registered", "queued", "loading", "warming", "ready", "draining", "unloading"]
