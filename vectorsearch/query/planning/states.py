"""What the planner knows of the database at this moment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vectorsearch.models.model_state import ModelState


@dataclass(frozen=True, slots=True)
class FilterState:
    """How many documents a filter lets through, and the fields that it speaks of and no document has."""

    rows: int
    documents: int
    unknown_fields: tuple[str, ...] = ()

    @property
    def selectivity(self) -> float:
        """Return the share of the documents, 0 of none."""
        return self.rows / self.documents if self.documents else 0.0


@dataclass(frozen=True, slots=True)
class PlanState:
    """The database at this moment.

    `rerankers` are the models of the request's rerankers, in the order in which its stages name them; None for a
    function, whose cost per text is in `unit_ms` under its name. `unit_ms` holds what else was learned: `lexical` and
    `dense`, a query each. `filter` is None where there is no filter, or nobody has counted. `dense_kind` is the FAISS
    factory string of the dense index, or `exact`.
    """

    documents: int
    embedder: ModelState | None
    budget_nbytes: int
    rerankers: tuple[ModelState | None, ...] = ()
    unit_ms: Mapping[str, float] = field(default_factory=dict)
    filter: FilterState | None = None
    dense_kind: str = "exact"
