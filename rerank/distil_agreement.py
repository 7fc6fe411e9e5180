"""How much of its teacher's ranking a student keeps: what a cascade's second stage gets to read. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

BEST = 10  # hits that are usually shown: what a cascade should not lose


@dataclass(frozen=True, slots=True)
class Agreement:
    """Means over queries of how far a first stage agrees with the teacher, who reads the best `keep` of it.

    `kept` is the share of the teacher's best ten that are among them, `first_kept` how often its first one is,
    `recall` the share of the teacher's best `keep`; `tau` is Kendall's, over all candidates.
    """

    kept: float
    first_kept: float
    recall: float
    tau: float


def agreement(
    students: Sequence[NDArray[np.float32]], teachers: Sequence[NDArray[np.float32]], *, keep: int
) -> Agreement:
    """Compare scores float32[n] of the same candidates, query by query; equal scores rank in the candidates' order."""
    from scipy.stats import kendalltau  # noqa: PLC0415  (heavy: only where a model is trained)

    rows = []
    for student, teacher in zip(students, teachers, strict=True):
        ours = set(_best(student, keep))
        theirs = _best(teacher, max(BEST, keep))
        tau = kendalltau(student, teacher).statistic
        rows.append(
            (
                len(ours.intersection(theirs[:BEST])) / min(BEST, len(theirs)),
                float(theirs[0] in ours),
                len(ours.intersection(theirs[:keep])) / min(keep, len(theirs)),
                0.0 if np.isnan(tau) else float(tau),  # one side is constant
            )
        )
    kept, first_kept, recall, tau = np.mean(rows, axis=0)
    return Agreement(float(kept), float(first_kept), float(recall), float(tau))


def blend(student: NDArray[np.float32], first: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the sum of two scores float32[n] as z-scores: what a search with `blend=0.5` orders by."""
    return np.asarray(sum((each - each.mean()) / (each.std() or 1.0) for each in (student, first)), np.float32)


def _best(scores: NDArray[np.float32], n: int) -> list[int]:
    return [int(at) for at in np.argsort(-scores, kind="stable")[:n]]
