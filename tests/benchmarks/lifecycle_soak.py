"""What 30 cycles of load, use and unload leave in memory, for each real backend that is installed.

    python tests/benchmarks/lifecycle_soak.py [--json] [--quick] [--plot FILE]

Each backend has a child process of its own, and the default embedder; PyTorch, which can't read that, has
all-MiniLM-L6-v2 (not with --quick, which fetches nothing). What can't run here is left out and named. Resident memory
is read after each unload; the slope is fitted to the last two thirds of the cycles, since a runtime keeps something the
first time. The positive control is the same child with a loader that keeps every model it made: it must be noticed, or
the measurement is blind. A backend leaks if a cycle costs more than 2 % of what the control loses in one (10 % with
--quick, whose nine cycles tell less), the slope's doubt (two standard errors) in its favour: what an allocator has
given back at the moment of reading varies by tens of megabytes for NumPy and JAX. `residue_mb` is what the manager has
itself counted as kept; where it can count, it must have noticed the control too.
"""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np
import psutil
from lifecycle_measuring import finish, parse_options

from backends.catalogue import catalogue
from backends.catalogue.entries import DEFAULT_EMBEDDER
from backends.choosing import registry
from backends.running import text_model
from lifecycle import ModelManager, ModelRef
from lifecycle.keeping.residue import resident_nbytes

LEAK_SHARE, QUICK_LEAK_SHARE = 0.02, 0.1  # of what the control loses in a cycle
NOTICED_SHARE = 0.5  # of the weights: so much at least the control must be seen to lose
REF = ModelRef("bench", "embedder")
TEXTS = [f"a text of some {n} words, " * n for n in (1, 8, 32)]


class Hoarder:
    """A loader whose models don't close: the positive control."""

    def __init__(self, loader: text_model.TextLoader) -> None:
        self._loader = loader
        self._kept: list[text_model.TextModel] = []
        self.name = loader.name
        self.estimate = loader.estimate

    def load_model(self, spec: Any) -> text_model.TextModel:
        """Load, and never let go."""
        model = self._loader.load_model(spec)
        model.close = lambda: None  # type: ignore[method-assign] - the leak
        self._kept.append(model)
        return model


def served(backend: str, names: list[str]) -> str | None:
    """Return the first of these models that a backend can serve, None if there is none."""
    specs = map(catalogue.resolve, names)
    return next((spec.name for spec in specs if registry.get(backend).can_serve(spec)), None)


def soak(backend: str, model_name: str, cycles: int, *, leak: bool) -> dict[str, Any]:
    """Return resident memory after each cycle, in MB, and its slope."""
    spec = catalogue.pull(model_name)
    loader: Any = text_model.TextLoader(registry.select(spec, backend=backend))
    series = []
    with ModelManager(4 * cycles * loader.estimate(spec)) as manager:  # room for all that the control keeps
        manager.register(REF, spec, Hoarder(loader) if leak else loader)
        for _ in range(cycles):
            with manager.lease(REF) as model:
                model.embed(TEXTS, kind="passage")
            manager.unload(REF)
            series.append(psutil.Process().memory_info().rss / 1e6)
        left = manager.snapshot()
    later = series[cycles // 3 :]
    line, covariance = np.polyfit(range(len(later)), later, 1, cov=True)
    slope, doubt = float(line[0]), 2 * float(covariance[0, 0]) ** 0.5
    return {
        "model": spec.name,
        "weights_mb": round(spec.weights_nbytes / 1e6, 1),
        "slope_mb_per_cycle": round(slope, 3),
        "doubt_mb_per_cycle": round(doubt, 3),
        "left_charged": left.charged_nbytes,
        "residue_mb": round(sum(left.residue.values()) / 1e6, 1),
        "rss_mb": [round(value, 1) for value in series],
    }


def draw(plt: Any, figures: dict[str, Any]) -> None:
    """Plot resident memory over the cycles."""
    plt.figure(figsize=(6, 3.5))
    for name, figure in figures.items():
        plt.plot(range(1, len(figure["rss_mb"]) + 1), figure["rss_mb"], marker=".", label=name.replace("_", " "))
    plt.gca().set(xlabel="cycles", ylabel="resident, MB", ylim=(0, None))
    plt.legend(fontsize="small")


def main() -> None:
    """Print the figures; fail if a backend leaks, or the control is not noticed."""
    options = parse_options(__doc__, only="every backend")
    cycles, control_cycles = (9, 6) if options.quick else (30, 12)
    figures: dict[str, Any] = {}
    left_out: list[str] = []
    for backend in registry.available() if options.only == "every backend" else [options.only]:
        if registry.get(backend).priority is None:  # never chosen unasked: a fake
            continue
        model = served(backend, [DEFAULT_EMBEDDER] if options.quick else [DEFAULT_EMBEDDER, "all-MiniLM-L6-v2"])
        if model is None:
            left_out.append(backend)
            continue
        with ProcessPoolExecutor(2, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
            control = pool.submit(soak, backend, model, control_cycles, leak=True).result()
            figure = pool.submit(soak, backend, model, cycles, leak=False).result()
        share = QUICK_LEAK_SHARE if options.quick else LEAK_SHARE
        for one, limit in (
            (figure, share * control["slope_mb_per_cycle"]),
            (control, NOTICED_SHARE * control["weights_mb"]),
        ):
            one["leaks"] = one["slope_mb_per_cycle"] - one["doubt_mb_per_cycle"] > limit
        figures |= {backend: figure, f"{backend}_with_a_leak": control}
    wrong = {
        "leaking": sum(figure["leaks"] for name, figure in figures.items() if not name.endswith("leak")),
        "unnoticed": sum(not figure["leaks"] for name, figure in figures.items() if name.endswith("leak")),
        "left_charged": sum(figure["left_charged"] for figure in figures.values()),
        "uncounted": sum(not figure["residue_mb"] for name, figure in figures.items() if name.endswith("leak"))
        if resident_nbytes() is not None
        else 0,
        "nothing_ran": int(not figures),
    }
    if left_out:
        print(f"left out: {', '.join(left_out)}", file=sys.stderr)
    finish(figures, options, wrong=wrong, draw=lambda plt: draw(plt, figures))


if __name__ == "__main__":
    main()
