"""`Chain`: one model on several backends, tried in order, when one of them fails for a reason that may pass.

Each step is a lease, and so an admission, on the next backend, which loads the model first. Only errors that a backend
declares transient lead on, of a load or of the work itself. A step may not change what is computed: all refs of a chain
have one digest, and an instance that disagrees with the first one that served these weights is refused.
"""

from __future__ import annotations

import logging
import math
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeVar

from backends.choosing.registry import is_transient
from backends.errors import InvalidInput
from backends.running.fingerprint import AGREEMENT, AGREEMENT_QUANTISED, agreement
from backends.running.overtime import Overtime
from lifecycle.chains.witness import Witness
from lifecycle.config import check_seconds
from lifecycle.errors import FallbackExhausted, OtherVectors
from lifecycle.events import FellBack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from backends.running.deadline import Deadline
    from lifecycle.config import ModelRef
    from lifecycle.leasing.lease import Lease
    from lifecycle.manager import ModelManager

T = TypeVar("T")
_log = logging.getLogger("lifecycle.fallback")  # the name that handlers know
_overtime = Overtime()  # for all chains together: what is left behind at deadlines is bounded


class _Step:
    """One backend of a chain. `vouched` is the generation that was last compared, `refusal` what came of it if bad."""

    __slots__ = ("breaker", "ref", "refusal", "vouched")

    def __init__(self, manager: ModelManager, ref: ModelRef) -> None:
        self.ref = ref
        self.breaker = manager.health.of(manager.key_of(ref).backend)
        self.vouched = 0
        self.refusal: OtherVectors | None = None


class Chain:
    """Run work on the first backend that can, of those on which a model is registered; threads may share it.

    Args:
        manager: where the refs are registered.
        refs: one for each backend, the one to try first first.

    Raises:
        InvalidInput: there is no ref, or they have not all one digest.
        ModelNotRegistered: there is no such ref.
    """

    def __init__(self, manager: ModelManager, refs: Iterable[ModelRef]) -> None:
        self.manager = manager
        self.refs = tuple(refs)
        digests = {manager.key_of(ref).digest for ref in self.refs}
        if len(digests) != 1:
            raise InvalidInput(f"a chain needs refs of one model, not {[str(ref) for ref in self.refs]}: {digests}")
        self._steps = tuple(_Step(manager, ref) for ref in self.refs)

    @property
    def ref(self) -> ModelRef:
        """Return the ref that a call would begin with now."""
        return next((step.ref for step in self._steps if step.breaker.is_closed), self.refs[0])

    def run(self, work: Callable[[Any, Lease], T], *, timeout_s: float = 30.0, deadline: Deadline | None = None) -> T:
        """Return `work(model, lease)` of the first backend that can; the lease names what really ran.

        Args:
            work: is given the leased model; it may be called again, on another backend.
            timeout_s: how long to wait for leases, all steps together.
            deadline: when the answer must be there. A model that can't stop goes on, on another thread and with its
                lease held, while the caller is told; work that heeds the deadline itself ends sooner.

        Raises:
            FallbackExhausted: it failed on more than one backend; `exceptions` holds every attempt's error.
            DeadlineExceeded: it was not done in time.
            VectorSearchError: as `ModelManager.lease`, and whatever the work raises, if it was tried on one backend.
        """
        until = self.manager.clock() + check_seconds("timeout_s", timeout_s)
        failed: list[Exception] = []
        left: _Step | None = None
        for step in self._in_turn():
            try:
                if left is not None or step is not self._steps[0]:
                    self._tell(left or self._steps[0], step, failed[-1] if failed else None)
                    timeout_s = max(0.0, until - self.manager.clock())
                left = step
                answer = self._attempt(step, work, timeout_s, deadline)
            except Exception as error:  # noqa: BLE001 - it is kept, and raised below unless another backend answers
                failed.append(error)
                if is_transient(error):
                    step.breaker.failed()
                    continue
                step.breaker.undecided()
                if error is not step.refusal:
                    break
            except BaseException:
                step.breaker.undecided()
                raise
            else:
                step.breaker.succeeded()
                return answer
        raise failed[0] if len(failed) == 1 else FallbackExhausted(str(self.refs[0]), failed)

    def _in_turn(self) -> Iterator[_Step]:
        """Give the steps whose breakers admit a call, or all if none does: a doubtful answer is better than none."""
        is_admitted = False
        for step in self._steps:
            if step.breaker.admits():
                is_admitted = True
                yield step
        if not is_admitted:
            yield from self._steps

    def _attempt(self, step: _Step, work: Callable[[Any, Lease], T], timeout_s: float, deadline: Deadline | None) -> T:
        if step.refusal is not None:
            raise step.refusal.with_traceback(None)
        if deadline is None:
            lease = self.manager.lease(step.ref, timeout_s)
            with lease as model:
                if lease.handles[0].generation != step.vouched:
                    self._vouch(step, lease, model)
                return work(model, lease)
        lease = self.manager.lease(step.ref, min(timeout_s, deadline.left_s))
        with ExitStack() as held:
            model = held.enter_context(lease)
            if lease.handles[0].generation != step.vouched:
                self._vouch(step, lease, model)
            if getattr(model, "stops", False):
                return work(model, lease)
            held.pop_all()  # the lease is now the worker's to return, when its work has ended
            return _overtime.run(lambda: work(model, lease), deadline, finally_do=lease.release)

    def _vouch(self, step: _Step, lease: Lease, model: Any) -> None:  # noqa: ANN401 - of whatever kind its loader makes
        """Make sure that an instance computes what the first one of the same weights did.

        Raises:
            OtherVectors: it has other weights than the chain's first, or disagrees on the probe.
        """
        name = f"{lease.backend} ({lease.device})"
        wanted = self.manager.key_of(self._steps[0].ref)
        fingerprint = getattr(model, "fingerprint", None)
        if lease.key.digest != wanted.digest:
            raise OtherVectors(name, wanted.backend, cosine=math.nan, needed=AGREEMENT)
        if fingerprint is not None:
            ours = Witness(name, fingerprint, getattr(model, "quantises", False))
            first = self.manager.witnesses.setdefault(wanted.digest, ours)
            needed = AGREEMENT_QUANTISED if ours.quantises or first.quantises else AGREEMENT
            cosine = agreement(ours.fingerprint, first.fingerprint)
            if not cosine >= needed:
                step.refusal = OtherVectors(name, first.name, cosine=cosine, needed=needed)
                _log.error("%s", step.refusal, extra={"event": "OtherVectors", "models": [str(step.ref)]})
                raise step.refusal
        step.vouched = lease.handles[0].generation

    def _tell(self, left: _Step, step: _Step, error: Exception | None) -> None:
        """Count, log and announce that a call goes on elsewhere; one that only avoids an open breaker is no news."""
        left.breaker.fell_back()
        old, new = self.manager.key_of(left.ref), self.manager.key_of(step.ref)
        why = "its breaker is open" if error is None else f"{type(error).__name__}: {error}"
        _log.log(
            logging.DEBUG if error is None else logging.WARNING,
            "model '%s' falls back from %s to %s: %s",
            *(left.ref, old.backend, new.backend, why),
            extra={
                "event": "FellBack",
                "models": [str(left.ref)],
                "digest": old.digest,
                "backend": old.backend,
                "to_backend": new.backend,
                "error": error,
            },
        )
        self.manager.announce(FellBack(old, 0, new, error))
