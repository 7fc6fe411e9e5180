"""BM25 by Tantivy, the lexical index that serves: what is committed, and a tail of what was written since.

Traps of the binding, each with a test: an id given as a plain integer kills the writer (`add_unsigned`); deleting by an
unsigned term deletes nothing, silently (`delete_documents_by_query`); it checks no file (`storage.manifest`).
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import threading
import weakref
from collections import Counter
from dataclasses import dataclass, replace
from importlib.metadata import version
from itertools import count, islice, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import tantivy
from tantivy import Occur, Query

from vectorsearch.collection.index.base import best, no_candidates, writing
from vectorsearch.collection.index.filtering.filter_queries import filter_query
from vectorsearch.collection.index.filtering.filters import AllOf
from vectorsearch.collection.index.filtering.metadata_terms import TERMS_VERSION, metadata_terms
from vectorsearch.collection.index.lexical.bm25 import BM25
from vectorsearch.collection.index.lexical.lexical_postings import LENGTHS, Postings
from vectorsearch.collection.index.lexical.lexical_tail import Tail, idf
from vectorsearch.collection.storage.disk import failpoints, manifest
from vectorsearch.collection.storage.disk.files import fsync_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from backends.text.analyzer import Analyzer
    from vectorsearch.collection.index.base import Advance
    from vectorsearch.collection.index.filtering.filters import Condition
    from vectorsearch.collection.storage.disk.manifest import FileMark, Lineage
    from vectorsearch.collection.storage.sqlite.snapshot import IndexedText, Snapshot
    from vectorsearch.types import Candidates

_log = logging.getLogger(__name__)
_TANTIVYS = BM25()  # its constants, which nobody can set; others are applied in `lexical_postings`
_HEAP_NBYTES = 15_000_000  # the least that Tantivy takes
_BULK_HEAP_NBYTES = 60_000_000
_BULK_ROWS = 10_000
_OPEN_NBYTES = 270_000  # an open index of a thousand documents, its thread included, as measured
_DOCUMENT_NBYTES = 250  # in memory nobody tells
_FIELDS_VERSION = 6  # raised with the schema: indexes made with another are built again
_DEAD_SHARE = 0.1  # deleted documents count in the idf until they are merged away, which the binding can't ask for
# What a search looks through beside the index rather than wait for a commit, and up to which share of the index: its
# average length counts for both.
_TAIL_CHANGES = 2_000
_TAIL_SHARE = 10
_LOCKS = (".tantivy-writer.lock", ".tantivy-meta.lock")
_DELETED_AT_ONCE = 1000


def _schema() -> Any:  # noqa: ANN401 -- Tantivy's own type
    builder = tantivy.SchemaBuilder()
    builder.add_unsigned_field("row", indexed=True, fast=True)
    builder.add_unsigned_field("mark", fast=True)
    for length in LENGTHS.values():
        builder.add_unsigned_field(length, fast=True)
    # Words come split already. Positions are for phrases (README.md has what they cost).
    builder.add_text_field("body", tokenizer_name="whitespace", index_option="position")
    builder.add_text_field("title", tokenizer_name="whitespace", index_option="freq")
    builder.add_text_field("terms", tokenizer_name="raw", index_option="basic")
    return builder.build()


_SCHEMA = _schema()


@dataclass(frozen=True, slots=True)
class _State:
    """What readers share: the index as committed at change `seq`, and the tail of what came later.

    `folder` is None in memory; `dead` counts deletions since the index was built, `words` the words of each field.
    """

    seq: int
    index: Any
    searcher: Any
    folder: Path | None
    dead: int
    words: Mapping[str, int]
    postings: Postings
    tail: Tail

    @classmethod
    def of(cls, seq: int, index: Any, folder: Path | None, dead: int, words: Mapping[str, int], tail: Tail) -> Self:  # noqa: ANN401, PLR0917 -- Tantivy's own type; the fields in their order
        searcher = index.searcher()
        return cls(seq, index, searcher, folder, dead, words, Postings(_SCHEMA, searcher), tail)

    @property
    def documents(self) -> int:
        """Return the documents that count in frequencies: the dead do until they are merged away."""
        return int(self.searcher.num_docs) + self.dead

    def mean_length(self, name: str) -> float:
        """Return the mean number of words of a field, as the index has it."""
        return max(1, self.words[name]) / max(1, self.documents)


class TantivyIndex:
    """Words and metadata terms of every document, by row.

    On disk, each build has a folder of its own below `folder`, and the manifest names the one that counts. A commit
    that the manifest doesn't vouch for, because the process was killed between the two, is built again.
    """

    def __init__(
        self,
        analyzer: Analyzer,
        folder: Path | None,
        constants: BM25 = _TANTIVYS,
        *,
        lineage: Lineage,
        read_only: bool = False,
    ) -> None:
        self._analyzer = analyzer
        self._constants = constants
        self._folder = None if read_only else folder  # where this index may write
        self._lineage = lineage
        self._marks: dict[str, FileMark] = {}
        self._saved_seq: int | None = None
        self._durable = True
        self._names = count(lineage.seq)
        self._writing = threading.Lock()  # one commit at a time, by whoever catches up or by the builder
        self._swapping = threading.Lock()  # a leaf: protects the exchange of the state, which two threads do
        self._broken = False  # a commit was cut off: files and state may differ
        self._state = self._empty(None)
        self._origin = "built in memory" if folder is None else self._load(folder)

    @property
    def seq(self) -> int:
        """Return the last change of the store that a search sees."""
        return self._state.tail.seq

    @property
    def pending(self) -> bool:
        """Tell whether something was written since the last commit."""
        return len(self._state.tail) > 0

    @property
    def outgrown(self) -> bool:
        """Tell whether the tail should be committed."""
        return self.pending and 2 * len(self._state.tail) >= self._most(self._state)

    @property
    def _layout(self) -> str:
        versions = f"terms {TERMS_VERSION}, fields {_FIELDS_VERSION}"
        return f"tantivy {version('tantivy')}, {self._analyzer.fingerprint}, {versions}"

    def catch_up(self, snapshot: Snapshot, advance: Advance, *, build: bool = True) -> None:
        """Apply every change after `seq`; without `build` a few go to the tail, and nothing is committed."""
        if not build and self._fits(snapshot):
            with self._swapping:
                state = self._state
                self._state = replace(state, tail=state.tail.advanced(snapshot, self._analyzer))
        else:
            self.build_aside(snapshot, advance)

    def build_aside(self, snapshot: Snapshot, advance: Advance) -> _State:
        """Commit every change up to the snapshot's; build again when too many documents are dead.

        Searches and `catch_up` without `build` go on meanwhile.
        """
        with self._writing:
            state = self._state
            if snapshot.seq <= state.seq and not self._broken:
                return state
            died = state.tail.gone.union(snapshot.deleted_after(state.seq).tolist())
            gone = [row for row in died if row <= state.seq]  # later ones were never in this index
            dead = state.dead + len(gone)
            foreign = state.folder is not None and self._folder is None  # another process's files, open to read only
            is_lost = self._broken or foreign or state.seq == 0 or state.tail.seq < snapshot.floor
            if is_lost or dead > _DEAD_SHARE * state.searcher.num_docs:
                state, gone, dead = self._empty(self._folder), [], 0
            self._broken = True
            with writing(self._folder):
                written = self._write(state, snapshot, gone, advance)
            self._broken = False
            words = {name: state.words[name] + written[name] for name in LENGTHS}
            with self._swapping:
                tail = self._state.tail.after(snapshot.seq, died)
                self._state = _State.of(snapshot.seq, state.index, state.folder, dead, words, tail)
                return self._state

    def adopt(self, built: _State, gone: NDArray[np.int64]) -> None:
        """Do nothing: what was committed serves already."""

    def _most(self, state: _State) -> int:
        """Return how many changes the tail may hold."""
        return int(min(_TAIL_CHANGES, state.searcher.num_docs // _TAIL_SHARE))

    def _fits(self, snapshot: Snapshot) -> bool:
        """Tell whether the changes up to the snapshot's can go to the tail: they are few, or a commit is under way."""
        state = self._state
        if self._broken and not self._writing.locked():
            return False
        is_known = state.seq > 0 and state.tail.seq >= snapshot.floor
        changes = len(state.tail) + snapshot.seq - state.tail.seq
        return is_known and (changes <= self._most(state) or self._writing.locked())

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
        state, repeated = self._state, Counter(self._analyzer.words(query))
        if not repeated or k <= 0:
            return no_candidates()
        weights = {("body", word): float(times) for word, times in repeated.items()}
        if title_weight > 0:
            weights |= {("title", word): times * title_weight for word, times in repeated.items()}
        sequences = [words for phrase in phrases for words in self._analyzer.sequences(phrase)]
        limits = [] if condition is None else [filter_query(_SCHEMA, condition)]
        limits += [_side_by_side(sequence) for sequence in sequences]
        constants = constants or self._constants
        if not state.tail:
            return _committed(state, weights, limits, k, constants)
        in_tail, boosts = _frequencies(state, weights)
        boosted = {each: weight * boosts[each] for each, weight in weights.items()}
        found = _committed(state, boosted, limits, k + len(state.tail.gone), constants)
        own = state.tail.scores(in_tail, {name: state.mean_length(name) for name in LENGTHS}, constants)
        rows = [row for row, score in own.items() if score > 0 and state.tail.matches(row, condition, sequences)]
        alive = np.array([row not in state.tail.gone for row in found.rows.tolist()], np.bool_)
        return best(
            np.concatenate([found.rows[alive], np.array(rows, np.int64)]),
            np.concatenate([found.scores[alive], np.array([own[row] for row in rows], np.float32)]),
            k,
        )

    def marks(self) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """Return the live rows, ascending, and the mark of the content that each was indexed with."""
        state = self._state
        searcher, tail = state.searcher, state.tail
        hits = searcher.search(Query.all_query(), limit=max(1, searcher.num_docs), count=False).hits
        rows = _rows(searcher, hits)
        marks = np.array(searcher.fast_field_values("mark", [address for _, address in hits]), dtype=np.uint64)
        alive = ~np.isin(rows, np.fromiter(tail.gone, np.int64, len(tail.gone)))
        new = [document.mark for document in tail.documents.values()]
        rows = np.concatenate([rows[alive], np.fromiter(tail.documents, np.int64, len(new))])
        marks = np.concatenate([marks[alive], np.array(new, np.uint64)])
        order = np.argsort(rows)
        return rows[order], marks[order]

    def rows_where(self, condition: Condition) -> NDArray[np.int64]:
        """Return the live rows for which the condition holds, ascending."""
        state = self._state
        rows, tail = _all_rows(state.searcher, filter_query(_SCHEMA, condition)), state.tail
        if tail:
            hidden = np.fromiter(tail.gone, np.int64, len(tail.gone))
            rows = np.concatenate([rows[~np.isin(rows, hidden)], np.array(tail.rows_where(condition), np.int64)])
        return np.sort(rows)

    def count_where(self, condition: Condition) -> int:
        """Return the number of live rows for which the condition holds."""
        state = self._state
        wanted = filter_query(_SCHEMA, condition)
        found = int(state.searcher.search(wanted, limit=1, count=True).count)
        if state.tail.gone:
            gone = Query.term_set_query(_SCHEMA, "row", sorted(state.tail.gone))
            found -= int(state.searcher.search(_all_of([wanted, gone]), limit=1, count=True).count)
        return found + len(state.tail.rows_where(condition))

    @property
    def keeps_files(self) -> bool:
        """Tell whether it has seen a change."""
        return self.seq > 0

    def save(self, *, durable: bool) -> None:
        """Vouch for the files on disk as they are now."""
        state, folder = self._state, self._folder
        if folder is None or state.folder is None:
            return
        with writing(folder):
            self._save(folder, state.folder, state, durable=durable)

    @property
    def nbytes(self) -> int:
        """Return the bytes of its files, which are mapped, and of what Tantivy holds beside; a guess in memory."""
        state = self._state
        files = sum(mark.nbytes for mark in self._marks.values())
        documents = files if state.folder is not None else _DOCUMENT_NBYTES * state.searcher.num_docs
        return _OPEN_NBYTES + documents + state.postings.nbytes

    def info(self) -> dict[str, object]:
        """Return counts, and whether the index was read from disk or why not."""
        state = self._state
        return {
            "kind": "tantivy",
            "documents": self.count_where(AllOf(())),
            "segments": state.searcher.num_segments,
            "tail": len(state.tail),
            "tombstones": state.dead + sum(row <= state.seq for row in state.tail.gone),
            "origin": self._origin,
        }

    def close(self) -> None:
        """Let go of the files."""
        self._state = self._empty(None)

    def _save(self, folder: Path, build: Path, state: _State, *, durable: bool) -> None:
        if self._saved_seq != state.seq:
            names = [f"{build.name}/{p.name}" for p in build.iterdir() if p.name not in _LOCKS]
            segments = {name: mark for name, mark in self._marks.items() if not name.endswith(".json")}
            self._marks = manifest.mark_files(folder, names, segments)
            self._saved_seq, self._durable = state.seq, False
            self._manifest(state).save(folder / manifest.NAME, durable=False)
            (folder / manifest.CHANGING).unlink(missing_ok=True)
            self._remove_others(folder, build)
        if durable and not self._durable:
            fsync_folder(build)  # Tantivy has made the files' contents last
            self._manifest(state).save(folder / manifest.NAME, durable=True)
            self._durable = True

    def _write(self, state: _State, snapshot: Snapshot, gone: list[int], advance: Advance) -> Counter[str]:
        """Commit what came after the state, and return how many words that is, by field."""
        bulk = snapshot.inserted_after(state.seq) > _BULK_ROWS
        writer = state.index.writer(heap_size=_BULK_HEAP_NBYTES if bulk else _HEAP_NBYTES, num_threads=1)
        written: Counter[str] = Counter()
        _delete(writer, gone)
        for batch in snapshot.texts(state.seq):
            for text in batch:
                title = self._analyzer.words(text.title) if text.title else []
                words = {"body": self._analyzer.words(text.text), "title": title}
                writer.add_document(_document(text, words))
                for name, having in words.items():
                    written[name] += len(having)
            advance(len(batch))
        if self._folder is not None:
            (self._folder / manifest.CHANGING).touch()
        writer.commit()
        writer.wait_merging_threads()  # also gives the writer's memory and lock back
        if self._folder is not None:
            failpoints.reach("lexical.after_commit")
        state.index.reload()
        return written

    def _empty(self, folder: Path | None) -> _State:
        """Return a new, empty index, in a folder of its own below `folder` or in memory."""
        if folder is not None:
            folder = next(path for number in self._names if not (path := folder / f"build-{number}").exists())
            with writing(folder):
                folder.mkdir(parents=True)
                index = tantivy.Index(_SCHEMA, path=str(folder))
        else:
            index = tantivy.Index(_SCHEMA)
        return _State.of(0, index, folder, 0, dict.fromkeys(LENGTHS, 0), Tail(0))

    def _load(self, folder: Path) -> str:
        found = manifest.load(folder / manifest.NAME, lineage=self._lineage, layout=self._layout)
        if isinstance(found, str):
            if found != manifest.MISSING:
                _log.warning("index of words in %r is built again: %s", str(folder), found)
            return f"built anew: {found}"
        build = folder / next(iter(found.files)).partition("/")[0]
        try:
            index = self._opened(build)
        except (ValueError, OSError) as exc:  # the files went away since they were verified
            return f"built anew: {exc}"
        self._marks, self._saved_seq = dict(found.files), found.seq
        dead, words = found.fields["dead"], {name: found.fields[name] for name in LENGTHS}
        self._state = _State.of(found.seq, index, build, dead, words, Tail(found.seq))
        return f"loaded at change {found.seq}"

    def _opened(self, build: Path) -> Any:  # noqa: ANN401 -- Tantivy's own type
        try:
            return tantivy.Index.open(str(build))
        except (ValueError, OSError):
            if self._folder is not None:
                raise
        # Tantivy makes a lock's file even to read. On media that can't be written it is led there by links.
        links = Path(tempfile.mkdtemp(prefix="vectorsearch-"))
        weakref.finalize(self, shutil.rmtree, links, ignore_errors=True)
        for path in build.iterdir():
            if path.name not in _LOCKS:
                (links / path.name).symlink_to(path.resolve())
        return tantivy.Index.open(str(links))

    def _manifest(self, state: _State) -> manifest.Manifest:
        lineage = self._lineage.mark(state.seq)
        return manifest.Manifest(lineage, self._layout, state.seq, self._marks, {"dead": state.dead, **state.words})

    @staticmethod
    def _remove_others(folder: Path, kept: Path) -> None:
        for path in folder.iterdir():
            if path.name not in (kept.name, manifest.NAME):
                shutil.rmtree(path, ignore_errors=True)


