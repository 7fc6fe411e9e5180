"""A hold is a set that is asked for without waiting, and can't be evicted once it is there."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
from typing import TYPE_CHECKING

import pytest
from lifecycle_fakes import Call, FakeSpec

from lifecycle import BudgetExhausted, ModelNotRegistered, ModelRef, aio
from lifecycle.leasing.hold import Hold
from lifecycle.leasing.lease import HELD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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


def claim(b: Bench, name: str) -> Call:
    """Let somebody ask for a model whose room only held ones can give, and wait until he has claimed one."""
    waiting = b.later(name)
    b.until(lambda state: any(g.claimed_by for g in state.generations.values()))
    return waiting


def is_lent(b: Bench, name: str) -> bool:
    """Tell whether a caller without patience has the model."""
    try:
        return b.use(name, 0.0)
    except BudgetExhausted:
        return False


def test_sets_and_coroutines_borrow_when_a_hold_is_around_them(bench: MakeBench) -> None:
    """A set of held models, one of two holds, and a lease from asyncio needn't wait for a claim either."""
    b = bench(2)
    for name in "ABC":
        b.add(name)
    b.use_all("AB")

    async def from_asyncio() -> str:
        async with aio.lease(b.manager, SET[0], 0.0) as model:
            return str(model.name)

    with Hold(b.manager, SET[:1]), Hold(b.manager, SET[1:]):
        waiting = claim(b, "C")
        assert b.use_all("BA", 0.0) == ["B", "A"]
        assert asyncio.run(from_asyncio()) == "A"
    waiting.result()


def test_model_is_lent_to_nobody_else_when_it_is_claimed(bench: MakeBench) -> None:
    """Another's thread, another name of the same model, and another manager wait their turn."""
    b, stranger = bench(1), bench(1)
    for one in (b, stranger):
        for name in "AB":
            one.add(name)
        one.use("A")
    b.manager.register(ModelRef("u", "A"), FakeSpec("A", 1, 1), b.loader)
    with Hold(b.manager, SET[:1]), stranger.lease("A"):
        waiting, other = claim(b, "B"), claim(stranger, "B")
        assert is_lent(b, "A")
        assert not Call(lambda: is_lent(b, "A")).result()
        assert not is_lent(stranger, "A")
        with pytest.raises(BudgetExhausted), b.manager.lease(ModelRef("u", "A"), 0.0):
            pass
    waiting.result()
    other.result()


def test_borrowed_model_stays_loaded_when_its_hold_ends_first(bench: MakeBench) -> None:
    """Work that is left behind keeps what it has borrowed until it ends, and borrows nothing more after the block."""
    b = bench(1)
    for name in "AB":
        b.add(name)
    b.use("A")
    borrowed, go_on = threading.Event(), threading.Event()

    def left_behind() -> bool:
        with b.lease("A", 0.0) as model:
            borrowed.set()
            go_on.wait()
            assert not model.closed
            return is_lent(b, "A")

    with Hold(b.manager, SET[:1]):
        waiting = claim(b, "B")
        context = contextvars.copy_context()
        late = Call(lambda: context.run(left_behind))
        borrowed.wait()
    b.manager.reap()
    assert b.loads("B") == 0
    go_on.set()
    assert not late.result()
    waiting.result()


def test_old_model_is_not_lent_when_a_name_means_another(bench: MakeBench) -> None:
    """A hold keeps what it holds loaded; a lease within it is on what its name means now."""
    b = bench(2)
    a = b.add("A")
    b.use("A")
    with Hold(b.manager, SET[:1]) as held:
        b.manager.replace(a, FakeSpec("X", 1, 1))
        with b.lease("A", 0.0) as model:
            assert model.name == "X"
        assert held.given
        assert [model.name for model in held.lease.models] == ["A"]


def test_model_that_is_to_leave_is_lent_when_it_is_held(bench: MakeBench) -> None:
    """An unload waits for the hold, so what runs within it needn't wait for a second load and its room."""
    b = bench(1)
    a = b.add("A")
    b.use("A")
    with Hold(b.manager, SET[:1]):
        unload = Call(lambda: b.manager.unload(a))
        b.until(lambda state: not state.generations[1].is_open)
        assert is_lent(b, "A")
    unload.result()
    assert b.loads("A") == 1


@pytest.mark.parametrize("given", [True, False])
def test_models_are_returned_when_the_block_ends_in_another_context(bench: MakeBench, given: bool) -> None:  # noqa: FBT001
    """A generator may be closed by another task or thread; the context in which it began lends nothing then, either."""
    b = bench(2)
    for name in "AB":
        b.add(name)
    if given:
        b.use_all("AB")

    def work() -> Iterator[Hold]:
        with Hold(b.manager, SET) as held:
            yield held

    before = HELD.get()
    for _ in range(3):
        steps = work()
        held = next(steps)
        contextvars.Context().run(steps.close)
        del steps
        b.manager.reap()
        assert not held.given
        del held
    with Hold(b.manager, SET):
        assert len(HELD.get()) == len(before) + 1
    assert HELD.get() == before
    b.manager.reap()
    assert all(model.leases == 0 for model in b.manager.snapshot().models)


def test_hold_is_reported_when_it_is_dropped_open(bench: MakeBench) -> None:
    """The context that lends what is held doesn't keep it alive: its models are returned, with a warning."""
    b = bench(2)
    for name in "AB":
        b.add(name)
    b.use_all("AB")

    def drop() -> None:
        Hold(b.manager, SET).__enter__()
        gc.collect()
        b.manager.reap()

    with pytest.warns(ResourceWarning, match="never closed"):
        drop()
    assert all(model.leases == 0 for model in b.manager.snapshot().models)


def test_held_model_is_lent_when_the_rest_of_the_set_still_loads(bench: MakeBench) -> None:
    """What has its room is held before it is given: a claim on it waits for the set, so nothing inside waits for it."""
    b = bench(2)
    for name in "ABC":
        b.add(name)
    b.use("A")
    slow = b.loader.hold("B")
    with Hold(b.manager, SET) as held:
        slow.reached.wait()
        waiting = b.later("C")
        b.until(lambda state: any(g.claimed_by for g in state.generations.values()))
        assert b.use("A", 5.0)
        assert not held.given
        slow.opened.set()
        b.use("B", 5.0)
    waiting.result()
    assert (b.loads("A"), b.loads("B"), b.loads("C")) == (1, 1, 1)
