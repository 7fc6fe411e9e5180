"""Measure the default models on this machine: speed by batch size, resident memory, and what loading leaves behind.

Run: `python tests/benchmarks/models.py --json`. Each measurement has a process of its own, so that no memory is shared.
"""

from __future__ import annotations

import argparse
import json
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import psutil

from backends.catalogue import catalogue
from backends.catalogue.entries import DEFAULT_EMBEDDER, DEFAULT_RERANKER
from backends.choosing import registry
from backends.running import text_model
from backends.running.batching import Batching
from backends.text.tokenizer import FolderTokenizer

MIB = 1 << 20
WORDS = ("the", "parser", "reads", "each", "line", "of", "a", "file", "and", "returns", "rows", "as", "lists", "unless")


def texts_of(tokens: int, count: int) -> list[str]:
    """Return texts of about this many tokens: every word here is one token."""
    rng = np.random.default_rng(tokens)
    return [" ".join(rng.choice(WORDS, max(1, tokens - 2))) for _ in range(count)]


def load(name: str, token_budget: int) -> text_model.TextModel:
    """Return a model with another token budget than the default one."""
    spec = catalogue.pull(name)
    loader = text_model.TextLoader(registry.select(spec))
    model = loader.load_model(spec)
    tokenizer = FolderTokenizer(spec.folder / "tokenizer.json")
    return text_model.TextModel(spec, tokenizer, model._model, loader.name, batching=Batching(token_budget))


def run(model: text_model.TextModel, texts: list[str]) -> None:
    """Embed or score the texts."""
    if model.spec.task == "embed":
        model.embed(texts, kind="passage")
    else:
        model.score("how do I read a file", texts)


def speed(name: str, tokens: int, token_budget: int) -> dict[str, object]:
    """Return texts a second and milliseconds a text: the best of three."""
    model = load(name, token_budget)
    texts = texts_of(tokens - (8 if model.spec.task == "cross-encode" else 0), 64)
    run(model, texts[:16])
    times = []
    for _ in range(3):
        start = time.perf_counter()
        run(model, texts)
        times.append(time.perf_counter() - start)
    best = min(times)
    return {"tokens": tokens, "budget": token_budget, "texts_per_s": 64 / best, "ms_per_text": 1000 * best / 64}


def memory(name: str, token_budget: int) -> dict[str, object]:
    """Return what resident memory grows by: on load, and over 300 ragged calls (the series should level off)."""
    import onnxruntime  # noqa: F401, PLC0415  (so that its own code isn't counted as the model's)

    spec = catalogue.pull(name)
    before = psutil.Process().memory_info().rss
    model = load(name, token_budget)
    loaded = psutil.Process().memory_info().rss
    series, rng = [], np.random.default_rng(0)
    for i in range(300):
        run(model, texts_of(int(rng.integers(4, 510)), int(rng.integers(1, 6))))
        if i % 30 == 29:
            series.append((psutil.Process().memory_info().rss - before) // MIB)
    return {
        "budget": token_budget,
        "load_mib": (loaded - before) // MIB,
        "series_mib": series,
        "estimate_mib": text_model.TextLoader(registry.select(spec)).estimate(spec) // MIB,
        "weights_mib": spec.weights_nbytes // MIB,
    }


def cycles(name: str) -> dict[str, object]:
    """Return resident memory after each of ten loads and unloads."""
    spec = catalogue.pull(name)
    series = []
    for _ in range(10):
        model = text_model.TextLoader(registry.select(spec)).load_model(spec)
        model.warm_up()
        model.close()
        del model
        series.append(psutil.Process().memory_info().rss // MIB)
    return {"rss_mib": series}


def in_child(function: object, *args: object) -> object:
    """Run one measurement in a fresh process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *args).result()  # type: ignore[arg-type]  (the functions above, picked by name)


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of one line a figure")
    parser.add_argument("--models", nargs="*", default=[DEFAULT_EMBEDDER, DEFAULT_RERANKER])
    parser.add_argument("--tokens", nargs="*", type=int, default=[100, 128, 256, 320])
    parser.add_argument("--budgets", nargs="*", type=int, default=[512, 1024, 2048, 4096])
    args = parser.parse_args()
    figures: dict[str, dict[str, list[object]]] = {}
    for name in args.models:
        work = [(speed, name, t, b) for t in args.tokens for b in args.budgets]
        work += [*((memory, name, b) for b in args.budgets), (cycles, name)]
        figures[name] = {"speed": [], "memory": [], "cycles": []}
        for function, *arguments in work:
            figure = in_child(function, *arguments)
            figures[name][function.__name__].append(figure)
            if not args.json:
                print(name, figure, flush=True)
    if args.json:
        print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
