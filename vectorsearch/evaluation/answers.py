"""What a system answered to one query: what it found, how long it took, and with which models."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class ModelUse:
    """A model that answered, and where: `backend` and `device` as the stage tells them."""

    name: str
    backend: str | None
    device: str | None


@dataclass(frozen=True, slots=True)
class Answer:
    """What one query got: document ids, best first, and their scores; milliseconds in all and by stage; the models.

    A score is of the stage that placed its document, so that scores needn't fall where a reranker read only the best.
    """

    doc_ids: tuple[str, ...]
    latency_ms: float
    stages_ms: Mapping[str, float] = field(default_factory=dict)
    models: tuple[ModelUse, ...] = ()
    scores: tuple[float, ...] = ()
