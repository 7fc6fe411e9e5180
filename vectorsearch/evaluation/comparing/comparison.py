"""Compare systems query by query: means with intervals, and differences from a baseline with tests. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from backends.errors import InvalidInput
from vectorsearch.evaluation.comparing.metrics import MEASURES, canonical_names, measure_queries
from vectorsearch.evaluation.comparing.significance import ALPHA, holm, randomisation_test, t_interval, t_test

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

_EQUAL = 1e-9  # the two values of a query are the same but for rounding


@dataclass(frozen=True, slots=True)
class Difference:
    """How a system differs from the baseline on one measure: the mean of the queries' differences and its interval.

    `p` is of the paired randomisation test, `p_t` of the paired t-test, both corrected by Holm's method for the
    number of systems that are compared with the baseline on this measure. `wins`, `ties` and `losses` count queries.
    """

    mean: float
    low: float
    high: float
    p: float
    p_t: float
    wins: int
    ties: int
    losses: int

    @property
    def significant(self) -> bool:
        """Return whether the randomisation test finds a difference at the 5 % level."""
        return self.p < ALPHA


@dataclass(frozen=True, slots=True)
class Figure:
    """A measure's mean over the judged queries, with its 95 % interval; no `difference` for the baseline itself."""

    mean: float
    low: float
    high: float
    difference: Difference | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Systems on the same judged queries.

    `values[system][measure]` is float64[len(queries)], in the order of `queries`; `figures[system][measure]` sums it
    up. `baseline` is the system that the others are compared with.
    """

    baseline: str
    measures: tuple[str, ...]
    queries: tuple[str, ...]
    values: Mapping[str, Mapping[str, NDArray[np.float64]]]
    figures: Mapping[str, Mapping[str, Figure]]

    @property
    def systems(self) -> tuple[str, ...]:
        """Return the systems' names, in the order given."""
        return tuple(self.figures)

    @property
    def others(self) -> tuple[str, ...]:
        """Return the systems' names without the baseline's."""
        return tuple(name for name in self.figures if name != self.baseline)

    def differences(self, system: str, measure: str) -> NDArray[np.float64]:
        """Return each query's value less the baseline's: float64[len(queries)]."""
        return self.values[system][measure] - self.values[self.baseline][measure]


def compare(
    rankings: Mapping[str, Mapping[str, Sequence[str]]],
    qrels: Mapping[str, Mapping[str, int]],
    *,
    measures: Sequence[str] = MEASURES,
    baseline: str | None = None,
) -> Comparison:
    """Measure the systems' rankings and compare each system with the baseline.

    A query without results, or missing from a system's rankings, counts as 0.

    Args:
        rankings: system name to {query id: document ids, best first}.
        qrels: query id to {document id: grade}.
        measures: names that ir-measures knows.
        baseline: a system's name; the first if None.

    Raises:
        MissingExtra: ir-measures or scipy is not installed.
        InvalidInput: there is no system, no judged query, or no system of the baseline's name; an unknown measure.
    """
    if not rankings or not qrels:
        raise InvalidInput(f"{len(rankings)} systems and {len(qrels)} judged queries: there is nothing to compare")
    names = canonical_names(measures)
    baseline = resolve_baseline(list(rankings), baseline)
    values = {system: measure_queries(run, qrels, names=names) for system, run in rankings.items()}
    differences: dict[str, dict[str, Difference]] = {}
    for name in names:
        against = {
            system: of_measure[name] - values[baseline][name]
            for system, of_measure in values.items()
            if system != baseline
        }
        differences[name] = tested(against)
    figures = {
        system: {
            name: Figure(float(each.mean()), *t_interval(each), differences[name].get(system))
            for name, each in of_measure.items()
        }
        for system, of_measure in values.items()
    }
    return Comparison(baseline, names, tuple(qrels), values, figures)


def tested(against: Mapping[str, NDArray[np.float64]]) -> dict[str, Difference]:
    """Return what each system's differences from the baseline, float64[queries], amount to.

    Raises:
        MissingExtra: scipy is not installed.
    """
    corrected = zip(
        holm([randomisation_test(each) for each in against.values()]),
        holm([t_test(each) for each in against.values()]),
        strict=True,
    )
    return {
        system: Difference(
            float(each.mean()),
            *t_interval(each),
            p=p,
            p_t=p_t,
            wins=int(np.count_nonzero(each > _EQUAL)),
            ties=int(np.count_nonzero(np.abs(each) <= _EQUAL)),
            losses=int(np.count_nonzero(each < -_EQUAL)),
        )
        for (system, each), (p, p_t) in zip(against.items(), corrected, strict=True)
    }


def resolve_baseline(systems: Sequence[str], baseline: str | None) -> str:
    """Return the baseline's name: the first system's if None.

    Raises:
        InvalidInput: no system has this name.
    """
    if baseline is None:
        return systems[0]
    if baseline not in systems:
        raise InvalidInput(f"baseline {baseline!r} is none of the systems {', '.join(map(repr, systems))}")
    return baseline
