"""Train a tenant's own reranker on judged queries, and register it only if it beats the one that it started from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from backends import catalogue
from backends.errors import InvalidInput
from rerank import CrossEncoder
from rerank.cascade import reorder
from rerank.train import DEFAULT_PLAN, load_trainer, train
from vectorsearch import config
from vectorsearch.evaluation.comparison import compare
from vectorsearch.evaluation.figures import counted, format_p
from vectorsearch.evaluation.metrics import require_ir_measures
from vectorsearch.evaluation.significance import require_scipy_stats
from vectorsearch.hard_negatives import MiningPlan, find_hits, split, training_lists, validation_lists

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from backends.base import ModelSpec
    from rerank.train import Trained
    from rerank.train_plan import TrainingPlan
    from vectorsearch.database import Database
    from vectorsearch.evaluation.comparison import Comparison, Difference
    from vectorsearch.evaluation.topics import Judged
    from vectorsearch.hard_negatives import JudgedHits, Split

    Progress = Callable[[str, int, int], None]

T = TypeVar("T")

MEASURE = "nDCG@10"
FIRST_STAGE, BASE, TRAINED = "first stage", "base", "trained"
DEFAULT_MINING = MiningPlan()
_FEWEST_DECIDING = 6  # with fewer no difference can be significant: 2 of 2 ** 5 sign patterns are more than 5 %


@dataclass(frozen=True, slots=True)
class FineTuning:
    """A reranker that was trained, and how it compares on the queries held out.

    `comparison` has the systems "first stage", "base" and "trained", the base being what the others are compared with.
    `queries` counts those learned from, those that ended the training and those held out, `lists` what was learned.
    `registered` is the name that it has in the database, None if it wasn't registered.
    """

    trained: Trained
    comparison: Comparison
    queries: Mapping[str, int]
    lists: int
    registered: str | None

    @property
    def gain(self) -> Difference:
        """Return how its nDCG@10 differs from the base's, and how likely that is by chance."""
        difference = self.comparison.figures[TRAINED][MEASURE].difference
        assert difference is not None  # noqa: S101 -- the base is the one without
        return difference

    @property
    def beats_base(self) -> bool:
        """Return whether it is better than its base on the queries held out, by more than chance."""
        return self.gain.mean > 0 and self.gain.significant

    @property
    def verdict(self) -> str:
        """Return in words whether it was registered, and why."""
        figures = self.comparison.figures
        before, after = (figures[name][MEASURE].mean for name in (BASE, TRAINED))
        n = counted(len(self.comparison.queries), "query")
        told = f"{MEASURE} {after:.3f} against the base's {before:.3f} on {n} held out, p {format_p(self.gain.p)}"
        if not self.beats_base:
            return f"not registered: {told}"
        return f"registered as {self.registered!r}: {told}" if self.registered else f"better than its base: {told}"


def train_reranker(
    db: Database,
    judged: Judged,
    folder: Path,
    *,
    base: str | Path = config.DEFAULT_RERANKER,
    plan: TrainingPlan = DEFAULT_PLAN,
    mining: MiningPlan = DEFAULT_MINING,
    register: str | None = None,
    progress: Progress = lambda _step, _done, _total: None,
) -> FineTuning:
    """Train a reranker into `folder` on judged queries of a database, and compare it with the one it started from.

    A fifth of the queries is held out: neither what is learned nor when training ends depends on them.

    Args:
        db: a database or a tenant's. What it finds and nobody judged relevant is what the model learns to tell apart.
        judged: queries and judgments, such as a `TestCollection` or `Topics`.
        folder: must not be there yet; a model in Hugging Face layout, with an ONNX graph beside the safetensors.
        base: a cross-encoder, by name or folder; also one that is registered here.
        plan: how to train; its seed is also that of the split and of what is drawn.
        mining: how lists are made of hits and judgments, and how the queries are split.
        register: the name to register it under if it beats its base: a higher mean nDCG@10, and p < 0.05.
        progress: called with the step (`searching`, `training`, `comparing`), and how much of how much of it is done.

    Raises:
        InvalidInput: the folder is there, there are too few judged queries, or an argument can't be used.
        UnknownModel, InvalidModel: there is no such base, or it can't be trained.
        ReadOnlyDatabase: it is to be registered, and the database is open to read.
        MissingExtra: what trains or measures is not installed.
    """
    for require in (load_trainer, require_ir_measures, require_scipy_stats):
        require()
    if register is not None:
        db.check_writable()  # now, and not after minutes
    spec = catalogue.ensure(db.find_reranker(base))
    parts = _split(db, judged, mining, seed=plan.seed)
    every = [*parts.train, *parts.validation, *parts.held_out]
    found = dict(_counted("searching", find_hits(db, judged, every), len(every), progress))
    lists = training_lists(db, (found[each] for each in parts.train), mining, seed=plan.seed)
    trained = train(
        spec,
        lists,
        folder,
        validation=validation_lists(db, (found[each] for each in parts.validation), mining),
        plan=plan,
        on_step=lambda step: progress("training", step.step, step.steps),
    )
    comparison = _compare(spec, trained, {each: found[each] for each in parts.held_out}, mining.depth, progress)
    queries = {"train": len(parts.train), "validation": len(parts.validation), "held_out": len(parts.held_out)}
    made = FineTuning(trained, comparison, queries, len(lists), None)
    if register is not None and made.beats_base:
        db.register_model(register, folder, "cross-encoder")
        return replace(made, registered=register)
    return made


def _split(db: Database, judged: Judged, mining: MiningPlan, *, seed: int) -> Split:
    """Split the queries that a document of the database answers."""
    answerable = {
        query_id: text
        for query_id, text in judged.queries.items()
        if any(grade > 0 and db.get(doc_id) for doc_id, grade in judged.qrels[query_id].items())
    }
    parts = split(answerable, mining, seed=seed)
    if len(parts.held_out) < _FEWEST_DECIDING or not parts.validation or not parts.train:
        raise InvalidInput(
            f"{len(answerable)} of {len(judged.queries)} queries are answered by a document here, which leaves "
            f"{len(parts.held_out)} to decide by, and {_FEWEST_DECIDING} are needed: give more judged queries"
        )
    return parts


def _compare(
    base: ModelSpec, trained: Trained, found: Mapping[str, JudgedHits], depth: int, progress: Progress
) -> Comparison:
    """Rerank the hits of the queries held out with both models, and compare the orders.

    The base is run as searches run it, the trained one by PyTorch, which has just trained it.
    """
    runs = {FIRST_STAGE: {query_id: hits.doc_ids for query_id, hits in found.items()}}
    with CrossEncoder(base.folder) as before, CrossEncoder(trained.spec.folder, backend="torch") as after:
        work = ((name, model, query_id) for name, model in ((BASE, before), (TRAINED, after)) for query_id in found)
        for name, model, query_id in _counted("comparing", work, 2 * len(found), progress):
            hits = found[query_id]
            order = reorder(np.arange(len(hits.doc_ids)), model.score(hits.query, hits.texts[:depth]))
            runs.setdefault(name, {})[query_id] = tuple(hits.doc_ids[at] for at in order)
    qrels = {query_id: hits.grades for query_id, hits in found.items()}
    return compare(runs, qrels, measures=[MEASURE], baseline=BASE)


def _counted(step: str, items: Iterable[T], total: int, progress: Progress) -> Iterator[T]:
    """Yield the items, and tell how many of them are done."""
    for done, item in enumerate(items, 1):
        yield item
        progress(step, done, total)
