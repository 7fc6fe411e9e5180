"""A Hypothesis state machine: the manager against a naive ledger that keeps an ordered list of what is resident."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from lifecycle_fakes import COLD, Bench

from lifecycle import BudgetExhausted, LoadFailed, ModelConfig, ModelRef, UnloadTimeout

if TYPE_CHECKING:
    from lifecycle.leasing.lease import Lease

CONFIGS = {
    "A": COLD,
    "B": COLD,
    "C": ModelConfig(warm_up=True, ttl_s=5.0),
    "D": ModelConfig(warm_up=False, eviction_rank=5),
    "E": ModelConfig(warm_up=False, pinned=True, ttl_s=1.0),
    "F": ModelConfig(warm_up=False, eviction_rank=-5, ttl_s=9.0),
}
names = st.sampled_from(sorted(CONFIGS))


@dataclass
class Naive:
    """What a reader would write down: who is resident since which last release, who is leased, who backs off."""

    budget: int
    last_used: dict[str, float] = field(default_factory=dict)
    leased: dict[str, int] = field(default_factory=dict)
    retry_at: dict[str, float] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)

    def idle(self) -> list[str]:
        """Return who may be evicted, in the order of eviction."""
        free = [n for n in self.last_used if not self.leased.get(n) and not CONFIGS[n].pinned]
        return sorted(free, key=lambda n: (-CONFIGS[n].eviction_rank, self.last_used[n], list(self.last_used).index(n)))

    def expire(self, now: float) -> None:
        """Drop whoever's time is over."""
        for name, used in list(self.last_used.items()):
            ttl_s = CONFIGS[name].ttl_s
            if ttl_s is not None and not CONFIGS[name].pinned and not self.leased.get(name) and used + ttl_s <= now:
                del self.last_used[name]


class ManagerAgainstLedger(RuleBasedStateMachine):
    """Every model weighs 1; all is done from one thread, so what must be resident is known exactly."""

    @initialize(budget=st.integers(1, 4))
    def start(self, budget: int) -> None:
        """Open a manager and an empty ledger."""
        self.b = Bench(budget)
        self.naive = Naive(budget)
        self.open: list[tuple[str, Lease]] = []
        for name, config in CONFIGS.items():
            self.b.add(name, config=config)

    @rule(name=names, fails=st.booleans())
    def take(self, name: str, fails: bool) -> None:  # noqa: FBT001 - hypothesis calls it
        """Take a lease, or be refused as the ledger says."""
        naive, lease = self.naive, self.b.lease(name)
        naive.expire(self.b.clock.now)
        if name not in naive.last_used:
            if self.b.clock.now < naive.retry_at.get(name, 0.0):
                self.refused(lease, LoadFailed)
                return
            if not self.make_room(name):
                return
            if fails:
                self.b.loader.faults[name, "load"] = [OSError("broken")]
                self.refused(lease, LoadFailed)
                naive.failures[name] = naive.failures.get(name, 0) + 1
                naive.retry_at[name] = self.b.clock.now + min(60.0, 2.0 ** (naive.failures[name] - 1))
                return
            naive.failures.pop(name, None)
            naive.last_used[name] = self.b.clock.now
        model = lease.__enter__()
        assert model.name == name
        assert not model.closed
        naive.leased[name] = naive.leased.get(name, 0) + 1
        self.open.append((name, lease))

    def make_room(self, name: str) -> bool:
        """Evict in the naive ledger, or check that the manager refuses what it can't."""
        naive = self.naive
        if len(naive.last_used) < naive.budget:
            return True
        if not naive.idle():
            self.refused(self.b.lease(name, 0.0), BudgetExhausted)
            return False
        del naive.last_used[naive.idle()[0]]
        return True

    def refused(self, lease: Lease, kind: type[Exception]) -> None:
        """Check that entering a lease raises."""
        with pytest.raises(kind):
            lease.__enter__()

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def give_back(self, data: Any) -> None:
        """Return an open lease, twice."""
        name, lease = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
        lease.__exit__(None, None, None)
        lease.release()
        self.naive.leased[name] -= 1
        self.naive.last_used[name] = self.b.clock.now

    @rule(seconds=st.sampled_from([0.5, 1.0, 4.5, 60.0]))
    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.b.pass_time(seconds)
        self.naive.expire(self.b.clock.now)

    @rule(name=names)
    def unload(self, name: str) -> None:
        """Unload what is idle; what is leased stays."""
        if self.naive.leased.get(name):
            with pytest.raises(UnloadTimeout):
                self.b.manager.unload(ModelRef("t", name), drain_timeout_s=0.0)
        else:
            self.b.manager.unload(ModelRef("t", name), drain_timeout_s=0.0)
            self.naive.last_used.pop(name, None)
            self.naive.expire(self.b.clock.now)

    @invariant()
    def ledger_agrees(self) -> None:
        """Compare who is resident, charged and leased."""
        if not hasattr(self, "naive"):
            return
        self.b.until(lambda state: all(g.job is None for g in state.generations.values()))
        resident = {g.key.digest for g in self.b.state.generations.values()}
        overdue = {n for n in resident - self.naive.last_used.keys() if CONFIGS[n].ttl_s is not None}
        assert resident - overdue == self.naive.last_used.keys()
        assert self.b.state.charged_nbytes == len(resident) <= self.naive.budget
        assert {n for n, count in self.b.loader.resident.items() if count} == resident
        leases = {model.key.digest: model.leases for model in self.b.manager.snapshot().models if model.leases}
        assert leases == {n: count for n, count in self.naive.leased.items() if count}

    def teardown(self) -> None:
        """Return everything and close."""
        for _, lease in self.open:
            lease.release()
        self.b.finish()


TestManagerAgainstLedger = ManagerAgainstLedger.TestCase
TestManagerAgainstLedger.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
