"""What a caller asks for, as frozen values, and whether it can be asked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, get_args

from backends.errors import InvalidInput
from vectorsearch.query.execution.fusion import RRF_K, Fusion
from vectorsearch.types import Filter, Mode

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rerank import Passages
    from vectorsearch.collection.index.lexical.bm25 import BM25

RetrieverKind = Literal["lexical", "dense"]
OnRerankError = Literal["degrade", "raise"]

_LARGEST = 1e6  # of a weight or of RRF's constant: far beyond it float32 has no differences left to rank by
_LONGEST_S = 1e6  # of a search, eleven days: what threads can be told to wait has an end


class UnknownMode(InvalidInput):
    """`mode` is none of the modes, or asks for what this database doesn't have."""


class EmptyQuery(InvalidInput):
    """There is neither a query with at least one visible character nor a vector."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RerankStage:
    """One rerank stage: the names of its rerankers, of which the first that can answers, and what they read.

    `depth` None means max(k, 50). `blend` is the weight of the rerank score beside the first stage's.
    """

    names: tuple[str, ...]
    depth: int | None = None
    field: str = "text"
    passages: Passages | None = None
    blend: float | None = None


@dataclass(frozen=True, slots=True)
class RerankRequest:
    """The stages in the order in which they run; `min_score` is compared with the scores of the last."""

    stages: tuple[RerankStage, ...]
    min_score: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRequest:
    """A caller's query. `vector` is float32[dim] or None. `phrases`, `title_weight` and `bm25` are of words."""

    query: str | None = None
    vector: NDArray[np.float32] | None = None
    k: int = 10
    filter: Filter | None = None
    mode: Mode = "auto"
    fusion: Fusion = "rrf"
    weights: Mapping[str, float] = field(default_factory=dict)
    rrf_k: float = RRF_K
    phrases: tuple[str, ...] = ()
    title_weight: float = 0.0
    bm25: BM25 | None = None
    highlight: bool = False
    rerank: RerankRequest | None = None
    timeout_s: float | None = None
    on_rerank_error: OnRerankError = "degrade"

    @property
    def has_text(self) -> bool:
        """Return whether there is a visible character to search for."""
        return bool(self.query and self.query.strip())


def check_request(request: SearchRequest) -> None:
    """Insist that the request can be planned.

    Raises:
        EmptyQuery: there is nothing to search with.
        UnknownMode: the mode is none of the modes.
        InvalidInput: another argument is out of range.
    """
    _check_query(request)
    if not is_count(request.k):
        raise InvalidInput(f"k is {request.k!r}: it is the number of hits wanted, 0 or more")
    _check_lexical(request)
    check_fusion(request)
    if request.on_rerank_error not in get_args(OnRerankError):
        raise InvalidInput(f"on_rerank_error is {request.on_rerank_error!r}: use 'degrade' or 'raise'")
    check_timeout(request.timeout_s)
    if request.rerank is not None:
        _check_rerank(request, request.rerank)


def check_timeout(timeout_s: float | None) -> None:
    """Insist on seconds that a call may take, or None.

    Raises:
        InvalidInput: they are something else.
    """
    if timeout_s is not None and not (is_number(timeout_s) and 0 < timeout_s <= _LONGEST_S):
        raise InvalidInput(
            f"timeout_s is {timeout_s!r}: it is the seconds that it may take, above 0 and up to {_LONGEST_S:g}, or None"
        )


def is_count(value: object) -> bool:
    """Return whether it is a whole number, 0 or more."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def is_number(value: Any) -> bool:  # noqa: ANN401 -- whatever a caller gave
    """Return whether it is a finite real number."""
    return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)


def _check_query(request: SearchRequest) -> None:
    if request.mode not in get_args(Mode):
        raise UnknownMode(f"mode {request.mode!r} is unknown: use one of {', '.join(get_args(Mode))}")
    if not isinstance(request.query, str | None):
        raise InvalidInput(f"the query is a {type(request.query).__name__}, not text: {request.query!r}")
    if request.vector is None and not request.has_text:
        raise EmptyQuery(f"the query is empty ({request.query!r}): give some text, or a vector")


def _check_lexical(request: SearchRequest) -> None:
    if not all(isinstance(phrase, str) and phrase.strip() for phrase in request.phrases):
        raise InvalidInput(f"phrases is {request.phrases!r}: give a list of texts, each with a word at least")
    if request.phrases and request.mode in ("dense", "hybrid"):
        raise InvalidInput(f"phrases are found by words, and mode is {request.mode!r}: use 'lexical' or 'auto'")
    if not is_number(request.title_weight) or not 0 <= request.title_weight <= _LARGEST:
        raise InvalidInput(f"title_weight is {request.title_weight!r}: it must be from 0 to {_LARGEST:g}")


def check_fusion(request: SearchRequest) -> None:
    """Check how a request's lists are to be fused.

    Raises:
        InvalidInput: the fusion, its constant or a weight can't be used.
    """
    if request.fusion not in get_args(Fusion):
        raise InvalidInput(f"fusion {request.fusion!r} is unknown: use one of {', '.join(get_args(Fusion))}")
    if not is_number(request.rrf_k) or not 0 < request.rrf_k <= _LARGEST:
        raise InvalidInput(f"rrf_k is {request.rrf_k!r}: it must be above 0 and up to {_LARGEST:g} (60 is usual)")
    if not isinstance(request.weights, Mapping):
        raise InvalidInput(f"weights is {request.weights!r}: give a mapping, such as {{'lexical': 1, 'dense': 2}}")
    for kind, weight in request.weights.items():
        if kind not in get_args(RetrieverKind) or not is_number(weight) or not 0 <= weight <= _LARGEST:
            raise InvalidInput(
                f"weights has {kind!r}: {weight!r}: keys are 'lexical' and 'dense', values from 0 to {_LARGEST:g}"
            )


def _check_rerank(request: SearchRequest, rerank: RerankRequest) -> None:
    if not request.query:
        name = rerank.stages[0].names[0]
        raise InvalidInput(f"rerank {name!r} needs the query's text beside the vector: give both")
    if rerank.min_score is not None and not is_number(rerank.min_score):
        raise InvalidInput(f"min_score is {rerank.min_score!r}: it is a number that rerank scores are compared with")
    above: int | None = None
    for number, stage in enumerate(rerank.stages, start=1):
        depth = stage.depth
        if depth is not None and not is_count(depth):
            raise InvalidInput(f"rerank_depth is {depth!r}: it is a number of hits, 0 or more")
        if number > 1 and (depth is None or (above is not None and depth > above)):
            raise InvalidInput(
                f"stage {number} of the cascade has depth {depth!r}: each stage after the first reads a number of the "
                "best hits of the one before it, and no more than that one read"
            )
        above = depth
        if stage.blend is not None and not (is_number(stage.blend) and 0 <= stage.blend <= 1):
            raise InvalidInput(f"blend is {stage.blend!r}: it is the rerank score's weight, from 0 to 1")
