"""Read an ONNX file: protobuf to plain nodes and NumPy arrays, with every size and path in it checked. No pickle.

Floats narrower than float32 (float16, bfloat16) are widened here and in `graph`: no backend computes in them faster.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np

from backends.catalogue.files import cache_dir, state_key, write_atomically
from backends.errors import InvalidModel, MissingExtra

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

# TensorProto.DataType → the type stored, and the field that holds it where `raw_data` doesn't (onnx.proto).
_STORED: Mapping[int, tuple[type[np.generic], str]] = {
    1: (np.float32, "float_data"),
    2: (np.uint8, "int32_data"),
    3: (np.int8, "int32_data"),
    4: (np.uint16, "int32_data"),
    5: (np.int16, "int32_data"),
    6: (np.int32, "int32_data"),
    7: (np.int64, "int64_data"),
    9: (np.bool_, "int32_data"),
    10: (np.float16, "int32_data"),
    11: (np.float64, "double_data"),
    12: (np.uint32, "uint64_data"),
    13: (np.uint64, "uint64_data"),
    16: (np.uint16, "int32_data"),
}
_FLOAT16, _BFLOAT16 = 10, 16
_EXTERNAL_KEYS = {"location", "offset", "length", "checksum"}
_TENSOR = 4  # AttributeProto.AttributeType
_SCALARS = {1: "f", 2: "i", 3: "s"}
_LISTS = {6: "floats", 7: "ints", 8: "strings"}


def parse(path: Path) -> Any:  # noqa: ANN401  (a protobuf message without a type)
    """Return the file's ModelProto, without its external weights.

    Raises:
        InvalidModel: the file is not there or is not an ONNX graph.
        MissingExtra: the `onnx` package is not installed.
    """
    try:
        import onnx  # noqa: PLC0415  (heavy: only where a graph is read)
    except ImportError as exc:
        raise MissingExtra("reading an ONNX graph needs the onnx package: pip install onnx") from exc
    try:
        model = onnx.ModelProto.FromString(path.read_bytes())
    except OSError as exc:
        raise InvalidModel(f"can't read {path}: {exc}") from exc
    except Exception as exc:  # protobuf's own errors have no types to name here
        raise InvalidModel(f"{path} is not an ONNX graph: {exc}") from exc
    if not model.graph.node:
        raise InvalidModel(f"{path} is not an ONNX graph: it holds no operators")
    if not all(
        isinstance(text, str) for text in _texts(model.graph)
    ):  # protobuf gives bytes that are not UTF-8 as bytes
        raise InvalidModel(f"{path} is damaged: it holds names that are not text")
    return model


def _texts(graph: Any) -> Iterator[Any]:  # noqa: ANN401  (as above)
    for node in graph.node:
        yield from (node.op_type, node.domain, node.name, *node.input, *node.output)
        yield from (text for attribute in node.attribute for text in (attribute.name, attribute.t.name))
    for named in (*graph.input, *graph.output, *graph.initializer):
        yield named.name
    for tensor in graph.initializer:
        yield from (text for entry in tensor.external_data for text in (entry.key, entry.value))


@dataclass(frozen=True, slots=True)
class Facts:
    """What can be said of a file without its weights: its operators, and the inputs whose size is fixed.

    Operators of a foreign domain are named `domain::name`. `fixed` says in words which inputs take one number of rows
    or one length only.
    """

    operators: frozenset[str]
    fixed: str = ""


def facts(path: Path) -> Facts:
    """Return what a file is made of.

    Remembered on disk until the file's size or time changes, so that asking costs neither the file's parsing nor the
    import of `onnx`.

    Raises:
        InvalidModel, MissingExtra: as `parse`.
    """
    try:
        memory = cache_dir() / "operators" / f"{state_key([path])}.json"
        stored = json.loads(memory.read_text(encoding="utf-8"))
        return Facts(frozenset(stored["operators"]), str(stored["fixed"]))
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        graph = parse(path).graph
        found = Facts(frozenset(map(operator_name, _nodes(graph))), _fixed(graph))
    try:
        write_atomically(memory, json.dumps({"operators": sorted(found.operators), "fixed": found.fixed}))
    except OSError:
        return found  # a cache that can't be written costs time, not answers
    return found


def _nodes(graph: Any) -> Iterator[Any]:  # noqa: ANN401  (as above)
    """Yield every node, those of subgraphs too."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (*((attribute.g,) if attribute.HasField("g") else ()), *attribute.graphs):
                yield from _nodes(inner)


