"""Lexical search alone: this engine's index against bm25s, rank-bm25 and Tantivy by itself, on the same words.

python tests/benchmarks/bm25.py [--documents N] [--json]

Documents have 40 Zipf-distributed words, queries have four. Words are cut beforehand, so that engines are compared and
not analysers; each query asks for the ten best. Rounds are interleaved and the best of three counts. Adding is measured
in ten equal parts, each made searchable: the last takes as long as the first where adding is linear. Every engine's
figures and agreement are of the same queries; rank-bm25, which scores every document in Python, gets a tenth of them.
The peers are in the extra `peers`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tantivy

from vectorsearch.collection.collection import Collection, CollectionSettings
from vectorsearch.collection.index.lexical.lexical_rank_bm25 import PositiveBM25
from vectorsearch.types import Document

if TYPE_CHECKING:
    from collections.abc import Callable

K = 10
PARTS = 10
QUERIES = 500
ROUNDS = 3
VOCABULARY = 30_000
SLOW = "rank-bm25"


def words(n: int, length: int, seed: int) -> list[list[str]]:
    """Give n lists of words; the commonest hundred are left out of queries' lengths by their rank."""
    drawn = np.minimum(np.random.default_rng(seed).zipf(1.15, (n, length)), VOCABULARY)
    return [[f"w{word}" for word in row] for row in drawn]


def questions(n: int) -> list[list[str]]:
    """Give n queries of four words, none of the twenty commonest."""
    rng = np.random.default_rng(5)
    ranks = np.minimum(20 + rng.zipf(1.15, (n, 4)), VOCABULARY)
    return [[f"w{word}" for word in row] for row in ranks]


def ours(corpus: list[list[str]], folder: Path) -> tuple[list[float], Callable[[list[str]], list[int]]]:
    """Add in parts, each made searchable; documents are stored durably as well, which no peer does."""
    collection = Collection.open(folder, CollectionSettings(language=None))
    seconds = []
    size = len(corpus) // PARTS
    for start in range(0, len(corpus), size):
        began = time.perf_counter()
        collection.write([Document(str(i), " ".join(row)) for i, row in enumerate(corpus[start : start + size], start)])
        collection.lexical("w1", 1)
        seconds.append(time.perf_counter() - began)
    collection.flush()
    return seconds, lambda query: (collection.lexical(" ".join(query), K).rows - 1).tolist()


def bare_tantivy(corpus: list[list[str]], folder: Path) -> tuple[list[float], Callable[[list[str]], list[int]]]:
    """Tantivy by its binding: the same schema without metadata, a commit for each part."""
    builder = tantivy.SchemaBuilder()
    builder.add_unsigned_field("row", indexed=True, fast=True)
    builder.add_text_field("body", tokenizer_name="whitespace", index_option="freq")
    schema = builder.build()
    folder.mkdir()
    index = tantivy.Index(schema, path=str(folder))
    seconds = []
    size = len(corpus) // PARTS
    for start in range(0, len(corpus), size):
        began = time.perf_counter()
        writer = index.writer(60_000_000, 1)
        for i, row in enumerate(corpus[start : start + size], start):
            document = tantivy.Document()
            document.add_unsigned("row", i)
            document.add_text("body", " ".join(row))
            writer.add_document(document)
        writer.commit()
        writer.wait_merging_threads()
        index.reload()
        seconds.append(time.perf_counter() - began)
    searcher = index.searcher()

    def search(query: list[str]) -> list[int]:
        terms = [(tantivy.Occur.Should, tantivy.Query.term_query(schema, "body", word)) for word in query]
        hits = searcher.search(tantivy.Query.boolean_query(terms), limit=K, count=False).hits
        return [int(row) for row in searcher.fast_field_values("row", [address for _, address in hits])]

    return seconds, search


def by_bm25s(corpus: list[list[str]], _: Path) -> tuple[list[float], Callable[[list[str]], list[int]]]:
    """Index all with bm25s at once: it can't be added to."""
    import bm25s  # noqa: PLC0415 -- a peer, maybe missing

    began = time.perf_counter()
    index = bm25s.BM25(method="lucene", k1=1.2, b=0.75)
    index.index(corpus, show_progress=False)
    seconds = [time.perf_counter() - began]

    def search(query: list[str]) -> list[int]:
        found, _ = index.retrieve([query], k=K, show_progress=False, n_threads=0)
        return [int(i) for i in found[0]]

    return seconds, search


def by_rank_bm25(corpus: list[list[str]], _: Path) -> tuple[list[float], Callable[[list[str]], list[int]]]:
    """Index all with rank-bm25 at once, with the idf that is positive for every word."""
    began = time.perf_counter()
    index = PositiveBM25(corpus)
    seconds = [time.perf_counter() - began]
    return seconds, lambda query: np.argsort(-index.get_scores(query), kind="stable")[:K].tolist()


ENGINES = {"vectorsearch": ours, "tantivy": bare_tantivy, "bm25s": by_bm25s, SLOW: by_rank_bm25}


def measure(n: int) -> dict[str, Any]:
    """Fill every engine, then ask them in turns."""
    corpus, asked = words(n, 40, 1), questions(QUERIES)
    results: dict[str, Any] = {"documents": n}
    searches = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, fill in ENGINES.items():
            print(f"filling {name}", file=sys.stderr)
            try:
                seconds, searches[name] = fill(corpus, Path(folder) / name)
            except ImportError as exc:
                results[name] = {"left_out": f"{exc}: pip install 'vectorsearch[peers]'"}
                continue
            results[name] = {"index_s": sum(seconds), "parts_s": seconds}
        found = {}
        rates: dict[str, list[float]] = {name: [] for name in searches}
        for _ in range(ROUNDS):
            for name, search in searches.items():
                some = asked[: QUERIES // 10] if name == SLOW else asked
                began = time.perf_counter()
                found[name] = [search(query) for query in some]
                rates[name].append(len(some) / (time.perf_counter() - began))
    for name, answers in found.items():
        same = [len(set(a) & set(b)) / K for a, b in zip(answers, found["vectorsearch"], strict=False)]
        results[name] |= {"queries_per_s": max(rates[name]), "top10_shared_with_ours": float(np.mean(same))}
    return results


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=200_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results = measure(options.documents)
    if options.json:
        print(json.dumps(results, indent=2))
        return
    for name in ENGINES:
        figures = results[name]
        if "left_out" in figures:
            print(f"{name:<13} {figures['left_out']}")
            continue
        parts = figures["parts_s"]
        linear = f", parts {parts[0]:.2f} s first, {parts[-1]:.2f} s last" if len(parts) > 1 else ""
        print(f"{name:<13} {figures['queries_per_s']:8.1f} queries/s, indexed in {figures['index_s']:.1f} s{linear}")


if __name__ == "__main__":
    main()
