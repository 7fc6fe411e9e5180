"""Everything that `rerank` can ask for, through a database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import vectorsearch as vs
from backends.errors import InvalidInput
from rerank import RerankError

from ...conftest import RERANKER, fake_backend

if TYPE_CHECKING:
    from ...conftest import OpenDatabase

WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa"]


@pytest.fixture
def db(open_database: OpenDatabase) -> vs.Database:
    """Ten documents without an embedder: lexical search for "word" finds d0 first and d9 last."""
    database = open_database(embed=None)
    database.add(
        {
            "id": f"d{i}",
            "title": WORDS[i],
            "text": "word " * (20 - i) + "other " * i,
            "metadata": {"abstract": f"about {WORDS[i]}"} if i % 2 else {"abstract": 7},
        }
        for i in range(10)
    )
    return database


def ids(result: vs.SearchResult) -> list[str]:
    return [hit.id for hit in result]


def reversing(_query: str, texts: list[str]) -> list[float]:
    """Put the first stage's last first."""
    return [float(i) for i in range(len(texts))]


def broken(_query: str, _texts: list[str]) -> list[float]:
    raise RuntimeError("no")


def test_spec_means_the_same_as_the_arguments(db: vs.Database) -> None:
    """`Rerank(model, depth=…)` is `rerank=model, rerank_depth=…`."""
    plain = db.search("word", rerank=reversing, rerank_depth=4)
    spec = db.search("word", rerank=vs.Rerank(reversing, depth=4))
    assert ids(plain) == ids(spec) == ["d3", "d2", "d1", "d0", "d4", "d5", "d6", "d7", "d8", "d9"]


def test_dear_model_decides_among_what_the_cheap_one_leaves(db: vs.Database) -> None:
    """A cascade's stages each read the best of the one before; every hit has its last stage's score."""
    asked: list[int] = []

    def dear(query: str, texts: list[str]) -> list[float]:
        asked.append(len(texts))
        return reversing(query, texts)

    cascade = vs.Rerank(cascade=[vs.Rerank(reversing, depth=8), vs.Rerank(dear, depth=3)])
    result = db.search("word", rerank=cascade)
    assert asked == [3]
    assert ids(result) == ["d5", "d6", "d7", "d4", "d3", "d2", "d1", "d0", "d8", "d9"]
    assert [hit.score for hit in result[:4]] == [2.0, 1.0, 0.0, 4.0]
    assert [stage.stage for stage in result.stats][-2:] == ["rerank.1", "rerank.2"]


def test_cheap_order_stays_when_the_dear_stage_fails(db: vs.Database) -> None:
    """S43: a stage of a cascade that fails leaves the order that the others make, and is named."""
    first = db.search("word", rerank=vs.Rerank(cascade=[reversing, vs.Rerank(broken, depth=3)]), min_score=5)
    assert ids(first) == ids(db.search("word", rerank=reversing))
    assert first.degraded == ("rerank.2:error", "min_score:skipped")
    second = db.search("word", rerank=vs.Rerank(cascade=[broken, vs.Rerank(reversing, depth=3)]))
    assert ids(second)[:4] == ["d2", "d1", "d0", "d3"]
    assert second.degraded == ("rerank.1:error",)


def test_next_in_a_chain_answers_when_one_fails(db: vs.Database) -> None:
    """A list is a fallback chain: the first that can answers, and the result says that it wasn't the first."""
    result = db.search("word", rerank=[broken, reversing])
    assert ids(result) == ids(db.search("word", rerank=reversing))
    assert result.degraded == ("rerank:fallback",)
    assert [(stage.model, bool(stage.error)) for stage in result.stats if stage.stage == "rerank"] == [
        ("broken", True),
        ("reversing", False),
    ]
    assert db.search("word", rerank=[broken, broken]).degraded == ("rerank:error",)
    assert db.search("word", rerank=[reversing, broken]).degraded == ()
    with pytest.raises(RerankError):
        db.search("word", rerank=[broken, broken], on_rerank_error="raise")


def test_chain_begins_with_what_fits(open_database: OpenDatabase) -> None:
    """A model that can never fit is passed over before anything runs, and the plan says so."""
    db = open_database(embed=None, budget_nbytes=10)
    db.add([{"id": "a", "text": "word"}])
    result = db.search("word", rerank=[RERANKER, reversing])
    assert result.plan.left_out == ("rerank:fallback",)
    assert result[0].score_kind == "rerank"


def test_min_score_drops_by_rerank_score(db: vs.Database) -> None:
    """Hits below it go, hits that the reranker didn't read aren't judged, and what is left is still in order."""
    assert ids(db.search("word", rerank=reversing, min_score=7)) == ["d9", "d8", "d7"]
    result = db.search("word", rerank=reversing, rerank_depth=3, min_score=1)
    assert ids(result)[:3] == ["d2", "d1", "d3"]
    assert [stage.candidates_out for stage in result.stats if stage.stage == "min_score"] == [9]
    assert ids(db.search("word", k=2, rerank=reversing, rerank_depth=3, min_score=99)) == []


def test_min_score_is_skipped_when_the_reranker_is_left_out(db: vs.Database) -> None:
    """S43: fused scores are never compared with it, and the result says that it was not applied."""
    result = db.search("word", rerank=broken, min_score=7)
    assert ids(result) == ids(db.search("word"))
    assert result.degraded == ("rerank:error", "min_score:skipped")


