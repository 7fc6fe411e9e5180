"""What is wanted of a measurement, beside what was found: benchmarks of the backends end with such lines."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True)
class Target:
    """A figure and its bound; `found` is None where a system that it needs was not measured."""

    what: str
    found: float | None
    at_least: float | None = None
    at_most: float | None = None

    @property
    def holds(self) -> bool | None:
        """Return whether the figure is within its bounds; None if it was not measured."""
        if self.found is None:
            return None
        above = self.at_least is None or self.found >= self.at_least
        return above and (self.at_most is None or self.found <= self.at_most)

    def __str__(self) -> str:
        """Return one line."""
        verdict = {True: "holds", False: "MISSED", None: "not measured"}[self.holds]
        bound = f">= {self.at_least:g}" if self.at_least is not None else f"<= {self.at_most:g}"
        return f"{verdict:12} {'-' if self.found is None else f'{self.found:.4g}':>7} ({bound:>8})  {self.what}"


def ratio(ours: float | None, theirs: float | None) -> float | None:
    """Return how many times theirs ours is, if both were measured."""
    return None if ours is None or not theirs else ours / theirs


def as_data(targets: Iterable[Target]) -> list[dict[str, Any]]:
    """Return the targets for JSON, with their verdicts."""
    return [asdict(target) | {"holds": target.holds} for target in targets]
