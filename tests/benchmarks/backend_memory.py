"""Resident memory over load-unload cycles, on each backend: what a closed model leaves behind.

Run: `python tests/benchmarks/backend_memory.py --json`. Each backend has a process of its own; a cycle loads the model,
warms it up, embeds texts of many lengths, and closes it. `--only NAME …` measures some backends, `--model NAME` another
model (a name, or a folder made by `vectorsearch models export`).
"""

from __future__ import annotations

import argparse
import gc
import json
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import psutil

from backends.catalogue import catalogue
from backends.choosing import registry
from backends.running.memory import trim
from backends.running.text_model import TextLoader

MIB = 1 << 20
LENGTHS = (8, 60, 200, 30, 120)  # words


def cycles(name: str, backend: str, count: int) -> dict[str, object]:
    """Return the resident MiB after each cycle, and in the first one while the model was loaded, beside its charge."""
    spec = catalogue.resolve(name)
    series, charged, loaded, device = [], 0, 0, ""
    for _ in range(count):
        model = TextLoader(registry.get(backend)).load_model(spec)
        model.warm_up()
        for words in LENGTHS:
            texts = ["file " * words] * 16
            if spec.task == "embed":
                model.embed(texts, kind="passage")
            else:
                model.score("read a file", texts)
        charged, loaded, device = model.nbytes, psutil.Process().memory_info().rss, model.device
        model.close()
        del model
        gc.collect()
        trim()
        series.append(psutil.Process().memory_info().rss // MIB)
    return {
        "device": device,
        "rss_mib": series,
        "loaded_mib": loaded // MIB,
        "charged_mib": charged // MIB,
        "growth_mib": series[-1] - series[min(4, count - 1)],
    }


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of one line a figure")
    parser.add_argument("--model", default="all-MiniLM-L6-v2")
    parser.add_argument("--only", nargs="*", help="backends to measure; by default all that can serve the model")
    parser.add_argument("--cycles", type=int, default=30)
    args = parser.parse_args()
    spec = catalogue.pull(args.model)
    names = args.only or [v for name in registry.unasked() for v in registry.variants(name)]
    figures = {}
    for backend in names:
        if not registry.get(backend).can_serve(spec):
            continue
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            figures[backend] = pool.submit(cycles, args.model, backend, args.cycles).result()
        if not args.json:
            print(backend, figures[backend], flush=True)
    if args.json:
        print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
