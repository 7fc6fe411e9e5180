"""Which precision a float model is computed in, unasked: bfloat16 where it is clearly faster and keeps the answers."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, TypeVar

from backends.errors import TransientBackendError
from backends.running.fingerprint import AGREEMENT, agreement

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

T = TypeVar("T")

_FASTER = 1.3  # what bfloat16 must gain to be chosen; what it must keep is `AGREEMENT`
_ROUNDS = 5
_lock = threading.Lock()  # guards _agreed; nothing is called while it is held
_agreed: dict[tuple[str, str], bool] = {}  # (digest, platform) → whether bfloat16 keeps the model's answers


def is_faster(fast: Callable[[], object], exact: Callable[[], object]) -> bool:
    """Return whether the one takes clearly less time than the other, each at its best of a few runs."""
    best = [min(_seconds(run) for _ in range(_ROUNDS)) for run in (fast, exact)]
    return best[1] >= _FASTER * best[0]


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def choose_precision(
    key: tuple[str, str],
    load: Callable[[str], T],
    answers: Callable[[T], NDArray[np.float32]],
    *,
    discard: Callable[[T], object] = lambda _: None,
) -> tuple[T, str]:
    """Return a model in bfloat16, or in float32 if that fails or gives other answers, and which; compared once per key.

    `load` makes the model in a precision, `answers` are those to a few rows, and `discard` frees the one not taken.
    """
    with _lock:
        agrees = _agreed.get(key)
    if agrees is False:
        return load("float32"), "float32"
    try:
        fast = load("bfloat16")
        if agrees:
            return fast, "bfloat16"
        found = answers(fast)
    except (TransientBackendError, MemoryError):
        raise
    except Exception:  # noqa: BLE001  (an architecture's own code: some compute in float32 only, and fail in many ways)
        exact = load("float32")  # which fails too, and says so, if bfloat16 wasn't the reason
        with _lock:
            _agreed[key] = False
        return exact, "float32"
    exact = load("float32")
    agrees = agreement(found, answers(exact)) >= AGREEMENT
    with _lock:
        _agreed[key] = agrees
    discard(exact if agrees else fast)
    return (fast, "bfloat16") if agrees else (exact, "float32")
