"""Choose among settings on some queries, and see what the choice is worth on others. Pure.

The best of many settings looks better on the queries that it was chosen by than it is: it fits their chance as well.
So the queries are parted into folds, the choice is made on all folds but one and measured on that one, and the values
on the held-out queries are what choosing in this way is worth (Stone, "Cross-Validatory Choice and Assessment of
Statistical Predictions", Journal of the Royal Statistical Society B 36, 1974). How the queries happen to be parted
changes them, so that is done several times, and each query has the mean of its values (Kim, "Estimating classification
error rate: repeated cross-validation, repeated hold-out and bootstrap", Computational Statistics & Data Analysis 53,
2009).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from backends.errors import InvalidInput

if TYPE_CHECKING:
    from numpy.typing import NDArray

TOLERANCE = 0.001  # means that are as near to each other are equally good: the cheaper setting is taken


@dataclass(frozen=True, slots=True)
class CrossValidation:
    """The setting that all queries choose, and what such a choice is worth.

    `by_cut` is float64[cuts, queries]: each query's value under the setting that the other folds of a cut chose.
    `by_fold` are those settings' numbers, cut by cut.
    """

    chosen: int
    by_cut: NDArray[np.float64]
    by_fold: tuple[int, ...]

    @property
    def held_out(self) -> NDArray[np.float64]:
        """Return each query's mean over the cuts, float64[queries]."""
        means: NDArray[np.float64] = self.by_cut.mean(axis=0)
        return means


def cross_validate(
    values: NDArray[np.float64], costs: NDArray[np.float64], *, folds: int, cuts: int, seed: int
) -> CrossValidation:
    """Choose a setting on all queries, and measure the choosing on held-out ones.

    Args:
        values: float64[settings, queries], each query's value under each setting.
        costs: float64[settings]; of settings that are equally good the cheapest is chosen, and of those the first.
        folds: in how many parts the queries are cut, at random.
        cuts: how many times they are.
        seed: of the cutting.

    Raises:
        InvalidInput: there are fewer than 2 folds, or fewer queries than folds.
    """
    n = values.shape[1]
    if not 2 <= folds <= n:  # noqa: PLR2004 -- one part to choose on, one to measure
        raise InvalidInput(f"{folds} folds of {n} queries: give at least 2, and no more than there are queries")
    rng = np.random.default_rng(seed)
    by_cut = np.empty((cuts, n))
    by_fold = []
    for held_out in by_cut:
        fold_of = rng.permutation(np.arange(n) % folds)
        for fold in range(folds):
            is_held_out = fold_of == fold
            chosen = choose(values[:, ~is_held_out], costs)
            held_out[is_held_out] = values[chosen, is_held_out]
            by_fold.append(chosen)
    return CrossValidation(choose(values, costs), by_cut, tuple(by_fold))


def choose(values: NDArray[np.float64], costs: NDArray[np.float64]) -> int:
    """Return the number of the setting with the highest mean, or of a cheaper one that is as good to 0.001."""
    means = values.mean(axis=1)
    good = np.flatnonzero(means >= means.max() - TOLERANCE)
    cheapest = good[costs[good] == costs[good].min()]
    return int(cheapest[np.argmax(means[cheapest])])
