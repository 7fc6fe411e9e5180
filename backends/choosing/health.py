"""How often each backend fails, and a breaker for each that sends callers elsewhere while it does. Pure: no threads.

A breaker is *closed* while all is well. It opens when, of the calls in the last interval or two, enough have failed and
they are more than a share of all. While it is *open* nobody is admitted; after a pause it is *half-open*: one caller at
a time is let in as a probe, and the first call that ends well closes it.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from backends.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable

BreakerState = Literal["closed", "open", "half-open"]


@dataclass(frozen=True, slots=True)
class BackendHealth:
    """One backend: its breaker, and counts since the start. `trouble` is the share of recent calls that it let down.

    `failures` are calls that ended with a transient error, `fallbacks` those that then, or because its breaker was
    open, went to another backend.
    """

    backend: str
    state: BreakerState
    successes: int
    failures: int
    fallbacks: int
    trouble: float

    def __str__(self) -> str:
        return (
            f"{self.backend}: {self.trouble:.0%} of recent calls failed or fell back, breaker {self.state} "
            f"({self.successes} successes, {self.failures} failures, {self.fallbacks} fallbacks in all)"
        )


class _Counts(NamedTuple):
    successes: int
    failures: int
    fallbacks: int


class Breaker:
    """One backend's counts and breaker; made by `Health.of`.

    `is_closed` and `successes` are read and written without the lock by every call: of successes that end at the same
    instant one may be missed, and nothing depends on that.
    """

    def __init__(self, backend: str, health: Health) -> None:
        self.backend = backend
        self.is_closed = True
        self.successes = 0
        self._health = health
        # Protects all below, and the changes of `is_closed`; nothing is taken or called under it but the clock.
        self._lock = threading.Lock()
        self._failures = 0
        self._fallbacks = 0
        self._retry_at = 0.0
        self._is_probed = False
        now = health.clock()
        self._marks = [(now, _Counts(0, 0, 0)), (now, _Counts(0, 0, 0))]  # where the last interval, and this one, began

    def admits(self) -> bool:
        """Return whether a caller may try; when it is half-open, that caller is the probe until it reports."""
        if self.is_closed:
            return True
        with self._lock:
            if self._is_probed or self._health.clock() < self._retry_at:
                return self.is_closed
            self._is_probed = True
            return True

    def succeeded(self) -> None:
        """Count a call that ended well; it closes the breaker."""
        self.successes += 1
        if not self.is_closed:
            with self._lock:
                self.is_closed = True
                self._is_probed = False
                now = self._health.clock()
                self._marks = [(now, self._counts()), (now, self._counts())]

    def failed(self) -> None:
        """Count a call that ended with a transient error, and open the breaker if that was one too many."""
        with self._lock:
            recent = self._recent()
            self._failures += 1
            self._is_probed = False
            failures = recent.failures + 1
            share = failures / (recent.successes + failures)
            if not self.is_closed or (failures >= self._health.least_failures and share > self._health.threshold):
                self.is_closed = False
                self._retry_at = self._health.clock() + self._health.pause_s

    def undecided(self) -> None:
        """Let another caller probe: this one ended in a way that says nothing about the backend."""
        if not self.is_closed:
            with self._lock:
                self._is_probed = False

    def fell_back(self) -> None:
        """Count a call that went on to another backend."""
        with self._lock:
            self._recent()
            self._fallbacks += 1

    def health(self) -> BackendHealth:
        """Return the counts and the state now."""
        with self._lock:
            recent = self._recent()
            let_down = max(recent.failures, recent.fallbacks)
            return BackendHealth(
                self.backend,
                self._state(),
                *self._counts(),
                trouble=let_down / max(1, recent.successes + let_down),
            )

    def _state(self) -> BreakerState:
        if self.is_closed:
            return "closed"
        return "half-open" if self._health.clock() >= self._retry_at else "open"

    def _counts(self) -> _Counts:
        return _Counts(self.successes, self._failures, self._fallbacks)

    def _recent(self) -> _Counts:
        """Return what was counted since the last interval began, and begin a new one if it is time.

        Successes make no interval begin, so that they cost nothing: after a long time without failure both begin now.
        """
        now, counts = self._health.clock(), self._counts()
        passed_s = now - self._marks[1][0]
        if passed_s >= self._health.interval_s:
            begun = (now, counts)
            self._marks = [begun if passed_s >= 2 * self._health.interval_s else self._marks[1], begun]
        return _Counts(*(after - before for after, before in zip(counts, self._marks[0][1], strict=True)))


class Health:
    """The breakers of all backends that one manager's models run on.

    Args:
        clock: monotonic seconds.
        interval_s: recent is what happened in the current interval and the one before it.
        threshold: the share of recent calls that may fail before a breaker opens.
        least_failures: so many must have failed, whatever the share.
        pause_s: how long an open breaker admits nobody.

    Raises:
        InvalidInput: the threshold is not within 0 and 1, or another number is not positive.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        interval_s: float = 60.0,
        threshold: float = 0.5,
        least_failures: int = 5,
        pause_s: float = 30.0,
    ) -> None:
        _check_share(threshold)
        if not (interval_s > 0 and least_failures > 0 and pause_s > 0):
            raise InvalidInput(
                f"interval_s={interval_s}, least_failures={least_failures}, pause_s={pause_s}: give numbers > 0"
            )
        self.clock = clock
        self.interval_s = interval_s
        self.threshold = threshold
        self.least_failures = least_failures
        self.pause_s = pause_s
        self._breakers: dict[str, Breaker] = {}

    def of(self, backend: str) -> Breaker:
        """Return the breaker of a backend, the same one each time."""
        known = self._breakers.get(backend)
        return known if known is not None else self._breakers.setdefault(backend, Breaker(backend, self))

    def report(self) -> tuple[BackendHealth, ...]:
        """Return what is known of every backend that was tried, in the order of their names."""
        return tuple(self._breakers[name].health() for name in sorted(self._breakers.copy()))

    def check_health(self, threshold: float = 0.1) -> tuple[BackendHealth, ...]:
        """Return the backends of whose recent calls more than a share failed or fell back; none if all are well.

        A backend whose breaker is not closed is among them.

        Raises:
            InvalidInput: the threshold is not within 0 and 1.
        """
        _check_share(threshold)
        return tuple(each for each in self.report() if each.trouble > threshold or each.state != "closed")


def _check_share(threshold: float) -> None:
    if not 0 <= threshold <= 1:
        raise InvalidInput(f"threshold is {threshold}: give a share of calls, from 0 to 1")
