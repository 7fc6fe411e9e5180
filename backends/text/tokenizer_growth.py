"""How much longer a tokenizer's normaliser can make a text, read off its `tokenizer.json`. Pure.

A replacement of one letter by a million characters makes gigabytes of a page, so it is bounded before anything is
encoded. Unicode's own normal forms and lower-casing are not counted: they are small and the same in every file.
"""

from __future__ import annotations

import base64
import binascii
import math
import struct
from typing import Any

from backends.errors import InvalidModel

LARGEST = 64.0  # characters of one; the longest that a published character map makes of one are 18


def growth_of(normalizer: Any) -> float:  # noqa: ANN401 - any JSON
    """Return how many characters can become of one, at most, by what the normaliser replaces and puts in.

    Raises:
        InvalidModel: more than `LARGEST`.
    """
    growth = _growth(normalizer)
    if growth > LARGEST:
        raise InvalidModel(
            f"its normaliser can make {growth:.0f} characters of one, and {LARGEST:.0f} are allowed: such a tokenizer "
            "would take all memory for a page of text"
        )
    return growth


def _growth(step: Any) -> float:  # noqa: ANN401 - any JSON; one case a kind
    match step:
        case {"type": "Sequence", "normalizers": [*parts]}:
            return math.prod(_growth(part) for part in parts)
        case {"type": "Replace", "content": str(content), "pattern": {"String": str(literal)}} if literal:
            return max(1.0, len(content) / len(literal))
        case {"type": "Replace", "content": content}:
            return 1.0 + len(str(content))  # a regular expression may match each character, or between two
        case {"type": "Prepend", "prepend": prepend}:
            return 1.0 + len(str(prepend))
        case {"type": "Precompiled", "precompiled_charsmap": charsmap}:
            return _longest(charsmap)
        case _:
            return 1.0


def _longest(charsmap: Any) -> float:  # noqa: ANN401 - any JSON
    """Return the longest text that SentencePiece's character map makes of one: a trie, then texts that end in NUL."""
    try:
        data = base64.b64decode(charsmap or "", validate=True)
        (trie_nbytes,) = struct.unpack_from("<I", data) if data else (0,)
    except (binascii.Error, TypeError, ValueError, struct.error):
        return 1.0  # damaged: the tokenizers package says so
    texts = data[4 + trie_nbytes :].split(b"\0")
    return float(max(1, *(len(text.decode("utf-8", "replace")) for text in texts)))