def test_field_is_read_in_the_texts_place(db: vs.Database) -> None:
    """A reranker reads the field that it is told to; those without it come after the others, and are reported."""
    seen: list[list[str]] = []

    def noting(_query: str, texts: list[str]) -> list[float]:
        seen.append(texts)
        return [1.0] * len(texts)

    db.search("word", k=3, rerank=noting, rerank_field="title", rerank_depth=3)
    db.search("word", k=3, rerank=vs.Rerank(noting, field="title", depth=1))
    result = db.search("word", rerank=noting, rerank_field="abstract")
    assert seen == [WORDS[:3], WORDS[:1], [f"about {word}" for word in WORDS[1::2]]]
    assert ids(result) == [f"d{i}" for i in (1, 3, 5, 7, 9, 0, 2, 4, 6, 8)]
    assert result.degraded == ("rerank:missing-scores",)
    assert "5 documents have no text 'abstract'" in (result.stats[-1].error or "")


def test_blend_weighs_both_orders(db: vs.Database) -> None:
    """0 is the first stage's order, 1 the reranker's, and between them z-scores are added; every score is shown."""
    plain, reranked = ids(db.search("word")), ids(db.search("word", rerank=reversing))
    assert ids(db.search("word", rerank=vs.Rerank(reversing, blend=0.0))) == plain
    assert ids(db.search("word", rerank=vs.Rerank(reversing, blend=1.0))) == reranked
    result = db.search("word", rerank=vs.Rerank(reversing, blend=0.7))
    lexical = np.array([hit.scores["lexical"] for hit in result])
    logits = np.array([hit.scores["rerank"] for hit in result])
    z = [(scores - scores.mean()) / scores.std() for scores in (logits, lexical)]
    assert [hit.score for hit in result] == pytest.approx((0.7 * z[0] + 0.3 * z[1]).tolist(), abs=1e-5)
    assert {hit.score_kind for hit in result} == {"blend"}


def test_long_documents_count_as_their_best_passage(open_database: OpenDatabase) -> None:
    """A document whose end answers the query comes first if its windows are read, though its head says nothing."""
    db = open_database(embed=None, rerank=RERANKER)
    db.add([{"id": "long", "text": "filler pattern " * 300 + "needle"}, {"id": "short", "text": "pattern thing"}])
    assert ids(db.search("needle pattern", rerank=vs.Rerank(max_length=64)))[0] == "short"
    assert ids(db.search("needle pattern", rerank=vs.Rerank(max_length=64, passages=vs.Passages(40, 20))))[0] == "long"
    result = db.search("needle pattern", rerank=vs.Rerank(passages=True))
    assert result[0].score > 4


def test_scores_are_remembered_when_asked_for(open_database: OpenDatabase) -> None:
    """A second search for the same needs no model, other depths and queries do; without the option nothing is kept."""
    for nbytes, inferences in ((0, 2), (100_000, 1)):
        fake = fake_backend()
        db = open_database(embed=None, rerank=RERANKER, fake=fake, rerank_cache_nbytes=nbytes)
        db.add({"id": f"d{i}", "text": f"word w{i}"} for i in range(5))
        before = db.search("word w3", rerank=True)
        first = fake.inferred
        after = db.search("word w3", rerank=True)
        assert ids(after) == ids(before)
        assert fake.inferred - first == inferences - 1
        assert after.stats[-1].cached == (5 if nbytes else 0)
    with pytest.raises(InvalidInput, match="rerank_cache_nbytes is -1"):
        open_database(rerank_cache_nbytes=-1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rerank": []}, "empty list"),
        ({"rerank": vs.Rerank(reversing, depth=3), "rerank_depth": 4}, "depth is given twice"),
        ({"rerank": vs.Rerank(reversing, min_score=3), "min_score": 4}, "min_score is given twice"),
        ({"min_score": 1}, "nothing reranks"),
        ({"rerank": reversing, "min_score": "high"}, "min_score is 'high'"),
        ({"rerank": reversing, "rerank_field": ""}, "rerank_field is ''"),
        ({"rerank": vs.Rerank(reversing, blend=1.5)}, "blend is 1.5"),
        ({"rerank": vs.Rerank(reversing, max_length=9)}, "max_length is for models by name"),
        ({"rerank": vs.Rerank(reversing, batch=0)}, "batch is 0"),
        ({"rerank": vs.Rerank(reversing, passages=9)}, "passages is 9"),  # type: ignore[arg-type]  # as callers may
        ({"rerank": vs.Rerank(reversing, cascade=[reversing])}, "both a model"),
        ({"rerank": vs.Rerank(cascade=[reversing, reversing])}, "stage 2 of the cascade has depth None"),
        (
            {"rerank": vs.Rerank(cascade=[vs.Rerank(reversing, depth=5), vs.Rerank(reversing, depth=6)])},
            "no more than that one read",
        ),
        ({"rerank": vs.Rerank(cascade="ab")}, "list of stages"),
        ({"rerank": vs.Rerank(cascade=[vs.Rerank(reversing, min_score=1)])}, "give them to the whole"),
    ],
)
def test_spec_is_refused_when_it_can_not_be_meant(db: vs.Database, options: dict[str, Any], message: str) -> None:
    """Each contradiction has an error of its own, before any stage runs."""
    with pytest.raises(InvalidInput, match=message):
        db.search("word", **options)


def test_object_with_the_reranker_protocol_may_raise_anything(db: vs.Database) -> None:
    """Whatever an object of the caller's own raises leaves the first stage's order, and never ends the search."""

    class Odd:
        name = "odd"

        def score_detailed(self, _query: str, _texts: list[str], **_: object) -> object:
            raise KeyError("odd")

    assert db.search("word", rerank=Odd()).degraded == ("rerank:error",)
