"""`Deadline`: when an answer must be there. `Pace`: what the next batch of a model will take, learned from the last."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from backends.errors import DeadlineExceeded, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable

_WEIGHT = 0.3  # of the newest batch in the usual pace
_DOUBT = 0.9  # each refusal trusts the best pace a little less, so that no slow past refuses for ever


@dataclass(frozen=True, slots=True)
class Deadline:
    """The time `due`, in the seconds of a monotonic `clock`, by which an answer must be there."""

    due: float
    clock: Callable[[], float] = time.monotonic

    @classmethod
    def after(cls, timeout_s: float, clock: Callable[[], float] = time.monotonic) -> Deadline:
        """Return the deadline that is `timeout_s` from now.

        Raises:
            InvalidInput: the seconds are negative, infinite or NaN.
        """
        if not 0 <= timeout_s < math.inf:
            raise InvalidInput(f"timeout_s is {timeout_s}: give finite seconds >= 0")
        return cls(clock() + timeout_s, clock)

    @property
    def left_s(self) -> float:
        """Return the seconds that are left, 0 when it has passed, and at most what a timer can take."""
        return max(0.0, min(threading.TIMEOUT_MAX, self.due - self.clock()))

    def check(self, what: str) -> None:
        """Insist that time is left.

        Raises:
            DeadlineExceeded: there is none; the message begins with `what`.
        """
        if self.clock() >= self.due:
            raise DeadlineExceeded(f"{what}: the time was up; give it more with timeout_s")


class Pace:
    """Seconds per token of one model. Threads may share it: an update that is lost costs only accuracy."""

    def __init__(self) -> None:
        self._usual_s = 0.0  # 0 while nothing is known
        self._best_s = 0.0

    def note(self, tokens: int, seconds: float) -> None:
        """Learn from a batch of so many tokens, padding included."""
        if tokens > 0 and seconds > 0:
            pace_s = seconds / tokens
            self._usual_s = pace_s if not self._usual_s else self._usual_s + _WEIGHT * (pace_s - self._usual_s)
            self._best_s = min(self._best_s or pace_s, pace_s)

    def allowance(self, deadline: Deadline, *, left_tokens: int, most: int) -> int:
        """Return how many tokens the next batch may have, at most `most`, so that it should end in time.

        Raises:
            DeadlineExceeded: the time is up, or even at the best pace so far what is left to do would take longer.
        """
        left_s = deadline.left_s
        expected_s = left_tokens * self._best_s
        if left_s <= 0 or expected_s > left_s:
            self._best_s *= _DOUBT
            raise DeadlineExceeded(
                f"{left_tokens} tokens take some {expected_s * 1000:.0f} ms, and {left_s * 1000:.0f} ms are left: "
                "give it more time, or fewer or shorter texts"
            )
        return most if not self._usual_s else max(1, min(most, int(left_s / self._usual_s)))
