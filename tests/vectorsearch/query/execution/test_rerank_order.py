"""Where reranked, unscored and unreranked hits go."""

from __future__ import annotations

import numpy as np

from rerank.cascade import reorder


def order(*logits: float, n: int | None = None) -> list[int]:
    """Give the order of n hits, the first of which have these logits."""
    return reorder(np.arange(n or len(logits)), np.array(logits, dtype=np.float32)).tolist()


def test_best_logit_comes_first() -> None:
    """Reranked hits are sorted by logit."""
    assert order(0.1, 2.0, -3.0) == [1, 0, 2]


def test_fused_order_is_kept_when_logits_tie() -> None:
    """Equal logits keep the first stage's order."""
    assert order(1.0, 1.0, 1.0) == [0, 1, 2]


def test_hits_follow_in_fused_order_when_past_the_depth() -> None:
    """Hits that the reranker did not read follow those that it did, in fused order."""
    assert order(0.0, 5.0, n=5) == [1, 0, 2, 3, 4]


def test_hit_comes_after_the_scored_ones_when_its_score_is_missing() -> None:
    """S1: those without a score (NaN) follow all that have one, in fused order; a NaN is never first for that."""
    assert order(0.0, float("nan"), 3.0, 1.0) == [2, 3, 0, 1]
    assert order(float("nan"), float("nan"), -9.0, n=4) == [2, 0, 1, 3]


def test_nothing_moves_when_all_scores_are_missing() -> None:
    """All NaN is the fused order."""
    assert order(float("nan"), float("nan")) == [0, 1]
