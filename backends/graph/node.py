"""One operator of a graph, and what is known of a value before it is computed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np


@dataclass(frozen=True, slots=True)
class Node:
    """An operator over named values; an input or output that is left out has the name ''.

    Attributes are int, float, str, tuples of them, or arrays.
    """

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Value:
    """Shape and type of a value."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
