"""Measure runs with this project, pytrec_eval and ranx, and tell how far apart the values of a query are at most.

    pip install ranx
    python tests/golden/compare_measures.py --qrels qrels/test.tsv RUN.trec…

Exit code 1 if any differs by more than 1e-6. Scores are made to fall strictly before, since ranx breaks ties in its own
way.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path

from make_measures import pytrec_values, ranx_values  # beside this file

from vectorsearch.evaluation.collecting.collections import read_qrels
from vectorsearch.evaluation.comparing.metrics import measure_queries
from vectorsearch.evaluation.formats.runs import read_run

NEAR = 1e-6


def furthest(run_path: Path, qrels: dict[str, dict[str, int]]) -> dict[str, dict[str, float]]:
    """Return, for each library and measure, the largest difference of a query's value from this project's."""
    rankings = {query: ids for query, ids in read_run(run_path).rankings.items() if query in qrels}
    run = {query: {doc_id: float(len(ids) - i) for i, doc_id in enumerate(ids)} for query, ids in rankings.items()}
    found = {"pytrec_eval": pytrec_values(qrels, run)}
    if importlib.util.find_spec("ranx"):
        found["ranx"] = ranx_values(qrels, run)
    differences: dict[str, dict[str, float]] = {}
    for library, values in found.items():
        ours = measure_queries(rankings, qrels, names=list(values))
        differences[library] = {
            name: max(abs(mine - of.get(query, 0.0)) for query, mine in zip(qrels, ours[name].tolist(), strict=True))
            for name, of in values.items()
        }
    return differences


def main() -> None:
    """Print a line for each run, library and measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--qrels", required=True, type=Path)
    arguments = parser.parse_args()
    qrels = read_qrels(arguments.qrels)
    worst = 0.0
    for path in arguments.runs:
        for library, differences in furthest(path, qrels).items():
            worst = max(worst, *differences.values())
            told = "  ".join(f"{name} {value:.0e}" for name, value in differences.items())
            sys.stdout.write(f"{path.name:<24} {library:<12} {told}\n")
    sys.exit(worst > NEAR)


if __name__ == "__main__":
    main()
