"""Who is protected from whom, for how long, and what counts as use: the cases of hostile readers, one by one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from lifecycle_fakes import COLD, Call, FakeSpec

from lifecycle import (
    BudgetExhausted,
    LoadFailed,
    LoadPolicy,
    LoadTooSlow,
    ModelConfig,
    ModelRef,
    QueueFull,
    UnloadTimeout,
    aio,
)
from lifecycle.leasing.hold import Hold

if TYPE_CHECKING:
    from collections.abc import Callable

    from lifecycle_fakes import Bench

    from lifecycle.config import ModelConfig as Config

    MakeBench = Callable[..., Bench]

EAGER = ModelConfig(load_policy=LoadPolicy.EAGER, warm_up=False)


def ref(name: str) -> ModelRef:
    """Return a model's name."""
    return ModelRef("t", name)


def load_slowly(b: Bench, name: str, seconds: float) -> None:
    """Load a model for so many seconds of the fake clock, and unload it again."""
    gate = b.loader.hold(name)
    call = b.later(name)
    gate.reached.wait()
    b.clock.now += seconds
    gate.opened.set()
    call.result()
    b.manager.unload(ref(name))
    del b.loader.gates[name, "load"]


def settle(b: Bench) -> str:
    """Return the letters of what is loaded, once nothing moves."""
    b.manager.reap()
    b.until(lambda state: all(g.job is None for g in state.generations.values()))
    return "".join(sorted(g.key.digest for g in b.state.generations.values() if g.is_open))


# L2: a protection ages.


@pytest.mark.parametrize("limits", [{}, {"ageing_s": 1e300}, {"ageing_s": 5.0}])
def test_impatient_callers_are_served_when_a_load_that_nobody_used_ages(
    bench: MakeBench, limits: dict[str, float]
) -> None:
    """L2: callers with less patience than a load takes are not kept out for ever by a model that nobody uses."""
    b = bench(1, **limits)
    b.add("A")
    b.add("B")
    load_slowly(b, "B", 10.0)
    b.manager.prefetch([ref("A")])
    assert settle(b) == "A"
    with pytest.raises(LoadTooSlow):
        b.use("B", 1.0)
    assert settle(b) == "A", "it has had no time to be used"
    b.pass_time(61.0)
    with pytest.raises(LoadTooSlow):
        b.use("B", 1.0)
    assert settle(b) == "B"
    b.use("B", 1.0)


def test_impatient_callers_are_served_when_a_young_model_has_had_some_time(bench: MakeBench) -> None:
    """L2: a minimum residency keeps a prefetch out as long as it says, and callers who can't wait for `ageing_s`."""
    b = bench(1, ageing_s=5.0)
    b.add("A", config=ModelConfig(warm_up=False, min_residency_s=1e300))
    b.add("B")
    load_slowly(b, "B", 10.0)
    b.use("A")
    b.clock.now += 1.0
    b.use("A")
    with pytest.raises(LoadTooSlow):
        b.use("B", 1.0)
    assert settle(b) == "A"
    b.pass_time(10.0)
    b.manager.prefetch([ref("B")])
    assert settle(b) == "A"
    with pytest.raises(LoadTooSlow):
        b.use("B", 1.0)
    assert settle(b) == "B"


def test_impatient_callers_are_served_when_an_eager_model_finds_no_free_room(bench: MakeBench) -> None:
    """L2: that it is wished for eagerly, into free room only, doesn't keep its callers' wish from making room."""
    b = bench(1)
    b.add("A")
    b.add("B")
    load_slowly(b, "B", 10.0)
    for _ in range(2):
        b.clock.now += 1.0
        b.use("A")
    assert settle(b) == "A"
    b.manager.register(ref("B"), FakeSpec("B", 1, 1), b.loader, EAGER)
    with pytest.raises(LoadTooSlow):
        b.use("B", 1.0)
    assert settle(b) == "B"


