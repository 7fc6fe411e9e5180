"""The values that cross this package's borders: documents in, candidates between stages, hits out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, time
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Literal, Self, TypeAlias
from uuid import UUID

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Scalar = str | int | float | bool | None
Storable = date | time | Decimal | UUID | Enum  # as `stored_values` tells
MetadataValue: TypeAlias = "Scalar | Storable | Sequence[MetadataValue] | Mapping[str, MetadataValue]"
Metadata = Mapping[str, MetadataValue]
FilterValue: TypeAlias = "Scalar | Storable | Sequence[FilterValue] | Mapping[str, FilterValue]"
Filter = Mapping[str, FilterValue]  # see `index.filters.parse_filter`
Mode = Literal["auto", "hybrid", "dense", "lexical"]
ScoreKind = Literal["dense", "lexical", "fused", "rerank", "blend"]


def full_text(title: str, text: str) -> str:
    """Return what is indexed, embedded and reranked of a document: the title, if there is one, a space, the text."""
    return f"{title} {text}" if title else text


@dataclass(frozen=True, slots=True)
class Document:
    """One document as a caller gives it and gets it back. `vector` is float32[dim] or None."""

    id: str
    text: str
    title: str = ""
    metadata: Metadata = field(default_factory=dict)
    vector: NDArray[np.float32] | None = None

    @property
    def full_text(self) -> str:
        """Return what is indexed, embedded and reranked; see `full_text`."""
        return full_text(self.title, self.text)


class Written(int):
    """How many documents were stored; `truncated` says of how many the embedder read no more than the beginning."""

    truncated: int

    def __new__(cls, count: int, truncated: int = 0) -> Self:
        """Make it of both numbers."""
        made = super().__new__(cls, count)
        made.truncated = truncated
        return made


class Deleted(int):
    """How many documents were deleted; `notes` tell what may be amiss with the filter that chose them."""

    notes: tuple[str, ...]

    def __new__(cls, count: int, notes: tuple[str, ...] = ()) -> Self:
        """Make it of both."""
        made = super().__new__(cls, count)
        made.notes = notes
        return made


@dataclass(frozen=True, slots=True)
class Candidates:
    """What one retriever found, best first: `rows` int64[n] (row numbers of the store), `scores` float32[n].

    Scores fall; equal scores are ordered by row, so that a result never depends on chance. Where others wrote so fast
    that it is not of one moment, it has `changed`: documents that were replaced may be missing.
    """

    rows: NDArray[np.int64]
    scores: NDArray[np.float32]
    changed: bool = False
