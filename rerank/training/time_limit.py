"""How long a piece of work may take, by one clock that all of its phases look at."""

from __future__ import annotations

import math
import time
from collections.abc import Callable  # noqa: TC003 -- a field's type
from dataclasses import dataclass, replace
from typing import Self

from backends.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """When some work began and must end, by `clock`, which gives seconds and never goes back; see `starting`.

    Each phase asks after each of its steps whether the time is up, so that it is kept to within a step. A phase that
    others come after gets a part of what is left, and one that others depend on leaves them what they will need.
    """

    clock: Callable[[], float]
    begun: float
    ends: float  # as it was given
    ends_here: float  # for a phase

    @classmethod
    def starting(cls, minutes: float | None, *, clock: Callable[[], float] = time.monotonic) -> Self:
        """Return the limit of work that begins now and may take so many minutes, None for no limit."""
        now = clock()
        ends = math.inf if minutes is None else now + 60 * minutes
        return cls(clock, now, ends, ends)

    @property
    def elapsed_s(self) -> float:
        """Return the seconds since the work began."""
        return self.clock() - self.begun

    @property
    def left_s(self) -> float:
        """Return the seconds that are left, infinity without a limit, 0 and less when the time is up."""
        return self.ends_here - self.clock()

    def is_up(self, *, keeping_s: float = 0.0) -> bool:
        """Return whether no more is left than is to be kept for what comes after."""
        return self.left_s <= keeping_s

    def part(self, share: float) -> Self:
        """Return a limit that is up when this share of what is left has passed."""
        if math.isinf(self.ends_here):
            return self
        return replace(self, ends_here=self.ends_here - (1 - share) * self.left_s)

    def keeping(self, seconds: float) -> Self:
        """Return a limit that is up so many seconds earlier."""
        return replace(self, ends_here=self.ends_here - seconds)

    def too_short(self, what: str) -> InvalidInput:
        """Return the error that tells that the time was up before something."""
        return InvalidInput(
            f"the time was up before {what}, after {self.elapsed_s:.0f} s of {self.ends - self.begun:.0f}, and nothing "
            "was written: allow more minutes"
        )
