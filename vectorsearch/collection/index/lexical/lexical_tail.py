"""What was written since a lexical index was committed: a few documents in memory, scored as the index scores.

A commit takes a tenth of a second, whatever is in it, so a search doesn't wait for one. The words of new documents are
looked up here, and the rows that have died are hidden. Their scores are BM25's with the frequencies of index and tail
together, the index's average length, and lengths rounded as Tantivy rounds them: the same but for that average, once
they are committed.
"""

from __future__ import annotations

import bisect
import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vectorsearch.collection.index.filtering.filters import holds
from vectorsearch.collection.index.filtering.metadata_terms import metadata_terms
from vectorsearch.collection.index.lexical.bm25 import BM25
from vectorsearch.collection.index.lexical.lexical_postings import ROUNDED_LENGTHS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from backends.text.analyzer import Analyzer
    from vectorsearch.collection.index.filtering.filters import Condition
    from vectorsearch.collection.storage.sqlite.snapshot import IndexedText, Snapshot


@dataclass(frozen=True, slots=True)
class TailDocument:
    """One new document: its words in order, as phrases need them, its title's, its metadata's terms, its mark."""

    words: Sequence[str]
    titles: Sequence[str]
    terms: frozenset[str]
    mark: int


@dataclass(frozen=True, slots=True)
class TailPostings:
    """Of one field: by word, how often each row has it; by row, its length."""

    counts: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    lengths: Mapping[int, int] = field(default_factory=dict)

    def with_rows(self, words_by_row: Mapping[int, Sequence[str]]) -> TailPostings:
        """Return these with some rows added."""
        counts, lengths = dict(self.counts), dict(self.lengths)
        for row, words in words_by_row.items():
            lengths[row] = len(words)
            for word, times in Counter(words).items():
                counts[word] = {**counts.get(word, {}), row: times}
        return TailPostings(counts, lengths)

    def score(self, word: str, weight: float, mean_length: float, constants: BM25) -> dict[int, float]:
        """Return by row weight x tf (k1 + 1) / (tf + k1 (1 - b + b length / mean)); the weight has the idf in it."""
        k1, b = constants
        is_rounded = constants == BM25()  # Tantivy's own scores are of rounded lengths, others aren't
        base, slope, gain = k1 * (1 - b), k1 * b / mean_length, weight * (k1 + 1)
        found = {}
        for row, tf in self.counts.get(word, {}).items():
            length = rounded_length(self.lengths[row]) if is_rounded else self.lengths[row]
            found[row] = gain * tf / (tf + base + slope * length)
        return found


def _no_postings() -> Mapping[str, TailPostings]:
    return {"body": TailPostings(), "title": TailPostings()}


@dataclass(frozen=True, slots=True)
class Tail:
    """As of change `seq`: new documents by row, and `gone`, the rows deleted since the index was committed.

    Immutable: a search takes one and sees one moment.
    """

    seq: int
    documents: Mapping[int, TailDocument] = field(default_factory=dict)
    gone: frozenset[int] = frozenset()
    postings: Mapping[str, TailPostings] = field(default_factory=_no_postings)

    def __len__(self) -> int:
        """Return how many changes it holds."""
        return len(self.documents) + len(self.gone)

    def advanced(self, snapshot: Snapshot, analyzer: Analyzer) -> Tail:
        """Return the tail with every change up to the snapshot's; postings of what died meanwhile stay, unused."""
        died = set(snapshot.deleted_after(self.seq).tolist())
        new = {text.row: tail_document(text, analyzer) for batch in snapshot.texts(self.seq) for text in batch}
        documents = {**{row: document for row, document in self.documents.items() if row not in died}, **new}
        return Tail(snapshot.seq, documents, self.gone.union(died), _with_rows(self.postings, new))

    def after(self, committed: int, died: Iterable[int]) -> Tail:
        """Return what is left once the index was committed at a change, with these rows deleted up to there."""
        documents = {row: document for row, document in self.documents.items() if row > committed}
        gone = self.gone.difference(died)
        return Tail(max(self.seq, committed), documents, gone, _with_rows(_no_postings(), documents))

    def rows_where(self, condition: Condition) -> list[int]:
        """Return the rows that fulfil a condition."""
        return [row for row, document in self.documents.items() if holds(condition, document.terms)]

    def matches(self, row: int, condition: Condition | None, phrases: Iterable[Sequence[str]]) -> bool:
        """Tell whether a row is alive, fulfils a condition, and holds each of the sequences of words."""
        document = self.documents.get(row)
        return (
            document is not None
            and (condition is None or holds(condition, document.terms))
            and all(_has(document.words, phrase) for phrase in phrases)
        )

    def frequency(self, name: str, word: str) -> int:
        """Return how many documents have a word in a field."""
        return sum(row in self.documents for row in self.postings[name].counts.get(word, ()))

    def scores(
        self, weights: Mapping[tuple[str, str], float], mean_lengths: Mapping[str, float], constants: BM25
    ) -> dict[int, float]:
        """Return BM25 by row, dead ones included; `weights` are by (field, word), their idf in them."""
        found: dict[int, float] = {}
        for (name, word), weight in weights.items():
            for row, score in self.postings[name].score(word, weight, mean_lengths[name], constants).items():
                found[row] = found.get(row, 0.0) + score
        return found


def _with_rows(postings: Mapping[str, TailPostings], new: Mapping[int, TailDocument]) -> Mapping[str, TailPostings]:
    return {
        "body": postings["body"].with_rows({row: document.words for row, document in new.items()}),
        "title": postings["title"].with_rows({row: document.titles for row, document in new.items()}),
    }


def tail_document(text: IndexedText, analyzer: Analyzer) -> TailDocument:
    """Return a document as the tail holds it."""
    titles = analyzer.words(text.title) if text.title else []
    return TailDocument(analyzer.words(text.text), titles, frozenset(metadata_terms(text.metadata)), text.mark)


def idf(documents: int, frequency: int) -> float:
    """Return ln(1 + (N - n + 0.5) / (n + 0.5)), as Lucene and Tantivy have it."""
    return math.log(1 + (max(documents, frequency) - frequency + 0.5) / (frequency + 0.5))


_ROUNDED = ROUNDED_LENGTHS.astype(int).tolist()


def rounded_length(length: int) -> int:
    """Return the length as the index keeps it: rounded down to one of 256, exact up to 40."""
    rounded: int = _ROUNDED[bisect.bisect_right(_ROUNDED, length) - 1]
    return rounded


def _has(words: Sequence[str], sequence: Sequence[str]) -> bool:
    n, wanted = len(sequence), list(sequence)
    return any(list(words[i : i + n]) == wanted for i in range(len(words) - n + 1))
