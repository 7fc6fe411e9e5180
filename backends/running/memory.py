"""Give memory that was freed back to the operating system, so that a budget in bytes is one of resident memory."""

from __future__ import annotations

import ctypes
import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def trim() -> None:
    """Return freed heap memory to the system, where the C library can (glibc); a few milliseconds.

    glibc keeps what was freed below a block still in use: measured, 58 MB after a 34 MB model was closed, and some
    25 MB of parsing leftovers after one was loaded.
    """
    call = _malloc_trim()
    if call is not None:
        call(0)


def can_trim() -> bool:
    """Return whether `trim` does anything here."""
    return _malloc_trim() is not None


@functools.cache
def _malloc_trim() -> Callable[[int], int] | None:
    try:
        call = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # another C library, or a system that has no handle to itself
        return None
    call.argtypes, call.restype = [ctypes.c_size_t], ctypes.c_int
    return lambda pad: int(call(pad))
