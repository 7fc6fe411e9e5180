"""`Lease` and `LeaseSet`: the single-use `with` objects that callers hold.

Entering tries the hot path, which takes no lock, and else asks the manager to admit the lease. An exception at any
bytecode, even an interrupt, leaves a lease that either was never counted or will be returned: handles are noted
before they are acquired, and returning what was not acquired is harmless.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextvars import ContextVar
from sys import _getframe
from tracemalloc import get_object_traceback
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from lifecycle.errors import LeaseReused

if TYPE_CHECKING:
    from collections.abc import Callable
    from tracemalloc import Traceback
    from types import CodeType, FrameType, TracebackType
    from weakref import ReferenceType

    from lifecycle.config import InstanceKey, ModelRef
    from lifecycle.leasing.handle import ModelHandle

# `_getframe` is the only way to a caller's line that costs next to nothing: 0.1 us, where a stack costs 14.


# The sets that are held around what runs here (`hold.Hold`). What runs under one uses its models whoever has claimed
# them meanwhile: the claim waits for the set, and the set for what runs, so to wait for the claim would be for ever.
# A context may be copied and outlive the block, so it keeps no hold alive: one that is dropped open is still reported.
HELD: ContextVar[tuple[ReferenceType[Around], ...]] = ContextVar("lifecycle.leasing.lease.HELD", default=())


class Desk(Protocol):
    """What a lease needs of the manager that it is taken from."""

    open_handles: dict[ModelRef, ModelHandle]
    clock: Callable[[], float]

    def admit(self, lease: LeaseBase) -> None:
        """Wait until the lease has been given its handles, or raise."""

    def key_of(self, ref: ModelRef) -> InstanceKey:
        """Return the key under which the ref is registered."""

    def keep(self, generation: int, ttl_s: float) -> None:
        """Give an instance another time to live, soon; waits for nothing."""

    def report_leak(self, leak: Leak) -> None:
        """Note a lease that nobody closed; called from a finalizer, so it takes no lock."""


class Around(Protocol):
    """What a lease needs of a set that is held around what runs here; `hold.Hold` is one."""

    @property
    def lease(self) -> LeaseSet:
        """Return the set."""

    @property
    def given(self) -> bool:
        """Tell whether its models are held now."""

    @property
    def admission(self) -> int:
        """Return the number under which it waits, or has waited; 0 if it was there at once."""


class Leak(NamedTuple):
    """A lease that was garbage-collected open, and the code and instruction that had entered it.

    `stack` is where it was made, if `tracemalloc` is tracing, as with `python -X tracemalloc=25`.
    """

    ref: ModelRef
    code: CodeType
    instruction: int
    stack: Traceback | None

    @property
    def line(self) -> int:
        """Return the line of the `with` statement, worked out only now that somebody asks."""
        positions = list(self.code.co_positions())
        return positions[self.instruction // 2][0] or self.code.co_firstlineno


class LeaseBase(ABC):
    """What a lease on one model and one on a set share: entered once, and returned once, however the block ends."""

    __slots__ = ("_code", "_desk", "_instruction", "_is_open", "cold", "timeout_s", "wait_s")

    _is_open: bool | None  # None until it is entered
    _desk: Desk
    timeout_s: float
    cold: bool
    wait_s: float

    @property
    @abstractmethod
    def refs(self) -> tuple[ModelRef, ...]:
        """Return the names under which the models were asked for."""

    @property
    @abstractmethod
    def handles(self) -> tuple[ModelHandle, ...]:
        """Return the instances that are or were held, in `refs` order; nothing before entering."""

    @handles.setter
    @abstractmethod
    def handles(self, handles: tuple[ModelHandle, ...]) -> None: ...

    @property
    def keys(self) -> tuple[InstanceKey, ...]:
        """Return the keys of the instances, in `refs` order."""
        return tuple(map(self._desk.key_of, self.refs))

    @property
    def spared(self) -> tuple[InstanceKey, ...]:
        """Return the keys, beside its own, whose instances may not be asked to leave for its sake."""
        return ()

    @property
    def holds(self) -> tuple[Around, ...]:
        """Return the holds on models of the same manager around what runs here, the outermost first."""
        known = [hold for known in HELD.get() if (hold := known()) is not None]
        return tuple(hold for hold in known if hold.lease.is_of(self._desk))

    def is_of(self, desk: Desk) -> bool:
        """Tell whether the lease was taken from this manager."""
        return self._desk is desk

    @property
    def is_open(self) -> bool:
        """Return whether it holds its models now."""
        return bool(self._is_open)

    def give(self, handles: tuple[ModelHandle, ...]) -> None:
        """Open the lease on these handles; the keeper calls it, on its thread."""
        self.handles = handles
        self._is_open = True
        for handle in handles:
            handle.grant(id(self))

    def release(self) -> None:
        """Return what is held; returning it again is harmless."""
        if self._is_open:
            now = self._desk.clock()
            for handle in self.handles:
                handle.release(id(self), now)
            self._is_open = False

    @property
    def models(self) -> tuple[Any, ...]:
        """Return the models, in `refs` order."""
        return tuple(handle.model for handle in self.handles)

    def take(self, frame: FrameType) -> bool:
        """Open the lease if that needs no waiting, and tell whether it did; `frame` is where it is taken."""
        if self._is_open is not None:
            raise LeaseReused(f"this lease of {self.refs[0]} was entered before: take a new one")
        self._code = frame.f_code
        self._instruction = frame.f_lasti
        self._is_open = True
        for ref in self.refs:
            handle = self._desk.open_handles.get(ref)
            if handle is None:
                break
            self.handles = (*self.handles, handle)
            if not handle.acquire(id(self)):
                break
        else:
            for handle in self.handles:
                handle.count()
            return True
        self._take_back()
        return False

    def borrow(self) -> bool:
        """Open the lease on models that are held around what runs here, and tell whether all of its models are.

        It is counted before the sets are seen to be held, and so before one can have let go: whoever counts next sees
        one of the two.
        """
        holds = self.holds
        if not holds:
            return False
        sets, wanted = [hold.lease for hold in holds], zip(self.refs, self.keys, strict=True)
        lent = [loan for ref, key in wanted if (loan := _loan(sets, ref, key)) is not None]
        if len(lent) < len(self.refs):
            return False
        self.handles = tuple(handle for _, handle in lent)
        self._is_open = True
        for handle in self.handles:
            handle.tokens.add(id(self))
        if all(id(held) in handle.tokens for held, handle in lent):
            for handle in self.handles:
                handle.count()
            return True
        self._take_back()
        return False

    def _take_back(self) -> None:
        """Let go of what was held for a lease that was not given."""
        for handle in self.handles:
            handle.take_back(id(self))
        self._is_open = False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def __del__(self) -> None:
        # A collector may run this in the middle of anything, so nothing here takes a lock.
        try:
            is_open = self._is_open
        except AttributeError:  # interrupted before its first line
            return
        if is_open:
            for handle in self.handles:
                handle.abandon(id(self))
            if self.handles:
                stack = get_object_traceback(self)
                self._desk.report_leak(Leak(self.refs[0], self._code, self._instruction, stack))


class LeaseSet(LeaseBase):
    """Hold a set of models for one `with` block, all of them or none; the block's value is a tuple in `refs` order.

    Made by `ModelManager.lease_set`. After entering, `cold` says whether it had to wait for room or for a load, and
    `wait_s` how long. Leaving the block returns the models once, however it ends.

    Raises (on entering):
        BudgetExhausted, LeaseTimeout, LoadFailed, ModelNotRegistered, ManagerClosed, LeaseReused.
    """

    __slots__ = ("handles", "refs")

    handles: tuple[ModelHandle, ...]
    refs: tuple[ModelRef, ...]

    def __init__(self, desk: Desk, refs: tuple[ModelRef, ...], timeout_s: float) -> None:
        self._is_open = None
        self._desk = desk
        self.refs = refs
        self.timeout_s = timeout_s
        self.handles = ()
        self.cold = False
        self.wait_s = 0.0

    def __enter__(self) -> tuple[Any, ...]:
        if not (self.take(_getframe(1)) or self.borrow()):
            self._desk.admit(self)
        return self.models


def _loan(sets: list[LeaseSet], ref: ModelRef, key: InstanceKey) -> tuple[LeaseSet, ModelHandle] | None:
    """Return the instance of a ref's key that one of these sets holds, and the set."""
    for held in sets:
        for name, handle in zip(held.refs, held.handles, strict=False):  # before it is given it has none
            if name == ref and id(held) in handle.tokens and handle.key == key:
                return held, handle
    return None


