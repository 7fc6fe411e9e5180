"""Fit a feature model: idf and a truncated SVD of the documents' terms, in NumPy, in bounded memory.

The SVD is the randomised subspace iteration of Halko, Martinsson & Tropp 2011 (algorithm 4.4), applied to AᵀA: only the
right singular vectors are wanted, and those are as long as the vocabulary, however many documents there are. The rows
of A are documents, held sparse; a few hundred at a time are made dense over the terms that they have.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from backends.errors import InvalidInput
from backends.features.feature_model import Features

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    Progress = Callable[[int, int], None]

MOST_TERMS = 1 << 16
ITERATIONS = 4
_OVERSAMPLED = 32  # columns beside those wanted, so that the last of these converge too
_BLOCK_DOCUMENTS = 256
_RARE = 2  # terms of fewer documents relate to no other


@dataclass(frozen=True, slots=True)
class Rows:
    """A sparse matrix in CSR form: row i has `values[starts[i]:starts[i + 1]]` in these `columns`; `width` of them."""

    values: NDArray[np.float32]
    columns: NDArray[np.int32]
    starts: NDArray[np.int64]
    width: int

    def __len__(self) -> int:
        return len(self.starts) - 1

    def blocks(self) -> Iterator[tuple[NDArray[np.float32], NDArray[np.int32]]]:
        """Yield dense blocks float32[some documents, their terms] and which columns these terms are."""
        for first in range(0, len(self), _BLOCK_DOCUMENTS):
            starts = self.starts[first : first + _BLOCK_DOCUMENTS + 1]
            part = slice(starts[0], starts[-1])
            terms, places = np.unique(self.columns[part], return_inverse=True)
            block = np.zeros((len(starts) - 1, len(terms)), np.float32)
            block[np.repeat(np.arange(len(block)), np.diff(starts)), places] = self.values[part]
            yield block, terms


class TermCounts:
    """Collects documents as (term, count) pairs; 8 bytes for each different term of a document."""

    def __init__(self) -> None:
        self._terms: list[NDArray[np.uint32]] = []
        self._counts: list[NDArray[np.uint32]] = []

    def __len__(self) -> int:
        return len(self._terms)

    def add(self, hashes: Sequence[int]) -> None:
        """Add a document's hashed terms, in any order; a document without terms is left out."""
        if len(hashes):
            terms, counts = np.unique(np.asarray(hashes, np.uint32), return_counts=True)
            self._terms.append(terms)
            self._counts.append(counts.astype(np.uint32))

    def vocabulary(self) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """Return the terms to keep, ascending, and how many documents have each; of too many the most frequent."""
        terms, frequencies = np.unique(np.concatenate(self._terms), return_counts=True)
        common = frequencies >= _RARE
        terms, frequencies = terms[common], frequencies[common]
        kept = np.sort(np.lexsort((terms, -frequencies))[:MOST_TERMS])
        return terms[kept], frequencies[kept]

    def weighted(self, terms: NDArray[np.uint32], idf: NDArray[np.float32]) -> Rows:
        """Return the documents over these terms: (1 + ln count) idf, each row brought to length 1."""
        sizes = np.array([0, *map(len, self._terms)])
        found, counts = np.concatenate(self._terms), np.concatenate(self._counts)
        places = np.searchsorted(terms, found).astype(np.int32)
        places[places == len(terms)] = 0
        known = terms[places] == found
        owner = np.repeat(np.arange(len(self), dtype=np.int32), sizes[1:])[known]
        columns = places[known]
        values = (1 + np.log(counts[known], dtype=np.float32)) * idf[columns]
        per_document = np.bincount(owner, minlength=len(self))
        norms = np.sqrt(np.bincount(owner, values * values, len(self))).astype(np.float32)
        return Rows(values / norms[owner], columns, np.concatenate(([0], np.cumsum(per_document))), len(terms))


def fit(
    counts: TermCounts, *, dim: int, language: str | None, seed: int = 0, progress: Progress | None = None
) -> Features:
    """Return the model of these documents; the same documents, seed and machine give the same numbers.

    Raises:
        InvalidInput: there are fewer documents, or fewer terms that two documents share, than `dim`.
    """
    if dim < 1:
        raise InvalidInput(f"dim is {dim}: it is a number of dimensions, 1 or more")
    terms, frequencies = counts.vocabulary() if len(counts) else (np.empty(0, np.uint32), np.empty(0, np.int64))
    most = min(len(counts), len(terms))
    if most < dim:
        raise InvalidInput(
            f"{len(counts)} documents with words, which share {len(terms)} terms, can't give {dim} dimensions: "
            + (f"ask for at most {most}, or add documents" if most else "add documents first")
        )
    idf = np.log(1 + len(counts) / frequencies).astype(np.float32)
    vectors = right_singular_vectors(counts.weighted(terms, idf), dim, seed=seed, progress=progress)
    return Features(terms, np.asarray(idf[:, None] * vectors, np.float32), language)


def right_singular_vectors(rows: Rows, k: int, *, seed: int, progress: Progress | None = None) -> NDArray[np.float32]:
    """Return the `k` right singular vectors of the largest singular values as float32[width, k], largest first.

    The sign of each is such that its largest number is positive.
    """
    rng = np.random.default_rng(seed)
    width = min(k + _OVERSAMPLED, rows.width)
    basis = rng.standard_normal((rows.width, width), np.float32)
    steps = math.ceil(len(rows) / _BLOCK_DOCUMENTS)
    image = basis
    for iteration in range(ITERATIONS + 1):
        basis = np.linalg.qr(image).Q
        image = np.zeros_like(basis)
        for step, (block, terms) in enumerate(rows.blocks(), 1):
            image[terms] += block.T @ (block @ basis[terms])
            if progress is not None:
                progress(iteration * steps + step, (ITERATIONS + 1) * steps)
    # Rayleigh-Ritz: the eigenvectors of AᵀA within the space found.
    _, rotation = np.linalg.eigh((basis.T @ image).astype(np.float64))
    vectors = basis @ rotation[:, ::-1][:, :k].astype(np.float32)
    largest = vectors[np.abs(vectors).argmax(axis=0), np.arange(k)]
    return np.asarray(vectors * np.where(largest < 0, -1, 1), np.float32)


def collect(documents: Iterable[Sequence[int]]) -> TermCounts:
    """Return the counts of documents given as their hashed terms."""
    counts = TermCounts()
    for hashes in documents:
        counts.add(hashes)
    return counts
