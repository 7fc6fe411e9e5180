"""Models that a tenant registers: checked and tried before they count, durable, and exchanged under searches."""

from __future__ import annotations

import re
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from backends.catalogue import catalogue
from backends.choosing import registry
from backends.errors import InferenceError, InvalidInput, InvalidModel, UnknownModel
from backends.running import fingerprint
from lifecycle import LoadPolicy, ModelConfig
from lifecycle.config import merge_configs
from lifecycle.measuring import trial
from vectorsearch.collection.storage.errors import ReadOnlyDatabase
from vectorsearch.collection.storage.registry import ModelRow, Registry
from vectorsearch.models import model_copy
from vectorsearch.models.dot_product import indexed_dim
from vectorsearch.models.space import EmbeddingSpace, digest_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from backends.base import ModelSpec, Task
    from lifecycle.measuring.trial import Trial
    from vectorsearch.collection.storage.soundness import Fault
    from vectorsearch.models.model_files import ModelFiles
    from vectorsearch.models.resolving import Models

TASKS: dict[str, Task] = {
    "embed": "embed",
    "embedder": "embed",
    "cross-encode": "cross-encode",
    "cross-encoder": "cross-encode",
    "rerank": "cross-encode",
}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_RESERVED = frozenset({"default", "none"})


@dataclass(frozen=True, slots=True)
class RegisteredModel:
    """A model by the name that its tenant gave it; `source` is what it was copied from.

    `trial` is what it took when it was tried, None of one that was not: the catalogue's, or of a backend that only this
    process knows. `compared` says how close its answers are to sentence-transformers', or why that isn't known.
    `accept_keys` are keys of its configuration that aren't understood here, and that somebody vouched for.
    """

    tenant: str
    name: str
    task: str
    digest: str
    source: str
    config: ModelConfig
    trial: Trial | None = None
    compared: str = ""
    accept_keys: tuple[str, ...] = ()

    @classmethod
    def of(cls, row: ModelRow) -> Self:
        """Return the model of a row of the registry."""
        return cls(
            tenant=row.tenant,
            name=row.name,
            task=row.settings["task"],
            digest=row.digest,
            source=row.settings["source"],
            config=_config(row),
            trial=trial.from_plain(row.settings.get("trial") or {}),
            compared=row.settings.get("compared", ""),
            accept_keys=tuple(row.settings.get("accept_keys", ())),
        )


