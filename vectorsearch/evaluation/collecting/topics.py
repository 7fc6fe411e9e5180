"""Queries with judgments: what systems are asked, and what their answers are held against."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping


class Judged(Protocol):
    """Queries with judgments, such as a `TestCollection` or `Topics`."""

    @property
    def queries(self) -> Mapping[str, str]:
        """Return query id to text, in the order of the judgments."""

    @property
    def qrels(self) -> Mapping[str, Mapping[str, int]]:
        """Return query id to {document id: grade}."""


@dataclass(frozen=True, slots=True)
class Topics:
    """Queries with judgments: query id to text, and query id to {document id: grade}.

    `notes` are what a reader of figures should know of the files that they come from.
    """

    queries: Mapping[str, str]
    qrels: Mapping[str, Mapping[str, int]]
    notes: tuple[str, ...] = ()

    @classmethod
    def first(cls, judged: Judged, limit: int | None) -> Topics:
        """Return the first `limit` queries, in the order of the judgments; all if None."""
        queries = dict(islice(judged.queries.items(), limit))
        notes = tuple(getattr(judged, "notes", ()))
        return cls(queries, {query: judged.qrels[query] for query in queries}, notes)
