"""The child process of `trial`: bound this process, load one model, run it, and print what that took."""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lifecycle.measuring.confinement import confine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from backends.base import ModelSpec, Task
    from backends.running.text_model import TextModel
    from backends.text.tokenizer import Tokenizer

_PIECE = 1024  # characters: so little that even a tokenizer that makes thousands of tokens of each ends
# Characters of which tokenizers are known to make many tokens, or normalisation many characters.
_ALPHABETS = (
    "abcdefghijklmnopqrstuvwxyz ",
    "ABCDEFGHIJKLMNOPQRSTUVWXYZ ",
    "0123456789.,;:!?-_()[]{}<>/\\|@#$%^&*+=~`'\" ",
    "a",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!",
    " \t\n",
    "\N{LATIN SMALL LETTER E WITH ACUTE}\N{LATIN SMALL LETTER SHARP S}\N{CYRILLIC SMALL LETTER ZHE}",
    "\N{CJK UNIFIED IDEOGRAPH-4E2D}\N{CJK UNIFIED IDEOGRAPH-6587}",
    "\N{ARABIC LIGATURE SALLALLAHOU ALAYHE WASALLAM}",
    "\N{PILE OF POO}\N{ZERO WIDTH JOINER}\N{FLAG IN HOLE}",
    "\N{LATIN SMALL LIGATURE FFI}\N{VULGAR FRACTION ONE HALF}\0\x07\N{REPLACEMENT CHARACTER}",
)
_QUERY = "how to read the rows of a file"
_SHORT = "read a file"
_RAGGED = ("", "a", "Rows are read one after the other, until the file has no more.", "files " * 40)


def main(order: Mapping[str, Any], say: Callable[[Mapping[str, Any]], object]) -> dict[str, Any]:
    """Try the model, and return the values of `trial.Trial` and the packages that the runtime is made of.

    With `compare` set, it is only compared with the reference; with a `folder` in place of a spec, that is only read.
    """
    # Files end at a limit here, and half of a program in the cache that all processes share is a fault for them.
    os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"
    network = confine(order["cpu_s"])
    if "folder" in order:
        return read(Path(order["folder"]), order["accept_keys"], say)
    from backends.base import ModelSpec  # noqa: PLC0415  (as above)
    from backends.choosing import registry  # noqa: PLC0415  (from here on there may be threads)
    from backends.running.text_model import TextLoader  # noqa: PLC0415  (as above)

    spec = ModelSpec.of_plain(order["spec"])
    backend = registry.get(order["backend"])
    seconds: dict[str, float] = {}
    known = set(sys.modules)
    if order["compare"]:
        return compare(spec, TextLoader(backend).load_model(spec)) | {"packages": _packages(set(sys.modules) - known)}
    with timed(seconds, "starting"):
        for module in getattr(backend, "runtime", ()):
            with suppress(ImportError):  # the load says so, if the model needs it
                importlib.import_module(module)
    baseline = _memory("VmRSS")
    say({"step": "loading", "baseline_nbytes": baseline})
    _forget_peak()
    loader = TextLoader(backend)
    with timed(seconds, "loading"):
        model = loader.load_model(spec)
    load_peak = _memory("VmHWM")
    say({"step": "tokenizing"})
    tokenizer = loader.load_tokenizer(spec)
    with timed(seconds, "tokenizing"):
        growth = growth_of(tokenizer, spec.max_length)
    say({"step": "answering"})
    with timed(seconds, "answering"):
        model.warm_up()  # with the texts that whoever serves it asks first
        company = company_of(model)
    _forget_peak()
    say({"step": "running the largest batch"})
    with timed(seconds, "largest batches"):
        run_largest(model)
    return {
        "nbytes": max(0, _memory("VmHWM") - baseline),
        "load_nbytes": max(0, load_peak - baseline),
        "growth": growth,
        "company": company,
        "arithmetic": arithmetic_of(model),
        "seconds": seconds,
        "network": network,
        "packages": _packages(set(sys.modules) - known),
    }


def read(folder: Path, accept_keys: Sequence[str], say: Callable[[Mapping[str, Any]], object]) -> dict[str, Any]:
    """Read a folder, so that what it says is remembered, and return its digest."""
    from backends.folders.folder import read_folder  # noqa: PLC0415  (after the process is confined)

    with suppress(ImportError):  # who reads a graph says so
        importlib.import_module("onnx")
    say({"step": "reading", "baseline_nbytes": _memory("VmRSS")})
    return {"digest": read_folder(folder, accept_keys=accept_keys).digest}


