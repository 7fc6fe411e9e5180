"""What an experiment found, as plain values: each system's rankings, figures and times, and how they compare."""

from __future__ import annotations

import importlib
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from backends.errors import MissingExtra
from vectorsearch.query.results import format_trec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vectorsearch.evaluation.answers import ModelUse
    from vectorsearch.evaluation.comparing.comparison import Comparison
    from vectorsearch.evaluation.systems import System


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemResult:
    """What one system did: each query's document ids, best first, and what they cost.

    `latency_ms` has "p50" and "p99", and `stages_ms` the median of each stage; both are empty, and `system` is None,
    for a run of another engine. `asked` counts the queries that were asked now; the times of the others are of an
    earlier run on this machine. `scores` are those of the documents, where they are known.
    """

    name: str
    rankings: Mapping[str, Sequence[str]]
    metrics: Mapping[str, float]
    system: System | None = None
    latency_ms: Mapping[str, float] = field(default_factory=dict)
    stages_ms: Mapping[str, float] = field(default_factory=dict)
    models: tuple[ModelUse, ...] = ()
    asked: int = 0
    scores: Mapping[str, Sequence[float]] = field(default_factory=dict)

    @property
    def cached(self) -> bool:
        """Return whether all answers are of an earlier run."""
        return self.system is not None and self.asked == 0

    @property
    def run(self) -> str:
        """Return the rankings as a TREC run, in which each query's scores strictly decrease; see `format_trec`.

        Raises:
            InvalidInput: an id holds white space.
        """
        tag = "".join(self.name.split())
        return "".join(
            format_trec(query_id, ids, tag=tag, scores=self.scores.get(query_id, ()))
            for query_id, ids in self.rankings.items()
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, fit for JSON, without the rankings."""
        return {
            "name": self.name,
            "system": {"name": self.name, **self.system.options} if self.system else None,
            "queries": len(self.rankings),
            "metrics": dict(self.metrics),
            "latency_ms": dict(self.latency_ms),
            "stages_ms": dict(self.stages_ms),
            "models": [asdict(model) for model in self.models],
            "cached": self.cached,
        }


@dataclass(frozen=True, slots=True)
class Outcome:
    """Systems on one collection, in the order given, and their comparison with the baseline.

    `collection` names it; `documents` counts what was searched, None if that is unknown. `texts` holds title and text
    of the documents that the report shows; `notes` what a reader of the figures should know.
    """

    collection: str
    documents: int | None
    queries: Mapping[str, str]
    qrels: Mapping[str, Mapping[str, int]]
    systems: tuple[SystemResult, ...]
    comparison: Comparison
    texts: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> SystemResult:
        """Return the system of this name."""
        for system in self.systems:
            if system.name == name:
                return system
        raise KeyError(name)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, fit for JSON: figures, intervals, tests, costs; no rankings and no texts."""
        figures = self.comparison.figures
        return {
            "collection": self.collection,
            "documents": self.documents,
            "queries": len(self.comparison.queries),
            "baseline": self.comparison.baseline,
            "measures": list(self.comparison.measures),
            "systems": [
                {
                    **system.to_dict(),
                    "figures": {name: asdict(figure) for name, figure in figures[system.name].items()},
                }
                for system in self.systems
            ],
            "notes": list(self.notes),
        }

    def to_pandas(self) -> Any:  # noqa: ANN401 -- a pandas.DataFrame; pandas is optional and untyped here
        """Return a DataFrame with a row for each system and measure: mean, interval, difference and tests.

        Raises:
            MissingExtra: pandas is not installed.
        """
        try:
            pandas = importlib.import_module("pandas")
        except ImportError as exc:
            raise MissingExtra("to_pandas needs pandas: pip install pandas") from exc
        rows = []
        for system in self.systems:
            for name, figure in self.comparison.figures[system.name].items():
                row = {"system": system.name, "measure": name, "mean": figure.mean, "low": figure.low}
                row |= {"high": figure.high}
                if figure.difference is not None:
                    row |= {f"difference_{key}": value for key, value in asdict(figure.difference).items()}
                rows.append(row | {f"latency_{key}_ms": value for key, value in system.latency_ms.items()})
        return pandas.DataFrame(rows)
