"""What a model computes for a few fixed texts: two instances that agree on these compute the same space."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Of about equal length, so that a graph that quantises over its whole batch sees little padding; two are about the
# question and two are not, so that a cross-encoder's logits differ in sign.
QUESTION = "how do I read a file line by line"
TEXTS = (
    "iterate over the open file to get one line after the other",
    "a file object returns its lines one at a time when read",
    "the recipe asks for two eggs, some flour and a little salt",
    "the first snow fell on the mountains late in the evening",
)

AGREEMENT = 0.999  # between float computations (BACKENDS: rounding, bfloat16 products with float32 sums)
AGREEMENT_QUANTISED = 0.99  # where a side quantises activations


def agreement(ours: NDArray[np.float32], theirs: NDArray[np.float32]) -> float:
    """Return the lowest cosine of two fingerprints: row by row of float32[n, dim], or of the two float32[n] logits.

    -1 if their shapes differ; 1 for a row of zeros on both sides, as a feature model gives for words it doesn't know.
    """
    if ours.shape != theirs.shape:
        return -1.0
    a, b = (np.atleast_2d(side).astype(np.float64) for side in (ours, theirs))
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    cosines = (a * b).sum(axis=1) / np.maximum(norms, np.finfo(np.float64).tiny)
    return float(np.min(np.where(a.any(axis=1) | b.any(axis=1), cosines, 1.0)))
