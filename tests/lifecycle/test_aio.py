"""Leases from asyncio: the same promises as from threads, and nothing is left behind by a cancellation at any await."""

from __future__ import annotations

import asyncio
import gc
import itertools
import queue
import random
import threading
from typing import TYPE_CHECKING, Any

import pytest
from lifecycle_fakes import Call, FakeLoader, FakeSpec

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
from lifecycle.waiting import Wait

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator

    from lifecycle_fakes import Bench, Gate

    MakeBench = Callable[..., Bench]

A, B = ModelRef("t", "A"), ModelRef("t", "B")


class CancelAt:
    """Drive a coroutine within a task, cancel it at its k-th suspension, and call a hook before that and at others."""

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, Any],
        k: int,
        *,
        on_cancel: Callable[[], object],
        on_other: Callable[[], object],
    ) -> None:
        self._coroutine = coroutine
        self._k = k
        self._on_cancel = on_cancel
        self._on_other = on_other

    def __await__(self) -> Generator[Any, Any, Any]:
        """Pass everything through, but for the k-th suspension."""
        inner = self._coroutine.__await__()
        for suspension in itertools.count(1):
            try:
                awaited = inner.send(None)
            except StopIteration as stop:
                return stop.value
            if suspension == self._k:
                self._on_cancel()
                inner.throw(asyncio.CancelledError())
                pytest.fail("a cancelled caller went on")
            self._on_other()
            yield awaited
        return None


async def use(b: Bench, *refs: ModelRef, inside: Callable[[], Awaitable[None]] | None = None) -> list[str]:
    """Take and return a set from asyncio, and tell whose models it was."""
    async with aio.lease_set(b.manager, refs) as models:
        if inside is not None:
            await inside()
        return [model.name for model in models]


def is_clean(b: Bench) -> bool:
    """Return whether nobody waits and nobody holds anything, once the keeper has read its mail."""
    b.manager.reap()
    return not b.state.queue and all(model.leases == 0 for model in b.manager.snapshot().models)


async def reach(event: threading.Event) -> None:
    """Wait for a step of the fake loader without stopping the loop."""
    await asyncio.to_thread(event.wait)


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


def test_others_are_served_when_one_waiting_task_is_cancelled(bench: MakeBench) -> None:
    """L16, L17: of 8 tasks waiting for one load the first is cancelled; 7 are served, and one that comes later."""
    b = bench(1)
    b.add("A")
    gate = b.loader.hold("A")

    async def main() -> None:
        tasks = [asyncio.create_task(use(b, A)) for _ in range(8)]
        await reach(gate.reached)
        tasks[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await tasks[0]
        tasks.append(asyncio.create_task(use(b, A)))
        gate.opened.set()
        assert await asyncio.gather(*tasks[1:]) == [["A"]] * 8

    asyncio.run(main())
    assert b.loads("A") == 1
    assert is_clean(b)


def cancel_each_await(bench: MakeBench, when: str) -> int:
    """Lease a cold set, cancelled at the k-th suspension for each k, and return at which k it ended by itself."""
    for k in itertools.count(1):
        b = bench(2)
        b.add("A")
        b.add("B")
        gate = b.loader.hold("A")

        def granted(b: Bench = b, gate: Gate = gate) -> None:
            gate.opened.set()
            b.until(lambda state: bool(state.generations) and not state.queue)

        async def main(b: Bench = b, gate: Gate = gate, k: int = k) -> list[str]:
            using = use(b, A, B, inside=lambda: asyncio.sleep(0))
            on_cancel = granted if when == "granted" else lambda: None
            names: list[str] = await CancelAt(using, k, on_cancel=on_cancel, on_other=gate.opened.set)
            return names

        try:
            assert asyncio.run(main()) == ["A", "B"]
        except asyncio.CancelledError:
            assert is_clean(b)
            gate.opened.set()
            assert b.use_all("AB") == ["A", "B"]
            assert b.loads("A") == 1
        else:
            return k
    raise AssertionError


@pytest.mark.parametrize("when", ["waiting", "granted"])
def test_nothing_is_left_when_cancelled_at_any_await(bench: MakeBench, when: str) -> None:
    """A caller cancelled at its k-th suspension, for each k, waiting or just served, leaves no waiter and no lease."""
    assert cancel_each_await(bench, when) == 3  # it waits once, and its block suspends once


@pytest.mark.parametrize("when", ["waiting", "granted"])
def test_cancellation_is_seen_to_leave_something_when_nothing_is_withdrawn(
    bench: MakeBench, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Positive control: without `withdraw` the test above fails, in both its forms."""
    monkeypatch.setattr(Wait, "withdraw", lambda _: None)
    with pytest.raises(AssertionError):
        cancel_each_await(bench, when)
    gc.collect()


def test_lease_is_returned_when_the_loop_is_closed_under_it(bench: MakeBench) -> None:
    """A loop closed while a task waits on it costs the keeper nothing, and the task's end returns its lease."""
    b = bench(1)
    b.add("A")
    gate = b.loader.hold("A")
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # it would tell of the task that is destroyed while pending
    task = loop.create_task(use(b, A))
    loop.run_until_complete(reach(gate.reached))
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
    gate.opened.set()
    b.until(lambda state: not state.queue)
    assert b.manager.status(A).leases == 1
    del task
    gc.collect()
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
    assert events.get(timeout=60).where == f"{__file__}:{line}"
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


def test_unload_goes_on_when_its_caller_is_cancelled(bench: MakeBench) -> None:
    """Cancelling a task that waits for an unload ends the waiting, not the unload."""
    b = bench(1)
    b.add("A")
    b.use("A")
    gate = b.loader.hold("A", "close")

    async def main() -> None:
        unloading = asyncio.create_task(aio.unload(b.manager, A))
        await reach(gate.reached)
        unloading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await unloading
        gate.opened.set()

    asyncio.run(main())
    b.until(lambda state: not state.generations)


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


@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_left_when_tasks_and_threads_are_cancelled_at_random(bench: MakeBench, seed: int) -> None:
    """Tasks and threads on more models than fit, a third of the tasks cancelled somewhere: all end, nothing stays."""
    b = bench(3)
    for name in "ABCDEF":
        b.add(name)
    dice = random.Random(seed)  # noqa: S311 - a repeatable test, not a secret
    sets = [tuple(ModelRef("t", name) for name in dice.sample("ABCDEF", dice.randint(1, 3))) for _ in range(120)]
    fates = [dice.randrange(12) if dice.random() < 0.33 else None for _ in sets]

    async def main() -> list[list[str] | BaseException]:
        tasks = [asyncio.create_task(use(b, *refs, inside=lambda: asyncio.sleep(0))) for refs in sets]
        for turn in range(12):
            await asyncio.sleep(0)
            for task, fate in zip(tasks, fates, strict=True):
                if fate == turn:
                    task.cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    threads = [b.later(name, timeout_s=1000.0) for name in "ABCDEF"]
    outcomes = asyncio.run(main())
    for thread in threads:
        thread.result()
    for refs, outcome in zip(sets, outcomes, strict=True):
        assert isinstance(outcome, asyncio.CancelledError) or outcome == [ref.name for ref in refs]
    assert sum(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes) > 10
    assert is_clean(b)
    assert b.state.charged_nbytes <= 3
