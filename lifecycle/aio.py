"""The same manager from asyncio: `async with aio.lease(manager, ref) as model`.

A lease on a loaded model is taken on the spot: nothing is awaited, no other thread is asked. Returning one never
awaits, so no cancellation can come between. Only a cold lease waits, on a future of the caller's own event loop that
the keeper resolves; a cancelled caller withdraws its request, and whatever it was given meanwhile is returned.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from sys import _getframe
from typing import TYPE_CHECKING, Any

from lifecycle.leasing.lease import Lease, LeaseBase

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from lifecycle.config import InstanceKey, Loader, ModelRef
    from lifecycle.manager import ModelManager


def lease(manager: ModelManager, ref: ModelRef, timeout_s: float = 30.0, *, ttl_s: float | None = None) -> AsyncLease:
    """Return a lease: `async with aio.lease(manager, ref) as model`; as `ModelManager.lease`.

    Raises:
        InvalidInput: `ttl_s` is negative or no number.
    """
    return AsyncLease(manager, manager.lease(ref, timeout_s, ttl_s=ttl_s))


def lease_set(manager: ModelManager, refs: Iterable[ModelRef], timeout_s: float = 30.0) -> AsyncLease:
    """Return a lease on several models at once, all or none; as `ModelManager.lease_set`.

    Raises:
        InvalidInput: the set is empty.
    """
    return AsyncLease(manager, manager.lease_set(refs, timeout_s))


def prefetch(manager: ModelManager, refs: Iterable[ModelRef]) -> None:
    """Start loading models that will soon be asked for; awaits nothing; as `ModelManager.prefetch`."""
    manager.prefetch(refs)


async def unload(manager: ModelManager, ref: ModelRef, *, drain_timeout_s: float = 30.0) -> None:
    """Unload the ref's instance and return when its bytes are free; as `ModelManager.unload`.

    A caller that is cancelled only stops waiting: the unload goes on, within its deadlines.
    """
    await asyncio.to_thread(manager.unload, ref, drain_timeout_s=drain_timeout_s)


async def replace(
    manager: ModelManager,
    ref: ModelRef,
    spec: Any,  # noqa: ANN401 - each loader has its own kind of spec
    loader: Loader | None = None,
    *,
    key: InstanceKey | None = None,
    drain_first: bool = False,
    timeout_s: float = 120.0,
) -> InstanceKey:
    """Let a ref mean another model; as `ModelManager.replace`. A caller that is cancelled only stops waiting."""
    return await asyncio.to_thread(
        manager.replace, ref, spec, loader, key=key, drain_first=drain_first, timeout_s=timeout_s
    )


async def close(manager: ModelManager, *, timeout_s: float = 30.0) -> None:
    """Close the manager; as `ModelManager.close`. A caller that is cancelled only stops waiting."""
    await asyncio.to_thread(manager.close, timeout_s=timeout_s)


class AsyncLease:
    """Hold models for one `async with` block; made by `lease` (the block's value is the model) or `lease_set`.

    Raises (on entering):
        as `Lease` and `LeaseSet`.
    """

    __slots__ = ("_lease", "_manager")

    def __init__(self, manager: ModelManager, inner: LeaseBase) -> None:
        self._manager = manager
        self._lease = inner

    @property
    def cold(self) -> bool:
        """Return whether it had to wait for room or for a load."""
        return self._lease.cold

    @property
    def wait_s(self) -> float:
        """Return how long it waited."""
        return self._lease.wait_s

    @property
    def keys(self) -> tuple[InstanceKey, ...]:
        """Return the keys of the instances, in the order in which they were asked for."""
        return self._lease.keys

    def release(self) -> None:
        """Return what is held; returning it again is harmless."""
        self._lease.release()

    async def __aenter__(self) -> Any:  # noqa: ANN401 - the models are of whatever kind their loaders make
        if not (self._lease.take(_getframe(1)) or self._lease.borrow()):
            await self._admit()
        models = self._lease.models
        return models[0] if isinstance(self._lease, Lease) else models

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lease.release()

    async def _admit(self) -> None:
        done = _LoopEvent()
        wait = self._manager.wait_for(self._lease, done)
        try:
            wait.begin()
            while not done.is_set():
                await asyncio.wait((done.future,), timeout=wait.nap_s())
        except BaseException:
            wait.withdraw()
            raise
        wait.settle()


class _LoopEvent(threading.Event):
    """An event that any thread sets, and whose `future` then wakes the loop on which it was made."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = self._loop.create_future()

    def set(self) -> None:
        """Set the event, and have the loop resolve the future."""
        super().set()
        with suppress(RuntimeError):  # the loop is closed, and with it went whoever waited
            self._loop.call_soon_threadsafe(self._resolve)

    def _resolve(self) -> None:
        if not self.future.done():
            self.future.set_result(None)
