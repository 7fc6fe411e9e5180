"""How much of its teacher's ranking a student keeps: what a cascade's second stage gets to read. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rerank.cascade import standardize

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
        theirs = _best(teacher, keep)
        tau = kendalltau(student, teacher).statistic
        rows.append(
            (
                float(theirs[0] in ours),
                len(ours.intersection(theirs[:keep])) / min(keep, len(theirs)),
                0.0 if np.isnan(tau) else float(tau),  # one side is constant
            )
        )
    first_kept, recall, tau = np.mean(rows, axis=0)
    kept = float(kept_by_query(students, teachers, keep=keep).mean())
    return Agreement(kept, float(first_kept), float(recall), float(tau))


def kept_by_query(
    students: Sequence[NDArray[np.float32]], teachers: Sequence[NDArray[np.float32]], *, keep: int
) -> NDArray[np.float64]:
    """Return for each query the share of the teacher's best ten among the student's best `keep`, float64[queries]."""
    pairs = ((set(_best(ours, keep)), _best(theirs, BEST)) for ours, theirs in zip(students, teachers, strict=True))
    return np.array([len(ours.intersection(best)) / len(best) for ours, best in pairs])


def slope(teachers: Sequence[NDArray[np.float32]], firsts: Sequence[NDArray[np.float32]]) -> float:
    """Return by how much the teacher's logits rise with a deviation of the first stage's scores, 0 if they don't.

    Least squares, with a level of its own for each query.
    """
    of_first = np.concatenate([standardize(scores) for scores in firsts])
    of_teacher = np.concatenate([logits - logits.mean() for logits in teachers])
    return max(0.0, float(of_first @ of_teacher) / (float(of_first @ of_first) or 1.0))


def fitting_weight(students: Sequence[NDArray[np.float32]], offset: float) -> float:
    """Return the weight that a blend needs, to order as the student's logits and `offset` z-scores of the first do."""
    spread = float(np.mean([logits.std() for logits in students]))
    return round(spread / (spread + offset), 2) if spread + offset > 0 else 1.0


def _best(scores: NDArray[np.float32], n: int) -> list[int]:
    return [int(at) for at in np.argsort(-scores, kind="stable")[:n]]
