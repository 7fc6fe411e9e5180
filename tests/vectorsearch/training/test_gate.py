"""The gates by which a trained or a distilled reranker is accepted, with synthetic scores.

`tests/benchmarks/train_gate.py` tries them with a real collection, and on queries that they never saw.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from vectorsearch.evaluation.comparing import comparison
from vectorsearch.evaluation.comparing.significance import ALPHA
from vectorsearch.training.distillation import Distillation
from vectorsearch.training.fine_tuning import BASE, FIRST_STAGE, MEASURE, TRAINED, FineTuning

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

UNSEEN: Any = None  # what a gate has no use for
DOCUMENTS = [f"d{i}" for i in range(20)]
# So many of n models that are no better may be accepted at the stated level, or else chance has one in a thousand.
AT_MOST = {400: 35, 120: 15}


def accepts_student(gains: NDArray[np.float64]) -> bool:
    """Return whether the gate of distillation lets pass what keeps so much more of the teacher's best, by query."""
    return Distillation(UNSEEN, comparison.tested({"blended": gains})["blended"], None).is_better


def accepts_reranker(orders: Mapping[str, Mapping[str, list[str]]], qrels: Mapping[str, Mapping[str, int]]) -> bool:
    """Return whether the gate of fine-tuning lets these orders pass."""
    found = comparison.compare(orders, qrels, measures=[MEASURE], baseline=BASE)
    return FineTuning(UNSEEN, found, {}, 0, None).beats_base


def orders_of(rng: np.random.Generator, qrels: Mapping[str, Mapping[str, int]], quality: float) -> dict[str, list[str]]:
    """Return an order for each query, in which what is relevant has the higher scores by `quality` deviations."""
    found = {}
    for query_id, grades in qrels.items():
        scores = rng.normal(size=len(DOCUMENTS)) + quality * np.array([grades.get(each, 0) for each in DOCUMENTS])
        found[query_id] = [DOCUMENTS[at] for at in np.argsort(-scores)]
    return found


def judgments(rng: np.random.Generator, n: int) -> dict[str, dict[str, int]]:
    """Return two relevant documents for each of n queries."""
    return {f"q{i}": {str(each): 1 for each in rng.choice(DOCUMENTS, 2, replace=False)} for i in range(n)}


@pytest.mark.parametrize(("n", "trials", "scale"), [(8, 400, 0.1), (13, 400, 1.0), (40, 120, 0.2)])
def test_few_students_are_accepted_when_none_is_better(n: int, trials: int, scale: float) -> None:
    """Of many that differ by chance alone, no more pass than the stated level; gains in tenths, many of them equal."""
    rng = np.random.default_rng(n)
    accepted = sum(accepts_student(np.round(rng.normal(scale=scale, size=n), 1)) for _ in range(trials))
    assert accepted <= AT_MOST[trials]
    assert ALPHA * trials < AT_MOST[trials]


def test_students_are_accepted_when_they_are_better() -> None:
    """A gain of half a deviation is seen on 40 queries nearly always; the same loss never passes."""
    rng = np.random.default_rng(5)
    gains = [np.round(rng.normal(loc=0.06, scale=0.1, size=40), 1) for _ in range(50)]
    assert sum(map(accepts_student, gains)) >= 45
    assert not any(accepts_student(-each) for each in gains)


@pytest.mark.parametrize("gains", [[0.1], [0.1] * 5, [0.0] * 40, [-0.1] * 40, [0.1] * 5 + [0.0] * 100])
def test_nothing_is_accepted_when_too_little_can_be_seen(gains: list[float]) -> None:
    """Five queries can't decide, however equal they are, nor can those without a difference."""
    assert not accepts_student(np.array(gains))


def test_few_rerankers_are_accepted_when_none_is_better() -> None:
    """Two models of equal quality, compared by the measure that decides: no more pass than the stated level."""
    rng = np.random.default_rng(1)
    accepted = 0
    for _ in range(120):
        qrels = judgments(rng, 12)
        orders = {name: orders_of(rng, qrels, 1.0) for name in (FIRST_STAGE, BASE, TRAINED)}
        accepted += accepts_reranker(orders, qrels)
    assert accepted <= AT_MOST[120]


def test_a_reranker_is_accepted_when_it_is_better_and_refused_when_judgments_are_shuffled() -> None:
    """The same orders pass by the judgments that they follow, and not by those of other queries."""
    rng = np.random.default_rng(2)
    qrels = judgments(rng, 40)
    orders = {name: orders_of(rng, qrels, q) for name, q in ((FIRST_STAGE, 0.5), (BASE, 1.0), (TRAINED, 2.5))}
    assert accepts_reranker(orders, qrels)
    ids = list(qrels)
    assert not accepts_reranker(orders, {ids[at]: qrels[ids[at - 1]] for at in range(len(ids))})
    assert not accepts_reranker({**orders, BASE: orders[TRAINED], TRAINED: orders[BASE]}, qrels)
