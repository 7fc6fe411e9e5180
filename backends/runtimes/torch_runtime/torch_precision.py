"""What PyTorch measures and computes to choose a precision; see `precision`."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  (its name everywhere)

from backends.choosing.precision import is_faster

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from backends.runtimes.torch_runtime.torch_model import Encoder


@functools.cache
def bfloat16_pays(device: torch.device) -> bool:
    """Return whether a product of a small encoder's size is clearly faster in bfloat16; measured once, some 20 ms."""
    return is_faster(_product(torch.bfloat16, device), _product(torch.float32, device))


def _product(dtype: torch.dtype, device: torch.device) -> Callable[[], object]:
    x, weight = (torch.ones(shape, dtype=dtype, device=device) for shape in ((512, 384), (1536, 384)))
    return lambda: F.linear(x, weight)[0, 0].item()  # noqa: PLW0108  (each call multiplies; the number waits for an accelerator)


def answers_of(encoder: Encoder, device: torch.device, *, longest: int) -> NDArray[np.float32]:
    """Return mean vectors, or logits, for eight rows of any tokens, the same each time; at most `longest` a row."""
    shape = (8, min(48, longest))
    ids = torch.randint(encoder.vocabulary, shape, generator=torch.Generator().manual_seed(0)).to(device)
    with torch.inference_mode():
        parts = [ids[[row]] for row in range(len(ids))] if encoder.sees_padding else [ids]
        answer = torch.cat([encoder(part, None, torch.zeros_like(part)) for part in parts]).float()
        return np.asarray((answer.mean(1) if answer.ndim > 1 else answer).cpu().numpy())
