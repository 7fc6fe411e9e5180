"""Trials: a model that nobody vouches for is loaded and run in a child process before it counts.

The child may use so much memory and time, writes no files, and reaches no network where the system can forbid that to a
process without privileges. It loads the model, sees how much its tokenizer makes of a text, asks it for a short text
alone and among ragged ones, and runs the largest batch twice. What that took is what the model is charged later; a
model is refused whose answers depend on the texts beside them by more than its arithmetic explains.

A trial is kept, as a profile is, for the same digest, backend, machine and package versions.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from backends.catalogue import catalogue
from backends.catalogue.files import write_atomically
from backends.errors import BackendError, InvalidModel
from backends.folders import reference
from backends.running.process import usable_cores
from lifecycle.measuring.child import ChildEnded, Limits, run_child
from lifecycle.measuring.profile import machine, version_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from backends.base import ModelSpec

TIMEOUT_S = 60.0
LOADING_S = 5.0  # of them, for what comes after a trial
SLACK_NBYTES = 64 << 20  # a process grows by more than its models: allocators, threads
SLACK_SHARE = 0.1
READ_S = 20.0  # of reading a folder; of its trial, TIMEOUT_S
READ_FACTOR = 10  # bytes of memory for a byte of JSON or of a graph; the largest published tokenizers take 8
HARMLESS_NBYTES = 256 << 10
GROWTH = 64.0  # tokens a character; real tokenizers make up to 4 of an emoji, and 18 characters of one ligature
TOKENIZE_S = 5.0  # for as much text as one full batch may hold
# By how much the answer to a text may differ alone and among others: vectors by 1 - cosine, logits by their scale.
# Four times the most that the contract suite (tests/contracts/test_backend_contract.py) allows real models.
COMPANY: Mapping[str, Mapping[str, float]] = {
    "float32": {"embed": 1e-5, "cross-encode": 1e-4},
    "bfloat16": {"embed": 1e-3, "cross-encode": 2e-2},
    "int8": {"embed": 2e-2, "cross-encode": 6e-2},
    "batch": {"embed": 8e-2, "cross-encode": 1.5e-1},  # one range of integers for all rows
}
# And from the reference's.
REFERENCE: Mapping[str, Mapping[str, float]] = {
    "float32": {"embed": 1e-4, "cross-encode": 1e-3},
    "bfloat16": {"embed": 3e-3, "cross-encode": 4e-2},
    "int8": {"embed": 5e-2, "cross-encode": 1.5e-1},
    "batch": {"embed": 8e-2, "cross-encode": 2.5e-1},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What a model took and did. `nbytes` is its charge: the most that it held once loaded, in its largest batches.

    `load_nbytes` is the most while it loaded; `growth` the tokens that a character can become, as far as was seen;
    `company` by how much answers differed alone and in a batch; `seconds` by part; `network` whether one was reachable.
    """

    backend: str
    machine: str
    nbytes: int
    load_nbytes: int
    growth: float
    company: float
    arithmetic: str
    seconds: Mapping[str, float]
    network: bool


def try_out(
    spec: ModelSpec,
    backend: str,
    *,
    limit_nbytes: int,
    timeout_s: float = TIMEOUT_S,
    progress: Callable[[str], object] | None = None,
) -> Trial:
    """Try a model on a backend in a child process, or return what a trial of the same here has found.

    Raises:
        InvalidModel: it took more time or memory than it may, died, or its answers depend on their neighbours.
        BackendError: as `Backend.load_model` and `infer`.
    """
    kept = _recall(_path(spec, backend))
    trial = from_plain(kept) if kept else None
    if trial is None:
        trial = _run(spec, backend, Limits(timeout_s, limit_nbytes), progress)
    judge(spec, trial, limit_nbytes=limit_nbytes)
    return trial


def read_apart(folder: Path, *, parsed_nbytes: int, accept_keys: Sequence[str] = ()) -> None:
    """Read a folder that nobody vouches for in a child process; `read_folder` here then finds what it said remembered.

    A file of a megabyte can be made to take hundreds when it is parsed, and minutes. Where there are few bytes to parse
    no harm can be in them, and no child is started. A folder that is refused there is refused here too.

    Raises:
        InvalidModel: reading takes more memory or time than it may.
        BackendError: as `read_folder`.
    """
    if parsed_nbytes <= HARMLESS_NBYTES:
        return
    order = {"folder": str(folder), "accept_keys": list(accept_keys), "cpu_s": READ_S * usable_cores()}
    limits = Limits(READ_S, SLACK_NBYTES + READ_FACTOR * parsed_nbytes)
    try:
        run_child("lifecycle.measuring.trial_child", order, what=f"reading {folder}", limits=limits)
    except ChildEnded as exc:
        raise InvalidModel(f"{exc} (a model's files are read apart before it is registered)") from exc


def left_after(spent_s: float) -> float:
    """Return how long a trial may take, if so much of a registration's time has passed and it must load afterwards."""
    return max(1.0, round(TIMEOUT_S - LOADING_S - spent_s, 1))


