"""Metadata as terms: one canonical form of (key, value), so that a filter means the same in every index.

1 and 1.0 are the same value, as in Python; `True` is another than 1, and `None` matches an explicit null only. A list
has one term per element, so a filter matches if any element equals its value.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from backends.errors import InvalidInput

if TYPE_CHECKING:
    from vectorsearch.types import Filter, Metadata, Scalar

_LONGEST = 200  # characters; Tantivy drops a term above 65,530 bytes without a word


def plain_filter(wanted: Filter) -> dict[str, Scalar]:
    """Return a copy of a caller's filter in plain values; NumPy's scalars become Python's, as in stored metadata.

    Raises:
        InvalidInput: no mapping, a key that isn't a string, or a value that isn't a string, number, boolean or None.
    """
    if not isinstance(wanted, Mapping):
        raise InvalidInput(f"the filter is {wanted!r}: give a mapping of metadata, such as {{'lang': 'en'}}")
    plain: dict[str, Scalar] = {}
    for key, given in wanted.items():
        value = given.item() if isinstance(given, np.generic) else given
        if not isinstance(key, str):
            raise InvalidInput(f"filter key {key!r} must be a string")
        if not _is_scalar(value):
            raise InvalidInput(f"filter {key!r}: {value!r} must be a string, a finite number, a boolean or None")
        plain[key] = value
    return plain


def filter_terms(wanted: Filter | None) -> tuple[str, ...]:
    """Return the terms that a document must all have, sorted; none for no filter.

    Raises:
        InvalidInput: as `plain_filter`, or a text that is not valid Unicode.
    """
    terms = set()
    for key, value in plain_filter(wanted or {}).items():
        try:
            term = _term(key, value)
            term.encode()
        except ValueError as exc:  # a lone surrogate, or a whole number of thousands of digits
            raise InvalidInput(f"filter {key!r} has a value that no document can have: {exc}") from exc
        terms.add(term)
    return tuple(sorted(terms))


def metadata_terms(metadata: Metadata) -> list[str]:
    """Return a document's terms, each once, sorted."""
    terms: set[str] = set()
    for key, value in metadata.items():
        elements = value if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
        # What lies deeper, mappings and lists in lists, is kept with the document but can't be filtered on.
        terms.update(_term(key, e) for e in elements if _is_scalar(e))
    return sorted(terms)


def _is_scalar(value: object) -> bool:
    return value is None or isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))


# Values recur from document to document; typed, because 1 and True are the same key otherwise.
@lru_cache(maxsize=16384, typed=True)
def _term(key: str, value: object) -> str:
    term = json.dumps([key, *_typed(value)], ensure_ascii=False, separators=(",", ":"))
    if len(term) > _LONGEST:
        return "#" + hashlib.blake2b(term.encode(), digest_size=16).hexdigest()
    return term


def _typed(value: object) -> tuple[str, str]:
    match value:
        case None:
            return "null", ""
        case bool():
            return "bool", str(value)
        case int():
            return "number", str(value)
        case float():
            return "number", str(int(value)) if value.is_integer() else repr(value)
    return "string", str(value)
