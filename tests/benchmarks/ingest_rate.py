"""How fast documents with vectors of their own are stored and indexed, compared with another checkout's code.

python tests/benchmarks/ingest_rate.py [--against CHECKOUT] [--documents 6000] [--rounds 5] [--json]

Each run is a process of its own, and the two take turns, since a machine is never equally busy. `add` is
`Database.add`, `index` what `Database.refresh` then takes; wall time and processor time, the least of all rounds in
seconds. With `--against` each has a `ratio`: how many times the other's rate ours is. The folder needs no environment:
its code runs with this interpreter's packages.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

OURS = Path(__file__).parents[2]
DIM, WORDS, VOCABULARY, FIRST = 384, 40, 30_000, 500


def measure(documents: int) -> dict[str, float]:
    """Store and index once, with the code that comes first in the path, and return the seconds."""
    import vectorsearch as vs  # noqa: PLC0415 -- of the checkout that is measured

    rng = np.random.default_rng(0)
    rows: list[dict[str, Any]] = [
        {
            "id": f"d{i}",
            "text": " ".join(f"w{word}" for word in np.minimum(rng.zipf(1.3, WORDS), VOCABULARY)),
            "vector": rng.standard_normal(DIM, dtype=np.float32),
            "metadata": {"n": i},
        }
        for i in range(FIRST + documents)
    ]
    with tempfile.TemporaryDirectory() as folder, vs.open(Path(folder) / "db", embed=None, rerank=None) as db:
        db.add(rows[:FIRST])
        db.refresh()
        times = [(time.perf_counter(), time.process_time())]
        for work in (lambda: db.add(rows[FIRST:]), db.refresh):
            work()
            times.append((time.perf_counter(), time.process_time()))
    spans = {name: (times[i], times[i + 1]) for i, name in enumerate(("add", "index"))}
    return {
        f"{name}_{kind}": end[i] - begin[i]
        for name, (begin, end) in spans.items()
        for i, kind in enumerate(("s", "cpu_s"))
    }


def run(checkout: Path, documents: int) -> dict[str, float]:
    """Measure a checkout's code in a process of its own."""
    program = f"""import json, sys
sys.path[:0] = [{str(checkout)!r}, {str(Path(__file__).parent)!r}]
import vectorsearch
assert vectorsearch.__file__.startswith({str(checkout)!r}), vectorsearch.__file__
import ingest_rate
print(json.dumps(ingest_rate.measure({documents})))"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    told: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return told


def main() -> None:
    """Parse the arguments and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, help="the root of another checkout")
    parser.add_argument("--documents", type=int, default=6_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    options = parser.parse_args()
    checkouts = {"ours": OURS} | ({"other": options.against.resolve()} if options.against else {})
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in checkouts}
    for _ in range(options.rounds):
        for name, checkout in checkouts.items():
            runs[name].append(run(checkout, options.documents))
    figures: dict[str, dict[str, float]] = {
        name: {figure: round(min(one[figure] for one in all_runs), 3) for figure in all_runs[0]}
        for name, all_runs in runs.items()
    }
    if "other" in figures:
        figures["ratio"] = {name: round(figures["other"][name] / ours, 2) for name, ours in figures["ours"].items()}
    print(json.dumps(figures, indent=None if options.json else 2))


if __name__ == "__main__":
    main()