def compare(spec: ModelSpec, model: TextModel) -> dict[str, Any]:
    """Return by how much the model's answers differ from the reference's: `difference`, and its `arithmetic`."""
    import numpy as np  # noqa: PLC0415  (after the process is confined)

    from backends.folders import reference  # noqa: PLC0415  (as above)

    texts = [_SHORT, *filter(None, _RAGGED), "full " * (2 * spec.max_length)]
    theirs = reference.answers(spec, _QUERY, texts)
    ours = ask(model, texts)
    if spec.task == "embed":
        ours = np.concatenate([model.embed([_QUERY], kind="query").vectors, ours])
    return {"difference": difference_of(ours, theirs, spec.task), "arithmetic": arithmetic_of(model)}


def difference_of(ours: NDArray[np.float32], theirs: NDArray[np.float32], task: Task) -> float:
    """Return the largest difference of two rows: of vectors 1 - cosine, of logits relative to their scale.

    Infinite if the shapes differ. Rows of zeros on both sides, as a feature model gives for unknown words, are equal.
    """
    import numpy as np  # noqa: PLC0415  (after the process is confined)

    if ours.shape != theirs.shape:
        return float("inf")
    if task == "cross-encode":
        return float(np.abs(ours - theirs).max() / max(1.0, float(np.abs(theirs).max())))
    lengths = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
    cosines = (ours * theirs).sum(axis=1) / np.where(lengths == 0, 1, lengths)
    return float(np.where((ours == theirs).all(axis=1), 0.0, 1 - cosines).max())


def growth_of(tokenizer: Tokenizer, max_length: int) -> float:
    """Return the most tokens that a character became, over texts of many kinds.

    Each is tokenised in a piece at first, so that the answer of a hostile tokenizer is small, then as much of the
    slowest kind as a full batch may hold.
    """
    slowest = (0.0, "")
    most = 0.0
    for alphabet in _ALPHABETS:
        text = (alphabet * (_PIECE // len(alphabet) + 1))[:_PIECE]
        begun = time.perf_counter()
        rows = tokenizer.texts([text], 1 << 30)
        slowest = max(slowest, (time.perf_counter() - begun, text))
        most = max(most, float(rows.lengths[0]) / _PIECE)
    tokenizer.texts([slowest[1] * 8] * 4, max_length)
    return most


def company_of(model: TextModel) -> float:
    """Return by how much answers differ alone and beside others, as `difference_of` has it."""
    import numpy as np  # noqa: PLC0415  (after the process is confined)

    texts = [_SHORT, *_RAGGED, "full " * model.spec.max_length]
    alone = np.concatenate([ask(model, [text]) for text in texts])
    return difference_of(ask(model, texts), alone, model.spec.task)


def run_largest(model: TextModel) -> None:
    """Run the largest batch that the model is ever given, twice, on all its streams, and the one of the most rows."""
    batching, length = model.batching, model.spec.max_length
    streams = max(1, batching.streams)
    for _ in range(2):
        ask(model, ["full " * length] * batching.rows(length) * streams)
    ask(model, ["a"] * batching.rows(1) * streams, query="a")  # what one row does to all others grows with their square


def ask(model: TextModel, texts: Sequence[str], query: str = _QUERY) -> NDArray[np.float32]:
    """Return one row per text: its vector, or its score for the query."""
    if model.spec.task == "embed":
        return model.embed(texts, kind="passage").vectors
    return model.score(query, texts).scores[:, None]


def arithmetic_of(model: TextModel) -> str:
    """Return how a model computes: float32, bfloat16, int8, or int8 with one range for a batch."""
    if model.quantises:
        return "batch" if model.backend.startswith("onnx") else "int8"
    return "bfloat16" if "bfloat16" in model.device else "float32"


@contextmanager
def timed(seconds: dict[str, float], part: str) -> Iterator[None]:
    """Note how long a part took."""
    begun = time.perf_counter()
    yield
    seconds[part] = round(time.perf_counter() - begun, 3)


def _memory(field: str) -> int:
    """Return this process's resident memory in bytes: now (`VmRSS`) or at its peak (`VmHWM`)."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith(f"{field}:"):
                return 1024 * int(line.split()[1])
    import resource  # noqa: PLC0415  (where there is no /proc: the peak since the start, for both)

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak) if sys.platform == "darwin" else 1024 * int(peak)


def _forget_peak() -> None:
    """Let the peak begin anew (Linux); elsewhere it stays, and the charge is a little high."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _packages(modules: set[str]) -> list[str]:
    """Return the installed packages that these modules belong to and that are imported by their own name."""
    tops = {module.partition(".")[0] for module in modules} - {"backends", "lifecycle"}
    return sorted(tops & metadata.packages_distributions().keys())


def run() -> None:
    """Read the order, and say the answer or what was wrong; runtimes print on stdout as they like: that is stderr."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1) as said:
        os.dup2(2, 1)

        def say(values: Mapping[str, Any]) -> None:
            said.write(json.dumps(values) + "\n")

        try:
            answer = main(json.loads(sys.argv[1]), say)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001  (what foreign code raises, its panics too, is an answer)
            answer = {"error": type(error).__name__, "message": str(error)}
        say(answer)


if __name__ == "__main__":
    run()
