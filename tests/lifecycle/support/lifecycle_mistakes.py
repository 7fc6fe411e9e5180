"""The mistakes of the usual sketch, and some others: each function puts one back into the product for one test."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lifecycle import Chain
from lifecycle.events import ModelExpired
from lifecycle.heart import admission, policy, pressure, signals, tenants, transitions
from lifecycle.heart.draft import Draft
from lifecycle.heart.states import Generation, Job, Phase, State, ttl_of
from lifecycle.keeping.keeper import Keeper, Watch
from lifecycle.leasing.handle import ModelHandle
from lifecycle.leasing.lease import Lease, LeaseBase
from lifecycle.registering.swap import Swap

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    Rule = Callable[[Draft], None]


def change_rule(patch: pytest.MonkeyPatch, old: Rule, *new: Rule) -> None:
    """Put other rules in one rule's place, or none."""
    rules = [(rule,) if rule is not old else new for rule in transitions.RULES]
    patch.setattr(transitions, "RULES", tuple(rule for some in rules for rule in some))


def second_reference(patch: pytest.MonkeyPatch) -> None:
    give = LeaseBase.give

    def give_two(self: LeaseBase, handles: tuple[ModelHandle, ...]) -> None:
        give(self, handles)
        for handle in handles:
            handle.grant(-id(self))

    patch.setattr(LeaseBase, "give", give_two)


def second_reference_in_the_heart(patch: pytest.MonkeyPatch) -> None:
    def grant_twice(draft: Draft) -> None:
        before = len(draft.effects)
        transitions._grant(draft)
        for effect in draft.effects[before:]:
            for number in getattr(effect, "generations", ()):
                draft.put(draft.generations[number], refs=draft.generations[number].refs + 1)

    change_rule(patch, transitions._grant, grant_twice)


def never_reserves(patch: pytest.MonkeyPatch) -> None:
    reserve = Draft.reserve

    def reserve_nothing(self: Draft, key: Any, *, eager: bool) -> Generation:
        return self.put(reserve(self, key, eager=eager), charged_nbytes=0)

    patch.setattr(Draft, "reserve", reserve_nothing)


def bytes_never_come_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Draft, "remove", lambda self, generation: self.put(generation, job=None))


def what_is_held_is_not_lent(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Draft, "joined", lambda self, _admission, key: self.live(key))


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
                self.refuse(other, signals.TimedOut("load"))

    patch.setattr(Draft, "end", end_all)


def holds_do_not_count(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Draft, "in_use", lambda _self, generation: generation.refs > 0)


def hits_do_not_count_as_use(patch: pytest.MonkeyPatch) -> None:
    def release(self: LeaseBase, *_: object) -> None:
        for handle in self.handles:
            handle.tokens.discard(id(self))
        self._is_open = False

    patch.setattr(LeaseBase, "release", release)
    patch.setattr(Lease, "__exit__", release)


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
        held = {number for other in self.queue for number in other.generations or ()}
        claimed = [g for g in self.generations.values() if g.claimed_by == entry.number]
        return [self.candidate(g) for g in claimed if g.number not in held]

    patch.setattr(Draft, "claimed_and_idle", all_claimed)


def priority_is_not_used(patch: pytest.MonkeyPatch) -> None:
    order = policy.eviction_order
    patch.setattr(policy, "eviction_order", lambda candidate: order(replace(candidate, eviction_rank=0)))


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

    change_rule(patch, shrink, shrink_once)


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


def fallback_skips_the_admission(patch: pytest.MonkeyPatch) -> None:
    attempt = Chain._attempt

    def load_unasked(self: Chain, step: Any, work: Any, *rest: Any) -> Any:
        if step is self._steps[0]:
            return attempt(self, step, work, *rest)
        instance = self.manager._names.instance_of(step.ref)
        return work(instance.loader.load_model(instance.spec), self.manager.lease(step.ref))

    patch.setattr(Chain, "_attempt", load_unasked)


def room_is_made_before_the_lookup(patch: pytest.MonkeyPatch) -> None:
    def make_room(draft: Draft) -> None:
        for key in [key for entry in draft.queue if entry.generations is None for key in entry.keys]:
            idle = [candidate for candidate in draft.candidates({key}) if candidate.idle]
            for number in policy.choose_victims(draft.models[key].nbytes - draft.free, idle) or ():
                draft.evict(draft.generations[number])

    change_rule(patch, admission.admit, make_room, admission.admit)


