"""Mutation switches: each mistake, the check that notices it, and the invariant that it breaks."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import lifecycle_mistakes as mistakes
import pytest
from lifecycle_explorer import explore
from lifecycle_fakes import COLD, Bench, Call, FakeSpec
from lifecycle_gdsf import run_gdsf
from lifecycle_world import Scenario

from backends.engines.fake_backend import FakeBackend, Fault, fake_spec
from backends.running.text_model import TextLoader
from lifecycle import (
    BudgetExhausted,
    Chain,
    LeaseTimeout,
    ModelConfig,
    ModelManager,
    ModelRef,
)
from lifecycle.config import Tenant
from lifecycle.heart.states import Phase
from lifecycle.leasing.handle import ModelHandle

if TYPE_CHECKING:
    from collections.abc import Callable

    Switch = Callable[[pytest.MonkeyPatch], None]
    Check = Callable[[], None]

CONTENDED = Scenario({"A": 1, "B": 1}, 1, (("A", 2.0), ("B", 2.0), ("A", 2.0)), failures=1, cancels=1)
ROOMY = Scenario({"A": 1, "B": 1}, 2, (("A", 2.0), ("A", 2.0), ("B", 2.0)), failures=1, cancels=1)
SETS = Scenario({"A": 1, "B": 1, "C": 1}, 2, (("AB", 2.0), ("BC", 2.0)))
CROWDED = Scenario({"A": 1, "B": 1, "C": 1}, 2, (("A", 2.0), ("B", 2.0), ("C", 2.0)))
MEASURED = Scenario({"A": 1, "B": 1}, 2, (("A", 2.0), ("B", 2.0)), measured={"A": 2})
ORDERED = Scenario({"A": 1}, 2, (("A", 2.0), ("A", 2.0)), failures=1, orders=("unload A",))

HELD = Scenario({"A": 1, "B": 1, "C": 1}, 2, (("AB", 2.0), ("A", 2.0), ("C", 2.0)), under={1: 0})
SHRUNK = Scenario({"A": 1, "B": 1}, 2, (("A", 2.0), ("B", 2.0)), orders=("budget 1",))
RATIONED = Scenario(
    {"A": 1, "B": 1, "C": 1},
    2,
    (("A", 2.0), ("B", 2.0), ("C", 2.0)),
    owners={"A": "u", "B": "t", "C": "t"},
    tenants={"u": Tenant(guaranteed_nbytes=1), "t": Tenant(quota_nbytes=1)},
)
GUARANTEED = replace(RATIONED, tenants={"u": Tenant(guaranteed_nbytes=1)})
YOUNG = Scenario(
    {"A": 1, "B": 1, "C": 1},
    2,
    (("A", 2.0), ("B", 2.0), ("C", 2.0)),
    configs={"A": ModelConfig(warm_up=False, min_residency_s=1.0)},
)
TIMED = Scenario(
    {"A": 1, "B": 1}, 1, (("A", 2.0), ("B", 2.0)), configs={"A": ModelConfig(warm_up=False, ttl_s=1.0)}, clock_steps=2
)
UNASKED = Scenario(
    {"A": 1, "B": 1, "C": 1},
    2,
    (("A", 2.0), ("B", 2.0), ("C", 2.0)),
    owners={"A": "u", "B": "t", "C": "tu"},
    asking="utt",
    tenants={"u": Tenant(guaranteed_nbytes=1)},
)
UNBEGUN = Scenario({"A": 1, "B": 1, "C": 1}, 2, (("A", 2.0), ("C", 2.0)), max_parallel_loads=1, orders=("prefetch B",))
DRAINED = Scenario({"A": 1}, 1, (("A", 9.0),), clock_steps=2, orders=("unload-late A", "unload A"))
CLOSED = Scenario({"A": 1, "B": 1}, 1, (("A", 2.0), ("B", 2.0)), orders=("close",))
QUEUED = Scenario({"A": 1, "B": 1}, 1, (("A", 2.0), ("B", 2.0), ("A", 2.0)), max_waiters=1)
SWAPPED = Scenario({"A": 1, "B": 1, "X": 1}, 2, (("A", 2.0), ("B", 2.0)), swaps=(("A>X", 2.0),))


# Checks on the manager: each passes as things are. -----------------------------------------------------------------


def check_references() -> None:
    """Every lease returned leaves none open."""
    b = Bench(1)
    b.add("A")
    for _ in range(3):
        b.use("A")
    assert b.manager.snapshot().models[0].leases == 0
    b.finish()


def check_recency() -> None:
    """The model that was hit last stays, and its time to live counts from there."""
    b = Bench(2)
    for name in "ABC":
        b.add(name)
    for name in "ABA":
        b.clock.now += 1.0
        b.use(name)
    b.use("C")
    assert (b.phase("A"), b.phase("B")) == ("ready", "registered")
    b.add("A", config=ModelConfig(warm_up=False, ttl_s=5.0))
    for _ in range(3):
        b.use("A")
        b.pass_time(4.0)
    assert b.phase("A") == "ready"
    b.finish()


def check_late_return() -> None:
    """A lease on an old instance that is returned late lets go of that one, and of nobody else's."""
    b = Bench(2)
    b.add("A")
    late = b.lease("A")
    late.__enter__()
    (old,) = late.handles
    unload = Call(lambda: b.manager.unload(ModelRef("t", "A")))
    b.until(lambda state: not state.generations[1].is_open)
    with b.lease("A"):
        late.__exit__(None, None, None)
        left = old.refs
    old.release(id(late), b.clock())
    unload.result()
    b.finish()
    assert left == 0


