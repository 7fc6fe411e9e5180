"""A state in the making: the mutable copy on which one step works, with the moves that several rules share.

Nothing outside a running `transitions.step` ever sees a draft.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lifecycle.config import LoadPolicy
from lifecycle.events import AdmissionExhausted, LoadFailure, ModelEvicted, ModelQuarantined
from lifecycle.heart import policy
from lifecycle.heart.signals import Broken, Effect, Exhausted, Refuse, Start
from lifecycle.heart.states import Admission, Generation, Job, Phase, State, Wish, after

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from collections.abc import Set as AbstractSet

    from lifecycle.config import InstanceKey
    from lifecycle.heart.signals import Why


class Draft:
    """The working copy of a `State`, and the effects so far. `changed` tells whether the rules must run again."""

    def __init__(self, state: State, now: float) -> None:
        self.limits = state.limits
        self.now = now
        self.models = dict(state.models)
        self.generations = dict(state.generations)
        self.queue = list(state.queue)
        self.wishes = list(state.wishes)
        self.next_generation = state.next_generation
        self.closing = state.closing
        self.shrinking = state.shrinking
        self.tenants = dict(state.tenants)
        self.inflation = state.inflation
        self.given_way: set[InstanceKey] = set()  # in this step: reserved again in the next one at the earliest
        self.newly_held: list[int] = []  # admissions that have got their room in this step
        self.has_loaded = False  # whether a job has ended in this step: only then can those who waited be served
        self.effects: list[Effect] = []
        self.changed = True

    def freeze(self) -> State:
        """Return the finished state."""
        return State(
            limits=self.limits,
            now=self.now,
            models=self.models,
            generations=self.generations,
            queue=tuple(self.queue),
            wishes=tuple(self.wishes),
            next_generation=self.next_generation,
            closing=self.closing,
            shrinking=self.shrinking,
            tenants=self.tenants,
            inflation=self.inflation,
        )

    # What is true now.

    @property
    def free(self) -> int:
        """Return the bytes that nobody is charged for; negative while there is a deficit."""
        return self.limits.budget_nbytes - sum(g.charged_nbytes for g in self.generations.values())

    @property
    def leaving(self) -> int:
        """Return the bytes that will be free as soon as leases end and jobs return, whatever anybody does."""
        out = (Phase.DRAINING, Phase.UNLOADING)
        return sum(g.charged_nbytes for g in self.generations.values() if g.phase in out)

    def claimed(self, by: Collection[int]) -> int:
        """Return the bytes that these admissions have claimed from leased generations."""
        return sum(g.charged_nbytes for g in self.generations.values() if g.claimed_by in by)

    def in_use(self, generation: Generation) -> bool:
        """Return whether a lease is open on it, or an admission holds it."""
        return generation.refs > 0 or any(generation.number in (a.generations or ()) for a in self.queue)

    def live(self, key: InstanceKey) -> Generation | None:
        """Return the generation that a new admission for the key would join."""
        return next((g for g in self.generations.values() if g.key == key and g.is_live), None)

    def joined(self, admission: Admission, key: InstanceKey) -> Generation | None:
        """Return the generation that an admission joins: the live one, or what is held around whoever asks."""
        live = self.live(key)
        if live is not None or not admission.under:
            return live
        held = [n for other in self.queue if other.number in admission.under for n in other.generations or ()]
        return next((g for number in held if (g := self.generations[number]).key == key), None)

    def is_blocked(self, key: InstanceKey) -> bool:
        """Return whether the fate of a generation of the key is undecided."""
        return any(g.key == key and g.is_blocking for g in self.generations.values())

    def is_failed(self, key: InstanceKey) -> bool:
        """Return whether the key is backing off after a failed load."""
        return self.now < self.models[key].retry_at

    def nbytes(self, keys: Iterable[InstanceKey]) -> int:
        """Return what loading these keys would reserve."""
        return sum(self.models[key].nbytes for key in keys)

    def set_nbytes(self, keys: Iterable[InstanceKey]) -> int:
        """Return what these keys take together: what is charged for the live ones, what the others would reserve."""
        return sum(g.charged_nbytes if (g := self.live(key)) else self.models[key].nbytes for key in keys)

    def candidates(self, protected: AbstractSet[InstanceKey]) -> list[policy.Candidate]:
        """Return whom an admission may ask to leave: whatever is open, not pinned and not protected."""
        return [
            self.candidate(g)
            for g in self.generations.values()
            if g.is_open and not self.models[g.key].config.pinned and g.key not in protected
        ]

    def gives_way(self, generation: Generation) -> bool:
        """Return whether it is only reserved, for nobody who waits: a wish's load that has not begun.

        One that has waited for `ageing_s` ranks with those that somebody waits for, so that it begins at last.
        """
        is_new = self.now - generation.reserved_at < self.limits.ageing_s
        return generation.phase is Phase.RESERVED and is_new and not self.in_use(generation)

    def unbegun(self, protected: AbstractSet[InstanceKey]) -> list[policy.Candidate]:
        """Return the reservations that give way to whoever waits; not even a pin holds what isn't there."""
        return [
            replace(self.candidate(g), unbegun=True)
            for g in self.generations.values()
            if g.key not in protected and self.gives_way(g)
        ]

    def claimed_and_idle(self, admission: Admission) -> list[policy.Candidate]:
        """Return those whose last lease an admission has waited for, and which nobody uses any more."""
        claimed = [g for g in self.generations.values() if g.claimed_by == admission.number]
        return [self.candidate(g) for g in claimed if not self.in_use(g)]

    def candidate(self, generation: Generation) -> policy.Candidate:
        """Return what the policy must know of a generation."""
        return policy.Candidate(
            number=generation.number,
            nbytes=generation.charged_nbytes,
            idle=not self.in_use(generation),
            eviction_rank=self.models[generation.key].config.eviction_rank,
            ready_at=generation.ready_at,
            last_used=generation.last_used,
            young=self.is_young(generation),
            worth=self._worth(generation),
        )

    def is_young(self, generation: Generation) -> bool:
        """Return whether it stays for its minimum residency; what was only prefetched has no claim to that."""
        age_s = self.now - generation.ready_at
        was_asked_for = not generation.eager or generation.last_used > generation.ready_at
        return was_asked_for and age_s < self.models[generation.key].config.min_residency_s

    def _worth(self, generation: Generation) -> float:
        if self.limits.eviction == "lru":
            return 0.0
        load_s = self.models[generation.key].load_s or 0.0
        return policy.worth(generation.floor, 1 + generation.hits, load_s, generation.charged_nbytes)

    # Moves.

    def put(self, generation: Generation, **changes: Any) -> Generation:  # noqa: ANN401 - fields of Generation
        """Store a generation, changed or new."""
        self.has_loaded |= "job" in changes and changes["job"] is None
        self.generations[generation.number] = replace(generation, **changes)
        self.changed = True
        return self.generations[generation.number]

    def remove(self, generation: Generation) -> None:
        """Forget a generation: its bytes are free."""
        del self.generations[generation.number]
        self.changed = True

    def reserve(self, key: InstanceKey, *, eager: bool) -> Generation:
        """Charge the key's bytes to a new generation."""
        nbytes = self.models[key].nbytes
        number, self.next_generation = self.next_generation, self.next_generation + 1
        return self.put(
            Generation(
                number, key, Phase.RESERVED, nbytes, nbytes, eager=eager, reserved_at=self.now, floor=self.inflation
            )
        )

    def start(self, generation: Generation, phase: Phase, job: Job, deadline: float) -> None:
        """Enter a phase in which backend code runs."""
        self.put(generation, phase=phase, job=job, deadline=deadline, claimed_by=None)
        self.effects.append(Start(generation.number, job))

    def unload(self, generation: Generation) -> None:
        """Close an instance that nobody uses."""
        self.start(generation, Phase.UNLOADING, Job.UNLOAD, after(self.now, self.limits.unload_timeout_s))

    def evict(self, generation: Generation) -> None:
        """Close an idle instance to make room. An eager one comes back by itself, into room that nobody else wants."""
        if generation.phase is Phase.RESERVED:
            self.give_way(generation)
            return
        self.inflation = max(self.inflation, self._worth(generation))
        self.effects.append(ModelEvicted(generation.key, generation.number, generation.charged_nbytes))
        self.unload(generation)
        if self.models[generation.key].config.load_policy is LoadPolicy.EAGER:
            self.wish(generation.key, eager=True)

    def give_way(self, generation: Generation) -> None:
        """Drop a reservation for the sake of somebody who waits; an eager one is still wished for, a prefetch isn't."""
        self.remove(generation)
        self.given_way.add(generation.key)
        if self.models[generation.key].config.load_policy is LoadPolicy.EAGER:
            self.wish(generation.key, eager=True)

    def quarantine(self, generation: Generation, error: BaseException | None = None) -> None:
        """Give up on an instance without giving its bytes back."""
        self.put(generation, phase=Phase.QUARANTINED, deadline=math.inf, error=error)
        self.effects.append(
            ModelQuarantined(generation.key, generation.number, generation.charged_nbytes, error),
        )

    def fail(self, generation: Generation, error: BaseException) -> None:
        """Back the key off, and refuse everybody who holds this generation, which has left already."""
        model = self.models[generation.key]
        wait_s = self.limits.backoff_after(model.failures + 1)
        self.models[model.key] = replace(
            model, failures=model.failures + 1, retry_at=after(self.now, wait_s), error=error
        )
        self.effects.append(LoadFailure(model.key, generation.number, error, wait_s))
        for admission in self.queue.copy():
            if generation.number in (admission.generations or ()):
                self.refuse(admission, Broken(model.key, error, wait_s))
        if model.config.load_policy is LoadPolicy.EAGER:
            self.wish(model.key, eager=True)

    def hold(self, admission: Admission, generations: tuple[int, ...]) -> None:
        """Let an admission have its set: from now on none of it is idle."""
        self.queue[self._place(admission.number)] = replace(admission, generations=generations)
        self.newly_held.append(admission.number)
        for generation in [self.generations[number] for number in generations]:
            if not admission.tenants <= generation.asked_by:
                self.put(generation, asked_by=generation.asked_by | admission.tenants)
        self._drop_claims(admission)

    def redirect(self, admission: Admission, keys: tuple[InstanceKey, ...], spared: tuple[InstanceKey, ...]) -> None:
        """Let an admission wait for other keys; what it held or claimed for the sake of the old ones is let go."""
        generations = admission.generations if keys == admission.keys else None
        moved = replace(admission, keys=keys, spared=spared, generations=generations)
        self.queue[self._place(admission.number)] = moved
        self._drop_claims(admission)

    def end(self, admission: Admission) -> None:
        """Take an admission out of the queue, served or not."""
        place = self._place(admission.number)
        if self.queue[place : place + 1] and self.queue[place].number == admission.number:
            del self.queue[place]
        self._drop_claims(admission)

    def admissions(self, numbers: Iterable[int]) -> list[Admission]:
        """Return those of these admissions that are in the queue."""
        places = [(number, self._place(number)) for number in numbers]
        return [entry for number, place in places for entry in self.queue[place : place + 1] if entry.number == number]

    def _place(self, number: int) -> int:
        """Return the place in the queue of an admission, or of the next one: numbers rise."""
        return bisect_left(self.queue, number, key=lambda other: other.number)

    def _drop_claims(self, admission: Admission) -> None:
        """Open what the admission had claimed and did not need; nothing else ever opens a claim."""
        for generation in list(self.generations.values()):
            if generation.claimed_by == admission.number:
                self.put(generation, claimed_by=None)
        self.changed = True

    def refuse(self, admission: Admission, why: Why) -> None:
        """End an admission unserved."""
        self.end(admission)
        self.effects.append(Refuse(admission.number, why))
        if isinstance(why, Exhausted):
            self.effects.append(AdmissionExhausted(admission.keys[0], 0, why.needed_nbytes))

    def wish(self, key: InstanceKey, *, eager: bool, tenants: frozenset[str] = frozenset(), left: bool = False) -> None:
        """Ask for a load that nobody waits for, once: an eager one and another may stand beside each other."""
        if self.closing or self.models[key].retired:
            return
        if self.live(key) is None and all((wish.key, wish.eager) != (key, eager) for wish in self.wishes):
            self.wishes.append(Wish(key, eager, tenants, left))
            self.changed = True
