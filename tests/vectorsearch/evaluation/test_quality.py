"""Quality on real collections, against the reference figures: what no unit test sees, such as a broken tokenizer."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import vectorsearch as vs
from vectorsearch import config
from vectorsearch.evaluation.collecting.collections import read_collection
from vectorsearch.evaluation.collecting.topics import Topics
from vectorsearch.evaluation.experiment import Experiment
from vectorsearch.evaluation.systems import System

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vectorsearch.evaluation.collecting.collections import TestCollection

pytestmark = [pytest.mark.collections]

N_QUERIES = 20
N_OTHERS = 80


@pytest.fixture(scope="module")
def scifact() -> TestCollection:
    """Give SciFact, where the test collections are."""
    folder = os.environ.get("VECTORSEARCH_COLLECTIONS")
    if not folder:
        pytest.skip("VECTORSEARCH_COLLECTIONS is not set: it names the folder that holds scifact/")
    return read_collection(Path(folder) / "scifact")


@pytest.fixture(scope="module")
def sample(scifact: TestCollection) -> tuple[list[dict[str, object]], Topics]:
    """Give the first queries, with the documents judged for them and a seeded sample of others."""
    topics = Topics.first(scifact, N_QUERIES)
    judged = {doc_id for grades in topics.qrels.values() for doc_id in grades}
    documents = list(scifact.documents())
    others = [document for document in documents if document["id"] not in judged]
    chosen = [document for document in documents if document["id"] in judged]
    return chosen + random.Random(7).sample(others, N_OTHERS), topics  # noqa: S311 -- a sample, not a secret


@pytest.fixture(scope="module")
def db(sample: tuple[list[dict[str, object]], Topics]) -> Iterator[vs.Database]:
    """Give a database of the sample under the default models."""
    with vs.open() as database:
        database.add(sample[0])
        yield database


def ndcg(db: vs.Database, topics: Topics, system: System) -> float:
    """Measure one system."""
    return Experiment([system], db=db, judged=topics, cache=False).run()[system.name].metrics["nDCG@10"]


def test_lexical_quality_is_the_references_on_all_of_scifact(scifact: TestCollection) -> None:
    """BM25 with Snowball stems reaches 0.67 nDCG@10 on SciFact's 300 queries (bm25s: 0.679; unstemmed: 0.660)."""
    with vs.open(embed=None) as db:
        db.add(scifact.documents())
        assert ndcg(db, Topics.first(scifact, None), System(mode="lexical")) >= 0.67


@pytest.mark.models
def test_dense_quality_is_high_on_a_small_pool(db: vs.Database, sample: tuple[list[dict[str, object]], Topics]) -> None:
    """Among a hundred documents the embedder puts the relevant one first for nearly every query (measured: 1.0)."""
    assert ndcg(db, sample[1], System(mode="dense")) >= 0.95


@pytest.mark.models
def test_hybrid_and_rerank_find_what_is_relevant(
    db: vs.Database, sample: tuple[list[dict[str, object]], Topics]
) -> None:
    """Each stage of the default pipeline keeps the relevant documents on top of a small pool."""
    topics = Topics.first(sample[1], 10)
    assert ndcg(db, topics, System(mode="hybrid")) >= 0.85
    reranked = System(mode="hybrid", rerank=config.DEFAULT_RERANKER, rerank_depth=10)
    assert ndcg(db, topics, reranked) >= 0.8
