"""How much longer a normaliser can make a text: bounded by what it says."""

from __future__ import annotations

import base64
import struct
from typing import Any

import pytest

from backends.errors import InvalidModel
from backends.text.tokenizer_growth import growth_of


def replace(pattern: str, content: str, *, kind: str = "String") -> dict[str, Any]:
    """Return a replacement as `tokenizer.json` has it."""
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def charsmap(*texts: str) -> dict[str, Any]:
    """Return a character map of SentencePiece whose trie is empty."""
    data = struct.pack("<I", 0) + b"".join(text.encode() + b"\0" for text in texts)
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(data).decode()}


@pytest.mark.parametrize(
    ("normalizer", "growth"),
    [
        (None, 1),
        ({"type": "Lowercase"}, 1),
        (replace("a", "bb"), 2),
        (replace("aaaa", "bb"), 1),
        (replace(" {2,}", "\u2581", kind="Regex"), 2),
        (replace("", "ab"), 3),
        ({"type": "Prepend", "prepend": "\u2581"}, 2),
        ({"type": "Sequence", "normalizers": [replace("a", "aaa"), {"type": "NFC"}, replace("a", "aaa")]}, 9),
        (charsmap("a", "\u0635\u0644\u0649"), 3),
        ({"type": "Precompiled", "precompiled_charsmap": "no base64"}, 1),
    ],
)
def test_growth_is_what_the_steps_make_together(normalizer: Any, growth: float) -> None:
    """Replacements multiply; a regular expression counts as matching each character."""
    assert growth_of(normalizer) == growth


@pytest.mark.parametrize(
    "normalizer",
    [
        replace("a", "x" * 65),
        {"type": "Sequence", "normalizers": [replace("a", "aa")] * 7},
        charsmap("x" * 70),
        {"type": "Prepend", "prepend": "x" * 200_000},
    ],
)
def test_a_normaliser_is_refused_when_it_blows_texts_up(normalizer: Any) -> None:
    """U2: in one step, or doubling seven times."""
    with pytest.raises(InvalidModel, match="characters of one, and 64 are allowed"):
        growth_of(normalizer)
