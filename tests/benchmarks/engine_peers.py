"""This engine against LanceDB, milvus-lite and Chroma, on the same documents, one after another in one run.

python tests/benchmarks/engine_peers.py [--documents N] [--engine NAME …] [--json] [--plot FILE]

Documents have 40 Zipf-distributed words, a bucket of a hundred, and a vector of 384 dimensions around one of N / 100
centres, as embeddings of real texts cluster. Each engine runs in a process of its own, in a new folder, and is asked
the same 200 queries of each kind, each for ten documents with their texts. `ready_s` counts from the first row until
every index is there. Recall is against exact cosines. The peers are in the extra `peers`; those that are missing are
left out and named. `--documents` may be given several times, for the growth of this engine's own figures.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
from engine_adapters import DIM, ENGINES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from engine_adapters import Engine
    from numpy.typing import NDArray

K = 10
QUERIES = 200
BATCH = 5000
VOCABULARY = 30_000
MODULES = {"lancedb": "lancedb", "milvus-lite": "milvus_lite", "chroma": "chromadb"}


def vectors(start: int, n: int, total: int) -> NDArray[np.float32]:
    """Give the vectors of documents `start` to `start + n` of `total`, float32[n, dim]."""
    rng = np.random.default_rng([1, start])
    centres = np.random.default_rng(0).standard_normal((max(20, total // 100), DIM), dtype=np.float32)
    found = centres[rng.integers(len(centres), size=n)] + 0.7 * rng.standard_normal((n, DIM), dtype=np.float32)
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def texts(start: int, n: int) -> list[str]:
    """Give n texts of 40 words."""
    words = np.minimum(np.random.default_rng([2, start]).zipf(1.2, (n, 40)), VOCABULARY)
    return [" ".join(f"w{word}" for word in row) for row in words]


def queries(total: int) -> tuple[NDArray[np.float32], list[str]]:
    """Give a vector near some document, and three of its words that are not the commonest, for each query."""
    step = total // QUERIES
    found, asked = [], []
    rng = np.random.default_rng(3)
    for start in range(0, total, BATCH):
        near, said = vectors(start, min(BATCH, total - start), total), texts(start, min(BATCH, total - start))
        for i in range(-start % step, len(said), step):
            found.append(near[i] + 0.02 * rng.standard_normal(DIM, dtype=np.float32))
            asked.append(" ".join(sorted(set(said[i].split()), key=lambda word: -int(word[1:]))[-12:][:3]))
    return np.array(found[:QUERIES], np.float32), asked[:QUERIES]


def truth(asked: NDArray[np.float32], total: int) -> tuple[list[list[int]], list[list[int]]]:
    """Return the ten nearest documents of each query, of all and of its own bucket."""
    best: list[list[tuple[float, int]]] = [[] for _ in asked]
    within: list[list[tuple[float, int]]] = [[] for _ in asked]
    for start in range(0, total, BATCH):
        scores = asked @ vectors(start, min(BATCH, total - start), total).T
        numbers = np.arange(start, start + scores.shape[1])
        for i, row in enumerate(scores):
            for kept, at in ((best, np.arange(row.size)), (within, np.flatnonzero(numbers % 100 == i % 100))):
                top = at[np.argsort(-row[at])[:K]]
                kept[i] = sorted(kept[i] + [(-float(row[j]), int(numbers[j])) for j in top])[:K]
    return [[j for _, j in found] for found in best], [[j for _, j in found] for found in within]


def measure(name: str, total: int, folder: Path) -> dict[str, Any]:
    """Fill one engine and ask it; runs in a process of its own."""
    asked, said = queries(total)
    process = psutil.Process()
    engine = ENGINES[name](folder)
    spent = 0.0
    for start in range(0, total, BATCH):
        given, words = vectors(start, min(BATCH, total - start), total), texts(start, min(BATCH, total - start))
        began = time.perf_counter()
        engine.add(start, words, given)
        spent += time.perf_counter() - began
    began = time.perf_counter()
    engine.build()
    built = time.perf_counter() - began
    figures: dict[str, Any] = {"add_s": spent, "index_s": built, "ready_s": spent + built}
    figures |= ask(engine, asked, said)
    figures["resident_mb"] = process.memory_info().rss / 1e6
    engine.close()
    figures["disk_mb"] = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
    del engine
    began = time.perf_counter()
    engine = ENGINES[name](folder)
    engine.dense(asked[0], K)
    figures["reopen_s"] = time.perf_counter() - began
    engine.close()
    return figures


def ask(engine: Engine, asked: NDArray[np.float32], said: list[str]) -> dict[str, Any]:
    """Return the latency of each kind of query, and what the dense ones found."""
    kinds: dict[str, Callable[[int], list[int] | None]] = {
        "dense": lambda i: engine.dense(asked[i], K),
        "filtered": lambda i: engine.filtered(asked[i], K, i % 100),
        "lexical": lambda i: engine.lexical(said[i], K),
        "hybrid": lambda i: engine.hybrid(said[i], asked[i], K),
    }
    figures: dict[str, Any] = {}
    for kind, query in kinds.items():
        if query(0) is None:
            figures[kind] = None
            continue
        query(1)
        milliseconds, found = [], []
        for i in range(len(said)):
            began = time.perf_counter()
            found.append(query(i))
            milliseconds.append(1000 * (time.perf_counter() - began))
        figures[kind] = {"p50_ms": float(np.median(milliseconds)), "p99_ms": float(np.percentile(milliseconds, 99))}
        if kind in ("dense", "filtered"):
            figures[kind]["found"] = found
    return figures


def recall(found: list[list[int]], wanted: list[list[int]]) -> float:
    """Return the share of what is nearest that was found."""
    hits = sum(len(set(a) & set(b)) for a, b in zip(found, wanted, strict=True))
    return hits / sum(map(len, wanted))


def compare(total: int, names: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Measure each engine in a process of its own."""
    asked, _ = queries(total)
    everywhere, within = truth(asked, total)
    for name in names:
        if name in MODULES and importlib.util.find_spec(MODULES[name]) is None:
            yield name, {"left_out": f"{name} is not installed: pip install 'vectorsearch[peers]'"}
            continue
        print(f"{total:,} documents: {name}", file=sys.stderr)
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, __file__, "--child", name, str(total), str(Path(folder) / "db")]
            child = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        figures = json.loads(child.stdout.splitlines()[-1])
        for kind, wanted in (("dense", everywhere), ("filtered", within)):
            figures[kind]["recall@10"] = recall(figures[kind].pop("found"), wanted)
        yield name, figures


