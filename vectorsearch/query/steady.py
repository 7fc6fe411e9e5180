"""Do a search again if the models that it uses were exchanged under it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backends.errors import VectorSearchError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from backends.base import ModelSpec
    from vectorsearch.models.resolving import Models
    from vectorsearch.models.space import EmbeddingSpace
    from vectorsearch.query.results import SearchResult


def steadily(
    space: EmbeddingSpace, models: Models, work: Callable[[ModelSpec | None], Sequence[SearchResult]]
) -> Sequence[SearchResult]:
    """Return `work(embedder)`, done again if the embedder, or a registered model, was exchanged meanwhile.

    What two embedders may have made is thrown away. A registered model that was exchanged or forgotten counts only
    where the work failed, or left something out; any other error is raised.
    """
    while True:
        exchanges, embedder = space.settled()
        changes = models.changes
        try:
            results = work(embedder)
        except VectorSearchError:
            if (exchanges, changes) == (space.exchanges, models.changes):
                raise
            continue
        if exchanges == space.exchanges and (changes == models.changes or not any(r.degraded for r in results)):
            return results
