"""Every reachable state of small worlds keeps every invariant, and from each everybody who waits is served."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pytest
from lifecycle_explorer import explore
from lifecycle_world import Scenario

from lifecycle.config import LoadPolicy, ModelConfig, Tenant
from lifecycle.heart.states import Phase

if TYPE_CHECKING:
    from lifecycle_moves import Report

COLD = ModelConfig(warm_up=False)
SCENARIOS = {
    "two models, room for one": Scenario(
        {"A": 1, "B": 1}, 1, (("A", 2.0), ("B", 2.0), ("A", 2.0)), failures=1, cancels=1, clock_steps=1
    ),
    "they ask again": Scenario(
        {"A": 1, "B": 1}, 1, (("A", 2.0), ("B", 2.0), ("A", 2.0)), failures=1, cancels=1, again=2
    ),
    "they ask again, later": Scenario({"A": 1, "B": 1}, 1, (("A", 2.0), ("B", 2.0)), clock_steps=1, again=2),
    "sets that overlap": Scenario(
        {"A": 1, "B": 1, "C": 1}, 2, (("AB", 2.0), ("BC", 2.0), ("CA", 2.0)), failures=1, cancels=1, again=1
    ),
    "a block within a hold": Scenario(
        {"A": 1, "B": 1, "C": 1}, 2, (("AB", 2.0), ("A", 2.0), ("C", 2.0)), under={1: 0}, failures=1, cancels=1, again=1
    ),
    "a block within a hold, and orders": Scenario(
        {"A": 1, "B": 1}, 1, (("A", 2.0), ("A", 2.0), ("B", 2.0)), under={1: 0}, orders=("unload A",), clock_steps=1
    ),
    "a swap under a hold": Scenario(
        {"A": 1, "X": 1}, 1, (("A", 2.0), ("A", 2.0)), under={1: 0}, swaps=(("A>>X", 2.0),), cancels=1, again=1
    ),
    "sets and the clock": Scenario({"A": 1, "B": 1, "C": 1}, 2, (("AB", 2.0), ("BC", 2.0), ("A", 1.0)), clock_steps=1),
    "overtaking": Scenario(
        {"A": 2, "B": 1, "C": 3}, 4, (("A", 2.0), ("C", 2.0), ("B", 2.0)), cancels=1, max_parallel_loads=1, again=1
    ),
    "no patience": Scenario({"A": 1, "B": 1}, 1, (("A", 0.0), ("B", 0.0), ("A", 2.0)), failures=1, clock_steps=2),
    "measured more than reserved": Scenario(
        {"A": 1, "B": 1, "C": 2},
        3,
        (("A", 2.0), ("B", 2.0), ("C", 2.0)),
        measured={"A": 3, "B": 2},
        failures=1,
        again=1,
    ),
    "time to live": Scenario(
        {"A": 1, "B": 1},
        2,
        (("A", 2.0), ("B", 2.0)),
        configs={
            "A": ModelConfig(ttl_s=1.0, warm_up=True, load_timeout_s=2.0),
            "B": ModelConfig(ttl_s=0.0, warm_up=False),
        },
        clock_steps=2,
        failures=1,
    ),
    "eager and pinned": Scenario(
        {"A": 1, "B": 1, "C": 1},
        2,
        (("C", 2.0), ("A", 2.0)),
        configs={
            "A": ModelConfig(load_policy=LoadPolicy.EAGER, warm_up=False, pinned=True),
            "B": ModelConfig(load_policy=LoadPolicy.EAGER, warm_up=True),
        },
        clock_steps=1,
        failures=1,
        orders=("prefetch CB",),
    ),
    "priorities": Scenario(
        {"A": 1, "B": 1, "C": 1},
        2,
        (("A", 2.0), ("B", 2.0), ("C", 2.0)),
        configs={"A": ModelConfig(eviction_rank=-1, warm_up=False)},
        again=1,
    ),
    "budget that changes": Scenario(
        {"A": 1, "B": 1},
        2,
        (("A", 2.0), ("B", 2.0), ("A", 2.0)),
        failures=1,
        orders=("budget 1", "budget 2"),
    ),
    "budget below what is pinned": Scenario(
        {"A": 2, "B": 1, "C": 1},
        4,
        (("A", 2.0), ("B", 2.0), ("C", 2.0)),
        configs={"B": ModelConfig(warm_up=False, pinned=True)},
        orders=("budget 2",),
    ),
    "quota": Scenario(
        {"A": 1, "B": 1, "C": 1},
        2,
        (("A", 2.0), ("B", 2.0), ("C", 2.0)),
        owners={"A": "t", "B": "t", "C": "u"},
        tenants={"t": Tenant(quota_nbytes=1)},
        failures=1,
        again=1,
    ),
    "quotas of those who share": Scenario(
        {"A": 1, "B": 2},
        3,
        (("A", 2.0), ("B", 2.0), ("A", 2.0)),
        owners={"A": "t", "B": "tu"},
        tenants={"t": Tenant(quota_nbytes=1), "u": Tenant(quota_nbytes=2)},
        orders=("quota u1", "prefetch AB"),
    ),
    "guarantee": Scenario(
        {"A": 1, "B": 1, "C": 1},
        2,
        (("A", 2.0), ("B", 2.0), ("C", 2.0)),
        owners={"A": "u", "B": "t", "C": "t"},
        tenants={"u": Tenant(guaranteed_nbytes=1)},
        again=1,
        orders=("prefetch C",),
    ),
    "guarantee of who does not ask": Scenario(
        {"A": 1, "B": 1, "C": 1},
        2,
        (("A", 2.0), ("B", 2.0), ("C", 2.0)),
        owners={"A": "u", "B": "t", "C": "tu"},
        asking="utt",
        tenants={"u": Tenant(guaranteed_nbytes=1)},
        again=1,
    ),
    "reservations give way": Scenario(
        {"A": 1, "B": 1, "C": 1},
        2,
        (("A", 2.0), ("C", 2.0)),
        cancels=1,
        clock_steps=1,
        max_parallel_loads=1,
        orders=("prefetch B",),
    ),
    "eager reservations give way": Scenario(
        {"A": 1, "B": 1, "C": 1},
        2,
        (("A", 2.0), ("C", 2.0)),
        configs={"B": ModelConfig(load_policy=LoadPolicy.EAGER, warm_up=False, pinned=True)},
        failures=1,
        again=1,
        max_parallel_loads=1,
        orders=("prefetch C", "unload B"),
    ),
    "unloads that overlap": Scenario(
        {"A": 1, "B": 1},
        1,
        (("A", 9.0), ("B", 9.0)),
        clock_steps=2,
        orders=("unload-late A", "unload A"),
    ),
    "short queue": Scenario(
        {"A": 1, "B": 1},
        1,
        (("A", 2.0), ("B", 1.0), ("AB", 2.0), ("A", 2.0)),
        max_parallel_loads=1,
        max_waiters=1,
        clock_steps=1,
        orders=("prefetch B",),
    ),
    "cost-aware eviction": Scenario(
        {"A": 1, "B": 1},
        1,
        (("A", 9.0), ("A", 9.0), ("B", 9.0)),
        clock_steps=1,
        eviction="gdsf",
    ),
    "minimum residency": Scenario(
        {"A": 1, "B": 1, "C": 1},
        2,
        (("A", 5.0), ("B", 5.0), ("C", 5.0)),
        configs={"A": ModelConfig(warm_up=False, min_residency_s=1.0)},
        clock_steps=1,
    ),
    "hot swap": Scenario(
        {"A": 1, "X": 1},
        2,
        (("A", 2.0), ("A", 2.0)),
        swaps=(("A>X", 2.0),),
        failures=1,
        clock_steps=1,
    ),
    "hot swap in a crowd": Scenario(
        {"A": 1, "B": 1, "X": 1}, 2, (("A", 2.0), ("B", 2.0), ("AB", 2.0)), swaps=(("A>X", 2.0),)
    ),
    "hot swap without room": Scenario(
        {"A": 1, "X": 1}, 1, (("A", 2.0), ("A", 2.0)), swaps=(("A>>X", 2.0),), failures=1, cancels=1, clock_steps=1
    ),
    "swaps that overlap": Scenario(
        {"A": 1, "X": 1, "Y": 1}, 2, (("A", 2.0),), swaps=(("A>X", 2.0), ("A>Y", 2.0)), failures=1, again=1
    ),
    "swap of a shared model": Scenario(
        {"A": 1, "X": 1},
        2,
        (("A", 2.0), ("B", 2.0)),
        shared={"B": "A"},
        swaps=(("A>X", 2.0), ("B>X", 2.0)),
        failures=1,
    ),
    "unload and close": Scenario(
        {"A": 1, "B": 1},
        1,
        (("A", 2.0), ("B", 2.0)),
        orders=("unload A", "unload-now B", "close"),
        max_parallel_loads=1,
        clock_steps=1,
        failures=1,
    ),
}


@cache
def exploration(name: str) -> Report:
    """Return the walk through a scenario, made once."""
    return explore(SCENARIOS[name])


@pytest.mark.parametrize("name", SCENARIOS)
def test_invariants_hold_when_every_state_is_visited(name: str, record_property: pytest.RecordProperty) -> None:
    """Each reachable state keeps all invariants; every waiter ends at its deadline, and before if all do their part."""
    report = exploration(name)
    record_property("exploration", f"{report.states} states, {report.transitions} transitions, depth {report.depth}")
    assert report.states > 100


def test_every_phase_is_visited_when_all_scenarios_run() -> None:
    """The scenarios that order and fail things pass through every phase that a generation can be in."""
    phases = set()
    for name in ("unload and close", "eager and pinned", "overtaking"):
        phases |= exploration(name).phases
    assert phases == set(Phase) - {Phase.REGISTERED, Phase.QUEUED, Phase.FAILED}, "these three belong to keys"
