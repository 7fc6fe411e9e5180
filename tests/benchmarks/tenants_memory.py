"""What fifty tenants' indexes take in memory, with and without a limit, and what opening them again costs.

    python tests/benchmarks/tenants_memory.py [--json] [--quick]

Each tenant has 1,000 documents of 40 words with vectors of 384 numbers. For each limit a fresh process opens the store
and then all tenants, searches each by words, then by vector, then writes one document to each and searches again; after
each step it tells its private resident memory, less that of the step "store", and the threads that it has. `again` is
a search of a tenant whose indexes are open, `reopened` one after all others have been searched.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
from lifecycle_measuring import finish, parse_options, quantiles_ms

import vectorsearch as vs

if TYPE_CHECKING:
    from collections.abc import Callable

DIM = 384
WORDS = [f"word{number}" for number in range(5_000)]
LIMITS = {"no limit": None, "64 MiB": 64 << 20, "16 MiB": 16 << 20}


def build(folder: Path, tenants: int, documents: int) -> None:
    """Make the store."""
    rng = np.random.default_rng(0)
    with vs.open(folder, embed=None) as db:
        for number in range(tenants):
            given = rng.normal(size=(documents, DIM)).astype(np.float32)
            texts = (" ".join(rng.choice(WORDS, 40)) for _ in range(documents))
            rows = enumerate(zip(texts, given, strict=True))
            db.tenant(f"t{number}").add({"id": str(row), "text": text, "vector": v} for row, (text, v) in rows)


class Child:
    """A process with the store open: what it does to each tenant, and what it takes then."""

    def __init__(self, db: vs.Database, tenants: int) -> None:
        self._process = psutil.Process()
        self._base = self._private
        self.told: dict[str, Any] = {}
        self._tenants = [db.tenant(f"t{number}") for number in range(tenants)]
        self._vector = np.ones(DIM, np.float32)
        self.tell("tenants open")

    @property
    def _private(self) -> int:
        return int(self._process.memory_full_info().uss)

    def tell(self, step: str) -> None:
        """Note memory and threads."""
        threads = self._process.num_threads()
        self.told[step] = {"mib": round((self._private - self._base) / 2**20, 1), "threads": threads}

    def each(self, work: Callable[[vs.Database], object]) -> list[float]:
        """Do something with every tenant in turn, and return the seconds that each took."""
        seconds = []
        for tenant in self._tenants:
            begun = time.perf_counter()
            work(tenant)
            seconds.append(time.perf_counter() - begun)
        return seconds

    def search(self, tenant: vs.Database) -> None:
        """Search by words and by vector."""
        if not len(tenant.search("word1 word2", vector=self._vector, mode="hybrid")):
            raise AssertionError("nothing was found")

    def run(self) -> dict[str, Any]:
        """Take all steps."""
        self.each(lambda tenant: tenant.search("word1 word2", mode="lexical"))
        self.tell("by words")
        self.each(self.search)
        self.tell("by vector too")
        row = {"id": "new", "text": "word1", "vector": self._vector}
        self.each(lambda tenant: tenant.upsert([row]))
        self.each(self.search)
        self.tell("after a write")
        reopened = self.each(self.search)
        again = []
        for tenant in self._tenants:
            self.search(tenant)
            begun = time.perf_counter()
            self.search(tenant)
            again.append(time.perf_counter() - begun)
        return {**self.told, "again": quantiles_ms(again), "reopened": quantiles_ms(reopened)}


def child(folder: str, tenants: str, limit: str) -> None:
    """Print what a process with this limit tells."""
    with vs.open(folder, embed=None, index_budget_nbytes=json.loads(limit)) as db:
        print(json.dumps(Child(db, int(tenants)).run()))


def main() -> None:
    """Print the figures."""
    if sys.argv[1:2] == ["child"]:
        child(*sys.argv[2:])
        return
    options = parse_options(__doc__, plots=False)
    tenants, documents = (5, 200) if options.quick else (50, 1_000)
    figures: dict[str, Any] = {"tenants": tenants, "documents_each": documents}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "db"
        build(folder, tenants, documents)
        for name, limit in LIMITS.items():
            command = [sys.executable, __file__, "child", str(folder), str(tenants), json.dumps(limit)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            figures[name] = json.loads(done.stdout)
    finish(figures, options, wrong={})


if __name__ == "__main__":
    main()
