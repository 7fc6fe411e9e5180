"""What an ONNX graph takes and gives: which inputs are fed, and which output holds the answer.

The same two choices are made from a file, before anything is loaded, and from a session, when it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backends.errors import InvalidModel, MissingExtra
from backends.graph.reading import onnx_file

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from backends.base import Pooling, Task

FED = ("input_ids", "attention_mask", "token_type_ids")
_FLOATS = (1, 10, 11)  # TensorProto.DataType: FLOAT, FLOAT16, DOUBLE
_BYTES = (2, 3)  # UINT8, INT8


@dataclass(frozen=True, slots=True)
class Tensor:
    """One output of a graph; a length that varies is None in `shape`."""

    name: str
    is_float: bool
    shape: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Signature:
    """What a graph takes and gives, its files of external weights, and what its packed weights grow by in memory."""

    inputs: tuple[str, ...]
    outputs: tuple[Tensor, ...]
    external: tuple[str, ...]
    unpacked_nbytes: int


def read(path: Path) -> Signature | None:
    """Read an ONNX file without its external weights; None where the `onnx` package is not installed.

    Raises:
        InvalidModel: the file is not an ONNX graph, or names external weights outside its folder.
    """
    try:
        model = onnx_file.parse(path)
    except MissingExtra:
        return None
    return Signature(
        inputs=inputs(model),
        outputs=tuple(tensor(value) for value in model.graph.output),
        external=onnx_file.external_files(model, path),
        unpacked_nbytes=_unpacked_nbytes(model.graph),
    )


def inputs(model: Any) -> tuple[str, ...]:  # noqa: ANN401  (a protobuf message without a type)
    """Return the names that a graph must be fed: old files list the weights among the inputs too."""
    weights = {weight.name for weight in model.graph.initializer}
    return tuple(value.name for value in model.graph.input if value.name not in weights)


def tensor(value: Any) -> Tensor:  # noqa: ANN401  (as above)
    """Return what a graph says of one of its outputs."""
    kind = value.type.tensor_type
    shape = tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in kind.shape.dim)
    return Tensor(value.name, kind.elem_type in _FLOATS, shape)


def _unpacked_nbytes(graph: Any) -> int:  # noqa: ANN401  (as above)
    """Return 3 bytes for each 8-bit weight that the graph turns to float32: runtimes do that once, when loading."""
    unpacked = {node.input[0] for node in graph.node if node.op_type in {"Cast", "DequantizeLinear"} and node.input}
    packed = (weight for weight in graph.initializer if weight.name in unpacked and weight.data_type in _BYTES)
    return sum(3 * math.prod(weight.dims) for weight in packed)


def check_inputs(names: Sequence[str], model: str) -> None:
    """Raise `InvalidModel` unless the graph takes `input_ids` and nothing that can't be fed."""
    unknown = [name for name in names if name not in FED]
    if unknown or "input_ids" not in names:
        raise InvalidModel(f"model {model!r} takes the inputs {list(names)[:8]}; only {list(FED)} can be fed")


def choose_output(outputs: Sequence[Tensor], *, task: Task, pooling: Pooling, model: str) -> Tensor:
    """Return the output that holds logits [n, 1], token vectors [n, length, dim], or pooled vectors [n, dim].

    A graph that gives no shapes is taken at its word; the first inference then checks them.

    Raises:
        InvalidModel: no output has the rank that the task and the pooling need, or they are logits where vectors are
            needed, or there are two labels.
    """
    rank = 3 if task == "embed" and pooling != "none" else 2
    preferred = {"cross-encode": "logits", "embed": "last_hidden_state" if rank == 3 else "sentence_embedding"}[task]  # noqa: PLR2004  (rank 3 is token vectors)
    fitting = [
        out
        for out in outputs
        if out.is_float
        and len(out.shape) in ((1, 2, 0) if task == "cross-encode" else (rank, 0))
        and (task == "cross-encode" or not out.name.endswith("logits"))  # of words, of labels: no vectors
    ]
    if not fitting:
        found = [f"{out.name}{list(out.shape)}" for out in outputs[:8]]
        raise InvalidModel(
            f"model {model!r} has the outputs {found}; {task}, pooling {pooling!r}, needs a float one of rank {rank}: "
            "check config.json's architectures and 1_Pooling/config.json"
        )
    # Graphs that pool themselves give the token vectors first and the pooled ones last.
    default = fitting[-1] if task == "embed" and pooling == "none" else fitting[0]
    chosen = next((out for out in fitting if out.name == preferred), default)
    if task == "cross-encode" and len(chosen.shape) == 2 and chosen.shape[1] not in (1, None):  # noqa: PLR2004  (a matrix)
        raise InvalidModel(
            f"model {model!r} gives {chosen.shape[1]} labels a pair (two labels or more); a cross-encoder for ranking "
            "gives one: use a model trained with a single label"
        )
    return chosen
