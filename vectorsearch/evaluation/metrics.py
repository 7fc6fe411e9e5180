"""Measures of rankings, by ir-measures.

MacAvaney, Macdonald and Ounis, "Streamlining Evaluation with ir-measures", ECIR 2022.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from backends.errors import MissingExtra

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MEASURES = ("nDCG@10", "RR@10", "R@100", "AP")


def require_ir_measures() -> Any:  # noqa: ANN401 -- the module; it has no type information
    """Return the ir_measures module, so that a long run can fail before it starts.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        return importlib.import_module("ir_measures")
    except ImportError as exc:
        raise MissingExtra("evaluation needs ir-measures: pip install 'vectorsearch[eval]'") from exc


def measure(rankings: Mapping[str, Sequence[str]], qrels: Mapping[str, Mapping[str, int]]) -> dict[str, float]:
    """Return the mean of each of `MEASURES` over the queries of `qrels`.

    A query without results, or missing from `rankings`, counts as 0. Only the order of a ranking counts: its scores
    are made to fall strictly, since tools break ties in different ways.

    Args:
        rankings: query id to document ids, best first.
        qrels: query id to {document id: grade}; grades above 0 are relevant.

    Raises:
        MissingExtra: ir-measures is not installed.
    """
    ir_measures = require_ir_measures()
    measures = [_measure(ir_measures, name) for name in MEASURES]
    run = {
        query: {doc_id: float(len(ranking) - i) for i, doc_id in enumerate(ranking)}
        for query, ranking in rankings.items()
    }
    judged = {query: dict(grades) for query, grades in qrels.items()}
    values = dict.fromkeys(MEASURES, 0.0)
    # Summed here over the judged queries, since evaluators differ in what they do with a query that has no results.
    for metric in ir_measures.iter_calc(measures, judged, run):
        if metric.query_id in judged:
            values[str(metric.measure)] += float(metric.value)
    return {name: value / len(judged) if judged else 0.0 for name, value in values.items()}


def _measure(ir_measures: Any, name: str) -> Any:  # noqa: ANN401 -- it has no type information
    """Return the measure of a name such as "nDCG@10"; the library's own parser needs what Python 3.14 has removed."""
    base, _, cutoff = name.partition("@")
    measure = getattr(ir_measures, base)
    return measure @ int(cutoff) if cutoff else measure
