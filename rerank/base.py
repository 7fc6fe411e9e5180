"""What a reranker is: a name, and scores for the texts that a first stage found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from backends.errors import VectorSearchError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from backends.deadline import Deadline


class RerankError(VectorSearchError):
    """A reranker failed, or gave something that is not one score for each text."""


@dataclass(frozen=True, slots=True)
class RerankScores:
    """Scores of n texts, in the texts' order, and what they cost.

    `scores` is float32[n], higher is more relevant; NaN means that the reranker gave none. `truncated`
    counts texts whose tail did not fit into the model. `cold` says that the call had to wait for a load of
    `load_ms` milliseconds. `backend` and `device` are what really ran, None where that isn't known. `cached` counts
    scores that were remembered.
    """

    scores: NDArray[np.float32]
    truncated: int = 0
    cold: bool = False
    load_ms: float = 0.0
    backend: str | None = None
    device: str | None = None
    cached: int = 0


@runtime_checkable
class Reranker(Protocol):
    """Anything that scores texts against a query."""

    @property
    def name(self) -> str:
        """Return the name that plans and statistics show."""

    def score_detailed(self, query: str, texts: Sequence[str], *, deadline: Deadline | None = None) -> RerankScores:
        """Score each text against the query; an empty list gives an empty array without any model.

        Raises:
            DeadlineExceeded: it can't be done in time.
        """
