"""Dot products by cosines: vectors of a model that was trained for dot products, so that a cosine orders them alike.

Passages get one number more, which brings each to the same length; queries get a zero there. The cosine is then the dot
product over that length and the query's, and the order is the dot product's (Bachrach et al., 2014, "Speeding up the
Xbox recommender system using a Euclidean transformation for inner-product spaces").
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from backends.errors import InferenceError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from backends.base import ModelSpec
    from backends.running.text_model import TextKind

LENGTH = 256.0  # of every passage; published models give 5 to 30


def indexed_dim(spec: ModelSpec) -> int | None:
    """Return the numbers of a vector as it is indexed; None where the model doesn't say."""
    return None if spec.dim is None else spec.dim + (spec.similarity == "dot")


def indexed(vectors: NDArray[np.float32], kind: TextKind, spec: ModelSpec) -> NDArray[np.float32]:
    """Return float32[n, dim] as they are indexed and searched by cosine: float32[n, dim + 1] of a dot-product model.

    Raises:
        InferenceError: a passage's vector is too long to be brought to the same length as the others.
    """
    if spec.similarity != "dot":
        return vectors
    squares = np.square(vectors, dtype=np.float64).sum(axis=1, keepdims=True)
    if kind == "query":
        last = np.zeros_like(squares)
    elif squares.size and squares.max() > LENGTH**2:
        raise InferenceError(
            f"model {spec.name!r} is for dot products, and gave a vector of length {squares.max() ** 0.5:.0f}: only "
            f"lengths up to {LENGTH:g} can be ranked so. Vouch for similarity_fn_name to rank by cosine"
        )
    else:
        last = np.sqrt(LENGTH**2 - squares)
    return np.concatenate([vectors, last.astype(np.float32)], axis=1)
