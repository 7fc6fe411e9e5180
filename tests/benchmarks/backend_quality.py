"""Search quality on every backend: nDCG@10 over a part of SciFact, of dense search or of a reranker.

The part holds every judged document, and a seeded sample of the others. Each backend and precision computes all vectors
(or the scores of BM25's best documents) itself, in a process of its own; similarities are exact. What is wanted: float
backends within 0.003 of one another, those that round activations to integers within 0.01 of them. The exit code says
whether that holds.

Run: `python tests/benchmarks/backend_quality.py --collection DIR/scifact [--model NAME] [--queries N] [--json]`
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from backend_targets import Target, as_data

from backends.catalogue import catalogue
from backends.catalogue.entries import DEFAULT_EMBEDDER
from backends.choosing import registry
from backends.running import text_model
from vectorsearch.collection.index.lexical.lexical_rank_bm25 import PositiveBM25
from vectorsearch.evaluation.collecting.collections import read_collection
from vectorsearch.evaluation.comparing.metrics import measure
from vectorsearch.types import Document

if TYPE_CHECKING:
    from backends.base import ModelSpec

MEASURE = "nDCG@10"
FLOAT_SPREAD, QUANTISED_SPREAD = 0.003, 0.01
RERANKED = 20  # documents a query, BM25's best
SEED = 20

Rankings = dict[str, list[str]]


@dataclass(frozen=True)
class Part:
    """Texts by document id, questions by query id, judgments, and the documents to rerank for each question."""

    texts: dict[str, str]
    queries: dict[str, str]
    qrels: dict[str, dict[str, int]]
    pools: dict[str, list[str]]


@dataclass(frozen=True)
class Quality:
    """What one backend reached, what it ran on, whether it rounds activations to integers, and how long it took."""

    backend: str
    device: str
    quantises: bool
    ndcg: float
    seconds: float


def read_part(folder: Path, documents: int, queries: int | None) -> Part:
    """Return the judged documents and others drawn at random, `documents` in all, and the first questions."""
    collection = read_collection(folder)
    texts = {row["id"]: Document(row["id"], row["text"], row["title"]).full_text for row in collection.documents()}
    judged = {doc_id for grades in collection.qrels.values() for doc_id in grades} & texts.keys()
    others = sorted(texts.keys() - judged)
    drawn = random.Random(SEED).sample(others, max(0, min(documents - len(judged), len(others))))  # noqa: S311 - a sample, no secret
    part = {doc_id: texts[doc_id] for doc_id in sorted({*judged, *drawn})}
    asked = dict(list(collection.queries.items())[:queries])
    qrels = {query: dict(collection.qrels[query]) for query in asked}
    return Part(part, asked, qrels, _pools(part, asked))


def _pools(texts: dict[str, str], queries: dict[str, str]) -> Rankings:
    ids = list(texts)
    scorer = PositiveBM25([_words(text) for text in texts.values()])
    order = {query: np.argsort(-scorer.get_scores(_words(text)), kind="stable") for query, text in queries.items()}
    return {query: [ids[i] for i in best[:RERANKED]] for query, best in order.items()}


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def rank(model: text_model.TextModel, part: Part) -> Rankings:
    """Return each query's documents, best first: all of them by cosine, or its pool by the reranker."""
    if model.spec.task == "cross-encode":
        return {query: _reranked(model, part, query) for query in part.queries}
    passages = model.embed(list(part.texts.values()), kind="passage").vectors
    questions = model.embed(list(part.queries.values()), kind="query").vectors
    ids = list(part.texts)
    order = np.argsort(-(questions @ passages.T), axis=1, kind="stable")[:, :100]
    return {query: [ids[i] for i in best] for query, best in zip(part.queries, order, strict=True)}


def _reranked(model: text_model.TextModel, part: Part, query: str) -> list[str]:
    pool = part.pools[query]
    scores = model.score(part.queries[query], [part.texts[doc_id] for doc_id in pool]).scores
    return [pool[i] for i in np.argsort(-scores, kind="stable")]


def assess(spec: ModelSpec, backend: str, part: Part) -> Quality:
    """Return the quality that a backend reaches; runs in a process of its own."""
    model = text_model.TextLoader(registry.select(spec, backend=backend)).load_model(spec)
    start = time.perf_counter()
    rankings = rank(model, part)
    seconds = time.perf_counter() - start
    ndcg = measure(rankings, part.qrels, names=[MEASURE])[MEASURE]
    return Quality(backend, model.device, model.quantises, ndcg, seconds)


def served_by(spec: ModelSpec, asked: list[str] | None) -> list[str]:
    """Return the backends to compare, each precision one: those asked for, or all that can serve the model."""
    names = asked or registry.unasked()
    variants = [variant for name in names for variant in registry.variants(name)]
    return [name for name in variants if registry.get(name).can_serve(spec)]


def spreads(found: list[Quality]) -> dict[str, float]:
    """Return how far apart the float backends are, and how far the others are from the nearest of them."""
    floats = [each.ndcg for each in found if not each.quantises]
    rough = [each.ndcg for each in found if each.quantises]
    centre = floats or rough
    return {
        "float": max(floats) - min(floats) if floats else 0.0,
        "quantised": max((min(abs(ndcg - other) for other in centre) for ndcg in rough), default=0.0),
    }


def main() -> int:
    """Assess every backend, print the table, and return 0 if they agree."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--collection", type=Path, required=True, help="a folder in BEIR layout")
    parser.add_argument("--model", default=DEFAULT_EMBEDDER, help="an embedder or a reranker")
    parser.add_argument("--backend", action="append", help="only this one; may be repeated")
    parser.add_argument("--documents", type=int, default=1500)
    parser.add_argument("--queries", type=int, default=None, help="only the first N")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    spec = catalogue.pull(options.model)
    part = read_part(options.collection, options.documents, options.queries)
    found = []
    for backend in served_by(spec, options.backend):
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
            found.append(alone.submit(assess, spec, backend, part).result())
        print(f"{backend:16} {found[-1].ndcg:.4f} {found[-1].seconds:7.1f} s  {found[-1].device}", file=sys.stderr)
    apart = spreads(found)
    judged = [
        Target(f"{MEASURE}: float backends from one another", apart["float"], at_most=FLOAT_SPREAD),
        Target(
            f"{MEASURE}: rounded activations from the nearest of them", apart["quantised"], at_most=QUANTISED_SPREAD
        ),
    ]
    agree = all(target.holds for target in judged)
    facts = {"model": spec.name, "documents": len(part.texts), "queries": len(part.queries), "measure": MEASURE}
    if options.json:
        print(json.dumps({**facts, "backends": [asdict(each) for each in found], "targets": as_data(judged)}))
    else:
        for target in judged:
            print(target)
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
