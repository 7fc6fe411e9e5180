"""`Reading`: what the process had in memory at one moment, and which other models that counts."""

from __future__ import annotations

from typing import NamedTuple


class Reading(NamedTuple):
    """Resident memory, which other generations were there, and what says that nothing else happened in between."""

    nbytes: int
    residents: frozenset[int]
    others: tuple[object, ...]
