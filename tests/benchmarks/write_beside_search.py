"""Readers beside a writer: searches a second without writes, and with one write every 20th of a second.

python tests/benchmarks/write_beside_search.py [--documents 3000] [--seconds 4] [--readers 2] [--json]

Hybrid searches with vectors given (no model). Quiet and busy spells take turns, in one process. `after_write_ms` is
one search right after one write, with nothing else running. Each busy search is checked: it must give k hits.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
import time
from typing import Any

import numpy as np

import vectorsearch as vs

DIM = 64
K = 10
EVERY_S = 0.05
ROUNDS = 3


def rows(n: int, start: int = 0) -> list[dict[str, Any]]:
    """Give documents of 5 to 60 words with a vector each."""
    rng = np.random.default_rng(start)
    return [
        {
            "id": f"d{i}",
            "text": "common " + " ".join(f"w{w}" for w in rng.zipf(1.3, 5 + i % 55) % 5000),
            "vector": rng.standard_normal(DIM).astype(np.float32),
        }
        for i in range(start, start + n)
    ]


def spell(db: vs.Database, readers: int, seconds: float, *, writes: bool, counter: list[int]) -> tuple[float, int, int]:
    """Search for some seconds, and return searches a second, how many gave fewer than k hits, and the writes."""
    stop = threading.Event()
    done, short = [0] * readers, [0] * readers
    written = 0

    def read(reader: int) -> None:
        rng = np.random.default_rng(reader)
        while not stop.is_set():
            query = f"common w{rng.integers(1, 200)} w{rng.integers(1, 50)}"
            hits = db.search(query, vector=rng.standard_normal(DIM).astype(np.float32), k=K)
            short[reader] += len(hits) < K
            done[reader] += 1

    threads = [threading.Thread(target=read, args=(i,)) for i in range(readers)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    while time.perf_counter() - begun < seconds:
        if writes:
            counter[0] += 1
            row = rows(1, 10_000_000 + counter[0])[0]
            db.upsert([{**row, "id": f"d{counter[0] % 500}"}])
            written += 1
        stop.wait(EVERY_S)
    stop.set()
    for thread in threads:
        thread.join()
    return sum(done) / (time.perf_counter() - begun), sum(short), written


def measure(documents: int, seconds: float, readers: int) -> dict[str, Any]:
    """Take turns, and return medians."""
    quiet, busy, short, written, counter = [], [], 0, 0, [0]
    with tempfile.TemporaryDirectory() as folder, vs.open(f"{folder}/db", embed=None, rerank=None) as db:
        db.add(rows(documents))
        db.refresh()
        query = {"vector": np.ones(DIM, np.float32), "k": K}
        db.search("common", **query)
        alone = []
        for i in range(9):
            db.upsert(rows(1, 20_000_000 + i))
            begun = time.perf_counter()
            db.search("common w3", **query)
            alone.append(1000 * (time.perf_counter() - begun))
        for _ in range(ROUNDS):
            quiet.append(spell(db, readers, seconds, writes=False, counter=counter)[0])
            rate, missing, writes = spell(db, readers, seconds, writes=True, counter=counter)
            busy.append(rate)
            short, written = short + missing, written + writes
    rates = statistics.median(quiet), statistics.median(busy)
    return {
        "documents": documents,
        "readers": readers,
        "after_write_ms": round(statistics.median(alone), 2),
        "quiet_per_s": round(rates[0], 1),
        "busy_per_s": round(rates[1], 1),
        "kept": round(rates[1] / rates[0], 3),
        "writes_per_s": round(written / (ROUNDS * seconds), 1),
        "short_results": short,
    }


def main() -> None:
    """Parse the arguments and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=3_000)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--readers", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    options = parser.parse_args()
    figures = measure(options.documents, options.seconds, options.readers)
    if options.json:
        print(json.dumps(figures))
        return
    print(
        f"{figures['documents']:,} documents, {figures['readers']} readers: {figures['quiet_per_s']} searches a second "
        f"without writes, {figures['busy_per_s']} with {figures['writes_per_s']} writes a second "
        f"({figures['kept']:.2f} kept); a search right after a write {figures['after_write_ms']} ms; "
        f"{figures['short_results']} results with fewer than {K} hits"
    )


if __name__ == "__main__":
    main()
