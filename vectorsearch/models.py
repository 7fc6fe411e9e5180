"""The models of one database: names become specs, specs are registered with the lifecycle manager, once."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from backends.text_model import TextLoader, loader_for

from backends import catalogue
from backends.base import ModelSpec
from backends.errors import CannotServe, InvalidInput, MissingExtra
from lifecycle import ModelManager, ModelRef
from rerank import LeasedCrossEncoder
from vectorsearch import config
from vectorsearch.encoder import Encoder
from vectorsearch.query.plan import ModelState

if TYPE_CHECKING:
    from pathlib import Path

    from backends.base import Task


@dataclass(slots=True)
class Models:
    """Find models by name and hand out what leases them. `backend` is a backend's name; None chooses."""

    manager: ModelManager
    backend: str | None = None
    _loaders: dict[ModelRef, TextLoader] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)  # protects _loaders; calls no backend code

    def resolve(self, model: str | Path | ModelSpec, task: Task) -> ModelSpec:
        """Return the spec of a catalogue name, a folder, or a spec, checked for its task; downloads nothing.

        Raises:
            UnknownModel: there is no such model.
            InvalidInput: it is for another task.
        """
        spec = model if isinstance(model, ModelSpec) else catalogue.resolve(model)
        if spec.task != task:
            raise InvalidInput(f"model {spec.name!r} is for {spec.task!r}, and {task!r} is needed here")
        return spec

    def encoder(self, spec: ModelSpec) -> Encoder:
        """Return the encoder of an embedder, registered.

        Raises:
            CannotServe: no backend here can run it.
        """
        return Encoder(self.manager, self._register(spec), spec, config.LEASE_TIMEOUT_S)

    def cross_encoder(self, spec: ModelSpec) -> LeasedCrossEncoder:
        """Return a reranker, registered.

        Raises:
            CannotServe: no backend here can run it.
        """
        return LeasedCrossEncoder(self.manager, self._register(spec), lease_timeout_s=config.LEASE_TIMEOUT_S)

    def state(self, spec: ModelSpec) -> ModelState:
        """Tell the planner whether the model can run here, is in memory, and how much it takes."""
        try:
            ref = self._register(spec)
        except (CannotServe, MissingExtra) as exc:
            return ModelState(spec.name, "none", resident=False, nbytes=0, unavailable=str(exc))
        status = self.manager.status(ref)
        return ModelState(spec.name, status.backend, resident=status.resident, nbytes=status.nbytes)

    def _register(self, spec: ModelSpec) -> ModelRef:
        ref = ModelRef("", spec.name)
        with self._lock:
            if ref in self._loaders:
                return ref
        loader = loader_for(spec, backend=self.backend)
        with self._lock:
            if ref not in self._loaders:
                self.manager.register(ref, spec, loader)
                self._loaders[ref] = loader
        return ref
