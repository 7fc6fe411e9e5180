"""Metadata as terms: one canonical form of (key, value), so that a filter means the same in every index.

1 and 1.0 are the same value, as in Python; `True` is another than 1, and `None` matches an explicit null only. A list
has one term per element, so a filter matches if any element equals its value.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from backends.errors import InvalidInput

if TYPE_CHECKING:
    from vectorsearch.types import Filter, Metadata

_LONGEST = 200  # characters; Tantivy drops a term above 65,530 bytes without a word


def filter_terms(wanted: Filter | None) -> tuple[str, ...]:
    """Return the terms that a document must all have, sorted; none for no filter.

    Raises:
        InvalidInput: a value that isn't a string, number, boolean or None.
    """
    return tuple(sorted({_term(key, value) for key, value in (wanted or {}).items()}))


def metadata_terms(metadata: Metadata) -> list[str]:
    """Return a document's terms, each once, sorted."""
    terms: set[str] = set()
    for key, value in metadata.items():
        elements = value if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
        # What lies deeper, mappings and lists in lists, is kept with the document but can't be filtered on.
        terms.update(_term(key, e) for e in elements if e is None or isinstance(e, str | int | float))
    return sorted(terms)


def _term(key: str, value: object) -> str:
    term = json.dumps([key, *_typed(key, value)], ensure_ascii=False, separators=(",", ":"))
    if len(term) > _LONGEST:
        return "#" + hashlib.blake2b(term.encode(), digest_size=16).hexdigest()
    return term


def _typed(key: str, value: object) -> tuple[str, str]:
    match value:
        case None:
            return "null", ""
        case bool():
            return "bool", str(value)
        case int():
            return "number", str(value)
        case float() if math.isfinite(value):
            return "number", str(int(value)) if value.is_integer() else repr(value)
        case str():
            return "string", value
    raise InvalidInput(f"filter {key!r}: {value!r} must be a string, a finite number, a boolean or None")
