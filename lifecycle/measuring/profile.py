"""Profiles: what a model really takes on this machine, measured in a child process and kept on disk.

A shared process can't tell what one model adds to it, so a fresh one loads the model alone: resident bytes after the
load and after the largest batch, seconds to load, milliseconds for single queries and for many passages. A profile
replaces the backend's estimate when room is reserved, as long as digest, backend, machine and package versions are
those that it was measured with. `calibration` profiles all backends of a model and compares their answers.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import platform
from dataclasses import asdict, dataclass, fields
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from backends.catalogue import catalogue
from backends.catalogue.files import write_atomically
from backends.running.process import usable_cores
from lifecycle.measuring.child import Limits, run_child

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from backends.base import ModelSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Parity:
    """How close a backend's answers are to those of `reference`, a backend that computes in float32.

    `value` is the lowest cosine of an embedder's vectors, or the mean Kendall's tau of a cross-encoder's orders.
    """

    reference: str
    value: float
    needed: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One measurement. `resident_nbytes` is what the load added, `workspace_nbytes` what the largest batch added to it.

    `declared_nbytes` is the model's own figure. `first_ms` and `query_ms` are for one short query (a cross-encoder:
    one query and the passages of a topic), cold and at its best; `bulk_ms` is for one passage of many, of ragged
    length. The runtime's code, which all its models share, is in none of the bytes.
    """

    model: str
    digest: str
    backend: str
    device: str
    machine: str
    packages: Mapping[str, str]
    resident_nbytes: int
    workspace_nbytes: int
    declared_nbytes: int
    load_s: float
    first_ms: float
    query_ms: float
    bulk_ms: float
    tokens_per_s: float
    parity: Parity | None = None

    @property
    def nbytes(self) -> int:
        """Return the bytes to charge. Another device's memory is not resident here: there the model's figure counts."""
        measured = self.resident_nbytes + self.workspace_nbytes
        return measured if self.device.startswith("cpu") else max(measured, self.declared_nbytes)


@dataclass(frozen=True, slots=True)
class Answers:
    """What a backend answers to the texts of `workloads`, and the packages that its runtime is made of.

    `values` is float32[n, dim] vectors or float32[n] logits; `quantises` says that activations become integers.
    """

    backend: str
    values: NDArray[np.float32]
    quantises: bool
    packages: tuple[str, ...]


def answer(
    spec: ModelSpec, backend: str, *, progress: Callable[[str], object] | None = None, timeout_s: float = 600.0
) -> Answers:
    """Let a child process answer the fixed texts.

    Raises:
        BackendError: as `measure`.
    """
    found = _run_child(_order(spec, backend), progress, timeout_s)
    values = np.frombuffer(base64.b64decode(found["answers"]), np.float32).reshape(found["shape"])
    return Answers(backend, values, found["quantises"], tuple(found["packages"]))


def measure(
    spec: ModelSpec,
    backend: str,
    *,
    answers: Answers | None = None,
    parity: Parity | None = None,
    progress: Callable[[str], object] | None = None,
    timeout_s: float = 600.0,
) -> Profile:
    """Load the model in a child process, measure it, keep the profile, and return it.

    `progress` is told each step. A child that answers finds out which packages the runtime is made of (`answers`, if
    one has been run already), so that the second can import them before it starts to measure. The model's files must
    be there already.

    Raises:
        BackendError: as `Backend.load_model` and `infer`; or the child died, or took longer than `timeout_s`.
    """
    answers = answers or answer(spec, backend, progress=progress, timeout_s=timeout_s)
    measured = _run_child(_order(spec, backend, packages=answers.packages, measure=True), progress, timeout_s)
    packages = {name: version_of(name) for name in ("python", "vectorsearch", *measured.pop("packages"))}
    profile = Profile(
        model=spec.name,
        digest=spec.digest,
        backend=backend,
        machine=machine(),
        packages=packages,
        parity=parity,
        **measured,
    )
    write_atomically(_path(spec.digest, backend), json.dumps(asdict(profile), indent=2) + "\n")
    return profile


def read(spec: ModelSpec, backend: str) -> Profile | None:
    """Return the profile of a model on this machine with the packages that are installed, or None if there is none.

    A file that is damaged, or of another version of this project, is none.
    """
    try:
        found = json.loads(_path(spec.digest, backend).read_text(encoding="utf-8"))
        parity = Parity(**found["parity"]) if found["parity"] else None
        profile = Profile(**{field.name: found[field.name] for field in fields(Profile)} | {"parity": parity})
        is_current = all(version_of(name) == version for name, version in profile.packages.items())
        is_same = (profile.digest, profile.backend, profile.machine) == (spec.digest, backend, machine())
        is_valid = is_current and is_same and profile.nbytes > 0
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return profile if is_valid else None


def profiled_nbytes(spec: ModelSpec, backend: str) -> int | None:
    """Return the bytes to reserve for a model that was profiled here, or None."""
    profile = read(spec, backend)
    return None if profile is None else profile.nbytes


def machine() -> str:
    """Return what figures depend on: the system, the processor, and the cores that this process may use."""
    return f"{platform.system()} {platform.machine()}, {_processor()}, {usable_cores()} cores"


@functools.cache  # the file is long where there are many cores, and a look-up of costs reads a dozen profiles
def _processor() -> str:
    processor = platform.processor()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
        processor = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), processor)
    return processor or "unknown processor"


def _path(digest: str, backend: str) -> Path:
    here = hashlib.sha256(machine().encode()).hexdigest()
    return catalogue.cache_dir() / "profiles" / f"{digest[:16]}-{backend.replace(':', '.')}-{here[:8]}.json"


@functools.cache
def version_of(package: str) -> str:
    """Return the version of Python or of an installed package, "none" of one that isn't."""
    if package == "python":
        return platform.python_version()
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "none"


def _order(spec: ModelSpec, backend: str, *, packages: Sequence[str] = (), **more: bool) -> dict[str, Any]:
    """Return what a child is told to do."""
    return {"spec": spec.plain(), "backend": backend, "packages": list(packages), **more}


def _run_child(order: dict[str, Any], progress: Callable[[str], object] | None, timeout_s: float) -> dict[str, Any]:
    what = f"profiling {order['spec']['name']!r} on {order['backend']}"
    limits = Limits(timeout_s=timeout_s)
    return run_child("lifecycle.measuring.profile_child", order, what=what, limits=limits, progress=progress)
