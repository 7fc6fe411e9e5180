"""Training a reranker on a database's judged queries: a real training of a very small model, and what is registered."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import vectorsearch as vs
from backends.catalogue import catalogue
from backends.errors import InvalidInput, InvalidModel
from rerank.training.time_limit import TimeLimit
from rerank.training.train import train
from rerank.training.train_plan import ScoredList, TrainingPlan
from vectorsearch.collection.storage.errors import ReadOnlyDatabase
from vectorsearch.evaluation.collecting.topics import Topics
from vectorsearch.training.fine_tuning import BASE, FIRST_STAGE, MEASURE, TRAINED, train_reranker
from vectorsearch.training.hard_negatives import MiningPlan

from ..cli.topic_model import JUDGED, TOPICS, documents, write_base

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

torch = pytest.importorskip("torch")
pytest.importorskip("datasets")

PLAN = TrainingPlan(epochs=10, learning_rate=5e-3, lists_per_step=4, max_length=24, frozen_layers=0)
MINING = MiningPlan(held_out=0.4)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_base(tmp_path_factory.mktemp("base"))


@pytest.fixture
def db(tmp_path: Path) -> Iterator[vs.Database]:
    with vs.open(tmp_path / "db", embed=None) as database:
        database.add(documents())
        yield database


def test_reranker_is_registered_when_it_beats_its_base(db: vs.Database, tmp_path: Path, base: Path) -> None:
    """A model that has learned what answers a query is written in both forms, registered, and orders searches."""
    steps: list[tuple[str, int, int]] = []
    tenant = db.tenant("acme")
    tenant.add(documents())
    made = train_reranker(
        tenant,
        JUDGED,
        tmp_path / "out",
        base=base,
        plan=PLAN,
        mining=MINING,
        register="ours",
        progress=lambda *at: steps.append(at),
    )
    means = {name: each[MEASURE].mean for name, each in made.comparison.figures.items()}
    assert means[TRAINED] > 0.9 > means[BASE], made.verdict
    assert means[TRAINED] > means[FIRST_STAGE]
    assert made.gain.p < 0.05
    assert made.queries == {"train": 20, "validation": 4, "held_out": 16}
    assert made.lists == 20
    assert made.verdict.startswith("registered as 'ours': nDCG@10 ")
    assert [model.name for model in tenant.registered_models()] == ["ours"]
    assert db.registered_models() == ()
    assert {step for step, done, total in steps if done == total} >= {"searching", "comparing"}
    assert made.trained.max_difference < 1e-4
    assert catalogue.resolve(made.trained.spec.folder).max_length == PLAN.max_length
    query_id = next(iter(made.comparison.queries))
    hits = tenant.search(JUDGED.queries[query_id], rerank="ours", k=5)
    assert hits[0].id in JUDGED.qrels[query_id]
    assert not hits.degraded


def test_reranker_is_not_registered_when_it_learned_nothing(db: vs.Database, tmp_path: Path, base: Path) -> None:
    """A model that is no better than its base is written, not registered, and the verdict gives figures and p."""
    plan = TrainingPlan(epochs=0.3, learning_rate=1e-12, max_length=24)
    made = train_reranker(db, JUDGED, tmp_path / "out", base=base, plan=plan, register="ours")
    assert made.registered is None
    assert made.verdict.startswith("not registered: nDCG@10 ")
    assert made.verdict.endswith("on 8 queries held out, p 1.000")
    assert db.registered_models() == ()
    assert catalogue.resolve(tmp_path / "out").task == "cross-encode"


def test_nothing_is_trained_when_it_could_not_be_decided_or_kept(db: vs.Database, tmp_path: Path, base: Path) -> None:
    """Too few judged queries, a folder that is there, and a database that can't be written to are told at once."""
    few = Topics(dict(list(JUDGED.queries.items())[:10]), JUDGED.qrels)
    with pytest.raises(InvalidInput, match="2 to decide by"):
        train_reranker(db, few, tmp_path / "out", base=base, plan=PLAN)
    elsewhere = Topics(JUDGED.queries, {query_id: {"gone": 1} for query_id in JUDGED.queries})
    with pytest.raises(InvalidInput, match="0 of 40 queries are answered"):
        train_reranker(db, elsewhere, tmp_path / "out", base=base, plan=PLAN)
    with pytest.raises(InvalidInput, match="already there"):
        train_reranker(db, JUDGED, base, base=base, plan=PLAN)
    db.refresh()
    with (
        vs.open(tmp_path / "db", read_only=True) as reader,
        pytest.raises(ReadOnlyDatabase, match="open read-only"),
    ):
        train_reranker(reader, JUDGED, tmp_path / "out", base=base, plan=PLAN, register="ours")
    assert not (tmp_path / "out").exists()


def lists_of(n: int) -> list[ScoredList]:
    return [ScoredList(topic, (f"{topic} right", f"{topic} word1", "word2"), (5.0, -5.0, -5.0)) for topic in TOPICS[:n]]


