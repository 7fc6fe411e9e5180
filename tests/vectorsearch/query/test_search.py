"""Searching: modes, reranking, filters, and what comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from backends.errors import InvalidInput
from rerank import RerankError
from vectorsearch.collection.collection import Collection
from vectorsearch.collection.index.filtering.allowed_rows import AllowedRows
from vectorsearch.models.encoder import Encoder

from ..conftest import DOCS

if TYPE_CHECKING:
    import vectorsearch as vs

    from ..conftest import OpenDatabase


def test_hits_carry_every_stages_score(db: vs.Database) -> None:
    """A hybrid, reranked hit shows the lexical, dense, fused and rerank scores, as plain floats, best logit first."""
    result = db.search("comma separated file", k=2, rerank=True)
    hit = result[0]
    assert (hit.id, hit.rank, hit.score_kind) == ("csv", 1, "rerank")
    assert set(hit.scores) == {"lexical", "dense", "fused", "rerank"}
    assert all(type(score) is float for score in hit.scores.values())
    assert hit.score == hit.scores["rerank"]
    assert [stage.stage for stage in result.stats] == ["lexical", "encode", "dense", "fuse", "fetch", "rerank"]
    assert result.degraded == ()


def test_a_hit_reads_as_its_document_does(db: vs.Database) -> None:
    """What trains or distils a reranker from hits reads what a search's reranker reads."""
    db.add([{"id": "titled", "title": "Zebra", "text": "stripes"}, {"id": "plain", "text": "zebra"}])
    read = {hit.id: hit.full_text for hit in db.search("zebra", mode="lexical")}
    assert read == {"titled": "Zebra stripes", "plain": "zebra"}


def test_stats_say_cold_once_when_a_model_is_first_used(db: vs.Database) -> None:
    """The first rerank waits for its model, the second finds it."""

    def cold() -> bool:
        return next(stage.cold for stage in db.search("pattern", rerank=True).stats if stage.stage == "rerank")

    assert [cold(), cold()] == [True, False]


def test_thirteenth_hit_comes_first_when_the_reranker_prefers_it(open_database: OpenDatabase) -> None:
    """S1: depth and k are apart: what stage one ranks 13th may come first for k=5, rerank_depth=20."""
    db = open_database(embed=None)
    db.add({"id": f"d{i:02}", "text": "word " * (30 - i) + "other " * i} for i in range(25))
    first_stage = [hit.id for hit in db.search("word", mode="lexical", k=20)]
    wanted = first_stage[12]

    def prefers(_query: str, texts: list[str]) -> list[float]:
        assert len(texts) == 20
        text = db.get(wanted)
        return [float(text is not None and candidate == text.text) for candidate in texts]

    hits = db.search("word", mode="lexical", k=5, rerank=prefers, rerank_depth=20)
    assert hits[0].id == wanted
    assert len(hits) == 5
    assert [hit.id for hit in hits[1:]] == first_stage[:4]


def test_hits_past_the_depth_follow_in_first_stage_order(db: vs.Database) -> None:
    """What the reranker did not read keeps its order behind what it did, and its own kind of score."""
    plain = [hit.id for hit in db.search("pattern match file", k=4)]
    reranked = db.search("pattern match file", k=4, rerank=lambda _q, texts: [1.0] * len(texts), rerank_depth=1)
    assert [hit.id for hit in reranked] == plain
    assert [hit.score_kind for hit in reranked] == ["rerank", "fused", "fused", "fused"]


def test_reranker_is_not_called_when_there_is_nothing_to_rerank(open_database: OpenDatabase) -> None:
    """S30: no hits give `[]` without calling the reranker; one hit is reranked as one."""
    db = open_database(embed=None)
    calls: list[int] = []

    def counting(_query: str, texts: list[str]) -> list[float]:
        calls.append(len(texts))
        return [0.5] * len(texts)

    assert list(db.search("nothing", rerank=counting)) == []
    assert calls == []
    db.add([{"id": "one", "text": "something"}])
    assert [hit.score for hit in db.search("something", rerank=counting)] == [0.5]
    assert calls == [1]


