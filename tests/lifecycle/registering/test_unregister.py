"""A model is forgotten: its name is free, and what only it used is given back."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest
from lifecycle_fakes import Call, FakeSpec

from lifecycle import ModelNotRegistered, ModelRef, ReplaceOvertaken
from lifecycle.heart.states import Phase

if TYPE_CHECKING:
    from collections.abc import Callable

    from lifecycle_fakes import Bench

    MakeBench = Callable[..., Bench]

A, B = ModelRef("t", "A"), ModelRef("t", "B")


def settled(b: Bench) -> None:
    """Wait until no load or unload is going on."""
    b.until(lambda state: all(g.job is None for g in state.generations.values()))


def test_its_bytes_are_given_back_when_a_model_is_forgotten(bench: MakeBench) -> None:
    """An idle instance leaves, its name can't be leased, and can be given to another model."""
    b = bench(1)
    b.add("A")
    with b.lease("A"):
        pass
    b.manager.unregister(A)
    settled(b)
    assert b.loader.resident["A"] == 0
    assert (b.state.models, b.state.generations) == ({}, {})
    assert b.manager.registered() == ()
    for call in (lambda: b.manager.status(A), lambda: b.manager.unregister(A), lambda: b.lease("A").__enter__()):
        with pytest.raises(ModelNotRegistered):
            call()
    b.manager.register(A, FakeSpec("B", 1, 1), b.loader)
    with b.lease("A") as model:
        assert model.name == "B"


def test_the_instance_stays_when_another_name_means_it(bench: MakeBench) -> None:
    """Only the last name takes it along."""
    b = bench(1)
    b.add("A")
    b.manager.register(B, FakeSpec("A", 1, 1), b.loader)
    with b.lease("A") as first:
        pass
    b.manager.unregister(A)
    with b.lease("B", 0.0) as second:
        assert second is first
    b.manager.unregister(B)
    settled(b)
    assert b.loader.resident["A"] == 0


def test_an_open_lease_goes_on_when_its_model_is_forgotten(bench: MakeBench) -> None:
    """It drains as for an unload: the instance leaves with the last lease, or is quarantined when that is late."""
    b = bench(1)
    b.add("A")
    with b.lease("A") as model:
        b.manager.unregister(A)
        assert not model.closed
        assert b.state.generations[1].phase is Phase.DRAINING
    settled(b)
    assert b.loader.resident["A"] == 0
    b.add("A")
    with b.lease("A"):
        b.manager.unregister(A, drain_timeout_s=5.0)
        b.pass_time(6.0)
        assert [g.phase for g in b.state.generations.values()] == [Phase.QUARANTINED]
    settled(b)


def test_a_caller_that_waits_still_gets_the_model_when_it_is_forgotten(bench: MakeBench) -> None:
    """Who asked while the name was known is served, also when another model is swapped meanwhile."""
    b = bench(3)
    b.add("A")
    b.add("B")
    gate = b.loader.hold("A")

    def use() -> str:
        with b.lease("A") as model:
            return str(model.name)

    waiting = Call(use)
    gate.reached.wait()
    b.manager.unregister(A)
    swap = Call(lambda: b.manager.replace(B, FakeSpec("C", 1, 1)))
    swap.result()
    gate.opened.set()
    assert waiting.result() == "A"
    settled(b)
    assert b.loader.resident["A"] == 0


def test_a_swap_is_refused_when_its_name_was_forgotten(bench: MakeBench) -> None:
    """What was loaded for it leaves again."""
    b = bench(3)
    b.add("A")
    gate = b.loader.hold("X")
    swap = Call(lambda: b.manager.replace(A, FakeSpec("X", 1, 1)))
    gate.reached.wait()
    b.manager.unregister(A)
    gate.opened.set()
    with pytest.raises(ModelNotRegistered):
        swap.result()
    settled(b)
    assert (b.loader.resident["A"], b.loader.resident["X"]) == (0, 0)


@pytest.mark.parametrize("drain_first", [True, False])
def test_nothing_is_left_when_a_name_is_forgotten_before_its_swap_begins(
    bench: MakeBench,
    caplog: pytest.LogCaptureFixture,
    drain_first: bool,  # noqa: FBT001 - a parameter
) -> None:
    """A swap whose name is forgotten while its size is estimated is refused by name, and its key is not known."""
    b = bench(1)
    b.add("A")
    gate = b.loader.hold("X", "estimate")
    swap = Call(lambda: b.manager.replace(A, FakeSpec("X", 1, 1), drain_first=drain_first))
    gate.reached.wait()
    b.manager.unregister(A)
    gate.opened.set()
    with pytest.raises(ModelNotRegistered):
        swap.result()
    b.manager.reap()
    assert (b.manager._keeper.instances, b.state.models) == ({}, {})
    assert not caplog.records
    with pytest.raises(ModelNotRegistered):
        b.manager.pin(A)


def test_an_old_swap_is_overtaken_when_its_name_was_registered_anew(bench: MakeBench) -> None:
    """A name that is forgotten and given again keeps its new meaning, whatever an earlier swap has loaded."""
    b = bench(3)
    b.add("A")
    gate = b.loader.hold("X")
    swap = Call(lambda: b.manager.replace(A, FakeSpec("X", 1, 1)))
    gate.reached.wait()
    b.manager.unregister(A)
    b.manager.register(A, FakeSpec("Y", 1, 1), b.loader)
    gate.opened.set()
    with pytest.raises(ReplaceOvertaken):
        swap.result()
    with b.lease("A") as model:
        assert model.name == "Y"
    settled(b)
    assert b.loader.resident["X"] == 0


def test_nothing_of_a_name_is_kept_when_it_is_forgotten(bench: MakeBench) -> None:
    """A hundred names that are registered, replaced and forgotten leave nothing behind in the manager's books."""
    b = bench(2)
    for number in range(100):
        ref = ModelRef("t", str(number))
        b.manager.register(ref, FakeSpec(f"old{number}", 1, 1), b.loader)
        b.manager.replace(ref, FakeSpec(f"new{number}", 1, 1))
        b.manager.unregister(ref)
    b.until(lambda state: not state.models)
    names = b.manager._names
    books = [value for value in (vars(names) | vars(b.manager._keeper)).values() if isinstance(value, dict)]
    assert len(books) > 5
    assert not any(books)


def test_a_leak_is_told_when_its_model_was_forgotten(bench: MakeBench) -> None:
    """A lease that is collected open after its name was forgotten harms nobody."""
    b = bench(2)
    b.add("A")
    lease = b.lease("A")
    lease.__enter__()
    b.manager.unregister(A)
    del lease
    gc.collect()
    b.add("B")
    with b.lease("B") as model:
        assert model.name == "B"
