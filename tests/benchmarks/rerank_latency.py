"""Milliseconds to rerank 100 pairs: sentence-transformers, ONNX Runtime alone, and ours on each backend and as chosen.

Run: `python tests/benchmarks/rerank_latency.py --json`. The int8 reranker's weights are turned to floats once (`models
export`), so that the CrossEncoder in float32, against which speed and order are measured, is the same model. Pairs of
128 and 256 tokens are texts made long enough and cut there; natural ones are the standard library's docstrings, up to
512. Systems are run in turn, round by round, and the best round counts. NumPy takes minutes: `--only` can leave it out.
"As chosen" heeds a calibration of the model. It ends with the targets that hold.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from backend_targets import Target, as_data
from scipy.stats import kendalltau

from backends.catalogue import catalogue, export
from backends.catalogue.entries import DEFAULT_RERANKER
from backends.choosing import registry
from backends.running.text_model import TextLoader
from backends.text.tokenizer import FolderTokenizer
from lifecycle.measuring import calibration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from backends.base import ModelSpec

QUERY = "how do I read rows of a csv file"
MODULES = (
    "csv",
    "json",
    "os",
    "re",
    "sqlite3",
    "email",
    "http",
    "logging",
    "argparse",
    "socket",
    "datetime",
    "threading",
)
PAIRS = 100
REFERENCE = "CrossEncoder float32"
CHOSEN = "as chosen"
SPEED_UP, TAU = 2, 0.95


def natural_texts() -> list[str]:
    """Return 100 docstrings of the standard library."""
    members = (m for name in MODULES for _, m in sorted(vars(importlib.import_module(name)).items()))
    own = (m for m in members if not inspect.ismodule(m))  # which submodules are there depends on what was imported
    found = sorted({doc for member in own if (doc := inspect.getdoc(member)) and len(doc) > 80})
    return [found[i] for i in np.random.default_rng(0).permutation(len(found))[:PAIRS]]


def cross_encoder(folder: Path) -> Callable[[list[str], int], Any]:
    """Return sentence-transformers' CrossEncoder with its default settings."""
    from sentence_transformers import CrossEncoder  # noqa: PLC0415  (a peer: only where it is measured)

    model = CrossEncoder(str(folder), device="cpu")

    def score(texts: list[str], length: int) -> Any:
        model.max_length = length
        return model.predict([(QUERY, text) for text in texts], show_progress_bar=False)

    return score


def onnx_runtime(spec: ModelSpec) -> Callable[[list[str], int], Any]:
    """Return ONNX Runtime alone, as its own documentation would use it: batches of 16, sorted by length."""
    import onnxruntime  # noqa: PLC0415  (as above)

    session = onnxruntime.InferenceSession(str(spec.folder / spec.weights_file), providers=["CPUExecutionProvider"])
    tokenizer = FolderTokenizer(spec.folder / "tokenizer.json")

    def score(texts: list[str], length: int) -> Any:
        rows = tokenizer.pairs(QUERY, texts, length)
        order = np.argsort(-rows.lengths, kind="stable")
        scores = np.empty(len(texts), np.float32)
        for start in range(0, len(order), 16):
            indices = order[start : start + 16]
            shape = (len(indices), int(rows.lengths[indices].max()))
            ids, mask, types = (np.zeros(shape, np.int64) for _ in range(3))
            for row, i in enumerate(indices):
                n = len(rows.input_ids[i])
                ids[row, :n], mask[row, :n], types[row, :n] = rows.input_ids[i], 1, rows.token_type_ids[i]
            fed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
            scores[indices] = session.run(None, fed)[0][:, 0]
        return scores

    return score


def ours(spec: ModelSpec, backend: str) -> tuple[Callable[[list[str], int], Any], str]:
    """Return one of our backends, and the device that it says it runs on."""
    model = TextLoader(registry.get(backend)).load_model(spec)
    return (lambda texts, length: model.score(QUERY, texts, max_length=length).scores), model.device


def systems(scratch: Path, only: list[str] | None) -> dict[str, tuple[Callable[[list[str], int], Any], str]]:
    """Return every system by its name, and what it runs on."""
    int8 = catalogue.pull(DEFAULT_RERANKER)
    weights = export.export(int8, scratch / "weights").spec
    floats = export.export(weights, scratch / "floats").spec
    found = {
        REFERENCE: (cross_encoder(weights.folder), "cpu"),
        "ONNX Runtime int8": (onnx_runtime(int8), "cpu"),
    }
    for form, spec in (("int8", int8), ("float", floats)):
        for name in registry.unasked():
            for backend in registry.variants(name):
                if registry.get(backend).can_serve(spec) and (only is None or backend in only):
                    found[f"ours {form} {backend}"] = ours(spec, backend)
        chosen = registry.choose(spec, "query", costs=calibration.costs(spec, "query")).backend
        found[f"ours {form} {CHOSEN}: {chosen}"] = ours(spec, chosen)
    return found


def measure(rounds: int, only: list[str] | None, say: Callable[[str], None]) -> dict[str, list[dict[str, Any]]]:
    """Return milliseconds and Kendall's tau to the reference's order, by the pairs' length; `say` hears each."""
    texts = natural_texts()
    cases = {
        "128": ([f"{text} {text * 20}" for text in texts], 128),
        "256": ([f"{text} {text * 20}" for text in texts], 256),
    }
    cases["natural"] = (texts, 512)
    figures: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        competing = systems(Path(scratch), only)
        for case, (given, length) in cases.items():
            scores = {name: np.asarray(score(given, length)) for name, (score, _) in competing.items()}
            best = dict.fromkeys(competing, float("inf"))
            for _ in range(rounds):
                for name, (score, _device) in competing.items():
                    start = time.perf_counter()
                    score(given, length)
                    best[name] = min(best[name], time.perf_counter() - start)
            figures[case] = [
                {
                    "system": name,
                    "device": device,
                    "ms": round(1000 * best[name], 1),
                    "speed_up": round(best[REFERENCE] / best[name], 2),
                    "tau": round(float(kendalltau(scores[name], scores[REFERENCE]).statistic), 4),
                }
                for name, (_, device) in competing.items()
            ]
            for row in figures[case]:
                say(f"{case} {row}")
    return figures


def targets(figures: dict[str, list[dict[str, Any]]]) -> Iterator[Target]:
    """Yield what is wanted of the model as it comes, 8-bit weights, on the backend that is chosen."""
    for case, rows in figures.items():
        for row in rows:
            if CHOSEN in row["system"] and "int8" in row["system"].split():
                what = f"{case} tokens, {row['system']}"
                yield Target(f"{what}: times as fast as {REFERENCE}", row["speed_up"], at_least=SPEED_UP)
                yield Target(f"{what}: Kendall's tau to its order", row["tau"], at_least=TAU)


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of one line a figure")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", help="our backends to measure; by default all that can serve")
    args = parser.parse_args()
    figures = measure(args.rounds, args.only, (lambda _: None) if args.json else partial(print, flush=True))
    judged = list(targets(figures))
    if args.json:
        print(json.dumps({**figures, "targets": as_data(judged)}, indent=2))
        return
    for target in judged:
        print(target)


if __name__ == "__main__":
    main()
