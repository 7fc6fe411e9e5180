"""What an ONNX graph takes and gives: which inputs are fed, and which output holds the answer.

The same two choices are made from a file, before anything is loaded, and from a session, when it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from backends.errors import InvalidModel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backends.base import Pooling, Task

FED = ("input_ids", "attention_mask", "token_type_ids")


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
        import onnx  # noqa: PLC0415  (heavy: only where a folder's graph is checked)
    except ImportError:
        return None
    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception as exc:  # protobuf's own errors have no types to name here
        raise InvalidModel(f"{path} is not an ONNX graph: {exc}") from exc
    if not model.graph.node:
        raise InvalidModel(f"{path} is not an ONNX graph: it holds no operators")
    weights = {tensor.name for tensor in model.graph.initializer}
    return Signature(
        inputs=tuple(value.name for value in model.graph.input if value.name not in weights),
        outputs=tuple(_tensor(value) for value in model.graph.output),
        external=_external_files(model.graph.initializer, path),
        unpacked_nbytes=_unpacked_nbytes(model.graph),
    )


def _tensor(value: Any) -> Tensor:  # noqa: ANN401  (a protobuf message without a type)
    import onnx  # noqa: PLC0415  (see read)

    tensor = value.type.tensor_type
    floats = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE)
    shape = tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim)
    return Tensor(value.name, tensor.elem_type in floats, shape)


def _unpacked_nbytes(graph: Any) -> int:  # noqa: ANN401  (as above)
    """Return 3 bytes for each 8-bit weight that the graph turns to float32: runtimes do that once, when loading."""
    import onnx  # noqa: PLC0415  (see read)

    kinds = (onnx.TensorProto.INT8, onnx.TensorProto.UINT8)
    unpacked = {node.input[0] for node in graph.node if node.op_type in {"Cast", "DequantizeLinear"}}
    packed = (tensor for tensor in graph.initializer if tensor.name in unpacked and tensor.data_type in kinds)
    return sum(3 * math.prod(tensor.dims) for tensor in packed)


def _external_files(initializers: Any, path: Path) -> tuple[str, ...]:  # noqa: ANN401  (as above)
    locations = {entry.value for tensor in initializers for entry in tensor.external_data if entry.key == "location"}
    for location in locations:
        inside = PurePosixPath(location)
        if inside.is_absolute() or ".." in inside.parts or not (path.parent / location).is_file():
            raise InvalidModel(f"{path} keeps weights in {location!r}, which is not a file beside it")
    return tuple(sorted(locations))


def check_inputs(names: Sequence[str], model: str) -> None:
    """Raise `InvalidModel` unless the graph takes `input_ids` and nothing that can't be fed."""
    unknown = [name for name in names if name not in FED]
    if unknown or "input_ids" not in names:
        raise InvalidModel(f"model {model!r} takes the inputs {list(names)}; only {list(FED)} can be fed")


def choose_output(outputs: Sequence[Tensor], *, task: Task, pooling: Pooling, model: str) -> Tensor:
    """Return the output that holds logits [n, 1], token vectors [n, length, dim], or pooled vectors [n, dim].

    A graph that gives no shapes is taken at its word; the first inference then checks them.

    Raises:
        InvalidModel: no output has the rank that the task and the pooling need, or there are two labels.
    """
    rank = 3 if task == "embed" and pooling != "none" else 2
    preferred = {"cross-encode": "logits", "embed": "last_hidden_state" if rank == 3 else "sentence_embedding"}[task]  # noqa: PLR2004  (rank 3 is token vectors)
    fitting = [
        out
        for out in outputs
        if out.is_float and len(out.shape) in ((1, 2, 0) if task == "cross-encode" else (rank, 0))
    ]
    if not fitting:
        found = [f"{out.name}{list(out.shape)}" for out in outputs]
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
