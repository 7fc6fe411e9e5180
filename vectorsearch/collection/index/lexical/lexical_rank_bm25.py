"""BM25 by rank-bm25: the reference that the serving engine is compared with, selectable as `lexical="rank-bm25"`."""

from __future__ import annotations

import threading
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from rank_bm25 import BM25Okapi

from vectorsearch.collection.index.base import best, no_candidates
from vectorsearch.collection.index.filtering.filters import holds
from vectorsearch.collection.index.filtering.metadata_terms import metadata_terms
from vectorsearch.collection.index.lexical.bm25 import BM25

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from backends.text.analyzer import Analyzer
    from vectorsearch.collection.index.base import Advance
    from vectorsearch.collection.index.filtering.filters import Condition
    from vectorsearch.collection.storage.sqlite.snapshot import Snapshot
    from vectorsearch.types import Candidates

_WORD_NBYTES = 100
_NEARLY_0 = 1e-12


class PositiveBM25(BM25Okapi):  # type: ignore[misc]  # rank-bm25 ships no types
    """BM25 with the idf ln(1 + (N - n + 0.5) / (n + 0.5)), positive for every n, as Lucene and Tantivy have it.

    The package's own idf is 0 for a word in half the documents and negative above. S. Robertson and H. Zaragoza, The
    Probabilistic Relevance Framework: BM25 and Beyond, 2009, equation 3.3 with the 1 added against the negative ones.
    """

    def __init__(self, corpus: list[list[str]], constants: BM25 = BM25()) -> None:  # noqa: B008 -- immutable
        super().__init__(corpus, k1=constants.k1, b=constants.b)

    def _calc_idf(self, nd: dict[str, int]) -> None:
        self.idf = {word: float(np.log1p((self.corpus_size - n + 0.5) / (n + 0.5))) for word, n in nd.items()}

    def get_scores_with(self, words: list[str], constants: BM25) -> NDArray[np.float64]:
        """Return the score of each document by these constants: float64[n]."""
        scorer = copy(self)  # the package reads its constants from the object, which threads share
        # A document without the word has 0 / 0 for k1=0, and an empty one for b=1: the limit is meant.
        scorer.k1, scorer.b = max(constants.k1, _NEARLY_0), constants.b
        scorer.doc_len = np.maximum(self.doc_len, _NEARLY_0)
        scores: NDArray[np.float64] = scorer.get_scores(words)
        return scores


@dataclass(frozen=True, slots=True)
class _State:
    """What readers share: documents as of `seq`, by row, and the scorer over their words, in the same order."""

    seq: int = 0
    words: dict[int, list[str]] = field(default_factory=dict)
    titles: dict[int, list[str]] = field(default_factory=dict)
    terms: dict[int, frozenset[str]] = field(default_factory=dict)
    marks: dict[int, int] = field(default_factory=dict)


