"""Uses of every operator that the portable graph knows, over the opsets that say it differently."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from onnx import TensorProto, helper

RNG = np.random.default_rng(3)
X = RNG.normal(size=(2, 3, 4)).astype(np.float32)
SQUARE = RNG.normal(size=(4, 4)).astype(np.float32)
BYTES = RNG.integers(-128, 128, (4, 5)).astype(np.int8)
I64 = np.int64


class Use(NamedTuple):
    """One use of an operator: on x and these constants ('' for one left out), with these attributes."""

    op: str
    weights: tuple[Any, ...]
    opset: int
    x: Any
    attributes: dict[str, Any]


def case(op: str, *weights: Any, opset: int = 17, x: Any = X, **attributes: Any) -> Use:
    """Describe one use."""
    return Use(op, weights, opset, x, attributes)


CASES = [
    *(
        case(op)
        for op in ("Abs", "Ceil", "Cos", "Erf", "Exp", "Floor", "Identity", "Neg", "Relu", "Sigmoid", "Sign", "Sin")
    ),
    *(case(op, x=np.abs(X) + 0.1) for op in ("Log", "Reciprocal", "Sqrt")),
    *(case(op) for op in ("Tanh", "IsNaN", "Shape")),
    case("Shape", start=1),
    case("Shape", start=-2, end=-1),
    case("Shape", opset=13),
    *(
        case(op, SQUARE[0])
        for op in (
            "Add",
            "Div",
            "Mul",
            "Sub",
            "Max",
            "Min",
            "Equal",
            "Greater",
            "GreaterOrEqual",
            "Less",
            "LessOrEqual",
        )
    ),
    *(case(op, X > 0, x=X < 0.5) for op in ("And", "Or")),
    case("Not", x=X > 0),
    case("Max"),
    case("Max", SQUARE[0], SQUARE[1]),
    case("Min", SQUARE[0], SQUARE[1], X[0]),
    case("Sum", SQUARE[0], SQUARE[1]),
    case("Div", np.array([3, -2, 7, 2]), x=np.array([[-7, 7, 6, -5]])),
    case("Mod", np.array([3, -2, 7, 2]), x=np.array([[-7, 7, 6, -5]])),
    case("Mod", np.array([3, -2, 7, 2]), x=np.array([[-7, 7, 6, -5]]), fmod=1),
    case("Pow", np.float32(2)),
    case("Pow", np.float32(3)),
    case("Pow", np.array([2]), opset=13),
    case("Cast", to=TensorProto.INT64),
    case("Cast", to=TensorProto.BOOL),
    case("Cast", to=TensorProto.DOUBLE),
    case("Cast", x=np.array([[1, -2]]), to=TensorProto.FLOAT),
    case("Clip", np.float32(-0.5), np.float32(0.5)),
    case("Clip", np.float32(-0.5)),
    case("Clip", opset=9, min=-0.5, max=0.25),
    case("Clip", "", np.float32(0.5)),
    case("Clip"),
    case("Clip", opset=10, max=0.1),
    case("Concat", X, axis=-2),
    case("Concat", X, X, axis=0),
    case("ConstantOfShape", x=np.array([2, 3])),
    case("ConstantOfShape", x=np.array([2, 3]), value=helper.make_tensor("v", TensorProto.INT64, [1], [7])),
    case("CumSum", np.array(1)),
    case("CumSum", np.array(-1), exclusive=1),
    case("CumSum", np.array(1), reverse=1, exclusive=1),
    case("Dropout", opset=11),
    case("Dropout", opset=13),
    case("DequantizeLinear", np.float32(0.1), np.int8(3), x=BYTES, opset=19),
    case("DequantizeLinear", np.float32([1, 2, 3, 4]), np.int8([1, 2, 3, 4]), x=BYTES, axis=0, opset=19),
    case("DequantizeLinear", np.float32([1, 2, 3, 4, 5]), x=BYTES, axis=-1, opset=19),
    case("Expand", np.array([5, 2, 3, 4])),
    case("Expand", np.array([1, 3, 1])),
    case("Flatten"),
    case("Flatten", axis=0),
    case("Flatten", axis=-1),
    case("Flatten", axis=3),
    case("Gather", np.array([[2, -1], [0, 1]]), axis=1),
    case("Gather", np.array(0)),
    case("Gather", np.array([1], np.int32), axis=-1),
    case("GatherND", np.array([[0, 1], [1, 2]])),
    case("GatherND", np.array([[[1]], [[2]]]), batch_dims=1),
    case("GatherND", np.array([[[0, 1, -1]]])),
    case("Gelu", opset=20),
    case("Gelu", opset=20, approximate="tanh"),
    case("Gemm", SQUARE, x=X[0]),
    case("Gemm", SQUARE, SQUARE[0], x=X[0], transB=1, alpha=0.5, beta=2.0),
    case("Gemm", X[0], np.float32([1]), x=X[1], transA=1, opset=11),
    case("LayerNormalization", SQUARE[0], SQUARE[1]),
    case("LayerNormalization", SQUARE[0], epsilon=0.1),
    case("LayerNormalization", X[0], axis=1),
    case("MatMul", SQUARE),
    case("MatMul", SQUARE[0]),
    case("MatMul", X.swapaxes(1, 2)),
    case("MatMulInteger", BYTES, np.uint8(7), np.int8(2), x=RNG.integers(0, 256, (3, 4)).astype(np.uint8)),
    case(
        "MatMulInteger",
        BYTES,
        np.uint8(7),
        np.arange(5, dtype=np.int8),
        x=RNG.integers(0, 256, (3, 4)).astype(np.uint8),
    ),
    case("MatMulInteger", BYTES, x=BYTES[:, :4]),
    case("Range", np.array(9), np.array(2), x=np.array(1)),
    case("Range", np.array(-3), np.array(-2), x=np.array(4)),
    *(
        case(op, opset=o, axes=[-1, 0], keepdims=k)
        for op in ("ReduceMax", "ReduceMean", "ReduceMin")
        for o in (11, 13)
        for k in (0, 1)
    ),
    *(
        case(op, np.array([1, -1]), opset=18, keepdims=0)
        for op in ("ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum", "ReduceL2")
    ),
    case("ReduceSum", opset=11, axes=[1]),
    case("ReduceSum", np.array([1]), opset=13),
    case("ReduceSum"),
    case("ReduceSum", np.array([], I64), noop_with_empty_axes=1),
    case("ReduceL2", opset=11, axes=[-1]),
    case("Reshape", np.array([0, -1])),
    case("Reshape", np.array([-1])),
    case("Reshape", np.array([4, 0, 2])),
    case("Reshape", np.array([0, 3]), x=X[:0], allowzero=1),
    case("Slice", np.array([1]), np.array([9223372036854775807]), np.array([-1])),
    case("Slice", np.array([-1, 0]), np.array([-9223372036854775808, 2]), np.array([1, 0]), np.array([-1, 1])),
    case("Slice", np.array([0, 1]), np.array([1, 3])),
    case("Slice", opset=9, starts=[0, 1], ends=[1, -1], axes=[0, 2]),
    case("Softmax"),
    case("Softmax", opset=11, axis=2),
    case("Softmax", axis=1),
    case("Split", np.array([1, 3]), axis=2),
    case("Split", opset=11, axis=-1, split=[2, 2]),
    case("Split", opset=18, axis=2, num_outputs=2),
    case("Squeeze", x=X[:1, :1]),
    case("Squeeze", np.array([-3]), x=X[:1]),
    case("Squeeze", opset=11, x=X[:1], axes=[0]),
    case("Transpose"),
    case("Transpose", perm=[1, 0, 2]),
    case("Trilu", x=SQUARE),
    case("Trilu", np.array(1), x=SQUARE, upper=0),
    case("Unsqueeze", np.array([0, -1])),
    case("Unsqueeze", opset=11, axes=[1, 4]),
    case("Where", X, -X, x=X > 0),
    case("Where", np.float32(1), X, x=X[:1] > 0),
]
