"""The budget and the pins change while the manager works."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from backends.errors import InvalidInput
from lifecycle import BudgetExhausted, ModelConfig, ModelNotRegistered, ModelRef

if TYPE_CHECKING:
    from collections.abc import Callable

    from lifecycle_fakes import Bench

    MakeBench = Callable[..., Bench]


def fill(b: Bench, names: str) -> None:
    """Register and use models of size 1, a second apart."""
    for name in names:
        b.add(name)
        b.clock.now += 1.0
        b.use(name)


def resident(b: Bench) -> str:
    """Return who is loaded, once nothing moves."""
    b.until(lambda state: all(g.job is None for g in state.generations.values()))
    return "".join(sorted(g.key.digest for g in b.state.generations.values()))


def test_idle_models_leave_in_order_when_the_budget_shrinks(bench: MakeBench) -> None:
    """The least recently used leave, no more than needed, and the new budget counts from then on."""
    b = bench(4)
    fill(b, "ABCD")
    b.use("A")
    assert b.manager.set_budget(2) == 0
    assert resident(b) == "AD"
    assert b.manager.budget_nbytes == 2
    b.use("B")
    assert b.manager.snapshot().charged_nbytes == 2


def test_deficit_is_told_and_worked_off_when_leased_models_are_over_the_budget(bench: MakeBench) -> None:
    """What is in use stays, is told, admits nothing new, and leaves at its last release, without anybody asking."""
    b = bench(3)
    fill(b, "ABC")
    b.add("D")
    with b.lease("A"), b.lease("B"):
        assert b.manager.set_budget(1) == 1
        assert resident(b) == "AB"
        assert b.manager.snapshot().deficit_nbytes == 1
        b.use("A", 0.0)
        with pytest.raises(BudgetExhausted):
            b.use("D", 0.0)
    b.until(lambda state: not state.shrinking)
    assert resident(b) == "B"


def test_waiter_is_served_when_the_budget_grows(bench: MakeBench) -> None:
    """A caller that waits for room gets it from a larger budget, and is refused at once if it can never fit."""
    b = bench(1)
    fill(b, "A")
    b.add("B")
    with b.lease("A"):
        waiter = b.later("B")
        b.waiting(1)
        assert b.manager.set_budget(2) == 0
        waiter.result()
        doomed = b.later("B")
        doomed.result()
    b.add("C", 2)
    with b.lease("A"):
        doomed = b.later("C")
        b.waiting(1)
        b.manager.set_budget(1)
        assert isinstance(doomed.error(), BudgetExhausted)


def test_budget_is_refused_when_it_is_negative(bench: MakeBench) -> None:
    """A negative budget changes nothing."""
    b = bench(1)
    with pytest.raises(InvalidInput):
        b.manager.set_budget(-1)
    assert b.manager.budget_nbytes == 1


def test_model_stays_while_it_is_pinned_at_runtime(bench: MakeBench) -> None:
    """A pin keeps a model from eviction and expiry until it is taken back, and then its TTL counts again."""
    b = bench(2)
    fill(b, "A")
    b.manager.register(ModelRef("t", "A"), *spec_of(b, "A"), ModelConfig(ttl_s=5.0, warm_up=False))
    b.manager.pin(ModelRef("t", "A"))
    b.pass_time(60.0)
    assert b.manager.set_budget(0) == 1
    assert resident(b) == "A"
    b.manager.unpin(ModelRef("t", "A"))
    assert resident(b) == ""
    with pytest.raises(ModelNotRegistered):
        b.manager.pin(ModelRef("t", "Z"))


def spec_of(b: Bench, name: str) -> tuple[object, object]:
    """Return what a model was registered with."""
    instance = next(i for k, i in b.manager._keeper.instances.items() if k.digest == name)
    return instance.spec, instance.loader


def test_instance_stays_pinned_when_one_of_two_refs_unpins_it(bench: MakeBench) -> None:
    """A pin belongs to its ref."""
    b = bench(2)
    b.add("A", digest="W")
    b.add("B", digest="W")
    for name in "AB":
        b.manager.pin(ModelRef("t", name))
    with b.lease("A"):
        pass
    b.manager.unpin(ModelRef("t", "A"))
    assert b.manager.set_budget(0) == 1
    b.manager.unpin(ModelRef("t", "B"))
    assert resident(b) == ""
