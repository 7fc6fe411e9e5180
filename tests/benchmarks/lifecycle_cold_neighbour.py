"""What a hit costs while other models load and unload without pause: 1,000 hits a second on a resident model.

    python tests/benchmarks/lifecycle_cold_neighbour.py [--json] [--quick] [--plot FILE]

Two kinds: `fake` loads use no CPU, and a hit is a lease and its release; `onnx` loads are real, and a hit is a lease
and an inference. Three conditions take turns, a second each: `quiet`; `bare`, where a thread loads and closes the
neighbours without any manager, so that what the runtime and the machine do is known; and `managed`, where it leases
them, and each evicts the other. `hit` is the time of the hit alone; `since_due` counts from when it should have begun,
and so also holds the timer and the wait for a core and for the interpreter's lock.
Targets: the 99th percentile of `hit`, managed against quiet, at most 1.2 for fake loads and 2 for real ones.
"""

from __future__ import annotations

import itertools
import tempfile
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from lifecycle_measuring import FakeLoader, GraphLoader, Meter, finish, parse_options, quantiles_ms, write_graph

from lifecycle import InstanceKey, ModelConfig, ModelManager, ModelRef

if TYPE_CHECKING:
    from collections.abc import Callable

RATE = 1000
CONDITIONS = ("quiet", "bare", "managed")
FAKE_LOAD_S = 0.005
RESIDENT, NEIGHBOURS = ModelRef("bench", "resident"), (ModelRef("bench", "left"), ModelRef("bench", "right"))


class Kind:
    """One kind of load: a manager with room for the resident model and one neighbour, and what a hit is."""

    def __init__(self, loader: Any, specs: dict[ModelRef, Any], *, infer: bool) -> None:
        self.loader, self.specs = loader, specs
        sizes = {ref: loader.estimate(spec) for ref, spec in specs.items()}
        self.manager = ModelManager(sizes[RESIDENT] + max(sizes[ref] for ref in NEIGHBOURS))
        for ref, spec in specs.items():
            # A neighbour's lease often ends after the last hit, so that LRU alone would evict the resident model.
            config = ModelConfig(pinned=ref == RESIDENT)
            self.manager.register(ref, spec, loader, config, key=InstanceKey(ref.name, loader.name))
        self.hit: Callable[[], object] = self._infer if infer else self._lease
        self.counts: Counter[str] = Counter()
        self.seconds: dict[tuple[str, str], list[list[float]]] = defaultdict(list)  # (figure, condition): windows

    def _lease(self) -> None:
        with self.manager.lease(RESIDENT):
            pass

    def _infer(self) -> float:
        with self.manager.lease(RESIDENT) as model:
            return model.infer()

    def window(self, condition: str, seconds: float) -> None:
        """Measure hits under one condition."""
        stop = threading.Event()
        churn = threading.Thread(target=self._churn, args=(condition, stop))
        churn.start()
        right = self.hit()
        hit, since_due = [], []
        due = time.perf_counter()
        for _ in range(int(seconds * RATE)):
            due += 1 / RATE
            time.sleep(max(0.0, due - time.perf_counter()))
            begun = time.perf_counter()
            answer = self.hit()
            ended = time.perf_counter()
            hit.append(ended - begun)
            since_due.append(ended - due)
            self.counts["wrong_answers"] += answer != right
        stop.set()
        churn.join()
        self.seconds["hit", condition].append(hit)
        self.seconds["since_due", condition].append(since_due)

    def _churn(self, condition: str, stop: threading.Event) -> None:
        for ref in itertools.cycle(NEIGHBOURS):
            if stop.is_set() or condition == "quiet":
                return
            try:
                if condition == "bare":
                    self.loader.load_model(self.specs[ref]).close()
                else:
                    with self.manager.lease(ref):
                        pass
            except Exception:  # noqa: BLE001 - whatever goes wrong is what is counted
                self.counts["errors"] += 1
            self.counts[f"{condition}_loads"] += 1

    def figures(self) -> dict[str, Any]:
        """Return quantiles by condition, and their ratios to quiet: of the whole run, and the median window's."""
        result: dict[str, Any] = {"loads": {name: self.counts[f"{name}_loads"] for name in CONDITIONS[1:]}}
        for figure in ("hit", "since_due"):
            windows = {name: self.seconds[figure, name] for name in CONDITIONS}
            result[figure] = {name: quantiles_ms([s for w in windows[name] for s in w]) for name in CONDITIONS}
            tails = {name: [np.quantile(w, 0.99) for w in windows[name]] for name in CONDITIONS}
            for name in CONDITIONS[1:]:
                ratio = result[figure][name]["p99_ms"] / result[figure]["quiet"]["p99_ms"]
                result[figure][f"p99_{name}_to_quiet"] = round(ratio, 2)
                middle = np.median([a / b for a, b in zip(tails[name], tails["quiet"], strict=True)])
                result[figure][f"median_window_p99_{name}_to_quiet"] = round(float(middle), 2)
        return result

    def close(self) -> dict[str, int]:
        """Close the manager, and return what must be 0."""
        resident_loads = self.manager.status(RESIDENT).loads
        self.manager.close()
        return {
            "errors": self.counts["errors"],
            "wrong_answers": self.counts["wrong_answers"],
            "resident_reloads": resident_loads - 1,
            "left_charged": self.manager.snapshot().charged_nbytes,
        }


def kinds(folder: Path) -> dict[str, Kind]:
    """Make both kinds."""
    fakes = dict.fromkeys((RESIDENT, *NEIGHBOURS), 1)
    small, large = {"layers": 4, "width": 256}, {"layers": 12, "width": 1024}
    graphs = {
        ref: write_graph(folder / f"{ref.name}.onnx", seed=seed, **(large if seed else small))
        for seed, ref in enumerate((RESIDENT, *NEIGHBOURS))
    }
    return {
        "fake": Kind(FakeLoader(FAKE_LOAD_S), fakes, infer=False),
        "onnx": Kind(GraphLoader(Meter(0)), graphs, infer=True),
    }


def draw(plt: Any, measured: dict[str, Kind]) -> None:
    """Plot how many hits take longer than a time, for each condition."""
    _, axes = plt.subplots(1, 2, figsize=(9, 3.5), sharey=True)
    for axis, (title, kind) in zip(axes, measured.items(), strict=True):
        for name in CONDITIONS:
            times = np.sort([1000 * s for window in kind.seconds["hit", name] for s in window])
            axis.plot(times, 1 - np.arange(len(times)) / len(times), label=name, drawstyle="steps-post")
        axis.axhline(0.01, color="grey", linewidth=0.5)
        axis.set(title=f"{title} loads", xlabel="hit, ms", xscale="log", yscale="log")
    axes[0].set_ylabel("share of hits that took longer")
    axes[0].legend(fontsize="small")


def main() -> None:
    """Print the figures; fail if a hit failed or the resident model was not left alone."""
    options = parse_options(__doc__)
    rounds, seconds = (3, 0.5) if options.quick else (20, 1.0)
    with tempfile.TemporaryDirectory() as folder:
        measured = kinds(Path(folder))
        for kind in measured.values():
            for number in range(rounds):
                for turn in range(len(CONDITIONS)):  # each round begins with another one
                    kind.window(CONDITIONS[(number + turn) % len(CONDITIONS)], seconds)
        figures = {name: kind.figures() for name, kind in measured.items()}
        wrong: Counter[str] = Counter()
        for kind in measured.values():
            wrong.update(kind.close())
    finish(figures, options, wrong=dict(wrong), draw=lambda plt: draw(plt, measured))


if __name__ == "__main__":
    main()