def test_prefetch_is_dropped_when_only_a_young_model_could_leave(bench: MakeBench) -> None:
    """The mutant: a model in its minimum residency that was used is none that a prefetch drives out."""
    b = bench(1)
    b.add("A", config=ModelConfig(warm_up=False, min_residency_s=10.0))
    b.add("B")
    b.use("A")
    b.clock.now += 1.0
    b.use("A")
    b.manager.prefetch([ref("B")])
    assert settle(b) == "A"
    assert not b.state.wishes
    b.pass_time(10.0)
    b.manager.prefetch([ref("B")])
    assert settle(b) == "B"


# L3: a reservation has the priority of its wish.


@pytest.mark.parametrize("config", [COLD, EAGER, ModelConfig(load_policy=LoadPolicy.EAGER, pinned=True, warm_up=False)])
def test_caller_has_the_room_when_it_is_only_reserved_for_what_nobody_waits_for(
    bench: MakeBench, config: Config
) -> None:
    """L3: prefetches and eager loads that have not begun give way to a caller; an eager one comes back by itself."""
    b = bench(3, max_parallel_loads=1)
    for name in "AC":
        b.add(name)
    gate = b.loader.hold("A")
    first = b.later("A")
    gate.reached.wait()
    b.add("B", 2, config=config)
    if config is COLD:
        b.manager.prefetch([ref("B")])
    b.until(lambda state: state.charged_nbytes == 3)
    second = b.later("C")
    b.waiting(2)
    assert b.phase("C") == "reserved"
    assert b.loads("B") == 0
    gate.opened.set()
    first.result()
    second.result()
    b.manager.unload(ref("A"))
    b.manager.unload(ref("C"))
    assert settle(b) == ("" if config is COLD else "B")


def test_reservation_stays_when_the_room_would_not_be_enough(bench: MakeBench) -> None:
    """L3: nobody gives way for a caller who is refused all the same."""
    b = bench(3, max_parallel_loads=1)
    b.add("A")
    b.add("B", 2)
    b.add("C", 4)
    gate = b.loader.hold("A")
    first = b.later("A")
    gate.reached.wait()
    b.manager.prefetch([ref("B")])
    with pytest.raises(BudgetExhausted):
        b.use("C")
    assert b.phase("B") == "reserved"
    gate.opened.set()
    first.result()
    b.until(lambda state: len([g for g in state.generations.values() if g.is_open]) == 2)


def test_reservation_is_dropped_when_its_model_is_unloaded(bench: MakeBench) -> None:
    """L3: a load that has not begun and that nobody waits for ends with an unload, and needn't be made first."""
    b = bench(2, max_parallel_loads=1)
    b.add("A")
    b.add("B")
    gate = b.loader.hold("A")
    first = b.later("A")
    gate.reached.wait()
    b.manager.prefetch([ref("B")])
    b.manager.unload(ref("B"), drain_timeout_s=0.0)
    assert b.state.charged_nbytes == 1
    gate.opened.set()
    first.result()
    assert b.loads("B") == 0


# L4: every wait ends by its own deadline.


def test_unload_ends_by_its_own_deadline_when_a_load_goes_on(bench: MakeBench) -> None:
    """L4: an unload during a load returns when its own time is up, and says what it waited for; the model leaves."""
    b = bench(1)
    b.add("A")
    gate = b.loader.hold("A")
    waiter = b.later("A", 100.0)
    gate.reached.wait()
    unload = Call(lambda: b.manager.unload(ref("A"), drain_timeout_s=0.3))
    b.until(lambda state: any(g.is_blocking for g in state.generations.values()))
    b.pass_time(1.0)
    error = unload.error()
    assert isinstance(error, UnloadTimeout)
    assert "its load has not returned" in str(error)
    gate.opened.set()
    waiter.result()
    assert settle(b) == ""


