"""What this machine can run: each model on each backend, measured or not, and what is missing. Loads no model."""

from __future__ import annotations

import platform
import re
import sys
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING

from backends.catalogue import catalogue
from backends.choosing import registry
from backends.errors import CannotServe
from backends.running import memory
from backends.running.process import usable_cores
from lifecycle.measuring import calibration, profile
from vectorsearch import config

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from backends.base import ModelSpec, Task
    from backends.choosing.selection import Workload
    from lifecycle.measuring.profile import Profile

DISTRIBUTION = "vectorsearch"
_NOT_NEEDED = {"all", "dev", "bench", "peers", "train"}  # of other extras, or not of searching
_ONLY_ON = {"coreml": "darwin"}
_REQUIREMENT = re.compile(r"^([\w.-]+).*?extra == ['\"]([\w-]+)['\"]", re.ASCII)


@dataclass(frozen=True, slots=True)
class Served:
    """One model on one backend: whether it can run there, why not, and the profile if it was measured."""

    backend: str
    ok: bool
    reason: str = ""
    profile: Profile | None = None


@dataclass(frozen=True, slots=True)
class ModelReport:
    """One model on all backends; `chosen` says which one each kind of work takes, and why."""

    name: str
    task: Task
    cached: bool
    backends: tuple[Served, ...]
    chosen: Mapping[str, str]

    @property
    def servable(self) -> bool:
        """Return whether a backend that may be chosen unasked can run it."""
        return any(each.ok for each in self.backends)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The machine, the versions, and the models. `missing` is the pip command of each extra that isn't complete."""

    machine: str
    python: str
    cores: int
    memory_nbytes: int
    budget_nbytes: int
    cache: str
    malloc_trim: bool
    packages: Mapping[str, str | None]
    missing: Mapping[str, str]
    models: tuple[ModelReport, ...]

    @property
    def healthy(self) -> bool:
        """Return whether every model of the report can run here."""
        return all(model.servable for model in self.models)


def examine(models: Sequence[str] = ()) -> Report:
    """Return what can run here, for the named models, or for the two defaults; nothing is downloaded or loaded.

    Raises:
        UnknownModel: there is no such model.
    """
    names = models or (config.DEFAULT_EMBEDDER, config.DEFAULT_RERANKER)
    return Report(
        machine=profile.machine(),
        python=platform.python_version(),
        cores=usable_cores(),
        memory_nbytes=config.memory_nbytes(),
        budget_nbytes=config.default_budget_nbytes(),
        cache=str(catalogue.cache_dir()),
        malloc_trim=memory.can_trim(),
        packages={name: _version(name) for name in _packages()},
        missing={
            extra: f"pip install '{DISTRIBUTION}[{extra}]'"
            for extra, packages in _extras().items()
            if any(_version(package) is None for package in packages)
        },
        models=tuple(_examine(catalogue.resolve(name)) for name in names),
    )


def _examine(spec: ModelSpec) -> ModelReport:
    return ModelReport(
        name=spec.name,
        task=spec.task,
        cached=(spec.folder / spec.weights_file).is_file(),
        backends=tuple(_served(spec)),
        chosen=chosen(spec),
    )


def chosen(spec: ModelSpec) -> dict[str, str]:
    """Return in words which backend runs a model unasked, and why, or why none can.

    Keys are `query` and `bulk` for an embedder, `rerank` for a cross-encoder.
    """
    kinds: dict[str, Workload] = {"query": "query", "bulk": "bulk"} if spec.task == "embed" else {"rerank": "query"}
    return {kind: _reason(spec, workload) for kind, workload in kinds.items()}


def _reason(spec: ModelSpec, workload: Workload) -> str:
    try:
        return registry.choose(spec, workload, costs=calibration.costs(spec, workload)).reason
    except CannotServe as exc:
        return str(exc)


def _served(spec: ModelSpec) -> Iterator[Served]:
    """Yield each backend that may be chosen unasked; of one that was measured, each precision."""
    for name in registry.unasked():
        answer = registry.get(name).can_serve(spec)
        measured = [(each, profile.read(spec, each)) for each in registry.variants(name)] if answer else []
        if any(found for _, found in measured):
            yield from (Served(each, ok=True, profile=found) for each, found in measured if found)
        else:
            yield Served(name, ok=answer.ok, reason=answer.reason)


def _requirements() -> Iterable[str]:
    try:
        return metadata.requires(DISTRIBUTION) or ()
    except metadata.PackageNotFoundError:  # run from a folder that was never installed
        return ()


def _extras() -> dict[str, list[str]]:
    """Return the extras that searching can use here, each with its packages."""
    found: dict[str, list[str]] = {}
    for requirement in _requirements():
        if match := _REQUIREMENT.match(requirement):
            package, extra = match.groups()
            if extra not in _NOT_NEEDED and _ONLY_ON.get(extra, sys.platform) == sys.platform:
                found.setdefault(extra, []).append(package)
    return found


def _packages() -> Iterator[str]:
    """Yield every package that this project needs or can use."""
    yield DISTRIBUTION
    for requirement in _requirements():
        match = _REQUIREMENT.match(requirement)
        if not match or match[2] not in _NOT_NEEDED:
            yield re.split(r"[^\w.-]", requirement, maxsplit=1)[0]


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
