"""Which precision JAX computes a float model in, unasked: bfloat16 where it is clearly faster and keeps the answers."""

from __future__ import annotations

import functools
import threading
import time
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from backends.base import TokenBatch
from backends.fingerprint import AGREEMENT, agreement

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from backends.base import ModelSpec
    from backends.jax_backend import JaxModel

_FASTER = 1.3  # what bfloat16 must gain to be chosen; what it must keep is `AGREEMENT`
_ROUNDS = 5
_lock = threading.Lock()  # guards _agreed; nothing is called while it is held
_agreed: dict[str, bool] = {}  # digest → whether bfloat16 keeps the model's answers


def chosen(spec: ModelSpec, load: Callable[[str], JaxModel]) -> JaxModel:
    """Return the model in bfloat16 or in float32; `load` makes it in a precision. Compared once per digest."""
    with _lock:
        agrees = _agreed.get(spec.digest)
    if agrees is False or not bfloat16_pays():
        return load("float32")
    fast = load("bfloat16")
    if agrees:
        return fast
    exact = load("float32")
    agrees = agreement(_probed(fast), _probed(exact)) >= AGREEMENT
    with _lock:
        _agreed[spec.digest] = agrees
    (exact if agrees else fast).close()
    return fast if agrees else exact


@functools.cache
def bfloat16_pays() -> bool:
    """Return whether a product of a small encoder's size is clearly faster in bfloat16; measured once."""
    times = {}
    for dtype in (jnp.float32, jnp.bfloat16):
        product = jax.jit(functools.partial(jnp.matmul, preferred_element_type=jnp.float32))
        x, weight = jnp.ones((512, 384), dtype), jnp.ones((384, 1536), dtype)
        product(x, weight).block_until_ready()
        seconds = []
        for _ in range(_ROUNDS):
            start = time.perf_counter()
            product(x, weight).block_until_ready()
            seconds.append(time.perf_counter() - start)
        times[dtype] = min(seconds)
    return times[jnp.float32] >= _FASTER * times[jnp.bfloat16]


def _probed(model: JaxModel) -> NDArray[np.float32]:
    """Return the answers to two rows of any tokens, the same each time."""
    ids = np.random.default_rng(0).integers(0, model.vocabulary, (2, min(16, model.batching.lengths[-1])))
    return model.infer(TokenBatch(ids, np.ones_like(ids), np.zeros_like(ids)))
