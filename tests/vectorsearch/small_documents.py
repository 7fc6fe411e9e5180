"""Documents for collections: each with a word and a vector of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vectorsearch.types import Document

if TYPE_CHECKING:
    from vectorsearch.collection.collection import Collection
    from vectorsearch.types import Candidates

DIM = 8


def vector(number: int) -> np.ndarray:
    """Give a vector of its own for each number."""
    return np.random.default_rng(number).standard_normal(DIM).astype(np.float32)


def doc(number: int, **metadata: str | float | None) -> Document:
    """Give a document with a word and a vector of its own."""
    return Document(f"d{number}", f"apple unique{number}", metadata=metadata, vector=vector(number))


def ids(collection: Collection, found: Candidates) -> list[str]:
    """Return the ids of candidates, best first."""
    return [fetched.id for fetched in collection.fetch(found.rows) if fetched]
