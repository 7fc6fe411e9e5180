"""Rerankers in a row: what each stage reads, and what becomes of the rest."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.errors import InvalidInput
from rerank import Cascade, CascadeStage, as_reranker
from rerank.cascade import reorder

TEXTS = ["one", "two words", "three words here", "now four words here"]


def by_length(_query: str, texts: list[str]) -> list[float]:
    """Prefer long texts: the cheap model."""
    return [float(len(text)) for text in texts]


def by_first_letter(_query: str, texts: list[str]) -> list[float]:
    """Prefer what comes late in the alphabet: the dear model."""
    return [float(ord(text[0])) for text in texts]


def test_dear_stage_reads_only_the_best_of_the_cheap_one() -> None:
    """The cheap model prunes, the dear one decides among what is left, and the pruned follow in the cheap order."""
    asked: list[list[str]] = []

    def dear(query: str, texts: list[str]) -> list[float]:
        asked.append(texts)
        return by_first_letter(query, texts)

    with pytest.warns(DeprecationWarning, match="give search"):
        cascade = Cascade(CascadeStage(as_reranker(by_length)), CascadeStage(as_reranker(dear), 2))
    ranked = cascade.rank("q", TEXTS)
    assert asked == [[TEXTS[3], TEXTS[2]]]
    assert [hit.index for hit in ranked] == [2, 3, 1, 0]
    assert ranked[0].score == ord("t")
    assert ranked[2].score == len(TEXTS[1])
    assert [hit.index for hit in cascade.rank("q", TEXTS, 1)] == [2]


@pytest.mark.parametrize("depths", [(), (2, None), (2, 3)])
def test_cascade_is_refused_when_a_stage_reads_more_than_the_one_before(depths: tuple[int | None, ...]) -> None:
    """Stages without falling depths are no cascade."""
    with pytest.warns(DeprecationWarning, match="give search"), pytest.raises(InvalidInput, match="falling depth"):
        Cascade(*(CascadeStage(as_reranker(by_length), depth) for depth in depths))


@given(st.lists(st.one_of(st.just(float("nan")), st.integers(-9, 9).map(float)), max_size=12), st.integers(0, 5))
def test_reordering_keeps_everything_and_moves_only_what_has_a_score(scores: list[float], rest: int) -> None:
    """S1: any head of scores gives a permutation: the scored fall, those without follow as they came, then the rest."""
    order = np.random.default_rng(len(scores)).permutation(len(scores) + rest)
    reordered = reorder(order, np.array(scores, dtype=np.float32))
    assert sorted(reordered.tolist()) == sorted(order.tolist())
    assert reordered[len(scores) :].tolist() == order[len(scores) :].tolist()
    given_to = dict(zip(order.tolist(), scores, strict=False))
    seen = [given_to[at] for at in reordered[: len(scores)].tolist() if not np.isnan(given_to[at])]
    assert seen == sorted(seen, reverse=True)
    without = [at for at in order[: len(scores)].tolist() if np.isnan(given_to[at])]
    assert reordered[len(seen) : len(scores)].tolist() == without