class Registration:
    """One tenant's registered models, found by `models`. Threads may share it; registering is one at a time."""

    def __init__(self, models: Models, registry: Registry, files: ModelFiles, *, read_only: bool) -> None:
        self._tenant = models.tenant
        self._read_only = read_only
        self._specs: dict[tuple[str, str], ModelSpec] = {}  # by digest and name: a search looks one up
        self._registry = registry
        self._files = files
        self._models = models
        self._embedded_by: Callable[[str, str], Sequence[str]] = lambda *_: ()
        self._space = EmbeddingSpace(None)
        self._lock = threading.Lock()  # one registration at a time; loads and copies happen while it is held
        self._lost = bool(registry.fault)
        self._rows = {} if self._lost else {row.name: row for row in registry.models(self._tenant)}
        models.use_registered(self.find, lambda: sorted(self._rows))
        for row in self._rows.values():
            if _config(row).load_policy is LoadPolicy.EAGER:
                with suppress(InvalidModel):  # damaged: whoever uses it is told, and so is who verifies
                    models.begin(self._spec(row), _in_force(row.digest, self._rows))

    @property
    def quota_nbytes(self) -> int | None:
        """Return the bytes that the tenant's models may take together, None if only the budget bounds them."""
        row = self._registry.tenant(self._tenant)
        return row.settings.get("quota_nbytes") if row else None

    def find(self, name: str) -> tuple[ModelSpec, ModelConfig] | None:
        """Return the model that the tenant registered under a name, None if there is none.

        Raises:
            InvalidModel: its files are missing. Whether they have changed is found when it is loaded.
            DamagedDatabase: what is registered isn't known.
        """
        if self._lost:  # else a name that was registered would mean the catalogue's, or nothing
            self._rows = {row.name: row for row in self._registry.models(self._tenant)}
            self._lost = False
        row = self._rows.get(name)
        return None if row is None else (self._spec(row), _in_force(row.digest, self._rows))

    def protect(self, embedded_by: Callable[[str, str], Sequence[str]], space: EmbeddingSpace) -> None:
        """Keep models from being exchanged or forgotten as long as documents have their vectors.

        `embedded_by(name, digest)` returns whose documents a model has embedded; `space` has what embeds them here,
        which may be registered again if it couldn't be had.
        """
        self._embedded_by, self._space = embedded_by, space

    def find_lent(self, name: str, root: Registration) -> None:
        """Let a tenant have the store's copy of a model as its embedder again, if that made its vectors."""
        found, embedder = root.find(name), self._space.embedder
        if found and embedder and embedder.name == found[0].folder.name:
            self._space.find_again(found[0])

    def registered(self) -> tuple[RegisteredModel, ...]:
        """Return the tenant's models by name."""
        return tuple(RegisteredModel.of(row) for _, row in sorted(self._rows.items()))

    def register(
        self,
        name: str,
        source: str | Path,
        *,
        task: str,
        config: ModelConfig,
        compare: bool = True,
        progress: Callable[[str], object] | None = None,
        accept_keys: Sequence[str] = (),
    ) -> RegisteredModel:
        """Check a model, copy its files, try it, and let the name mean it; on any error all stays as it was.

        A folder's is tried in a child process before this one loads it; with `compare` against the reference too.

        A name that means another model already is exchanged: the new one is loaded before, searches under way end with
        the old one, which is then unloaded.

        Raises:
            InvalidInput: the name or the task can't be used, the model is too large for the quota or the budget, or
                the documents are embedded with the one that would be exchanged.
            UnknownModel, InvalidModel, CannotServe, ModelUnavailable: there is no such model, or it can't be served.
            InferenceError, LifecycleError: it can't be loaded, or its answers are no numbers.
        """
        self._require_writable()
        begun = time.perf_counter()
        spec = self._checked(name, source, task, self._may_vouch(accept_keys))
        reading_s = time.perf_counter() - begun
        with self._lock:
            try:
                begun = time.perf_counter()
                with self._files.copied(replace(spec, name=name)) as stored:
                    copying_s = time.perf_counter() - begun
                    settings = _settings(stored.task, source, config)
                    settings |= {"accept_keys": list(stored.accept_keys)} if stored.accept_keys else {}
                    if not is_vouched_for(spec):
                        settings |= self._tried(stored, reading_s + copying_s, compare=compare, progress=progress)
                    row = ModelRow(self._tenant, name, stored.digest, settings)
                    self._exchange(_charged(stored, row), row)
            finally:
                self._sweep()
        return RegisteredModel.of(row)

    def _exchange(self, stored: ModelSpec, row: ModelRow) -> None:
        """Load a model and try it while the name means the one before; then let it mean this one, and forget that."""
        before, rows = self._rows.get(row.name), {**self._rows, row.name: row}
        if before is not None and before.digest != row.digest:
            self._require_unused(before)
        elif before is None and (embedder := self._space.embedder) and _means_another(row, embedder):
            raise InvalidInput(
                f"model {row.name!r} is the one that embeds the documents here, and the new one is another: "
                "register it under another name"
            )
        try:
            self._settle(row.digest, rows)
            self._try(stored)
            with self._files.dropping([] if before is None else [before.digest]):
                self._registry.put_model(row)
        except BaseException:
            self._settle(row.digest, self._rows)
            raise
        self._rows = rows
        self._space.find_again(stored)
        if before is not None and before.digest != row.digest:
            self._settle(before.digest, rows)

    def unregister(self, name: str) -> None:
        """Forget a model; searches under way end with it, then it is unloaded, and its files go if nobody uses them.

        Raises:
            UnknownModel: there is no such model.
            InvalidInput: the documents are embedded with it.
        """
        self._require_writable()
        with self._lock:
            row = self._rows.get(name) if isinstance(name, str) else None
            if row is None:
                raise UnknownModel(f"no model {name!r} is registered: there are {', '.join(self._rows) or 'none'}")
            self._require_unused(row)
            with self._files.dropping([row.digest]):
                self._registry.remove_model(self._tenant, name)
            self._rows = {other: kept for other, kept in self._rows.items() if other != name}
            self._settle(row.digest, self._rows)
            self._sweep()

    def copy_into(self, folder: Path, *, embedder: ModelSpec | None) -> tuple[Fault, ...]:
        """Copy the tenant's models into the folder of a store whose own they become; return what lacks.

        So does its embedder, if that is one that the store itself has registered.

        Raises:
            StoreError: they can't be copied.
        """

        def copy_rows() -> Iterator[str]:
            rows = list(self._rows.values())
            if embedder and not any((row.name, row.digest) == (embedder.name, embedder.digest) for row in rows):
                name = self._files.path_of(embedder.digest).name
                lent = [row for row in self._registry.models("") if row.digest == embedder.digest][:1]
                # Under the name by which the documents know it; `ModelFiles.find` finds it again.
                rows += [replace(row, name=name) for row in lent if embedder.folder.name == name]
            for row in rows:
                Registry(folder, checked=False).put_model(replace(row, tenant=""))
                yield row.digest

        return self._files.copy_into(folder, copy_rows)

    def _may_vouch(self, accept_keys: Sequence[str]) -> tuple[str, ...]:
        """Return the keys that are vouched for: whoever runs the store may do that, a tenant may not."""
        if isinstance(accept_keys, str) or not all(isinstance(key, str) for key in accept_keys):
            raise InvalidInput(f"accept_keys must be a list of keys, not {accept_keys!r:.60}")
        if accept_keys and self._tenant:
            raise InvalidInput(
                f"tenant {self._tenant!r} can't vouch for keys of a model's configuration ({', '.join(accept_keys)}): "
                "whoever runs the store does, by registering the model in the store itself"
            )
        return tuple(accept_keys)

    def _checked(self, name: str, source: str | Path, task: str, accept_keys: tuple[str, ...]) -> ModelSpec:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InvalidInput(f"model name {name!r}: use up to 100 letters, digits and . _ -, a letter or digit first")
        if name in _RESERVED:
            raise InvalidInput(f"model name {name!r} has a meaning of its own where a model is named: use another")
        if not isinstance(task, str) or task not in TASKS:
            raise InvalidInput(f"task {task!r} is unknown: use {', '.join(map(repr, TASKS))}")
        if not isinstance(source, str | Path):
            raise InvalidInput(f"the source of model {name!r} is {source!r}: give a folder or a name of the catalogue")
        self._read_apart(source, accept_keys)
        spec = catalogue.ensure(catalogue.resolve(source, accept_keys=accept_keys))
        if set(accept_keys) != set(spec.accept_keys):
            raise InvalidInput(f"accept_keys={list(accept_keys)!r}: nothing of {str(source)!r} has to be vouched for")
        if spec.task != TASKS[task]:
            raise InvalidInput(f"{str(source)!r} is for {spec.task!r}, and was to be registered for {TASKS[task]!r}")
        if name in catalogue.names() and (known := catalogue.resolve(name).task) != spec.task:
            raise InvalidInput(
                f"model name {name!r} is that of a public model for {known!r}, and {str(source)!r} is for "
                f"{spec.task!r}: use another name"
            )
        self._require_room(name, self._models.nbytes_of(spec))
        return spec

    def _read_apart(self, source: str | Path, accept_keys: tuple[str, ...]) -> None:
        """Let a child process read a folder before this one does.

        Raises:
            InvalidModel: it isn't made of regular files, or can't be read within bounds.
        """
        folder = catalogue.folder_of(source)
        if folder is not None:
            parsed_nbytes = model_copy.check_files(folder, limit_nbytes=self._limit_nbytes)
            trial.read_apart(folder, parsed_nbytes=parsed_nbytes, accept_keys=accept_keys)
            model_copy.check_weights(folder, limit_nbytes=self._limit_nbytes)

    @property
    def _limit_nbytes(self) -> int:
        """Return what a process may grow by when it serves a model of this tenant's."""
        limits = [self._models.manager.budget_nbytes, self.quota_nbytes]
        return trial.limit_over(min(limit for limit in limits if limit is not None))

    def _require_room(self, name: str, needed: int) -> None:
        for limit, what in ((self.quota_nbytes, "quota"), (self._models.manager.budget_nbytes, "budget")):
            if limit is not None and needed > limit:
                raise InvalidInput(
                    f"model {name!r} needs {needed / 2**20:.0f} MiB, and the {what} is {limit / 2**20:.0f} MiB: "
                    f"raise the {what}, or register a smaller model"
                )

    def _tried(
        self, spec: ModelSpec, spent_s: float, *, compare: bool, progress: Callable[[str], object] | None
    ) -> dict[str, Any]:
        """Try a model in a child process, and return what is stored of that.

        Raises:
            InvalidInput: it takes more than the quota or the budget.
            InvalidModel: it takes too long, dies, or its answers depend on their neighbours or differ from the
                reference's.
        """
        backend = self._models.first_backend(spec)
        if not registry.is_known_elsewhere(backend):
            return {"compared": f"not tried: backend {backend!r} is known to this process only"}
        found = trial.try_out(
            spec, backend, limit_nbytes=self._limit_nbytes, timeout_s=trial.left_after(spent_s), progress=progress
        )
        self._require_room(spec.name, max(found.nbytes, found.load_nbytes))
        seconds = {"copying": round(spent_s, 3), **found.seconds}
        begun = time.perf_counter()
        compared = trial.compare(spec, backend, progress=progress) if compare else "not compared: switched off"
        if compare:
            seconds["comparing"] = round(time.perf_counter() - begun, 3)
        return {"trial": asdict(replace(found, seconds=seconds)), "compared": compared}

    def _try(self, spec: ModelSpec) -> None:
        texts = fingerprint.TEXTS  # the child has been asked them too
        if spec.task == "embed":
            answer = self._models.encoder(spec).encode_passages(texts).vectors
        else:
            answer = self._models.cross_encoder(spec).score_detailed(fingerprint.QUESTION, texts).scores
        shape = (len(texts), indexed_dim(spec)) if spec.task == "embed" and spec.dim else answer.shape
        if answer.shape != shape or not np.isfinite(answer).all():
            raise InferenceError(
                f"model {spec.name!r} answered {len(texts)} texts with {answer.shape}: {answer.ravel()[:4]}"
            )

    def _require_writable(self) -> None:
        self._models.check_open()
        if self._read_only:
            raise ReadOnlyDatabase("models can't be registered in a database that is open read-only: open it to write")

    def _require_unused(self, row: ModelRow) -> None:
        if owners := self._embedded_by(row.name, row.digest):
            raise InvalidInput(
                f"model {row.name!r} has embedded the documents of {', '.join(owners)}: embed them again with another "
                "model (`vectorsearch reindex`), or register the new one under another name"
            )

    def _spec(self, row: ModelRow) -> ModelSpec:
        known = self._specs.get((row.digest, row.name))
        if known is None:
            stored = self._files.spec_of(row.digest, row.name)
            known = self._specs[row.digest, row.name] = _charged(stored, row)
        return known

    def _settle(self, digest: str, rows: Mapping[str, ModelRow]) -> None:
        """Let the manager know a model as the names that mean it have it, or not at all."""
        first = next((row for row in rows.values() if row.digest == digest), None)
        if first is not None:
            self._models.begin(self._spec(first), _in_force(digest, rows))
        else:
            self._models.forget(digest)
            self._specs = {key: spec for key, spec in self._specs.items() if key[0] != digest}

    def _sweep(self) -> None:
        """Drop the files of models that nobody has registered."""
        self._files.sweep(self._registry)


