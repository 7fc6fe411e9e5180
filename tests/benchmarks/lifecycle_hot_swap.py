"""Switch models under load: a naive registry, its patched form in two orders, and ours, used in two ways.

    python tests/benchmarks/lifecycle_hot_swap.py [--json] [--quick] [--plot FILE] [--room both|one]

100 clients, open loop (a latency counts from when the request was due), 40 requests a second in all, two real ONNX
models of which one is meant to be active, a switch every 3 seconds, 60 seconds for each contender, in rounds of 10
seconds that take turns, each round beginning with another. Once with a budget that holds both models and once with one
that holds only one. `ours` has both models registered and leases the active one: with room for both they are eager, and
a switch loads nothing, but runs the model once before requests go to it. `replace` has one name whose model is
replaced, `patched` and `naive` a map: with these each switch loads a model and unloads one. `patched` unloads first,
which fits the post-mortem's figures; `patched_beside`, with room for both only, loads the new one beside the old.
`ours_still` never switches. `p99_ms` is of all requests of a contender, and so are the ratios; where the machine has
other guests, the median ratio of two contenders' rounds, whose requests are due at the same times, tells more: one bad
second doesn't decide it.
An answer is wrong if it is that of no model that was active at any time between the request's start and its end.
Targets: ours without errors, timeouts or wrong answers; with room for both, its p99 at most twice its own without
switching, and below the patched form's.
"""

from __future__ import annotations

import itertools
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from lifecycle_measuring import GraphLoader, Meter, finish, parse_options, quantiles_ms, write_graph
from lifecycle_registries import TIMEOUT_S, Naive, Ours, Patched, PatchedBeside, Replace

from lifecycle import LeaseTimeout

if TYPE_CHECKING:
    from lifecycle_registries import Registry

CLIENTS = 100
RATE = 40.0
SWITCH_EVERY_S = 3.0
LAYERS = 8  # 32 MB, some 3 ms a request on one core: 40 a second leave room for the loads
WORDS = 30_000  # with room for both: 120 MB more to load, next to nothing to compute, as in a small text model
KINDS: dict[str, Any] = {"naive": Naive, "patched": Patched, "replace": Replace, "ours": Ours, "ours_still": Ours}
BESIDE: dict[str, Any] = {"patched_beside": PatchedBeside}  # where there is room for both


@dataclass
class Outcome:
    """What became of a contender's requests, over all rounds."""

    points: list[tuple[float, float, str]] = field(default_factory=list)  # (due, latency, how it ended)
    begins: list[int] = field(default_factory=list)  # of each round, in `points`
    switch_s: list[float] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def p99_by_round(self) -> list[float]:
        """Return the 99th percentile of each round's served requests, in seconds."""
        ends = [*self.begins[1:], len(self.points)]
        rounds = [self.points[begin:end] for begin, end in zip(self.begins, ends, strict=True)]
        return [float(np.quantile([at for _, at, ended in some if ended == "served"], 0.99)) for some in rounds]

    def figures(self) -> dict[str, Any]:
        """Return what is printed."""
        row: dict[str, Any] = quantiles_ms([latency for _, latency, ended in self.points if ended == "served"])
        for ended in ("errors", "timeouts", "wrong_answers"):
            row[ended] = sum(point[2] == ended for point in self.points)
        row["requests"] = row.pop("n") + row["errors"] + row["timeouts"] + row["wrong_answers"]
        row["switches"] = len(self.switch_s)
        row["median_switch_ms"] = round(1000 * float(np.median(self.switch_s)), 1) if self.switch_s else None
        return row | {name: self.counts[name] for name in ("loads", "failed_switches", "overruns")}


