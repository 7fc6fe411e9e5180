"""Lower a specialised program to MIL, Core ML's intermediate language, operator by operator; every shape is fixed.

Each operator is a small function from a `Step` to MIL variables, made with coremltools' `Builder`. MIL has no int64:
whole numbers are int32 there. Activations are not quantised: integer products become float ones over the dequantised
weights, so that an 8-bit graph gives a text the same vector whatever else is in its batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from backends.errors import CannotServe

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from backends.graph.node import Node
    from backends.graph.rewriting.specialise import Program

    Var = Any  # coremltools has no types


@dataclass(frozen=True, slots=True)
class Step:
    """One operator to lower: its node, its inputs as MIL variables (None is left out), and its output's shape."""

    mb: Any
    node: Node
    inputs: tuple[Var, ...]
    shape: tuple[int, ...]

    @property
    def x(self) -> Var:
        """Return the first input."""
        return self.inputs[0]

    def attribute(self, name: str) -> Any:  # noqa: ANN401  (numbers, texts, and tuples of them)
        """Return an attribute of the node's normal form."""
        return self.node.attributes[name]

    def optional(self, i: int) -> Var:
        """Return the input number `i`, None if it is left out."""
        return self.inputs[i] if i < len(self.inputs) else None

    def constant(self, i: int) -> NDArray[Any]:
        """Return the content of the input number `i`.

        Raises:
            CannotServe: it is computed from the model's inputs.
        """
        if self.inputs[i].val is None:
            raise CannotServe(f"Core ML takes {self.node.op} only with a constant input {i}")
        return np.asarray(self.inputs[i].val)


def lower(program: Program, feeds: Mapping[str, Var], mb: Any) -> Var:  # noqa: ANN401  (as above)
    """Return the MIL variable of the program's output; `feeds` are those of its inputs, `mb` is MIL's `Builder`.

    Constant feeds give a variable whose `val` is the answer, which coremltools then computes in NumPy: that is how
    the lowering is checked where Core ML is not.

    Raises:
        CannotServe: an operator, or a form of one, has no counterpart; the message names it.
    """
    known: dict[str, Var] = {"": None, **feeds}

    def variable(name: str) -> Var:
        if name not in known:
            known[name] = mb.const(val=_as_mil(program.constants[name]))
        return known[name]

    for node in program.steps:
        if node.op not in OPERATORS:
            raise CannotServe(f"Core ML has no counterpart for the operator {node.op}: use another backend")
        step = Step(mb, node, tuple(map(variable, node.inputs)), program.values[node.outputs[0]].shape)
        made = OPERATORS[node.op](step)
        known.update(zip(node.outputs, made if isinstance(made, tuple) else (made,), strict=True))
    return variable(program.output)


def _as_mil(value: NDArray[Any]) -> Any:  # noqa: ANN401  (an array, or a scalar of NumPy)
    if value.dtype.kind == "f" or value.dtype in (np.int8, np.uint8):
        # Numbers of 8 bits are weights and their zero points: whole numbers would be written as text, not as weights.
        value = value.astype(np.float32, copy=False)
    elif value.dtype.kind in "iu" and value.dtype != np.int32:
        limits = np.iinfo(np.int32)
        value = value.astype(np.int64, copy=False).clip(limits.min, limits.max).astype(np.int32)
    return value if value.ndim else value[()]


def kind_of(x: Var) -> str:
    """Return the type of a MIL variable's elements: `fp32`, `int32` or `bool`."""
    from coremltools.converters.mil.mil.types import builtin_to_string  # noqa: PLC0415  (heavy; loaded by now)

    return str(builtin_to_string(x.dtype))


def _cast(step: Step, x: Var, kind: str) -> Var:
    return x if kind_of(x) == kind else step.mb.cast(x=x, dtype=kind)


def _as_number(step: Step, x: Var) -> Var:
    """Return 0 and 1 for truth values: many of MIL's operators take numbers only."""
    return _cast(step, x, "int32") if kind_of(x) == "bool" else x


def _spread(step: Step, x: Var) -> Var:
    """Return `x` broadcast to the shape of the step's output."""
    if tuple(x.shape) == step.shape:
        return x
    aligned = (1,) * (len(step.shape) - len(x.shape)) + tuple(x.shape)
    reps = [want if have == 1 else 1 for want, have in zip(step.shape, aligned, strict=True)]
    return step.mb.tile(x=step.mb.reshape(x=x, shape=aligned), reps=reps)


def _unary(name: str, **options: float) -> Callable[[Step], Var]:
    return lambda step: getattr(step.mb, name)(x=step.x, **options)


def _binary(name: str) -> Callable[[Step], Var]:
    return lambda step: getattr(step.mb, name)(x=step.x, y=step.inputs[1])


def _compare(name: str) -> Callable[[Step], Var]:
    return lambda step: getattr(step.mb, name)(x=_as_number(step, step.x), y=_as_number(step, step.inputs[1]))


