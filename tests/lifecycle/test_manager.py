"""The manager's own promises: registration, patience, eager loads, prefetch, status, closing, and what it says."""

from __future__ import annotations

import dataclasses
import json
import threading
from typing import TYPE_CHECKING, Any

import pytest
from lifecycle_fakes import Call, FakeSpec, key

from backends.errors import InvalidInput, VectorSearchError
from lifecycle import (
    BudgetExhausted,
    LeaseTimeout,
    LifecycleError,
    LoadPolicy,
    ManagerSnapshot,
    ModelConfig,
    ModelNotRegistered,
    ModelRef,
    errors,
)
from lifecycle.events import LoadFailure, ModelEvicted, ModelReady, ModelUnloaded

if TYPE_CHECKING:
    from collections.abc import Callable

    from lifecycle_fakes import Bench

    MakeBench = Callable[..., Bench]

EAGER = ModelConfig(load_policy=LoadPolicy.EAGER, warm_up=False)
MIB = 1 << 20


def test_message_names_sizes_and_next_step_when_the_budget_is_exhausted(bench: MakeBench) -> None:
    """BudgetExhausted says what is needed, what there is, what is idle, who holds what, and what to do."""
    b = bench(1024 * MIB)
    b.add("A", 300 * MIB)
    b.add("B", 724 * MIB)
    b.add("C", 512 * MIB)
    b.use("A")
    with b.lease("B"), pytest.raises(BudgetExhausted) as caught:
        b.use("C", timeout_s=0.0)
    assert str(caught.value) == (
        "model 't/C' needs 512 MiB; budget 1024 MiB, 300 MiB idle: raise budget_nbytes or unload a model; "
        "held by 't/B' 724 MiB (ready, 1 leases), 't/A' 300 MiB (ready, idle)"
    )
    assert caught.value.idle_nbytes == 300 * MIB


def test_nothing_is_evicted_when_the_caller_has_no_patience(bench: MakeBench) -> None:
    """With a timeout of 0 and no free room, BudgetExhausted comes at once and the idle model stays."""
    b = bench(1)
    b.add("A")
    b.add("B")
    b.use("A")
    with pytest.raises(BudgetExhausted):
        b.use("B", timeout_s=0.0)
    assert b.phase("A") == "ready"


def test_load_begins_when_the_caller_has_no_patience_and_there_is_room(bench: MakeBench) -> None:
    """With a timeout of 0 and free room, the caller is refused and the load goes on."""
    b = bench(1)
    b.add("A")
    with pytest.raises(LeaseTimeout, match="still loading"):
        b.use("A", timeout_s=0.0)
    b.until(lambda state: state.generations[1].is_open)
    b.use("A", timeout_s=0.0)


def test_set_fails_at_once_when_it_can_never_fit(bench: MakeBench) -> None:
    """A set larger than the budget, or than what pinned models leave of it, is refused whatever the patience."""
    b = bench(3)
    b.add("P", 1, ModelConfig(warm_up=False, pinned=True))
    b.add("A", 2)
    b.add("B", 1)
    with pytest.raises(BudgetExhausted) as caught:
        b.use_all("ABP")
    assert caught.value.needed_nbytes == 4
    b.use("P")
    with pytest.raises(BudgetExhausted):
        b.use_all("AB")
    assert b.use_all("AP") == ["A", "P"]


def test_small_one_overtakes_when_it_takes_nothing_that_others_wait_for(bench: MakeBench) -> None:
    """While a large model waits for a lease to end, a small one that fits beside it is served."""
    b = bench(4)
    b.add("A", 2)
    b.add("L", 3)
    b.add("S", 1)
    b.add("T", 1)
    with b.lease("A"):
        large = b.later("L")
        b.waiting(1)
        b.use("S")
        assert b.loads("L") == 0
        gate = b.loader.hold("T")  # it takes the room of S, and would else be done before anybody looks
        small = b.later("T")
        b.waiting(2)
        gate.opened.set()
    large.result()
    small.result()


def test_nested_lease_is_served_when_a_set_waits_for_the_outer_one(bench: MakeBench) -> None:
    """Holding A and asking for B, which fits, doesn't wait for a set that waits for A to be returned."""
    b = bench(3)
    b.add("A")
    b.add("B")
    b.add("C", 2)
    with b.lease("A"):
        waiting = Call(lambda: b.use_all("BC"))
        b.waiting(1)
        b.use("B")
        assert b.loads("C") == 0
    assert waiting.result() == ["B", "C"]


