"""How much is loaded again under each eviction policy: 500 models of mixed sizes, a budget of 10 % of them all.

    python tests/benchmarks/lifecycle_eviction_trace.py [--json] [--quick] [--plot FILE]

`lru` and `gdsf` are the manager's own pure functions, driven without threads. `zipf` draws models independently
(popularity ~ 1 / rank); in `shifting`, a tenth of the models trade their ranks every 1,000 requests. A load takes 0.1 s
and a second per 500 MB; every fourth model also compiles, eight times as long.

`gdsf` evicts what is worth least: seconds to load * uses / bytes, plus what the dearest victim so far was worth
(GreedyDual-Size-Frequency, Cherkasova 1998). `belady` evicts whatever is needed again last (Belady 1966), which is
optimal for equal sizes only. `bound` is below what any policy must load, sizes or not: PFOO-L (Berger, Beckmann,
Harchol-Balter 2018). A hit keeps its model's bytes busy since the request before; the bound grants the cheapest such
hits until the budget is used up on average over time, rather than at each moment, for each column by itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from lifecycle_measuring import finish, parse_options

from lifecycle.heart.policy import Candidate, choose_victims, worth

if TYPE_CHECKING:
    from collections.abc import Iterable

MODELS = 500
SHARES = (0.02, 0.05, 0.1, 0.2, 0.4)
SHARE = 0.1
SHIFT_EVERY = 1_000
COLUMNS = ("loads", "loaded_gb", "load_s")


@dataclass(frozen=True)
class Trace:
    """Which model is asked for at each step, when that one is next asked for, and what each of them costs."""

    name: str
    models: np.ndarray
    next_use: np.ndarray
    nbytes: np.ndarray
    load_s: np.ndarray

    @property
    def costs(self) -> tuple[np.ndarray, ...]:
        """Return what loading each model adds to each column."""
        return np.ones(len(self.nbytes)), self.nbytes / 1e9, self.load_s


def make_trace(name: str, length: int) -> Trace:
    """Draw a trace."""
    rng = np.random.default_rng(5)
    nbytes = np.clip(rng.lognormal(math.log(150e6), 1.0, MODELS), 10e6, 2e9).astype(np.int64)
    load_s = 0.1 + nbytes / 500e6 * np.where(np.arange(MODELS) % 4, 1.0, 8.0)
    popularity = 1 / np.arange(1, MODELS + 1)
    popularity /= popularity.sum()
    by_rank = rng.permutation(MODELS)
    parts = []
    for start in range(0, length, SHIFT_EVERY):
        ranks = rng.choice(MODELS, min(SHIFT_EVERY, length - start), p=popularity)
        parts.append(by_rank[ranks])
        if name == "shifting":
            trading = rng.choice(MODELS, MODELS // 10, replace=False)
            by_rank[trading] = by_rank[rng.permutation(trading)]
    models = np.concatenate(parts)
    return Trace(name, models, next_uses(models), nbytes, load_s)


def next_uses(models: np.ndarray) -> np.ndarray:
    """Return the step at which each step's model is asked for again, the trace's length if it never is."""
    next_use = np.full(len(models), len(models))
    seen: dict[int, int] = {}
    for step in reversed(range(len(models))):
        next_use[step] = seen.get(int(models[step]), len(models))
        seen[int(models[step])] = step
    return next_use


@dataclass
class Resident:
    """A loaded model, as a policy sees it."""

    model: int
    nbytes: int
    load_s: float
    ready_at: int
    last_used: int = 0
    next_use: int = 0
    uses: int = 0
    worth: float = 0.0


class Lru:
    """Evict as the manager does by default."""

    def touch(self, resident: Resident) -> None:
        """Note a use, after the resident's own figures were brought up to date."""

    def choose(self, short_nbytes: int, residents: Iterable[Resident]) -> Iterable[int]:
        """Return whom to evict, or yield them."""
        candidates = [Candidate(r.model, r.nbytes, True, 0, r.ready_at, r.last_used, worth=r.worth) for r in residents]
        return choose_victims(short_nbytes, candidates) or ()


class Gdsf(Lru):
    """Evict as the manager does with `eviction="gdsf"`."""

    def __init__(self) -> None:
        self._inflation = 0.0

    def touch(self, resident: Resident) -> None:
        """Renew what the resident is worth, at the present inflation."""
        resident.worth = worth(self._inflation, resident.uses, resident.load_s, resident.nbytes)

    def choose(self, short_nbytes: int, residents: Iterable[Resident]) -> Iterable[int]:
        """Return whom to evict, and let what they were worth be the inflation."""
        known = {resident.model: resident for resident in residents}
        victims = super().choose(short_nbytes, known.values())
        self._inflation = max([self._inflation, *(known[victim].worth for victim in victims)])
        return victims


