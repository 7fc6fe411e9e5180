"""Ask the retrievers and the reranker of a database what they say, once for each query, and remember it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from backends.catalogue import catalogue
from vectorsearch.evaluation.journal import Subject, append_line, read_lines
from vectorsearch.evaluation.systems import System
from vectorsearch.evaluation.tuning.evidence import Evidence, constants_of, rows_to_read
from vectorsearch.query.planning.plan import FUSION_DEPTH
from vectorsearch.types import Candidates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from vectorsearch.database.database import Database
    from vectorsearch.evaluation.tuning.evidence import Constants
    from vectorsearch.query.planning.defaults import SearchDefaults
    from vectorsearch.query.planning.request import RetrieverKind
    from vectorsearch.types import Mode


@dataclass(frozen=True, slots=True)
class _Said:
    """Scores by document id, best first: of each retriever and of words by other constants, and of the reranker."""

    lists: dict[str, dict[str, float]] = field(default_factory=dict)
    rerank: dict[str, float] = field(default_factory=dict)


def gather(
    db: Database,
    queries: Mapping[str, str],
    settings: Sequence[SearchDefaults],
    *,
    cache: bool = True,
    progress: Callable[[str, int, int], None] = lambda _step, _done, _total: None,
) -> dict[str, Evidence]:
    """Return the evidence for each query id that any of the settings needs, which have at most one reranker.

    What was asked before is taken from the cache, and what is asked is written to it query by query. Nothing is
    degraded: a stage that fails raises. `progress(step, done, total)` counts queries, of `searching` and `reranking`.

    Raises:
        EvaluationFailed: a stage was left out.
        VectorSearchError: a stage failed.
    """
    reranker = next((setting.rerank for setting in settings if setting.rerank is not None), None)
    kinds: tuple[RetrieverKind, ...] = ("lexical", "dense") if db.embedder is not None else ("lexical",)
    systems = {kind: System(mode=kind, k=FUSION_DEPTH) for kind in kinds} | {
        _named(constants): System(mode="lexical", k=FUSION_DEPTH, k1=constants[0], b=constants[1])
        for constants in _constants(settings)
    }
    db.refresh()
    path = _path(db, reranker) if cache else None
    said = _remembered(path)
    for done, text in enumerate(queries.values(), 1):
        known = said.setdefault(text, _Said())
        asked = {name: _found(db, text, system) for name, system in systems.items() if name not in known.lists}
        if asked:
            known.lists.update(asked)
            _remember(path, text, lists=asked)
        progress("searching", done, len(queries))
    places = _places(db, (said[text] for text in queries.values()))
    evidence = {}
    for done, (query_id, text) in enumerate(queries.items(), 1):
        evidence_of = partial(_evidence, said[text], places, kinds, _constants(settings))
        known_now = evidence_of()
        unread = [known_now.doc_ids[row] for row in rows_to_read(known_now, settings)]
        if unread and reranker is not None:
            scores = dict(zip(unread, _scores(db, text, unread, reranker), strict=True))
            said[text].rerank.update(scores)
            _remember(path, text, rerank=scores)
            known_now = evidence_of()
        evidence[query_id] = known_now
        if reranker is not None:
            progress("reranking", done, len(queries))
    return evidence


def _path(db: Database, reranker: str | None) -> Path:
    """Return where this database's evidence is kept: under the digest of a system that has the same models."""
    mode: Mode = "hybrid" if db.embedder is not None else "lexical"
    digest = Subject(db).digest(System(name="evidence", mode=mode, rerank=reranker))
    return catalogue.cache_dir() / "evaluations" / "evidence" / f"{digest}.jsonl"


def _remembered(path: Path | None) -> dict[str, _Said]:
    said: dict[str, _Said] = {}
    for line in read_lines(path) if path is not None else ():
        if "lists" in line:
            said.setdefault(line["query"], _Said()).lists.update(line["lists"])
        elif line["query"] in said:
            said[line["query"]].rerank.update(line["rerank"])
    return said


def _remember(path: Path | None, query: str, **values: Any) -> None:  # noqa: ANN401 -- plain values
    if path is not None:
        append_line(path, {"query": query, **values})


def _constants(settings: Iterable[SearchDefaults]) -> list[Constants]:
    """Return the constants of BM25 that the settings name, each once."""
    return list(dict.fromkeys(each for each in map(constants_of, settings) if each is not None))


def _named(constants: Constants) -> str:
    return f"lexical, k1={constants[0]}, b={constants[1]}"


def _found(db: Database, query: str, system: System) -> dict[str, float]:
    return {hit.id: hit.score for hit in system.search(db, query)}


def _scores(db: Database, query: str, doc_ids: Iterable[str], reranker: str) -> list[float]:
    documents = [db.get(doc_id) for doc_id in doc_ids]
    scores = db.score(query, [document.full_text if document else "" for document in documents], rerank=reranker)
    return [float(score) for score in scores]


def _places(db: Database, said: Iterable[_Said]) -> dict[str, int]:
    """Return where in the order of storing each found document comes."""
    wanted = {doc_id for each in said for found in each.lists.values() for doc_id in found}
    return {document.id: place for place, document in enumerate(db.iter()) if document.id in wanted}


def _evidence(
    said: _Said, places: Mapping[str, int], kinds: Iterable[RetrieverKind], constants: Iterable[Constants]
) -> Evidence:
    doc_ids = sorted({doc_id for found in said.lists.values() for doc_id in found}, key=places.__getitem__)
    row_of = {doc_id: row for row, doc_id in enumerate(doc_ids)}

    def listed(name: str) -> Candidates:
        found = said.lists[name]
        rows = np.array([row_of[doc_id] for doc_id in found], dtype=np.int64)
        return Candidates(rows, np.array(list(found.values()), dtype=np.float32))

    rerank = np.array([said.rerank.get(doc_id, np.nan) for doc_id in doc_ids], dtype=np.float32)
    by_constants = {each: listed(_named(each)) for each in constants}
    return Evidence(tuple(doc_ids), {kind: listed(kind) for kind in kinds}, rerank, by_constants)
