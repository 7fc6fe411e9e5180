"""Compare every backend with the float model: difference, programs compiled, bytes charged against bytes measured.

Run: `python tests/benchmarks/backend_contract.py --json`. Each model on each backend has a process of its own, so that
no memory is shared; what its runtime takes by itself, once imported and used, is not counted. Models are pulled.
"""

from __future__ import annotations

import argparse
import json
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

from backends.catalogue import catalogue
from backends.catalogue.entries import DEFAULT_EMBEDDER, DEFAULT_RERANKER, ENTRIES
from backends.choosing import registry
from backends.choosing.selection import base_name
from backends.running.text_model import TextLoader

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from backends.base import ModelSpec

MIB = 1 << 20
QUERY = "how do I read a csv file?"
WORDS = ("the", "parser", "reads", "each", "line", "of", "a", "file", "and", "returns", "rows", "as", "lists", "unless")
WARMING = ("paraphrase-MiniLM-L3-v2", "all-MiniLM-L6-v2", DEFAULT_EMBEDDER)  # one of them any backend can serve


def texts(count: int) -> list[str]:
    """Return texts of 3 to 500 words, most of them short, the same each time."""
    rng = np.random.default_rng(count)
    return [" ".join(rng.choice(WORDS, int(n))) for n in np.clip(rng.lognormal(4, 1, count), 3, 500)]


def answers(name: str, spec: ModelSpec, count: int) -> tuple[NDArray[np.float32], dict[str, Any]]:
    """Load, answer `count` texts, and return the answers and what was measured; runs in a process of its own."""
    loader = TextLoader(registry.get(name))
    warm_runtime(name, spec)
    process = psutil.Process()
    before = process.memory_info().rss
    model = loader.load_model(spec)
    found = model.embed(texts(count), kind="passage").vectors if spec.dim else model.score(QUERY, texts(count)).scores
    taken = process.memory_info().rss - before
    compiled = getattr(model._model, "compiled", None)
    measured = {
        "device": model.device,
        "programs": None if compiled is None else len(compiled),
        "estimated_mib": round(loader.estimate(spec) / MIB),
        "charged_mib": round(model.nbytes / MIB),
        "measured_mib": round(taken / MIB),
    }
    model.close()
    return found, measured


def warm_runtime(name: str, spec: ModelSpec) -> None:
    """Have the runtime take what it takes once a process, by a small model if one can be served."""
    for small in map(catalogue.pull, WARMING):
        backend = registry.get(base_name(name))
        if small.name != spec.name and backend.can_serve(small):
            model = TextLoader(backend).load_model(small)
            model.embed(["warm"], kind="passage")
            model.close()
            return


def compare(spec: ModelSpec, ours: NDArray[np.float32], floats: NDArray[np.float32]) -> dict[str, float]:
    """Return how far answers are from the float model's."""
    worst = {"max_difference": round(float(np.abs(ours - floats).max()), 7)}
    if spec.dim:
        worst["min_cosine"] = round(float((ours * floats).sum(axis=1).min()), 6)
    return worst


def in_child(name: str, spec: ModelSpec, count: int) -> tuple[NDArray[np.float32], dict[str, Any]]:
    """Answer in a new process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as child:
        return child.submit(answers, name, spec, count).result()


def rows(models: list[str], backends: list[str], count: int) -> list[dict[str, Any]]:
    """Measure each model on each backend."""
    table = []
    for model in models:
        spec = catalogue.pull(model)
        oracle = "numpy:float32" if spec.weights_file.endswith(".onnx") else "torch:float32"
        floats, _ = in_child(oracle, spec, count)
        for name in backends:
            row: dict[str, Any] = {"model": model, "backend": name}
            served = registry.get(name).can_serve(spec)
            if served:
                ours, measured = in_child(name, spec, count)
                row |= compare(spec, ours, floats) | measured
            else:
                row["why_not"] = served.reason
            table.append(row)
    return table


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=[DEFAULT_EMBEDDER, DEFAULT_RERANKER], help="or 'all'")
    parser.add_argument("--backends", nargs="+", help="default: all, in each precision")
    parser.add_argument("--count", type=int, default=64, help="texts")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    models = list(ENTRIES) if arguments.models == ["all"] else arguments.models
    backends = arguments.backends or [variant for name in registry.unasked() for variant in registry.variants(name)]
    table = rows(models, backends, arguments.count)
    if arguments.json:
        print(json.dumps(table, indent=1))
        return
    print("| model | backend | max difference | min cosine | programs | estimated, charged, measured MiB |")
    print("| --- | --- | --- | --- | --- | --- |")
    for row in table:
        if "why_not" in row:
            print(f"| {row['model']} | {row['backend']} | no: {row['why_not']} | | | |")
            continue
        mib = ", ".join(str(row[f"{kind}_mib"]) for kind in ("estimated", "charged", "measured"))
        cells = (row["model"], row["backend"], row["max_difference"], row.get("min_cosine", ""), row["programs"], mib)
        print("| " + " | ".join("" if cell is None else str(cell) for cell in cells) + " |")


if __name__ == "__main__":
    main()
