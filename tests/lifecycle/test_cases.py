"""The cases of LIFECYCLE's table, each with its number, on the manager with a still clock and gated fakes."""

from __future__ import annotations

import signal
import threading
import time
from typing import TYPE_CHECKING

import pytest
from lifecycle_fakes import COLD, Call, FakeSpec, key

from lifecycle import (
    BudgetExhausted,
    InstanceKey,
    LeaseTimeout,
    LoadFailed,
    ModelConfig,
    ModelRef,
    UnloadTimeout,
)
from lifecycle.states import Phase

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
    assert not b.lease("A").cold
    b.use("A")
    assert b.loads("A") == 2


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
    b.waiting(0)
    joined = b.later("A")
    b.waiting(1)
    gate.opened.set()
    joined.result()
    b.manager.reap()
    assert b.loads("A") == 1
    assert b.manager.snapshot().models[0].leases == 0


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), MemoryError()])
def test_all_waiters_are_told_when_the_loader_raises_anything(bench: MakeBench, error: BaseException) -> None:
    """L19: a BaseException from the loader reaches every waiter, and after the backoff the key loads again."""
    b = bench(1)
    b.add("A")
    gate = b.loader.hold("A")
    b.loader.faults["A", "load"] = [error]
    waiters = [b.later("A") for _ in range(3)]
    b.waiting(3)
    gate.opened.set()
    for waiter in waiters:
        told = waiter.error()
        assert isinstance(told, LoadFailed)
        assert told.__cause__ is error
    b.pass_time(1.0)
    b.use("A")
    assert b.loads("A") == 2


def test_one_load_serves_all_when_64_threads_ask_for_a_cold_model(bench: MakeBench) -> None:
    """L21: 64 threads, one cold model, one load."""
    b = bench(1)
    b.add("A")
    gate = b.loader.hold("A")
    waiters = [b.later("A") for _ in range(64)]
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


def test_deficit_is_worked_off_first_when_a_model_measures_more(bench: MakeBench) -> None:
    """L27: memory measured above what was reserved is charged, and the next admission evicts for it first."""
    b = bench(4)
    b.add("A", 2, measured=3)
    b.add("B", 2)
    b.add("C", 1)
    b.use("B")
    b.use("A")
    assert b.manager.snapshot().deficit_nbytes == 1
    assert b.manager.snapshot().charged_nbytes == 5
    b.use("C")
    assert b.loader.order[-3:] == ["close B", "load C", "nbytes C"]
    assert b.state.charged_nbytes == 4
    b.manager.unload(ModelRef("t", "A"))
    gate = b.loader.hold("A")
    again = b.later("A")
    gate.reached.wait()
    assert b.state.charged_nbytes == 4, "the second load reserves what the first one measured"
    gate.opened.set()
    again.result()


def test_nothing_stays_reserved_when_a_load_fails(bench: MakeBench) -> None:
    """L29: after a failed load the key is FAILED and nothing is charged."""
    b = bench(1)
    b.add("A")
    b.loader.faults["A", "load"] = [OSError("no such file")]
    with pytest.raises(LoadFailed, match="no such file") as caught:
        b.use("A")
    assert caught.value.retry_after_s == 1.0
    assert b.phase("A") == "failed"
    assert b.state.charged_nbytes == 0


def test_refused_at_once_when_a_model_is_larger_than_the_budget(bench: MakeBench) -> None:
    """L30: what can never fit is refused at once, and nobody is evicted for it."""
    b = bench(2)
    b.add("A", 2)
    b.add("B", 3)
    b.use("A")
    with pytest.raises(BudgetExhausted) as caught:
        b.use("B")
    assert (caught.value.needed_nbytes, caught.value.budget_nbytes) == (3, 2)
    assert [holder.name for holder in caught.value.holders] == ["'t/A'"]
    assert b.phase("A") == "ready"


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
    b = bench(1)
    b.add("A", config=ModelConfig(warm_up=False, ttl_s=60.0))
    b.use("A")
    wall = time.time()
    monkeypatch.setattr(time, "time", lambda: wall + jump)
    b.manager.reap()
    assert b.phase("A") == "ready"
    b.pass_time(-10.0)
    assert b.phase("A") == "ready"


def test_retried_after_the_backoff_when_a_load_failed_once(bench: MakeBench) -> None:
    """L41: a load that fails once is tried again after the backoff, and the failure is forgotten."""
    b = bench(1)
    b.add("A")
    b.loader.faults["A", "load"] = [OSError("busy")]
    with pytest.raises(LoadFailed):
        b.use("A")
    b.pass_time(1.0)
    b.use("A")
    assert b.state.models[key("A")].failures == 0


def test_one_attempt_when_a_broken_model_is_polled(bench: MakeBench) -> None:
    """L42: a hundred requests within the backoff make one attempt, and each is told when to come back."""
    b = bench(1)
    b.add("A")
    b.loader.faults["A", "load"] = [OSError("broken")] * 9
    for _ in range(100):
        with pytest.raises(LoadFailed) as caught:
            b.use("A")
        assert caught.value.retry_after_s == 1.0
    assert b.loads("A") == 1
    waits = []
    for _ in range(8):
        b.pass_time(caught.value.retry_after_s)
        with pytest.raises(LoadFailed) as caught:
            b.use("A")
        waits.append(caught.value.retry_after_s)
    assert waits == [2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]


def test_quarantined_when_an_unload_passes_its_deadline(bench: MakeBench) -> None:
    """L48: a close that hangs keeps its bytes charged, doesn't block the next generation, and frees them late."""
    b = bench(2, unload_timeout_s=5.0)
    b.add("A")
    gate = b.loader.hold("A", "close")
    b.use("A")
    unload = Call(lambda: b.manager.unload(ModelRef("t", "A")))
    gate.reached.wait()
    b.pass_time(5.0)
    assert isinstance(unload.error(), UnloadTimeout)
    assert b.manager.snapshot().quarantined_nbytes == 1
    b.use("A")
    assert b.state.charged_nbytes == 2
    gate.opened.set()
    b.until(lambda state: len(state.generations) == 1)
    assert b.manager.snapshot().quarantined_nbytes == 0


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
