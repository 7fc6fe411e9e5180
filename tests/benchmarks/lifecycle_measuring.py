"""What the lifecycle benchmarks share: options, the report, a model that is nothing, and one that is real."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


def parse_options(doc: str | None, *, plots: bool = True, **more: float | str) -> argparse.Namespace:
    """Read `--json`, `--quick`, `--plot FILE`, and one option for each further keyword."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print on one line")
    parser.add_argument("--quick", action="store_true", help="a short run, to see that it works")
    if plots:
        parser.add_argument("--plot", metavar="FILE", help="draw the figures (needs matplotlib: the bench extra)")
    for name, default in more.items():
        parser.add_argument(f"--{name}", type=type(default), default=default, help=f"default: {default}")
    options = parser.parse_args()
    options.load_before = os.getloadavg()[0]
    return options


def finish(
    figures: dict[str, Any],
    options: argparse.Namespace,
    *,
    wrong: dict[str, int],
    draw: Callable[[Any], None] = lambda _: None,
) -> None:
    """Print the figures with the machine they were taken on, draw them if asked, and fail if anything went wrong."""
    is_gil_enabled = getattr(sys, "_is_gil_enabled", lambda: True)
    machine = {
        "python": platform.python_version(),
        "gil": is_gil_enabled(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load_average": [round(options.load_before, 2), round(os.getloadavg()[0], 2)],
    }
    print(json.dumps({"machine": machine, **figures, "wrong": wrong}, indent=None if options.json else 2))
    if getattr(options, "plot", None):
        import matplotlib as mpl  # noqa: PLC0415 - an extra, needed only here

        mpl.use("svg")
        from matplotlib import pyplot as plt  # noqa: PLC0415 - as above

        draw(plt)
        plt.tight_layout()
        plt.savefig(options.plot)  # in the format that its name ends in
    sys.exit(any(wrong.values()))


def quantiles_ms(seconds: Sequence[float]) -> dict[str, float]:
    """Return the median, the 99th percentile and the largest, in milliseconds."""
    if not len(seconds):
        return {"n": 0}
    p50, p99, most = 1000 * np.quantile(seconds, (0.5, 0.99, 1.0))
    return {"n": len(seconds), "p50_ms": round(p50, 5), "p99_ms": round(p99, 5), "max_ms": round(most, 3)}


class FakeModel:
    """A model that is nothing but a size."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes

    def close(self) -> None:
        """Free nothing."""


class FakeLoader:
    """Load nothing, in `seconds` during which no CPU is used; a spec is a number of bytes."""

    name = "fake"

    def __init__(self, seconds: float = 0.0) -> None:
        self._seconds = seconds

    def estimate(self, nbytes: int) -> int:
        """Return the spec."""
        return nbytes

    def load_model(self, nbytes: int) -> FakeModel:
        """Wait, as for a disk."""
        if self._seconds:
            time.sleep(self._seconds)
        return FakeModel(nbytes)


class Meter:
    """Count the bytes that are really resident, whoever loaded them, and how often they were more than the budget."""

    def __init__(self, budget_nbytes: int) -> None:
        self._lock = threading.Lock()  # protects all below, and nothing is taken under it
        self._budget_nbytes = budget_nbytes
        self._nbytes = 0
        self.counts: Counter[str] = Counter()

    def add(self, nbytes: int) -> None:
        """Note a load or, if negative, an unload."""
        with self._lock:
            self._nbytes += nbytes
            self.counts["loads"] += nbytes > 0
            self.counts["overruns"] += nbytes > 0 and self._nbytes > self._budget_nbytes


class GraphModel:
    """An ONNX Runtime session of one thread. A run that was cut off by `close()` raises: in C it would crash."""

    def __init__(self, path: Path, meter: Meter) -> None:
        import onnxruntime  # noqa: PLC0415 - heavy, and only some benchmarks need it

        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = 1
        self.nbytes = path.stat().st_size
        self._meter = meter
        meter.add(self.nbytes)
        self._session = onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
        width = self._session.get_inputs()[0].shape[1]
        self._input = {"x": np.linspace(-1.0, 1.0, 8 * width, dtype=np.float32).reshape(8, width)}

    def infer(self) -> float:
        """Return one number, different for each graph."""
        if self._session is None:
            raise RuntimeError("the model was closed before it was used")
        answer = self._session.run(["y"], self._input)[0]
        if self._session is None:
            raise RuntimeError("the model was closed while it was used")
        return float(answer[0, 0])

    def close(self) -> None:
        """Drop the session."""
        self._session = None
        self._meter.add(-self.nbytes)


class GraphLoader:
    """Load `GraphModel`s; a spec is the path of a graph."""

    name = "onnxruntime"

    def __init__(self, meter: Meter) -> None:
        self._meter = meter

    def estimate(self, path: Path) -> int:
        """Return the file's size."""
        return path.stat().st_size

    def load_model(self, path: Path) -> GraphModel:
        """Load it."""
        return GraphModel(path, self._meter)


def write_graph(path: Path, *, seed: int, layers: int, width: int = 1024, words: int = 0) -> Path:
    """Write a graph of dense layers; each holds `4 * width * width` bytes, and a run multiplies by each once.

    A table of `words` vectors, `4 * words * width` bytes, is loaded with it, and a run looks up one of them a row.
    """
    from onnx import TensorProto, helper, numpy_helper, save  # noqa: PLC0415 - heavy, and only some need it

    rng = np.random.default_rng(seed)
    weights, nodes, last = [], [], "x"
    if words:
        table = rng.standard_normal((words, width), dtype=np.float32)
        weights.append(numpy_helper.from_array(table, "words"))
        nodes.append(helper.make_node("ArgMax", ["x"], ["word"], axis=1, keepdims=0))
        nodes.append(helper.make_node("Gather", ["words", "word"], ["looked_up"]))
        nodes.append(helper.make_node("Add", ["x", "looked_up"], ["both"]))
        last = "both"
    for layer in range(layers):
        matrix = rng.normal(scale=width**-0.5, size=(width, width)).astype(np.float32)
        weights.append(numpy_helper.from_array(matrix, f"w{layer}"))
        nodes.append(helper.make_node("MatMul", [last, f"w{layer}"], [f"z{layer}"]))
        last = "y" if layer == layers - 1 else f"a{layer}"
        nodes.append(helper.make_node("Tanh", [f"z{layer}"], [last]))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", width]) for name in "xy"]
    graph = helper.make_graph(nodes, f"graph{seed}", ends[:1], ends[1:], weights)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(path))
    return path
