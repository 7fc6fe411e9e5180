"""Fifty tenants, each with a reranker of its own, and room for eight: is every answer the right model's, and how fast?

    python tests/benchmarks/tenants_load.py [--models FOLDER] [--json] [--quick]

The models are two-layer truncations of the public reranker with weights of their own (`tenant_models.py`), made in
FOLDER if they aren't there: 3 GB for fifty, a minute. Each is registered by its tenant, all under one name, and the
tenants' documents have the same ids and texts. 16 threads take turns at a trace in which the tenants' popularity is
1 / rank: each searches a tenant's documents, and reranks ten of 55 words: 64 tokens.

An answer is wrong if a score differs from what ONNX Runtime computes of that tenant's own file by more than 1e-4;
`closest_tenants` is by how much the two most similar models differ on the same texts. The ledger is read at every event
of the manager. `hit_ratio` counts searches that found their model loaded. `loads_per_1000` stand beside those of LRU
and of Belady's optimal policy when the same trace is served one by one: 16 at once can share a load. `alone`: one
thread, twenty tenants, each twice.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import tenant_models
from lifecycle_eviction_trace import Belady, Lru, Trace, next_uses, simulate
from lifecycle_measuring import finish, parse_options, quantiles_ms

import vectorsearch as vs
from backends.choosing import registry
from backends.folders.folder import read_folder
from lifecycle import ModelManager

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vectorsearch.query.results import SearchResult

THREADS = 16
ALONE = 20
MODEL = "own"  # what every tenant calls its model
DEPTH = 10
WORDS = ("parser", "reads", "each", "line", "of", "a", "csv", "file", "and", "returns", "rows", "as", "lists", "until")
QUERIES = (
    "how parser reads csv file",
    "returns each rows as lists",
    "reads line until a file",
    "csv parser and rows of",
)
TEXTS = [" ".join(np.random.default_rng(seed).choice(WORDS, 55)) for seed in range(20)]
TOLERANCE = 1e-4


@dataclass
class Outcome:
    """What became of the searches, and what the ledger said meanwhile."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: {"warm": [], "cold": []})
    wrong: Counter[str] = field(default_factory=Counter)
    most_off: float = 0.0
    charged: list[int] = field(default_factory=list)


class Load:
    """A store whose tenants have their documents and models, and the searches on it."""

    def __init__(self, db: vs.Database, models: list[Path]) -> None:
        self._db = db
        with ThreadPoolExecutor(4) as pool:  # as services do: several tenants arrive at once
            made = list(pool.map(self._make, models))
        self._tenants = [tenant for tenant, _ in made]
        self._scores = np.array([scores for _, scores in made])

    def _make(self, folder: Path) -> tuple[vs.Database, NDArray[np.float32]]:
        tenant = self._db.tenant(folder.name)
        tenant.add({"id": str(i), "text": text, "metadata": {"of": folder.name}} for i, text in enumerate(TEXTS))
        tenant.register_model(MODEL, folder, "cross-encoder")
        return tenant, tenant_models.true_scores(folder, QUERIES, TEXTS)

    @property
    def closest(self) -> float:
        """Return by how much the scores of the two most similar models differ at most."""
        pairs = itertools.combinations(self._scores, 2)
        return min(float(np.abs(one - other).max()) for one, other in pairs)

    def search(self, number: int, query: int, outcome: Outcome) -> None:
        """Search one tenant's documents, and note how it went."""
        tenant = self._tenants[number]
        rerank = vs.Rerank(MODEL, depth=DEPTH)
        begun = time.perf_counter()
        try:
            result = tenant.search(QUERIES[query], k=DEPTH, rerank=rerank, on_rerank_error="raise")
        except Exception as exc:  # noqa: BLE001 - whatever goes wrong is what is counted
            outcome.wrong["errors"] += 1
            print(f"{type(exc).__name__}: {exc}", file=sys.stderr)
            return
        kind = "cold" if result.stats[-1].cold else "warm"
        outcome.seconds[kind].append(time.perf_counter() - begun)
        self._judge(result, self._scores[number, query], outcome)
        outcome.wrong["others_documents"] += any(hit.metadata["of"] != tenant.tenant_name for hit in result)

    @staticmethod
    def _judge(result: SearchResult, scores: NDArray[np.float32], outcome: Outcome) -> None:
        off = max((abs(hit.score - float(scores[int(hit.id)])) for hit in result), default=np.inf)
        outcome.most_off = max(outcome.most_off, off)
        outcome.wrong["wrong_answers"] += len(result) != DEPTH or off > TOLERANCE
        outcome.wrong["degraded"] += bool(result.degraded)


