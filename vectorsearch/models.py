"""The models of one database: names become specs, specs are registered with the lifecycle manager, once."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from backends import catalogue
from backends.base import ModelSpec
from backends.errors import CannotServe, InvalidInput, MissingExtra
from backends.text_model import loader_for
from lifecycle import ModelRef
from lifecycle.profile import profiled_nbytes
from rerank import LeasedCrossEncoder
from vectorsearch import config
from vectorsearch.encoder import Encoder
from vectorsearch.query.states import ModelState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from backends.base import Task
    from lifecycle import ModelManager


class Models:
    """Find models by name and hand out what leases them.

    `backend` is a backend's name; None chooses the first that can serve a model.
    """

    def __init__(self, manager: ModelManager, backend: str | None = None) -> None:
        self.manager = manager
        self._backend = backend
        # Protects _refs; nothing else is called while it is held.
        self._lock = threading.Lock()
        self._refs: dict[str, ModelRef] = {}  # by digest

    def resolve(self, model: str | Path | ModelSpec, task: Task) -> ModelSpec:
        """Return the spec of a catalogue name, a folder, or a spec, checked for its task; downloads nothing.

        Raises:
            UnknownModel: there is no such model.
            InvalidInput: it is for another task.
        """
        if not isinstance(model, str | Path | ModelSpec):
            raise InvalidInput(f"model {model!r} is a {type(model).__name__}: give a name, a folder, or None for none")
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
            return ModelState(ModelRef("", spec.name), "none", resident=False, nbytes=0, unavailable=str(exc))
        status = self.manager.status(ref)
        return ModelState(ref, status.backend, resident=status.resident, nbytes=status.nbytes)

    def prefetch(self, refs: Iterable[ModelRef]) -> None:
        """Start loading what a plan will need, if it isn't loaded."""
        if wanted := tuple(refs):
            self.manager.prefetch(wanted)

    def _register(self, spec: ModelSpec) -> ModelRef:
        with self._lock:
            known = self._refs.get(spec.digest)
        if known is not None:
            return known
        loader = loader_for(spec, backend=self._backend, measured=profiled_nbytes)
        with self._lock:
            taken = {ref.name for ref in self._refs.values()}
            # Two folders may have one name; the digest then tells their models apart.
            ref = ModelRef("", spec.name if spec.name not in taken else f"{spec.name}@{spec.digest[:8]}")
        self.manager.register(ref, spec, loader)
        with self._lock:
            return self._refs.setdefault(spec.digest, ref)