def _fixed(graph: Any) -> str:  # noqa: ANN401  (as above)
    """Return the inputs of a fixed size, and that size."""
    weights = {weight.name for weight in graph.initializer}
    shapes = {
        value.name: [dim.dim_value or dim.dim_param or "?" for dim in value.type.tensor_type.shape.dim]
        for value in graph.input
        if value.name not in weights
    }
    return ", ".join(f"{name} {shape}" for name, shape in shapes.items() if any(isinstance(n, int) for n in shape))


def operators(path: Path) -> frozenset[str]:
    """Return the names of the operators in a file; see `facts`."""
    return facts(path).operators


def operator_name(node: Any) -> str:  # noqa: ANN401  (as above)
    """Return a node's operator, `domain::name` where it is not one of ONNX's own."""
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}::{node.op_type}"


def attributes(node: Any, path: Path) -> dict[str, Any]:  # noqa: ANN401  (as above)
    """Return a node's attributes as int, float, str, tuples of them, or arrays.

    Raises:
        InvalidModel: one is a subgraph, a sparse tensor, a reference, or not text where text is due.
    """
    found: dict[str, Any] = {}
    for attribute in node.attribute:
        kind = attribute.type
        if attribute.ref_attr_name or kind not in {*_SCALARS, *_LISTS, _TENSOR}:
            what = "a reference" if attribute.ref_attr_name else "a subgraph or of a kind that is not served"
            raise InvalidModel(f"{path}: attribute {attribute.name!r} of {node.op_type} {node.name!r} is {what}")
        if kind == _TENSOR:
            found[attribute.name] = array(attribute.t, path)
        elif kind in _SCALARS:
            found[attribute.name] = _text(getattr(attribute, _SCALARS[kind]))
        else:
            found[attribute.name] = tuple(_text(item) for item in getattr(attribute, _LISTS[kind]))
    return found


def scalar(attribute: Any) -> Any:  # noqa: ANN401  (as above)
    """Return the value of an attribute that is an int, a float or a text; None for any other."""
    return _text(getattr(attribute, _SCALARS[attribute.type])) if attribute.type in _SCALARS else None


def array(tensor: Any, path: Path) -> NDArray[Any]:  # noqa: ANN401  (as above)
    """Return a TensorProto as an array, not writable; external data is read from inside the file's folder only.

    Raises:
        InvalidModel: its type is not served, its size is not what its shape says, or its external file is not there,
            too short, or outside the folder.
    """
    where = f"{path}: weights {tensor.name!r}"
    if tensor.data_type not in _STORED:
        raise InvalidModel(f"{where} are of data type {tensor.data_type}, which is not served")
    dtype, field = _STORED[tensor.data_type]
    shape = tuple(tensor.dims)
    count = math.prod(shape)
    if min(shape, default=0) < 0 or tensor.HasField("segment"):
        raise InvalidModel(f"{where} have the shape {list(shape)}, or only a segment of it")
    nbytes = count * np.dtype(dtype).itemsize
    if tensor.data_location == 1:  # EXTERNAL
        stored = _external(tensor, path, nbytes, where).view(dtype)
    elif tensor.HasField("raw_data"):
        raw = tensor.raw_data
        if len(raw) != nbytes:
            raise InvalidModel(f"{where} hold {len(raw)} bytes; shape {list(shape)} of {dtype.__name__} needs {nbytes}")
        stored = np.frombuffer(raw, dtype)
    else:
        items = getattr(tensor, field)
        if len(items) != count:
            raise InvalidModel(f"{where} hold {len(items)} numbers, their shape {list(shape)} needs {count}")
        stored = _typed(items, tensor.data_type, dtype)
    return _widened(stored, tensor.data_type).reshape(shape)