def _reduce(name: str) -> Callable[[Step], Var]:
    def lowered(step: Step) -> Var:
        keep = bool(step.attribute("keepdims"))
        return getattr(step.mb, name)(x=step.x, axes=list(step.attribute("axes")), keep_dims=keep)

    return lowered


def _type_cast(step: Step) -> Var:
    kinds = {"f": "fp32", "b": "bool"}
    return _cast(step, step.x, kinds.get(np.dtype(step.attribute("to")).kind, "int32"))


def _divide(step: Step) -> Var:
    x, y = step.inputs
    if kind_of(x) != "fp32":  # ONNX rounds to zero, MIL down
        raise CannotServe("Core ML can't divide whole numbers as ONNX does: use another backend")
    return step.mb.real_div(x=x, y=y)


def _power(step: Step) -> Var:
    exponent = step.inputs[1].val
    if exponent is not None and np.all(exponent == 2):  # noqa: PLR2004  (a square, defined for negative numbers too)
        return step.mb.mul(x=step.x, y=step.x)
    return step.mb.pow(x=step.x, y=step.inputs[1])


def _layer_norm(step: Step) -> Var:
    axes = range(step.attribute("axis"), len(step.shape))
    over = [step.shape[axis] for axis in axes]
    gamma = np.broadcast_to(step.constant(1), over)
    beta = None if step.optional(2) is None else np.broadcast_to(step.constant(2), over)
    return step.mb.layer_norm(
        x=step.x, axes=list(axes), gamma=gamma, beta=beta, epsilon=np.float32(step.attribute("epsilon"))
    )


def _slice(step: Step) -> Var:
    ends = step.attribute("ends")
    return step.mb.slice_by_index(
        x=step.x,
        begin=step.attribute("starts"),
        end=[max(end, 0) for end in ends],
        stride=step.attribute("steps"),
        end_mask=[end < 0 for end in ends],  # backwards, the first place included
    )


def _gather(step: Step) -> Var:
    taken = step.mb.gather(x=_as_number(step, step.x), indices=step.inputs[1], axis=step.attribute("axis"))
    return _cast(step, taken, kind_of(step.x))


def _from_front(step: Step, indices: Var, size: int) -> Var:
    """Return places that count from the front: negative ones count from the end."""
    if indices.val is not None:
        return np.where(indices.val < 0, indices.val + size, indices.val).astype(np.int32)
    behind = step.mb.less(x=indices, y=np.int32(0))
    return step.mb.add(x=indices, y=step.mb.mul(x=step.mb.cast(x=behind, dtype="int32"), y=np.int32(size)))


def _gather_elements(step: Step) -> Var:
    axis, indices = step.attribute("axis"), step.inputs[1]
    ends = [n if i == axis else m for i, (n, m) in enumerate(zip(step.x.shape, step.shape, strict=True))]
    x = _as_number(step, step.x)
    if ends != list(x.shape):
        x = step.mb.slice_by_index(x=x, begin=[0] * len(ends), end=ends)
    places = _from_front(step, indices, step.x.shape[axis])
    return _cast(step, step.mb.gather_along_axis(x=x, indices=places, axis=axis), kind_of(step.x))


def _gather_nd(step: Step) -> Var:
    """Gather along one flattened axis; MIL's own operator has no NumPy counterpart to check it with.

    A place among the first axes, joined, is Σ index · stride; along batch axes the index is the place's own.
    """
    batch, indices = step.attribute("batch_dims"), step.inputs[1]
    *outer, depth = indices.shape
    sizes, rest = tuple(step.x.shape[: batch + depth]), tuple(step.x.shape[batch + depth :])
    strides = [int(np.prod(sizes[i + 1 :])) for i in range(len(sizes))]
    grid = np.indices(sizes[:batch], np.int32).reshape(batch, *sizes[:batch], *(1,) * (len(outer) - batch))
    own = sum((grid[i] * strides[i] for i in range(batch)), np.zeros(outer, np.int32)).astype(np.int32)
    places: Var = step.mb.const(val=own.reshape(-1))
    for i in range(depth):
        begin, end = [0] * len(outer), [int(n) for n in outer]
        index = step.mb.slice_by_index(x=indices, begin=[*begin, i], end=[*end, i + 1])
        index = _from_front(step, step.mb.reshape(x=index, shape=(int(np.prod(outer)),)), sizes[batch + i])
        places = step.mb.add(x=places, y=step.mb.mul(x=index, y=np.int32(strides[batch + i])))
    flat = step.mb.reshape(x=_as_number(step, step.x), shape=(int(np.prod(sizes)), *rest))
    taken = step.mb.gather(x=flat, indices=places, axis=0)
    return _cast(step, step.mb.reshape(x=taken, shape=step.shape), kind_of(step.x))


