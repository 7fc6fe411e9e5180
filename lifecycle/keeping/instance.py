"""What is registered under one key, as the keeper knows it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from lifecycle.config import InstanceKey, Loader, ModelRef
    from lifecycle.leasing.handle import ModelHandle


class Exchange(Protocol):
    """What the names ask of a swap: whose meaning changes, to which key, and in which turn."""

    turn: int

    @property
    def ref(self) -> ModelRef:
        """Return the name that shall mean the new key."""

    @property
    def key(self) -> InstanceKey:
        """Return the new key."""

    @property
    def handles(self) -> tuple[ModelHandle, ...]:
        """Return the new instance, once it is held."""


@dataclass(slots=True)
class Instance:
    """What is registered under one key: how to load it, the refs that share it, and the swaps that want it."""

    loader: Loader
    spec: object
    refs: tuple[ModelRef, ...] = ()
    swaps: set[Exchange] = field(default_factory=set)
