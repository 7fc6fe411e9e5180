"""What of an ONNX file is understood: its operators, their attributes, what it takes. The rest is refused by name.

A node must conform to the standard's schema of the file's opset, as the `onnx` package has it (attributes and their
kinds, numbers of inputs and outputs), and beyond that its attributes must be among those that are obeyed here, with
values that are (`ATTRIBUTES`). An operator whose meaning changed after `NEWEST_OPSET` is refused until it was read.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from backends.catalogue.files import cache_dir, state_key, write_atomically
from backends.graph.reading import onnx_file, signature

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

OLDEST_OPSET = 7
NEWEST_OPSET = 25
# TensorProto.DataType → NumPy; half floats are computed as float32.
CASTS = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 9: "bool",
    10: "float32", 11: "float64", 12: "uint32", 13: "uint64", 16: "float32",
}  # fmt: skip
# What an input may be declared as: whole numbers, truth values, floats. It is fed int64, and cast.
INPUT_TYPES = {7: "int64", 6: "int32", 9: "bool", 1: "float32"}

_ANY = None  # every value of the schema's kind is obeyed, or can't matter
_PLAIN = (
    "Abs", "Add", "And", "Ceil", "Cos", "Div", "DynamicQuantizeLinear", "Equal", "Erf", "Exp", "Expand", "Floor",
    "Greater", "GreaterOrEqual", "HardSwish", "Identity", "IsNaN", "Less", "LessOrEqual", "Log", "MatMul",
    "MatMulInteger", "Max", "Min", "Mish", "Mul", "Neg", "NonZero", "Not", "Or", "Pow", "Range", "Reciprocal", "Relu",
    "Sigmoid", "Sign", "Sin", "Size", "Softplus", "Sqrt", "Sub", "Sum", "Tanh", "Tile", "Where", "Xor",
)  # fmt: skip
_SUMS = ("ReduceL1", "ReduceL2", "ReduceSumSquare")
_REDUCTIONS = ("ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum")
# Each operator that is served, and its attributes: the values that are obeyed.
ATTRIBUTES: Mapping[str, Mapping[str, tuple[Any, ...] | None]] = {
    **{op: {} for op in _PLAIN},
    **{op: {"axes": _ANY, "keepdims": _ANY, "noop_with_empty_axes": _ANY} for op in _REDUCTIONS},
    # Of these it isn't settled what a reduction over nothing gives.
    **{op: {"axes": _ANY, "keepdims": _ANY, "noop_with_empty_axes": (0,)} for op in _SUMS},
    **{op: {"axis": _ANY, "keepdims": _ANY, "select_last_index": _ANY} for op in ("ArgMax", "ArgMin")},
    "Cast": {"to": tuple(CASTS), "saturate": _ANY, "round_mode": _ANY},  # the latter two are of 8-bit floats
    "Clip": {"min": _ANY, "max": _ANY},
    "Concat": {"axis": _ANY},
    "Constant": dict.fromkeys(("value", "value_float", "value_floats", "value_int", "value_ints"), _ANY),
    "ConstantOfShape": {"value": _ANY},
    "Conv": {
        "auto_pad": ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"),
        **dict.fromkeys(("dilations", "group", "kernel_shape", "pads", "strides"), _ANY),
    },
    "CumSum": {"exclusive": _ANY, "reverse": _ANY},
    "DequantizeLinear": {"axis": _ANY, "block_size": (0,), "output_dtype": (0, 1)},
    "Dropout": {"ratio": _ANY, "seed": _ANY},  # nothing is dropped unless it trains, which is refused
    "Einsum": {"equation": _ANY},
    "Elu": {"alpha": _ANY},
    "Flatten": {"axis": _ANY},
    "Gather": {"axis": _ANY},
    "GatherElements": {"axis": _ANY},
    "GatherND": {"batch_dims": _ANY},
    "Gelu": {"approximate": ("none", "tanh")},
    "Gemm": dict.fromkeys(("alpha", "beta", "transA", "transB"), _ANY),
    "HardSigmoid": {"alpha": _ANY, "beta": _ANY},
    "IsInf": {"detect_negative": _ANY, "detect_positive": _ANY},
    "LayerNormalization": {"axis": _ANY, "epsilon": _ANY, "stash_type": (1,)},
    "LeakyRelu": {"alpha": _ANY},
    "Mod": {"fmod": _ANY},
    "Pad": {"mode": ("constant", "reflect", "edge", "wrap"), "pads": _ANY, "value": _ANY},
    "RMSNormalization": {"axis": _ANY, "epsilon": _ANY, "stash_type": (1,)},
    "Reshape": {"allowzero": _ANY},
    "ScatterND": {"reduction": ("none",)},
    "Shape": {"start": _ANY, "end": _ANY},
    "Slice": {"axes": _ANY, "starts": _ANY, "ends": _ANY},
    "Softmax": {"axis": _ANY},
    "Split": {"axis": _ANY, "split": _ANY, "num_outputs": _ANY},
    "Squeeze": {"axes": _ANY},
    "Swish": {"alpha": _ANY},
    "Transpose": {"perm": _ANY},
    "Trilu": {"upper": _ANY},
    "Unsqueeze": {"axes": _ANY},
}
_TABLE = hashlib.sha256(repr((sorted(ATTRIBUTES.items()), OLDEST_OPSET, NEWEST_OPSET, 1)).encode()).hexdigest()[:12]


def unknown(path: Path) -> tuple[str, ...]:
    """Return what isn't understood of a file; remembered until it changes, so that asking again costs no parsing.

    Raises:
        InvalidModel, MissingExtra: as `onnx_file.parse`.
    """
    memory = cache_dir() / "understood" / f"{state_key([path])}-{_onnx_version()}-{_TABLE}.json"
    try:
        return tuple(map(str, json.loads(memory.read_text(encoding="utf-8"))))
    except (OSError, ValueError, TypeError, RecursionError):
        found = refused(onnx_file.parse(path))
    try:
        write_atomically(memory, json.dumps(found))
    except OSError:
        return found  # a cache that can't be written costs time, not answers
    return found


def refused(model: Any) -> tuple[str, ...]:  # noqa: ANN401  (a protobuf message without a type)
    """Return what isn't understood of a ModelProto, in words, each thing once, sorted."""
    return tuple(sorted({*_unknown_inputs(model), *_unknown_operators(model)}))