def limit_over(nbytes: int) -> int:
    """Return what a process may grow by, whose models may take so many bytes."""
    return nbytes + max(SLACK_NBYTES, int(SLACK_SHARE * nbytes))


def judge(spec: ModelSpec, trial: Trial, *, limit_nbytes: int) -> None:
    """Insist that a model behaved.

    Raises:
        InvalidModel: it didn't; the message has the figure and the bound.
    """
    most = max(trial.nbytes, trial.load_nbytes)
    allowed = COMPANY[trial.arithmetic][spec.task]
    if most > limit_nbytes:
        why = f"took {most / 2**20:.0f} MiB, and {limit_nbytes / 2**20:.0f} MiB are allowed: raise the quota or budget"
    elif trial.growth > GROWTH:
        why = f"has a tokenizer that makes {trial.growth:.0f} tokens of a character, and {GROWTH:.0f} are allowed"
    elif trial.seconds["tokenizing"] > TOKENIZE_S:
        why = f"took {trial.seconds['tokenizing']:.1f} s to tokenize a batch, and {TOKENIZE_S:g} s are allowed"
    elif not trial.company <= allowed:
        why = (
            f"answers a text otherwise alone than beside others, by {trial.company:.2g}, where {trial.arithmetic} "
            f"explains {allowed:g}: its padding is not masked, or it normalises over the batch"
        )
    else:
        return
    raise InvalidModel(f"model {spec.name!r} was tried on {trial.backend} and {why}")


def compare(
    spec: ModelSpec,
    backend: str,
    *,
    timeout_s: float = 10 * TIMEOUT_S,
    progress: Callable[[str], object] | None = None,
) -> str:
    """Compare a model's answers with those of sentence-transformers; return how close they are, or why they weren't.

    Raises:
        InvalidModel: they differ by more than the arithmetic explains.
    """
    if reason := reference.why_not(spec):
        return f"not compared: {reason}"
    path = _path(spec, f"{backend}-reference")
    found = _recall(path)
    if found is None:
        try:
            found = _ask_child(spec, backend, Limits(timeout_s), progress, compare=True)
        except BackendError as exc:
            return f"not compared: {exc}"
        _keep(path, found)
    difference, allowed = found["difference"], REFERENCE[found["arithmetic"]][spec.task]
    if not difference <= allowed:
        raise InvalidModel(
            f"model {spec.name!r} on {backend} answers otherwise than sentence-transformers does, by {difference:.2g}, "
            f"where {found['arithmetic']} explains {allowed:g}: register it with compare=False (--no-compare) if that "
            "is as it should be"
        )
    return f"as sentence-transformers, to {difference:.1g}"


def _run(spec: ModelSpec, backend: str, limits: Limits, progress: Callable[[str], object] | None) -> Trial:
    try:
        found = _ask_child(spec, backend, limits, progress, compare=False)
    except ChildEnded as exc:
        raise InvalidModel(f"{exc} (a model is tried before it is registered)") from exc
    trial = Trial(backend=backend, machine=machine(), **{k: v for k, v in found.items() if k != "packages"})
    _keep(_path(spec, backend), asdict(trial) | {"packages": found["packages"]})
    return trial


def _ask_child(
    spec: ModelSpec, backend: str, limits: Limits, progress: Callable[[str], object] | None, *, compare: bool
) -> dict[str, Any]:
    order = {
        "spec": spec.plain(),
        "backend": backend,
        "cpu_s": limits.timeout_s * usable_cores(),
        "compare": compare,
    }
    what = f"trying {spec.name!r} on {backend}"
    return run_child("lifecycle.measuring.trial_child", order, what=what, limits=limits, progress=progress)


def from_plain(found: Mapping[str, Any]) -> Trial | None:
    """Return the trial that was stored as plain values, None if they are of another version."""
    try:
        return Trial(**{field.name: found[field.name] for field in fields(Trial)})
    except (KeyError, TypeError):
        return None


def _keep(path: Path, found: Mapping[str, Any]) -> None:
    versions = {name: version_of(name) for name in ("python", "vectorsearch", *found["packages"])}
    with suppress(OSError):  # a cache that can't be written costs time, not answers
        write_atomically(path, json.dumps({"packages": versions, "machine": machine(), "found": {**found}}) + "\n")


def _recall(path: Path) -> dict[str, Any] | None:
    """Return what was kept by these versions of all packages, None if nothing was."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        is_current = all(version_of(name) == version for name, version in kept["packages"].items())
        found: dict[str, Any] = dict(kept["found"])
        return found if is_current and kept["machine"] == machine() else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _path(spec: ModelSpec, backend: str) -> Path:
    here = hashlib.sha256(machine().encode()).hexdigest()
    return catalogue.cache_dir() / "trials" / f"{spec.digest[:32]}-{backend.replace(':', '.')}-{here[:8]}.json"
