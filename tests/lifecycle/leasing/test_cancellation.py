"""Cancellation: nothing is left behind by a task that is cancelled, at whichever await."""

from __future__ import annotations

import asyncio
import gc
import itertools
import random
from typing import TYPE_CHECKING, Any

import pytest
from lifecycle_tasks import A, B, is_clean, reach, use

from lifecycle import (
    ModelRef,
    aio,
)
from lifecycle.leasing.waiting import Wait

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

    from lifecycle_fakes import Bench, Gate

    MakeBench = Callable[..., Bench]


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