class RankBM25Index:
    """All in memory and scored document by document: exact, and slow beyond some ten thousand documents."""

    def __init__(self, analyzer: Analyzer, constants: BM25 = BM25()) -> None:  # noqa: B008 -- immutable
        self._analyzer = analyzer
        self._constants = constants
        self._state = _State()  # swapped whole: a reader takes one reference and sees one moment
        self._lock = threading.Lock()  # one thread builds the scorer; taken while no other lock is
        self._scorer: tuple[_State, _Scorer] | None = None

    @property
    def seq(self) -> int:
        """Return the last change of the store that a search sees."""
        return self._state.seq

    def catch_up(self, snapshot: Snapshot, advance: Advance, *, build: bool = True) -> None:  # noqa: ARG002 -- the protocol's argument
        """Apply every change after `seq`."""
        if self.seq < snapshot.floor:
            self.close()
        words, titles, terms = dict(self._state.words), dict(self._state.titles), dict(self._state.terms)
        marks = dict(self._state.marks)
        for row in snapshot.deleted_after(self.seq).tolist():
            for values in (words, titles, terms, marks):
                values.pop(row, None)
        for batch in snapshot.texts(self.seq):
            for row, title, text, metadata, mark in batch:
                marks[row] = mark
                words[row], titles[row] = self._analyzer.words(text), self._analyzer.words(title)
                terms[row] = frozenset(metadata_terms(metadata))
            advance(len(batch))
        self._state = _State(snapshot.seq, words, titles, terms, marks)

    def search(
        self,
        query: str,
        k: int,
        condition: Condition | None = None,
        *,
        phrases: Sequence[str] = (),
        title_weight: float = 0.0,
        constants: BM25 | None = None,
    ) -> Candidates:
        """Return the `k` live rows that match best; a word that the query repeats counts as often."""
        words = self._analyzer.words(query)
        if not words or k <= 0:
            return no_candidates()
        scorer = self._current()
        rows, scores = scorer.rows, scorer.scores(words, title_weight, constants or self._constants)
        kept = scores > 0
        if condition is not None:
            kept &= np.isin(rows, scorer.rows_where(condition), assume_unique=True)
        for phrase in phrases:
            kept &= scorer.have(self._analyzer.sequences(phrase))
        return best(rows[kept], scores[kept], k)

    def marks(self) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """Return the live rows, ascending, and the mark of the content that each was indexed with."""
        pairs = sorted(self._state.marks.items())
        return np.array([row for row, _ in pairs], np.int64), np.array([mark for _, mark in pairs], np.uint64)

    def rows_where(self, condition: Condition) -> NDArray[np.int64]:
        """Return the live rows for which the condition holds, ascending."""
        return self._current().rows_where(condition)

    def count_where(self, condition: Condition) -> int:
        """Return the number of live rows for which the condition holds."""
        return len(self.rows_where(condition))

    @property
    def keeps_files(self) -> bool:
        """Return False: the store has everything."""
        return False

    def save(self, *, durable: bool) -> None:
        """Do nothing: the store's texts are read on opening."""

    @property
    def nbytes(self) -> int:
        """Return a guess: what a word takes in lists and counts, as measured on a thousand documents."""
        return _WORD_NBYTES * sum(map(len, self._state.words.values()))

    def info(self) -> dict[str, object]:
        """Return counts."""
        return {"kind": "rank-bm25", "documents": len(self._state.words)}

    def close(self) -> None:
        """Let go of the words."""
        self._state, self._scorer = _State(), None

    def _current(self) -> _Scorer:
        with self._lock:
            if self._scorer is None or self._scorer[0] is not self._state:
                state = self._state
                self._scorer = (state, _Scorer(state))
            return self._scorer[1]


class _Scorer:
    def __init__(self, state: _State) -> None:
        self.rows = np.fromiter(state.words, dtype=np.int64, count=len(state.words))
        self._words = list(state.words.values())
        self._terms = list(state.terms.values())
        self._bm25 = _scorer(self._words)
        self._titles = _scorer(list(state.titles.values()))

    def scores(self, words: list[str], title_weight: float, constants: BM25) -> NDArray[np.float32]:
        scores = np.zeros(len(self.rows))
        if self._bm25 is not None:
            scores += self._bm25.get_scores_with(words, constants)
        if self._titles is not None and title_weight > 0:
            scores += title_weight * self._titles.get_scores_with(words, constants)
        return scores.astype(np.float32)

    def have(self, sequences: list[list[str]]) -> NDArray[np.bool_]:
        return np.array([all(_holds(words, sequence) for sequence in sequences) for words in self._words], np.bool_)

    def rows_where(self, condition: Condition) -> NDArray[np.int64]:
        kept = np.fromiter((holds(condition, terms) for terms in self._terms), dtype=np.bool_, count=len(self.rows))
        return self.rows[kept]


def _scorer(documents: list[list[str]]) -> PositiveBM25 | None:
    # The package divides by the number of documents and of words.
    return PositiveBM25(documents) if any(documents) else None


def _holds(words: list[str], sequence: list[str]) -> bool:
    n = len(sequence)
    return any(words[i : i + n] == sequence for i in range(len(words) - n + 1))
