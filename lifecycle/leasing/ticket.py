"""`Ticket`: a caller that waits, as the keeper knows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import threading

    from lifecycle.config import InstanceKey
    from lifecycle.heart import signals
    from lifecycle.heart.states import State
    from lifecycle.leasing.lease import Around, LeaseBase


@dataclass(slots=True)
class Ticket:
    """A caller that waits: the lease to fill, or why it was not filled and the state in which that was decided.

    `keys` are what its refs meant when it was last asked for, `spared` those that it may not drive out; `holds` are
    around what asks.
    """

    lease: LeaseBase
    done: threading.Event
    keys: tuple[InstanceKey, ...]
    holds: tuple[Around, ...] = ()
    number: int = 0
    spared: tuple[InstanceKey, ...] = ()
    refusal: tuple[signals.Why, State] | BaseException | None = None
