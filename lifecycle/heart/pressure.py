"""Whom to refuse at once, because waiting would be of no use: pure questions about a draft.

A load is expected to take as long as the fastest one of its key so far, so that one slow load in the past keeps nobody
out. What was never loaded is expected to take no time at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lifecycle.heart.signals import Full, TooSlow
from lifecycle.heart.states import Phase

if TYPE_CHECKING:
    from lifecycle.config import InstanceKey
    from lifecycle.heart.draft import Draft
    from lifecycle.heart.states import Admission, Generation

_RETRY_AFTER_S = 1.0  # where nothing is known


def hopeless(draft: Draft, entry: Admission) -> Full | TooSlow | None:
    """Say why a newcomer need not wait: its models can't be loaded in its time, or too many wait already.

    Never for one that is served at once, nor for one that would not wait anyway.
    """
    live = [draft.joined(entry, key) for key in entry.keys]
    expected_s = max(_load_s(draft, key, generation) for key, generation in zip(entry.keys, live, strict=True))
    if entry.deadline <= draft.now or all(g is not None and g.is_loaded for g in live):
        return None
    if draft.now + expected_s > entry.deadline:
        return TooSlow(expected_s)
    is_full = draft.limits.max_waiters is not None and len(draft.queue) > draft.limits.max_waiters
    return Full(retry_after_s(draft)) if is_full else None


def retry_after_s(draft: Draft) -> float:
    """Return when the first of the running loads should be done."""
    running = {g.key for g in draft.generations.values() if g.phase in {Phase.LOADING, Phase.WARMING}}
    return min((left for key in running if (left := _load_s(draft, key, draft.live(key))) > 0), default=_RETRY_AFTER_S)


def _load_s(draft: Draft, key: InstanceKey, generation: Generation | None) -> float:
    """Return how long it should still take until a key is loaded, and this is the generation that comes of it."""
    if generation is not None and generation.is_loaded:
        return 0.0
    is_running = generation is not None and generation.phase is not Phase.RESERVED
    passed_s = draft.now - generation.loading_since if generation is not None and is_running else 0.0
    return max(0.0, (draft.models[key].load_s or 0.0) - passed_s)
