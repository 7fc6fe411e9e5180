"""A hold is a set that is asked for without waiting, and can't be evicted once it is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lifecycle import BudgetExhausted, ModelNotRegistered, ModelRef
from lifecycle.hold import Hold

if TYPE_CHECKING:
    from collections.abc import Callable

    from lifecycle_fakes import Bench

    MakeBench = Callable[..., Bench]

SET = [ModelRef("t", name) for name in "AB"]


def test_set_stays_when_it_is_resident(bench: MakeBench) -> None:
    """Held models are nobody's victims until the block ends; holding them counts as no use and waits for nothing."""
    b = bench(2)
    for name in "ABC":
        b.add(name)
    b.use_all("AB")
    hits = [model.hits for model in b.manager.snapshot().models]
    with Hold(b.manager, SET) as held:
        assert held.given
        with pytest.raises(BudgetExhausted), b.lease("C", 0.0):
            pass
    assert not held.given
    assert [model.hits for model in b.manager.snapshot().models] == hits
    b.use("C")


def test_nobody_waits_for_the_set_when_it_is_cold(bench: MakeBench) -> None:
    """L50: entering waits for no load; whoever needs one model of the set has it while the other still loads."""
    b = bench(2)
    for name in "ABC":
        b.add(name)
    slow = b.loader.hold("B")
    with Hold(b.manager, SET) as held:
        slow.reached.wait()
        assert b.use("A")
        assert not held.given
        slow.opened.set()
        b.use("B")
        b.until(lambda state: not state.queue)
        assert held.given
        with pytest.raises(BudgetExhausted), b.lease("C", 0.0):
            pass
    b.use("C")
    assert (b.loads("A"), b.loads("B")) == (1, 1)


def test_models_are_used_one_by_one_when_the_set_never_fits(bench: MakeBench) -> None:
    """A set above the budget is refused at once: it isn't held, and evicts and blocks nobody."""
    b = bench(1)
    b.add("A")
    b.add("B")
    with Hold(b.manager, SET) as held:
        assert b.use("A")
        assert b.use("B")
        assert not held.given


def test_nothing_is_kept_when_the_block_ends_first(bench: MakeBench) -> None:
    """A block that ends while the set still loads withdraws it: the loads go on, and no lease is left open."""
    b = bench(2)
    b.add("A")
    b.add("B")
    slow = b.loader.hold("B")
    with Hold(b.manager, SET):
        slow.reached.wait()
    b.waiting(0)
    slow.opened.set()
    b.use("B")
    assert all(model.leases == 0 for model in b.manager.snapshot().models)


def test_hold_is_refused_when_a_name_is_unknown(bench: MakeBench) -> None:
    """A name that nobody registered is an error on entering, not a set that never comes."""
    b = bench(1)
    with pytest.raises(ModelNotRegistered), Hold(b.manager, SET):
        pass


def test_what_runs_under_a_hold_has_its_model_when_somebody_has_claimed_it(bench: MakeBench) -> None:
    """Else the claim would wait for the hold, and what the hold is for would wait for the claim."""
    b = bench(1)
    for name in "AB":
        b.add(name)
    b.use("A")
    with Hold(b.manager, SET[:1]) as held:
        assert held.given
        waiting = b.later("B")
        b.until(lambda state: any(g.claimed_by for g in state.generations.values()))
        assert b.use("A")
        assert held.given
    waiting.result()
    assert (b.loads("A"), b.loads("B")) == (1, 1)
