"""A serial model of a database that is written to and searched at once: what a search may find, and what it must.

Each document has a version, and with it a word, a number and a vector of its own. A search lies between two moments;
what was written in between may or may not be seen. Whatever else was stored all the while must be found.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

ABSENT = 0
_EQUAL = 1e-5  # two cosines that differ by less may be in either order


def vector(version: int, dim: int) -> NDArray[np.float32]:
    """Return the vector of a version, of length 1."""
    made = np.random.default_rng(version).standard_normal(dim).astype(np.float32)
    return np.asarray(made / np.linalg.norm(made), dtype=np.float32)


@dataclass(frozen=True)
class Asked:
    """A search: by a version's word (0: the word of all), a version's vector (0: none), and the least number of `v`."""

    k: int
    word: int | None = None
    vector: int | None = None
    at_least: int = 0

    @property
    def is_exact(self) -> bool:
        """Return whether it is by words alone, which no index answers by guessing."""
        return self.vector is None

    def matches(self, version: int | NDArray[np.int64]) -> Any:
        """Tell whether a version is among what the search is about."""
        stored = (version != ABSENT) & (version >= self.at_least)
        by_one_word = self.vector is None and self.word
        return stored & (version == self.word) if by_one_word else stored


@dataclass(frozen=True)
class Window:
    """What was acknowledged when a search began, and the changes that were not done then or began until it ended."""

    versions: NDArray[np.int64]
    vectors: NDArray[np.float32]
    changes: Sequence[Mapping[int, int]]

    def possible(self, doc: int) -> set[int]:
        """Return each version that the document may have had, `ABSENT` among them."""
        return {int(self.versions[doc]), *(change[doc] for change in self.changes if doc in change)}

    def sure(self, asked: Asked) -> NDArray[np.int64]:
        """Return the documents that matched at every moment."""
        touched = {doc for change in self.changes for doc in change}
        lost = {doc for doc in touched if not all(asked.matches(version) for version in self.possible(doc))}
        found = np.flatnonzero(asked.matches(self.versions))
        return found[~np.isin(found, [*lost])] if lost else found

    def untouched(self, asked: Asked) -> NDArray[np.int64]:
        """Return the documents that matched and that nobody has changed."""
        touched = [doc for change in self.changes for doc in change]
        found = np.flatnonzero(asked.matches(self.versions))
        return found[~np.isin(found, touched)]


class SerialModel:
    """Which document has which version, as far as writers were told that it is stored."""

    def __init__(self, documents: int, dim: int) -> None:
        self._lock = threading.Lock()  # protects the rest; nothing is taken under it
        self._versions = np.zeros(documents, dtype=np.int64)
        self._vectors = np.zeros((documents, dim), dtype=np.float32)
        self._dim = dim
        self._log: list[Mapping[int, int]] = []
        self._open: set[int] = set()

    def begin(self, change: Mapping[int, int]) -> int:
        """Note a change that is about to be written; writers never have the same document at once."""
        with self._lock:
            self._log.append(change)
            self._open.add(len(self._log) - 1)
            return len(self._log) - 1

    def acknowledge(self, number: int) -> None:
        """Note that a change was acknowledged."""
        change = self._log[number]
        vectors = {doc: vector(version, self._dim) for doc, version in change.items() if version != ABSENT}
        with self._lock:
            for doc, version in change.items():
                self._versions[doc] = version
            for doc, made in vectors.items():
                self._vectors[doc] = made
            self._open.discard(number)

    def look(self) -> tuple[NDArray[np.int64], NDArray[np.float32], list[int], int]:
        """Return the state at the beginning of a search, for `window`."""
        with self._lock:
            return self._versions.copy(), self._vectors.copy(), sorted(self._open), len(self._log)

    def window(self, look: tuple[NDArray[np.int64], NDArray[np.float32], list[int], int]) -> Window:
        """Return what a search that began then and has ended now lay between."""
        versions, vectors, unfinished, begun = look
        with self._lock:
            return Window(versions, vectors, [*(self._log[n] for n in unfinished), *self._log[begun:]])


def faults(
    asked: Asked,
    found: Sequence[tuple[int, int]],
    window: Window,
    *,
    scores: Sequence[float] | None = None,
    cut: bool = False,
) -> list[str]:
    """Return what is wrong with the (document, version) pairs that a search found.

    `scores` are their cosines, if the index is exact; `cut` is a result that says itself that some may be missing.
    """
    wrong = [
        f"document {doc} has no version {version}: {sorted(window.possible(doc))}"
        for doc, version in found
        if version not in window.possible(doc)
    ]
    wrong += [f"document {doc} version {version} doesn't match" for doc, version in found if not asked.matches(version)]
    ids = [doc for doc, _ in found]
    if len(set(ids)) < len(ids):
        wrong.append(f"one document twice: {sorted(ids)}")
    if len(ids) > asked.k:
        wrong.append(f"{len(ids)} hits, where {asked.k} were wanted")
    return wrong if cut else wrong + _missing(asked, ids, window, scores)


def _missing(asked: Asked, ids: list[int], window: Window, scores: Sequence[float] | None) -> list[str]:
    wrong = []
    sure = window.sure(asked)
    if len(ids) < min(asked.k, len(sure)):
        wrong.append(f"{len(ids)} hits of {asked.k}, where {len(sure)} match")
    missing = np.setdiff1d(window.untouched(asked), ids)
    if len(ids) < asked.k and len(missing):
        wrong.append(f"document {missing[0]} matches, and there was room for it: {len(ids)} hits of {asked.k}")
    if scores is not None and asked.vector and len(ids) == asked.k:
        nearer = window.vectors[missing] @ vector(asked.vector, window.vectors.shape[1]) > min(scores) + _EQUAL
        wrong += [f"document {doc} is nearer than the last hit" for doc in missing[nearer][:1]]
    return wrong
