"""What JAX measures and computes to choose a precision; see `precision`."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from backends.base import TokenBatch
from backends.choosing.precision import is_faster

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from backends.running.batching import Batching


class Measured(Protocol):
    """What is asked of a model, to see whether a precision keeps its answers."""

    vocabulary: int
    batching: Batching

    def infer(self, batch: TokenBatch) -> NDArray[np.float32]:
        """Return the answers to a batch."""


@functools.cache
def bfloat16_pays() -> bool:
    """Return whether a product of a small encoder's size is clearly faster in bfloat16; measured once."""
    return is_faster(_product(jnp.bfloat16), _product(jnp.float32))


def _product(dtype: type[jnp.floating]) -> Callable[[], object]:
    """Return a compiled product, to be run and waited for."""
    multiply = jax.jit(functools.partial(jnp.matmul, preferred_element_type=jnp.float32))
    x, weight = jnp.ones((512, 384), dtype), jnp.ones((384, 1536), dtype)
    multiply(x, weight).block_until_ready()
    return lambda: multiply(x, weight).block_until_ready()


def answers_of(model: Measured) -> NDArray[np.float32]:
    """Return the answers to two rows of any tokens, the same each time."""
    ids = np.random.default_rng(0).integers(0, model.vocabulary, (2, min(16, model.batching.lengths[-1])))
    return model.infer(TokenBatch(ids, np.ones_like(ids), np.zeros_like(ids)))
