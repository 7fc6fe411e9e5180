"""Fusion, as the papers define it, and what must hold whichever way a list's evidence is read."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vectorsearch.query.execution.fusion import Fusion, fuse, minmax, zscore
from vectorsearch.types import Candidates

ALL = pytest.mark.parametrize("fusion", get_args(Fusion))
# Quarters are exact in float32, so that what is equal in theory is equal.
lists = st.dictionaries(st.integers(0, 40), st.integers(-200, 200).map(lambda n: n / 4), max_size=25).map(
    lambda scores: scored(*sorted(scores.items(), key=lambda item: (-item[1], item[0])))
)


def scored(*pairs: tuple[int, float]) -> Candidates:
    """Give (row, score) pairs as a list, best first."""
    return Candidates(
        np.array([row for row, _ in pairs], dtype=np.int64), np.array([score for _, score in pairs], dtype=np.float32)
    )


def ranked(*rows: int) -> Candidates:
    """Give rows as a list, best first, with evenly falling scores."""
    return scored(*zip(rows, np.linspace(1.0, 0.5, len(rows)).tolist(), strict=True))


def as_dict(fused: Candidates) -> dict[int, float]:
    """Give the fused score of each row."""
    return dict(zip(fused.rows.tolist(), fused.scores.tolist(), strict=True))


def test_rrf_scores_are_the_papers_when_two_lists_are_fused() -> None:
    """A row's score is the sum of 1 / (60 + rank) over the lists that hold it."""
    scores = as_dict(fuse([ranked(7, 3), ranked(3, 9)]))
    assert np.isclose(scores[3], 1 / 62 + 1 / 61)
    assert np.isclose(scores[7], 1 / 61)
    assert np.isclose(scores[9], 1 / 62)


def test_minmax_scores_are_the_lists_share_of_its_span() -> None:
    """The best of a list counts 1, one in the middle a half, the worst next to nothing."""
    scores = as_dict(fuse([scored((1, 12.0), (2, 8.0), (3, 4.0))], "minmax"))
    assert scores == pytest.approx({1: 1.0, 2: 0.5, 3: 0.001})


def test_zscores_are_moved_to_zero_and_one() -> None:
    """Mean ± 3 deviations become 0 and 1, so the mean is a half, and what is further out is cut."""
    scores = as_dict(fuse([scored((1, 6.0), (2, 4.0), (3, 2.0))], "zscore"))
    deviation = np.std([6.0, 4.0, 2.0])
    assert scores == pytest.approx({1: 0.5 + 2 / deviation / 6, 2: 0.5, 3: 0.5 - 2 / deviation / 6})
    assert zscore(np.array([100.0] + [0.0] * 99))[0] == 1.0


@ALL
def test_rows_tie_when_the_lists_mirror_each_other(fusion: Fusion) -> None:
    """S24: fusing [x, y] and [y, x] is a tie, ordered by row."""
    fused = fuse([ranked(5, 2), ranked(2, 5)], fusion)
    assert fused.rows.tolist() == [2, 5]
    assert fused.scores[0] == fused.scores[1]


@ALL
def test_row_counts_once_at_its_best_place_when_it_repeats(fusion: Fusion) -> None:
    """S23: the same row twice in one list is credited once, at its best rank or score; in two lists, once in each."""
    repeated = fuse([scored((4, 3.0), (4, 2.0), (8, 1.0))], fusion)
    assert as_dict(repeated) == as_dict(fuse([scored((4, 3.0), (8, 1.0))], fusion))
    alone, both = fuse([ranked(4, 8)], fusion), fuse([ranked(4, 8), ranked(4, 9)], fusion)
    assert as_dict(both)[4] == pytest.approx(2 * as_dict(alone)[4])


@ALL
def test_nothing_is_credited_when_a_list_is_empty(fusion: Fusion) -> None:
    """S5: a list without hits gives no row any credit."""
    assert as_dict(fuse([ranked(1, 2), ranked()], fusion)) == as_dict(fuse([ranked(1, 2)], fusion))
    assert len(fuse([ranked(), ranked()], fusion).rows) == 0
    assert len(fuse([], fusion).rows) == 0


