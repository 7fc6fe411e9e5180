"""What callers give as `rerank`: a spec, a name, an object, a function, or a chain of these; it becomes stages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from backends.base import ModelSpec
from backends.errors import InvalidInput
from rerank import Passages, as_reranker
from rerank.reading.batches import BatchedReranker
from rerank.reading.score_cache import CachedReranker
from rerank.reading.windows import PassageReranker
from vectorsearch.query.planning.request import OnRerankError, RerankRequest, RerankStage, is_count

if TYPE_CHECKING:
    from rerank import Reranker, ScoreCache
    from vectorsearch.models.model_state import ModelState
    from vectorsearch.models.resolving import Models

__all__ = ["Passages", "Rerank", "RerankerDesk", "Rerankers"]

T = TypeVar("T")
_INHERITED = ("field", "max_length", "batch", "passages", "blend")  # what a cascade's stages take from the whole


@dataclass(frozen=True, slots=True)
class Rerank:
    """How to rerank, in full: `search(rerank=Rerank("my-model", depth=30, blend=0.35))`.

    Args:
        model: True for the default model, a model's name or folder, an object with `predict`, `rank` or `rerank`, a
            callable `(query, texts) -> scores`, or a list of these: a fallback chain, the first that can answers.
        depth: how many of the best hits it reads; max(k, 50) if None.
        field: what it reads of a document: `text` (title and text), `title`, or the name of a text in its metadata.
        max_length: tokens of a query and text together, at most the model's own; for models by name.
        batch: how many texts it is given at once; None leaves that to the model.
        passages: True, or `Passages(words, stride)`: long texts are read window by window, and the best one counts.
        blend: weight of the rerank score beside the first stage's, each as a z-score within the hits that were read:
            1 is the rerank score alone, 0 the first stage's. None orders by the rerank score.
        min_score: hits whose rerank score is lower are dropped.
        cascade: stages in the place of one model, as names or specs: each reads the best hits of the one before it.
    """

    model: object = True
    _: KW_ONLY
    depth: int | None = None
    field: str | None = None
    max_length: int | None = None
    batch: int | None = None
    passages: Passages | bool | None = None
    blend: float | None = None
    min_score: float | None = None
    cascade: Sequence[object] = ()


@dataclass(frozen=True, slots=True)
class Rerankers:
    """The request's rerankers, in the order in which its stages name them, with their models, None for a function.

    A model that no backend serves has no reranker, if the search may go on without.
    """

    request: RerankRequest | None = None
    models: tuple[tuple[ModelSpec, ModelState] | None, ...] = ()
    rerankers: tuple[Reranker | None, ...] = ()


@dataclass(frozen=True, slots=True)
class RerankerDesk:
    """Find what reranks: models by name among `models`, `default` for True. `cache` remembers their scores, if any."""

    models: Models
    default: str | Path | ModelSpec | None
    cache: ScoreCache | None = None

    def resolve(
        self,
        rerank: object,
        *,
        depth: int | None = None,
        field: str = "text",
        min_score: float | None = None,
        on_error: OnRerankError = "degrade",
    ) -> Rerankers:
        """Return the stages that `rerank` asks for; the other arguments are `search`'s own, for what it leaves open.

        Raises:
            UnknownModel: a name is unknown.
            InvalidInput: a model is for another task, or an argument can't be used.
        """
        if rerank is None or rerank is False:
            if min_score is not None:
                raise InvalidInput(f"min_score is {min_score!r}, and nothing reranks: give rerank=… as well")
            return Rerankers()
        spec = rerank if isinstance(rerank, Rerank) else Rerank(rerank)
        asked = _stages(spec, depth, field)
        models: list[tuple[ModelSpec, ModelState] | None] = []
        rerankers: list[Reranker | None] = []
        stages = []
        for stage in asked:
            names = []
            for member in _members(stage.model):
                name, model, reranker = self._find(member, stage, on_error)
                names.append(name)
                models.append(model)
                rerankers.append(reranker)
            stages.append(
                RerankStage(
                    names=tuple(names),
                    depth=stage.depth,
                    field=stage.field or field,
                    passages=_passages(stage),
                    blend=stage.blend,
                )
            )
        wanted = _only_one("min_score", spec.min_score, min_score)
        return Rerankers(RerankRequest(tuple(stages), wanted), tuple(models), tuple(rerankers))

    def _find(
        self, member: object, stage: Rerank, on_error: OnRerankError
    ) -> tuple[str, tuple[ModelSpec, ModelState] | None, Reranker | None]:
        if member is True:
            if self.default is None:
                raise InvalidInput("rerank=True, but no default reranker was given at open: name a model in its place")
            member = self.default
        if not isinstance(member, str | Path | ModelSpec):
            if stage.max_length is not None:
                raise InvalidInput(f"max_length is for models by name, and {member!r} is none: cut its texts yourself")
            reranker = as_reranker(member)
            return reranker.name, None, _reading(reranker, stage)
        spec = self.models.resolve(member, "cross-encode")
        state = self.models.state(spec)
        if state.unavailable and on_error == "degrade":
            return state.name, (spec, state), None
        reading: Reranker = _reading(replace(self.models.cross_encoder(spec), max_length=stage.max_length), stage)
        if self.cache is not None:
            identity = f"{spec.digest} {state.backend} {stage.max_length} {_passages(stage)}"
            reading = CachedReranker(reading, identity, self.cache)
        return state.name, (spec, state), reading


def _stages(spec: Rerank, depth: int | None, field: str) -> list[Rerank]:
    """Return the stages that a spec asks for, in order, each with what the search's arguments add."""
    if isinstance(spec.cascade, str) or not isinstance(spec.cascade, Sequence):
        raise InvalidInput(f"cascade is {spec.cascade!r}: give a list of stages, the cheapest first")
    if not isinstance(field, str) or not field:
        raise InvalidInput(f"rerank_field is {field!r}: name the field that the reranker reads, such as 'text'")
    if not spec.cascade:
        return [_checked(replace(spec, depth=_only_one("depth", spec.depth, depth)))]
    if spec.model is not True:
        raise InvalidInput(f"rerank has both a model, {spec.model!r}, and a cascade: name the model as its last stage")
    stages = [_checked(stage if isinstance(stage, Rerank) else Rerank(stage)) for stage in spec.cascade]
    if any(stage.cascade or stage.min_score is not None for stage in stages):
        raise InvalidInput("a stage of a cascade has a cascade or a min_score of its own: give them to the whole")
    first = _only_one("depth", stages[0].depth, _only_one("depth", spec.depth, depth))
    inherited: dict[str, Any] = {name: getattr(spec, name) for name in _INHERITED}
    filled = [
        replace(stage, **{name: value for name, value in inherited.items() if getattr(stage, name) is None})
        for stage in stages
    ]
    return [replace(filled[0], depth=first), *filled[1:]]


