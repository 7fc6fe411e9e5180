"""What is known of a model that a search may use: is it there, and what does its use cost?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lifecycle import ModelRef


@dataclass(frozen=True, slots=True)
class ModelState:
    """Whether a model is in memory, the bytes that it takes, and what its use is expected to cost.

    `unavailable` says why no backend here can serve it; None if one can. `why` tells how its backend was chosen.
    `unit_ms` is for one query or one text, resident, and `load_ms` for the load; None where nothing is known. `learned`
    says that they are of this database's own searches rather than of a profile.
    """

    ref: ModelRef
    backend: str
    resident: bool
    nbytes: int
    unavailable: str | None = None
    why: str = ""
    unit_ms: float | None = None
    load_ms: float | None = None
    learned: bool = False

    @property
    def name(self) -> str:
        """Return what callers call the model."""
        return str(self.ref)

    def left_out(self, budget_nbytes: int) -> str | None:
        """Return why this model can never run here, `unavailable` or `budget`, or None."""
        if self.unavailable is not None:
            return "unavailable"
        return "budget" if self.nbytes > budget_nbytes else None

    def expected_ms(self, units: int) -> float | None:
        """Return how long the model should take for so many queries or texts, its load included if it isn't there."""
        wait_ms = 0.0 if self.resident else self.load_ms
        return None if self.unit_ms is None or wait_ms is None else units * self.unit_ms + wait_ms
