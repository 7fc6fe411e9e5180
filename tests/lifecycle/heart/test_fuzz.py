"""Random orders, with times from 0 to beyond all timers: the keeper meets no defect, and everybody ends."""

from __future__ import annotations

import logging
import math
import random
import sys
from contextlib import suppress
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest
from lifecycle_fakes import Bench, Call, FakeSpec

from backends.errors import VectorSearchError
from lifecycle import LoadPolicy, ModelConfig, ModelRef

if TYPE_CHECKING:
    from collections.abc import Callable

TIMES: list[Any] = [
    0, 0.0, 5e-324, 1e-9, 0.1, 1, 7.5, 30, Fraction(1, 3), 1e6, 9.3e9, 1e10, 2**63, 1e19, 1e300, sys.float_info.max,
    10**400,
]  # fmt: skip
NAMES = "ABCDEF"
TENANTS = "tuv"
FAULTS = (OSError, SystemExit, KeyboardInterrupt, GeneratorExit, MemoryError, RecursionError)
STEPS = ("load", "nbytes", "warm_up", "close")
SETTINGS = ("unload_timeout_s", "ageing_s")


class Fuzz:
    """One run: a bench, a source of chance, and all the calls that it has begun."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 - chance, not secrets
        few = [time for time in TIMES if time]
        limits: dict[str, Any] = {name: self.random.choice(few) for name in SETTINGS if self.random.random() < 0.4}
        limits["max_parallel_loads"] = self.random.randint(1, 3)
        limits["eviction"] = self.random.choice(["lru", "gdsf"])
        limits["max_waiters"] = self.random.choice([None, 1, 3])
        self.b = Bench(self.random.randint(0, 5), **limits)
        self.calls: list[Call] = []
        self.leases: list[Any] = []
        self.moves: list[Callable[[], object]] = [
            self.register, self.lease, self.lease, self.lease_set, self.give_back, self.unload, self.replace,
            self.unregister, self.prefetch, self.pin, self.set_budget, self.set_tenant, self.let_pass, self.let_pass,
            self.hold, self.let_go, self.fail, self.look,
        ]  # fmt: skip

    def time(self) -> Any:
        """Return some seconds."""
        return self.random.choice(TIMES)

    def ref(self) -> ModelRef:
        """Return some name."""
        return ModelRef(self.random.choice(TENANTS), self.random.choice(NAMES))

    def register(self) -> None:
        """Register a model, with some config."""
        config = ModelConfig(
            load_policy=self.random.choice(list(LoadPolicy)),
            ttl_s=self.random.choice([None, math.inf, self.time()]),
            min_residency_s=self.random.choice([0, self.time()]),
            load_timeout_s=self.random.choice([120.0, math.inf, self.time() or 1]),
            pinned=self.random.random() < 0.1,
            warm_up=self.random.random() < 0.5,
            eviction_rank=self.random.randint(-1, 1),
        )
        ref = self.ref()
        size = self.random.randint(0, 3)
        spec = FakeSpec(ref.name, size, self.random.choice([size, size, size + 1]))
        self.b.manager.register(ref, spec, self.b.loader, config)

    def begin(self, function: Callable[[], object]) -> None:
        """Call something that may wait, beside the rest."""
        self.calls.append(Call(function))

    def lease(self) -> None:
        """Take a lease, and keep it."""
        lease = self.b.manager.lease(self.ref(), self.time(), ttl_s=self.random.choice([None, self.time()]))
        self.leases.append(lease)
        self.begin(lease.__enter__)

    def lease_set(self) -> None:
        """Take a set, and keep it."""
        lease = self.b.manager.lease_set([self.ref(), self.ref()], self.time())
        self.leases.append(lease)
        self.begin(lease.__enter__)

    def give_back(self) -> None:
        """Give something back."""
        if self.leases:
            self.leases.pop(self.random.randrange(len(self.leases))).release()

    def unload(self) -> None:
        """Unload a model."""
        ref, seconds = self.ref(), self.time()
        self.begin(lambda: self.b.manager.unload(ref, drain_timeout_s=seconds))

    def replace(self) -> None:
        """Replace a model."""
        ref, seconds, drain = self.ref(), self.time(), self.random.random() < 0.5
        spec = FakeSpec(self.random.choice(NAMES), 1, 1)
        self.begin(lambda: self.b.manager.replace(ref, spec, timeout_s=seconds, drain_first=drain))

    def unregister(self) -> None:
        """Forget a name."""
        self.b.manager.unregister(self.ref(), drain_timeout_s=self.time())

    def prefetch(self) -> None:
        """Prefetch something."""
        self.b.manager.prefetch([self.ref(), self.ref()])

    def pin(self) -> None:
        """Pin or unpin something."""
        self.random.choice([self.b.manager.pin, self.b.manager.unpin])(self.ref())

    def set_budget(self) -> None:
        """Change the budget."""
        self.b.manager.set_budget(self.random.randint(0, 6))

    def set_tenant(self) -> None:
        """Bound a tenant."""
        quota = self.random.choice([None, self.random.randint(0, 5)])
        sure = self.random.randint(0, 5 if quota is None else quota)
        self.b.manager.set_tenant(self.random.choice(TENANTS), quota_nbytes=quota, guaranteed_nbytes=sure)

    def let_pass(self) -> None:
        """Let time pass, a little or a long one."""
        self.b.pass_time(self.random.choice([0.0, 0.01, 1.0, 10.0, 100.0, 1e4]))

    def hold(self) -> None:
        """Make a step of a model hang."""
        self.b.loader.hold(self.random.choice(NAMES), self.random.choice(STEPS))

    def let_go(self) -> None:
        """Let everything that hangs go on."""
        gates, self.b.loader.gates = self.b.loader.gates, {}
        for gate in gates.values():
            gate.opened.set()

    def fail(self) -> None:
        """Make a step of a model raise, once."""
        step = self.random.choice(NAMES), self.random.choice(STEPS)
        self.b.loader.faults[step] = [self.random.choice(FAULTS)("chance")]

    def look(self) -> None:
        """Look at everything."""
        self.b.manager.snapshot()
        self.b.manager.waiting()
        self.b.manager.holders()

    def run(self, steps: int) -> None:
        """Make some moves; then let all end, and see that the manager still serves."""
        for _ in range(steps):
            with suppress(VectorSearchError):
                self.random.choice(self.moves)()
        self.let_go()
        self.b.loader.faults.clear()
        ref = ModelRef("z", "Z")
        self.b.manager.register(ref, FakeSpec("Z", 0, 0), self.b.loader, ModelConfig(warm_up=False))
        self.b.manager.set_budget(10**6)
        with suppress(VectorSearchError), self.b.manager.lease(ref, 1e9):  # a full queue may refuse it
            pass
        self.end()

    def end(self) -> None:
        """Let all time pass, and insist that whatever was begun ends with an answer or an error of the manager's."""
        while self.leases or any(call.is_alive() for call in self.calls):
            while self.leases:
                self.give_back()
            self.b.clock.now = sys.float_info.max
            self.b.manager.reap()
            for call in self.calls:
                call.join(0.01)
            self.let_go()
        for call in self.calls:
            error = call.error()
            assert error is None or isinstance(error, VectorSearchError), repr(error)
        self.b.manager.close(timeout_s=0.0) if not self.b.state.generations else self.b.manager.reap()


def fuzz(seed: int, steps: int, caplog: pytest.LogCaptureFixture) -> None:
    """Run once, and insist that the keeper has logged no defect."""
    run = Fuzz(seed)
    with caplog.at_level(logging.ERROR):
        run.run(steps)
    keeper = run.b.manager._keeper
    defects = [
        record for record in caplog.records if record.name in {"lifecycle.keeping.mailbox", "lifecycle.keeping.keeper"}
    ]  # leaks are its own
    assert not defects, (seed, defects[0].exc_info)
    with suppress(VectorSearchError):
        run.b.manager.close(timeout_s=0.0)
    assert keeper._thread is None or keeper.is_finished or keeper._thread.is_alive()


@pytest.mark.parametrize("seed", range(6))
def test_nothing_hangs_when_orders_and_times_are_random(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    """L1: times from 0 to beyond all timers, by every argument: everybody ends, and the keeper meets no defect."""
    fuzz(seed, 150, caplog)


@pytest.mark.deep
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(100, 400))
def test_nothing_hangs_when_many_orders_and_times_are_random(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    """L1: as above, with other seeds, and for longer."""
    fuzz(seed, 600, caplog)
