"""The process: what is read of the processor."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from backends.running.process import has_bfloat16_tiles

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """Have the processor read again in each test, and after the last."""
    has_bfloat16_tiles.cache_clear()
    yield
    has_bfloat16_tiles.cache_clear()


@pytest.mark.parametrize(
    ("text", "has"),
    [
        ("processor\t: 0\nflags\t\t: fpu amx_bf16 amx_tile\n", True),
        ("processor\t: 0\nflags\t\t: fpu avx512_bf16\nmodel name\t: amx_bf16\n", False),
        ("processor\t: 0\nFeatures\t: fp asimd bf16\n", False),
    ],
)
def test_tiles_are_there_when_the_flags_name_them(text: str, *, has: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the processor's flags count, and only a unit for matrices of bfloat16."""
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: text)
    assert has_bfloat16_tiles() is has


def test_no_tiles_are_assumed_when_the_system_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without /proc/cpuinfo, as on macOS, the answer is no."""

    def missing(*_: object, **__: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", missing)
    assert not has_bfloat16_tiles()