def plot(results: dict[str, dict[str, Any]], path: str) -> None:
    """Draw this engine's growth: time to index, latency, memory and disk against the number of documents."""
    import matplotlib as mpl  # noqa: PLC0415 -- only for --plot

    mpl.use("agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415 -- as above

    sizes = sorted(int(size) for size in results)
    ours = [results[str(size)]["vectorsearch"] for size in sizes]
    curves = {
        "ready, s": [f["ready_s"] for f in ours],
        "reopen, s": [f["reopen_s"] for f in ours],
        "hybrid p50, ms": [f["hybrid"]["p50_ms"] for f in ours],
        "dense p50, ms": [f["dense"]["p50_ms"] for f in ours],
        "filtered p50, ms": [f["filtered"]["p50_ms"] for f in ours],
        "resident, MB": [f["resident_mb"] for f in ours],
        "disk, MB": [f["disk_mb"] for f in ours],
    }
    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for label, values in curves.items():
        axes.loglog(sizes, values, marker="o", label=label)
    axes.set_xlabel("documents")
    axes.grid(visible=True, which="both", alpha=0.2)
    axes.legend(ncols=2, frameon=False)
    figure.savefig(path, dpi=150)


def table(results: dict[str, dict[str, Any]]) -> str:
    """Return the figures as a table."""
    lines = [
        "documents engine        ready s  dense ms recall  filtered ms recall  lexical ms  hybrid ms  reopen s  MB disk"
    ]
    for size, engines in results.items():
        for name, f in engines.items():
            if "left_out" in f:
                lines.append(f"{size:>9} {name:<13} {f['left_out']}")
                continue
            rare = [f"{f[kind]['p50_ms']:.2f}" if f[kind] else "none" for kind in ("lexical", "hybrid")]
            dense = f"{f['dense']['p50_ms']:8.2f} {f['dense']['recall@10']:6.3f}"
            filtered = f"{f['filtered']['p50_ms']:11.2f} {f['filtered']['recall@10']:6.3f}"
            lines.append(
                f"{size:>9} {name:<13} {f['ready_s']:7.1f}  {dense}  {filtered}  {rare[0]:>10}  {rare[1]:>9}  "
                f"{f['reopen_s']:8.2f}  {f['resident_mb']:.0f}  {f['disk_mb']:.0f}"
            )
    return "\n".join(lines)


def main() -> None:
    """Run the comparison and print it."""
    if sys.argv[1:2] == ["--child"]:
        name, total, folder = sys.argv[2:]
        print(json.dumps(measure(name, int(total), Path(folder))))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, action="append")
    parser.add_argument("--engine", choices=ENGINES, action="append")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--plot", metavar="FILE")
    options = parser.parse_args()
    names = options.engine or list(ENGINES)
    results = {str(total): dict(compare(total, names)) for total in options.documents or [10_000]}
    if options.plot:
        plot(results, options.plot)
    print(json.dumps(results, indent=2) if options.json else table(results))


if __name__ == "__main__":
    main()
