"""Leases: single use, returned exactly once however a block ends, and told of when nobody closes them."""

from __future__ import annotations

import gc
import itertools
import sys
import threading
import tracemalloc
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from lifecycle_fakes import Call

from lifecycle import LeaseReused, LeaseTimeout, ModelNotRegistered, ModelRef
from lifecycle.events import LeaseLeaked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from lifecycle_fakes import Bench

    from lifecycle import Lease

    MakeBench = Callable[..., Bench]


def leases(bench: Bench) -> int:
    """Return how many leases are open in all."""
    return sum(model.leases for model in bench.manager.snapshot().models)


def fail_inside(lease: Lease) -> None:
    """Raise within the lease's block."""
    with lease:
        raise ZeroDivisionError


def test_hits_wait_for_nothing_when_another_model_loads_or_unloads(bench: MakeBench) -> None:
    """L53: a resident model is served without waiting while others are held in a load, an unload, or by the keeper."""
    b = bench(3)
    for name in "ABC":
        b.add(name)
    b.use("A")
    b.use("C")
    load, close = b.loader.hold("B"), b.loader.hold("C", "close")
    callers = [b.later("B"), Call(lambda: b.manager.unload(ModelRef("t", "C")))]
    load.reached.wait()
    close.reached.wait()
    hung, opened = threading.Event(), threading.Event()
    b.manager.ping(lambda: (hung.set(), opened.wait()))
    hung.wait()  # now nobody but the caller itself can serve it
    for _ in range(1000):
        lease = b.lease("A", 0.0)
        with lease as model:
            assert (model.name, lease.cold, lease.wait_s) == ("A", False, 0.0)
    for gate in (opened, load.opened, close.opened):
        gate.set()
    for caller in callers:
        caller.result()
    assert b.manager.status(ModelRef("t", "A")).hits == 1000


def test_lease_is_returned_when_the_block_raises(bench: MakeBench) -> None:
    """An exception in the block passes through, and the lease is returned."""
    b = bench(1)
    b.add("A")
    lease = b.lease("A")
    with pytest.raises(ZeroDivisionError):
        fail_inside(lease)
    assert leases(b) == 0


def test_lease_is_returned_once_when_closed_many_times(bench: MakeBench) -> None:
    """Closing a closed lease, on any thread, takes nothing from another's."""
    b = bench(1)
    b.add("A")
    first = b.lease("A")
    with first, b.lease("A"):
        for _ in range(3):
            first.release()
        Call(first.release).result()
        assert leases(b) == 1


def test_lease_refuses_when_entered_twice(bench: MakeBench) -> None:
    """A lease is for one block, also after a failed attempt."""
    b = bench(1)
    b.add("A")
    lease = b.lease("A")
    with lease:
        pass
    for reused in (lease, failed_lease(b)):
        with pytest.raises(LeaseReused, match="t/A"), reused:
            pytest.fail("it was entered")
    assert leases(b) == 0


def failed_lease(b: Bench) -> Any:
    """Return a lease that was refused once."""
    b.manager.unload(ModelRef("t", "A"))
    gate = b.loader.hold("A")
    lease = b.lease("A", timeout_s=0.0)
    with pytest.raises(LeaseTimeout), lease:
        pytest.fail("it was entered")
    gate.opened.set()
    return lease


def test_old_generation_alone_is_touched_when_a_lease_returns_late(bench: MakeBench) -> None:
    """A lease is bound to its generation: returned after the next has loaded, it changes nothing there."""
    b = bench(2)
    b.add("A")
    with b.lease("A") as old:
        unload = Call(lambda: b.manager.unload(ModelRef("t", "A")))
        b.until(lambda state: not state.generations[1].is_open)
        with b.lease("A") as new:
            assert new is not old
            assert not old.closed
    unload.result()
    assert old.closed
    assert not new.closed
    assert leases(b) == 0
    assert list(b.state.generations) == [2]


def drop(b: Bench, held: list[Lease]) -> None:
    """Let go of leases without closing them, and let the keeper notice."""
    held.clear()
    gc.collect()
    b.manager.reap()


def test_leak_is_told_when_an_open_lease_is_collected(bench: MakeBench) -> None:
    """A lease collected open is returned, and a warning and an event name the line that took it."""
    b = bench(1)
    b.add("A")
    told: list[Any] = []
    b.manager.subscribe(told.append)
    held = [b.lease("A")]
    line = sys._getframe().f_lineno + 1
    held[0].__enter__()
    with pytest.warns(ResourceWarning, match="'t/A' was never closed") as caught:
        drop(b, held)
    assert leases(b) == 0
    assert caught[0].filename == __file__
    assert caught[0].lineno == line
    b.manager.close()
    (leak,) = [event for event in told if isinstance(event, LeaseLeaked)]
    assert leak.where == f"{__file__}:{line}"
    assert b.manager.snapshot().counters.leaked_leases == 1


