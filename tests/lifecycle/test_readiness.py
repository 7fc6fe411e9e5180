"""Readiness: true when all eager models are open, flipped back however one is lost, and mended where it can be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lifecycle import LoadFailed, LoadPolicy, ModelConfig, ModelRef

if TYPE_CHECKING:
    from collections.abc import Callable

    from lifecycle_fakes import Bench

    MakeBench = Callable[..., Bench]

A, B = ModelRef("t", "A"), ModelRef("t", "B")
EAGER = ModelConfig(load_policy=LoadPolicy.EAGER, warm_up=False)


def until_ready(b: Bench) -> None:
    """Wait until nothing is missing."""
    b.until(lambda state: not state.wishes and all(g.is_open for g in state.generations.values()))
    assert b.manager.ready()
    assert b.manager.ready().missing == ()


def test_what_is_missing_is_named_when_eager_models_still_load(bench: MakeBench) -> None:
    """Readiness comes only with the last eager model, whatever lazy ones do, and names the others in order."""
    b = bench(9, max_parallel_loads=3)
    gates = [b.loader.hold(name) for name in "AB"]
    b.add("L")
    for name in "AB":
        b.add(name, config=EAGER)
    b.use("L")
    assert not b.manager.ready()
    assert b.manager.ready().missing == (A, B)
    gates[1].opened.set()
    b.until(lambda state: any(g.key.digest == "B" and g.is_open for g in state.generations.values()))
    assert b.manager.ready().missing == (A,)
    gates[0].opened.set()
    until_ready(b)


def test_evicted_eager_model_comes_back_when_there_is_room_again(bench: MakeBench) -> None:
    """Evicted for a caller's sake, it is missing; it takes nobody's room; when room is free, it loads by itself."""
    b = bench(1)
    b.add("A", config=EAGER)
    until_ready(b)
    b.add("L", config=ModelConfig(warm_up=False, ttl_s=5.0))
    b.use("L")
    b.pass_time(4.0)
    assert b.manager.ready().missing == (A,)
    assert b.loads("A") == 1
    b.pass_time(1.0)
    until_ready(b)
    assert b.loads("A") == 2
    assert b.manager.snapshot().counters.eager_loads == 2


def test_evicted_eager_model_takes_no_room_when_a_caller_waits_for_it(bench: MakeBench) -> None:
    """Room that a waiting caller needs goes to the caller, though the eager model has waited longer."""
    b = bench(2)
    b.add("A", 2, EAGER)
    until_ready(b)
    b.add("L")
    b.add("M", 2)
    with b.lease("L"):
        assert b.manager.ready().missing == (A,)
        waiting = b.later("M")
        b.waiting(1)
    waiting.result()
    assert b.loads("A") == 1
    b.manager.unload(ModelRef("t", "M"))
    until_ready(b)


def test_eager_model_comes_back_after_the_backoff_when_its_reload_fails(bench: MakeBench) -> None:
    """A lost eager model whose reload fails is tried again by itself, and callers are told meanwhile."""
    b = bench(1)
    b.add("A", config=EAGER)
    until_ready(b)
    b.add("L")
    b.use("L")
    b.loader.faults["A", "load"].append(OSError("gone"))
    b.manager.unload(ModelRef("t", "L"))
    b.until(lambda state: state.models[b.manager.key_of(A)].failures == 1)
    assert b.manager.ready().missing == (A,)
    with pytest.raises(LoadFailed, match="gone"):
        b.use("A")
    b.pass_time(1.0)
    until_ready(b)


def test_eager_model_stays_away_when_that_was_asked_for(bench: MakeBench) -> None:
    """Its time to live over, or unloaded by order, an eager model is missing until somebody uses it."""
    b = bench(2)
    b.add("A", config=EAGER)
    b.add("B", config=ModelConfig(load_policy=LoadPolicy.EAGER, warm_up=False, ttl_s=5.0))
    until_ready(b)
    b.pass_time(5.0)
    b.manager.unload(A)
    b.until(lambda state: not state.generations)
    b.manager.reap()
    assert b.manager.ready().missing == (A, B)
    assert (b.loads("A"), b.loads("B")) == (1, 1)
    b.use_all("AB")
    assert b.manager.ready()
