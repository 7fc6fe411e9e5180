"""Threads at full speed, the interpreter switching as often as it can: nothing in use is closed, nothing is lost."""

from __future__ import annotations

import random
import sys
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from lifecycle_fakes import Call

from lifecycle import ModelConfig, ModelRef
from lifecycle.leasing.handle import ModelHandle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lifecycle_fakes import Bench

    MakeBench = Callable[..., Bench]

THREADS = 32
OPERATIONS = 1000
NAMES = "ABCDEF"
ROOM = 4
FAVOURITE = "A"  # all that most threads want, and the first to be evicted
SEEKERS = 2  # the threads that want everything, and so make the favourite leave


@pytest.fixture
def races(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Count how often a hit met a shut gate, and how often a lease slipped in before a gate was shut.

    Each side now and then lets the other come first, for a millisecond at most: the keeper between its plan and a
    gate, a hit between its look-up and the gate. That is where the races are.
    """
    counted: Counter[str] = Counter()
    taken, shut = threading.Condition(), threading.Condition()
    make, shut_gate = ModelHandle.__init__, ModelHandle.shut_gate

    class RacingTokens(set[int]):
        """What a handle counts its leases by; `add` is the moment between a hit's look-up and its look at the gate."""

        handle: ModelHandle

        def add(self, token: int) -> None:
            if threading.current_thread().name.startswith("lifecycle"):  # the keeper's, for a lease that waited
                super().add(token)
                return
            counted["hits"] += 1
            turn = counted["hits"] % 16
            if turn == 0:
                with shut:
                    shut.wait_for(lambda: self.handle.shut, timeout=1e-3)
            super().add(token)
            counted["refused"] += self.handle.shut
            with taken:
                taken.notify_all()
            if turn == 1:
                with shut:
                    shut.wait_for(lambda: self.handle.shut, timeout=1e-3)

    def make_racing(self: ModelHandle, *parts: Any) -> None:
        make(self, *parts)
        self.tokens = RacingTokens()
        self.tokens.handle = self

    def racing_shut(self: ModelHandle) -> None:
        before = self.refs
        with taken:
            taken.wait_for(lambda: self.refs > before, timeout=1e-3)
        shut_gate(self)
        counted["shut"] += 1
        counted["slipped in"] += self.refs > before
        with shut:
            shut.notify_all()

    monkeypatch.setattr(ModelHandle, "__init__", make_racing)
    monkeypatch.setattr(ModelHandle, "shut_gate", racing_shut)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield counted
    sys.setswitchinterval(interval)


def test_nothing_in_use_is_closed_when_32_threads_fight_for_room(
    bench: MakeBench, races: Counter[str], record_property: Callable[[str, Any], None]
) -> None:
    """32 threads, 1,000 leases or more each, 6 models, room for 4: each model is open while held, and closed once."""
    b = bench(ROOM, max_parallel_loads=4)
    for name in NAMES:
        b.add(name, config=ModelConfig(warm_up=False, eviction_rank=9 if name == FAVOURITE else 0))
    start = threading.Barrier(THREADS)
    seekers_left = Counter({"n": SEEKERS})

    def work(seed: int) -> int:
        rng = random.Random(seed)  # noqa: S311 - it only picks models
        seeks = seed < SEEKERS
        done = 0
        start.wait()
        while done < OPERATIONS or (not seeks and seekers_left["n"]):
            names = rng.choices(NAMES if seeks else FAVOURITE, k=1 + (rng.random() < 0.1))
            refs = [ModelRef("t", name) for name in names]
            with b.manager.lease(*refs, 300.0) if len(refs) == 1 else b.manager.lease_set(refs, 300.0) as held:
                models = (held,) if len(refs) == 1 else held
                assert [model.name for model in models] == names
                assert not any(model.closed for model in models)
                assert b.loader.resident[names[0]] >= 1
            assert b.state.charged_nbytes <= ROOM
            done += 1
        seekers_left["n"] -= seeks
        return done

    calls = [Call(lambda seed=seed: work(seed)) for seed in range(THREADS)]
    operations = sum(call.result() for call in calls)
    snapshot = b.manager.snapshot()
    record_property("stress", dict(races) | {"operations": operations, "loads": snapshot.counters.lazy_loads})
    assert operations >= THREADS * OPERATIONS
    assert sum(model.leases for model in snapshot.models) == 0
    assert snapshot.waiters == 0
    assert races["refused"] + races["slipped in"] > 0, "the race was never hit"
    assert snapshot.counters.evictions > 100
    for name in NAMES:
        assert b.loader.resident[name] <= 1