def test_whole_stack_is_told_when_a_lease_leaks_and_memory_is_traced(bench: MakeBench) -> None:
    """With `tracemalloc` on, as the standard library's own leaks, the warning says who called whoever took it."""
    b = bench(1)
    b.add("A")
    tracemalloc.start(25)
    try:
        held = [b.lease("A")]
        held[0].__enter__()
        with pytest.warns(ResourceWarning, match=r"(?s)'t/A' was never closed.*b\.lease\(.A.\)"):
            drop(b, held)
    finally:
        tracemalloc.stop()


@pytest.mark.filterwarnings("ignore:a lease of:ResourceWarning")
def test_leaked_lease_lets_a_waiter_in_when_it_held_the_room(bench: MakeBench) -> None:
    """What a leaked lease held is given to whoever had claimed it, with nobody else's help."""
    b = bench(1)
    b.add("A")
    b.add("B")
    lease = b.lease("A")
    lease.__enter__()
    waiter = b.later("B")
    b.waiting(1)
    del lease
    gc.collect()
    waiter.result()


def test_dropped_generator_returns_its_lease_when_it_is_collected(bench: MakeBench) -> None:
    """A generator dropped inside its with block returns the lease."""
    b = bench(1)
    b.add("A")

    def walk() -> Iterator[str]:
        with b.lease("A") as model:
            yield model.name

    steps = walk()
    assert next(steps) == "A"
    assert leases(b) == 1
    del steps
    gc.collect()
    assert leases(b) == 0


class InterruptAt:
    """Raise InterruptedError before the n-th bytecode that runs in the files of leases and handles."""

    def __init__(self, nth: int) -> None:
        self.left = nth

    def __call__(self, frame: FrameType, event: str, _argument: object) -> InterruptAt | None:
        """Trace one event."""
        if not frame.f_code.co_filename.endswith(("lifecycle/leasing/lease.py", "lifecycle/leasing/handle.py")):
            return None
        if frame.f_code.co_name in {"__del__", "abandon"}:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            self.left -= 1
            if self.left == 0:
                raise InterruptedError
        return self


@pytest.mark.filterwarnings("ignore:a lease of:ResourceWarning")
@pytest.mark.parametrize("refs", ["A", "AB"])
def test_no_lease_stays_open_when_interrupted_at_each_bytecode(bench: MakeBench, refs: str) -> None:
    """An exception before any bytecode of entering or leaving leaves nothing leased once the lease is gone."""
    b = bench(2)
    b.add("A")
    b.add("B")
    b.use_all("AB")

    def once() -> None:
        with b.lease(refs) if len(refs) == 1 else b.manager.lease_set([ModelRef("t", name) for name in refs]):
            pass

    previous, interrupted = sys.gettrace(), 0
    for nth in itertools.count(1):
        trace = InterruptAt(nth)
        sys.settrace(trace)
        try:
            once()
        except InterruptedError:
            interrupted += 1
        finally:
            sys.settrace(previous)
        gc.collect(0)
        assert leases(b) == 0, f"interrupted before bytecode {nth}"
        if trace.left > 0:
            break
    assert interrupted > 100
    b.use_all("AB")


def test_set_gives_models_in_order_when_refs_repeat(bench: MakeBench) -> None:
    """A set's tuple follows its refs, repeated ones included, and counts one lease per instance."""
    b = bench(2)
    b.add("A")
    b.add("B")
    assert b.use_all("BAB") == ["B", "A", "B"]
    with b.manager.lease_set([ModelRef("t", name) for name in "BAB"]):
        assert leases(b) == 2
    assert leases(b) == 0


def test_backend_and_device_are_told_when_a_lease_is_held(bench: MakeBench) -> None:
    """A lease names its key, the backend, and the device that really runs the model."""
    b = bench(1)
    b.add("A")
    lease = b.lease("A")
    with lease:
        told = (lease.backend, lease.device, lease.key.digest, lease.cold)
    assert told == ("fake", "fake:0", "A", True)


def test_unknown_ref_is_named_when_it_is_leased(bench: MakeBench) -> None:
    """A ref that nobody registered is an error of its own, on entering."""
    b = bench(1)
    with pytest.raises(ModelNotRegistered, match="t/nobody"), b.lease("nobody"):
        pytest.fail("it was entered")


def test_lease_is_harmless_when_it_is_never_entered(bench: MakeBench) -> None:
    """A lease that was made and dropped holds nothing and says nothing."""
    b = bench(1)
    b.add("A")
    b.lease("A")
    gc.collect()
    b.manager.reap()
    assert b.loads("A") == 0


def test_leases_of_a_stack_are_returned_when_the_stack_ends(bench: MakeBench) -> None:
    """An ExitStack may hold leases."""
    b = bench(2)
    b.add("A")
    b.add("B")
    with ExitStack() as stack:
        for name in "AB":
            stack.enter_context(b.lease(name))
        assert leases(b) == 2
    assert leases(b) == 0
