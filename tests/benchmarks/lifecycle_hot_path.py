"""What a lease on a loaded model costs: ours, alone, through a chain of backends and awaited; and what others would do.

The others are a registry under one RLock, and a bare pair of lock operations.

    python tests/benchmarks/lifecycle_hot_path.py [--json] [--quick] [--plot FILE] [--seconds 0.1]

All contenders are measured in turns, round by round. `us` is the wall time of taking and returning a lease with one
thread. `kept` is the rate of all threads together, compared with one thread's: with the GIL it can't be more than
about 1, and an empty loop shows what the interpreter alone leaves of it. `kept_of_empty_loop` is the ratio of the two.
`awaited_us` is `us` of a lease that a coroutine takes, in a running event loop.
Targets: a median of at most 1 us, through a chain at most 1 us more; at least 0.9 of what the empty loop keeps.
"""

from __future__ import annotations

import asyncio
import statistics
import threading
import time
from collections import defaultdict
from itertools import product
from typing import TYPE_CHECKING, Any

from lifecycle_measuring import FakeLoader, finish, parse_options

from lifecycle import Chain, InstanceKey, ModelManager, ModelRef, aio

if TYPE_CHECKING:
    from collections.abc import Callable

    Operation = Callable[[int], None]

MODELS = 64  # so that each of 64 threads can have its own
THREADS = (1, 2, 8, 64)
BATCH = 100  # operations between two looks at the clock


class Registry:
    """The usual sketch: one lock around a dict of counts."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.refs = dict.fromkeys(range(MODELS), 0)
        self.last_used = dict.fromkeys(range(MODELS), 0.0)

    def use(self, number: int) -> None:
        """Count up and down."""
        with self.lock:
            self.refs[number] += 1
        with self.lock:
            self.refs[number] -= 1
            self.last_used[number] = time.monotonic()


def per_second(operation: Operation, threads: int, seconds: float, *, same: bool) -> float:
    """Return how often all threads together do the operation, on one model or on different ones."""
    counts = [0] * threads
    start, stop = threading.Barrier(threads + 1), threading.Event()

    def work(index: int) -> None:
        number = 0 if same else index % MODELS
        done = 0
        start.wait()
        while not stop.is_set():
            for _ in range(BATCH):
                operation(number)
            done += BATCH
        counts[index] = done

    workers = [threading.Thread(target=work, args=(index,)) for index in range(threads)]
    for worker in workers:
        worker.start()
    start.wait()
    begun = time.perf_counter()
    stop.wait(seconds)
    stop.set()
    for worker in workers:
        worker.join()
    return sum(counts) / (time.perf_counter() - begun)


async def awaited_us(manager: ModelManager, ref: ModelRef, seconds: float) -> float:
    """Return the microseconds of a lease that a coroutine takes and returns."""
    done, begun = 0, time.perf_counter()
    while time.perf_counter() - begun < seconds:
        for _ in range(BATCH):
            async with aio.lease(manager, ref):
                pass
        done += BATCH
    return 1e6 * (time.perf_counter() - begun) / done


def contenders(manager: ModelManager, refs: list[ModelRef]) -> dict[str, Operation]:
    """Return what is compared, each a function of the model's number."""
    lock = threading.Lock()
    chains = [Chain(manager, [ref]) for ref in refs]

    def lease(number: int) -> None:
        with manager.lease(refs[number]):
            pass

    def chain(number: int) -> None:
        chains[number].run(no_work)

    def lock_pair(_number: int) -> None:
        with lock:
            pass
        with lock:
            pass

    def nothing(_number: int) -> None:
        pass

    return {
        "lease": lease,
        "chain": chain,
        "rlock_registry": Registry().use,
        "lock_pair": lock_pair,
        "empty_loop": nothing,
    }


def no_work(_model: object, _lease: object) -> None:
    """Do nothing with a leased model."""


def measure(
    operations: dict[str, Operation], awaited: Callable[[], float], rounds: int, seconds: float
) -> dict[str, Any]:
    """Return all figures: medians over the rounds, of ratios within a round."""
    us: dict[str, list[float]] = defaultdict(list)
    awaiting: list[float] = []
    kept: dict[tuple[str, int, str], list[float]] = defaultdict(list)
    for _ in range(rounds):
        awaiting.append(awaited())
        for name, operation in operations.items():
            alone = per_second(operation, 1, seconds, same=True)
            us[name].append(1e6 / alone)
            for same, threads in product((True, False), THREADS[1:]):
                rate = per_second(operation, threads, seconds, same=same)
                kept["same_model" if same else "different_models", threads, name].append(rate / alone)
    figures: dict[str, Any] = {
        "us": {name: _best_and_median(times) for name, times in us.items()},
        "awaited_us": _best_and_median(awaiting),
    }
    for models in ("same_model", "different_models"):
        rows = figures[models] = {}
        for threads in THREADS[1:]:
            medians = {name: statistics.median(kept[models, threads, name]) for name in operations}
            rows[str(threads)] = {
                "kept": {name: round(median, 3) for name, median in medians.items()},
                "kept_of_empty_loop": {
                    name: round(median / medians["empty_loop"], 3) for name, median in medians.items()
                },
            }
    return figures


def _best_and_median(times: list[float]) -> dict[str, float]:
    return {"best": round(min(times), 3), "median": round(statistics.median(times), 3)}


def draw(plt: Any, figures: dict[str, Any]) -> None:
    """Plot the rate that each contender keeps, over the number of threads."""
    _, axes = plt.subplots(1, 2, figsize=(9, 3.5), sharey=True)
    for axis, models in zip(axes, ("same_model", "different_models"), strict=True):
        for name, time_us in figures["us"].items():
            rates = [1.0, *(row["kept"][name] for row in figures[models].values())]
            axis.plot([str(n) for n in THREADS], rates, marker="o", label=f"{name} ({time_us['median']} us)")
        axis.set(title=models.replace("_", " "), xlabel="threads", ylim=(0, 1.3))
    axes[0].set_ylabel("rate kept, of one thread's")
    axes[0].legend(fontsize="small")


def main() -> None:
    """Print the figures."""
    options = parse_options(__doc__, seconds=0.1)
    with ModelManager(MODELS) as manager:
        refs = [ModelRef("bench", str(number)) for number in range(MODELS)]
        for ref in refs:
            manager.register(ref, 1, FakeLoader(), key=InstanceKey(ref.name, "fake"))
        operations = contenders(manager, refs)
        for number in range(MODELS):
            operations["lease"](number)
        rounds, seconds = (2, 0.02) if options.quick else (9, options.seconds)
        figures = measure(operations, lambda: asyncio.run(awaited_us(manager, refs[0], seconds)), rounds, seconds)
        after = manager.snapshot()
    wrong = {
        "open_leases": sum(model.leases for model in after.models),
        "evictions": after.counters.evictions,
        "surplus_loads": after.counters.lazy_loads - MODELS,
    }
    finish(figures, options, wrong=wrong, draw=lambda plt: draw(plt, figures))


if __name__ == "__main__":
    main()
