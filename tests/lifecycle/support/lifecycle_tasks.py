"""What the tests from asyncio share: one caller, and what must be true when all of them are gone."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from lifecycle import ModelRef, aio

if TYPE_CHECKING:
    import threading
    from collections.abc import Awaitable, Callable

    from lifecycle_fakes import Bench

A, B = ModelRef("t", "A"), ModelRef("t", "B")


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