def is_vouched_for(spec: ModelSpec) -> bool:
    """Return whether a model is the catalogue's own, whose every byte is pinned: it needs no trial."""
    return spec.name in catalogue.names() and catalogue.resolve(spec.name).digest == spec.digest


def _charged(spec: ModelSpec, row: ModelRow) -> ModelSpec:
    """Return a model with what its row says that it took when it was tried."""
    tried = row.settings.get("trial") or {}
    return replace(spec, least_nbytes=int(tried.get("nbytes", 0)), load_nbytes=int(tried.get("load_nbytes", 0)))


def _means_another(row: ModelRow, spec: ModelSpec) -> bool:
    """Tell whether a row gives a model's name to another one."""
    return row.name == spec.name and not row.digest.startswith(digest_of(spec))  # that of an absent one is cut short


def _in_force(digest: str, rows: Mapping[str, ModelRow]) -> ModelConfig:
    """Return the config of all names that mean a model, merged: they share its instance."""
    return merge_configs(_config(row) for row in rows.values() if row.digest == digest)


def _settings(task: Task, source: str | Path, config: ModelConfig) -> dict[str, Any]:
    return {"task": task, "source": str(source), "config": _stored_config(config)}


def _stored_config(config: ModelConfig) -> dict[str, Any]:
    """Return a config as stores of every release keep it, in which the rank is called `priority`."""
    values = {**asdict(config), "load_policy": str(config.load_policy)}
    return {"priority" if name == "eviction_rank" else name: value for name, value in values.items()}


def _config(row: ModelRow) -> ModelConfig:
    stored = {"eviction_rank" if n == "priority" else n: value for n, value in row.settings["config"].items()}
    return ModelConfig(**{**stored, "load_policy": LoadPolicy(stored["load_policy"])})
