"""`Tally`: what has happened since a manager was made. The keeper's thread writes it, reading is safe anywhere."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from lifecycle import events
from lifecycle.snapshot import Counters

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lifecycle.config import InstanceKey
    from lifecycle.leasing.handle import ModelHandle


class Tally:
    """Counts of events, of loads by key, and of what the handles of generations that are gone had counted."""

    def __init__(self) -> None:
        self.loads: Counter[InstanceKey] = Counter()
        self.past_hits: Counter[InstanceKey] = Counter()
        self.past_misses: Counter[InstanceKey] = Counter()
        self.cold_leases = 0
        self._events: Counter[type[events.Event]] = Counter()
        self._eager_loads = 0
        self._past_peak = 0

    def note(self, event: events.Event) -> None:
        """Count an event."""
        self._events[type(event)] += 1
        if isinstance(event, events.ModelReady):
            self.loads[event.key] += 1
            self._eager_loads += event.eager

    def keep(self, handle: ModelHandle) -> None:
        """Remember what a handle has counted, since it is about to be forgotten."""
        self.past_hits[handle.key] += handle.hits
        self.past_misses[handle.key] += handle.misses
        self._past_peak = max(self._past_peak, handle.peak)

    def counters(self, handles: Iterable[ModelHandle], *, dropped_events: int) -> Counters:
        """Return all counts, given the handles that are there now."""
        counts = self._events
        return Counters(
            lazy_loads=counts[events.ModelReady] - self._eager_loads,
            eager_loads=self._eager_loads,
            cold_leases=self.cold_leases,
            load_failures=counts[events.LoadFailure],
            evictions=counts[events.ModelEvicted],
            expirations=counts[events.ModelExpired],
            replacements=counts[events.ModelReplaced],
            unloads=counts[events.ModelUnloaded],
            budget_exhausted=counts[events.AdmissionExhausted],
            quarantined=counts[events.ModelQuarantined],
            fallbacks=counts[events.FellBack],
            leaked_leases=counts[events.LeaseLeaked],
            dropped_events=dropped_events,
            peak_references=max([self._past_peak, *(handle.peak for handle in handles)]),
        )