class Belady(Lru):
    """Evict what is needed again last."""

    def choose(self, short_nbytes: int, residents: Iterable[Resident]) -> Iterable[int]:
        """Yield whom to evict."""
        for resident in sorted(residents, key=lambda r: (-r.next_use, r.model)):
            if short_nbytes <= 0:
                return
            short_nbytes -= resident.nbytes
            yield resident.model


POLICIES: dict[str, type[Lru]] = {"lru": Lru, "gdsf": Gdsf, "belady": Belady}


def simulate(trace: Trace, budget: int, policy: Lru) -> tuple[list[float], int]:
    """Return the columns, and how often the budget was overrun."""
    residents: dict[int, Resident] = {}
    used = overruns = 0
    loads = np.zeros(len(trace.nbytes))
    for step, model in enumerate(trace.models.tolist()):
        resident = residents.get(model)
        if resident is None:
            resident = Resident(model, int(trace.nbytes[model]), float(trace.load_s[model]), step)
            for victim in list(policy.choose(used + resident.nbytes - budget, residents.values())):
                used -= residents.pop(victim).nbytes
            residents[model] = resident
            used += resident.nbytes
            overruns += used > budget
            loads[model] += 1
        resident.last_used, resident.next_use = step, int(trace.next_use[step])
        resident.uses += 1
        policy.touch(resident)
    return [float(loads @ cost) for cost in trace.costs], overruns


def bound(trace: Trace, budget: int) -> list[float]:
    """Return for each column what no policy can be below (PFOO-L)."""
    steps = np.arange(len(trace.models))
    again = trace.next_use < len(trace.models)
    busy = trace.nbytes[trace.models[again]] * (trace.next_use[again] - steps[again])
    columns = []
    for cost in trace.costs:
        saved = cost[trace.models[again]]
        cheapest = np.argsort(busy / saved)
        weight = np.cumsum(busy[cheapest])
        whole = int(np.searchsorted(weight, budget * len(steps), side="right"))
        part = 0.0
        if whole < len(weight):  # the last hit counts by the share of it that fits
            room = budget * len(steps) - (weight[whole - 1] if whole else 0)
            part = float(saved[cheapest[whole]] * room / busy[cheapest[whole]])
        columns.append(float(cost[trace.models].sum() - saved[cheapest[:whole]].sum() - part))
    return columns


def measure(length: int, shares: tuple[float, ...]) -> tuple[dict[str, Any], dict[str, int]]:
    """Return the columns by trace, budget and policy, and what must be 0."""
    figures: dict[str, Any] = {"models": MODELS, "requests": length}
    wrong = {"overruns": 0, "below_the_bound": 0}
    for name in ("zipf", "shifting"):
        trace = make_trace(name, length)
        figures[name] = {}
        for share in shares:
            budget = int(share * trace.nbytes.sum())
            least = bound(trace, budget)
            rows = {}
            for policy, make in POLICIES.items():
                columns, overruns = simulate(trace, budget, make())
                wrong["overruns"] += overruns
                wrong["below_the_bound"] += any(have < lim - 1e-6 for have, lim in zip(columns, least, strict=True))
                rows[policy] = columns
            rows["bound"] = least
            figures[name][f"{share:.0%}"] = {
                policy: {column: round(value, 1) for column, value in zip(COLUMNS, columns, strict=True)}
                | {"hit_ratio": round(1 - columns[0] / length, 4)}
                for policy, columns in rows.items()
            }
    return figures, wrong


def draw(plt: Any, figures: dict[str, Any]) -> None:
    """Plot each column over the budget."""
    _, axes = plt.subplots(2, 3, figsize=(11, 6), sharex=True)
    for row, name in zip(axes, ("zipf", "shifting"), strict=True):
        for axis, column in zip(row, COLUMNS, strict=True):
            for policy in (*POLICIES, "bound"):
                values = [rows[policy][column] for rows in figures[name].values()]
                axis.plot(list(figures[name]), values, "k:" if policy == "bound" else "o-", label=policy, markersize=3)
            axis.set(title=f"{column}, {name}", ylim=(0, None))
        row[0].legend(fontsize="small")
    axes[1][1].set_xlabel("budget, share of all models' bytes")


def main() -> None:
    """Print the figures."""
    options = parse_options(__doc__)
    figures, wrong = measure(*((3_000, (SHARE,)) if options.quick else (30_000, SHARES)))
    finish(figures, options, wrong=wrong, draw=lambda plt: draw(plt, figures))


if __name__ == "__main__":
    main()
