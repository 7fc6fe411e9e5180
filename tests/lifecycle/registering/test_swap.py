"""Hot swap: a name comes to mean another model, and no lease fails or waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from lifecycle_fakes import Call, FakeSpec, key

from lifecycle import (
    BudgetExhausted,
    InstanceKey,
    LeaseTimeout,
    LoadFailed,
    ManagerClosed,
    ModelConfig,
    ModelNotRegistered,
    ModelRef,
    ReplaceOvertaken,
)
from lifecycle.events import ModelReplaced
from lifecycle.heart.states import Phase

if TYPE_CHECKING:
    from collections.abc import Callable

    from lifecycle_fakes import Bench

    MakeBench = Callable[..., Bench]


def replace(b: Bench, name: str, by: str, nbytes: int = 1, **options: bool | float) -> InstanceKey:
    """Let a model's name mean another one."""
    return b.manager.replace(ModelRef("t", name), FakeSpec(by, nbytes, nbytes), **options)  # type: ignore[arg-type] - as there


def served(b: Bench, name: str, timeout_s: float = 30.0) -> str:
    """Take and return a lease, and tell which model it was."""
    with b.lease(name, timeout_s) as model:
        assert not model.closed
        return str(model.name)


def known(b: Bench) -> set[str]:
    """Return the digests of all keys that the heart knows."""
    b.until(lambda state: all(g.job is None for g in state.generations.values()))
    return {k.digest for k in b.state.models}


def test_old_model_serves_until_the_new_one_is_loaded_when_both_fit(bench: MakeBench) -> None:
    """Leases taken during the swap get the old model without waiting, later ones the new; the old one leaves."""
    b = bench(2)
    b.add("A")
    assert served(b, "A") == "A"
    gate = b.loader.hold("X")
    swap = Call(lambda: replace(b, "A", "X"))
    gate.reached.wait()
    assert [served(b, "A", 0.0) for _ in range(3)] == ["A"] * 3
    gate.opened.set()
    assert swap.result() == key("X")
    assert served(b, "A", 0.0) == "X"
    assert known(b) == {"X"}
    assert b.loader.resident["A"] == 0
    assert b.manager.status(ModelRef("t", "A")).key == key("X")


def test_lease_keeps_the_old_model_when_it_is_returned_late(bench: MakeBench) -> None:
    """L2, L4: an old lease holds the old generation only; the drain ends in time, and the new one isn't touched."""
    b = bench(3)
    b.add("A")
    options = InstanceKey("A", "fake", (("threads", 2),))
    with b.lease("A") as old_model:
        b.manager.replace(ModelRef("t", "A"), FakeSpec("A", 1, 1), key=options, timeout_s=5.0)
        old = b.state.generations[1]
        assert old.phase is Phase.DRAINING
        with b.lease("A") as new_model:
            assert new_model is not old_model
        b.pass_time(6.0)
        assert b.state.generations[1].phase is Phase.QUARANTINED
        assert not old_model.closed
    b.until(lambda state: 1 not in state.generations)
    assert old_model.closed
    assert not new_model.closed
    assert b.manager.snapshot().charged_nbytes == 1
    assert b.lease("A").key == options


def test_old_model_stays_when_the_new_one_fails_to_load(bench: MakeBench) -> None:
    """The loader's error is raised, the name means what it meant, and the new key is forgotten."""
    b = bench(2)
    b.add("A")
    b.use("A")
    b.loader.faults["X", "load"] = [OSError("no such file")]
    with pytest.raises(LoadFailed, match="no such file"):
        replace(b, "A", "X")
    assert served(b, "A", 0.0) == "A"
    assert known(b) == {"A"}
    assert replace(b, "A", "X") == key("X")
    assert b.loads("A") == 1