class Round:
    """One stretch of load on one contender."""

    def __init__(self, registry: Registry, answers: dict[str, float], outcome: Outcome) -> None:
        self._registry, self._answers, self._outcome = registry, answers, outcome
        self._begun_switches = self._ended_switches = 0
        self._over = threading.Event()

    def run(self, due: np.ndarray, seconds: float, *, switching: bool) -> None:
        """Send a request at each of the times `due`, and switch meanwhile."""
        start = time.perf_counter()
        self._outcome.begins.append(len(self._outcome.points))
        offset = max((point[0] for point in self._outcome.points), default=0.0)
        threads = [
            threading.Thread(target=self._client, args=(start, due[index::CLIENTS], offset)) for index in range(CLIENTS)
        ]
        if switching:
            threads.append(threading.Thread(target=self._switch, args=(start, seconds)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _client(self, start: float, due: np.ndarray, offset: float) -> None:
        for when in due:
            time.sleep(max(0.0, start + when - time.perf_counter()))
            first = self._ended_switches
            try:
                answer = self._registry.infer()
            except (TimeoutError, LeaseTimeout):
                ended = "timeouts"
            except Exception:  # noqa: BLE001 - whatever goes wrong is what is counted
                ended = "errors"
            else:
                active = {"AB"[number % 2] for number in range(first, self._begun_switches + 1)}
                right = any(abs(answer - self._answers[name]) < 1e-5 for name in active)
                ended = "served" if right else "wrong_answers"
            latency = time.perf_counter() - start - when
            ended = "timeouts" if ended == "served" and latency > TIMEOUT_S else ended
            self._outcome.points.append((offset + when, latency, ended))

    def _switch(self, start: float, seconds: float) -> None:
        for number in range(1, int(seconds / SWITCH_EVERY_S) + 1):
            time.sleep(max(0.0, start + number * SWITCH_EVERY_S - 0.5 - time.perf_counter()))
            begun = time.perf_counter()
            self._begun_switches += 1
            try:
                self._registry.switch("AB"[number % 2])
            except Exception:  # noqa: BLE001 - as above; the old model then goes on being the right one too
                self._outcome.counts["failed_switches"] += 1
            else:
                self._ended_switches += 1
            self._outcome.switch_s.append(time.perf_counter() - begun)


def measure(folder: Path, seconds: float, rounds: int, rooms: list[str]) -> dict[str, dict[str, Outcome]]:
    """Return all that happened, by budget and contender."""
    outcomes: dict[str, dict[str, Outcome]] = {}
    for room in rooms:
        sizes = {"layers": LAYERS, "words": WORDS if room == "both" else 0}
        paths = {name: write_graph(folder / f"{room}-{name}.onnx", seed=ord(name), **sizes) for name in "AB"}
        nbytes = sum(path.stat().st_size for path in paths.values())
        answers = {name: GraphLoader(Meter(nbytes)).load_model(path).infer() for name, path in paths.items()}
        kinds = KINDS | (BESIDE if room == "both" else {})
        rows = outcomes[f"room_for_{room}"] = {name: Outcome() for name in kinds}
        for number in range(rounds):
            rng = np.random.default_rng(number)
            due = np.cumsum(rng.exponential(1 / RATE, int(RATE * seconds * 2)))
            turn = number % len(kinds)
            for name, kind in [*kinds.items()][turn:] + [*kinds.items()][:turn]:
                meter = Meter(nbytes if room == "both" else nbytes // 2)
                registry = kind(GraphLoader(meter), paths, roomy=room == "both")
                Round(registry, answers, rows[name]).run(due[due < seconds], seconds, switching=name != "ours_still")
                registry.close()
                rows[name].counts["overruns"] += meter.counts["overruns"]
                rows[name].counts["loads"] += meter.counts["loads"]
    return outcomes


def report(outcomes: dict[str, dict[str, Outcome]]) -> dict[str, Any]:
    """Return the figures of every contender, and how ours compare."""
    figures: dict[str, Any] = {}
    for budget, rows in outcomes.items():
        figures[budget] = told = {name: outcome.figures() for name, outcome in rows.items()}
        others = [name for name in ("ours_still", "patched", "patched_beside") if name in rows]
        for name, other in itertools.product(("ours", "replace"), others):
            figures[budget][f"p99_{name}_to_{other}"] = round(told[name]["p99_ms"] / told[other]["p99_ms"], 2)
            ratios = np.divide(rows[name].p99_by_round(), rows[other].p99_by_round())
            figures[budget][f"median_round_p99_{name}_to_{other}"] = round(float(np.median(ratios)), 2)
    return figures


def draw(plt: Any, outcomes: dict[str, dict[str, Outcome]]) -> None:
    """Plot each request: when it was due, how long it took, how it ended."""
    _, axes = plt.subplots(
        len(outcomes), len(KINDS | BESIDE), figsize=(19, 3 * len(outcomes)), sharex=True, sharey=True, squeeze=False
    )
    for row, (budget, contenders) in zip(axes, outcomes.items(), strict=True):
        for axis in row[len(contenders) :]:
            axis.set_axis_off()
        for axis, (name, outcome) in zip(row, contenders.items(), strict=False):
            for ended, colour in (("served", "C0"), ("errors", "red"), ("timeouts", "black"), ("wrong_answers", "C1")):
                points = [(due, 1000 * latency) for due, latency, how in outcome.points if how == ended]
                axis.scatter(*(zip(*points, strict=True) if points else ((), ())), s=3, c=colour, label=ended)
            axis.set(title=f"{name}, {budget}".replace("_", " "), yscale="log")
        row[0].set_ylabel("latency, ms")
        for axis in row[: len(contenders)]:
            axis.set_xlabel("due, s")
    axes[0][0].legend(fontsize="small")


def main() -> None:
    """Print the figures; fail if ours failed anybody."""
    options = parse_options(__doc__, room="both and one")
    rooms = options.room.split(" and ")
    with tempfile.TemporaryDirectory() as folder:
        outcomes = measure(Path(folder), 10.0, 1 if options.quick else 6, rooms)
    figures = report(outcomes)
    wrong: Counter[str] = Counter()
    for rows in figures.values():
        for name in ("errors", "timeouts", "wrong_answers", "failed_switches", "overruns"):
            wrong[name] += sum(rows[ours][name] for ours in ("ours", "replace", "ours_still"))
    finish(figures, options, wrong=dict(wrong), draw=lambda plt: draw(plt, outcomes))


if __name__ == "__main__":
    main()
