"""Who must leave to make room: a pure choice, made over the whole set before any model is touched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Candidate:
    """A generation that may be asked to leave. `last_used` is the time of its last release, at first `ready_at`.

    It is `young` if its minimum residency is not over. If it belongs to the very tenant that asks, it is `own` where
    that has more than its share, and `sure` where all that it has is within its guarantee. One that is `unbegun` is no
    instance yet: its load, for which nobody waits, has not begun.
    """

    number: int
    nbytes: int
    idle: bool
    eviction_rank: int
    ready_at: float
    last_used: float
    own: bool = False
    sure: bool = False
    young: bool = False
    worth: float = 0.0
    unbegun: bool = False


def worth(floor: float, uses: int, load_s: float, nbytes: int) -> float:
    """Return what it is worth to keep a model: GreedyDual-Size-Frequency, H = L + F * C / S.

    `floor` (L) is the highest worth of all that was evicted before this model's last use, so that what is not used any
    more ages beside what is; `uses` (F) counts since the load, `load_s` (C) is what loading it again would cost.

    Source: Cherkasova (1998), "Improving WWW proxies performance with Greedy-Dual-Size-Frequency caching policy",
    HP Laboratories report HPL-98-69R1, section 3.
    """
    return floor + uses * load_s / max(1, nbytes)


def eviction_order(candidate: Candidate) -> tuple[bool, bool, bool, bool, bool, int, float, float, int]:
    """Return the sort key: unbegun and idle first, sure and young last, own first, then rank, worth, last use."""
    return (
        not candidate.unbegun,
        not candidate.idle,
        candidate.sure,
        candidate.young,
        not candidate.own,
        -candidate.eviction_rank,
        candidate.worth,
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