@pytest.mark.parametrize("leased", [True, False])
def test_old_model_stays_when_both_do_not_fit(bench: MakeBench, leased: bool) -> None:  # noqa: FBT001 - a parameter
    """Without drain_first the new model may not drive the old one out: refused at once, nothing evicted."""
    b = bench(3)
    b.add("A", 2)
    b.add("B", 1)
    b.use("B")
    lease = b.lease("A")
    with lease:
        if not leased:
            lease.release()
        with pytest.raises(BudgetExhausted):
            replace(b, "A", "X", 2)
    assert served(b, "A", 0.0) == "A"
    assert b.manager.snapshot().counters.evictions == 0


def test_idle_models_make_room_when_the_new_one_needs_it(bench: MakeBench) -> None:
    """A swap may evict others, as any load may, but not what it replaces, though that was used least recently."""
    b = bench(2)
    b.add("A")
    b.add("B")
    b.use("A")
    b.clock.now += 1.0
    b.use("B")
    gate = b.loader.hold("X")
    swap = Call(lambda: replace(b, "A", "X"))
    gate.reached.wait()
    assert (b.phase("A"), b.phase("B")) == ("ready", "registered")
    gate.opened.set()
    swap.result()


def test_leases_wait_and_get_the_new_model_when_the_old_one_is_drained_first(bench: MakeBench) -> None:
    """With drain_first the old model leaves at its last lease; who asks meanwhile is served by the new one."""
    b = bench(1)
    b.add("A")
    with b.lease("A") as old:
        swap = Call(lambda: replace(b, "A", "X", drain_first=True))
        b.waiting(1)
        late = Call(lambda: served(b, "A"))
        b.waiting(2)
        assert not old.closed
    assert swap.result() == key("X")
    assert late.result() == "X"
    assert b.loader.order.index("close A") < b.loader.order.index("load X")
    assert b.loads("A") == 1


def test_leases_get_the_old_model_again_when_it_was_drained_for_a_failure(bench: MakeBench) -> None:
    """With drain_first, a new model that fails to load fails the swap alone: who asked meanwhile gets the old one."""
    b = bench(1)
    b.add("A")
    b.use("A")
    b.loader.faults["X", "load"] = [OSError("broken")]
    gate = b.loader.hold("X")
    swap = Call(lambda: replace(b, "A", "X", drain_first=True))
    gate.reached.wait()
    late = Call(lambda: served(b, "A"))
    b.waiting(2)
    gate.opened.set()
    assert isinstance(swap.error(), LoadFailed)
    assert late.result() == "A"


def test_claim_on_the_old_model_ends_when_the_swap_runs_out_of_time(bench: MakeBench) -> None:
    """With drain_first, a lease that outlasts the swap keeps the old model in service."""
    b = bench(1)
    b.add("A")
    with b.lease("A"):
        swap = Call(lambda: replace(b, "A", "X", drain_first=True, timeout_s=5.0))
        b.waiting(1)
        b.pass_time(6.0)
        assert isinstance(swap.error(), LeaseTimeout)
        assert served(b, "A", 0.0) == "A"
    assert known(b) == {"A"}


def test_others_keep_the_old_model_when_they_share_it(bench: MakeBench) -> None:
    """Only the ref that is named is replaced; the instance stays for the others, and may not be drained from them."""
    b = bench(2)
    b.add("A", digest="W")
    b.add("B", digest="W")
    with b.lease("A"), b.lease("B"):
        with pytest.raises(BudgetExhausted):
            replace(b, "A", "Y", 2, drain_first=True)
        replace(b, "A", "X")
        assert (served(b, "A", 0.0), served(b, "B", 0.0)) == ("X", "W")
    replace(b, "B", "X")
    assert known(b) == {"X"}
    assert b.loads("X") == 1
    assert b.manager.snapshot().models[0].refs == (ModelRef("t", "A"), ModelRef("t", "B"))


def test_last_call_wins_when_swaps_overlap(bench: MakeBench) -> None:
    """A swap that a later one has overtaken tells so, and its model leaves."""
    b = bench(3)
    b.add("A")
    b.use("A")
    gate = b.loader.hold("X")
    first = Call(lambda: replace(b, "A", "X"))
    gate.reached.wait()
    replace(b, "A", "Y")
    gate.opened.set()
    assert isinstance(first.error(), ReplaceOvertaken)
    assert served(b, "A", 0.0) == "Y"
    assert known(b) == {"Y"}