def _committed(
    state: _State, weights: Mapping[tuple[str, str], float], limits: Sequence[Any], k: int, constants: BM25
) -> Candidates:
    """Return the `k` rows of the committed index that match best, those included that have died since."""
    k = min(k, state.searcher.num_docs)  # Tantivy allocates for all k, and ends the process where it can't
    if k <= 0:
        return no_candidates()
    if constants != _TANTIVYS:
        rows, scores = state.postings.scores(weights, constants)
        if limits:
            kept = np.isin(rows, _all_rows(state.searcher, _all_of([*limits])), assume_unique=True)
            rows, scores = rows[kept], scores[kept]
        return best(rows, scores, k)
    wanted = Query.boolean_query([(Occur.Should, _boosted(_term(*each), w)) for each, w in weights.items()])
    return _top(state.searcher, _all_of([wanted, *limits]) if limits else wanted, k)


def _frequencies(
    state: _State, weights: Mapping[tuple[str, str], float]
) -> tuple[dict[tuple[str, str], float], dict[tuple[str, str], float]]:
    """Return what each word weighs in the tail, idf included, and what its score in the index is multiplied by.

    So both go by the frequencies of index and tail together.
    """
    tail, in_tail, boosts = state.tail, {}, {}
    documents = state.documents + len(tail.documents)
    for (name, word), weight in weights.items():
        frequency = int(state.searcher.doc_freq(name, word))
        together = idf(documents, frequency + tail.frequency(name, word))
        in_tail[name, word] = weight * together
        boosts[name, word] = together / idf(state.documents, frequency)
    return in_tail, boosts


