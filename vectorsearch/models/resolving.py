"""The models of one database: names become specs, specs are registered with the lifecycle manager, once."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from backends.base import ModelSpec
from backends.catalogue import catalogue
from backends.choosing import registry
from backends.choosing.selection import found_by
from backends.errors import (
    CannotServe,
    InvalidInput,
    MissingExtra,
    ModelUnavailable,
    UnknownModel,
)
from backends.running.text_model import TextLoader
from lifecycle import ModelRef
from lifecycle.chains.text_chain import text_chain
from lifecycle.errors import ManagerClosed
from lifecycle.measuring.calibration import costs
from lifecycle.measuring.profile import profiled_nbytes
from rerank import LeasedCrossEncoder
from vectorsearch import config
from vectorsearch.collection.storage.errors import DatabaseClosed
from vectorsearch.models.encoder import Encoder
from vectorsearch.models.model_state import ModelState
from vectorsearch.models.space import AbsentModel, digest_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from backends.base import Task
    from backends.choosing.health import BackendHealth
    from backends.choosing.selection import Choice, Workload
    from lifecycle import Chain, ModelConfig, ModelManager


class Models:
    """Find models by name and hand out what leases them.

    `backend` is a backend's name, which is then used for everything and alone. With None each model has a chain of
    backends, in the order that `registry.choose` gives for queries, and one for bulk work. The models are charged to
    `tenant`, whose registered ones are found first.
    """

    def __init__(self, manager: ModelManager, backend: str | None = None, *, tenant: str = "") -> None:
        self.manager = manager
        self.tenant = tenant
        self._backend = backend
        self._find_registered: Callable[[str], tuple[ModelSpec, ModelConfig] | None] = lambda _: None
        self._registered_names: Callable[[], Sequence[str]] = tuple
        # Protects _chains, and what is registered for them: whoever holds it may ask the manager, and reads profiles.
        # No model is loaded or run while it is held, and one that has its chain is found without it.
        self._lock = threading.RLock()
        self._chains: dict[tuple[str, Workload], tuple[Choice, Chain]] = {}  # by digest
        self._configs: dict[str, ModelConfig] = {}  # by digest
        self._forgotten: set[str] = set()  # digests of what was registered: a search may come late with one
        self._changes = 0
        self._closed = False

    def use_registered(
        self, find: Callable[[str], tuple[ModelSpec, ModelConfig] | None], names: Callable[[], Sequence[str]]
    ) -> None:
        """Look names up by `find` before the catalogue; `names` are those that it knows."""
        self._find_registered, self._registered_names = find, names

    @property
    def changes(self) -> int:
        """Return a number that is another once a registered model was exchanged or forgotten."""
        return self._changes

    def resolve(self, model: str | Path | ModelSpec, task: Task) -> ModelSpec:
        """Return the spec of a catalogue name, a folder, or a spec, checked for its task; downloads nothing.

        Raises:
            UnknownModel: there is no such model.
            InvalidInput: it is for another task.
        """
        if not isinstance(model, str | Path | ModelSpec):
            raise InvalidInput(f"model {model!r} is a {type(model).__name__}: give a name, a folder, or None for none")
        spec = model if isinstance(model, ModelSpec) else self._named(model)
        if spec.task != task:
            raise InvalidInput(f"model {spec.name!r} is for {spec.task!r}, and {task!r} is needed here")
        return spec

    def encoder(self, spec: ModelSpec, workload: Workload = "query") -> Encoder:
        """Return the encoder of an embedder, registered: for single queries, or for many passages.

        Raises:
            CannotServe: no backend here can run it.
            ModelUnavailable: it is the database's own, and isn't there any more.
        """
        return Encoder(self._chain(spec, workload)[1], spec, config.LEASE_TIMEOUT_S)

    def cross_encoder(self, spec: ModelSpec) -> LeasedCrossEncoder:
        """Return a reranker, registered.

        Raises:
            CannotServe: no backend here can run it.
        """
        return LeasedCrossEncoder(self._chain(spec, "query")[1], lease_timeout_s=config.LEASE_TIMEOUT_S)

    def choice(self, spec: ModelSpec, workload: Workload) -> Choice:
        """Return which backends run a model, in which order, and why.

        Raises:
            CannotServe, ModelUnavailable: as `encoder`.
        """
        return self._chain(spec, workload)[0]

    def state(self, spec: ModelSpec) -> ModelState:
        """Tell the planner which backend a query would begin with, and whether the model is in memory there."""
        try:
            choice, chain = self._chain(spec, "query")
        except (CannotServe, MissingExtra, ModelUnavailable) as exc:
            return ModelState(ModelRef(self.tenant, spec.name), "none", resident=False, nbytes=0, unavailable=str(exc))
        status = self.manager.status(chain.ref)
        return ModelState(chain.ref, status.backend, resident=status.resident, nbytes=status.nbytes, why=choice.reason)

    def is_resident(self, spec: ModelSpec, workload: Workload) -> bool:
        """Return whether the backend that does such work for a model first has it in memory, and may be asked at once.

        Raises:
            CannotServe, ModelUnavailable: as `encoder`.
        """
        return self.manager.status(self._chain(spec, workload)[1].ref).resident

    def check_health(self, threshold: float = 0.1) -> tuple[BackendHealth, ...]:
        """Return the backends that let down more than this share of recent calls; see `Health.check_health`."""
        return self.manager.health.check_health(threshold)

    def begin(self, spec: ModelSpec, model_config: ModelConfig) -> None:
        """Register a model with a config of its own; an eager one starts to load.

        Raises:
            CannotServe: no backend here can run it.
        """
        with self._lock:
            known = self._chains.get((spec.digest, "query"))
            if self._configs.get(spec.digest) != model_config or (known and known[1].refs[0].name != spec.name):
                self.forget(spec.digest)
            self._configs[spec.digest] = model_config
            self._forgotten.discard(spec.digest)
        self._chain(spec, "query")

    def forget(self, digest: str) -> None:
        """Unregister a model; what only it used is unloaded once its open leases have ended."""
        with self._lock:
            self._changes += 1  # first: who fails from now on finds that it has moved
            self._forgotten.add(digest)
            chains = [self._chains.pop(key) for key in list(self._chains) if key[0] == digest]
            self._configs.pop(digest, None)
            for ref in {ref for _, chain in chains for ref in chain.refs}:
                self.manager.unregister(ref)

    def check_open(self) -> None:
        """Insist that `close` was not called.

        Raises:
            DatabaseClosed: it was.
        """
        if self._closed:
            raise DatabaseClosed("the database is closed: open it again")

    def close(self) -> None:
        """Register nothing more; a tenant's models are forgotten, as only its own database uses them."""
        with self._lock:
            self._closed = True
            with suppress(ManagerClosed):  # a shared one may be closed before
                for digest, _ in list(self._chains) if self.tenant else ():
                    self.forget(digest)

    def nbytes_of(self, spec: ModelSpec) -> int:
        """Return the bytes that the model is expected to take on the backend that a query would begin with.

        Raises:
            CannotServe: no backend here can run it.
        """
        return TextLoader(registry.get(self.first_backend(spec)), measured=profiled_nbytes).estimate(spec)

    def first_backend(self, spec: ModelSpec) -> str:
        """Return the name of the backend that a query would begin with.

        Raises:
            CannotServe: no backend here can run it.
        """
        return registry.choose(spec, "query", asked=self._backend, costs=costs(spec, "query")).backend

    def fingerprint_of(self, embedder: ModelSpec) -> str:
        """Name an embedder so that it can be found and checked again: its name, or its folder, and its digest."""
        found = self._find_registered(embedder.name)
        registered = found is not None and found[0].digest == embedder.digest
        return f"{embedder.name if registered else found_by(embedder)}@{digest_of(embedder)}"

    def _named(self, model: str | Path) -> ModelSpec:
        if isinstance(model, str) and (found := self._find_registered(model)) is not None:
            spec, model_config = found
            self._configs.setdefault(spec.digest, model_config)
            return spec
        try:
            return catalogue.resolve(model)
        except UnknownModel as exc:
            if names := self._registered_names():
                exc.add_note(f"registered here: {', '.join(names)}")
            raise

    def _chain(self, spec: ModelSpec, workload: Workload) -> tuple[Choice, Chain]:
        known = self._chains.get((spec.digest, workload))
        if known is not None:
            return known
        if isinstance(spec, AbsentModel):
            raise spec.error()
        with self._lock:
            self.check_open()
            if spec.checked and spec.digest in self._forgotten:
                raise UnknownModel(f"model {spec.name!r} is not registered any more: register it again")
            if workload != "query":
                self._chain(spec, "query")  # first, so that what queries use goes by the model's own name
            if (spec.digest, workload) not in self._chains:
                choice = registry.choose(spec, workload, asked=self._backend, costs=costs(spec, workload))
                own = self._configs.get(spec.digest)
                chain = text_chain(self.manager, spec, choice.order, tenant=self.tenant, config=own)
                self._chains[spec.digest, workload] = choice, chain
            return self._chains[spec.digest, workload]