@pytest.mark.parametrize("mode", ["hybrid", "dense", "lexical"])
def test_filter_applies_to_every_branch(db: vs.Database, mode: str) -> None:
    """S27: with a filter, no retriever brings a document that doesn't match it."""
    hits = db.search("pattern file document", mode=mode, filter={"kind": "m"})
    assert {hit.id for hit in hits} == {"re", "glob"}


def test_texts_keep_rank_order(db: vs.Database) -> None:
    """S52: texts are fetched in one query and still come in the hits' order."""
    for hit in db.search("replace files that match a comma separated pattern", k=4):
        assert hit.text == next(doc["text"] for doc in DOCS if doc["id"] == hit.id)


def test_negative_cosine_is_returned(open_database: OpenDatabase) -> None:
    """S67: a document that points the other way is a hit with a negative score."""
    db = open_database(embed=None)
    db.add([{"id": "away", "text": "", "vector": [-1.0, 0.0]}])
    assert db.search(vector=[1.0, 0.0])[0].score == pytest.approx(-1.0)


def test_own_vectors_are_searched_when_there_is_no_embedder(open_database: OpenDatabase) -> None:
    """S34: vectors of any length rank by cosine, at most 1, and the caller's array is unchanged."""
    db = open_database(embed=None)
    db.add([{"id": "far", "text": "", "vector": [100.0, 100.0]}, {"id": "near", "text": "", "vector": [0.02, 0.0]}])
    query = np.array([5.0, 0.0], dtype=np.float32)
    hits = db.search(vector=query)
    assert [hit.id for hit in hits] == ["near", "far"]
    assert hits[0].score <= 1.0
    assert query.tolist() == [5.0, 0.0]


def test_vector_takes_the_encoders_place(db: vs.Database) -> None:
    """A query with a vector is not embedded."""
    vector = db.get("re").vector  # type: ignore[union-attr]  # it was added above
    result = db.search("pattern", vector=vector)
    assert "encode" not in [stage.stage for stage in result.stats]
    assert result[0].id == "re"


def test_weights_shift_the_fusion(db: vs.Database) -> None:
    """A weight of zero on one list leaves the other's order."""
    lexical = [hit.id for hit in db.search("match a pattern", mode="lexical")]
    weighted = [hit.id for hit in db.search("match a pattern", weights={"dense": 0.0})]
    assert weighted[: len(lexical)] == lexical


def test_failing_reranker_degrades_or_raises_as_asked(db: vs.Database) -> None:
    """The fused order stays when a reranker fails, and says so; or the error is raised, as asked."""

    def broken(_query: str, _texts: list[str]) -> list[float]:
        raise RuntimeError("no")

    plain = [hit.id for hit in db.search("pattern")]
    result = db.search("pattern", rerank=broken)
    assert [hit.id for hit in result] == plain
    assert result.degraded == ("rerank:error",)
    assert "RuntimeError" in (result.stats[-1].error or "")
    with pytest.raises(RerankError):
        db.search("pattern", rerank=broken, on_rerank_error="raise")


@pytest.mark.parametrize("score", [float("nan"), float("inf"), float("-inf")])
def test_missing_scores_keep_their_place_and_are_reported(db: vs.Database, score: float) -> None:
    """Where no score is a finite number the first stage's order stays; or it raises, as asked."""

    def wordless(_query: str, texts: list[str]) -> list[float]:
        return [score] * len(texts)

    plain = [hit.id for hit in db.search("pattern match", mode="lexical")]
    result = db.search("pattern match", mode="lexical", rerank=wordless)
    assert [hit.id for hit in result] == plain
    assert result.degraded == ("rerank:missing-scores",)
    with pytest.raises(RerankError, match="gave no score for 2 of 2 texts"):
        db.search("pattern match", mode="lexical", rerank=wordless, on_rerank_error="raise")


def test_trec_lines_strictly_decrease(db: vs.Database) -> None:
    """S37: exported scores strictly decrease, so that no tool reorders ties."""
    lines = [line.split() for line in db.search("pattern", k=4).to_trec("q1").splitlines()]
    scores = [float(line[4]) for line in lines]
    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) == len(scores)
    assert [line[3] for line in lines] == ["1", "2", "3", "4"]