def _document(text: IndexedText, words: Mapping[str, Sequence[str]]) -> Any:  # noqa: ANN401 -- Tantivy's own type
    document = tantivy.Document()
    document.add_unsigned("row", text.row)
    document.add_unsigned("mark", text.mark)
    for name, having in words.items():
        document.add_unsigned(LENGTHS[name], len(having))
        document.add_text(name, " ".join(having))
    for term in metadata_terms(text.metadata):
        document.add_text("terms", term)
    return document


def _all_of(queries: list[Any]) -> Any:  # noqa: ANN401 -- Tantivy's own type
    return Query.boolean_query([(Occur.Must, query) for query in queries])


def _all_rows(searcher: Any, query: Any) -> NDArray[np.int64]:  # noqa: ANN401 -- Tantivy's own types
    return _rows(searcher, searcher.search(query, limit=max(1, searcher.num_docs), count=False).hits)


def _term(name: str, value: str | int) -> Any:  # noqa: ANN401 -- Tantivy's own type
    return Query.term_query(_SCHEMA, name, value, index_option="basic" if name in ("row", "terms") else "freq")


def _boosted(query: Any, weight: float) -> Any:  # noqa: ANN401 -- Tantivy's own type
    return query if weight == 1 else Query.boost_query(query, float(weight))


