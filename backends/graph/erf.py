"""The error function in float32, which NumPy lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Minimax polynomials, highest power first (N. Juffa's `my_erff`, 1 ulp): near 0, erf(x) = x + x P(x²); beyond,
# erf(x) = 1 - exp(-(t + t Q(t))) with t = |x|. From |x| = 4 on, float32 knows only ±1.
_EDGE = np.float32(0.927734375)
_LIMIT = np.float32(4)
_NEAR = (-5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1, 1.28379166e-1)
_FAR = (-1.72853470e-5, 3.83197126e-4, -3.88396438e-3, 2.42546219e-2, -1.06777877e-1, -6.34846687e-1, -1.28717512e-1)
_P = tuple(np.float32(c) for c in _NEAR)
_Q = tuple(np.float32(c) for c in _FAR)
# Elements done at once: the scratch rows stay in the processor's nearest cache.
_BLOCK = 4096


def erf(x: NDArray[np.float32], out: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
    """Return the error function of float32 values, to 1e-7; `out`, contiguous, may be `x` itself."""
    source = np.ascontiguousarray(x, np.float32)
    made = np.empty(source.shape, np.float32) if out is None else out
    flat, into = source.reshape(-1), made.reshape(-1)
    scratch = np.empty((3, min(_BLOCK, flat.size)), np.float32)
    for start in range(0, flat.size, _BLOCK):
        part = flat[start : start + _BLOCK]
        size, near, far = scratch[:, : part.size]
        np.abs(part, out=size)
        np.minimum(size, _LIMIT, out=size)
        horner(_Q, size, far)
        far *= size
        far -= size
        np.exp(far, out=far)
        np.subtract(np.float32(1), far, out=far)
        np.copysign(far, part, out=far)
        is_near = size < _EDGE
        size *= size
        horner(_P, size, near)
        near *= part
        np.add(near, part, out=near, where=is_near)  # infinities are not near
        np.copyto(far, near, where=is_near)
        into[start : start + _BLOCK] = far
    return made


def horner(coefficients: tuple[np.float32, ...], x: NDArray[np.float32], out: NDArray[np.float32]) -> None:
    """Evaluate a polynomial, its highest power first, in `out`."""
    np.multiply(x, coefficients[0], out=out)
    out += coefficients[1]
    for coefficient in coefficients[2:]:
        out *= x
        out += coefficient
