"""What retrievers and a reranker say of a query's documents, and what any search would make of it. Pure.

The order is made by the functions that a search uses, so it is the one that the search would give.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from rerank.cascade import blend, reorder
from vectorsearch.query.execution.fusion import fuse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from vectorsearch.query.planning.defaults import SearchDefaults
    from vectorsearch.query.planning.request import RetrieverKind
    from vectorsearch.types import Candidates

    Constants = tuple[float | None, float | None]  # k1 and b, None for the database's


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of n documents for one query.

    `doc_ids` are in the order in which the documents were stored, and rows in `lists` are positions in it, so that ties
    are broken as in a search. `rerank` is float32[n], NaN for what the reranker hasn't read. `by_constants` are the
    lists of words by other constants of BM25 than the database's own.
    """

    doc_ids: tuple[str, ...]
    lists: Mapping[RetrieverKind, Candidates]
    rerank: NDArray[np.float32]
    by_constants: Mapping[Constants, Candidates] = field(default_factory=dict)


def constants_of(setting: SearchDefaults) -> Constants | None:
    """Return the constants of BM25 that a setting names; None for the database's own."""
    return None if setting.k1 is None and setting.b is None else (setting.k1, setting.b)


def fused(evidence: Evidence, setting: SearchDefaults) -> Candidates:
    """Return the lists as one, as the setting fuses them; a single list stays as it is."""
    constants = constants_of(setting)
    named = dict(evidence.lists)
    if constants is not None:
        named["lexical"] = evidence.by_constants[constants]
    lists = list(named.values())
    if len(lists) == 1:
        return lists[0]
    weights = [setting.weights.get(kind, 1.0) for kind in evidence.lists]
    return fuse(lists, setting.fusion, weights=weights, rrf_k=setting.rrf_k)


def reranked(evidence: Evidence, first: Candidates, setting: SearchDefaults) -> NDArray[np.int64]:
    """Return the rows in the order in which the setting puts them, given what it fuses the lists to."""
    if setting.rerank is None:
        return first.rows
    head = first.rows[: setting.rerank_depth]
    scores = evidence.rerank[head]
    if setting.blend is not None:
        scores = blend(scores, first.scores[: len(head)], weight=setting.blend)
    return first.rows[reorder(np.arange(len(first.rows)), scores)]


def rank(evidence: Evidence, setting: SearchDefaults) -> tuple[str, ...]:
    """Return the documents' ids, best first, as a search with these options would."""
    return tuple(evidence.doc_ids[row] for row in reranked(evidence, fused(evidence, setting), setting).tolist())


def fusion_of(setting: SearchDefaults) -> tuple[object, ...]:
    """Return what two settings have in common that fuse alike."""
    return setting.fusion, setting.rrf_k, tuple(sorted(setting.weights.items())), constants_of(setting)


def rows_to_read(evidence: Evidence, settings: Iterable[SearchDefaults]) -> list[int]:
    """Return the rows that a reranker must read for any of the settings and hasn't yet, in order."""
    deepest: dict[tuple[object, ...], SearchDefaults] = {}
    for setting in settings:
        known = deepest.setdefault(fusion_of(setting), setting)
        if setting.rerank is not None and (known.rerank is None or setting.rerank_depth > known.rerank_depth):
            deepest[fusion_of(setting)] = setting
    heads = {
        row
        for setting in deepest.values()
        if setting.rerank is not None
        for row in fused(evidence, setting).rows[: setting.rerank_depth].tolist()
    }
    return sorted(row for row in heads if np.isnan(evidence.rerank[row]))