def _side_by_side(words: list[str]) -> Any:  # noqa: ANN401 -- Tantivy's own type
    query = _term("body", words[0]) if len(words) == 1 else Query.phrase_query(_SCHEMA, "body", [*words])
    return Query.const_score_query(query, 0.0)


def _delete(writer: Any, rows: list[int]) -> None:  # noqa: ANN401 -- Tantivy's own type
    for chunk in _chunks(rows, _DELETED_AT_ONCE):
        writer.delete_documents_by_query(Query.term_set_query(_SCHEMA, "row", chunk))


def _chunks(rows: Iterable[int], size: int) -> Iterator[list[int]]:
    rows = iter(rows)
    while chunk := list(islice(rows, size)):
        yield chunk


def _top(searcher: Any, query: Any, k: int) -> Candidates:  # noqa: ANN401 -- Tantivy's own types
    """Return the `k` best, ties by row. Tantivy cuts a tie by segment, so it is asked again until no tie is cut."""
    limit = 4 * k + 24  # asking for some more costs a tenth of asking again
    while True:
        hits = searcher.search(query, limit=limit, count=False).hits
        if len(hits) < limit or hits[-1][0] < hits[k - 1][0]:
            break
        limit *= 4
    if len(hits) > k:
        last = hits[k - 1][0]
        hits = list(takewhile(lambda hit: hit[0] >= last, hits))
    return best(_rows(searcher, hits), np.array([score for score, _ in hits], dtype=np.float32), k)


def _rows(searcher: Any, hits: list[Any]) -> NDArray[np.int64]:  # noqa: ANN401 -- Tantivy's own types
    return np.array(searcher.fast_field_values("row", [address for _, address in hits]), dtype=np.int64)
