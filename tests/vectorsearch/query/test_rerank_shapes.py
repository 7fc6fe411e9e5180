"""Every shape of reranker that callers may give, in every place that a search has for one."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import vectorsearch as vs
from backends.errors import InvalidInput
from rerank import Cascade, CascadeStage, RerankError, RerankScores, as_reranker
from rerank.base import ask

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..conftest import OpenDatabase

N = 6
LIKES = {0: -4.0, 1: 3.0, 2: -1.0, 3: 9.0, 4: 1.0, 5: -2.0}  # by the text's number: what it should be given
NAN = float("nan")


def number(text: str) -> int:
    """Return a text's number; each text ends with its own."""
    return int(text.rsplit(maxsplit=1)[-1])


@dataclass
class Predicts:
    """Shaped as sentence-transformers' CrossEncoder; `none` are the texts that it gives NaN."""

    none: tuple[int, ...] = ()

    def predict(self, pairs: list[tuple[str, str]]) -> np.ndarray[Any, Any]:
        """Score each pair."""
        return np.array([[NAN if number(text) in self.none else LIKES[number(text)]] for _, text in pairs])


@dataclass
class Ranks:
    """Shaped as a ranking model: dicts, best first, of the best `few`."""

    few: int = N

    def rank(self, _query: str, documents: list[str]) -> list[dict[str, Any]]:
        """Rank the documents."""
        found = [{"corpus_id": at, "score": LIKES[number(text)]} for at, text in enumerate(documents)]
        return sorted(found, key=lambda item: -item["score"])[: self.few]


@dataclass
class Reranks:
    """Shaped as a hosted service: `.results` of objects, best first, of the best `few`."""

    few: int = N

    def rerank(self, query: str, documents: list[str]) -> SimpleNamespace:
        """Rank the documents."""
        found = [
            SimpleNamespace(index=i["corpus_id"], relevance_score=i["score"]) for i in Ranks().rank(query, documents)
        ]
        return SimpleNamespace(results=found[: self.few])


@dataclass
class RanksAsJson:
    """Shaped as a hosted service's JSON."""

    few: int = N

    def rerank(self, query: str, documents: list[str]) -> dict[str, Any]:
        """Rank the documents."""
        found = [
            {"index": item["corpus_id"], "relevance_score": item["score"]} for item in Ranks().rank(query, documents)
        ]
        return {"results": found[: self.few]}


class RerankScoresInOrder:
    """Gives plain scores in the texts' order."""

    def rerank(self, _query: str, documents: list[str]) -> Any:
        """Score the documents."""
        return np.array([LIKES[number(text)] for text in documents])


@dataclass
class Native:
    """Is a `Reranker` by itself, which nothing wraps."""

    none: tuple[int, ...] = ()
    name: str = "native"

    def score_detailed(self, query: str, texts: Sequence[str], *, deadline: object = None) -> RerankScores:
        """Score the texts."""
        assert query or deadline is None
        return RerankScores(np.array([NAN if number(t) in self.none else LIKES[number(t)] for t in texts], np.float32))


def calls(_query: str, texts: list[str]) -> list[float]:
    """Score the texts."""
    return [LIKES[number(text)] for text in texts]


def calls_with_nan(_query: str, texts: list[str]) -> list[float]:
    """Score none but two of the texts."""
    return [LIKES[number(text)] if number(text) in {1, 3} else NAN for text in texts]


REST = (0, 2, 4, 5)
ALL = [Predicts(), Ranks(), Reranks(), RanksAsJson(), RerankScoresInOrder(), Native(), calls]
FEW = [Predicts(REST), Ranks(2), Reranks(2), RanksAsJson(2), Native(REST), calls_with_nan]
BEST_OF_ALL, BEST_OF_FEW = [3, 1, 4, 2, 5, 0], [3, 1, 0, 2, 4, 5]
SHAPES = [*((shape, BEST_OF_ALL) for shape in ALL), *((shape, BEST_OF_FEW) for shape in FEW)]


@pytest.fixture
def db(open_database: OpenDatabase) -> vs.Database:
    """Six documents of which a lexical search for "word" finds d0 first and d5 last."""
    database = open_database(embed=None)
    database.add({"id": f"d{i}", "text": "word " * (9 - i) + f"other {i}"} for i in range(N))
    return database


def broken(_query: str, _texts: list[str]) -> list[float]:
    """Fail."""
    raise RuntimeError("no")


PLACES: dict[str, Callable[[Any], Any]] = {
    "plain": lambda shape: shape,
    "chain": lambda shape: [broken, shape],
    "one stage": lambda shape: vs.Rerank(cascade=[shape]),
    "last stage": lambda shape: vs.Rerank(
        cascade=[lambda _query, texts: [0.0] * len(texts), vs.Rerank(shape, depth=N)]
    ),
    "first stage": lambda shape: vs.Rerank(
        cascade=[shape, vs.Rerank(lambda _query, texts: [0.0] * len(texts), depth=1)]
    ),
    "blend": lambda shape: vs.Rerank(shape, blend=1.0),
    "batches": lambda shape: vs.Rerank(shape, batch=N),
    "passages": lambda shape: vs.Rerank(shape, passages=True),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("shape", "best"), SHAPES, ids=[getattr(shape, "__name__", repr(shape))[:24] for shape, _ in SHAPES]
)
def test_scored_hits_come_first_when_a_reranker_of_any_shape_decides(
    db: vs.Database, shape: object, best: list[int], place: str
) -> None:
    """S1: scored hits by score, then the rest in their prior order, and a missing score is said."""
    result = db.search("word", rerank=PLACES[place](shape), k=N)
    assert [hit.id for hit in result] == [f"d{i}" for i in best]
    is_said = any("missing-scores" in what for what in result.degraded)
    assert is_said == (best == BEST_OF_FEW)
    texts = [f"text {i}" for i in range(N)]
    with pytest.warns(DeprecationWarning, match="Cascade"):
        cascade = Cascade(CascadeStage(as_reranker(shape)))
    ranked = cascade.rank("q", texts)
    assert [item.index for item in ranked] == best