def test_eager_models_load_at_once_when_they_are_registered(bench: MakeBench) -> None:
    """Eager models load without a caller, at most so many at once, and `ready` names those that are missing."""
    b = bench(3, max_parallel_loads=1)
    gate = b.loader.hold("A")
    refs = [b.add(name, config=EAGER) for name in "ABC"]
    b.add("D")
    gate.reached.wait()
    ready = b.manager.ready()
    assert not ready
    assert ready.missing == tuple(refs)
    assert b.phase("B") == "reserved"
    gate.opened.set()
    b.until(lambda state: len([g for g in state.generations.values() if g.is_open]) == 3)
    assert b.manager.ready()
    counters = b.manager.snapshot().counters
    assert (counters.eager_loads, counters.lazy_loads) == (3, 0)
    assert b.loads("D") == 0


def test_eager_model_is_tried_again_when_its_load_fails(bench: MakeBench) -> None:
    """A failed eager load is repeated after its backoff, with no caller's help."""
    b = bench(1)
    b.loader.faults["A", "load"] = [OSError("not yet")]
    b.add("A", config=EAGER)
    b.until(lambda state: state.models[key("A")].failures == 1)
    assert not b.manager.ready()
    b.pass_time(1.0)
    b.until(lambda state: any(g.is_open for g in state.generations.values()))
    assert b.manager.ready()


def test_eager_load_evicts_nobody_when_there_is_no_room(bench: MakeBench) -> None:
    """An eager model takes free room only: it waits while others fill the budget, and loads when one leaves."""
    b = bench(1)
    b.add("A")
    b.use("A")
    ref = b.add("B", config=EAGER)
    assert b.manager.ready().missing == (ref,)
    assert b.phase("A") == "ready"
    b.manager.unload(ModelRef("t", "A"))
    b.until(lambda state: any(g.key == key("B") and g.is_open for g in state.generations.values()))


def test_ready_flips_back_when_an_eager_model_is_lost(bench: MakeBench) -> None:
    """An eager model that was unloaded is missing, and is not loaded again by itself."""
    b = bench(1)
    ref = b.add("A", config=EAGER)
    b.until(lambda state: any(g.is_open for g in state.generations.values()))
    b.manager.unload(ref)
    b.manager.reap()
    assert b.manager.ready().missing == (ref,)
    assert b.loads("A") == 1


def test_prefetch_makes_room_of_idle_models_and_spares_what_was_prefetched(bench: MakeBench) -> None:
    """A prefetch evicts idle models that have been used, but not another prefetched one; a lease joins its load."""
    b = bench(1)
    a, other, third = (b.add(name) for name in "ABC")
    b.use("A")
    b.clock.now += 1.0
    b.use("A")
    gate = b.loader.hold("B")
    b.manager.prefetch([other])
    gate.reached.wait()
    joined = b.later("B")
    b.waiting(1)
    gate.opened.set()
    joined.result()
    b.manager.unload(other)
    b.manager.prefetch([a])
    b.until(lambda state: any(g.is_open for g in state.generations.values()))
    b.manager.prefetch([third])
    b.manager.reap()
    assert b.loads("C") == 0
    assert b.phase("A") == "ready"
    with pytest.raises(ModelNotRegistered):
        b.manager.prefetch([a, ModelRef("t", "nobody")])


def test_pinned_model_stays_when_others_need_room_or_time_passes(bench: MakeBench) -> None:
    """A pinned model is no victim and doesn't expire; unload ends it."""
    b = bench(2)
    b.add("P", config=ModelConfig(warm_up=False, pinned=True, ttl_s=1.0))
    b.add("A")
    b.add("B")
    b.use("P")
    b.pass_time(100.0)
    b.use("A")
    b.use("B")
    assert (b.phase("P"), b.phase("A")) == ("ready", "registered")
    b.manager.unload(ModelRef("t", "P"))
    assert b.phase("P") == "registered"


def test_registration_is_refused_when_the_ref_names_something_else(bench: MakeBench) -> None:
    """A ref registered with another key keeps its first meaning; a size can't be negative."""
    b = bench(1)
    ref = b.add("A")
    with pytest.raises(InvalidInput, match="its own name"):
        b.manager.register(ref, FakeSpec("B", 1, 1), b.loader)
    assert b.manager.key_of(ref) == key("A")
    with pytest.raises(InvalidInput, match="-5 bytes"):
        b.add("N", -5)
    assert b.manager.registered() == (ref,)


