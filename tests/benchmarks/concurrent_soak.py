"""Readers and writers on one database for a minute, every answer compared with a serial model.

python tests/benchmarks/concurrent_soak.py [--seconds S] [--readers N] [--writers N] [--dense auto|HNSW16] [--json]

Writers add, replace, delete and compact, each documents of its own. A search must have found nothing but what was
stored at some moment while it ran; k hits where k match; each document that matches and that nobody changed
meanwhile, if it gave fewer than k, whether a filter or a word asked for it; and, by the exact index, none that is
farther than one that it left out. A writer looks for what it has just written. `near_misses` counts the searches by a
graph (`--dense HNSW16`) that did not find the very document whose vector was asked for: at most one in twenty.
`changed` are results that said that documents were replaced too fast to be fetched.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from serial_model import ABSENT, Asked, SerialModel, Window, faults, vector

import vectorsearch as vs

DIM = 16
IDS = 3000
COMMON = "apple"


@dataclass
class Soak:
    """What all threads share."""

    db: vs.Database
    model: SerialModel
    is_exact: bool
    stop: threading.Event = field(default_factory=threading.Event)
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def search(self, asked: Asked, mode: str) -> None:
        """Search, and note what is wrong with the answer."""
        look = self.model.look()
        query = None if asked.word is None else f"{COMMON} v{asked.word}" if mode == "hybrid" else word(asked.word)
        result = self.db.search(
            query,
            vector=None if asked.vector is None else vector(asked.vector, DIM),
            k=asked.k,
            filter={"v": {"$gte": asked.at_least}} if asked.at_least else None,
            mode=mode,  # type: ignore[arg-type]  # one of the three
        )
        window = self.model.window(look)
        found = [(int(hit.id[1:]), int(hit.metadata["v"])) for hit in result]
        self.counts[mode + (" filtered" if asked.at_least else "")] += 1
        changed = "fetch:changed" in result.degraded
        self.counts["changed"] += changed
        scores = [hit.score for hit in result] if mode == "dense" and self.is_exact else None
        self.wrong += [f"{mode} {asked}: {fault}" for fault in faults(asked, found, window, scores=scores, cut=changed)]
        if not changed:
            self._look_for_the_one(asked, found, window, mode)

    def _look_for_the_one(self, asked: Asked, found: list[tuple[int, int]], window: Window, mode: str) -> None:
        """Check that the document whose own word or vector was asked for is among the hits."""
        own = asked.vector or asked.word
        for doc in window.untouched(Asked(1, word=own)) if own and own >= asked.at_least else ():
            if (int(doc), own) not in found:
                if mode == "lexical" or self.is_exact:
                    self.wrong.append(f"{mode} {asked}: document {doc} was asked for, and isn't among {found}")
                self.counts["near_misses"] += 1


def word(version: int) -> str:
    """Return the word of a version, or that of all."""
    return f"v{version}" if version else COMMON


def write(soak: Soak, writer: int, writers: int) -> None:
    """Change documents of one's own until told to stop, and look for some."""
    rng = random.Random(writer)  # noqa: S311 -- a repeatable load, no secret
    version = writer
    while not soak.stop.is_set():
        docs = rng.sample(range(writer, IDS, writers), rng.randint(1, 40))
        is_deletion = rng.random() < 0.25
        versions = [version + writers * (i + 1) for i in range(len(docs))]
        change = dict.fromkeys(docs, ABSENT) if is_deletion else dict(zip(docs, versions, strict=True))
        number = soak.model.begin(change)
        if is_deletion:
            soak.db.delete([f"d{doc}" for doc in docs])
        else:
            version = versions[-1]
            soak.db.upsert(
                [
                    {"id": f"d{doc}", "text": f"{COMMON} v{v}", "metadata": {"v": v}, "vector": vector(v, DIM)}
                    for doc, v in change.items()
                ]
            )
        soak.model.acknowledge(number)
        soak.counts["deletions" if is_deletion else "writes"] += len(docs)
        if rng.random() < 0.05 and not is_deletion:
            soak.search(Asked(5, word=version), "lexical")
            soak.search(Asked(5, vector=version), "dense")
        if rng.random() < 0.01:
            soak.db.compact()
            soak.counts["compactions"] += 1


def read(soak: Soak, seed: int) -> None:
    """Search and check until told to stop."""
    rng = random.Random(-1 - seed)  # noqa: S311 -- as above
    while not soak.stop.is_set():
        versions = soak.model.look()[0]
        stored = versions[versions != ABSENT]
        if not len(stored):
            continue
        own = int(stored[rng.randrange(len(stored))])
        k = rng.choice([1, 5, 50, 200])
        least = int(np.sort(stored)[-rng.randint(1, min(len(stored), 120))]) if rng.random() < 0.5 else 0
        mode = rng.choice(["dense", "lexical", "hybrid"])
        one = rng.choice([0, own]) if mode == "lexical" else own
        soak.search(
            Asked(k, None if mode == "dense" else one, None if mode == "lexical" else own, at_least=least), mode
        )


def run(seconds: float, *, readers: int, writers: int, dense: str) -> dict[str, Any]:
    """Run the threads and return what they did, and what was wrong."""
    failures: list[str] = []
    hook, threading.excepthook = threading.excepthook, lambda args: failures.append(repr(args.exc_value))
    with (
        contextlib.ExitStack() as ending,
        tempfile.TemporaryDirectory() as folder,
        vs.open(Path(folder) / "db", embed=None, rerank=None, dense_index=dense) as db,
    ):
        ending.callback(setattr, threading, "excepthook", hook)
        soak = Soak(db, SerialModel(IDS, DIM), is_exact=dense == "auto")
        threads = [threading.Thread(target=write, args=(soak, writer, writers)) for writer in range(writers)]
        threads += [threading.Thread(target=read, args=(soak, seed)) for seed in range(readers)]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not (soak.wrong or failures):
            time.sleep(0.2)
        soak.stop.set()
        for thread in threads:
            thread.join()
        soak.search(Asked(IDS, word=0), "lexical")
        soak.search(Asked(IDS, word=0, vector=1, at_least=1), "hybrid")
        verified = db.verify()
    by_graph = sum(soak.counts[name] for name in ("dense", "dense filtered", "hybrid", "hybrid filtered"))
    if soak.counts["near_misses"] > by_graph / 20:
        soak.wrong.append(f"{soak.counts['near_misses']} of {by_graph} searches by a graph missed the nearest")
    faulty = [str(fault) for fault in verified.faults]
    return {**soak.counts, "dense_index": dense, "wrong": soak.wrong[:5], "failures": failures[:5], "faults": faulty}


def main() -> None:
    """Parse the arguments, run, print what was done; fail if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--readers", type=int, default=8)
    parser.add_argument("--writers", type=int, default=2)
    parser.add_argument("--dense", default="auto", choices=["auto", "HNSW16"])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result = run(options.seconds, readers=options.readers, writers=options.writers, dense=options.dense)
    print(json.dumps(result, indent=2) if options.json else result)
    sys.exit(bool(result["wrong"] or result["failures"] or result["faults"]))


if __name__ == "__main__":
    main()