def test_rest_follows_in_its_prior_order_when_each_stage_returns_a_few(db: vs.Database) -> None:
    """S1: in a cascade what a stage rejects follows what it chose, and what no stage chose comes last, as found."""
    rank = vs.Rerank(cascade=[Ranks(4), vs.Rerank(lambda _q, texts: [NAN, *([1.0] * (len(texts) - 1))], depth=3)])
    result = db.search("word", rerank=rank, k=N)
    assert [hit.id for hit in result] == ["d1", "d4", "d3", "d2", "d0", "d5"]
    assert result.degraded == ("rerank.1:missing-scores", "rerank.2:missing-scores")


@dataclass
class Gives:
    """Ranks as it is told."""

    items: list[Any]

    def rank(self, _query: str, _documents: list[str]) -> list[Any]:
        """Give what it was made with."""
        return self.items


def item(index: object, score: object = 1.0) -> dict[str, Any]:
    """Return a ranked item."""
    return {"index": index, "score": score}


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([item(0), item(0, 2.0)], "text 0 twice"),
        ([item(-1)], "text -1, and there are 6"),
        ([item(6)], "text 6, and there are 6"),
        ([item(0.5)], "text 0.5"),
        ([item("0")], "without a number as corpus_id or index"),
        ([item(True)], "without a number"),
        ([item(0, "0.9")], "without a number as score"),
        ([{"index": 0}], "without a number as score"),
        ([(0, 0.5)], "without a number"),
        ([], "0 scores for 6"),
        ([1.0] * 5, "5 scores for 6"),
        ([1.0] * 7, "7 scores for 6"),
    ],
)
def test_ranking_is_refused_when_it_is_none_of_these_texts(db: vs.Database, items: list[Any], message: str) -> None:
    """S1: a text ranked twice, or that isn't there, too few scores or too many, leave the prior order, and say so."""
    result = db.search("word", rerank=Gives(items), k=N)
    assert [hit.id for hit in result] == [f"d{i}" for i in range(N)]
    assert result.degraded == ("rerank:error",)
    assert message in (result.stats[-1].error or "")


@pytest.mark.parametrize("scores", [[1.0] * 5, [1.0] * 7, [["1"]] * 6, ["1"] * 6, [[1.0, 2.0]] * 3, None, {1: 2}])
def test_native_reranker_is_refused_when_it_gives_another_number(db: vs.Database, scores: Any) -> None:
    """S1: a caller's own `Reranker`, which nothing wraps, is held to one score for each text as well."""
    native = Native()
    native.score_detailed = lambda *_, **__: RerankScores(scores)  # type: ignore[method-assign]  # what it gives
    assert db.search("word", rerank=native).degraded == ("rerank:error",)
    with pytest.raises(RerankError, match="native"):
        ask(native, "q", ["a"] * N)


def test_largest_score_is_first_when_float32_can_not_hold_it() -> None:
    """S1: a number beyond float32 is the largest there is, and infinity, which is no number, is no score."""
    scores = as_reranker(lambda _q, _t: [1e300, 2.0, float("inf"), -1e300]).score_detailed("q", ["a"] * 4).scores
    assert np.argsort(-scores).tolist() == [0, 1, 3, 2]
    assert np.isnan(scores).tolist() == [False, False, True, False]


@pytest.mark.parametrize("kind", [np.float32, np.float64, int])
def test_a_masked_score_is_none_when_an_array_has_a_mask(kind: type) -> None:
    """S1: what lies under a mask is no score, whatever its type: it doesn't place the hit."""
    masked = np.ma.masked_array(np.array([9, 1, 2], dtype=kind), mask=[True, False, False])
    scores = as_reranker(lambda _q, _t: masked).score_detailed("q", ["a"] * 3).scores
    assert np.isnan(scores).tolist() == [True, False, False]


class Waits:
    """A client that has to be awaited."""

    async def rerank(self, _query: str, documents: list[str]) -> list[float]:
        """Score nothing."""
        return [0.0] * len(documents)


class WaitsWhenCalled:
    """An object whose call has to be awaited."""

    async def __call__(self, _query: str, texts: list[str]) -> list[float]:
        """Score nothing."""
        return [0.0] * len(texts)


async def waits(_query: str, texts: list[str]) -> list[float]:
    """Score nothing."""
    return [0.0] * len(texts)


@pytest.mark.parametrize("shape", [Waits(), WaitsWhenCalled(), waits])
def test_reranker_is_refused_when_it_is_async(db: vs.Database, shape: object) -> None:
    """S1: an answer that must be awaited is refused when it is given, not taken for a score."""
    with pytest.raises(InvalidInput, match="async"):
        db.search("word", rerank=shape)


def test_answer_is_refused_when_it_must_be_awaited(db: vs.Database) -> None:
    """S1: so is one that only the answer shows to be async, and Python has nothing to warn of."""
    result = db.search("word", rerank=lambda *asked: waits(*asked))  # noqa: PLW0108 - one that isn't async itself
    assert result.degraded == ("rerank:error",)
    assert "isn't async" in (result.stats[-1].error or "")


@pytest.mark.parametrize("shape", [Native, Predicts])
def test_class_is_refused_when_an_object_is_wanted(shape: type) -> None:
    """A class has the methods' names, and can't be asked."""
    with pytest.raises(InvalidInput, match="class"):
        as_reranker(shape)
