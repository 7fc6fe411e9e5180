"""Who must leave to make room: a pure choice, made over the whole set before any model is touched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Candidate:
    """A generation that may be asked to leave. `last_used` is the time of its last release, at first `ready_at`.

    It is `young` if its minimum residency is not over, and `own` if it belongs to the very tenant that asks, and that
    has more than its share.
    """

    number: int
    nbytes: int
    idle: bool
    priority: int
    ready_at: float
    last_used: float
    own: bool = False
    young: bool = False


def eviction_order(candidate: Candidate) -> tuple[bool, bool, bool, int, float, int]:
    """Return the sort key: idle before leased, young ones last, own ones first, higher priority number first, LRU."""
    return (
        not candidate.idle,
        candidate.young,
        not candidate.own,
        -candidate.priority,
        candidate.last_used,
        candidate.number,
    )


def choose_victims(short_nbytes: int, candidates: Iterable[Candidate]) -> tuple[int, ...] | None:
    """Return the generations that free at least `short_nbytes`, or None if all of them together don't.

    They are taken in `eviction_order`; then each that turned out not to be needed is put back, the most valuable
    first, so that no proper subset of the answer would do.
    """
    taken: list[Candidate] = []
    freed = 0
    for candidate in sorted(candidates, key=eviction_order):
        if freed >= short_nbytes:
            break
        taken.append(candidate)
        freed += candidate.nbytes
    if freed < short_nbytes:
        return None
    for candidate in reversed(taken.copy()):
        if freed - candidate.nbytes >= short_nbytes:
            taken.remove(candidate)
            freed -= candidate.nbytes
    return tuple(candidate.number for candidate in taken)
