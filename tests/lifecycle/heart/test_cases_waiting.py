"""LIFECYCLE's cases, each with its number: who waits for what, who is served, and by how many loads."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

import pytest
from lifecycle_fakes import Call, FakeSpec

from lifecycle import (
    InstanceKey,
    LeaseTimeout,
    ModelConfig,
    ModelRef,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from lifecycle_fakes import Bench

    MakeBench = Callable[..., Bench]


def test_claim_outlives_new_request_when_a_leased_model_must_leave(bench: MakeBench) -> None:
    """L1: once B has claimed leased A's room, a new request for A can't erase that; B is served, then A again."""
    b = bench(1)
    b.add("A")
    b.add("B")
    with b.lease("A"):
        for_b = b.later("B")
        b.waiting(1)
        for_a = b.later("A")
        b.waiting(2)
        assert not b.state.generations[1].is_open
    for_b.result()
    for_a.result()
    steps = [step for step in b.loader.order if step.startswith(("load", "close"))]
    assert steps == ["load A", "close A", "load B", "close B", "load A"]


def test_claim_is_undone_when_its_admission_times_out(bench: MakeBench) -> None:
    """L1: when B's wait ends by name, A's gate opens again and the request that queued behind is served by it."""
    b = bench(1)
    b.add("A")
    b.add("B")
    with b.lease("A"):
        for_b = b.later("B", timeout_s=5.0)
        b.waiting(1)
        for_a = b.later("A", timeout_s=50.0)
        b.waiting(2)
        b.pass_time(6.0)
        for_a.result()
        error = for_b.error()
    assert isinstance(error, LeaseTimeout)
    assert error.waited_for == "room"
    assert "'t/A'" in str(error)
    assert b.loads("A") == 1
    assert b.loads("B") == 0


@pytest.mark.parametrize(("first_back", "evicted"), [("L", "L"), ("S", "SL")])
def test_claim_is_dropped_when_the_room_of_a_later_one_serves_both(
    bench: MakeBench, first_back: str, evicted: str
) -> None:
    """L1: two admissions have claimed a small and a large model; if the large one comes back first, the small stays.

    If the small one does, its admission is served at once rather than kept waiting for what might spare it.
    """
    b = bench(7)
    b.add("S", 1)
    b.add("L", 6)
    b.add("X", 1)
    b.add("Y", 5)
    held = {name: b.lease(name) for name in "SL"}
    held["S"].__enter__()
    b.clock.now += 1.0
    held["L"].__enter__()
    waiters = [b.later("X")]
    b.waiting(1)
    waiters.append(b.later("Y"))
    b.until(lambda state: sum(g.claimed_by is not None for g in state.generations.values()) == 2)
    held.pop(first_back).release()
    waiters[0].result()
    for lease in held.values():
        lease.release()
    waiters[1].result()
    b.manager.reap()
    assert {name for name in "SL" if b.loader.done[name, "close"]} == set(evicted)


def test_waiter_is_served_when_another_waits_for_the_room(bench: MakeBench) -> None:
    """L6: between loaded and handed out nothing can evict: the waiter's lease exists when the gate opens."""
    b = bench(1)
    b.add("A")
    b.add("B")
    gate = b.loader.hold("A")
    entered, leave = threading.Event(), threading.Event()

    def use_a() -> str:
        with b.lease("A") as model:
            entered.set()
            leave.wait()
            assert not model.closed
            return model.name

    for_a = Call(use_a)
    gate.reached.wait()
    for_b = b.later("B")
    b.waiting(2)
    gate.opened.set()
    entered.wait()
    b.manager.reap()
    assert b.loader.done["A", "close"] == 0
    leave.set()
    assert for_a.result() == "A"
    for_b.result()


def test_each_load_serves_a_request_when_two_models_alternate(bench: MakeBench) -> None:
    """L9: A and B alternate with room for one: every load serves at least one request."""
    b = bench(1)
    b.add("A")
    b.add("B")
    calls = [b.later("AB"[i % 2]) for i in range(20)]
    for call in calls:
        call.result()
    assert b.loads("A") + b.loads("B") <= 20


