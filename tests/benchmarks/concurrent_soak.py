"""Readers and a writer on one database for a minute, every answer checked against what was stored at that moment.

python tests/benchmarks/concurrent_soak.py [--seconds S] [--readers N] [--json]

The writer adds, replaces, deletes and compacts. Each document has a version, and with it a word and a vector of its
own. A reader notes the writer's change number before and after each search: what it finds must have been stored at some
moment in between. Dense search is over a graph that is built beside the searches, since the database grows.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from vectorsearch.collection import Collection, CollectionSettings
from vectorsearch.types import Document

DIM = 16
IDS = 3000


class History:
    """When each document had which version: the brute-force model that readers compare with."""

    def __init__(self) -> None:
        self.changes = 0  # completed
        self._lock = threading.Lock()
        self._versions: dict[str, list[tuple[int, int, int | None]]] = {}  # id → (begun, done, version or gone)

    def record(self, begun: int, done: int, versions: dict[str, int | None]) -> None:
        """Note a change that was begun before `begun` and acknowledged at `done`."""
        with self._lock:
            for doc_id, version in versions.items():
                self._versions.setdefault(doc_id, []).append((begun, done, version))

    def may_have(self, doc_id: str, version: int, first: int, last: int) -> bool:
        """Tell whether the version may have been stored at a moment between two numbers of changes."""
        with self._lock:
            states = list(self._versions.get(doc_id, ()))
        for i, (begun, _, stored) in enumerate(states):
            until = states[i + 1][1] if i + 1 < len(states) else sys.maxsize
            if stored == version and begun <= last and until >= first:
                return True
        return False


def vector(number: int) -> Any:
    """Give the vector of a document's version."""
    return np.random.default_rng(number).standard_normal(DIM).astype(np.float32)


def write(collection: Collection, history: History, stop: threading.Event, counts: Counter[str]) -> None:
    """Change the collection until told to stop."""
    rng = random.Random(1)  # noqa: S311 -- a repeatable load, no secret
    version = 0
    while not stop.is_set():
        ids = [f"d{i}" for i in rng.sample(range(IDS), rng.randint(1, 40))]
        change: dict[str, int | None] = {}
        begun = history.changes
        if rng.random() < 0.25:
            change = dict.fromkeys(ids)
            history.record(begun, begun + 1, change)
            collection.delete(ids)
            counts["deletions"] += len(ids)
        else:
            docs = []
            for doc_id in ids:
                version += 1
                change[doc_id] = version
                docs.append(Document(doc_id, f"apple v{version}", metadata={"v": version}, vector=vector(version)))
            history.record(begun, begun + 1, change)
            collection.write(docs, on_conflict="replace")
            counts["writes"] += len(ids)
        history.changes = begun + 1
        if rng.random() < 0.01:
            collection.upkeep.compact()
            counts["compactions"] += 1


def read(
    collection: Collection,
    history: History,
    stop: threading.Event,
    *,
    counts: Counter[str],
    wrong: list[str],
    seed: int,
) -> None:
    """Search and check until told to stop."""
    rng = random.Random(seed)  # noqa: S311 -- as above
    while not stop.is_set():
        first = history.changes
        asked = rng.randrange(1, max(2, 30 * (first + 1)))
        kind = rng.choice(["dense", "lexical", "filtered"])
        if kind == "dense":
            found = collection.dense(vector(asked), 5)
        elif kind == "lexical":
            found = collection.lexical(f"v{asked}", 5)
        else:
            found = collection.dense(vector(asked), 5, {"v": {"$gte": asked}})
        docs = [doc for doc in collection.fetch(found.rows) if doc is not None]
        last = history.changes + 1  # a change may be stored before the writer has counted it
        counts[kind] += 1
        for doc in docs:
            version = doc.metadata["v"]
            if not isinstance(version, int) or not history.may_have(doc.id, version, first, last):
                wrong.append(f"{kind}: {doc.id} version {version} between changes {first} and {last}")
            if kind == "filtered" and isinstance(version, int) and version < asked:
                wrong.append(f"filtered: {doc.id} has version {version}, below {asked}")


def main() -> None:
    """Run the threads and print what they did."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--readers", type=int, default=16)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    history, stop, wrong = History(), threading.Event(), []
    counts: Counter[str] = Counter()
    failures: list[str] = []
    threading.excepthook = lambda args: failures.append(f"{args.exc_type.__name__}: {args.exc_value}")
    with (
        tempfile.TemporaryDirectory() as folder,
        Collection.open(Path(folder) / "db", CollectionSettings(dense="HNSW16")) as collection,
    ):
        collection.write([Document("seed", "apple", metadata={"v": 0}, vector=vector(0))])
        history.record(0, 0, {"seed": 0})
        threads = [threading.Thread(target=write, args=(collection, history, stop, counts))]
        threads += [
            threading.Thread(
                target=read,
                args=(collection, history, stop),
                kwargs={"counts": counts, "wrong": wrong, "seed": seed},
            )
            for seed in range(options.readers)
        ]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + options.seconds
        while time.monotonic() < deadline and not (wrong or failures):
            time.sleep(0.2)
        stop.set()
        for thread in threads:
            thread.join()
        verified = collection.upkeep.verify()
    result = {**counts, "wrong": wrong[:5], "failures": failures[:5], "faults": [str(f) for f in verified.faults]}
    print(json.dumps(result, indent=2) if options.json else result)
    sys.exit(bool(wrong or failures or verified.faults))


if __name__ == "__main__":
    main()