def bytes_are_free_when_close_begins(patch: pytest.MonkeyPatch) -> None:
    unload = Draft.unload

    def unload_and_forget(self: Draft, generation: Generation) -> None:
        unload(self, generation)
        self.remove(generation)

    patch.setattr(Draft, "unload", unload_and_forget)


def failed_unload_frees_its_bytes(patch: pytest.MonkeyPatch) -> None:
    failed = transitions._job_failed

    def forget(draft: Draft, generation: Generation, error: BaseException, *, loaded: bool) -> None:
        if generation.job is Job.UNLOAD:
            draft.remove(generation)
        else:
            failed(draft, generation, error, loaded=loaded)

    patch.setattr(transitions, "_job_failed", forget)


def failed_unload_raises_no_alarm(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        Draft, "quarantine", lambda self, generation, _error=None: self.put(generation, phase=Phase.QUARANTINED)
    )


def lease_is_returned_to_the_name(patch: pytest.MonkeyPatch) -> None:
    def release(self: LeaseBase, *_: object) -> None:
        for handle in filter(None, map(self._desk.open_handles.get, self.refs)):
            handle.release(id(self), self._desk.clock())
        self._is_open = False

    patch.setattr(LeaseBase, "release", release)
    patch.setattr(Lease, "__exit__", release)


def jobs_are_started_twice(patch: pytest.MonkeyPatch) -> None:
    start = Draft.start

    def start_twice(self: Draft, *job: Any) -> None:
        start(self, *job)
        self.effects.append(self.effects[-1])

    patch.setattr(Draft, "start", start_twice)


def time_to_live_runs_during_use(patch: pytest.MonkeyPatch) -> None:
    def expire(draft: Draft) -> None:
        for generation in [g for g in draft.generations.values() if g.phase is Phase.READY]:
            if generation.last_used + ttl_of(draft.models[generation.key], generation) <= draft.now:
                draft.effects.append(ModelExpired(generation.key, generation.number, generation.charged_nbytes))
                draft.unload(generation)

    change_rule(patch, transitions._let_go, expire, transitions._let_go)


def overdue_jobs_are_waited_for(patch: pytest.MonkeyPatch) -> None:
    change_rule(patch, transitions._quarantine_the_overdue)


def callers_wait_for_ever(patch: pytest.MonkeyPatch) -> None:
    change_rule(patch, transitions._refuse_the_late)


def closing_refuses_nobody(patch: pytest.MonkeyPatch) -> None:
    refuse = Draft.refuse
    patch.setattr(
        Draft, "refuse", lambda self, entry, why: None if why == signals.Closed() else refuse(self, entry, why)
    )


def closing_unloads_nothing(patch: pytest.MonkeyPatch) -> None:
    def only_refuse(draft: Draft, _drain_by: float) -> None:
        draft.closing, draft.wishes = True, []
        for entry in draft.queue.copy():
            draft.refuse(entry, signals.Closed())

    patch.setattr(transitions, "_close_asked", only_refuse)


def refused_sets_count_as_use(patch: pytest.MonkeyPatch) -> None:
    def release(self: LeaseBase) -> None:
        for handle in self.handles:
            handle.count()
        LeaseBase.release(self)

    patch.setattr(LeaseBase, "_take_back", release)


def reservations_hold_the_budget(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Draft, "unbegun", lambda *_: [])


def guarantees_end_for_who_might_ask(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tenants, "beneficiaries", lambda draft, keys, _asking=(): tenants.users(draft, keys))


def unloads_wait_for_others(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Watch, "is_over", lambda self, state: self.holds(state))


def last_drain_decides_for_all(patch: pytest.MonkeyPatch) -> None:
    def overwrite(draft: Draft, key: Any, drain_by: float) -> None:
        for generation in [g for g in draft.generations.values() if g.key == key and (g.is_live or g.is_blocking)]:
            draft.put(generation, drain_by=drain_by)

    patch.setattr(transitions, "_unload_asked", overwrite)


def protection_never_ends(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        admission,
        "_lasts",
        lambda _draft, candidate, _wish: candidate.young or candidate.last_used <= candidate.ready_at,
    )
