"""What a search does where its caller leaves it open: the built-in way, or one that the database has learned."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, get_args

from backends.errors import InvalidInput
from backends.features.feature_model import is_feature_model
from vectorsearch import config
from vectorsearch.collection.index.lexical.bm25 import BM25
from vectorsearch.query.execution.fusion import RRF_K
from vectorsearch.query.planning.plan import DEFAULT_RERANK_DEPTH
from vectorsearch.query.planning.request import RetrieverKind, SearchRequest, check_fusion, is_count, is_number
from vectorsearch.query.planning.rerankers import Rerank

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backends.base import ModelSpec
    from vectorsearch.collection.collection import Collection
    from vectorsearch.query.execution.fusion import Fusion

# The options of `search` that say how documents are found and ordered.
_HOW = ("mode", "fusion", "weights", "rrf_k", "phrases", "title_weight", "k1", "b", "rerank", "rerank_depth")
_KEY = "search_defaults"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """How defaults were come by: on so many judged queries, `measure` before and after, on queries held out, and p."""

    measure: str
    queries: int
    before: float
    after: float
    p: float
    date: str

    def __str__(self) -> str:
        return (
            f"tuned {self.date} on {self.queries:,} queries, {self.measure} {self.before:.3f} → {self.after:.3f} "
            "on those held out"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchDefaults:
    """How to search where the caller doesn't say: options of `Database.search`, and what they were learned with.

    They are used whole or not at all: a search that names a mode, a fusion, weights or a reranker gets the built-in
    value of the others, since these are only known to be good together. `embed` and `rerank_digest` say of which models
    that is known; with other models the defaults don't count. `origin` is None for what was set by hand.
    """

    fusion: Fusion = "rrf"
    rrf_k: float = RRF_K
    weights: Mapping[str, float] = field(default_factory=dict)
    k1: float | None = None
    b: float | None = None
    rerank: str | None = None
    rerank_depth: int = DEFAULT_RERANK_DEPTH
    blend: float | None = None
    embed: str | None = None
    rerank_digest: str | None = None
    origin: Origin | None = None

    def __str__(self) -> str:
        kinds = ", ".join(f"{weight:g} {kind}" for kind, weight in self.weights.items())
        constant = f" k={self.rrf_k:g}" if self.fusion == "rrf" else ""
        text = f"{self.fusion}{constant}{f' ({kinds})' if kinds else ''}"
        named = {"k1": self.k1, "b": self.b}
        if bm25 := " ".join(f"{name}={value:g}" for name, value in named.items() if value is not None):
            text = f"{text}, BM25 with {bm25}"
        if self.rerank is None:
            return f"{text}, no reranking"
        text = f"{text}, best {self.rerank_depth} reranked by {self.rerank}"
        return text if self.blend is None else f"{text}, {self.blend:g} of it blended with the fused score"

    def options(self) -> dict[str, Any]:
        """Return the options of `Database.search`."""
        spec = None if self.rerank is None else Rerank(self.rerank, depth=self.rerank_depth, blend=self.blend)
        fusion = {"fusion": self.fusion, "rrf_k": self.rrf_k, "weights": dict(self.weights)}
        return {**fusion, "k1": self.k1, "b": self.b, "rerank": spec}

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, fit for JSON; `from_dict` reads them."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> SearchDefaults:
        """Return what `to_dict` has written."""
        return cls(**{**values, "origin": Origin(**values["origin"]) if values["origin"] else None})


BUILT_IN: Final = SearchDefaults()
_WITH_FEATURES: Final = SearchDefaults(fusion=config.FEATURES_FUSION, weights=config.FEATURES_WEIGHTS)


def built_in(embedder: ModelSpec | None) -> SearchDefaults:
    """Return how a database with this embedder searches that has no defaults of its own."""
    return BUILT_IN if embedder is None or not is_feature_model(embedder) else _WITH_FEATURES


def leaves_open(options: Mapping[str, Any]) -> bool:
    """Return whether the options of a search say nothing of how documents are found and ordered."""
    says = {name: options.get(name) for name in _HOW}
    if says["mode"] == "auto":
        says["mode"] = None
    says |= {name: says[name] or None for name in ("phrases", "title_weight")}
    return all(value is None for value in says.values())


def check_defaults(defaults: SearchDefaults) -> None:
    """Insist that defaults can be stored and shown: they come back from JSON as they are.

    Raises:
        InvalidInput: they are something else, or a value of theirs is.
    """
    if not isinstance(defaults, SearchDefaults):
        raise InvalidInput(f"defaults is {defaults!r}: give SearchDefaults(…), or None for the built-in way")
    check_fusion(SearchRequest(fusion=defaults.fusion, rrf_k=defaults.rrf_k, weights=defaults.weights))
    usual = BM25()
    BM25.of(usual.k1 if defaults.k1 is None else defaults.k1, usual.b if defaults.b is None else defaults.b)
    weights, blend, origin = defaults.weights, defaults.blend, defaults.origin
    all_off = all(weights.get(kind) == 0 for kind in get_args(RetrieverKind))
    allowed = {
        "rrf_k": (_is_plain(defaults.rrf_k), "a plain number"),
        "weights": (
            isinstance(weights, dict) and all(map(_is_plain, weights.values())) and not all_off,
            "a dict of plain numbers, one of them above 0",
        ),
        "k1": (defaults.k1 is None or _is_plain(defaults.k1), "a plain number, or None"),
        "b": (defaults.b is None or _is_plain(defaults.b), "a plain number, or None"),
        "rerank": (_is_text(defaults.rerank), "the name or folder of a reranker as text, or None"),
        "rerank_depth": (is_count(defaults.rerank_depth), "a number of hits, 0 or more"),
        "blend": (blend is None or (_is_plain(blend) and 0 <= blend <= 1), "a plain number from 0 to 1, or None"),
        "embed": (_is_text(defaults.embed), "the embedder's digest as text, or None"),
        "rerank_digest": (_is_text(defaults.rerank_digest), "the reranker's digest as text, or None"),
        "origin": (origin is None or _is_whole(origin), "an Origin of texts and plain numbers, or None"),
    }
    for name, (fits, what) in allowed.items():
        if not fits:
            raise InvalidInput(f"{name} of the defaults is {getattr(defaults, name)!r}: give {what}")


def _is_plain(value: object) -> bool:
    """Return whether it is a finite number that JSON can hold."""
    return isinstance(value, int | float) and is_number(value)


def _is_text(value: object) -> bool:
    return isinstance(value, str | None)


def _is_whole(origin: object) -> bool:
    return (
        isinstance(origin, Origin)
        and isinstance(origin.measure, str)
        and isinstance(origin.date, str)
        and is_count(origin.queries)
        and all(map(_is_plain, (origin.before, origin.after, origin.p)))
    )


class KeptDefaults:
    """The search defaults that a store keeps; other processes see them when they open it. Threads may share it."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        values = json.loads(collection.store.meta().get(_KEY, "null"))
        self._current = None if values is None else SearchDefaults.from_dict(values)

    def get(self) -> SearchDefaults | None:
        """Return them; None for the built-in ones."""
        return self._current

    def set(self, defaults: SearchDefaults | None) -> None:
        """Store them, or forget them; searches that begin from now on use them.

        Raises:
            ReadOnlyDatabase, DatabaseLocked, DatabaseClosed: nothing can be written.
        """
        self._collection.store.set_meta({_KEY: json.dumps(None if defaults is None else defaults.to_dict())})
        self._current = defaults