def _arg(best: str) -> Callable[[Step], Var]:
    """Return the first place (or the last) of the greatest or least number: Core ML doesn't say which of equals."""

    def lowered(step: Step) -> Var:
        axis, last = step.attribute("axis"), step.attribute("select_last_index")
        x = _as_number(step, step.x)
        count = int(x.shape[axis])
        is_best = step.mb.equal(x=x, y=getattr(step.mb, best)(x=x, axes=[axis], keep_dims=True))
        places = np.arange(count, dtype=np.int32).reshape([count if i == axis else 1 for i in range(len(x.shape))])
        places, none = np.broadcast_to(places, x.shape), np.full(x.shape, -1 if last else count, np.int32)
        chosen = step.mb.select(cond=is_best, a=np.ascontiguousarray(places), b=none)
        reduce = step.mb.reduce_max if last else step.mb.reduce_min
        return reduce(x=chosen, axes=[axis], keep_dims=bool(step.attribute("keepdims")))

    return lowered


def _where(step: Step) -> Var:
    condition, a, b = (_spread(step, x) for x in step.inputs)
    return step.mb.select(cond=condition, a=a, b=b)


def _dequantize(step: Step) -> Var:
    """Return (x - zero) * scale; scale and zero are of one number, or of one per place along `axis`."""
    shape = [1] * len(step.shape)
    scale = step.constant(1).astype(np.float32)
    if scale.size > 1:
        shape[step.attribute("axis")] = scale.size
    x = _cast(step, step.x, "fp32")
    if step.optional(2) is not None:
        x = step.mb.sub(x=x, y=step.constant(2).astype(np.float32).reshape(shape))
    return step.mb.mul(x=x, y=scale.reshape(shape))


def _unquantised(step: Step) -> tuple[Var, Var, Var]:
    """Return the activations as they are, with scale 1 and zero point 0."""
    return step.x, step.mb.const(val=np.float32(1)), step.mb.const(val=np.float32(0))


def _matmul_integer(step: Step) -> Var:
    """Multiply what `_unquantised` left as floats by the weights less their zero point."""
    weights = step.constant(1).astype(np.float32)
    if step.optional(3) is not None:
        weights -= step.constant(3).astype(np.float32)
    x = _cast(step, step.x, "fp32")
    if step.optional(2) is not None and np.any(step.constant(2)):
        x = step.mb.sub(x=x, y=step.constant(2).astype(np.float32).reshape(-1, 1))
    return step.mb.matmul(x=x, y=weights)


def _cumsum(step: Step) -> Var:
    total = step.mb.cumsum(x=step.x, axis=step.attribute("axis"), reverse=bool(step.attribute("reverse")))
    # MIL's own `exclusive` fails on constants in coremltools 9.
    return step.mb.sub(x=total, y=step.x) if step.attribute("exclusive") else total


OPERATORS: Mapping[str, Callable[[Step], Var]] = {
    "Abs": _unary("abs"),
    "Add": _binary("add"),
    "And": _binary("logical_and"),
    "ArgMax": _arg("reduce_max"),
    "ArgMin": _arg("reduce_min"),
    "Cast": _type_cast,
    "Ceil": _unary("ceil"),
    "Concat": lambda step: step.mb.concat(values=step.inputs, axis=step.attribute("axis")),
    "Cos": _unary("cos"),
    "CumSum": _cumsum,
    "DequantizeLinear": _dequantize,
    "Div": _divide,
    "DynamicQuantizeLinear": _unquantised,
    "Equal": _compare("equal"),
    "Erf": _unary("erf"),
    "Exp": _unary("exp"),
    "Expand": lambda step: _spread(step, step.x),
    "Floor": _unary("floor"),
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "Greater": _compare("greater"),
    "GreaterOrEqual": _compare("greater_equal"),
    "IsNaN": lambda step: step.mb.not_equal(x=step.x, y=step.x),
    "LayerNormalization": _layer_norm,
    "Log": _unary("log", epsilon=0.0),
    "MatMul": _binary("matmul"),
    "MatMulInteger": _matmul_integer,
    "Max": _binary("maximum"),
    "Min": _binary("minimum"),
    "Mul": _binary("mul"),
    "Neg": lambda step: step.mb.mul(
        x=step.x, y=np.array(-1, np.float32 if kind_of(step.x) == "fp32" else np.int32)[()]
    ),
    "Not": _unary("logical_not"),
    "Or": _binary("logical_or"),
    "Pow": _power,
    "Reciprocal": lambda step: step.mb.real_div(x=np.float32(1), y=step.x),
    "ReduceMax": _reduce("reduce_max"),
    "ReduceMean": _reduce("reduce_mean"),
    "ReduceMin": _reduce("reduce_min"),
    "ReduceSum": _reduce("reduce_sum"),
    "Relu": _unary("relu"),
    "Reshape": lambda step: step.mb.reshape(x=step.x, shape=step.shape),
    "Sigmoid": _unary("sigmoid"),
    "Sign": _unary("sign"),
    "Sin": _unary("sin"),
    "Slice": _slice,
    "Softmax": lambda step: step.mb.softmax(x=step.x, axis=step.attribute("axis")),
    "Sqrt": _unary("sqrt"),
    "Sub": _binary("sub"),
    "Tanh": _unary("tanh"),
    "Transpose": lambda step: step.mb.transpose(x=step.x, perm=step.attribute("perm")),
    "Where": _where,
}