def tell(phase: str) -> None:
    """Say what is going on, to whoever watches a long run."""
    print(f"{time.strftime('%H:%M:%S')} {phase} …", file=sys.stderr, flush=True)


def zipf(tenants: int, length: int) -> NDArray[np.int64]:
    """Return which tenant is asked at each step; popularity is 1 / rank, and ranks are dealt at random."""
    rng = np.random.default_rng(5)
    popularity = 1 / np.arange(1, tenants + 1)
    return rng.permutation(tenants)[rng.choice(tenants, length, p=popularity / popularity.sum())]


def serve(load: Load, trace: NDArray[np.int64], threads: int, outcome: Outcome) -> float:
    """Send the whole trace, a thread taking the next request when it is done with its last; return the seconds."""
    requests = iter(enumerate(trace.tolist()))
    taking = threading.Lock()

    def client() -> None:
        while True:
            with taking:
                step, tenant = next(requests, (0, -1))
            if tenant < 0:
                return
            load.search(tenant, step % len(QUERIES), outcome)

    begun = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(client) for _ in range(threads)]:
            done.result()
    return time.perf_counter() - begun


def simulated(trace: NDArray[np.int64], tenants: int, room: int) -> dict[str, int]:
    """Return how often each policy loads a model when the trace is served one by one."""
    ones = np.ones(tenants, np.int64)
    alike = Trace("zipf", trace, next_uses(trace), ones, ones)
    return {name: int(simulate(alike, room, policy)[0][0]) for name, policy in (("lru", Lru()), ("belady", Belady()))}


def measure(models: list[Path], *, room: int, length: int, threads: int) -> tuple[dict[str, Any], dict[str, int]]:
    """Return the figures, and what must be 0."""
    nbytes = registry.get("onnx").estimate(read_folder(models[0]))
    trace, outcome, alone = zipf(len(models), length), Outcome(), Outcome()
    with (
        tempfile.TemporaryDirectory() as folder,
        ModelManager(room * nbytes) as manager,
        vs.open(folder, embed=None, rerank=None, backend="onnx", manager=manager) as db,
    ):
        manager.subscribe(lambda _: outcome.charged.append(manager.snapshot().charged_nbytes))
        tell("tenants and models are registered")
        load = Load(db, models)
        tell("the trace is served")
        before = manager.snapshot().counters
        seconds = serve(load, trace, threads, outcome)
        after = manager.snapshot()
        tell("each tenant is served alone")
        resident = psutil.Process().memory_info().rss
        for number in [n for n in range(min(ALONE, len(models))) for _ in ("cold", "warm")]:
            load.search(number, 0, alone)
    counters = after.counters
    served = counters.lazy_loads + counters.eager_loads - before.lazy_loads - before.eager_loads
    loads = {"served": served, **simulated(trace, len(models), room)}
    figures = {
        "tenants": len(models), "room": room, "requests": length, "threads": threads,
        "model_mib": round(nbytes / 2**20, 1), "budget_mib": round(room * nbytes / 2**20, 1),
        "ledger_mib": round(max(outcome.charged) / 2**20, 1), "ledger_readings": len(outcome.charged),
        "resident_mib": round(resident / 2**20, 1),
        "seconds": round(seconds, 1), "requests_per_s": round(length / seconds, 1),
        "hit_ratio": round(len(outcome.seconds["warm"]) / length, 4),
        "loads_per_1000": {name: round(1000 * number / length, 1) for name, number in loads.items()},
        **{kind: quantiles_ms(times) for kind, times in outcome.seconds.items()},
        "alone": {kind: quantiles_ms(times) for kind, times in alone.seconds.items()},
        "most_off": outcome.most_off, "closest_tenants": load.closest,
    }  # fmt: skip
    kinds = ("errors", "wrong_answers", "others_documents", "degraded")
    wrong = {kind: outcome.wrong[kind] + alone.wrong[kind] for kind in kinds}
    wrong["over_budget"] = sum(charged > room * nbytes for charged in outcome.charged)
    wrong["tenants_alike"] = load.closest < 10 * TOLERANCE
    wrong["failed_loads"] = counters.load_failures
    return figures, wrong


def main() -> None:
    """Print the figures; fail if anybody was served wrongly."""
    options = parse_options(__doc__, plots=False, models="")
    sizes = (
        {"room": 2, "length": 100, "threads": 8} if options.quick else {"room": 8, "length": 3000, "threads": THREADS}
    )
    with tempfile.TemporaryDirectory() as scratch:
        models = tenant_models.make(Path(options.models or scratch), 6 if options.quick else 50)
        figures, wrong = measure(models, **sizes)
    finish(figures, options, wrong={kind: int(count) for kind, count in wrong.items()})


if __name__ == "__main__":
    main()
