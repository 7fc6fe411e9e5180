"""Reciprocal rank fusion, as Cormack, Clarke and Büttcher define it."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vectorsearch.query.fusion import fuse_rrf
from vectorsearch.types import Candidates

rankings = st.lists(st.integers(0, 40), max_size=25)


def ranked(*rows: int) -> Candidates:
    """Give rows as a list, best first."""
    return Candidates(np.array(rows, dtype=np.int64), np.linspace(1.0, 0.5, len(rows), dtype=np.float32))


def as_dict(fused: Candidates) -> dict[int, float]:
    """Give the fused score of each row."""
    return dict(zip(fused.rows.tolist(), fused.scores.tolist(), strict=True))


def test_scores_are_the_papers_when_two_lists_are_fused() -> None:
    """A row's score is the sum of 1 / (60 + rank) over the lists that hold it."""
    scores = as_dict(fuse_rrf([ranked(7, 3), ranked(3, 9)]))
    assert np.isclose(scores[3], 1 / 62 + 1 / 61)
    assert np.isclose(scores[7], 1 / 61)
    assert np.isclose(scores[9], 1 / 62)


def test_rows_tie_when_the_lists_mirror_each_other() -> None:
    """S24: rrf([x, y], [y, x]) is a tie, ordered by row."""
    fused = fuse_rrf([ranked(5, 2), ranked(2, 5)])
    assert fused.rows.tolist() == [2, 5]
    assert fused.scores[0] == fused.scores[1]


def test_row_counts_once_at_its_best_rank_when_it_repeats() -> None:
    """S23: the same row twice in one list is credited once, at its best rank."""
    repeated = as_dict(fuse_rrf([ranked(4, 4, 8)]))
    assert repeated == as_dict(fuse_rrf([ranked(4, 8)]))


def test_nothing_is_credited_when_a_list_is_empty() -> None:
    """S5: a list without hits gives no row any credit."""
    assert as_dict(fuse_rrf([ranked(1, 2), ranked()])) == as_dict(fuse_rrf([ranked(1, 2)]))
    assert len(fuse_rrf([ranked(), ranked()]).rows) == 0


def test_list_is_ignored_when_its_weight_is_zero() -> None:
    """A weight of zero leaves the other list's order."""
    assert fuse_rrf([ranked(3, 1), ranked(9, 8)], weights=[1.0, 0.0]).rows.tolist()[:2] == [3, 1]


@given(rankings, rankings)
def test_order_of_lists_does_not_matter(first: list[int], second: list[int]) -> None:
    """Fusion is symmetric in its lists."""
    one, other = fuse_rrf([ranked(*first), ranked(*second)]), fuse_rrf([ranked(*second), ranked(*first)])
    assert one.rows.tolist() == other.rows.tolist()
    assert one.scores.tolist() == other.scores.tolist()


@given(rankings, rankings)
def test_scores_fall_and_rows_are_unique(first: list[int], second: list[int]) -> None:
    """The result is best first, holds every row of either list, and each once."""
    fused = fuse_rrf([ranked(*first), ranked(*second)])
    assert np.all(np.diff(fused.scores) <= 0)
    assert sorted(fused.rows.tolist()) == sorted({*first, *second})


@given(st.lists(st.integers(0, 40), min_size=2, max_size=25, unique=True), rankings, st.data())
def test_score_never_falls_when_a_row_moves_up(first: list[int], second: list[int], data: st.DataObject) -> None:
    """Fusion is monotonic: a better rank in one list never lowers the fused score."""
    at = data.draw(st.integers(1, len(first) - 1))
    raised = [*first[: at - 1], first[at], first[at - 1], *first[at + 1 :]]
    before = as_dict(fuse_rrf([ranked(*first), ranked(*second)]))
    after = as_dict(fuse_rrf([ranked(*raised), ranked(*second)]))
    assert after[first[at]] >= before[first[at]]
