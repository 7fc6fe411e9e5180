"""The child process of `lifecycle.profile`: load one model alone, and print what that took, one JSON value a line."""

from __future__ import annotations

import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backends import registry
from backends.base import ModelSpec
from backends.errors import VectorSearchError
from backends.memory import trim
from backends.text_model import TextLoader

if TYPE_CHECKING:
    from collections.abc import Callable

    from backends.text_model import TextModel

_WARM_RUNS = 9
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
    """Load the model and return the packages that came with it; if `measure` is set, the figures too."""
    spec = ModelSpec(**{**order["spec"], "folder": Path(order["spec"]["folder"])})
    loader = TextLoader(registry.get(order["backend"]))
    for package in order["packages"]:
        importlib.import_module(package)
    known = set(sys.modules)
    say("measuring: loading" if "measure" in order else "finding the runtime's packages")
    before = resident_nbytes()
    start = time.perf_counter()
    model = loader.load_model(spec)
    load_s = time.perf_counter() - start
    loaded = resident_nbytes()
    if "measure" not in order:
        run(model)
        return {"packages": _packages(set(sys.modules) - known)}
    say("measuring: first and warm latency")
    first_ms = run(model)
    warm_ms = statistics.median(run(model) for _ in range(_WARM_RUNS))
    say("measuring: the largest batch, and others")
    model.warm_up()
    for words in _LENGTHS:
        run(model, "file " * words, count=max(1, 1024 // words))
    return {
        "packages": order["packages"],
        "device": model.device,
        "resident_nbytes": max(0, loaded - before),
        "workspace_nbytes": max(0, resident_nbytes() - loaded),
        "declared_nbytes": model.nbytes,
        "load_s": load_s,
        "first_ms": first_ms,
        "warm_ms": warm_ms,
    }


def run(model: TextModel, text: str = _TEXT, *, count: int = 1) -> float:
    """Embed or score a text `count` times at once, and return the milliseconds."""
    start = time.perf_counter()
    if model.spec.task == "embed":
        model.embed([text] * count, kind="passage")
    else:
        model.score(_TEXT, [text] * count)
    return 1000 * (time.perf_counter() - start)


def _packages(modules: set[str]) -> list[str]:
    """Return the installed packages that these modules belong to and that are imported by their own name."""
    tops = {module.partition(".")[0] for module in modules}
    return sorted(tops & metadata.packages_distributions().keys())


if __name__ == "__main__":
    # Runtimes print on stdout as they like, some of them from C: from now on that goes to stderr.
    with os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1) as answers:
        os.dup2(2, 1)
        try:
            answer = main(json.loads(sys.argv[1]), lambda step: answers.write(json.dumps({"step": step}) + "\n"))
        except (VectorSearchError, MemoryError) as error:
            answer = {"error": type(error).__name__, "message": str(error)}
        answers.write(json.dumps(answer) + "\n")