def test_ttl_of_zero_takes_effect_when_it_is_set_while_idle(bench: MakeBench) -> None:
    """Registering again with a TTL of 0 ends an idle instance, and one in use at its last release."""
    b = bench(1)
    b.add("A")
    with b.lease("A"):
        b.add("A", config=ModelConfig(warm_up=False, ttl_s=0.0))
        assert b.phase("A") == "ready"
    b.until(lambda state: not state.generations)


def test_snapshot_is_frozen_and_adds_up_when_models_come_and_go(bench: MakeBench) -> None:
    """A snapshot is immutable, its parts sum to its whole, and leases, idle time, loads and hits are per model."""
    b = bench(5)
    b.add("A", 2)
    b.add("B", 3)
    b.use("A")
    b.use("A")
    b.pass_time(7.0)
    with b.lease("B"):
        snapshot = b.manager.snapshot()
    with pytest.raises(dataclasses.FrozenInstanceError):
        snapshot.charged_nbytes = 0  # type: ignore[misc] - it is frozen
    with pytest.raises(TypeError):
        snapshot.by_backend["fake"] = 0  # type: ignore[index] - as above
    assert snapshot.charged_nbytes == sum(snapshot.by_backend.values()) == 5
    a, other = snapshot.models
    assert (a.state, a.leases, a.idle_s, a.loads, a.hits, a.misses, a.charged_nbytes, a.device) == (
        "ready", 0, 7.0, 1, 1, 1, 2, "fake:0",
    )  # fmt: skip
    assert (other.leases, other.idle_s, other.resident, other.nbytes) == (1, None, True, 3)
    assert (a.hit_ratio, other.hit_ratio) == (0.5, 0.0)
    assert ManagerSnapshot.from_dict(json.loads(json.dumps(snapshot.to_dict()))) == snapshot
    assert snapshot.idle_nbytes == 2
    assert b.manager.budget_nbytes == 5


def test_status_tells_the_estimate_when_a_model_is_not_resident(bench: MakeBench) -> None:
    """Before its first load a model's size is the estimate; afterwards it is what was measured."""
    b = bench(9)
    ref = b.add("A", 2, measured=4)
    before = b.manager.status(ref)
    b.use("A")
    b.manager.unload(ref)
    after = b.manager.status(ref)
    assert (before.nbytes, before.resident, before.idle_s) == (2, False, None)
    assert (after.nbytes, after.resident, after.loads) == (4, False, 1)


def test_hooks_hear_what_happened_in_order_when_they_subscribe(bench: MakeBench) -> None:
    """Ready, evicted, unloaded, failed: in order, with key, generation and bytes."""
    b = bench(1)
    b.add("A")
    b.add("B")
    told: list[Any] = []
    b.manager.subscribe(told.append)
    b.use("A")
    b.loader.faults["B", "load"] = [OSError("no")]
    with pytest.raises(errors.LoadFailed):
        b.use("B")
    b.manager.close()
    kinds = [type(event) for event in told]
    assert kinds == [ModelReady, ModelEvicted, ModelUnloaded, LoadFailure]
    assert told[0] == ModelReady(key("A"), 1, 1, load_s=0.0, eager=False)
    assert told[3].retry_after_s == 1.0


def test_manager_refuses_to_wait_for_itself_when_asked_on_its_own_thread(bench: MakeBench) -> None:
    """A finalizer that happens to run on the keeper's thread gets an error, not a deadlock."""
    b = bench(1)
    b.add("A")
    asked: list[BaseException] = []

    def ask() -> None:
        try:
            b.manager.reap()
        except RuntimeError as error:
            asked.append(error)

    b.manager._keeper.call(ask)
    assert len(asked) == 1


def test_every_error_is_in_the_tree_when_the_module_is_read() -> None:
    """All errors of this package descend from one, itself under the project's root."""
    found = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)]
    assert len(found) > 8
    for kind in set(found) - {VectorSearchError}:
        assert issubclass(kind, LifecycleError)
        assert kind.__doc__
        if kind is not LifecycleError:
            assert f"── {kind.__name__}" in (errors.__doc__ or "")


def test_slow_hook_loses_events_when_it_falls_too_far_behind(bench: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hook that doesn't keep up delays nobody; what it can't be told any more is counted."""
    monkeypatch.setattr("lifecycle.events._MOST_PENDING", 2)
    b = bench(1)
    b.add("A")
    b.add("B")
    release = threading.Event()
    b.manager.subscribe(lambda _event: release.wait())
    for name in "ABABAB":
        b.use(name)
    assert b.manager.snapshot().counters.dropped_events > 0
    release.set()
