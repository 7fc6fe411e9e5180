"""This process: which cores it may use, and whether a model was loaded in it or before it was forked."""

from __future__ import annotations

import functools
import os
from pathlib import Path

from backends.errors import InferenceError


def usable_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@functools.cache
def has_bfloat16_tiles() -> bool:
    """Return whether Linux says that the processor multiplies bfloat16 matrices in a unit of its own (AMX)."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    return any("amx_bf16" in line.split() for line in lines if line.startswith("flags"))


class Birthplace:
    """The process in which a model was loaded, for runtimes with threads of their own.

    They don't exist in a forked child: a run there would wait for them for ever.
    """

    def __init__(self, model: str) -> None:
        self._model = model
        self._pid = os.getpid()

    def check(self) -> None:
        """Insist that this is the same process.

        Raises:
            InferenceError: it is a child of it.
        """
        if os.getpid() != self._pid:
            raise InferenceError(
                f"model {self._model!r} was loaded before this process was forked: load it again in the child"
            )
