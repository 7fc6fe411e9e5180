"""What was written since a lexical index was committed is found beside it, by the same words, filters and scores."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, Any

import pytest

from backends.text.analyzer import Analyzer
from vectorsearch.collection.collection import Collection, CollectionSettings
from vectorsearch.collection.index.filtering.filters import parse_filter
from vectorsearch.collection.index.lexical.bm25 import BM25
from vectorsearch.collection.index.lexical.lexical_tail import TailPostings, idf, rounded_length
from vectorsearch.collection.index.lexical.lexical_tantivy import TantivyIndex
from vectorsearch.collection.storage.sqlite.store import Store
from vectorsearch.types import Document

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from vectorsearch.types import Candidates

WORDS = [f"w{i}" for i in range(60)]
WAIT_S = 60


def document(number: int, rng: random.Random) -> Document:
    """Give a document of 1 to 60 words."""
    text = " ".join(rng.choices(WORDS, [1 / (i + 1) for i in range(60)], k=rng.randint(1, 60)))
    return Document(f"d{number}", text, title=f"w{number % 7}", metadata={"n": number % 5})


class Indexed:
    """A store of 300 documents and its committed index."""

    def __init__(self, folder: Path) -> None:
        self.rng = random.Random(1)  # noqa: S311 -- a repeatable test, no secret
        self.store = Store(folder / "db", durable=False)
        self.folder = folder / "lexical"
        self.index = TantivyIndex(Analyzer(None), self.folder, lineage=self.store)
        self.store.write([document(i, self.rng) for i in range(300)])
        self.catch_up(build=True)

    def catch_up(self, *, build: bool) -> None:
        """Apply what was written."""
        with self.store.snapshot() as snapshot:
            self.index.catch_up(snapshot, lambda _: None, build=build)

    def change(self) -> None:
        """Add, replace and delete a few documents, and look at them without a commit."""
        self.store.write([document(i, self.rng) for i in range(300, 310)])
        self.store.write([document(i, self.rng) for i in (3, 5, 305)], on_conflict="replace")
        self.store.delete(["d7", "d301"])
        self.catch_up(build=False)

    def ids(self, found: Candidates) -> list[str]:
        """Return the ids of candidates, best first."""
        return [doc.id for doc in self.store.fetch(found.rows.tolist()) if doc is not None]


@pytest.fixture
def indexed(tmp_path: Path) -> Iterator[Indexed]:
    """Give the store and its index."""
    made = Indexed(tmp_path)
    yield made
    made.store.close()


SEARCHES: list[dict[str, Any]] = [
    {},
    {"condition": parse_filter({"n": {"$gte": 3}})},
    {"title_weight": 0.7},
    {"phrases": ["w0 w1"]},
    {"condition": parse_filter({"n": 1}), "phrases": ["w1"], "title_weight": 2.0},
    {"constants": BM25(0.9, 0.4), "title_weight": 0.3},
]


@pytest.mark.parametrize("options", SEARCHES)
@pytest.mark.parametrize("query", ["w0", "w3 w9", "w40 w2 w2", "w59"])
def test_the_same_is_found_when_changes_are_not_committed_yet(
    indexed: Indexed, query: str, options: dict[str, Any]
) -> None:
    """S5: every document that a commit would find, none that has died, and nearly its score: lengths' mean differs."""
    indexed.change()
    assert indexed.index.pending
    before = indexed.index.search(query, 400, **options)
    found = dict(zip(indexed.ids(before), before.scores.tolist(), strict=True))
    indexed.catch_up(build=True)
    assert not indexed.index.pending
    after = indexed.index.search(query, 400, **options)
    wanted = dict(zip(indexed.ids(after), after.scores.tolist(), strict=True))
    assert found == pytest.approx(wanted, rel=0.03)
    assert "d7" not in found
    assert "d301" not in found


@pytest.mark.parametrize("given", [{"n": 3}, {"n": {"$ne": 3}}, {"n": 99}])
def test_rows_are_counted_when_changes_are_not_committed_yet(indexed: Indexed, given: Any) -> None:
    """Filters count new documents and not those that have died."""
    indexed.change()
    condition = parse_filter(given)
    assert condition is not None
    rows, count = indexed.index.rows_where(condition).tolist(), indexed.index.count_where(condition)
    assert count == len(rows)
    indexed.catch_up(build=True)
    assert rows == indexed.index.rows_where(condition).tolist()
    assert indexed.index.info()["documents"] == 308


