"""Which precision PyTorch computes in, unasked: bfloat16 where it is clearly faster here and keeps the answers."""

from __future__ import annotations

import functools
import threading
import time
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  (its name everywhere)

from backends.fingerprint import AGREEMENT, agreement

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from backends.torch_model import Encoder

_FASTER = 1.3  # what bfloat16 must gain to be chosen; what it must keep is `AGREEMENT`
_ROUNDS = 5
_lock = threading.Lock()  # guards _agreed; nothing is called while it is held
_agreed: dict[tuple[str, str], bool] = {}  # (digest, device) → whether bfloat16 keeps the model's answers


@functools.cache
def bfloat16_pays(device: torch.device) -> bool:
    """Return whether a product of a small encoder's size is clearly faster in bfloat16; measured once, some 20 ms."""
    times = {}
    for dtype in (torch.float32, torch.bfloat16):
        x, weight = (torch.ones(shape, dtype=dtype, device=device) for shape in ((512, 384), (1536, 384)))
        times[dtype] = min(_seconds(x, weight) for _ in range(_ROUNDS))
    return times[torch.float32] >= _FASTER * times[torch.bfloat16]


def _seconds(x: torch.Tensor, weight: torch.Tensor) -> float:
    start = time.perf_counter()
    F.linear(x, weight)[0, 0].item()  # reading a number waits for an accelerator
    return time.perf_counter() - start


def any_rows(vocabulary: int, device: torch.device) -> torch.Tensor:
    """Return int64[8, 48] of any tokens, the same each time."""
    return torch.randint(vocabulary, (8, 48), generator=torch.Generator().manual_seed(0)).to(device)


def bfloat16_agrees(digest: str, ids: torch.Tensor, fast: Encoder, exact: Callable[[], Encoder]) -> bool:
    """Return whether the answers to these rows agree with those in float32; computed once per model.

    `ids` is int64[n, length], on the device; `exact` makes the encoder in float32, where it is needed.
    """
    key = (digest, ids.device.type)
    with _lock:
        known = _agreed.get(key)
    if known is None:
        known = agreement(_probed(fast, ids), _probed(exact(), ids)) >= AGREEMENT
        with _lock:
            _agreed[key] = known
    return known


def _probed(encoder: Encoder, ids: torch.Tensor) -> NDArray[np.float32]:
    """Return mean vectors, or logits."""
    with torch.inference_mode():
        answer = encoder(ids, None, torch.zeros_like(ids)).float()
        return np.asarray((answer.mean(1) if answer.ndim > 1 else answer).cpu().numpy())