def test_model_is_not_lost_when_it_is_replaced_there_and_back(bench: MakeBench) -> None:
    """A key that is wanted again while its old generation drains is loaded anew, and not forgotten."""
    b = bench(3)
    b.add("A")
    with b.lease("A") as old:
        replace(b, "A", "X")
        replace(b, "A", "A")
        with b.lease("A", 0.0) as new:
            assert new.name == "A"
            assert new is not old
    assert known(b) == {"A"}
    assert not new.closed


@pytest.mark.parametrize("gate_at", ["load", "room"])
def test_waiters_go_along_when_they_wait_for_the_old_model(bench: MakeBench, gate_at: str) -> None:
    """L2: who waits for the old model's load, or for its room, gets the new one as soon as that serves."""
    b = bench(3)
    b.add("A", 2)
    b.add("B", 2)
    gate = b.loader.hold("A")
    lease = b.lease("B")
    if gate_at == "room":
        lease.__enter__()
    waiter = Call(lambda: served(b, "A"))
    b.waiting(1)
    if gate_at == "load":
        gate.reached.wait()
    replace(b, "A", "X", 1)
    assert waiter.result() == "X"
    gate.opened.set()
    lease.release()
    assert known(b) == {"B", "X"}


def test_set_goes_along_when_one_of_it_is_replaced(bench: MakeBench) -> None:
    """A set that waits is moved as a whole, and gets the new model in the right place."""
    b = bench(3)
    b.add("A")
    b.add("B")
    gate = b.loader.hold("B")
    waiter = Call(lambda: b.use_all("BA"))
    gate.reached.wait()
    replace(b, "A", "X")
    gate.opened.set()
    assert waiter.result() == ["B", "X"]


def test_new_model_leaves_when_it_is_loaded_too_late(bench: MakeBench) -> None:
    """A swap that ran out of time leaves nothing behind, once the load is done."""
    b = bench(2)
    b.add("A")
    b.use("A")
    gate = b.loader.hold("X")
    swap = Call(lambda: replace(b, "A", "X", timeout_s=5.0))
    gate.reached.wait()
    b.pass_time(6.0)
    assert isinstance(swap.error(), LeaseTimeout)
    gate.opened.set()
    assert known(b) == {"A"}
    assert b.loader.resident["X"] == 0


def test_config_goes_along_when_a_pinned_model_is_replaced(bench: MakeBench) -> None:
    """The new model has the config of the name that means it; the old one leaves although it was pinned."""
    b = bench(2)
    b.add("A", config=ModelConfig(pinned=True, warm_up=True))
    b.use("A")
    events: list[object] = []
    b.manager.subscribe(events.append)
    replace(b, "A", "X")
    assert known(b) == {"X"}
    assert b.state.models[key("X")].config.pinned
    assert b.loader.done["X", "warm_up"] == 1
    b.manager.close()
    assert [e.old_key for e in events if isinstance(e, ModelReplaced)] == [key("A")]
    assert b.manager.snapshot().counters.replacements == 1


def test_nothing_happens_when_the_key_is_the_same(bench: MakeBench) -> None:
    """Replacing a model by itself loads it if need be, and no more than once."""
    b = bench(1)
    b.add("A")
    assert replace(b, "A", "A") == key("A")
    assert replace(b, "A", "A") == key("A")
    assert b.loads("A") == 1
    assert b.phase("A") == "ready"


def test_swap_is_refused_when_nobody_can_be_served(bench: MakeBench) -> None:
    """A name that is not registered, and a manager that is closed, raise by name."""
    b = bench(1)
    b.add("A")
    with pytest.raises(ModelNotRegistered):
        replace(b, "B", "X")
    b.manager.close()
    with pytest.raises(ManagerClosed):
        replace(b, "A", "X")
