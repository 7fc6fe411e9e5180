"""Named points between two steps of a write, where a fault test can stop, kill or fail the process.

A point costs one dictionary look-up when nothing is armed, so it stays in the product: what is tested is what ships.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_armed: dict[str, Callable[[], None]] = {}


def reach(name: str) -> None:
    """Run what is armed at this point, if anything is."""
    if action := _armed.get(name):
        action()


def arm(name: str, action: Callable[[], None]) -> None:
    """Run `action` each time the point is reached."""
    _armed[name] = action


def disarm_all() -> None:
    """Forget every armed point."""
    _armed.clear()
