"""`Hold`: a set of models that is asked for beside the work that uses them."""

from __future__ import annotations

import threading
from sys import _getframe
from typing import TYPE_CHECKING, Self

from lifecycle.lease import HELD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextvars import Token
    from types import TracebackType

    from lifecycle.config import ModelRef
    from lifecycle.lease import LeaseSet
    from lifecycle.manager import ModelManager

_PING_TIMEOUT_S = 1.0
_HAS_ROOM = frozenset({"reserved", "loading", "warming", "ready"})  # states of a model


class Hold:
    """Hold a set of models for one `with` block, from the moment when all are there.

    Entering waits for nothing. The set is one admission, all or none, as `ModelManager.lease_set`: its models load
    beside each other, and once all are there none can be evicted until the block ends. Whoever uses one takes a lease
    of his own, and needn't wait for the others, nor, inside the block, for who has claimed what it holds. A set that is
    refused is not held, and that is all: those leases say why.

    Raises (on entering):
        ModelNotRegistered: there is no such ref.
        InvalidInput (at once): the set is empty.
    """

    __slots__ = ("_answered", "_before", "_lease", "_manager", "_withdraw")

    def __init__(self, manager: ModelManager, refs: Iterable[ModelRef], timeout_s: float = 30.0) -> None:
        self._manager = manager
        self._lease = manager.lease_set(refs, timeout_s)
        # Both are of a set that has to be waited for.
        self._answered: threading.Event | None = None
        self._withdraw: Callable[[], None] | None = None
        self._before: Token[tuple[LeaseSet, ...]] | None = None

    @property
    def given(self) -> bool:
        """Tell whether the models are held now."""
        return self._lease.is_open

    def __enter__(self) -> Self:
        if self._lease.take(_getframe(1)):
            for handle in self._lease.handles:
                handle.hits -= 1  # the uses are counted, and this is none
        else:
            self._answered = threading.Event()
            wait = self._manager.wait_for(self._lease, self._answered)
            wait.begin()
            self._withdraw = wait.withdraw
        self._before = HELD.set((*HELD.get(), self._lease))
        return self

    def settle(self) -> None:
        """Go on without the set if it has no room yet, so that its models can be had one by one.

        A lease on one of them could otherwise wait behind the set, for room that only others can give.
        """
        if self._withdraw is None or self._is_answered:
            return
        looked = threading.Event()
        self._manager.ping(looked.set)  # it takes its messages in order, so now it has seen the request
        looked.wait(_PING_TIMEOUT_S)
        if not all(self._manager.status(ref).state in _HAS_ROOM for ref in self._lease.refs):
            self._withdraw()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            HELD.reset(self._before)
        if self._withdraw is None or self._is_answered:
            self._lease.release()
        else:
            self._withdraw()

    @property
    def _is_answered(self) -> bool:
        return self._answered is not None and self._answered.is_set()