def test_explain_prints_the_plan_and_what_happened(db: vs.Database, capsys: pytest.CaptureFixture[str]) -> None:
    """Explain gives the tree before anything runs; analyze and explain=True set what happened beside it."""
    before = str(db.explain("pattern", rerank=True))
    assert "test-reranker" in before
    assert "cold" in before
    assert "ms" not in before
    assert db.models().counters.lazy_loads == 1  # the embedder, when the documents were added
    analyzed = db.explain("pattern", rerank=True, analyze=True)
    assert analyzed.result is not None
    assert "out," in str(analyzed)
    db.search("pattern", explain=True)
    assert capsys.readouterr().out.startswith("search  mode=hybrid")


def test_result_is_a_sequence_of_plain_values(db: vs.Database) -> None:
    """A result slices as a list does, and its dictionary is fit for JSON."""
    result = db.search("pattern", k=3)
    assert len(result) == 3
    assert [hit.rank for hit in result[:2]] == [1, 2]
    assert result.to_dict()["hits"][0]["id"] == result[0].id
    assert "3 hits" not in repr(result)
    assert result[0].id in repr(result)


@pytest.mark.parametrize("bad_id", ["two words", "tab\tid", "line\nid"])
def test_trec_run_is_refused_when_an_id_would_break_its_line(open_database: OpenDatabase, bad_id: str) -> None:
    """White space separates a run's columns, so an id that holds some is refused by name, and never written."""
    db = open_database()
    db.add([{"id": bad_id, "text": "a pattern"}])
    with pytest.raises(InvalidInput, match="document id"):
        db.search("pattern").to_trec("q1")
    with pytest.raises(InvalidInput, match="query id"):
        db.search("pattern").to_trec(bad_id)


def test_stop_words_alone_get_no_credit(db: vs.Database) -> None:
    """S5: a query whose words match nothing is no hit of lexical search, and leaves a hybrid one to the vectors."""
    assert list(db.search("the of and", mode="lexical")) == []
    assert list(db.search("zebra", mode="lexical")) == []
    vector = db.get("re").vector  # type: ignore[union-attr]  # it was added above
    dense = [hit.id for hit in db.search(vector=vector)]
    hybrid = db.search("the of and", vector=vector)
    assert [hit.id for hit in hybrid] == dense
    assert all("lexical" not in hit.scores for hit in hybrid)


def test_stats_tell_what_really_ran(db: vs.Database) -> None:
    """S45: backend and device are what the loaded model says of itself, not what was planned."""
    stats = {stage.stage: stage for stage in db.search("pattern", rerank=True).stats}
    for stage in ("encode", "rerank"):
        assert stats[stage].device == "cpu:fake"
        assert (stats[stage].backend or "").startswith("fake-")
    assert stats["lexical"].device is None


def test_explain_tells_unknown_fields_from_no_match(db: vs.Database) -> None:
    """A filter on a field that no document has is pointed out; one that just lets nothing through is counted."""
    assert "lets 0 of 4 through" in str(db.explain("pattern", filter={"kind": "x"}))
    told = str(db.explain("pattern", filter={"kinds": "f"}, analyze=True))
    assert "no document has what the filter speaks of: kinds" in told


def test_highlights_say_where_the_words_are(db: vs.Database) -> None:
    """Offsets are of the hit's own text, and cover every form that counts as the query's word; only if asked for."""
    hit = db.search("patterns files", k=4, highlight=True)[0]
    assert [hit.text[start:end] for start, end in hit.highlights] == ["files", "pattern"]
    assert db.search("patterns files")[0].highlights == ()


def test_phrase_must_stand_side_by_side(db: vs.Database) -> None:
    """A phrase is a condition on words, so the search is by words alone, and dense modes refuse it."""
    assert [hit.id for hit in db.search("match pattern", phrases=["files that match"])] == ["glob"]
    assert list(db.search("match pattern", phrases="pattern match")) == []
    with pytest.raises(InvalidInput, match="found by words"):
        db.search("match", phrases=["match a"], mode="hybrid")