def test_scores_are_tantivys_own_when_the_average_is_the_same(indexed: Indexed) -> None:
    """The formula of the tail, its rounding of lengths included, gives what the index gives for what is committed."""
    store, index = indexed.store, indexed.index
    store.write([Document(f"long{n}", " ".join(["rare", *["w1"] * n])) for n in (0, 38, 39, 40, 41, 47, 90, 300, 4000)])
    indexed.catch_up(build=True)
    state = index._state
    found = index.search("rare", 20)
    for row, score in zip(found.rows.tolist(), found.scores.tolist(), strict=True):
        (stored,) = store.fetch([row])
        assert stored is not None
        postings = TailPostings().with_rows({row: stored.text.split()})
        weight = idf(state.documents, len(found.rows))
        own = postings.score("rare", weight, state.mean_length("body"), BM25())
        assert own == {row: pytest.approx(score, rel=1e-5)}
    assert [rounded_length(n) for n in (0, 39, 40, 41, 42, 59, 60, 100)] == [0, 39, 40, 40, 42, 56, 60, 96]


def test_changes_are_committed_when_there_are_many(indexed: Indexed) -> None:
    """Beyond a tenth of the index a search takes the time of a commit, as before; below, none is made."""
    indexed.store.write([document(i, indexed.rng) for i in range(300, 320)])
    indexed.catch_up(build=False)
    assert (indexed.index.info()["tail"], indexed.index.outgrown) == (20, True)
    indexed.store.write([document(i, indexed.rng) for i in range(320, 340)])
    indexed.catch_up(build=False)
    assert (indexed.index.info()["tail"], indexed.index.info()["documents"]) == (0, 340)


def test_nothing_is_lost_or_shown_twice_when_a_commit_runs_beside(
    indexed: Indexed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written while another thread commits stays in the tail; what is deleted meanwhile stays hidden."""
    indexed.change()
    reached, opened = threading.Event(), threading.Event()
    write = TantivyIndex._write

    def gated(*arguments: Any) -> Any:
        reached.set()
        assert opened.wait(WAIT_S)
        return write(*arguments)

    monkeypatch.setattr(TantivyIndex, "_write", gated)
    thread = threading.Thread(target=indexed.catch_up, kwargs={"build": True})
    thread.start()
    assert reached.wait(WAIT_S)
    indexed.store.write([Document("later", "w0")])
    indexed.store.write([Document("d302", "nothing")], on_conflict="replace")
    indexed.store.delete(["d9", "d303"])
    indexed.catch_up(build=False)
    beside = indexed.ids(indexed.index.search("w0", 400))
    opened.set()
    thread.join(WAIT_S)
    after = indexed.ids(indexed.index.search("w0", 400))
    assert sorted(beside) == sorted(after)
    assert len(after) == len(set(after))
    assert "later" in after
    assert not {"d9", "d302", "d303", "d7", "d301"} & set(after)
    assert indexed.index.info()["tail"] == 5  # two new rows, and three that have died


def test_the_index_is_built_again_when_a_commit_was_cut_off(indexed: Indexed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files and state may then differ: nothing is found twice."""
    indexed.change()
    document_of = TantivyIndex._write

    def cut(self: TantivyIndex, *arguments: Any) -> Any:
        document_of(self, *arguments)
        raise RuntimeError("cut off")

    monkeypatch.setattr(TantivyIndex, "_write", cut)
    with pytest.raises(Exception, match="cut off"):
        indexed.catch_up(build=True)
    monkeypatch.undo()
    indexed.catch_up(build=False)
    found = indexed.ids(indexed.index.search("w0", 400))
    assert len(found) == len(set(found))
    assert indexed.index.info()["documents"] == 308


def test_a_commit_is_made_beside_searches_when_the_tail_is_large(tmp_path: Path) -> None:
    """S5: searches never wait for it; the files that it leaves are read by the next opening."""
    rng = random.Random(2)  # noqa: S311 -- as above
    with Collection.open(tmp_path / "db", CollectionSettings(language=None)) as collection:
        collection.write([document(i, rng) for i in range(100)])
        collection.refresh()
        for i in range(100, 120):
            collection.write([document(i, rng)])
            assert len(collection.lexical("w0 w1 w2 w3", 500).rows) > 0
        with collection._lexical._without_builder():
            pass
        assert isinstance(tail := collection.upkeep.lexical.info()["tail"], int)
        assert tail < 20
        assert collection.upkeep.verify().ok
    with Collection.open(tmp_path / "db") as collection:
        collection.lexical("w0", 1)
        info = collection.upkeep.lexical.info()
        assert (info["documents"], info["tail"], str(info["origin"]).split()[0]) == (120, 0, "loaded")