class Lease(LeaseBase):
    """Hold one model for one `with` block; the block's value is the model. Made by `ModelManager.lease`."""

    __slots__ = ("_handle", "ref")

    def __init__(self, desk: Desk, ref: ModelRef, timeout_s: float) -> None:
        self._is_open = None
        self._desk = desk
        self.ref = ref
        self.timeout_s = timeout_s
        self._handle: ModelHandle | None = None
        self.cold = False
        self.wait_s = 0.0

    @property
    def refs(self) -> tuple[ModelRef, ...]:
        """Return the name under which the model was asked for."""
        return (self.ref,)

    @property
    def handles(self) -> tuple[ModelHandle, ...]:
        """Return the instance that is or was held; nothing before entering."""
        return () if self._handle is None else (self._handle,)

    @handles.setter
    def handles(self, handles: tuple[ModelHandle, ...]) -> None:
        (self._handle,) = handles

    @property
    def key(self) -> InstanceKey:
        """Return the instance's key: that of the model it holds, before entering the one that its ref means."""
        return self._desk.key_of(self.ref) if self._handle is None else self._handle.key

    @property
    def backend(self) -> str:
        """Return the name of the backend that serves the model."""
        return self.key.backend

    @property
    def device(self) -> str | None:
        """Return the device that really runs the model, if the model says so; None before entering."""
        return None if self._handle is None else self._handle.device

    # The hot path: what `take`, `release` and the handle's own methods do, for one model, without loops and calls.

    def __enter__(self) -> Any:  # noqa: ANN401 - the model is of whatever kind its loader makes
        if self._is_open is not None:
            raise LeaseReused(f"this lease of {self.ref} was entered before: take a new one")
        frame = _getframe(1)
        self._code = frame.f_code
        self._instruction = frame.f_lasti
        handle = self._desk.open_handles.get(self.ref)
        if handle is not None:
            self._handle = handle
            self._is_open = True
            tokens = handle.tokens
            tokens.add(id(self))
            if not handle.shut:
                handle.hits += 1
                open_leases = len(tokens)
                if open_leases > handle.peak:  # noqa: PLR1730 - as in `ModelHandle.count`
                    handle.peak = open_leases
                return handle.model
            self._take_back()
        self._is_open = False
        if not self.borrow():
            self._desk.admit(self)
        return self.models[0]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        handle = self._handle
        if self._is_open and handle is not None:
            handle.last_used = self._desk.clock()
            handle.tokens.discard(id(self))
            if handle.watched:
                handle.on_idle()
            self._is_open = False


class KeptLease(Lease):
    """A lease that says for how long its model stays after it; made by `ModelManager.lease` with a `ttl_s`."""

    __slots__ = ("ttl_s",)

    def __init__(self, desk: Desk, ref: ModelRef, timeout_s: float, ttl_s: float) -> None:
        super().__init__(desk, ref, timeout_s)
        self.ttl_s = ttl_s

    def release(self) -> None:
        """Return the model, and tell for how long it should stay."""
        was_open = self._is_open
        super().release()
        if was_open:
            self._desk.keep(self.handles[0].generation, self.ttl_s)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
