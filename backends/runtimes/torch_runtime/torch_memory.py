"""How much PyTorch is given at once, and its words for memory that is not enough. Imports nothing of it."""

from __future__ import annotations

PART_TOKENS = 1024  # of one core's part of a batch


def is_out_of_memory(exc: BaseException) -> bool:
    """Return whether this is PyTorch's way to say that memory, or an accelerator's, is not enough."""
    words = ("out of memory", "not enough memory", "can't allocate memory", "bad_alloc")
    return isinstance(exc, MemoryError) or any(word in str(exc).lower() for word in words)