def external_files(model: Any, path: Path) -> tuple[str, ...]:  # noqa: ANN401  (as above)
    """Return the names of the files beside `path` that hold its external weights, sorted.

    Raises:
        InvalidModel: one is not a file inside the folder.
    """
    tensors = [tensor for tensor in _tensors(model.graph, model.functions) if tensor.data_location == 1]
    found = {entry.value for tensor in tensors for entry in tensor.external_data if entry.key == "location"}
    for location in found:
        _inside(location, path)
    return tuple(sorted(found))


def _tensors(*holders: Any) -> Iterator[Any]:  # noqa: ANN401  (as above)
    """Yield every tensor of graphs and functions: weights, constants in attributes, and those of subgraphs."""
    for holder in holders:
        if isinstance(holder, Iterable):
            yield from _tensors(*holder)
            continue
        yield from getattr(holder, "initializer", ())
        for sparse in getattr(holder, "sparse_initializer", ()):
            yield from (sparse.values, sparse.indices)
        for attribute in (attribute for node in holder.node for attribute in node.attribute):
            yield from (
                attribute.t,
                *attribute.tensors,
                attribute.sparse_tensor.values,
                attribute.sparse_tensor.indices,
            )
            yield from _tensors(*((attribute.g,) if attribute.HasField("g") else ()), *attribute.graphs)


def _external(tensor: Any, path: Path, nbytes: int, where: str) -> NDArray[np.uint8]:  # noqa: ANN401  (as above)
    entries = {entry.key: entry.value for entry in tensor.external_data}
    if unknown := sorted(entries.keys() - _EXTERNAL_KEYS):
        raise InvalidModel(f"{where} say {', '.join(unknown)} of their external file, which is not known")
    file = _inside(entries.get("location", ""), path)
    try:
        offset, length = int(entries.get("offset", 0)), int(entries.get("length", nbytes))
        size = file.stat().st_size
        if offset < 0 or length != nbytes or offset + length > size:
            raise InvalidModel(
                f"{where} need {nbytes} bytes, and ask for {length} at {offset} of {file.name}, which has {size}"
            )
        return np.fromfile(file, np.uint8, nbytes, offset=offset)
    except (OSError, ValueError) as exc:
        raise InvalidModel(f"{where}: can't read {entries} from {file.name}: {exc}") from exc


def _inside(location: str, path: Path) -> Path:
    """Return the file at `location` beside `path`; neither its name nor a link may lead out of the folder."""
    inside = PurePosixPath(location)
    file = path.parent / location
    try:
        leads_out = inside.is_absolute() or ".." in inside.parts
        if not leads_out and file.is_file() and file.resolve().is_relative_to(path.parent.resolve()):
            return file
    except (OSError, ValueError):  # a name with a NUL in it, or a link that leads to itself
        pass
    raise InvalidModel(f"{path} keeps weights in {location!r}, which is not a file beside it")


def _typed(items: Any, data_type: int, dtype: type[np.generic]) -> NDArray[Any]:  # noqa: ANN401  (a repeated field)
    if data_type == _FLOAT16:  # kept as the bits of the number
        return np.array(items, np.int64).astype(np.uint16).view(np.float16)
    wide = {"f": np.float64, "u": np.uint64}.get(np.dtype(dtype).kind, np.int64)
    return np.array(items, wide if np.dtype(dtype).itemsize > 2 else np.int64).astype(dtype)  # noqa: PLR2004  (narrow ones are kept as int32)


def _widened(stored: NDArray[Any], data_type: int) -> NDArray[Any]:
    if data_type == _FLOAT16:
        return stored.astype(np.float32)
    if data_type == _BFLOAT16:  # the upper half of a float32
        return (stored.astype(np.uint32) << 16).view(np.float32)
    return stored


def _text(value: Any) -> Any:  # noqa: ANN401  (an int, a float or bytes)
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
