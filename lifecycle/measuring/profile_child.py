"""The child process of `profile`: load one model alone, and print what that took, one JSON value a line."""

from __future__ import annotations

import base64
import importlib
import json
import os
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from backends.base import ModelSpec
from backends.choosing import registry
from backends.errors import VectorSearchError
from backends.running.memory import trim
from backends.running.text_model import TextLoader
from lifecycle.measuring import workloads

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from backends.running.text_model import TextKind, TextModel

_QUERY_RUNS = 9
_BULK_RUNS = 3
_COMPARED = 64  # passages of an embedder; each takes as long as many queries
_ENOUGH_S = 4.0  # a slow backend is measured less often
_LENGTHS = (256, 64, 16, 128, 32, 8)  # words: after batches of changing shape, memory has levelled off
_TEXT = "how to read the rows of a file"
_STATM = Path("/proc/self/statm")


def resident_nbytes() -> int:
    """Return this process's resident memory, with what it could give back given back."""
    trim()
    if _STATM.is_file():
        return int(_STATM.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    command = ["ps", "-o", "rss=", "-p", str(os.getpid())]
    return 1024 * int(subprocess.run(command, capture_output=True, check=True, text=True).stdout)  # noqa: S603 - fixed


def main(order: dict[str, Any], say: Callable[[str], object]) -> dict[str, Any]:
    """Load the model, and return the packages that came with it and its answers, or if `measure` is set the figures."""
    spec = ModelSpec.of_plain(order["spec"])
    loader = TextLoader(registry.get(order["backend"]))
    for package in order["packages"]:
        importlib.import_module(package)
    known = set(sys.modules)
    if "measure" in order:
        return measure(spec, loader, say) | {"packages": order["packages"]}
    say("answering, and finding the runtime's packages")
    model = loader.load_model(spec)
    values = answers(model)
    return {
        "answers": base64.b64encode(values.tobytes()).decode(),
        "shape": values.shape,
        "quantises": model.quantises,
        "packages": _packages(set(sys.modules) - known),
    }


def measure(spec: ModelSpec, loader: TextLoader, say: Callable[[str], object]) -> dict[str, Any]:
    """Load the model and return all figures of `profile.Profile`; the runtime is imported already."""
    say("measuring: loading")
    before = resident_nbytes()
    start = time.perf_counter()
    model = loader.load_model(spec)
    load_s = time.perf_counter() - start
    loaded = resident_nbytes()
    say("measuring: single queries")
    first_ms = run_query(model)
    query_ms = min(run_query(model) for _ in range(_QUERY_RUNS))
    say("measuring: the largest batch, and others")
    model.warm_up()
    run_shapes(model)
    resident = resident_nbytes()
    say("measuring: many passages")
    bulk_ms = run_bulk(model)
    return {
        "device": model.device,
        "resident_nbytes": max(0, loaded - before),
        "workspace_nbytes": max(0, resident - loaded),
        "declared_nbytes": model.nbytes,
        "load_s": load_s,
        "first_ms": first_ms,
        "query_ms": query_ms,
        "bulk_ms": bulk_ms / workloads.PASSAGES,
        "tokens_per_s": 1000 * count_tokens(spec, loader) / bulk_ms,
    }


def run_shapes(model: TextModel) -> None:
    """Run batches of changing shape; where a model pads to some lengths, a full batch and a short one of each."""
    for length in reversed(model.batching.lengths):
        text = "file " * (length - 2)
        run(model, [text] * model.batching.rows(length))
        run(model, [text])
    for words in () if model.batching.lengths else _LENGTHS:
        run(model, ["file " * words] * max(1, 1024 // words))


def answers(model: TextModel) -> NDArray[np.float32]:
    """Return float32[n, dim] vectors of half the passages, or float32[n] logits of each query with its topic."""
    if model.spec.task == "embed":
        return model.embed(workloads.passages()[:_COMPARED], kind="passage").vectors
    return np.concatenate([model.score(query, passages).scores for query, passages in workloads.pools()])


def run_query(model: TextModel) -> float:
    """Embed one short query, or rerank the first topic's passages for it, and return the milliseconds."""
    if model.spec.task == "embed":
        return run(model, [_TEXT], kind="query")
    return run(model, workloads.pools()[0][1])


def run_bulk(model: TextModel) -> float:
    """Embed or score all passages a few times, once unmeasured, and return the milliseconds of the fastest."""
    run(model, workloads.passages())
    times: list[float] = []
    while len(times) < _BULK_RUNS and sum(times) < 1000 * _ENOUGH_S:
        times.append(run(model, workloads.passages()))
    return min(times)


def run(model: TextModel, texts: Sequence[str], *, kind: TextKind = "passage") -> float:
    """Embed texts, or score them for a query, and return the milliseconds."""
    start = time.perf_counter()
    if model.spec.task == "embed":
        model.embed(texts, kind=kind)
    else:
        model.score(_TEXT, texts)
    return 1000 * (time.perf_counter() - start)


def count_tokens(spec: ModelSpec, loader: TextLoader) -> int:
    """Return how many tokens the passages are, with the prefix or the query that a bulk run puts before them."""
    tokenizer = loader.load_tokenizer(spec)
    if spec.task == "embed":
        rows = tokenizer.texts([spec.passage_prefix + text for text in workloads.passages()], spec.max_length)
    else:
        rows = tokenizer.pairs(_TEXT, workloads.passages(), spec.max_length)
    return int(rows.lengths.sum())


def _packages(modules: set[str]) -> list[str]:
    """Return the installed packages that these modules belong to and that are imported by their own name."""
    tops = {module.partition(".")[0] for module in modules} - {"backends"}
    return sorted(tops & metadata.packages_distributions().keys())


if __name__ == "__main__":
    # Runtimes print on stdout as they like, some of them from C: from now on that goes to stderr.
    with os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1) as said:
        os.dup2(2, 1)
        try:
            answer = main(json.loads(sys.argv[1]), lambda step: said.write(json.dumps({"step": step}) + "\n"))
        except (VectorSearchError, MemoryError) as error:
            answer = {"error": type(error).__name__, "message": str(error)}
        said.write(json.dumps(answer) + "\n")