def check_priority() -> None:
    """The model with the higher priority number goes first."""
    b = Bench(2)
    b.add("A", config=COLD)
    b.add("B", config=ModelConfig(warm_up=False, eviction_rank=5))
    b.add("C")
    for name in "ABC":
        b.clock.now += 1.0
        b.use(name)
    assert (b.phase("A"), b.phase("B")) == ("ready", "registered")
    b.finish()


def check_slow_unload() -> None:
    """While one model's close hangs, another is admitted."""
    b = Bench(2)
    b.add("A")
    b.add("B")
    b.use("A")
    gate = b.loader.hold("A", "close")
    unload = Call(lambda: b.manager.unload(ModelRef("t", "A")))
    gate.reached.wait()
    other = b.later("B")
    other.join(5.0)  # a right one is served at once; only a mistake waits so long
    served = not other.is_alive()
    gate.opened.set()
    unload.result()
    other.result()
    assert served
    b.finish()


def check_race() -> None:
    """A lease that slips in between plan and gate saves its model."""
    b = Bench(1)
    b.add("A")
    b.add("B")
    b.use("A")
    lease = b.lease("A")
    shut_gate = ModelHandle.shut_gate

    def race(self: ModelHandle) -> None:
        ModelHandle.shut_gate = shut_gate  # type: ignore[method-assign] - once
        model.append(lease.__enter__())
        shut_gate(self)

    model: list[Any] = []
    ModelHandle.shut_gate = race  # type: ignore[method-assign] - put back by itself
    waiter = b.later("B")
    b.waiting(1)
    b.until(lambda state: all(g.phase is not Phase.UNLOADING for g in state.generations.values()))
    closed = model[0].closed
    lease.__exit__(None, None, None)
    waiter.result()
    assert not closed
    b.finish()


def check_claim() -> None:
    """A model that must leave at its last lease lets no new one in."""
    b = Bench(1)
    b.add("A")
    b.add("B")
    with b.lease("A"):
        waiter = b.later("B")
        b.waiting(1)
        with pytest.raises(BudgetExhausted):
            b.use("A", timeout_s=0.0)
    waiter.result()
    b.finish()


def check_protection() -> None:
    """Callers with less patience than a load takes are served at last beside a load that nobody used."""
    b = Bench(1)
    for name in "AB":
        b.add(name)
        gate = b.loader.hold(name)
        waiter = b.later(name)
        gate.reached.wait()
        b.clock.now += 5.0
        gate.opened.set()
        waiter.result()
        b.manager.unload(ModelRef("t", name))
    b.manager.prefetch([ModelRef("t", "A")])
    b.until(lambda state: any(g.is_open for g in state.generations.values()))
    for _ in range(4):
        with suppress(LeaseTimeout):
            b.use("B", timeout_s=1.0)
        b.pass_time(20.0)
    b.until(lambda state: not any(g.job for g in state.generations.values()))
    phase = b.phase("B")
    b.finish()
    assert phase == "ready"


def check_swap() -> None:
    """A model that has no room beside the one it shall replace leaves that where it is."""
    b = Bench(1)
    b.add("A")
    b.use("A")
    with suppress(BudgetExhausted):
        b.manager.replace(ModelRef("t", "A"), FakeSpec("X", 1, 1))
    resident = b.loader.resident["A"]
    b.finish()
    assert resident


