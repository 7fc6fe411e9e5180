"""One document added to an idle database whose query model is in memory, and how much it takes for bulk to pay.

python tests/benchmarks/one_document.py [--rounds 3] [--json]

Each figure is of a process of its own, in which the query model has answered one search. `resident` adds with the
backend that answers queries, as small writes do, `bulk` with the one for bulk work (JAX, where it is installed), as
all did before; the two take turns. `pays_at_tokens` is the first size, of those measured, at which bulk is faster.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from typing import Any

import vectorsearch as vs
from backends.catalogue import catalogue
from backends.catalogue.entries import DEFAULT_EMBEDDER

SIZES = (1, 16, 64, 128, 256)  # documents
WORDS = "Return a reader object that iterates over the lines of the given file, one row after the other. " * 6
TOKENS = 128  # of such a document, about

CHILD = """
import json, sys, time
import vectorsearch as vs
from vectorsearch.ingestion.write_rate import WriteRate
folder, kind, documents, text = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
workload = "bulk" if kind == "bulk" else "query"
WriteRate.workload = lambda self, *args, **kwargs: workload
with vs.open(folder) as db:
    db.search("a search that loads the query model")
    begun = time.perf_counter()
    db.upsert([{"id": f"new{i}", "text": f"{i} {text} {time.time()}"} for i in range(documents)])
    ms = 1000 * (time.perf_counter() - begun)
    begun = time.perf_counter()
    found = db.search("reader object")
    print(json.dumps({"ms": ms, "search_ms": 1000 * (time.perf_counter() - begun),
                      "backend": db.embedder_choice(workload).backend, "hits": len(found)}))
"""


def add(folder: str, kind: str, documents: int) -> dict[str, Any]:
    """Add so many documents in a process of its own, and return what it took in milliseconds."""
    command = [sys.executable, "-c", CHILD, folder, kind, str(documents), WORDS]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def measure(rounds: int) -> dict[str, Any]:
    """Take turns, and return medians by size."""
    catalogue.pull(DEFAULT_EMBEDDER)
    rows, pays_at = [], None
    with tempfile.TemporaryDirectory() as folder:
        with vs.open(folder) as db:
            db.add({"id": str(i), "text": f"document {i} about rows and files"} for i in range(200))
        for documents in SIZES:
            found: dict[str, list[dict[str, Any]]] = {"resident": [], "bulk": []}
            for _ in range(rounds):
                for kind, figures in found.items():
                    figures.append(add(folder, kind, documents))
            ms = {kind: statistics.median(each["ms"] for each in figures) for kind, figures in found.items()}
            rows.append(
                {
                    "documents": documents,
                    "tokens": documents * TOKENS,
                    "resident_ms": round(ms["resident"], 1),
                    "bulk_ms": round(ms["bulk"], 1),
                    "ratio": round(ms["bulk"] / ms["resident"], 2),
                    "backends": [figures[0]["backend"] for figures in found.values()],
                }
            )
            if pays_at is None and ms["bulk"] < ms["resident"]:
                pays_at = documents * TOKENS
    return {"rows": rows, "pays_at_tokens": pays_at, "rounds": rounds}


def main() -> None:
    """Parse the arguments and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    options = parser.parse_args()
    figures = measure(options.rounds)
    if options.json:
        print(json.dumps(figures))
        return
    for row in figures["rows"]:
        print(
            f"{row['documents']:4} documents, {row['tokens']:6} tokens: {row['resident_ms']:9.1f} ms by the resident "
            f"backend, {row['bulk_ms']:9.1f} by bulk ({row['ratio']:.2f})"
        )
    print(f"bulk pays from {figures['pays_at_tokens'] or 'more than was measured'} tokens")


if __name__ == "__main__":
    main()