def _checked(stage: Rerank) -> Rerank:
    if stage.field is not None and (not isinstance(stage.field, str) or not stage.field):
        raise InvalidInput(f"field is {stage.field!r}: name the field that the reranker reads, such as 'text'")
    for name in ("max_length", "batch"):
        value = getattr(stage, name)
        if value is not None and (not is_count(value) or value == 0):
            raise InvalidInput(f"{name} is {value!r}: it is a whole number above 0, or None")
    if not isinstance(stage.passages, Passages | bool | None):
        raise InvalidInput(f"passages is {stage.passages!r}: give True, or Passages(words, stride)")
    return stage


def _members(model: object) -> Sequence[object]:
    """Return the members of a fallback chain, or the one that it is."""
    if not isinstance(model, list | tuple):
        return (model,)
    if not model:
        raise InvalidInput("rerank is an empty list: name at least one reranker, or give None")
    return model


def _passages(stage: Rerank) -> Passages | None:
    if stage.passages is True:
        return Passages()
    return stage.passages or None


def _reading(reranker: Reranker, stage: Rerank) -> Reranker:
    """Return the reranker as the stage wants it to read: in batches, and long texts by windows."""
    if stage.batch is not None:
        reranker = BatchedReranker(reranker, stage.batch)
    passages = _passages(stage)
    return reranker if passages is None else PassageReranker(reranker, passages)


def _only_one(name: str, own: T | None, given: T | None) -> T | None:
    if own is not None and given is not None:
        raise InvalidInput(f"{name} is given twice, as {own!r} in the spec and {given!r} beside it: give it once")
    return given if own is None else own
