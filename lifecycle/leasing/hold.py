"""`Hold`: a set of models that is asked for beside the work that uses them."""

from __future__ import annotations

import threading
from sys import _getframe
from typing import TYPE_CHECKING, Self
from weakref import ref

from lifecycle.leasing.lease import HELD

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from lifecycle.config import ModelRef
    from lifecycle.leasing.waiting import Wait
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

    __slots__ = ("__weakref__", "_answered", "_manager", "_wait", "lease")

    def __init__(self, manager: ModelManager, refs: Iterable[ModelRef], timeout_s: float = 30.0) -> None:
        self._manager = manager
        self.lease = manager.lease_set(refs, timeout_s)
        # Both are of a set that has to be waited for.
        self._answered: threading.Event | None = None
        self._wait: Wait | None = None

    @property
    def given(self) -> bool:
        """Tell whether the models are held now."""
        return self.lease.is_open

    @property
    def admission(self) -> int:
        """Return the number under which the set waits, or has waited; 0 if it was there at once."""
        return 0 if self._wait is None else self._wait.number

    def __enter__(self) -> Self:
        if self.lease.take(_getframe(1)):
            for handle in self.lease.handles:
                handle.hits -= 1  # the uses are counted, and this is none
        else:
            self._answered = threading.Event()
            wait = self._manager.wait_for(self.lease, self._answered)
            wait.begin()
            self._wait = wait
        HELD.set((*(known for known in HELD.get() if known() is not None), ref(self)))
        return self

    def settle(self) -> None:
        """Go on without the set if it has no room yet, so that its models can be had one by one.

        A lease on one of them could otherwise wait behind the set, for room that only others can give.
        """
        if self._wait is None or self._is_answered:
            return
        looked = threading.Event()
        self._manager.ping(looked.set)  # it takes its messages in order, so now it has seen the request
        looked.wait(_PING_TIMEOUT_S)
        if not all(self._manager.status(ref).state in _HAS_ROOM for ref in self.lease.refs):
            self._wait.withdraw()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._wait is None or self._is_answered:
                self.lease.release()
            else:
                self._wait.withdraw()
        finally:  # not by a token: a generator's block may end in another context than it began in
            HELD.set(tuple(known for known in HELD.get() if known() not in {None, self}))

    @property
    def _is_answered(self) -> bool:
        return self._answered is not None and self._answered.is_set()
