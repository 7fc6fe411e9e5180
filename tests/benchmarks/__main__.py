"""Run the benchmarks one after another: `python tests/benchmarks --quick` runs all of them small.

What needs a collection takes `--collection DIR` (a folder in BEIR's layout, such as SciFact's) and is named if there is
none; so is what lacks a package. Each one's figures are printed by itself, with `--json` as one document.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
COLLECTION = "COLLECTION"
# The arguments of a short run, to see that it works and roughly what it says.
QUICK: dict[str, tuple[str, ...]] = {
    "backend_contract": ("--count", "2", "--backends", "onnx", "numpy"),
    "backend_memory": ("--cycles", "2", "--only", "numpy:float32", "--model", "bge-small-en-v1.5-int8"),
    "backend_quality": ("--collection", COLLECTION, "--documents", "200", "--queries", "10", "--backend", "onnx"),
    "bm25": ("--documents", "2000"),
    "bulk_embedding": (COLLECTION, "--passages", "16", "--short", "16", "--rounds", "1", "--only", "onnx"),
    "bulk_memory": ("--documents", "2000"),
    "cold_query": ("--rounds", "1"),
    "concurrent_soak": ("--seconds", "5"),
    "deadline": ("--queries", "3"),
    "engine_peers": ("--documents", "1000", "--engine", "vectorsearch"),
    "filter_values": ("--documents", "1000", "--rounds", "1"),
    "hostile_models": ("--quick",),
    "ingest_rate": ("--documents", "500", "--rounds", "1"),
    "kill_commands": ("--rounds", "3"),
    "kill_index": ("--documents", "300", "--kills", "2"),
    "kill_store": ("--rounds", "5"),
    "lifecycle_cold_neighbour": ("--quick",),
    "lifecycle_eviction_trace": ("--quick",),
    "lifecycle_hot_path": ("--quick",),
    "lifecycle_hot_swap": ("--quick",),
    "lifecycle_proof": ("--quick",),
    "lifecycle_soak": ("--quick",),
    "lifecycle_tenants": ("--quick",),
    "models": ("--tokens", "64"),
    "one_document": ("--rounds", "1"),
    "query_latency": ("--rounds", "1", "--only", "onnx"),
    "random_files": ("--seconds", "10"),
    "rerank_latency": ("--rounds", "1", "--only", "onnx"),
    "tenants_load": ("--quick",),
    "tenants_memory": ("--quick",),
    "write_beside_search": ("--documents", "1000", "--seconds", "2"),
}
NEEDS = {"rerank_latency": "sentence_transformers", "bulk_embedding": "sentence_transformers", "bm25": "bm25s"}
EXTRAS = {"sentence_transformers": "torch", "bm25s": "peers"}
FAILED, LACKING, DONE = "failed", "lacks", "done"


def lacking(name: str, collection: Path | None) -> str:
    """Return why a benchmark can't run here; empty if it can."""
    package = NEEDS.get(name, "")
    if package and importlib.util.find_spec(package) is None:
        return f"pip install 'vectorsearch[{EXTRAS[package]}]'"
    if COLLECTION in QUICK[name] and collection is None:
        return "--collection DIR"
    return ""


def run(name: str, collection: Path | None) -> dict[str, Any]:
    """Run one and return what came of it, its seconds, and its document."""
    if why := lacking(name, collection):
        return {"name": name, "outcome": LACKING, "why": why}
    arguments = [str(collection) if each == COLLECTION else each for each in QUICK[name]]
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, str(HERE / f"{name}.py"), *arguments, "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - began
    outcome = {"name": name, "outcome": FAILED if done.returncode else DONE, "seconds": round(seconds, 1)}
    if done.returncode:
        return {**outcome, "why": (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]}
    try:
        figures = json.loads(done.stdout)
    except json.JSONDecodeError:
        return {**outcome, "outcome": FAILED, "why": "stdout isn't one JSON document"}
    return {**outcome, "figures": figures} if figures else {**outcome, "outcome": FAILED, "why": "it measured nothing"}


def main() -> int:
    """Run what was asked for, and return 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", required=True, help="small runs, all in a quarter of an hour")
    parser.add_argument("--only", nargs="*", choices=sorted(QUICK), help="these alone")
    parser.add_argument("--collection", type=Path, help="a folder in BEIR's layout")
    parser.add_argument("--json", action="store_true", help="print one document with all figures")
    given = parser.parse_args()
    results = []
    for name in given.only or QUICK:
        results.append(run(name, given.collection))
        told = results[-1]
        print(f"{name}: {told['outcome']} {told.get('why') or told['seconds']}", file=sys.stderr, flush=True)
    if given.json:
        print(json.dumps(results))
    return int(any(each["outcome"] == FAILED for each in results))


if __name__ == "__main__":
    sys.exit(main())
