"""What a lease on a loaded model costs: ours, a registry under one RLock, and a bare pair of lock operations.

    python tests/benchmarks/lifecycle_hot_path.py --json [--seconds 0.2]

All contenders are measured in turns in one run. `us` is the wall time of taking and returning a lease, best and median
of the rounds. `kept` compares, for each number of threads, operations per second with what one thread does, and
`kept_by_empty_loop` is the same for a loop that does nothing: with the GIL neither can be more than about 1.
"""

from __future__ import annotations

import argparse
import json
import statistics
import threading
import time
from typing import TYPE_CHECKING, Any

from lifecycle import InstanceKey, ModelManager, ModelRef

if TYPE_CHECKING:
    from collections.abc import Callable

    Operation = Callable[[int], None]

MODELS = 4
ROUNDS = 9


class _Model:
    nbytes = 1

    def close(self) -> None:
        """Free nothing."""


class _Loader:
    name = "none"

    def estimate(self, _spec: object) -> int:
        """Return one byte."""
        return 1

    def load_model(self, _spec: object) -> _Model:
        """Load at once."""
        return _Model()


class _Registry:
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
            for _ in range(100):
                operation(number)
            done += 100
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


def measure(manager: ModelManager, refs: list[ModelRef], seconds: float) -> dict[str, Any]:
    """Return all figures."""
    registry, lock = _Registry(), threading.Lock()

    def lease(number: int) -> None:
        with manager.lease(refs[number]):
            pass

    def lock_pair(_number: int) -> None:
        with lock:
            pass
        with lock:
            pass

    def nothing(_number: int) -> None:
        pass

    contenders: dict[str, Operation] = {
        "lease": lease,
        "rlock_registry": registry.use,
        "lock_pair": lock_pair,
        "empty_loop": nothing,
    }
    for number in range(MODELS):
        lease(number)
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(ROUNDS):
        for name, operation in contenders.items():
            times[name].append(1e6 / per_second(operation, 1, seconds, same=True))
    result: dict[str, Any] = {
        "us": {name: {"best": round(min(t), 3), "median": round(statistics.median(t), 3)} for name, t in times.items()}
    }
    for same in (True, False):
        rows = {}
        for threads in (2, 8, 64):
            rates = {
                name: statistics.median(per_second(op, threads, seconds, same=same) for _ in range(3))
                for name, op in contenders.items()
            }
            rows[threads] = {
                name: round(rate * statistics.median(times[name]) / 1e6, 3) for name, rate in rates.items()
            }
        result["kept_on_the_same_model" if same else "kept_on_different_models"] = rows
    return result


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.2, help="length of each round")
    parser.add_argument("--json", action="store_true", help="print on one line")
    options = parser.parse_args()
    with ModelManager(MODELS) as manager:
        refs = [ModelRef("bench", str(number)) for number in range(MODELS)]
        for ref in refs:
            manager.register(ref, None, _Loader(), key=InstanceKey(ref.name, "none"))
        print(json.dumps(measure(manager, refs, options.seconds), indent=None if options.json else 2))


if __name__ == "__main__":
    main()