def test_nothing_becomes_unreachable_when_registered_again_during_a_load(bench: MakeBench) -> None:
    """L11: registering again while the model loads changes its config and loses neither load nor waiter."""
    b = bench(1)
    b.add("A")
    gate = b.loader.hold("A")
    waiter = b.later("A")
    gate.reached.wait()
    b.add("A", config=ModelConfig(warm_up=False, ttl_s=5.0))
    gate.opened.set()
    waiter.result()
    assert b.loads("A") == 1
    assert b.manager.registered() == (ModelRef("t", "A"),)
    b.pass_time(6.0)
    b.until(lambda state: not state.generations)


def test_hit_wins_when_it_slips_in_before_the_gate_is_shut(bench: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """L12: a lease taken between the choice of a victim and the shutting of its gate saves the victim."""
    b = bench(2)
    b.add("A")
    b.add("B")
    b.add("C")
    b.use("A")
    b.use("B")
    handle = b.manager.open_handles[ModelRef("t", "A")]
    shut_gate = type(handle).shut_gate
    lease = b.lease("A")
    raced: list[str] = []

    def race_and_shut(self: object) -> None:
        if not raced:
            raced.append(self.key.digest)  # type: ignore[attr-defined] - it is a handle
            lease.__enter__()
        shut_gate(self)  # type: ignore[arg-type] - as above

    monkeypatch.setattr(type(handle), "shut_gate", race_and_shut)
    b.use("C")
    assert raced == ["A"]
    assert b.loader.done["A", "close"] == 0
    assert b.loader.done["B", "close"] == 1
    assert not handle.shut, "the attempt on A was reverted"
    lease.__exit__(None, None, None)
    assert b.loads("A") == 1


def test_others_finish_when_one_lease_is_slow(bench: MakeBench) -> None:
    """L15: with a lease on X open, Y unloads and Z loads."""
    b = bench(2)
    for name in "XYZ":
        b.add(name)
    b.use("Y")
    with b.lease("X"):
        b.manager.unload(ModelRef("t", "Y"))
        b.use("Z")
    assert b.loads("X") == 1


def test_other_waiters_are_served_when_one_gives_up(bench: MakeBench) -> None:
    """L16: of 8 waiters on one load, one runs out of time, and 7 are served by that load."""
    b = bench(1)
    b.add("A")
    gate = b.loader.hold("A")
    waiters = [b.later("A", timeout_s=1.0 if i == 0 else 60.0) for i in range(8)]
    b.waiting(8)
    b.pass_time(2.0)
    assert isinstance(waiters[0].error(), LeaseTimeout)
    gate.opened.set()
    for waiter in waiters[1:]:
        waiter.result()
    assert b.loads("A") == 1


def test_load_goes_on_when_its_first_caller_is_interrupted(bench: MakeBench) -> None:
    """L17: a Ctrl-C ends the leader's wait and nothing else: who joins afterwards is served by the same load."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background of a shell ignores it
    b = bench(1)
    b.add("A")
    gate = b.loader.hold("A")

    def interrupt() -> None:
        gate.reached.wait()
        b.waiting(1)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    helper = Call(interrupt)
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - the interrupt may come at any point of the block
        b.use("A")
        helper.join()
    helper.result()
    signal.signal(signal.SIGINT, before)
    b.waiting(0)
    joined = b.later("A")
    b.waiting(1)
    gate.opened.set()
    joined.result()
    b.manager.reap()
    assert b.loads("A") == 1
    assert b.manager.snapshot().models[0].leases == 0


def test_one_load_serves_all_when_64_threads_ask_for_a_cold_model(bench: MakeBench) -> None:
    """L21: 64 threads, one cold model, one load."""
    b = bench(1)
    b.add("A")
    gate = b.loader.hold("A")
    inside = threading.Barrier(64)  # nobody leaves before all have it

    def use() -> None:
        with b.lease("A"):
            inside.wait()

    waiters = [Call(use) for _ in range(64)]
    b.waiting(64)
    gate.opened.set()
    for waiter in waiters:
        waiter.result()
    assert b.loads("A") == 1
    assert b.manager.snapshot().counters.peak_references == 64


def test_hits_evict_nothing_when_the_budget_is_full(bench: MakeBench) -> None:
    """L22: 100 hits at a full budget: no eviction, no error, and no step of the heart."""
    b = bench(2)
    b.add("A")
    b.add("B")
    b.use("A")
    b.use("B")
    before = b.state
    for i in range(100):
        b.use("AB"[i % 2])
    assert b.state is before
    snapshot = b.manager.snapshot()
    assert snapshot.counters.evictions == 0
    assert sum(model.hits for model in snapshot.models) == 100


def test_each_loads_once_when_both_fit(bench: MakeBench) -> None:
    """L23: an embedder and a reranker alternate, both fit: two loads in all."""
    b = bench(2)
    b.add("A")
    b.add("B")
    for _ in range(10):
        b.use("A")
        b.use("B")
    assert (b.loads("A"), b.loads("B")) == (1, 1)


def test_next_caller_finds_it_when_the_first_was_too_impatient(bench: MakeBench) -> None:
    """L49: a timeout shorter than the cold start leaves the load going, and the next caller finds the model."""
    b = bench(1)
    b.add("A")
    gate = b.loader.hold("A")
    impatient = b.later("A", timeout_s=1.0)
    gate.reached.wait()
    b.pass_time(1.0)
    error = impatient.error()
    assert isinstance(error, LeaseTimeout)
    assert error.waited_for == "load"
    gate.opened.set()
    b.until(lambda state: state.generations[1].is_open)
    lease = b.lease("A", timeout_s=0.0)
    with lease:
        assert not lease.cold
    assert b.loads("A") == 1


def test_load_follows_when_a_caller_left_while_its_room_was_made(bench: MakeBench) -> None:
    """L49: a caller that gives up while its victim still unloads leaves the load to be done all the same."""
    b = bench(1)
    b.add("A")
    b.add("B")
    gate = b.loader.hold("A", "close")
    b.use("A")
    impatient = b.later("B", timeout_s=1.0)
    gate.reached.wait()
    b.pass_time(1.0)
    assert isinstance(impatient.error(), LeaseTimeout)
    gate.opened.set()
    b.until(lambda state: any(g.is_open for g in state.generations.values()))
    assert b.loads("B") == 1


def test_no_deadlock_when_two_queries_each_need_two_models(bench: MakeBench) -> None:
    """L50: two sets that share no room are served one after the other, and neither holds half of what it needs."""
    b = bench(2)
    for name in "ABCD":
        b.add(name)
    calls = [Call(lambda names=names: b.use_all(names)) for names in ("AB", "CD", "AC", "BD") * 4]
    for call in calls:
        call.result()
    assert b.state.charged_nbytes <= 2


def test_one_instance_when_two_refs_share_a_key(bench: MakeBench) -> None:
    """Two tenants' refs with one digest share one load and one charge, and the longest TTL."""
    b = bench(1)
    b.add("A", config=ModelConfig(warm_up=False, ttl_s=1.0))
    other = ModelRef("u", "mine")
    spec = FakeSpec("A", 1, 1)
    b.manager.register(other, spec, b.loader, ModelConfig(ttl_s=9.0), key=InstanceKey("A", "fake"))
    b.use("A")
    with b.manager.lease(other, 0.0) as model:
        assert model.name == "A"
    assert b.loads("A") == 1
    (status,) = b.manager.snapshot().models
    assert status.refs == (ModelRef("t", "A"), other)
    assert status.charged_nbytes == 1
    b.pass_time(8.0)
    assert b.phase("A") == "ready"
