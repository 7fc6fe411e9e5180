"""Trimming: memory goes back where the C library can give it, and nothing breaks where it can't."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from backends.running import memory

if TYPE_CHECKING:
    import pytest


def test_nothing_happens_when_the_library_can_not_trim(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `malloc_trim` trimming is a no-op; with it, it is called."""
    memory._malloc_trim.cache_clear()
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    memory.trim()
    memory._malloc_trim.cache_clear()
    monkeypatch.undo()
    memory.trim()
