"""What has happened so far in one search: times, what each stage did, and what was left out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from backends.errors import DeadlineExceeded, ModelUnavailable
from backends.running.deadline import Deadline
from lifecycle import BudgetExhausted, FallbackExhausted, LeaseTimeout, LoadFailed, QueueFull
from vectorsearch.query.results import StageStats

if TYPE_CHECKING:
    from collections.abc import Callable

    from backends.errors import VectorSearchError


@dataclass(slots=True)
class Trace:
    """Times are milliseconds since the search began. One thread writes to a trace; branches have their own."""

    clock: Callable[[], float]
    begun: float
    stats: list[StageStats] = field(default_factory=list)
    degraded: list[str] = field(default_factory=list)

    @property
    def now_ms(self) -> float:
        """Return how long the search has been running."""
        return (self.clock() - self.begun) * 1000.0

    def branch(self) -> Trace:
        """Return an empty trace of the same search, for another thread."""
        return Trace(self.clock, self.begun)

    def join(self, other: Trace) -> None:
        """Add what a branch did."""
        self.stats.extend(other.stats)
        self.degraded.extend(other.degraded)

    def deadline(self, at_ms: float | None) -> Deadline | None:
        """Return the moment so many milliseconds after the search began as a deadline, None for none."""
        return None if at_ms is None else Deadline(self.begun + at_ms / 1000.0, self.clock)

    def note(self, stage: str, start_ms: float, candidates_in: int, candidates_out: int, **facts: Any) -> None:  # noqa: ANN401 -- StageStats's own fields
        """Say what a stage did from `start_ms` until now."""
        took_ms = self.now_ms - start_ms
        self.stats.append(StageStats(stage, candidates_in, candidates_out, took_ms, start_ms=start_ms, **facts))

    def leave_out(self, stage: str, error: VectorSearchError) -> None:
        """Say that a stage was left out, and why."""
        self.degraded.append(degradation(stage, error))


def degradation(stage: str, error: VectorSearchError) -> str:
    """Name why a stage was left out: `stage:budget`, `:timeout`, `:busy`, `:unavailable` or `:error`."""
    cause: BaseException | None = error
    while isinstance(cause, LoadFailed | FallbackExhausted):
        cause = cause.cause if isinstance(cause, LoadFailed) else cause.exceptions[-1]
    match cause:
        case BudgetExhausted() | LeaseTimeout(waited_for="room"):
            return f"{stage}:budget"
        case LeaseTimeout() | DeadlineExceeded():
            return f"{stage}:timeout"
        case QueueFull():
            return f"{stage}:busy"
        case ModelUnavailable() | ImportError():
            return f"{stage}:unavailable"
        case _:
            return f"{stage}:error"
