"""Decide which backend runs a model, and say why. Pure: what was measured and what is installed are arguments.

The rules, in their order: the backend that was asked for; the cheapest of those measured here that keep the model's
answers; for bulk embedding JAX, and for reranking PyTorch where the processor multiplies bfloat16 in tiles; the first
by priority. The decision and its reason are data, so that `explain`, `index` and `doctor` say exactly what was done.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from backends.catalogue.entries import ENTRIES
from backends.errors import CannotServe

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from backends.base import Backend, ModelSpec

Workload = Literal["query", "bulk"]

BULK_DEFAULT = "jax"
RERANK_DEFAULT = "torch"  # with bfloat16 tiles: half of ONNX Runtime's time for 8-bit graphs, and nearer to float32
_SHOWN = 3  # costs in a reason; more would not be read


@dataclass(frozen=True, slots=True)
class Cost:
    """What a backend was measured to take here: milliseconds a `unit`, and its parity to the float32 reference.

    `parity` is the lowest cosine of an embedder's vectors, or Kendall's tau of a cross-encoder's orders.
    """

    ms: float
    unit: str
    parity: float
    parity_needed: float

    @property
    def keeps_parity(self) -> bool:
        """Return whether the answers are close enough to the reference's for the backend to be chosen."""
        return self.parity >= self.parity_needed


@dataclass(frozen=True, slots=True)
class Considered:
    """One backend that was looked at: whether it may run the model, why not, and what it costs if that was measured."""

    backend: str
    ok: bool
    reason: str = ""
    cost_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """The decision: `order[0]` runs the model, the others are its fallbacks; `reason` is for people."""

    order: tuple[str, ...]
    reason: str
    considered: tuple[Considered, ...]

    @property
    def backend(self) -> str:
        """Return the name of the backend that runs the model."""
        return self.order[0]


def choose(
    spec: ModelSpec,
    workload: Workload,
    *,
    candidates: Sequence[Backend],
    asked: str | None = None,
    costs: Mapping[str, Cost] | None = None,
    refused: Mapping[str, str] | None = None,
    bfloat16_tiles: bool = False,
) -> Choice:
    """Return the backends to run a model on, the best first, one entry for each runtime.

    Args:
        spec: the model.
        workload: `query` (one text, or one rerank) or `bulk` (many passages).
        candidates: backends in the order of their priority; with `asked`, the one that was asked for.
        asked: the name that was asked for; it is taken, or refused, alone.
        costs: what was measured, by backend or `backend:precision`. Costs are only compared if the backend that would
            be taken without them is among them: what was measured alone is not known to be better.
        refused: names that can't even be asked, with the reason.
        bfloat16_tiles: whether this processor has a unit for products of bfloat16 matrices.

    Raises:
        CannotServe: none can; the message gives each one's reason.
    """
    answers = {candidate.name: candidate.can_serve(spec) for candidate in candidates}
    able = [name for name, answer in answers.items() if answer]
    refusals = [Considered(name, ok=False, reason=answer.reason) for name, answer in answers.items() if not answer]
    refusals += [Considered(name, ok=False, reason=reason) for name, reason in (refused or {}).items()]
    if not able:
        reasons = "; ".join(f"{each.backend}: {each.reason}" for each in refusals) or "none is installed"
        raise CannotServe(f"no backend can serve model {spec.name!r}: {reasons}")
    if asked:
        return Choice((asked,), f"{asked}: asked for", (Considered(asked, ok=True),))
    wish = _wish(spec, workload, bfloat16_tiles=bfloat16_tiles)
    able.sort(key=lambda name: wish is None or name != wish.backend)
    measured = {name: cost for name, cost in (costs or {}).items() if base_name(name) in able}
    considered = (*_considered(able, measured), *refusals)
    ranked = _ranked(measured) if any(base_name(name) == able[0] for name in measured) else []
    if ranked:
        rest = [name for name in able if name not in map(base_name, ranked)]
        return Choice((*ranked, *rest), _measured_reason(ranked, measured), considered)
    return Choice(tuple(able), _default_reason(spec, wish, able[0], measured, refusals), considered)


class _Wish(NamedTuple):
    """The backend that goes before priority, and what for."""

    backend: str
    purpose: str


def _wish(spec: ModelSpec, workload: Workload, *, bfloat16_tiles: bool) -> _Wish | None:
    if spec.task == "embed":
        return _Wish(BULK_DEFAULT, "bulk embedding") if workload == "bulk" else None
    return _Wish(RERANK_DEFAULT, "reranking on this processor") if bfloat16_tiles else None


def base_name(name: str) -> str:
    """Return the backend's name without its precision: `jax` of `jax:bfloat16`."""
    return name.partition(":")[0]


def calibrate_command(spec: ModelSpec) -> str:
    """Return the command that measures a model's backends on this machine."""
    return f"vectorsearch models calibrate {found_by(spec)}"


def found_by(spec: ModelSpec) -> str:
    """Return what a model is found by again: its name, or the folder that it was read from."""
    is_named = spec.name in ENTRIES or "/" in spec.name or not spec.weights_file
    return spec.name if is_named else str(spec.folder)


def _ranked(measured: Mapping[str, Cost]) -> list[str]:
    """Return the names that keep parity, the cheapest first, the best precision of each backend only."""
    best: dict[str, str] = {}
    for name in sorted(measured, key=lambda name: (measured[name].ms, name)):
        if measured[name].keeps_parity:
            best.setdefault(base_name(name), name)
    return list(best.values())


def _considered(able: Iterable[str], measured: Mapping[str, Cost]) -> Iterable[Considered]:
    for name in able:
        variants = {of: cost for of, cost in measured.items() if base_name(of) == name}
        if not variants:
            yield Considered(name, ok=True)
        for variant, cost in variants.items():
            yield Considered(variant, cost.keeps_parity, "" if cost.keeps_parity else _too_far(cost), cost.ms)


def _too_far(cost: Cost) -> str:
    return f"its answers differ: parity {cost.parity:.4f}, and {cost.parity_needed:g} is needed"


def _measured_reason(ranked: Sequence[str], measured: Mapping[str, Cost]) -> str:
    (first, *others) = ((name, measured[name]) for name in ranked[:_SHOWN])
    compared = "".join(f", {name} {_digits(cost.ms)}" for name, cost in others)
    return f"{first[0]}: measured {_digits(first[1].ms)} ms a {first[1].unit} here{compared}"


def _digits(ms: float) -> str:
    return f"{ms:.1f}" if ms < 100 else f"{ms:.0f}"  # noqa: PLR2004  (a tenth of it can't be told apart)


def _default_reason(
    spec: ModelSpec, wish: _Wish | None, taken: str, measured: Mapping[str, Cost], refusals: Iterable[Considered]
) -> str:
    why = "first by priority of those that can serve it"
    if wish and taken == wish.backend:
        why = f"default for {wish.purpose}"
    elif wish and (refusal := next((each.reason for each in refusals if each.backend == wish.backend), None)):
        why += f" ({wish.backend}, the default for {wish.purpose}, can't: {refusal})"
    far = [name for name, cost in measured.items() if not cost.keeps_parity]
    if any(base_name(name) == taken for name in far):
        return f"{taken}: {why}; calibrated, but no backend keeps the answers: {_too_far(measured[far[0]])}"
    only = f"only {', '.join(measured)} calibrated" if measured else "not calibrated"
    return f"{taken}: {why}; {only}: run {calibrate_command(spec)}"
