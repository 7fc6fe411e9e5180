"""What a search returns: hits, what each stage did, and what was left out."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from backends.errors import InvalidInput, MissingExtra
from vectorsearch.types import full_text

if TYPE_CHECKING:
    from vectorsearch.query.planning.plan import QueryPlan
    from vectorsearch.types import Metadata, ScoreKind


def format_trec(query_id: str, doc_ids: Sequence[str], *, tag: str, scores: Sequence[float] = ()) -> str:
    """Return a ranking as TREC run lines, whose scores strictly decrease, so that no tool reorders ties.

    They are n, n-1, … 1; or the `scores`, where one that isn't below the one before becomes the next smaller float32,
    which is what trec_eval tells apart; and documents beyond the scores follow, each 1 below the one before.

    Raises:
        InvalidInput: an id or the tag is empty or holds white space, which is what separates the columns.
    """
    for name, value in (("query id", query_id), ("tag", tag), *(("document id", doc_id) for doc_id in doc_ids)):
        if value.split() != [value]:
            raise InvalidInput(f"{name} {value!r} can't be in a TREC run: use ids that are not empty, without spaces")
    n = len(doc_ids)
    written = _falling(scores, n) if len(scores) else [str(n - i) for i in range(n)]
    return "".join(f"{query_id} Q0 {doc_id} {i + 1} {written[i]} {tag}\n" for i, doc_id in enumerate(doc_ids))


def _falling(scores: Sequence[float], n: int) -> list[str]:
    """Return n scores as text, strictly decreasing as float32."""
    written: list[str] = []
    last = np.float32(np.inf)
    for i in range(n):
        wanted = np.float32(scores[i]) if i < len(scores) else last - np.float32(1.0)
        last = wanted if np.isfinite(wanted) and wanted < last else np.nextafter(last, np.float32(-np.inf))
        written.append(str(last))
    return written


@dataclass(frozen=True, slots=True)
class Hit:
    """One document of a result. `rank` counts from 1 and is the order.

    `score` is the one that placed it: the reranker's logit if `score_kind` is "rerank", that and the first stage's
    together if it is "blend", else the fused or the retriever's own score. `scores` holds every score it has.
    `highlights` are the (start, end) of the query's words in `text`, if `search(highlight=True)` asked for them.
    """

    id: str
    score: float
    rank: int
    text: str
    title: str
    metadata: Metadata
    score_kind: ScoreKind
    scores: Mapping[ScoreKind, float]
    highlights: tuple[tuple[int, int], ...] = ()

    @property
    def full_text(self) -> str:
        """Return what was indexed, embedded and reranked of the document, title included."""
        return full_text(self.title, self.text)


@dataclass(frozen=True, slots=True)
class StageStats:
    """What one stage did: candidates in and out, milliseconds, and the model if it used one.

    `start_ms` counts from the beginning of the search: stages may overlap. `cold` says that the model was not in memory
    when the query was planned; `latency_ms` includes `load_ms`, what the stage still had to wait for it. `truncated`
    counts texts that did not fit into the model, `cached` those whose score was remembered. `error` tells in words why
    a stage was left out.
    """

    stage: str
    candidates_in: int
    candidates_out: int
    latency_ms: float
    model: str | None = None
    backend: str | None = None
    device: str | None = None
    cold: bool = False
    load_ms: float = 0.0
    truncated: int = 0
    error: str | None = None
    start_ms: float = 0.0
    cached: int = 0


@dataclass(frozen=True, slots=True)
class ModelLoad:
    """A model's load during a search, whoever caused it. `start_ms` counts from the beginning of the search."""

    model: str
    start_ms: float
    latency_ms: float


@dataclass(frozen=True, slots=True, repr=False)
class SearchResult(Sequence[Hit]):
    """Hits, best first. `degraded` names what was left out and why, such as `rerank:budget`; empty if nothing.

    `together` says whether all models of the plan were held as a set while the last stages ran. `notes` tell, where a
    filtered search found nothing, what is amiss with the filter: a field that no document has, say.
    """

    query: str | None
    hits: tuple[Hit, ...]
    plan: QueryPlan
    stats: tuple[StageStats, ...] = ()
    degraded: tuple[str, ...] = ()
    latency_ms: float = 0.0
    loads: tuple[ModelLoad, ...] = ()
    together: bool = False
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        left_out = f", degraded={self.degraded}" if self.degraded else ""
        notes = f", notes={self.notes}" if self.notes else ""
        return f"SearchResult({[hit.id for hit in self.hits]}, {self.latency_ms:.1f} ms{left_out}{notes})"

    def __len__(self) -> int:
        return len(self.hits)

    @overload
    def __getitem__(self, index: int) -> Hit: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Hit]: ...
    def __getitem__(self, index: int | slice) -> Hit | Sequence[Hit]:
        return self.hits[index]

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, fit for JSON."""
        return {
            "query": self.query,
            "hits": [{**asdict(hit), "metadata": dict(hit.metadata)} for hit in self.hits],
            "degraded": list(self.degraded),
            "notes": list(self.notes),
            "stats": [asdict(stage) for stage in self.stats],
            "loads": [asdict(load) for load in self.loads],
            "together": self.together,
            "latency_ms": self.latency_ms,
        }

    def to_trec(self, query_id: str, *, tag: str = "vectorsearch") -> str:
        """Return TREC run lines with the hits' scores; see `format_trec`.

        Raises:
            InvalidInput: an id or the tag can't stand in such a line.
        """
        return format_trec(query_id, [hit.id for hit in self.hits], tag=tag, scores=[hit.score for hit in self.hits])

    def to_pandas(self) -> Any:  # noqa: ANN401 -- a pandas.DataFrame; pandas is optional and untyped here
        """Return a DataFrame with a row for each hit.

        Raises:
            MissingExtra: pandas is not installed.
        """
        try:
            pandas = importlib.import_module("pandas")
        except ImportError as exc:
            raise MissingExtra("to_pandas needs pandas: pip install pandas") from exc
        columns = ["rank", "id", "score", "score_kind", "title", "text"]
        return pandas.DataFrame([{name: getattr(hit, name) for name in columns} for hit in self.hits], columns=columns)