@ALL
@pytest.mark.parametrize("score", [0.0, 17.5, -3.0])
def test_single_hit_keeps_a_contribution(fusion: Fusion, score: float) -> None:
    """S29: a list of one hit, or of equal hits, gives each more than nothing, and never NaN."""
    assert 0 < as_dict(fuse([scored((1, score))], fusion))[1] <= 1
    equal = as_dict(fuse([scored((1, score), (2, score))], fusion))
    assert all(0 < value <= 1 for value in equal.values())


def test_equal_scores_count_alike_when_their_mean_is_rounded() -> None:
    """Numbers whose mean isn't exact in binary still have no deviation when they are all equal."""
    assert zscore(np.full(10, 0.1)).tolist() == [0.5] * 10
    assert minmax(np.full(3, 0.1)).tolist() == [1.0] * 3


@ALL
def test_list_is_ignored_when_its_weight_is_zero(fusion: Fusion) -> None:
    """A weight of zero leaves the other list's order."""
    assert fuse([ranked(3, 1), ranked(9, 8)], fusion, weights=[1.0, 0.0]).rows.tolist()[:2] == [3, 1]


@ALL
def test_weight_scales_what_a_list_says(fusion: Fusion) -> None:
    """Twice the weight is twice the contribution."""
    once, twice = (as_dict(fuse([ranked(3, 1)], fusion, weights=[weight])) for weight in (1.0, 2.0))
    assert twice == pytest.approx({row: 2 * score for row, score in once.items()})


@ALL
@given(first=lists, second=lists, third=lists)
def test_order_of_lists_does_not_matter(
    fusion: Fusion, first: Candidates, second: Candidates, third: Candidates
) -> None:
    """Fusion is symmetric in its lists."""
    one, other = fuse([first, second, third], fusion), fuse([third, first, second], fusion)
    assert one.rows.tolist() == other.rows.tolist()
    assert one.scores.tolist() == other.scores.tolist()


@ALL
@given(first=lists, second=lists)
def test_scores_fall_and_rows_are_unique(fusion: Fusion, first: Candidates, second: Candidates) -> None:
    """The result is best first, holds every row of either list once, and gives each a positive, finite score."""
    fused = fuse([first, second], fusion)
    assert np.all(np.diff(fused.scores) <= 0)
    assert sorted(fused.rows.tolist()) == sorted({*first.rows.tolist(), *second.rows.tolist()})
    assert np.all(fused.scores > 0)
    assert np.isfinite(fused.scores).all()


@ALL
@given(first=lists, second=lists)
def test_absent_evidence_is_zero(fusion: Fusion, first: Candidates, second: Candidates) -> None:
    """A row of one list alone has just that list's contribution; one more list never takes anything away."""
    alone, fused = as_dict(fuse([first], fusion)), as_dict(fuse([first, second], fusion))
    in_second = set(second.rows.tolist())
    for row, score in alone.items():
        assert fused[row] > score if row in in_second else fused[row] == score


@ALL
@given(base=lists.filter(lambda found: len(found.rows) > 1), second=lists, data=st.data())
def test_score_never_falls_when_a_row_rises(
    fusion: Fusion, base: Candidates, second: Candidates, data: st.DataObject
) -> None:
    """Fusion is monotonic: a better score, and so a better rank, in one list never lowers the row's fused score."""
    scores = as_dict(base)
    row = data.draw(st.sampled_from(sorted(scores)))
    scores[row] += data.draw(st.integers(1, 400)) / 4
    raised = scored(*sorted(scores.items(), key=lambda item: (-item[1], item[0])))
    before, after = as_dict(fuse([base, second], fusion)), as_dict(fuse([raised, second], fusion))
    assert after[row] >= before[row] - 1e-6