def opset(model: Any) -> int:  # noqa: ANN401  (as above)
    """Return the version of the standard's operators that a ModelProto imports; 0 if it says none, or two."""
    versions = {int(entry.version) for entry in model.opset_import if entry.domain in ("", "ai.onnx")}
    return versions.pop() if len(versions) == 1 else 0


def _onnx_version() -> str:
    try:
        return version("onnx")
    except PackageNotFoundError:
        return ""


def _unknown_inputs(model: Any) -> Iterator[str]:  # noqa: ANN401  (as above)
    fed = set(signature.inputs(model))
    for value in model.graph.input:
        if value.name not in fed:
            continue
        kind = value.type.tensor_type
        dims = [dim.dim_value if dim.HasField("dim_value") else None for dim in kind.shape.dim]
        if kind.elem_type not in INPUT_TYPES:
            yield f"the input {value.name!r} of data type {kind.elem_type}"
        if kind.HasField("shape") and (len(dims) != 2 or any(dims)):  # noqa: PLR2004  (rows and tokens)
            shape = " x ".join("any" if dim is None else str(dim) for dim in dims)
            yield f"the input {value.name!r} of the fixed shape {shape or 'of one number'} (export it with free axes)"


def _unknown_operators(model: Any) -> Iterator[str]:  # noqa: ANN401  (as above)
    if model.graph.sparse_initializer:
        yield "sparse weights"
    for function in model.functions:
        if function.domain in ("", "ai.onnx"):
            yield f"{function.name} (a function of the file's own)"
    found = opset(model)
    for node in model.graph.node:
        name = onnx_file.operator_name(node)
        if name not in ATTRIBUTES:
            yield name
        elif found >= OLDEST_OPSET:  # older ones are refused by their number
            yield from (f"{name} ({why})" for why in _why_not(node, found))


def _why_not(node: Any, found: int) -> Iterator[str]:  # noqa: ANN401  (as above)
    """Yield what of a node of the standard's is not understood."""
    from onnx import defs  # noqa: PLC0415  (heavy: only where a graph is read)

    try:
        schema = defs.get_schema(node.op_type, found, "")
    except defs.SchemaError:
        yield f"not an operator of opset {found}"
        return
    if schema.deprecated or schema.since_version > NEWEST_OPSET or found > defs.onnx_opset_version():
        yield f"as opset {found} has it"
        return
    if node.overload:
        yield f"overload {node.overload!r}"
    for given, least, most, what in (
        (node.input, schema.min_input, schema.max_input, "inputs"),
        (node.output, schema.min_output, schema.max_output, "outputs"),
    ):
        if not least <= len(given) <= most:
            yield f"{len(given)} {what}"
    yield from _why_not_attributes(node, schema)


def _why_not_attributes(node: Any, schema: Any) -> Iterator[str]:  # noqa: ANN401  (as above)
    obeyed = ATTRIBUTES[node.op_type]
    count = Counter(attribute.name for attribute in node.attribute)
    yield from (f"{name} twice" for name, times in count.items() if times > 1)
    yield from (f"no {name}" for name, known in schema.attributes.items() if known.required and name not in count)
    for attribute in node.attribute:
        name, known = attribute.name, schema.attributes.get(attribute.name)
        if known is None or name not in obeyed:
            yield f"{name}, which is not known"
        elif int(known.type.value) != attribute.type or attribute.ref_attr_name:
            yield f"{name} of another kind"
        elif (values := obeyed[name]) is not None and (value := onnx_file.scalar(attribute)) not in values:
            yield f"{name}={value!r}"