@pytest.mark.parametrize("first_s", [2.0, 50.0])
def test_each_unload_has_its_own_time_when_two_overlap(bench: MakeBench, first_s: float) -> None:
    """L4: neither waits for the other's drain, and neither cuts it short."""
    b = bench(1)
    b.add("A")
    with b.lease("A"):
        first = Call(lambda: b.manager.unload(ref("A"), drain_timeout_s=first_s))
        b.until(lambda state: not any(g.is_open for g in state.generations.values()))
        second = Call(lambda: b.manager.unload(ref("A"), drain_timeout_s=1.0))
        while len(b.manager._keeper._watches) < 2:
            b.manager.reap()
        b.pass_time(1.6)
        assert isinstance(second.error(), UnloadTimeout)
        assert first.is_alive()
        assert b.phase("A") == "draining"
    first.result()


def test_unload_ends_by_its_own_deadline_when_close_is_slow(bench: MakeBench) -> None:
    """L4: a `close()` that takes its time goes on by itself; its bytes are free when it returns."""
    b = bench(1)
    b.add("A")
    b.use("A")
    gate = b.loader.hold("A", "close")
    unload = Call(lambda: b.manager.unload(ref("A"), drain_timeout_s=0.0))
    gate.reached.wait()
    while not b.manager._keeper._watches:
        b.manager.reap()
    b.pass_time(0.6)
    error = unload.error()
    assert isinstance(error, UnloadTimeout)
    assert "its unload has not returned" in str(error)
    gate.opened.set()
    assert settle(b) == ""
    assert b.state.charged_nbytes == 0


def test_jobs_end_by_the_deadline_of_close_when_that_is_earlier(bench: MakeBench) -> None:
    """The mutant: a load whose own deadline is far is given up when the time of `close` is over."""
    b = bench(1)
    b.add("A", config=ModelConfig(warm_up=False, load_timeout_s=1e6))
    gate = b.loader.hold("A")
    waiter = b.later("A", 1e6)
    gate.reached.wait()
    close = Call(lambda: b.manager.close(timeout_s=5.0))
    assert waiter.error() is not None
    while not b.manager._keeper._watches:
        b.manager.reap()
    b.pass_time(5.0)
    assert b.manager.snapshot().quarantined_nbytes == 1
    assert isinstance(close.error(), UnloadTimeout)
    gate.opened.set()
    b.until(lambda state: not state.generations)


# L5: who asks counts, not who might.


def of(b: Bench, tenant: str, name: str, digest: str) -> ModelRef:
    """Register a tenant's model, and return its name."""
    made = ModelRef(tenant, name)
    b.manager.register(made, FakeSpec(digest, 1, 1), b.loader, COLD)
    return made


@pytest.mark.parametrize("how", ["lease", "prefetch"])
def test_guarantee_is_kept_when_its_tenant_uses_what_a_stranger_asks_for(bench: MakeBench, how: str) -> None:
    """L5: that a tenant has registered what another asks for makes that load no wish of its own."""
    b = bench(1)
    b.manager.set_tenant("quiet", guaranteed_nbytes=1)
    own, theirs = of(b, "quiet", "A", "A"), of(b, "noisy", "B", "B")
    of(b, "quiet", "B", "B")
    for _ in range(2):
        b.clock.now += 1.0
        with b.manager.lease(own):
            pass
    if how == "prefetch":
        b.manager.prefetch([theirs])
    else:
        with pytest.raises(BudgetExhausted), b.manager.lease(theirs, 5.0):
            pass
    assert settle(b) == "A"
    with b.manager.lease(ModelRef("quiet", "B")):  # but for its own sake its own model goes
        assert settle(b) == "B"


def test_guarantee_covers_own_models_first_when_strangers_load_what_is_shared(bench: MakeBench) -> None:
    """L5: what another has loaded, and a tenant merely registered, doesn't take its own model's place."""
    b = bench(2)
    b.manager.set_tenant("quiet", guaranteed_nbytes=1)
    own, shared, theirs = of(b, "quiet", "A", "A"), of(b, "noisy", "B", "B"), of(b, "noisy", "C", "C")
    of(b, "quiet", "B", "B")
    for asked in (own, shared, theirs):
        b.clock.now += 1.0
        with b.manager.lease(asked):
            pass
    assert settle(b) == "AC"