def test_title_counts_more_when_it_has_a_weight(open_database: OpenDatabase) -> None:
    """With a weight, a document with the word in its title comes before one that has it twice in its text."""
    db = open_database(embed=None)
    db.add([{"id": "t", "title": "lease", "text": "of a thing"}, {"id": "x", "title": "of", "text": "lease lease"}])
    assert db.search("lease")[0].id == "x"
    assert db.search("lease", title_weight=3.0)[0].id == "t"
    with pytest.raises(InvalidInput, match="title_weight"):
        db.search("lease", title_weight=-1)


@pytest.mark.parametrize(("replaced", "expected"), [(1, ["json", "new"]), (99, ["json"])])
def test_a_document_is_found_when_it_is_replaced_before_it_is_fetched(
    db: vs.Database, monkeypatch: pytest.MonkeyPatch, replaced: int, expected: list[str]
) -> None:
    """S2: it is looked up again, without encoding the query again; if it is replaced each time, that is said."""
    fetch, encode, calls = Collection.fetch, Encoder.encode_query, {"fetch": 0, "encode": 0}

    def fetched(collection: Collection, rows: Any) -> Any:
        calls["fetch"] += 1
        if calls["fetch"] <= replaced:
            db.upsert([{"id": "csv", "text": "new"}])
            db.upsert([{"id": "csv", "text": f"new lines of a file {calls['fetch']}"}])
        return fetch(collection, rows)

    def encoded(encoder: Encoder, *arguments: Any, **options: Any) -> Any:
        calls["encode"] += 1
        return encode(encoder, *arguments, **options)

    db.delete(["re", "glob"])
    monkeypatch.setattr(Collection, "fetch", fetched)
    monkeypatch.setattr(Encoder, "encode_query", encoded)
    result = db.search("lines", mode="dense")
    assert sorted("new" if hit.text.startswith("new") else hit.id for hit in result) == expected
    assert calls == {"fetch": min(replaced + 1, 3), "encode": 1}
    assert [stage.stage for stage in result.stats] == ["encode", "dense", "fetch"]
    assert result.degraded == (() if replaced == 1 else ("fetch:changed",))


@pytest.mark.parametrize(("replaced", "expected"), [(1, 3), (99, 2)])
def test_a_filtered_document_is_found_when_it_is_replaced_beside_the_search(
    db: vs.Database, monkeypatch: pytest.MonkeyPatch, replaced: int, expected: int
) -> None:
    """S2: its old row is allowed and its new one is found; if that happens each time, it is said."""
    allowed, calls = AllowedRows.of, []

    def replacing(rows: AllowedRows, index: Any, condition: Any) -> Any:
        before = allowed(rows, index, condition)
        calls.append(condition)
        if len(calls) <= replaced:
            db.upsert([{"id": "b", "text": f"lines {len(calls)}", "metadata": {"kept": True}}])
        return before

    db.upsert([{"id": i, "text": "lines", "metadata": {"kept": True}} for i in "abc"])
    monkeypatch.setattr(AllowedRows, "of", replacing)
    result = db.search("lines", mode="dense", k=5, filter={"kept": True})
    assert len(result) == expected
    assert result.degraded == (() if replaced == 1 else ("fetch:changed",))


def test_a_list_is_read_on_when_its_best_have_been_deleted_since(
    db: vs.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S2: as many hits as were wanted, while the lists have them."""
    db.upsert([{"id": f"more{i}", "text": "lines of a file"} for i in range(20)])
    fetch, deleted = Collection.fetch, []

    def fetched(collection: Collection, rows: Any) -> Any:
        if not deleted:
            deleted.extend(doc.id for doc in fetch(collection, rows)[:2] if doc is not None)
            db.delete(deleted)
        return fetch(collection, rows)

    monkeypatch.setattr(Collection, "fetch", fetched)
    result = db.search("lines", k=3)
    assert (len(result), result.degraded) == (3, ())
    assert not {hit.id for hit in result} & set(deleted)
