"""Resident memory and rate while 200,000 generated documents with vectors of their own are stored and indexed.

python tests/benchmarks/bulk_memory.py [--documents N] [--json]

The input is a generator, so all that is resident is the product's own: the vectors themselves are
documents * 384 * 4 bytes, and the target is to stay under those plus 400 MB.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import psutil

import vectorsearch as vs

if TYPE_CHECKING:
    from collections.abc import Iterator

DIM = 384
WORDS = 40
VOCABULARY = 30_000
MB = 1_000_000


def documents(n: int) -> Iterator[dict[str, Any]]:
    """Give n documents of 40 Zipf-distributed words, each with a random unit vector."""
    rng = np.random.default_rng(0)
    for i in range(n):
        words = np.minimum(rng.zipf(1.3, WORDS), VOCABULARY)
        yield {
            "id": f"doc{i}",
            "text": " ".join(f"w{word}" for word in words),
            "vector": rng.standard_normal(DIM, dtype=np.float32),
        }


class PeakMemory:
    """Sample this process's resident size every 20 ms; `peak_nbytes` is the largest seen."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._stop = threading.Event()
        self.peak_nbytes = 0
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def _sample(self) -> None:
        while not self._stop.wait(0.02):
            self.peak_nbytes = max(self.peak_nbytes, self._process.memory_info().rss)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def measure(n: int) -> dict[str, float]:
    """Store and index n documents; give the figures."""
    with tempfile.TemporaryDirectory() as folder, PeakMemory() as memory:
        start = time.perf_counter()
        db = vs.open(folder, embed=None, rerank=None)
        db.add(documents(n))
        stored_s = time.perf_counter() - start
        db.refresh()
        indexed_s = time.perf_counter() - start
        hits = db.search("w1 w2 w7", vector=np.ones(DIM, dtype=np.float32))
        db.close()
        closed_s = time.perf_counter() - start
    vectors_mb = n * DIM * 4 / MB
    return {
        "documents": n,
        "hits": len(hits),
        "vectors_mb": vectors_mb,
        "peak_resident_mb": memory.peak_nbytes / MB,
        "over_vectors_mb": memory.peak_nbytes / MB - vectors_mb,
        "stored_s": stored_s,
        "indexed_s": indexed_s,
        "closed_s": closed_s,
        "documents_per_s": n / indexed_s,
    }


def main() -> None:
    """Run it and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=200_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = measure(options.documents)
    if options.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:>18}  {value:,.1f}")
    sys.exit(figures["over_vectors_mb"] > 400)


if __name__ == "__main__":
    main()
