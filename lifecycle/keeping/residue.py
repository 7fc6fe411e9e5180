"""What runtimes keep of models that were unloaded: measured around every job, and told.

A generation's load and warm-up take memory, its unload gives some back; what is missing is residue. Resident memory is
the whole process's, so a job's change counts as the model's only where nothing else that the manager knows of happened
meanwhile: no other job, no open lease and no hit on another model. What can't be told apart is not counted.

What is missing is counted twice, and the smaller figure holds: as what the jobs took less what they gave back, which
misses what a job's thread frees as it ends, and as the difference between before the load and after the unload, which
holds what the program has taken in between.

Much of what is seen is not a leak: a runtime's own code comes with the first load of its backend, so that is left out;
the program allocates while a model loads, so no model counts for more than it was charged; allocators hold some tens of
megabytes at one reading and not at the next, so gains and losses are summed up, what is found given back before the
next load included, and a sum is told only once it is a whole model's worth. It is still a reading of the whole
process, so it is told and the budget stays as it is.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from lifecycle.heart.states import Job
from lifecycle.keeping.reading import Reading

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lifecycle.heart.states import State
    from lifecycle.leasing.handle import ModelHandle

_STATM = Path("/proc/self/statm")
_LEAST_NBYTES = 4 << 20  # a sum is told from this, and from what the backend's largest load took


def resident_nbytes() -> int | None:
    """Return this process's resident memory without the pages of files, in bytes; None where Linux doesn't say."""
    try:
        _, resident, shared, *_ = map(int, _STATM.read_text(encoding="ascii").split())
    except (OSError, ValueError):
        return None
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


def measure(
    resident: Callable[[], int | None], generation: int, state: State, handles: Mapping[int, ModelHandle]
) -> Reading | None:
    """Return a reading for the sake of one generation, or None while another one is at work."""
    others = [handle for number, handle in handles.items() if number != generation]
    is_quiet = not any(g.job for g in state.generations.values() if g.number != generation)
    if not is_quiet or any(handle.refs for handle in others):
        return None
    nbytes = resident()
    hits = [(handle.generation, handle.hits) for handle in others]
    if nbytes is None:
        return None
    return Reading(nbytes, frozenset(handle.generation for handle in others), (state.next_generation, *hits))


class Residue:
    """What each backend's runtime has kept so far; the keeper's thread writes it, reading is safe anywhere."""

    def __init__(self) -> None:
        self.by_backend: Mapping[str, int] = {}
        self._sums: dict[str, int] = {}
        self._largest: dict[str, int] = {}
        self._last: tuple[str, Reading] | None = None  # the backend and the end of the unload that was counted last

    def note(
        self, handle: ModelHandle, job: Job, before: Reading | None, after: Reading | None, *, charged_nbytes: int
    ) -> int:
        """Take the readings around a job into account, and return by how many bytes the residue has grown."""
        change = after.nbytes - before.nbytes if before and after and before.others == after.others else None
        backend = handle.key.backend
        if job is Job.LOAD:
            handle.taken_nbytes, handle.loaded_from = change if backend in self._sums else None, before
            self._sums.setdefault(backend, 0)
            self._credit(before)
        elif handle.taken_nbytes is not None and change is not None:
            handle.taken_nbytes += change
            start, end = handle.loaded_from, after
            if job is Job.UNLOAD and start and end and start.residents == end.residents:
                self._last = backend, end
                kept = min(handle.taken_nbytes, end.nbytes - start.nbytes, charged_nbytes)
                return self._add(backend, kept, handle.taken_nbytes - change)
        else:
            handle.taken_nbytes = None
        return 0

    def _credit(self, now: Reading | None) -> None:
        """Take off what has come back since the last unload: its thread frees some as it ends, after the reading."""
        if self._last is not None and now is not None and now.residents == self._last[1].residents:
            backend, end = self._last
            self._add(backend, min(0, now.nbytes - end.nbytes), 0)
        self._last = None

    def _add(self, backend: str, kept: int, taken: int) -> int:
        total = self._sums[backend] = max(0, self._sums[backend] + kept)
        largest = self._largest[backend] = max(taken, self._largest.get(backend, 0))
        told = total if total >= max(_LEAST_NBYTES, largest) else 0
        before = self.by_backend.get(backend, 0)
        others = {name: nbytes for name, nbytes in self.by_backend.items() if name != backend}
        self.by_backend = others | ({backend: told} if told else {})
        return told - before
