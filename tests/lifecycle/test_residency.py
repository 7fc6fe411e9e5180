"""How long a model stays: its minimum residency, and the time to live that a lease gives it."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

import pytest

from backends.errors import InvalidInput
from lifecycle import ModelConfig, ModelRef, aio

if TYPE_CHECKING:
    from collections.abc import Callable

    from lifecycle_fakes import Bench

    MakeBench = Callable[..., Bench]

YOUNG = ModelConfig(warm_up=False, min_residency_s=10.0)


def keep(b: Bench, name: str, ttl_s: float) -> None:
    """Take and return a lease that says how long its model shall stay."""
    with b.manager.lease(ModelRef("t", name), ttl_s=ttl_s):
        pass


def test_young_model_stays_when_another_can_leave(bench: MakeBench) -> None:
    """A model younger than its minimum residency is passed over, though it was used least recently, until it is old."""
    b = bench(2)
    b.add("A", config=YOUNG)
    for name in "BCD":
        b.add(name)
    b.use("A")
    for name in "BC":
        b.clock.now += 1.0
        b.use(name)
    assert (b.phase("A"), b.phase("B")) == ("ready", "registered")
    b.clock.now += 10.0
    b.use("D")
    assert (b.phase("A"), b.phase("C")) == ("registered", "ready")


def test_young_model_leaves_when_nobody_else_can(bench: MakeBench) -> None:
    """Minimum residency is a preference: a caller is never refused, and never waits, for it; a prefetch is dropped."""
    b = bench(1)
    b.add("A", config=YOUNG)
    b.add("B", config=YOUNG)
    b.use("A")
    b.clock.now += 1.0
    b.use("A")
    b.manager.prefetch([ModelRef("t", "B")])
    assert b.phase("A") == "ready"
    b.use("B")
    assert (b.phase("A"), b.phase("B")) == ("registered", "ready")


def test_lease_overrides_the_ttl_when_it_has_its_own(bench: MakeBench) -> None:
    """A lease's ttl_s counts from its end, instead of the config's, until another lease says otherwise."""
    b = bench(1)
    b.add("A", config=ModelConfig(warm_up=False, ttl_s=5.0))
    keep(b, "A", 100.0)
    b.use("A")
    b.pass_time(50.0)
    assert b.phase("A") == "ready"
    keep(b, "A", 10.0)
    b.pass_time(11.0)
    b.until(lambda state: not state.generations)
    keep(b, "A", math.inf)
    b.pass_time(1e6)
    assert b.phase("A") == "ready"


def test_model_leaves_at_the_last_lease_when_one_said_zero(bench: MakeBench) -> None:
    """With ttl_s=0 the model goes as soon as nobody uses it; a new instance has its config's TTL again."""
    b = bench(1)
    b.add("A")
    with b.lease("A") as model:
        keep(b, "A", 0.0)
        b.manager.reap()
        assert not model.closed
    b.until(lambda state: not state.generations)
    b.use("A")
    assert b.phase("A") == "ready"


def test_model_stays_as_long_as_a_task_said(bench: MakeBench) -> None:
    """A lease taken from asyncio passes its ttl_s on."""
    b = bench(1)
    b.add("A", config=ModelConfig(warm_up=False, ttl_s=5.0))

    async def main() -> None:
        async with aio.lease(b.manager, ModelRef("t", "A"), ttl_s=100.0):
            pass

    asyncio.run(main())
    b.pass_time(50.0)
    assert b.phase("A") == "ready"


def test_pin_outweighs_the_lease_when_both_speak(bench: MakeBench) -> None:
    """A pinned model doesn't expire, whatever a lease says."""
    b = bench(1)
    b.add("A", config=ModelConfig(warm_up=False, pinned=True))
    keep(b, "A", 0.0)
    b.pass_time(1.0)
    assert b.phase("A") == "ready"


def test_seconds_are_refused_when_they_make_no_sense(bench: MakeBench) -> None:
    """A negative TTL or residency is refused at once, from asyncio too."""
    b = bench(1)
    b.add("A")
    with pytest.raises(InvalidInput):
        b.manager.lease(ModelRef("t", "A"), ttl_s=-1.0)
    with pytest.raises(InvalidInput):
        ModelConfig(min_residency_s=-1.0)
    with pytest.raises(InvalidInput):
        aio.lease(b.manager, ModelRef("t", "A"), ttl_s=-1.0)
