"""Searches with `timeout_s=0.3` and a reranker that is slowed at random: who is in time, and at what loss of quality.

python tests/benchmarks/deadline.py [--queries 100] [--timeout 0.3] [--json]

The collection is the standard library's documentation (`vectorsearch collections build stdlib`), searched by words; the
reranker is the default model. It is slowed twice: as a function that sleeps now and then (nobody can stop it, so its
caller leaves it behind), and as a model whose batches take longer now and then (it is stopped between them). A search
is in time if the caller has its answer within the limit, by the caller's own clock.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any

import numpy as np

import vectorsearch as vs
from backends.catalogue import catalogue
from backends.catalogue.entries import DEFAULT_RERANKER
from backends.choosing import registry
from rerank import CrossEncoder
from vectorsearch.cli.commands.collections import stdlib_folder
from vectorsearch.evaluation.collecting.collections import read_collection
from vectorsearch.evaluation.collecting.stdlib_corpus import write_collection
from vectorsearch.evaluation.collecting.topics import Topics
from vectorsearch.evaluation.comparing.metrics import measure

if TYPE_CHECKING:
    from backends.base import LoadedModel, ModelSpec, Serves, TokenBatch

IN_TIME = 0.99
SLOWED = 0.3  # of the calls
SEED = 7


class SlowedModel:
    """A loaded model whose batches take up to a tenth of a second longer while its owner is slow."""

    def __init__(self, model: LoadedModel, owner: SlowedBackend) -> None:
        self._model, self._owner = model, owner
        self.nbytes, self.device, self.close = model.nbytes, model.device, model.close

    def infer(self, batch: TokenBatch) -> Any:
        """Answer as the model does, later."""
        if self._owner.is_slow:
            time.sleep(self._owner.random.uniform(0.0, 0.1))
        return self._model.infer(batch)


class SlowedBackend:
    """The backend that would be chosen, slowed for a share of the searches."""

    name, priority = "slowed", None

    def __init__(self, spec: ModelSpec) -> None:
        self._backend = registry.select(spec)
        self.random = random.Random(SEED)  # noqa: S311 -- repeatable, not secret
        self.is_slow = False

    def can_serve(self, spec: ModelSpec) -> Serves:
        """Say what the backend says."""
        return self._backend.can_serve(spec)

    def estimate(self, spec: ModelSpec) -> int:
        """Return what the backend does."""
        return self._backend.estimate(spec)

    def load_model(self, spec: ModelSpec) -> SlowedModel:
        """Load the model, to be slowed."""
        return SlowedModel(self._backend.load_model(spec), self)


def measure_searches(db: vs.Database, judged: Any, rerank: Any, options: argparse.Namespace) -> dict[str, Any]:
    """Ask each query within the limit, and say who was in time, what was left out, and how good the answers are."""
    rankings, latencies, degraded = {}, [], []
    for query_id in judged.qrels:
        search = rerank(judged.queries[query_id])
        begun = time.perf_counter()
        result = db.search(judged.queries[query_id], k=10, timeout_s=options.timeout, **search)
        latencies.append(time.perf_counter() - begun)
        degraded.extend(result.degraded)
        rankings[query_id] = [hit.id for hit in result]
    n = len(latencies)
    return {
        "in_time": sum(latency <= options.timeout for latency in latencies) / n,
        "p50_ms": float(np.percentile(latencies, 50)) * 1000,
        "p99_ms": float(np.percentile(latencies, 99)) * 1000,
        "reranker_left_out": sum(reason == "rerank:timeout" for reason in degraded) / n,
        "reranked_fewer": sum(reason == "rerank:shortened" for reason in degraded) / n,
        "nDCG@10": measure(rankings, judged.qrels, names=("nDCG@10",))["nDCG@10"],
    }


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Build the database, then measure: without a reranker, without a limit, and both ways of being slow."""
    folder = stdlib_folder()
    if not (folder / "build.json").exists():
        write_collection(folder)
    collection = read_collection(folder)
    judged = Topics.first(collection, options.queries)
    spec = catalogue.pull(DEFAULT_RERANKER)
    slowed = SlowedBackend(spec)
    registry.register(slowed)
    chance = random.Random(SEED)  # noqa: S311 -- repeatable, not secret
    with tempfile.TemporaryDirectory() as scratch, CrossEncoder(spec.name) as model:

        def sleepy(query: str, texts: list[str]) -> Any:
            if chance.random() < SLOWED:
                time.sleep(chance.uniform(0.2, 1.0))
            return model.score(query, texts)

        def as_model(_query: str) -> dict[str, Any]:
            slowed.is_slow = chance.random() < SLOWED
            return {"rerank": True}

        with vs.open(scratch, embed=None, backend="slowed") as db:
            db.add({**row, "id": row["_id"]} if "_id" in row else row for row in collection.documents())
            db.refresh()
            model.score("warm", ["up"])
            db.search("warm up", rerank=True)
            unlimited = argparse.Namespace(timeout=60.0)
            return {
                "queries": len(judged.qrels),
                "timeout_s": options.timeout,
                "slowed_share": SLOWED,
                "first_stage": measure_searches(db, judged, lambda _: {}, options),
                "no_limit": measure_searches(db, judged, lambda _: {"rerank": model}, unlimited),
                "slowed_function": measure_searches(db, judged, lambda _: {"rerank": sleepy}, options),
                "slowed_model": measure_searches(db, judged, as_model, options),
            }


def main() -> None:
    """Run it and print the figures; fail if too few searches were in time."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--timeout", type=float, default=0.3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = run(options)
    if options.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            shown = value if not isinstance(value, dict) else ", ".join(f"{k} {v:.3f}" for k, v in value.items())
            print(f"{name:>16}  {shown}")
    sys.exit(min(figures[name]["in_time"] for name in ("slowed_function", "slowed_model")) < IN_TIME)


if __name__ == "__main__":
    main()