# L7: only a lease that was given is a use.


def take(b: Bench, refs: list[ModelRef], how: str) -> None:
    """Take a set without patience."""
    if how == "aio":
        asyncio.run(aio.lease_set(b.manager, refs, 0.0).__aenter__())
    else:
        b.manager.lease_set(refs, 0.0).__enter__()


@pytest.mark.parametrize("how", ["lease_set", "aio", "hold"])
def test_model_expires_when_only_refused_sets_have_touched_it(bench: MakeBench, how: str) -> None:
    """L7: a set that is refused renews no time to live, counts as no hit, and leaves no lease open."""
    b = bench(1)
    b.add("A", config=ModelConfig(ttl_s=10.0, warm_up=False))
    b.add("B")
    b.use("A")
    for _ in range(3):
        b.pass_time(3.0)
        refs = [ref("A"), ref("B")]
        if how == "hold":
            with Hold(b.manager, refs, 0.0):
                b.manager.reap()
            continue
        with pytest.raises(BudgetExhausted):
            take(b, refs, how)
    status = b.manager.status(ref("A"))
    assert (status.hits, status.misses, status.leases, status.idle_s) == (0, 1, 0, 9.0)
    b.pass_time(1.0)
    assert settle(b) == ""


def test_hit_is_counted_once_when_a_set_is_given(bench: MakeBench) -> None:
    """L7: a set that is given counts for each of its models."""
    b = bench(2)
    b.add("A")
    b.add("B")
    b.use("A")
    b.use("B")
    b.use_all("AB")
    assert [b.manager.status(ref(name)).hits for name in "AB"] == [1, 1]


# Mutants that no direct test killed.


def test_bytes_are_free_when_a_quarantined_load_fails_at_last(bench: MakeBench) -> None:
    """The mutant: a load that is given up stays charged until it raises, late, and no longer."""
    b = bench(1)
    b.add("A", config=ModelConfig(warm_up=False, load_timeout_s=5.0))
    b.add("B")
    gate = b.loader.hold("A")
    b.loader.faults["A", "load"] = [OSError("late")]
    waiter = b.later("A", 100.0)
    gate.reached.wait()
    b.pass_time(5.0)
    assert isinstance(waiter.error(), LoadFailed)
    assert b.manager.snapshot().quarantined_nbytes == 1
    with pytest.raises(BudgetExhausted):
        b.use("B")
    gate.opened.set()
    b.until(lambda state: not state.generations)
    assert b.state.models[b.manager.key_of(ref("A"))].failures == 1
    b.use("B")


def test_fastest_load_counts_when_a_later_one_was_slow(bench: MakeBench) -> None:
    """The mutant: one slow load keeps nobody out whose patience the fastest one would have met."""
    b = bench(1)
    b.add("A")
    load_slowly(b, "A", 2.0)
    load_slowly(b, "A", 50.0)
    with pytest.raises(LoadTooSlow) as caught:
        b.use("A", 1.0)
    assert caught.value.retry_after_s == 2.0
    b.manager.unload(ref("A"))
    b.use("A", 3.0)


def test_caller_is_told_the_first_end_when_several_loads_run(bench: MakeBench) -> None:
    """The mutant: who finds the queue full may ask again when the first of the running loads should be done."""
    b = bench(3, max_waiters=2)
    for name in "ABC":
        b.add(name)
    load_slowly(b, "A", 4.0)
    load_slowly(b, "B", 40.0)
    gates = [b.loader.hold(name) for name in "AB"]
    waiters = [b.later(name, 100.0) for name in "AB"]
    for gate in gates:
        gate.reached.wait()
    with pytest.raises(QueueFull) as caught:
        b.use("C")
    assert caught.value.retry_after_s == 4.0
    for gate in gates:
        gate.opened.set()
    for waiter in waiters:
        waiter.result()
