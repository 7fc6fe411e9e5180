"""Who gets room, and in which order: the two rules of `transitions` that decide over the budget.

Admissions are served in the order in which they came. A later one may overtake only with bytes that no earlier one
waits for: each is weighed as if all earlier ones had already taken theirs. Sets hold nothing while they wait, so two
of them can't block each other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lifecycle import policy
from lifecycle.signals import Broken, Exhausted
from lifecycle.states import Admission, Phase

if TYPE_CHECKING:
    from lifecycle.config import InstanceKey
    from lifecycle.draft import Draft
    from lifecycle.states import Generation


@dataclass(slots=True)
class _Earlier:
    """What the admissions before this one wait for."""

    admissions: set[int] = field(default_factory=set)
    missing: set[InstanceKey] = field(default_factory=set)
    keys: set[InstanceKey] = field(default_factory=set)


def admit(draft: Draft) -> None:
    """Reserve the whole set of every admission that fits, and make room for those that don't yet."""
    earlier = _Earlier()
    for entry in draft.queue.copy():
        if entry.generations is not None:
            continue
        why = _hopeless(draft, entry)
        if why is not None:
            draft.refuse(entry, why)
            continue
        missing = {key for key in entry.keys if draft.live(key) is None}
        if any(draft.is_blocked(key) for key in missing):
            fits = False
        else:
            if missing and entry.deadline > draft.now:
                _make_room(draft, entry, missing, earlier)
            fits = not missing or _fits(draft, missing, earlier)
        if fits:
            held = [draft.live(key) or draft.reserve(key, eager=False) for key in entry.keys]
            draft.hold(entry, tuple(generation.number for generation in held))
        else:
            earlier.admissions.add(entry.number)
            earlier.missing |= missing
            earlier.keys |= set(entry.keys)


def _hopeless(draft: Draft, entry: Admission) -> Exhausted | Broken | None:
    """Say why waiting can't help: a key is backing off, or the set is larger than all that can ever be freed."""
    missing = [key for key in entry.keys if draft.live(key) is None]
    for key in missing:
        model = draft.models[key]
        if draft.is_failed(key) and model.error is not None:
            return Broken(key, model.error, model.retry_at - draft.now)
    fixed = sum(
        g.charged_nbytes
        for g in draft.generations.values()
        if g.phase is Phase.QUARANTINED or (g.is_live and g.key not in entry.keys and _stays(draft, entry, g))
    )
    needed = draft.set_nbytes(entry.keys)
    return Exhausted(needed) if missing and needed > draft.limits.budget_nbytes - fixed else None


def _stays(draft: Draft, entry: Admission, generation: Generation) -> bool:
    return generation.key in entry.spared or draft.models[generation.key].config.pinned


def _short(draft: Draft, missing: set[InstanceKey], earlier: _Earlier, claims: set[int]) -> int:
    """Return the bytes still to be found for these keys and all earlier ones, beyond what is free or leaving."""
    return draft.nbytes(missing | earlier.missing) - draft.free - draft.leaving - draft.claimed(claims)


def _fits(draft: Draft, missing: set[InstanceKey], earlier: _Earlier) -> bool:
    """Return whether the keys fit now, without taking what an earlier admission waits for."""
    return draft.nbytes(missing) <= draft.free and _short(draft, missing, earlier, earlier.admissions) <= 0


def _make_room(draft: Draft, entry: Admission, missing: set[InstanceKey], earlier: _Earlier) -> None:
    """Evict idle models and claim leased ones: the whole plan, or nothing if it would not be enough."""
    everybody = earlier.admissions | {entry.number}
    short = _short(draft, missing, earlier, everybody)
    if short > 0:
        candidates = draft.candidates(earlier.keys | {*entry.keys, *entry.spared})
        for number in policy.choose_victims(short, candidates) or ():
            draft.put(draft.generations[number], claimed_by=entry.number)
    # A claimed model is closed at its last release, unless the room has come from elsewhere by then.
    idle = draft.claimed_and_idle(entry)
    short = _short(draft, missing, earlier, earlier.admissions)
    enough = policy.choose_victims(short, idle)
    for number in [candidate.number for candidate in idle] if enough is None else enough:
        draft.evict(draft.generations[number])


def grant_wishes(draft: Draft) -> None:
    """Load what nobody waits for, behind everybody who does: into free room, or for a prefetch that of idle models.

    A prefetch that can't have its room now is dropped, and never costs a model that was loaded and not yet used.
    """
    waiting = [entry for entry in draft.queue if entry.generations is None]
    earlier = _Earlier(
        admissions={entry.number for entry in waiting},
        missing={key for entry in waiting for key in entry.keys if draft.live(key) is None},
        keys={key for entry in waiting for key in entry.keys},
    )
    for wish in draft.wishes.copy():
        key = wish.key
        undecided = draft.is_failed(key) or draft.is_blocked(key)
        short = _short(draft, {key}, earlier, earlier.admissions)
        if not (undecided or wish.eager or draft.live(key)) and short > 0:
            idle = [c for c in draft.candidates(earlier.keys) if c.idle and c.last_used > c.ready_at]
            for number in policy.choose_victims(short, idle) or ():
                draft.evict(draft.generations[number])
            short = _short(draft, {key}, earlier, earlier.admissions)
        if draft.live(key) or (not wish.eager and (undecided or short > 0)):
            draft.wishes.remove(wish)
        elif not undecided and _fits(draft, {key}, earlier):
            draft.wishes.remove(wish)
            draft.reserve(key, eager=True)
        elif not undecided and short <= 0:
            earlier.missing.add(key)
