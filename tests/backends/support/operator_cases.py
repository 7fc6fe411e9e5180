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


WHOLE = RNG.integers(-2, 3, (2, 3, 4))
KERNEL = RNG.normal(size=(6, 3, 3)).astype(np.float32)

CASES = [
    *(
        case(op, x=x, **attributes)
        for op in ("ArgMax", "ArgMin")
        for x, attributes in (
            (X, {}),
            (WHOLE, {"axis": -1, "keepdims": 0}),
            (WHOLE, {"axis": 1, "select_last_index": 1}),
            (WHOLE * 0, {"axis": 2}),
        )
    ),
    case("ArgMax", x=X, opset=11, axis=1),
    case("GatherElements", WHOLE.clip(-2, 1)[..., :3], axis=2),
    case("GatherElements", WHOLE.clip(-2, 1)),
    case("GatherElements", WHOLE[:, :1].astype(np.int32), axis=-2),
    case("Tile", np.array([1, 2, 3])),
    case("Tile", np.array([3, 1, 1]), x=X[:1]),
    case("Tile", np.array([1, 1, 1])),
    case("Tile", np.array([2, 0, 1])),
    case("Pad", np.array([0, 1, 2, 1, 0, 0])),
    case("Pad", np.array([1, 2]), "", np.array([-2]), opset=18),
    case("Pad", np.array([1, 2]), np.array(7), np.array([-1]), opset=18, x=WHOLE),
    case("Pad", np.array([0, 0, 0, 0, 0, 0])),
    case("Pad", opset=10, pads=[0, 0, 1, 0, 1, 0], value=2.0),
    case("Pad", np.array([1, 2, 0, 0, 1, 3]), mode="edge"),
    case("Pad", np.array([0, 2, 1, 0, 1, 3]), mode="reflect"),
    case("Pad", np.array([1, 2, 0, 0, 1, 3]), mode="wrap", opset=19),
    case("Conv", KERNEL, x=X),
    case("Conv", KERNEL, KERNEL[:, 0, 0], x=X, pads=[1, 1], kernel_shape=[3]),
    case("Conv", KERNEL, x=X, pads=[3, 0], strides=[2], dilations=[2]),
    case("Conv", KERNEL[:, :1], KERNEL[:, 0, 0], x=X, group=3, pads=[0, 2]),
    case("Conv", KERNEL, x=X, auto_pad="SAME_UPPER", dilations=[1]),
    case("Conv", KERNEL[..., :2], x=X, auto_pad="SAME_LOWER"),
    case("Conv", KERNEL, x=X, auto_pad="VALID"),
    case("Einsum", X, equation="bij,bkj->bik"),
    case("Einsum", X, equation="bij, bkj -> bjik"),
    case("Einsum", SQUARE, equation="...j,jk"),
    case("Einsum", X[0], equation="...ij,...kj->...ik"),
    case("Einsum", X[0], X, equation="bij,ij,bik->kb"),
    case("Einsum", SQUARE[0], equation="bij,k->kib"),
    case("Einsum", equation="bij->ji"),
    case("Einsum", equation="ZiA"),
    case("Einsum", equation="b...->..."),
    case("NonZero", x=WHOLE),
    case("NonZero", x=WHOLE[0, 0] > 0),
    case("ScatterND", np.array([[1]]), X[:1] * 2),
    case("ScatterND", np.array([[0, 2], [1, -1]]), X[0, :2]),
    case("ScatterND", np.array([[[0, 2, 1]]]), np.float32([[5]])),
    case("ScatterND", np.zeros((0, 2), I64), np.zeros((0, 4), np.float32)),
    case("RMSNormalization", SQUARE[0], opset=23),
    case("RMSNormalization", X[0], opset=23, axis=1, epsilon=0.1),
    *(case(op, opset=18) for op in ("Mish", "HardSwish", "Elu", "HardSigmoid", "LeakyRelu", "Softplus")),
    case("Softplus", x=X * 100),
    case("Mish", x=X * 100, opset=18),
    case("Elu", alpha=0.5),
    case("LeakyRelu", alpha=0.5),
    case("HardSigmoid", alpha=0.5, beta=0.25),
    case("Swish", opset=24),
    case("Swish", opset=24, alpha=1.702),
    case("IsInf", x=np.float32([1, np.inf, -np.inf, np.nan])),
    case("IsInf", x=np.float32([1, np.inf, -np.inf]), detect_negative=0),
    case("Xor", X > 0, x=X < 0.5),
    *(case(op, np.array([1, -1]), opset=18, keepdims=0) for op in ("ReduceL1", "ReduceSumSquare")),
    case("Trilu", x=X),
    case("Trilu", np.array(-1), x=X),
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

# What ONNX Runtime computes and the reference evaluator doesn't.
RUNTIME_CASES = [
    case("GatherElements", np.array([[[0, -1], [3, 2]]]), axis=2),
    case("GatherElements", np.array([[[0, 1, -2, 1]]])),
    case("GatherElements", np.array([[[1], [0]], [[-3], [2]]], np.int32), axis=-2),
    case("Pad", np.array([0, -1, 2, 0, 1, -1]), np.float32(0.5)),
    case("Pad", np.array([0, -1, -2, 0, 1, -2])),
    case("Softmax", opset=11),
    case("Softmax", opset=12, axis=0),
    case("Softmax", opset=11, axis=1),
    case("Softmax", opset=12, axis=-2),
]
