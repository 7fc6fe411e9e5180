"""Rerankers that are files, as those that are registered, and cost nothing: each adds its own number to its scores."""

from __future__ import annotations

import itertools
import json
import threading
from typing import TYPE_CHECKING

from backends.choosing import registry
from backends.engines.fake_backend import FakeBackend, FakeModel

from .conftest import MODEL_NBYTES

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    import vectorsearch as vs
    from backends.base import ModelSpec, TokenBatch
    from backends.engines.fake_backend import Step
    from lifecycle import ModelStatus
    from vectorsearch.query.results import SearchResult

TEXTS = {"a": "apple pie", "b": "apple cake with cream", "c": "apple"}
_CONFIG = {"architectures": ["BertForSequenceClassification"], "num_labels": 1, "max_position_embeddings": 64}
_numbers = itertools.count()


def write_model(folder: Path, bias: int) -> Path:
    """Write a reranker in Hugging Face layout; its weights are the number."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(_CONFIG), encoding="utf-8")
    (folder / "tokenizer.json").write_text("{}", encoding="utf-8")
    (folder / "model.safetensors").write_text(str(bias), encoding="utf-8")
    return folder


def bias_of(result: SearchResult) -> int:
    """Return the number that all scores of a whole, undegraded answer about "apple" have in common."""
    assert result.degraded == ()
    biases = {round(hit.score - 5) for hit in result}
    assert (len(result), len(biases)) == (len(TEXTS), 1)
    return biases.pop()


def resident(store: vs.Database) -> list[ModelStatus]:
    """Return what the manager knows, once what is leaving has left."""
    moved = threading.Event()
    store._models.manager.subscribe(lambda _: moved.set())
    while any(not model.refs for model in store.models().models):
        assert moved.wait(600)
        moved.clear()
    return list(store.models().models)


class BiasedBackend(FakeBackend):
    """Loads such models, `MODEL_NBYTES` each, under a name of its own in the registry."""

    def __init__(self, loads: Iterable[Step] = ()) -> None:
        super().__init__(f"biased-{next(_numbers)}", nbytes=MODEL_NBYTES, loads=loads)
        registry.register(self)

    def load_model(self, spec: ModelSpec) -> FakeModel:
        """Read the number."""
        super().load_model(spec)
        return _BiasedModel(spec, self, MODEL_NBYTES)


class _BiasedModel(FakeModel):
    def __init__(self, spec: ModelSpec, owner: FakeBackend, nbytes: int) -> None:
        super().__init__(spec, owner, nbytes)
        self._bias = int((spec.folder / "model.safetensors").read_text(encoding="utf-8"))

    def infer(self, batch: TokenBatch) -> NDArray[np.float32]:
        """Return shares of words, and the number added."""
        return super().infer(batch) + self._bias
