"""What runtimes keep of models that were unloaded: measured around every job, told, and taken off the budget.

A generation's load and warm-up take memory, its unload gives some back; what is missing is residue. Resident memory is
the whole process's, so a job's change counts as the model's only where nothing else that the manager knows of happened
meanwhile: no other job, no open lease and no hit on another model. What can't be told apart is not counted.

Much of what is seen is not a leak: a runtime's own code comes with the first load of its backend, so that is left out;
allocators hold some megabytes at one reading and not at the next; the program allocates while a model loads. So an
unload counts only if it gave back clearly less (or more) than its load took, and never for more than the model was
charged; and the budget is lowered only once the sum is a good part of it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from lifecycle.states import Job

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lifecycle.handle import ModelHandle
    from lifecycle.states import State

_STATM = Path("/proc/self/statm")
_PART_OF_LOAD = 4  # an unload that is off by less than a fourth of what the load took has given all back
_LEAST_NBYTES = 4 << 20  # and so has one that is off by less than this
_PART_OF_BUDGET = 10  # up to a tenth of the budget, residue is told but not taken off


def resident_nbytes() -> int | None:
    """Return this process's resident memory without the pages of files, in bytes; None where Linux doesn't say."""
    try:
        _, resident, shared, *_ = map(int, _STATM.read_text(encoding="ascii").split())
    except (OSError, ValueError):
        return None
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


class Reading(NamedTuple):
    """Resident memory, and what else the manager knew at that moment: two readings compare if that is the same."""

    nbytes: int
    others: tuple[object, ...]


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
    return None if nbytes is None else Reading(nbytes, (state.next_generation, *hits))


class Residue:
    """What each backend's runtime has kept so far; the keeper's thread writes it, reading is safe anywhere."""

    def __init__(self) -> None:
        self.by_backend: Mapping[str, int] = {}
        self._backends: set[str] = set()

    @property
    def nbytes(self) -> int:
        """Return what all backends have kept."""
        return sum(self.by_backend.values())

    def off(self, budget_nbytes: int) -> int:
        """Return how much of a budget can't be used because of it."""
        return self.nbytes if self.nbytes * _PART_OF_BUDGET > budget_nbytes else 0

    def note(
        self, handle: ModelHandle, job: Job, before: Reading | None, after: Reading | None, *, charged_nbytes: int
    ) -> int:
        """Take the readings around a job into account, and return by how many bytes the residue has grown."""
        change = after.nbytes - before.nbytes if before and after and before.others == after.others else None
        backend = handle.key.backend
        if job is Job.LOAD:
            handle.taken_nbytes = change if backend in self._backends else None
            self._backends.add(backend)
        elif handle.taken_nbytes is not None and change is not None:
            handle.taken_nbytes += change
            if job is Job.UNLOAD:
                taken = handle.taken_nbytes - change
                return self._add(backend, min(handle.taken_nbytes, charged_nbytes), taken)
        else:
            handle.taken_nbytes = None
        return 0

    def _add(self, backend: str, kept: int, taken: int) -> int:
        if abs(kept) < max(_LEAST_NBYTES, taken // _PART_OF_LOAD):
            return 0
        before = self.by_backend.get(backend, 0)
        self.by_backend = {**self.by_backend, backend: max(0, before + kept)}
        return self.by_backend[backend] - before
