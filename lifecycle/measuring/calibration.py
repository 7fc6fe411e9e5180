"""Calibration: all backends of a model, profiled on this machine, and their answers compared with a float32 reference.

What it leaves behind are profiles; `costs` reads them, and `backends.choosing.selection` orders the backends by them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from backends.choosing import registry
from backends.choosing.selection import Cost
from backends.errors import CannotServe, VectorSearchError
from backends.running.fingerprint import AGREEMENT, AGREEMENT_QUANTISED, agreement
from lifecycle.measuring import profile, workloads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from backends.base import ModelSpec, Task
    from backends.choosing.selection import Workload
    from lifecycle.measuring.profile import Answers, Parity, Profile

TAU = 0.95  # of a reranker's orders, in any precision
# The first of these that can serve a model is what its other backends are compared with: PyTorch is the numerical
# reference, and JAX and NumPy compute in float32 even where a graph quantises. Else it is the first one measured.
_REFERENCES = ("torch:float32", "jax:float32", "numpy:float32")


@dataclass(frozen=True, slots=True)
class Calibration:
    """The profiles of one model, in the order of the backends' priority, and why others could not be measured."""

    model: str
    reference: str
    profiles: tuple[Profile, ...]
    failed: Mapping[str, str]


def calibrate(
    spec: ModelSpec,
    *,
    backends: Sequence[str] | None = None,
    progress: Callable[[str], object] | None = None,
    timeout_s: float = 600.0,
) -> Calibration:
    """Profile a model on each backend that can serve it, in each precision, and keep the profiles.

    Each is measured in processes of its own, one after the other, so the machine should be idle. The model's files
    must be there already.

    Args:
        spec: the model.
        backends: names such as `onnx`, `jax` (all its precisions) or `jax:bfloat16`; None for all of them.
        progress: told each step.
        timeout_s: for each process.

    Raises:
        CannotServe: none of the backends can serve it; the message gives each one's reason.
        InvalidInput: a name is unknown.
        BackendError: the reference failed.
    """
    tell = progress or (lambda _: None)
    able, failed = _sort_out(spec, backends or registry.unasked())
    if not able:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
        raise CannotServe(f"no backend can serve model {spec.name!r}: {reasons or 'none is installed'}")
    reference = _answers(spec, _reference_for(spec) or able[0], tell, timeout_s)
    profiles = []
    for name in able:
        try:
            answers = reference if name == reference.backend else _answers(spec, name, tell, timeout_s)
            found = profile.measure(
                spec,
                name,
                answers=answers,
                parity=compare(spec.task, answers, reference),
                progress=_under(name, tell),
                timeout_s=timeout_s,
            )
        except VectorSearchError as exc:
            failed[name] = str(exc)  # the others are worth measuring all the same
        else:
            profiles.append(found)
    return Calibration(spec.name, reference.backend, tuple(profiles), failed)


def costs(spec: ModelSpec, workload: Workload) -> dict[str, Cost]:
    """Return what each calibrated backend costs here, by name, for `backends.choosing.selection.choose`.

    A model that was profiled without being compared with a reference has no cost.
    """
    found = {name: profile.read(spec, name) for name in _unasked_variants()}
    units = {"query": "query", "bulk": "passage"} if spec.task == "embed" else {"query": "rerank", "bulk": "pair"}
    return {
        name: Cost(
            each.query_ms if workload == "query" else each.bulk_ms,
            units[workload],
            each.parity.value,
            each.parity.needed,
        )
        for name, each in found.items()
        if each is not None and each.parity is not None
    }


def compare(task: Task, answers: Answers, reference: Answers) -> Parity:
    """Return how close answers are to the reference's: the lowest cosine, or the mean Kendall's tau of the queries."""
    if task == "embed":
        is_rough = answers.quantises or reference.quantises
        return profile.Parity(
            reference=reference.backend,
            value=agreement(answers.values, reference.values),
            needed=AGREEMENT_QUANTISED if is_rough else AGREEMENT,
        )
    sizes = np.cumsum([len(passages) for _, passages in workloads.pools()])[:-1]
    pairs = zip(np.split(answers.values, sizes), np.split(reference.values, sizes), strict=True)
    taus = [kendall_tau(ours, theirs) for ours, theirs in pairs]
    return profile.Parity(reference=reference.backend, value=float(np.mean(taus)), needed=TAU)


def kendall_tau(ours: NDArray[np.float32], theirs: NDArray[np.float32]) -> float:
    """Return Kendall's tau-a of two float32[n]: pairs in the same order less pairs in the other, over all (1938)."""
    agreement = np.sign(np.subtract.outer(ours, ours)) * np.sign(np.subtract.outer(theirs, theirs))
    n = len(ours)
    return float(agreement.sum() / (n * (n - 1)))


def _unasked_variants() -> list[str]:
    return [variant for name in registry.unasked() for variant in registry.variants(name)]


def _reference_for(spec: ModelSpec) -> str | None:
    there = set(_unasked_variants())
    return next((name for name in _REFERENCES if name in there and registry.get(name).can_serve(spec)), None)


def _sort_out(spec: ModelSpec, backends: Iterable[str]) -> tuple[list[str], dict[str, str]]:
    """Return the names that can serve the model, each precision one, and why others can't."""
    able, refused = [], {}
    for backend in backends:
        answers = {name: registry.get(name).can_serve(spec) for name in (backend, *registry.variants(backend))}
        if not answers[backend]:
            refused[backend] = answers[backend].reason
            continue
        able += [name for name in registry.variants(backend) if answers[name]]
        refused |= {name: answer.reason for name, answer in answers.items() if not answer}
    return able, refused


def _answers(spec: ModelSpec, name: str, tell: Callable[[str], object], timeout_s: float) -> Answers:
    return profile.answer(spec, name, progress=_under(name, tell), timeout_s=timeout_s)


def _under(name: str, tell: Callable[[str], object]) -> Callable[[str], object]:
    return lambda step: tell(f"{name}: {step}")
