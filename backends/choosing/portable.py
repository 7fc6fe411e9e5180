"""Whether a model is a portable graph that can be computed here: what each backend that reads `model.onnx` asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backends.base import Serves
from backends.errors import InvalidModel, MissingExtra
from backends.graph.graph import unsupported
from backends.graph.reading import onnx_file

if TYPE_CHECKING:
    from backends.base import ModelSpec


def is_graph(spec: ModelSpec) -> Serves:
    """Say yes to an ONNX file that takes any rows; one that isn't there yet is taken at its name."""
    if spec.weights_file.endswith(".onnx"):
        path = spec.folder / spec.weights_file
        try:
            fixed = onnx_file.facts(path).fixed if path.is_file() else ""
        except (MissingExtra, InvalidModel):
            fixed = ""  # who loads the file tells what is wrong
        if fixed:
            return Serves(
                ok=False,
                reason=f"the graph of {spec.name!r} takes rows of one size only ({fixed}): export it with free sizes",
            )
        return Serves(ok=True)
    return Serves(
        ok=False,
        reason=f"it reads model.onnx, and {spec.name!r} has only {spec.weights_file or 'no weights'}: "
        f"run 'vectorsearch models export {spec.name}'",
    )


def is_known(spec: ModelSpec) -> Serves:
    """Say yes to a graph that `specialise` knows whole; one that isn't there yet is taken at its name."""
    path = spec.folder / spec.weights_file
    try:
        unknown = unsupported(path) if path.is_file() else ()
    except (InvalidModel, MissingExtra) as exc:
        return Serves(ok=False, reason=str(exc))
    if unknown:
        return Serves(ok=False, reason=f"{spec.name!r} uses what it does not know: {', '.join(unknown)}")
    return Serves(ok=True)


def is_packed(spec: ModelSpec) -> bool:
    """Return whether the graph multiplies 8-bit integers; taken to be so while its file isn't there.

    Raises:
        InvalidModel, MissingExtra: as `onnx_file.operators`.
    """
    path = spec.folder / spec.weights_file
    return not path.is_file() or "MatMulInteger" in onnx_file.operators(path)
