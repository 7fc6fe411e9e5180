"""BM25 with other constants than Tantivy's own, which it has no way to set: from its postings, exactly.

Tantivy tells of a word the documents that have it, each with its score of k1=1.2, b=0.75 and a length that is rounded.
How often the word occurs follows from that, and the true length is stored. Rows, counts and lengths are remembered, the
words used last up to a limit; a query is then some additions of arrays, for any constants.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from tantivy import Query

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from vectorsearch.collection.index.lexical.bm25 import BM25

LENGTHS = {"body": "body_length", "title": "title_length"}
_K1, _B = 1.2, 0.75  # Tantivy's
_LIMIT_NBYTES = 64 << 20
_DENSE = 64


def _rounded_lengths() -> NDArray[np.float64]:
    """Return the lengths that Tantivy tells apart, ascending: exact up to 40, then eight steps for each doubling."""
    steps = np.repeat(2.0 ** np.arange(1, 24), 8)
    return np.concatenate([np.arange(40), 40 + np.concatenate([[0], np.cumsum(steps)])])


ROUNDED_LENGTHS = _rounded_lengths()


class Posting(NamedTuple):
    """The documents with a word: rows int64[n], how often each has it and its length float64[n]; the mean of all."""

    rows: NDArray[np.int64]
    counts: NDArray[np.float64]
    lengths: NDArray[np.float64]
    mean_length: float

    @property
    def nbytes(self) -> int:
        """Return the bytes of the arrays."""
        return self.rows.nbytes + self.counts.nbytes + self.lengths.nbytes


class Postings:
    """The postings of one state of an index, of words that were asked for. Threads may share it."""

    def __init__(self, schema: Any, searcher: Any) -> None:  # noqa: ANN401 -- Tantivy's own types
        self._schema = schema
        self._searcher = searcher
        self._lock = threading.Lock()  # protects what is remembered; taken while no other lock is
        self._known: OrderedDict[tuple[str, str], Posting] = OrderedDict()
        self._nbytes = 0

    @property
    def nbytes(self) -> int:
        """Return the bytes of what is remembered."""
        return self._nbytes

    def scores(
        self, weights: Mapping[tuple[str, str], float], constants: BM25
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return rows int64[n], ascending, with a word at least, and their scores float32[n].

        `weights` says how much a (field, word) counts.
        """
        rows, parts = [np.empty(0, np.int64)], [np.empty(0, np.float64)]
        for (name, word), weight in weights.items():
            posting = self._posting(name, word)
            if weight > 0 and posting.rows.size:
                rows.append(posting.rows)
                parts.append(weight * self._score(posting, constants))
        return _summed(np.concatenate(rows), np.concatenate(parts))

    def _score(self, posting: Posting, constants: BM25) -> NDArray[np.float64]:
        """Return float64[n], by the formula of Robertson and Zaragoza with Lucene's idf, as `PositiveBM25` has it."""
        k1, b = constants
        having = len(posting.rows)
        idf = np.log1p((self._searcher.num_docs - having + 0.5) / (having + 0.5))
        norms = k1 * (1 - b + b * posting.lengths / posting.mean_length)
        scores: NDArray[np.float64] = idf * posting.counts * (k1 + 1) / (posting.counts + norms)
        return scores

    def _posting(self, name: str, word: str) -> Posting:
        with self._lock:
            known = self._known.get((name, word))
            if known is not None:
                self._known.move_to_end((name, word))
                return known
        posting = self._read(name, word)
        with self._lock:
            if (name, word) not in self._known:
                self._known[name, word] = posting
                self._nbytes += posting.nbytes
            while self._nbytes > _LIMIT_NBYTES and len(self._known) > 1:
                self._nbytes -= self._known.popitem(last=False)[1].nbytes
        return posting

    def _read(self, name: str, word: str) -> Posting:
        query = Query.term_query(self._schema, name, word, index_option="freq")
        limit = self._searcher.num_docs
        hits = self._searcher.search(query, limit=limit, count=False).hits if limit else []
        if not hits:
            return Posting(np.empty(0, np.int64), np.empty(0), np.empty(0), 1.0)
        addresses = [address for _, address in hits]
        rows = np.array(self._searcher.fast_field_values("row", addresses), np.int64)
        lengths = np.array(self._searcher.fast_field_values(LENGTHS[name], addresses), np.float64)
        idf, mean = _explained(query, self._searcher, addresses[0])
        shares = np.array([score for score, _ in hits], np.float64) / (idf * (_K1 + 1))  # count / (count + norm)
        rounded = ROUNDED_LENGTHS[np.searchsorted(ROUNDED_LENGTHS, lengths, side="right") - 1]
        norms = _K1 * (1 - _B + _B * rounded / mean)
        counts = np.rint(shares * norms / np.maximum(1 - shares, 1e-9))
        return Posting(rows, np.clip(counts, 1, lengths), lengths, mean)


def _summed(rows: NDArray[np.int64], parts: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return each row once, ascending, and the sum of its parts, which are above 0."""
    first = int(rows.min()) if rows.size else 0
    if rows.size and int(rows.max()) - first < _DENSE * len(
        rows
    ):  # adding in place beats sorting where rows aren't far apart
        sums = np.bincount(rows - first, parts)
        places = np.flatnonzero(sums)
        return places + first, sums[places].astype(np.float32)
    found, inverse = np.unique(rows, return_inverse=True)
    return found, np.bincount(inverse, parts, len(found)).astype(np.float32)


def _explained(query: Any, searcher: Any, address: Any) -> tuple[float, float]:  # noqa: ANN401 -- Tantivy's own types
    """Return the idf of a word and the mean length of its field, as Tantivy takes them."""
    _, idf, share = json.loads(query.explain(searcher, address).to_json())["details"]
    return idf["value"], share["details"][-1]["value"]