def test_same_weights_come_out_when_the_seed_is_the_same(tmp_path: Path, base: Path) -> None:
    """Equal seeds give equal files, whatever was drawn before; another seed gives others; nobody's draws are moved."""
    weights = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        torch.manual_seed(len(weights))
        before = (random.getstate(), torch.random.get_rng_state().tolist())
        train(catalogue.resolve(base), lists_of(16), tmp_path / name, plan=TrainingPlan(max_length=24, seed=seed))
        assert (random.getstate(), torch.random.get_rng_state().tolist()) == before
        weights.append((tmp_path / name / "model.safetensors").read_bytes())
    assert weights[0] == weights[1] != weights[2]


def test_frozen_layers_stay_as_they_are(tmp_path: Path, base: Path) -> None:
    """Embeddings and the lowest layers keep their weights, the others don't."""
    from safetensors.numpy import load_file  # noqa: PLC0415 -- only this test reads weights

    before = load_file(base / "model.safetensors")
    made = train(catalogue.resolve(base), lists_of(8), tmp_path / "out", plan=replace(PLAN, frozen_layers=1))
    after = load_file(made.spec.folder / "model.safetensors")
    changed = {name for name in before if not np.array_equal(before[name], after[name])}
    assert not any("embeddings" in name or "layer.0." in name for name in changed)
    assert any("layer.1." in name for name in changed)
    assert "classifier.weight" in changed


def test_training_ends_early_when_it_finds_no_gain_or_its_time_is_up(tmp_path: Path, base: Path) -> None:
    """T2: the best weights are kept after two looks without a better one; `minutes` ends it at the next step."""
    spec, lists = catalogue.resolve(base), lists_of(24)
    plan = TrainingPlan(epochs=10, learning_rate=1e-12, max_length=24, check_share=0.1)
    idle = train(spec, lists, tmp_path / "idle", validation=lists_of(2), plan=plan).fit
    assert idle.steps == 9 < idle.planned == 30
    assert len(set(idle.validation)) == 1
    now = [0.0]

    def step(_: object) -> None:
        now[0] += 10.0

    limit = TimeLimit.starting(0.5, clock=lambda: now[0])
    late = train(spec, lists, tmp_path / "late", plan=replace(plan, learning_rate=1e-4), limit=limit, on_step=step).fit
    assert (late.steps, late.timed_out) == (4, True)  # the callback is the last of a step: seen by the next one


def test_no_model_is_written_when_its_time_was_up_before(tmp_path: Path, base: Path) -> None:
    """T2: not a step is taken, and the error says how long the work had and how long it took."""
    limit = TimeLimit.starting(0.5, clock=iter([0.0, *[31.0] * 100]).__next__)
    with pytest.raises(InvalidInput, match="before the training began, after 31 s of 30"):
        train(catalogue.resolve(base), lists_of(8), tmp_path / "out", plan=PLAN, limit=limit)
    assert not (tmp_path / "out").exists()


def test_no_model_is_written_when_the_training_has_ruined_it(tmp_path: Path, base: Path) -> None:
    """T1: one whose scores are no numbers is refused; equal ones are in test_time_limit.py."""
    with pytest.raises(InvalidModel, match="the training has ruined the model"):
        train(catalogue.resolve(base), lists_of(8), tmp_path / "out", plan=replace(PLAN, learning_rate=1e30))
    assert not (tmp_path / "out").exists()


def test_minutes_are_kept_to_within_a_step_when_a_reranker_is_trained(
    db: vs.Database, tmp_path: Path, base: Path
) -> None:
    """T2: searching, reading, training and comparing look at one clock; what is reached by then is compared."""
    now, steps, step_s, n_steps = [0.0], [], 7.0, 80

    def progress(step: str, done: int, total: int) -> None:
        now[0] += step_s
        steps.append((step, done, total))

    made = train_reranker(
        db,
        JUDGED,
        tmp_path / "out",
        base=base,
        plan=replace(PLAN, epochs=100, minutes=n_steps * step_s / 60),
        mining=replace(MINING, held_out=0.2),
        progress=progress,
        clock=lambda: now[0],
    )
    assert (n_steps - 10) * step_s < now[0] <= (n_steps + 1) * step_s
    assert made.trained.fit.timed_out
    assert [step for step, done, total in steps if done == total] == ["reading", "comparing"]
    assert made.queries["train"] < 28


def test_nothing_is_trained_when_searching_takes_the_time(db: vs.Database, tmp_path: Path, base: Path) -> None:
    """T2: the error comes within a step of the end, and no folder is left."""
    now = [0.0]

    def progress(*_: object) -> None:
        now[0] += 10.0

    with pytest.raises(InvalidInput, match="the time was up before the training began"):
        train_reranker(
            db,
            JUDGED,
            tmp_path / "out",
            base=base,
            plan=replace(PLAN, minutes=0.5),
            progress=progress,
            clock=lambda: now[0],
        )
    assert now[0] <= 40.0
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("options", [{"epochs": 0}, {"minutes": 0}, {"seed": -1}, {"lists_per_step": 0}])
def test_plans_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    """A plan says at once which of its values can't be used."""
    with pytest.raises(InvalidInput, match=next(iter(options))):
        TrainingPlan(**options)
