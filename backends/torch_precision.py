"""What PyTorch measures and computes to choose a precision; see `precision`."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  (its name everywhere)

from backends.precision import is_faster

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from backends.torch_model import Encoder


@functools.cache
def bfloat16_pays(device: torch.device) -> bool:
    """Return whether a product of a small encoder's size is clearly faster in bfloat16; measured once, some 20 ms."""
    return is_faster(_product(torch.bfloat16, device), _product(torch.float32, device))


def _product(dtype: torch.dtype, device: torch.device) -> Callable[[], object]:
    x, weight = (torch.ones(shape, dtype=dtype, device=device) for shape in ((512, 384), (1536, 384)))
    return lambda: F.linear(x, weight)[0, 0].item()  # noqa: PLW0108  (each call multiplies; the number waits for an accelerator)


def any_rows(vocabulary: int, device: torch.device) -> torch.Tensor:
    """Return int64[8, 48] of any tokens, the same each time."""
    return torch.randint(vocabulary, (8, 48), generator=torch.Generator().manual_seed(0)).to(device)


def answers_of(encoder: Encoder, ids: torch.Tensor) -> NDArray[np.float32]:
    """Return mean vectors, or logits, for int64[n, length] on the device."""
    with torch.inference_mode():
        answer = encoder(ids, None, torch.zeros_like(ids)).float()
        return np.asarray((answer.mean(1) if answer.ndim > 1 else answer).cpu().numpy())
