"""The first search of a fresh process, with a reranker: what loading the models beside the retrieval saves.

python tests/benchmarks/cold_query.py [--rounds 5] [--json] [--svg FILE]

Each search has a process of its own; with and without prefetch take turns. The process has imported everything and
opened the database; what is measured is the search alone, with the loads of both default models in it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import vectorsearch as vs
from backends.catalogue import catalogue
from backends.catalogue.entries import DEFAULT_EMBEDDER, DEFAULT_RERANKER

DOCUMENTS = 500
WORDS = ("parser", "reads", "each", "line", "of", "a", "csv", "file", "and", "returns", "rows", "as", "lists", "until")

CHILD = """
import json, sys
from contextlib import nullcontext
import vectorsearch as vs
from vectorsearch.query.searcher import Searcher
folder, prefetch, svg = sys.argv[1], sys.argv[2] == "with", sys.argv[3]
if not prefetch:
    assert Searcher._held  # what is replaced: without it both kinds would be the same
    Searcher._held = lambda self, plan: nullcontext()
with vs.open(folder) as db:
    explained = db.explain("how do I parse a csv file", rerank=True, rerank_depth=20, analyze=True)
    if svg:
        open(svg, "w", encoding="utf-8").write(explained.to_svg())
    loads = {load.model: load.latency_ms for load in explained.ran.loads}
    print(json.dumps({"ms": explained.ran.latency_ms, "degraded": explained.ran.degraded, "loads_ms": loads}))
"""


def first_search(folder: str, *, prefetch: bool, svg: str = "") -> dict[str, Any]:
    """Search once in a process of its own, and return what it took in milliseconds."""
    command = [sys.executable, "-c", CHILD, folder, "with" if prefetch else "without", svg]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def measure(rounds: int, svg: str) -> dict[str, Any]:
    """Take turns, and return the medians and what the overlap saves."""
    for name in (DEFAULT_EMBEDDER, DEFAULT_RERANKER):
        catalogue.pull(name)
    with tempfile.TemporaryDirectory() as folder:
        with vs.open(folder) as db:
            texts = (" ".join(WORDS[(i + j * (i % 7 + 1)) % len(WORDS)] for j in range(40)) for i in range(DOCUMENTS))
            db.add({"id": str(i), "text": text} for i, text in enumerate(texts))
        found: dict[bool, list[dict[str, Any]]] = {True: [], False: []}
        for _ in range(rounds):
            for prefetch in (True, False):
                found[prefetch].append(first_search(folder, prefetch=prefetch, svg=svg if prefetch else ""))
    with_ms, without_ms = (statistics.median(each["ms"] for each in found[prefetch]) for prefetch in (True, False))
    return {
        "rounds": rounds,
        "with_prefetch_ms": with_ms,
        "without_ms": without_ms,
        "saved_ms": without_ms - with_ms,
        "saved_share": 1 - with_ms / without_ms,
        "degraded": sum(bool(each["degraded"]) for each in (*found[True], *found[False])),
        "loads_ms": found[True][-1]["loads_ms"],
    }


def main() -> None:
    """Run it and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--svg", default="", metavar="FILE", help="write the last search with prefetch as a timeline")
    options = parser.parse_args()
    figures = measure(options.rounds, str(Path(options.svg).resolve()) if options.svg else "")
    if options.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:>18}  {value:.1f}" if isinstance(value, float) else f"{name:>18}  {value}")


if __name__ == "__main__":
    main()
