"""Is a reranker that the gate of `train-reranker` accepts better on queries that the gate never saw?

python tests/benchmarks/train_gate.py [--collection DIR/scifact] [--layers 2] [--json]

A small cross-encoder, some layers of the default reranker, is trained on the collection's train judgments by the
product's own function, which holds a fifth of the train queries out and decides by them: once with the judgments as
they are, and once with those of each query given to another. Each time the model, whatever the gate said, then orders
the hits of the collection's test queries beside the one that it started from. The gate is right if it accepts the
first, which is better there too, and refuses the second. Documents are searched by words.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import vectorsearch as vs
from backends.catalogue import catalogue
from backends.catalogue.entries import DEFAULT_RERANKER
from rerank import CrossEncoder
from rerank.cascade import reorder
from rerank.distilling.distil_student import write_student
from rerank.training.train import with_floats
from rerank.training.train_plan import TrainingPlan
from vectorsearch.evaluation.collecting.collections import read_collection
from vectorsearch.evaluation.collecting.topics import Topics
from vectorsearch.evaluation.comparing.comparison import compare
from vectorsearch.training.fine_tuning import MEASURE, train_reranker
from vectorsearch.training.hard_negatives import MiningPlan, find_hits

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vectorsearch.evaluation.collecting.topics import Judged
    from vectorsearch.training.hard_negatives import JudgedHits

SEED = 11


def main(argv: Sequence[str] | None = None) -> int:
    """Train twice, and print what the gate said and what the test queries say."""
    options = parsed(argv)
    begun = time.monotonic()
    train, test = (read_collection(options.collection, split=split) for split in ("train", "test"))
    results = {}
    with tempfile.TemporaryDirectory() as scratch, vs.open(Path(scratch) / "db", embed=None) as db:
        folder = Path(scratch)
        db.add(train.documents())
        note(options, f"{db.count():,} documents indexed")
        base = folder / "student"
        write_student(
            with_floats(catalogue.ensure(catalogue.resolve(DEFAULT_RERANKER)), folder),
            base,
            options.layers,
            max_length=options.max_length,
        )
        unseen = dict(find_hits(db, test, test.qrels))
        started_from = orders(base, unseen, options.depth)
        for name, judged in (("judgments", train), ("shuffled", shuffled(train))):
            made = train_reranker(
                db,
                judged,
                folder / name,
                base=base,
                plan=TrainingPlan(
                    epochs=options.epochs,
                    learning_rate=options.learning_rate,
                    max_length=options.max_length,
                    frozen_layers=0,
                ),
                mining=MiningPlan(depth=options.depth, negatives=options.negatives),
            )
            note(options, f"{name}: {made.verdict}, after {time.monotonic() - begun:.0f} s")
            gain = {"mean": made.gain.mean, "p": made.gain.p, "queries": made.queries["held_out"]}
            results[name] = {
                "accepted": made.beats_base,  # by which `register` goes
                "lists": made.lists,
                "steps": made.trained.fit.steps,
                "held_out": gain,
                "unseen": compared(started_from, orders(folder / name, unseen, options.depth), unseen),
            }
    right = results["judgments"]["accepted"] and not results["shuffled"]["accepted"]
    right = right and results["judgments"]["unseen"]["p"] < 0.05 and results["judgments"]["unseen"]["gain"] > 0
    told = {
        "collection": options.collection.name,
        "layers": options.layers,
        "right": right,
        **results,
        "seconds": round(time.monotonic() - begun),
    }
    print(json.dumps(told, indent=2) if options.json else "\n".join(f"{name}: {value}" for name, value in told.items()))
    return 0 if right else 1


def shuffled(judged: Judged) -> Topics:
    """Return the queries, each with the judgments of another."""
    ids = list(judged.qrels)
    random.Random(SEED).shuffle(ids)  # noqa: S311 -- no secret
    return Topics(judged.queries, {ids[at]: judged.qrels[ids[at - 1]] for at in range(len(ids))})


def orders(folder: Path, found: Mapping[str, JudgedHits], depth: int) -> dict[str, tuple[str, ...]]:
    """Return the hits of each query as a model orders the best of them."""
    ordered = {}
    with CrossEncoder(folder, backend="torch") as model:
        for query_id, hits in found.items():
            order = reorder(np.arange(len(hits.doc_ids)), model.score(hits.query, hits.texts[:depth]))
            ordered[query_id] = tuple(hits.doc_ids[at] for at in order)
    return ordered


def compared(
    before: Mapping[str, Sequence[str]], after: Mapping[str, Sequence[str]], found: Mapping[str, JudgedHits]
) -> dict[str, Any]:
    """Return how the orders compare by the judgments of queries that nothing was learned from."""
    qrels = {query_id: hits.grades for query_id, hits in found.items()}
    figures = compare({"base": before, "trained": after}, qrels, measures=[MEASURE], baseline="base").figures
    difference = figures["trained"][MEASURE].difference
    assert difference is not None
    means = {name: round(each[MEASURE].mean, 4) for name, each in figures.items()}
    return {**means, "gain": round(difference.mean, 4), "p": difference.p, "queries": len(qrels)}


def parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    collections = Path(os.environ.get("VECTORSEARCH_COLLECTIONS", "."))
    parser.add_argument("--collection", type=Path, default=collections / "scifact")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--epochs", type=float, default=1.0)
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    parser.add_argument("--max-length", type=int, default=64)
    parser.add_argument("--depth", type=int, default=10)
    parser.add_argument("--negatives", type=int, default=4)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(argv)


def note(options: argparse.Namespace, text: str) -> None:
    """Say how far it is."""
    print(text, file=sys.stderr if options.json else sys.stdout, flush=True)


if __name__ == "__main__":
    sys.exit(main())