def check_fallback() -> None:
    """The backend that answers in another's place was told to load by the manager, and is charged for it."""
    backends = FakeBackend("one", nbytes=1, infers=[Fault.OUT_OF_MEMORY]), FakeBackend("two", nbytes=1)
    with ModelManager(1) as manager:
        refs = [ModelRef("t", backend.name) for backend in backends]
        for ref, backend in zip(refs, backends, strict=True):
            manager.register(ref, fake_spec("m"), TextLoader(backend), COLD)

        def work(model: Any, lease: Any) -> tuple[str, dict[str, int]]:
            model.embed(["some text"], kind="query")
            return lease.backend, dict(manager.snapshot().by_backend)

        assert Chain(manager, refs).run(work) == ("two", {"two": 1})


def check_ageing() -> None:
    """A model that was used often, long ago, leaves at last under cost-aware eviction too."""
    resident = run_gdsf([0] * 5 + [1, 2] * 10, costs=(1, 1, 1), budget=2)
    assert resident == {1, 2}


def walk(scenario: Scenario) -> Check:
    """Return the exploration of a scenario, as a check."""
    return lambda: explore(scenario) and None


# Each mistake, the check that notices it, and the invariant that it breaks; "" if it is none of the fifteen.
SWITCHES: list[tuple[Switch, Check, str]] = [
    (mistakes.never_reserves, walk(ROOMY), "1"),
    (mistakes.measured_size_is_ignored, walk(MEASURED), "1"),
    (mistakes.loads_first_and_makes_room_after, walk(CONTENDED), "2"),
    (mistakes.shrinking_ends_too_early, walk(SHRUNK), "2"),
    (mistakes.second_reference, check_references, "3"),
    (mistakes.second_reference_in_the_heart, walk(ROOMY), "3"),
    (mistakes.eviction_ignores_references, walk(CONTENDED), "4"),
    (mistakes.gate_is_not_counted_again, check_race, "4"),
    (mistakes.retired_model_is_closed_at_once, walk(SWAPPED), "4"),
    (mistakes.flights_are_not_shared, walk(ROOMY), "5"),
    (mistakes.leader_takes_everybody_along, walk(ROOMY), "5"),
    (mistakes.holds_do_not_count, walk(SETS), "6"),
    (mistakes.room_is_made_before_the_lookup, walk(ROOMY), "7"),
    (mistakes.victims_are_not_planned_as_a_set, walk(CROWDED), "8"),
    (mistakes.claims_are_forgotten, check_claim, "8"),
    (mistakes.bytes_never_come_back, walk(CONTENDED), "9"),
    (mistakes.bytes_are_free_when_close_begins, walk(ORDERED), "9"),
    (mistakes.failed_unload_frees_its_bytes, walk(ORDERED), "9"),
    (mistakes.failed_unload_raises_no_alarm, walk(ORDERED), "9"),
    (mistakes.jobs_run_where_the_state_is_kept, check_slow_unload, "10"),
    (mistakes.waiters_stay_with_the_old_name, walk(SWAPPED), "11"),
    (mistakes.lease_is_returned_to_the_name, check_late_return, "11"),
    (mistakes.jobs_are_started_twice, walk(ROOMY), "12"),
    (mistakes.time_to_live_runs_during_use, walk(TIMED), "13"),
    (mistakes.hits_do_not_count_as_use, check_recency, "13"),
    (mistakes.refused_sets_count_as_use, walk(SETS), "13"),
    (mistakes.unloads_wait_for_others, walk(DRAINED), "14"),
    (mistakes.last_drain_decides_for_all, walk(DRAINED), "14"),
    (mistakes.stuck_unload_blocks_for_good, walk(ORDERED), "14"),
    (mistakes.overdue_jobs_are_waited_for, walk(TIMED), "14"),
    (mistakes.callers_wait_for_ever, walk(TIMED), "14"),
    (mistakes.what_is_held_is_not_lent, walk(HELD), "14"),
    (mistakes.closing_refuses_nobody, walk(CLOSED), "15"),
    (mistakes.closing_unloads_nothing, walk(CLOSED), "15"),
    (mistakes.priority_is_not_used, check_priority, ""),
    (mistakes.quotas_are_not_looked_at, walk(RATIONED), ""),
    (mistakes.guarantees_are_not_kept, walk(GUARANTEED), ""),
    (mistakes.guarantees_end_for_who_might_ask, walk(UNASKED), ""),
    (mistakes.reservations_hold_the_budget, walk(UNBEGUN), ""),
    (mistakes.protection_never_ends, check_protection, ""),
    (mistakes.youth_is_not_looked_at, walk(YOUNG), ""),
    (mistakes.queue_is_not_bounded, walk(QUEUED), ""),
    (mistakes.evicted_worth_is_forgotten, check_ageing, ""),
    (mistakes.swap_drives_out_what_it_replaces, check_swap, ""),
    (mistakes.fallback_skips_the_admission, check_fallback, ""),
]
