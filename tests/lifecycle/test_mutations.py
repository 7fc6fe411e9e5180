"""Mutation switches: each mistake of the usual sketch, put back, is caught by a check that passes without it.

"Fallback infers on a backend that never loaded the model" has no switch: there is no fallback here.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from lifecycle_explorer import Scenario, explore
from lifecycle_fakes import COLD, Bench, Call, FakeSpec
from lifecycle_gdsf import run_gdsf

from lifecycle import BudgetExhausted, ModelConfig, ModelRef, admission, policy, pressure, tenants, transitions
from lifecycle.config import Tenant
from lifecycle.draft import Draft
from lifecycle.handle import ModelHandle
from lifecycle.keeper import Keeper
from lifecycle.lease import LeaseSet
from lifecycle.states import Generation, Phase, State
from lifecycle.swap import Swap

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
    """The model that was hit last stays."""
    b = Bench(2)
    for name in "ABC":
        b.add(name)
    for name in "ABA":
        b.clock.now += 1.0
        b.use(name)
    b.use("C")
    assert (b.phase("A"), b.phase("B")) == ("ready", "registered")
    b.finish()


def check_priority() -> None:
    """The model with the higher priority number goes first."""
    b = Bench(2)
    b.add("A", config=COLD)
    b.add("B", config=ModelConfig(warm_up=False, priority=5))
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
    other.join(1.0)
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


def check_ageing() -> None:
    """A model that was used often, long ago, leaves at last under cost-aware eviction too."""
    resident = run_gdsf([0] * 5 + [1, 2] * 10, costs=(1, 1, 1), budget=2)
    assert resident == {1, 2}


# The switches. -----------------------------------------------------------------------------------------------------


def second_reference(patch: pytest.MonkeyPatch) -> None:
    give = LeaseSet.give

    def give_two(self: LeaseSet, handles: tuple[ModelHandle, ...]) -> None:
        give(self, handles)
        for handle in handles:
            handle.grant(-id(self))

    patch.setattr(LeaseSet, "give", give_two)


def second_reference_in_the_heart(patch: pytest.MonkeyPatch) -> None:
    def grant_twice(draft: Draft) -> None:
        before = len(draft.effects)
        transitions._grant(draft)
        for effect in draft.effects[before:]:
            for number in getattr(effect, "generations", ()):
                draft.put(draft.generations[number], refs=draft.generations[number].refs + 1)

    rules = [grant_twice if rule is transitions._grant else rule for rule in transitions.RULES]
    patch.setattr(transitions, "RULES", tuple(rules))


def never_reserves(patch: pytest.MonkeyPatch) -> None:
    reserve = Draft.reserve

    def reserve_nothing(self: Draft, key: Any, *, eager: bool) -> Generation:
        return self.put(reserve(self, key, eager=eager), charged_nbytes=0)

    patch.setattr(Draft, "reserve", reserve_nothing)


def bytes_never_come_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Draft, "remove", lambda self, generation: self.put(generation, job=None))


def measured_size_is_ignored(patch: pytest.MonkeyPatch) -> None:
    loaded = transitions._loaded
    patch.setattr(
        transitions, "_loaded", lambda draft, generation, _nbytes: loaded(draft, generation, generation.reserved_nbytes)
    )


def jobs_run_where_the_state_is_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Keeper, "_start", lambda self, number, job: self.send_event(self.handles[number].perform(job)))


def flights_are_not_shared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        Draft,
        "live",
        lambda self, key: next((g for g in self.generations.values() if g.key == key and g.is_open), None),
    )


def leader_takes_everybody_along(patch: pytest.MonkeyPatch) -> None:
    end = Draft.end

    def end_all(self: Draft, entry: Any) -> None:
        end(self, entry)
        for other in self.queue.copy():
            if set(other.generations or ()) & set(entry.generations or ()) and not any(
                self.generations[n].is_loaded for n in entry.generations if n in self.generations
            ):
                self.refuse(other, transitions.signals.TimedOut("load"))

    patch.setattr(Draft, "end", end_all)


def holds_do_not_count(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Draft, "in_use", lambda _self, generation: generation.refs > 0)


def hits_do_not_count_as_use(patch: pytest.MonkeyPatch) -> None:
    def release(self: ModelHandle, token: int, _now: float) -> None:
        self._tokens.discard(token)

    patch.setattr(ModelHandle, "release", release)


def stuck_unload_blocks_for_good(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        Draft,
        "is_blocked",
        lambda self, key: any(
            g.key == key and (g.is_blocking or g.phase is Phase.QUARANTINED) for g in self.generations.values()
        ),
    )


def loads_first_and_makes_room_after(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(admission, "_fits", lambda *_: True)


def eviction_ignores_references(patch: pytest.MonkeyPatch) -> None:
    def all_claimed(self: Draft, entry: Any) -> list[policy.Candidate]:
        return [self.candidate(g) for g in self.generations.values() if g.claimed_by == entry.number]

    patch.setattr(Draft, "claimed_and_idle", all_claimed)


def priority_is_not_used(patch: pytest.MonkeyPatch) -> None:
    order = policy.eviction_order
    patch.setattr(policy, "eviction_order", lambda candidate: order(replace(candidate, priority=0)))


def gate_is_not_counted_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ModelHandle, "refs", property(lambda _self: 0))


def victims_are_not_planned_as_a_set(patch: pytest.MonkeyPatch) -> None:
    def all_of_them(_short: int, candidates: Any) -> tuple[int, ...]:
        return tuple(candidate.number for candidate in candidates)

    patch.setattr(policy, "choose_victims", all_of_them)


def claims_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    freeze = Draft.freeze

    def forgetful(self: Draft) -> State:
        for number, generation in self.generations.items():
            self.generations[number] = replace(generation, claimed_by=None)
        return freeze(self)

    patch.setattr(Draft, "freeze", forgetful)


def shrinking_ends_too_early(patch: pytest.MonkeyPatch) -> None:
    shrink = transitions._shrink

    def shrink_once(draft: Draft) -> None:
        shrink(draft)
        draft.shrinking = False

    patch.setattr(transitions, "RULES", tuple(shrink_once if r is shrink else r for r in transitions.RULES))


def quotas_are_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tenants, "quotas", lambda *_: [])


def guarantees_are_not_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tenants, "guaranteed", lambda *_: set())


def youth_is_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Draft, "is_young", lambda *_: False)


def queue_is_not_bounded(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pressure, "hopeless", lambda *_: None)


def evicted_worth_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    worth = policy.worth
    patch.setattr(policy, "worth", lambda _floor, uses, load_s, nbytes: worth(0.0, uses, load_s, nbytes))


def swap_drives_out_what_it_replaces(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Swap, "spared", ())


def waiters_stay_with_the_old_name(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Draft, "redirect", lambda *_: None)


def retired_model_is_closed_at_once(patch: pytest.MonkeyPatch) -> None:
    def close_all(draft: Draft, key: Any, _drain_by: float) -> None:
        for generation in [g for g in draft.generations.values() if g.key == key and g.phase is Phase.READY]:
            draft.unload(generation)

    patch.setattr(transitions, "_retire", close_all)


def walk(scenario: Scenario) -> Check:
    """Return the exploration of a scenario, as a check."""
    return lambda: explore(scenario) and None


SWITCHES: list[tuple[Switch, Check]] = [
    (second_reference, check_references),
    (second_reference_in_the_heart, walk(ROOMY)),
    (never_reserves, walk(ROOMY)),
    (bytes_never_come_back, walk(CONTENDED)),
    (measured_size_is_ignored, walk(MEASURED)),
    (jobs_run_where_the_state_is_kept, check_slow_unload),
    (flights_are_not_shared, walk(ROOMY)),
    (leader_takes_everybody_along, walk(ROOMY)),
    (holds_do_not_count, walk(SETS)),
    (hits_do_not_count_as_use, check_recency),
    (stuck_unload_blocks_for_good, walk(ORDERED)),
    (loads_first_and_makes_room_after, walk(CONTENDED)),
    (eviction_ignores_references, walk(CONTENDED)),
    (priority_is_not_used, check_priority),
    (gate_is_not_counted_again, check_race),
    (victims_are_not_planned_as_a_set, walk(CROWDED)),
    (claims_are_forgotten, check_claim),
    (shrinking_ends_too_early, walk(SHRUNK)),
    (quotas_are_not_looked_at, walk(RATIONED)),
    (guarantees_are_not_kept, walk(GUARANTEED)),
    (youth_is_not_looked_at, walk(YOUNG)),
    (queue_is_not_bounded, walk(QUEUED)),
    (evicted_worth_is_forgotten, check_ageing),
    (swap_drives_out_what_it_replaces, check_swap),
    (waiters_stay_with_the_old_name, walk(SWAPPED)),
    (retired_model_is_closed_at_once, walk(SWAPPED)),
]


@pytest.mark.parametrize(("switch", "check"), SWITCHES, ids=[switch.__name__ for switch, _ in SWITCHES])
def test_check_fails_when_a_known_mistake_is_put_back(
    switch: Switch, check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check passes as things are, and fails with the mistake."""
    check()
    switch(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check()
