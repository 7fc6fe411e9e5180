"""A process that writes to a collection until it is killed, and says what it begins and what was acknowledged.

python writing_process.py FOLDER SEED [FAILPOINT COUNT]

Each line is JSON: ["begin", upserted, deleted] before a change and ["done"] after it. With a failpoint it kills itself
there, the COUNT-th time.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from pathlib import Path

import numpy as np

from vectorsearch.collection.collection import Collection, CollectionSettings
from vectorsearch.collection.storage.disk import failpoints
from vectorsearch.types import Document

DIM = 8


def document(number: int) -> Document:
    """Give the document of a number: its id recurs every 150, its word and its vector are its own."""
    vector = np.random.default_rng(number).standard_normal(DIM).astype(np.float32)
    return Document(f"d{number % 150}", f"apple unique{number}", vector=vector)


def say(*parts: object) -> None:
    """Write a line at once."""
    sys.stdout.write(json.dumps(parts) + "\n")
    sys.stdout.flush()


def kill_at(count: int) -> None:
    """Die on the COUNT-th call."""
    kill_at.left = getattr(kill_at, "left", count) - 1  # type: ignore[attr-defined]  # a counter on the function
    if kill_at.left == 0:  # type: ignore[attr-defined]  # as above
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Write, delete, search, flush and compact in turn."""
    folder, seed = Path(sys.argv[1]), int(sys.argv[2])
    if sys.argv[3:]:
        failpoints.arm(sys.argv[3], lambda: kill_at(int(sys.argv[4])))
    rng = random.Random(seed)  # noqa: S311 -- a repeatable test, no secret
    number = seed * 1_000_000
    collection = Collection.open(folder, CollectionSettings(dense="Flat"))
    say("open")
    while True:
        batch = [document(number + i) for i in range(rng.randint(1, 20))]
        number += len(batch)
        say("begin", [(doc.id, doc.text) for doc in batch], [])
        collection.write(batch, on_conflict="replace")
        say("done")
        if rng.random() < 0.5:
            gone = [f"d{rng.randrange(150)}" for _ in range(5)]
            say("begin", [], gone)
            collection.delete(gone)
            say("done")
        if rng.random() < 0.5:
            collection.dense(document(number).vector, 5)  # type: ignore[arg-type]  # it has one
            collection.lexical("apple", 5)
        if rng.random() < 0.3:
            collection.flush()
        if rng.random() < 0.15:
            collection.upkeep.compact()


if __name__ == "__main__":
    main()
