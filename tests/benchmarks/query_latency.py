"""Latency of one short query: p50 and p99 warm, and the cold start to the first answer, on each backend.

Run: `python tests/benchmarks/query_latency.py --json`. A cold start is a new process: importing the runtime, loading
the model, tokenising and computing. JAX's is measured with an empty folder of compiled programs, and with the one that
the run before it has left. `--model NAME` measures another model, `--only NAME …` some backends.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

import numpy as np

from backends.catalogue import catalogue
from backends.catalogue.entries import DEFAULT_EMBEDDER
from backends.choosing import registry
from backends.running.text_model import TextLoader

QUERIES = (
    "how do I parse a csv file",
    "current time in another time zone",
    "join two paths",
    "what raises a key error",
)
_CHILD = """
import sys, time
start = time.perf_counter()
from backends.catalogue import catalogue
from backends.choosing import registry
from backends.running.text_model import TextLoader
model = TextLoader(registry.get(sys.argv[2])).load_model(catalogue.resolve(sys.argv[1]))
model.embed(["how do I parse a csv file"], kind="query")
print(time.perf_counter() - start)
"""


def warm(model_name: str, backend: str, rounds: int) -> dict[str, object]:
    """Return milliseconds of a query on a model that has answered each of them before."""
    model = TextLoader(registry.get(backend)).load_model(catalogue.resolve(model_name))
    for query in QUERIES:
        model.embed([query], kind="query")
    times = []
    for i in range(rounds):
        start = time.perf_counter()
        model.embed([QUERIES[i % len(QUERIES)]], kind="query")
        times.append((time.perf_counter() - start) * 1000)
    found = {
        "device": model.device,
        "p50_ms": round(float(np.percentile(times, 50)), 2),
        "p99_ms": round(float(np.percentile(times, 99)), 2),
    }
    model.close()
    return found


def cold(model_name: str, backend: str, programs: str) -> float:
    """Return seconds from the start of the imports to the first answer, in a process of its own."""
    environment = {
        **os.environ,
        "JAX_COMPILATION_CACHE_DIR": programs,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    command = [sys.executable, "-c", _CHILD, model_name, backend]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return round(float(done.stdout.split()[-1]), 2)


def measure(model_name: str, backend: str, rounds: int) -> dict[str, object]:
    """Return one backend's figures."""
    found = warm(model_name, backend, rounds)
    with tempfile.TemporaryDirectory() as programs:
        found["cold_s"] = cold(model_name, backend, programs)
        found["cold_again_s"] = cold(model_name, backend, programs)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=DEFAULT_EMBEDDER)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    spec = catalogue.pull(args.model)
    names = args.only or [
        variant
        for name in registry.unasked()
        for variant in registry.variants(name)
        if registry.get(variant).can_serve(spec)
    ]
    result = {name: measure(args.model, name, args.rounds) for name in names}
    if args.json:
        print(json.dumps({"model": args.model, "backends": result}, indent=2))
        return
    for name, found in result.items():
        print(f"{name:16}", *(f"{what} {value}  " for what, value in found.items()))


if __name__ == "__main__":
    main()
