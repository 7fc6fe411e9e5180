"""Make the golden values of the measures: two runs, judgments, and what pytrec_eval and ranx say of them.

    pip install pytrec-eval-terrier ranx
    python tests/golden/make_measures.py

It was run once, with pytrec-eval-terrier 0.5.11 and ranx 0.3.21; its output is kept beside it, in `measures/`.
"""

from __future__ import annotations

import importlib
import json
import random
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "measures"
QUERIES = [f"q{i}" for i in range(1, 21)]
TREC_NAMES = {"nDCG@10": "ndcg_cut_10", "R@100": "recall_100", "AP": "map", "P@10": "P_10", "RR": "recip_rank"}
RANX_NAMES = {"nDCG@10": "ndcg@10", "R@100": "recall@100", "AP": "map", "P@10": "precision@10", "RR@10": "mrr@10"}

Ranked = dict[str, dict[str, float]]


def make_run(rng: random.Random, qrels: dict[str, dict[str, int]], *, ties: bool) -> Ranked:
    """Return scores of up to 120 documents a query, judged ones a little higher; some queries have none."""
    run: Ranked = {}
    for query in QUERIES[:-1]:
        documents = rng.sample([f"d{i}" for i in range(300)], 120)
        gain = {document: qrels[query].get(document, 0) + rng.gauss(0, 1) for document in documents}
        run[query] = {document: round(score, 1 if ties else 6) for document, score in gain.items()}
    return run


def strictly_falling(run: Ranked) -> Ranked:
    """Return the run in trec_eval's order, equal scores by document id descending, with scores n, n-1, …, 1."""
    ordered = {query: sorted(found, key=lambda d, f=found: (f[d], d), reverse=True) for query, found in run.items()}
    return {query: {d: float(len(found) - i) for i, d in enumerate(found)} for query, found in ordered.items()}


def pytrec_values(qrels: dict[str, dict[str, int]], run: Ranked) -> dict[str, dict[str, float]]:
    """Return each measure's value of each query that the run has, from the scores as they are, ties and all."""
    pytrec_eval: Any = importlib.import_module("pytrec_eval")
    found = pytrec_eval.RelevanceEvaluator(qrels, set(TREC_NAMES.values())).evaluate(run)
    return {ours: {query: values[theirs] for query, values in found.items()} for ours, theirs in TREC_NAMES.items()}


def ranx_values(qrels: dict[str, dict[str, int]], run: Ranked) -> dict[str, dict[str, float]]:
    """Return each measure's value of each query; ranx needs a run without ties, and every judged query."""
    ranx: Any = importlib.import_module("ranx")
    judged, ranked = ranx.Qrels(qrels), ranx.Run(strictly_falling(run))
    ranx.evaluate(judged, ranked, list(RANX_NAMES.values()), make_comparable=True)
    scores = ranked.scores
    return {ours: {query: float(v) for query, v in scores[theirs].items()} for ours, theirs in RANX_NAMES.items()}


def main() -> None:
    """Write judgments, runs and values."""
    rng = random.Random(20071)  # noqa: S311 -- data, no secret
    qrels = {query: {f"d{d}": rng.choice([0, 0, 1, 1, 2]) for d in rng.sample(range(300), 25)} for query in QUERIES}
    FOLDER.mkdir(exist_ok=True)
    lines = [f"{query} 0 {document} {grade}\n" for query, of in qrels.items() for document, grade in of.items()]
    (FOLDER / "qrels.txt").write_text("".join(lines), encoding="utf-8")
    values: dict[str, Any] = {}
    for name, ties in (("plain", False), ("ties", True)):
        run = make_run(rng, qrels, ties=ties)
        rows = [f"{query} Q0 {d} 0 {score} {name}\n" for query, found in run.items() for d, score in found.items()]
        (FOLDER / f"{name}.trec").write_text("".join(rows), encoding="utf-8")
        values[name] = {"pytrec_eval": pytrec_values(qrels, run), "ranx": ranx_values(qrels, run)}
    (FOLDER / "values.json").write_text(json.dumps(values, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
