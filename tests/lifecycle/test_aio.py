"""Leases from asyncio: the same promises as from threads."""

from __future__ import annotations

import asyncio
import gc
import queue
import threading
from typing import TYPE_CHECKING, Any

import pytest
from lifecycle_fakes import Call, FakeLoader, FakeSpec
from lifecycle_tasks import A, B, is_clean, reach, use

from backends.errors import InvalidInput
from lifecycle import (
    BudgetExhausted,
    LeaseReused,
    LeaseTimeout,
    LoadFailed,
    ModelManager,
    ModelNotRegistered,
    ModelRef,
    aio,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from lifecycle_fakes import Bench

    MakeBench = Callable[..., Bench]


def test_models_are_leased_when_asked_from_asyncio(bench: MakeBench) -> None:
    """A lease gives the model, a set the models in order, and afterwards nothing is held."""
    b = bench(2)
    b.add("A")
    b.add("B")

    async def main() -> None:
        lease = aio.lease(b.manager, A)
        async with lease as model:
            assert model.name == "A"
            assert lease.cold
            assert lease.keys[0].digest == "A"
            assert lease.wait_s == 0.0  # the bench's clock stands still
            assert b.manager.status(A).leases == 1
        assert await use(b, B, A) == ["B", "A"]

    asyncio.run(main())
    assert is_clean(b)


def test_hit_neither_awaits_nor_asks_another_thread_when_the_model_is_loaded(bench: MakeBench) -> None:
    """On a loaded model, entering and leaving never suspend, even with a manager whose keeper is busy."""
    b = bench(1)
    b.add("A")
    b.use("A")
    busy, go_on = threading.Event(), threading.Event()
    keeper = Call(lambda: b.manager._keeper.call(lambda: (busy.set(), go_on.wait())))
    busy.wait()
    entering = use(b, A)
    with pytest.raises(StopIteration) as ended:
        entering.send(None)
    assert ended.value.value == ["A"]
    go_on.set()
    keeper.result()
    assert b.manager.status(A).hits == 1


def test_one_load_is_started_when_many_tasks_ask_for_one_cold_model(bench: MakeBench) -> None:
    """L21: 64 tasks ask for one cold model: one load, and all of them are served."""
    b = bench(1)
    b.add("A")

    async def main() -> list[list[str]]:
        return await asyncio.gather(*(use(b, A) for _ in range(64)))

    assert asyncio.run(main()) == [["A"]] * 64
    assert b.loads("A") == 1
    assert is_clean(b)


def test_lease_is_reported_when_it_is_dropped_open(bench: MakeBench) -> None:
    """A lease entered from asyncio and never left is told of, with the line of the coroutine that entered it."""
    b = bench(1)
    b.add("A")
    b.use("A")
    events: queue.SimpleQueue[Any] = queue.SimpleQueue()
    b.manager.subscribe(events.put)

    async def leak() -> None:
        await aio.lease(b.manager, A).__aenter__()

    asyncio.run(leak())
    gc.collect()
    line = leak.__code__.co_firstlineno + 1
    assert events.get(timeout=600).where == f"{__file__}:{line}"
    assert is_clean(b)


def test_refusals_are_the_same_when_asked_from_asyncio(bench: MakeBench) -> None:
    """What a thread is told, a task is told: no room, no time, a load that failed, an unknown name, a second use."""
    b = bench(1)
    b.add("A")
    b.add("B", 2)
    b.add("C")
    b.add("D")
    b.loader.faults["C", "load"].append(ValueError("broken"))
    b.loader.hold("D")

    async def main() -> None:
        with pytest.raises(BudgetExhausted):
            await use(b, B)
        with pytest.raises(LoadFailed, match="broken"):
            await use(b, ModelRef("t", "C"))
        with pytest.raises(LeaseTimeout):
            await aio.lease(b.manager, ModelRef("t", "D"), timeout_s=0.0).__aenter__()
        with pytest.raises(ModelNotRegistered):
            await use(b, ModelRef("t", "nobody"))
        with pytest.raises(InvalidInput):
            await aio.lease(b.manager, A, timeout_s=-1.0).__aenter__()
        with pytest.raises(InvalidInput):
            aio.lease_set(b.manager, [])

    asyncio.run(main())
    assert is_clean(b)


def test_lease_refuses_when_entered_twice_from_asyncio(bench: MakeBench) -> None:
    """An asyncio lease is for one block, and releasing it early, or often, is harmless."""
    b = bench(1)
    b.add("A")

    async def main() -> None:
        lease = aio.lease(b.manager, A)
        async with lease:
            lease.release()
            assert b.manager.status(A).leases == 0
        with pytest.raises(LeaseReused):
            await lease.__aenter__()

    asyncio.run(main())


def test_waiting_task_is_refused_when_the_time_is_up_by_itself() -> None:
    """With a real clock, nobody but the task itself need notice that its time is up."""
    loader = FakeLoader()
    gate = loader.hold("A")
    with ModelManager(1) as manager:
        manager.register(A, FakeSpec("A", 1, 1), loader)

        async def main() -> None:
            async with aio.lease(manager, A, timeout_s=0.01):
                pytest.fail("it was entered")

        with pytest.raises(LeaseTimeout, match="still loading"):
            asyncio.run(main())
        gate.opened.set()


def test_models_come_and_go_when_told_from_asyncio(bench: MakeBench) -> None:
    """Prefetch loads, unload returns when the bytes are free, close leaves nothing; the loop goes on meanwhile."""
    b = bench(1)
    b.add("A")
    gate = b.loader.hold("A", "close")

    async def main() -> None:
        aio.prefetch(b.manager, [A])
        async with aio.lease(b.manager, A):
            pass
        unloading = asyncio.create_task(aio.unload(b.manager, A))
        await reach(gate.reached)
        assert not unloading.done()
        gate.opened.set()
        await unloading
        assert b.state.charged_nbytes == 0
        await aio.close(b.manager)

    asyncio.run(main())
    assert b.loads("A") == 1


def test_name_means_another_model_when_it_is_replaced_from_asyncio(bench: MakeBench) -> None:
    """Replacing loads the new model while the loop goes on and leases of the old one stay good."""
    b = bench(2)
    b.add("A")
    gate = b.loader.hold("A2")

    async def main() -> None:
        async with aio.lease(b.manager, A) as old:
            replacing = asyncio.create_task(aio.replace(b.manager, A, FakeSpec("A2", 1, 1)))
            await reach(gate.reached)
            assert await use(b, A) == ["A"]
            gate.opened.set()
            assert (await replacing).digest == "A2"
            assert await use(b, A) == ["A2"]
            assert not old.closed

    asyncio.run(main())
    b.until(lambda state: len(state.generations) == 1)
