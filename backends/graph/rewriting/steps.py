"""A program's steps while they are rewritten: who makes a value, and what is known of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backends.graph.node import Node
    from backends.graph.rewriting.specialise import Program


class Steps:
    """The steps so far, in order. Rules look backwards only: everything that a step needs is here before it."""

    def __init__(self, program: Program) -> None:
        self.nodes: list[Node] = []
        self.constants = program.constants
        self.values = program.values
        self._makers: dict[str, Node] = {}
        self._same: dict[str, str] = {}

    def add(self, node: Node) -> None:
        """Append a step; an Identity only gives another name to a value."""
        if node.op == "Identity":
            self._same[node.outputs[0]] = self.resolve(node.inputs[0])
            return
        self.nodes.append(node)
        self._makers.update(dict.fromkeys(node.outputs, node))

    def resolved(self, node: Node) -> Node:
        """Return the step with the values' own names."""
        return replace(node, inputs=tuple(self.resolve(name) for name in node.inputs))

    def resolve(self, name: str) -> str:
        """Return the name of the value that this is another name for."""
        return self._same.get(name, name)

    def maker(self, name: str, op: str) -> Node | None:
        """Return the step that makes a value if it is such an operator."""
        found = self._makers.get(self.resolve(name))
        return found if found is not None and found.op == op else None

    def sides(self, node: Node | None, op: str) -> Iterator[tuple[Node, str]]:
        """Yield, for each of two inputs that such an operator makes, its step and the other input."""
        if node is None or len(node.inputs) != 2:  # noqa: PLR2004  (operators of two inputs)
            return
        left, right = (self.resolve(name) for name in node.inputs)
        for mine, other in ((left, right), (right, left)):
            found = self.maker(mine, op)
            if found is not None:
                yield found, other

    def scalar(self, name: str) -> float | None:
        """Return a constant that is one number."""
        content = self.constants.get(name)
        return float(content.reshape(())) if content is not None and content.size == 1 else None

    def is_vector(self, name: str, width: int) -> bool:
        """Return whether the value is a constant of this many numbers along one axis."""
        return name in self.constants and self.constants[name].shape == (width,)

    def is_over_last(self, node: Node) -> bool:
        """Return whether a reduction runs over the last axis and keeps it."""
        rank = len(self.values[node.inputs[0]].shape)
        return node.attributes["axes"] == (rank - 1,) and bool(node.attributes["keepdims"])

    def keeps_shape(self, before: Node, after: Node) -> bool:
        """Return whether two steps give values of one shape and type."""
        return self.values[before.outputs[0]] == self.values[after.outputs[0]]

    def scaled(self, name: str, *, until: str = "") -> tuple[float, str]:
        """Return (c, x) for a value that is c x, c a number; (1, itself) for any other, and for `until`."""
        name = self.resolve(name)
        made = self._makers.get(name)
        if name == until or made is None or made.op not in {"Mul", "Div"}:
            return 1.0, name
        left, right = made.inputs
        for x, other in ((left, right), (right, left))[: 1 if made.op == "Div" else 2]:
            number = self.scalar(other)
            if number:
                factor, inner = self.scaled(x, until=until)
                return (factor / number if made.op == "Div" else factor * number), inner
        return 1.0, name
