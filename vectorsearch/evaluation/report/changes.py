"""The queries that a system changed most, and the documents that a report shows of them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vectorsearch.evaluation.comparing.comparison import Comparison

SHOWN_QUERIES = 10
SHOWN_DOCUMENTS = 5

_EQUAL = 1e-9


@dataclass(frozen=True, slots=True)
class Change:
    """One query's value of the first measure, of the baseline and of the system."""

    query_id: str
    before: float
    after: float

    @property
    def difference(self) -> float:
        """Return what the query gained."""
        return self.after - self.before


def gained_most(comparison: Comparison, system: str, n: int = SHOWN_QUERIES) -> list[Change]:
    """Return the at most n queries that gained most on the first measure, the largest gain first."""
    return [change for change in _changes(comparison, system)[:n] if change.difference > _EQUAL]


def lost_most(comparison: Comparison, system: str, n: int = SHOWN_QUERIES) -> list[Change]:
    """Return the at most n queries that lost most on the first measure, the largest loss first."""
    return [change for change in _changes(comparison, system)[::-1][:n] if change.difference < -_EQUAL]


def shown_documents(comparison: Comparison, rankings: Mapping[str, Mapping[str, Sequence[str]]]) -> set[str]:
    """Return the ids of the documents that stand side by side in the report."""
    shown: set[str] = set()
    for system in comparison.others:
        for change in [*gained_most(comparison, system), *lost_most(comparison, system)]:
            for name in (comparison.baseline, system):
                shown.update(rankings[name].get(change.query_id, ())[:SHOWN_DOCUMENTS])
    return shown


def _changes(comparison: Comparison, system: str) -> list[Change]:
    """Return all queries, the largest gain first; equal ones in the order of the queries."""
    primary = comparison.measures[0]
    before, after = comparison.values[comparison.baseline][primary], comparison.values[system][primary]
    order = np.argsort(before - after, kind="stable")
    return [Change(comparison.queries[i], float(before[i]), float(after[i])) for i in order]
