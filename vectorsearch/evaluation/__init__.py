"""Measure search quality: test collections, experiments, comparisons, reports.

from vectorsearch import evaluation

collection = evaluation.read_collection("scifact")
with evaluation.open_collection(collection) as db:
    result = evaluation.Experiment(["BM25: mode=lexical", "hybrid: mode=hybrid"], db=db, judged=collection).run()
print(result.table())
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

__all__ = [
    "Comparison",
    "EvaluationFailed",
    "Experiment",
    "ExperimentResult",
    "System",
    "SystemResult",
    "TestCollection",
    "Topics",
    "TuneResult",
    "find_collection",
    "judge",
    "open_collection",
    "parse_system",
    "read_collection",
    "read_qrels",
    "read_run",
    "read_systems",
    "tune",
]

if TYPE_CHECKING:
    from vectorsearch.evaluation.collecting.collections import TestCollection, read_collection, read_qrels
    from vectorsearch.evaluation.collecting.indexed import open_collection
    from vectorsearch.evaluation.collecting.sources import find_collection
    from vectorsearch.evaluation.collecting.topics import Topics
    from vectorsearch.evaluation.comparing.comparison import Comparison
    from vectorsearch.evaluation.experiment import Experiment
    from vectorsearch.evaluation.formats.runs import read_run
    from vectorsearch.evaluation.outcome import SystemResult
    from vectorsearch.evaluation.results import ExperimentResult, judge
    from vectorsearch.evaluation.systems import EvaluationFailed, System, parse_system, read_systems
    from vectorsearch.evaluation.tuning.tuning import TuneResult, tune

_HOMES = {
    "Comparison": "comparing.comparison",
    "EvaluationFailed": "systems",
    "Experiment": "experiment",
    "ExperimentResult": "results",
    "System": "systems",
    "SystemResult": "outcome",
    "TestCollection": "collecting.collections",
    "Topics": "collecting.topics",
    "TuneResult": "tuning.tuning",
    "find_collection": "collecting.sources",
    "judge": "results",
    "open_collection": "collecting.indexed",
    "parse_system": "systems",
    "read_collection": "collecting.collections",
    "read_qrels": "collecting.collections",
    "read_run": "formats.runs",
    "read_systems": "systems",
    "tune": "tuning.tuning",
}


def __getattr__(name: str) -> object:
    """Import a public name's module when the name is first used: `vectorsearch.errors` needs one of them only."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
