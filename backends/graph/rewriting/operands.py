"""What is known of a node's inputs while the node is brought into normal form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from backends.graph.node import Value


@dataclass(frozen=True, slots=True)
class Operands:
    """What a node gets: for each input its shape and type, and its content where that is known (None otherwise)."""

    values: Sequence[Value | None]
    known: Sequence[NDArray[Any] | None]
    opset: int

    def value(self, i: int) -> Value:
        """Return what is known of an input that must be there."""
        found = self.values[i]
        if found is None:
            raise ValueError(f"its input {i} is left out")
        return found

    def numbers(self, i: int) -> tuple[int, ...] | None:
        """Return a known input of whole numbers, None if it is left out."""
        if i >= len(self.values) or self.values[i] is None:
            return None
        content = self.known[i]
        if content is None:
            raise ValueError(f"its input {i} depends on the data, and must be known beforehand")
        if content.size > _MOST_NUMBERS or not np.issubdtype(content.dtype, np.integer):
            raise ValueError(f"its input {i} has {content.size} numbers of {content.dtype}: too many, or not whole")
        return tuple(int(number) for number in content.reshape(-1))


_MOST_NUMBERS = 64  # axes, bounds, shapes; NumPy has no more axes than that
