"""A graph while its operators are rewritten: what there is so far, and names for what is new."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from backends.graph.node import Node

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray


class Rewriting:
    """Nodes and constants that the operators of a graph are rewritten into; names it makes up are new to the graph."""

    def __init__(self, taken: set[str], outputs: frozenset[str], shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.nodes: list[Node] = []
        self.constants: dict[str, NDArray[Any]] = {}
        self.same: dict[str, str] = {}  # a name that is only another name for a value → that value's name
        self.outputs = outputs
        self.shapes = shapes  # of the graph's weights
        self._taken = taken

    def emit(self, op: str, *inputs: str, to: str | None = None, **attributes: Any) -> str:  # noqa: ANN401  (any attribute)
        """Append a node and return the name of its output: `to`, or a new one."""
        output = to or self.name(op)
        self.nodes.append(Node(op, inputs, (output,), attributes))
        return output

    def constant(self, value: Any, dtype: Any = None) -> str:  # noqa: ANN401  (anything that makes an array)
        """Keep a constant and return its name."""
        name = self.name("constant")
        self.constants[name] = np.asarray(value, dtype)
        return name

    def name(self, of: str) -> str:
        """Return a name that nothing in the graph has."""
        made = next(
            name for i in range(len(self._taken) + 1) if (name := f"{of}~{len(self._taken) + i}") not in self._taken
        )
        self._taken.add(made)
        return made
