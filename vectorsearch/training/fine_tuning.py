"""Train a tenant's own reranker on judged queries, and register it only if it beats the one that it started from."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from backends.catalogue import catalogue
from backends.errors import InvalidInput
from rerank import CrossEncoder
from rerank.cascade import reorder
from rerank.training.time_limit import TimeLimit
from rerank.training.train import DEFAULT_PLAN, load_trainer, train
from vectorsearch import config
from vectorsearch.evaluation.comparing.comparison import compare
from vectorsearch.evaluation.comparing.metrics import require_ir_measures
from vectorsearch.evaluation.comparing.significance import require_scipy_stats
from vectorsearch.evaluation.figures import counted, format_p
from vectorsearch.training.hard_negatives import MiningPlan, find_hits, split, training_lists, validation_lists

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from backends.base import ModelSpec
    from rerank.training.train import Trained
    from rerank.training.train_plan import TrainingPlan
    from vectorsearch.database.database import Database
    from vectorsearch.evaluation.collecting.topics import Judged
    from vectorsearch.evaluation.comparing.comparison import Comparison, Difference
    from vectorsearch.training.hard_negatives import JudgedHits, Split

    Progress = Callable[[str, int, int], None]

MEASURE = "nDCG@10"
FIRST_STAGE, BASE, TRAINED = "first stage", "base", "trained"
DEFAULT_MINING = MiningPlan()
_SEARCHING, _READING = 0.25, 0.35  # of the time that is left: to search, and for the base to read what is held out
_SLOWER = 2.0  # how much longer PyTorch may take for what the base has read on what serves it fastest
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
    clock: Callable[[], float] = time.monotonic,
) -> FineTuning:
    """Train a reranker into `folder` on judged queries of a database, and compare it with the one it started from.

    A fifth of the queries is held out: neither what is learned nor when training ends depends on them.

    Args:
        db: a database or a tenant's. What it finds and nobody judged relevant is what the model learns to tell apart.
        judged: queries and judgments, such as a `TestCollection` or `Topics`.
        folder: must not be there yet; a model in Hugging Face layout, with an ONNX graph beside the safetensors.
        base: a cross-encoder, by name or folder; also one that is registered here.
        plan: how to train; its seed is also that of the split and of what is drawn, and its minutes are for everything,
            kept to within a step: with too few of them there is less to learn from, or to decide by.
        mining: how lists are made of hits and judgments, and how the queries are split.
        register: the name to register it under if it beats its base: a higher mean nDCG@10, and p < 0.05.
        progress: called with the step (`searching`, `reading`, `training`, `comparing`), and how much of how much of it
            is done.
        clock: what all of them tell the time by, in seconds.

    Raises:
        InvalidInput: the folder is there, there are too few judged queries, an argument can't be used, or the time was
            up before the training began.
        UnknownModel, InvalidModel: there is no such base, it can't be trained, or the training has ruined it; the
            folder isn't written.
        ReadOnlyDatabase: it is to be registered, and the database is open to read.
        MissingExtra: what trains or measures is not installed.
    """
    for require in (load_trainer, require_ir_measures, require_scipy_stats):
        require()
    if register is not None:
        db.check_writable()  # now, and not after minutes
    limit = TimeLimit.starting(plan.minutes, clock=clock)
    spec = catalogue.ensure(db.find_reranker(base))
    if folder.exists():  # as `train` says, and before the work
        raise InvalidInput(f"{folder} is already there: give another folder, or remove it")
    parts = _split(db, judged, mining, seed=plan.seed)
    found = _searched(db, judged, parts, limit, progress)
    begun_s = limit.elapsed_s
    before = _orders(spec, {each: found[each] for each in parts.held_out}, mining.depth, limit, progress)
    compared = {each: found[each] for each in before}
    reading_s = limit.elapsed_s - begun_s
    learned = [each for each in parts.train if each in found]
    lists = training_lists(db, (found[each] for each in learned), mining, seed=plan.seed)
    trained = train(
        spec,
        lists,
        folder,
        validation=validation_lists(db, (found[each] for each in parts.validation), mining),
        plan=plan,
        limit=limit.keeping(_SLOWER * reading_s),
        on_step=lambda step: progress("training", step.step, step.steps),
    )
    after = _orders(trained.spec, compared, mining.depth, limit, progress, backend="torch")
    comparison = _compare(before, after, compared)
    queries = {"train": len(learned), "validation": len(parts.validation), "held_out": len(after)}
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


def _searched(
    db: Database, judged: Judged, parts: Split, limit: TimeLimit, progress: Progress
) -> dict[str, JudgedHits]:
    """Return the hits of all queries; where the time for it is up, of fewer of those to learn from."""
    first = {*parts.held_out, *parts.validation}
    every = [*parts.held_out, *parts.validation, *parts.train]
    part = limit.part(_SEARCHING)
    found: dict[str, JudgedHits] = {}
    for query_id, hits in find_hits(db, judged, every):
        found[query_id] = hits
        progress("searching", len(found), len(every))
        if limit.is_up():
            raise limit.too_short("the training began")
        if part.is_up() and query_id not in first:
            break
    return found


def _orders(
    spec: ModelSpec,
    found: Mapping[str, JudgedHits],
    depth: int,
    limit: TimeLimit,
    progress: Progress,
    *,
    backend: str | None = None,
) -> dict[str, tuple[str, ...]]:
    """Rerank the hits of queries; where the time is up, of fewer, but of one at least once the model is trained.

    The base, with no backend named, is run as searches run it, the trained one by PyTorch, which has just trained it.
    """
    is_base = backend is None
    part = limit.part(_READING) if is_base else limit
    orders: dict[str, tuple[str, ...]] = {}
    with CrossEncoder(spec.folder, backend=backend) as model:
        for query_id, hits in found.items():
            if orders and part.is_up() and (len(orders) >= _FEWEST_DECIDING or not is_base):
                break
            if is_base and limit.is_up():
                raise limit.too_short("the training began")
            order = reorder(np.arange(len(hits.doc_ids)), model.score(hits.query, hits.texts[:depth]))
            orders[query_id] = tuple(hits.doc_ids[at] for at in order)
            progress("reading" if is_base else "comparing", len(orders), len(found))
    return orders


def _compare(
    before: Mapping[str, tuple[str, ...]], after: Mapping[str, tuple[str, ...]], found: Mapping[str, JudgedHits]
) -> Comparison:
    """Compare the orders of the queries that both models have read."""
    runs = {
        FIRST_STAGE: {query_id: found[query_id].doc_ids for query_id in after},
        BASE: {query_id: before[query_id] for query_id in after},
        TRAINED: dict(after),
    }
    return compare(runs, {query_id: found[query_id].grades for query_id in after}, measures=[MEASURE], baseline=BASE)
