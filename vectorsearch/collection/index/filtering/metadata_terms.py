"""Metadata as terms: what a filter asks of a document's fields, in a form that every lexical engine can look up.

A term is a field's name, a letter for its kind, and a value whose order as text is the order of the values:

    7:version e           the field is there        7:version n bff0…    a number, 16 hexadecimal digits or more
    7:version l           … and holds a list        7:version s text     a string of up to 160 characters
    7:version z           … and is null             7:version t text#…   the beginning of a longer one, and its digest
    7:version b0, b1      a boolean                 7:version c text     a piece of a longer one
    7:version d 2020-…Z   a string that is a date or time by ISO 8601, beside its own term: the moment, in UTC

1 and 1.0 are the same value, as in Python; `True` is another than 1. A list has the terms of its elements.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from vectorsearch.collection.stored_values import moment_in

if TYPE_CHECKING:
    from vectorsearch.types import Metadata

TERMS_VERSION = 3  # raised whenever a document's terms change: indexes made with others are built again
LONGEST = 160  # characters of a string that a term holds whole; Tantivy drops terms above 65,530 bytes without a word
_PIECE = 512  # characters; pieces overlap by LONGEST, so that a text of that length lies whole in one of them
_SEARCHED = 4096  # characters of a long string that are cut into pieces
_NAME_NBYTES = 64


def metadata_terms(metadata: Metadata) -> list[str]:
    """Return a document's terms, each once, sorted."""
    terms: set[str] = set()
    for name, value in metadata.items():
        terms.add(prefix(name, "e"))
        elements: Sequence[object] = (value,)
        if isinstance(value, Sequence) and not isinstance(value, str):
            terms.add(prefix(name, "l"))
            elements = value
        for element in elements:
            # What lies deeper, mappings and lists in lists, is kept with the document but can't be filtered on.
            if is_scalar(element):
                terms.add(value_term(name, element))
                if isinstance(element, str):
                    if len(element) > LONGEST:
                        terms.update(_pieces(name, element))
                    elif stated := moment_in(element):
                        terms.add(prefix(name, "d") + stated)
    return sorted(terms)


def is_scalar(value: object) -> bool:
    """Tell whether a filter can ask for the value."""
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, (str, int))  # a tuple: twice as fast as `str | int`


@lru_cache(maxsize=4096)
def prefix(name: str, kind: str) -> str:
    """Return how a field's terms of one kind begin; its length makes a name the beginning of no other."""
    if len(encoded := name.encode()) > _NAME_NBYTES:
        return f"#{hashlib.blake2b(encoded, digest_size=16).hexdigest()}{kind}"
    return f"{len(name)}:{name}{kind}"


# Values recur from document to document; typed, because 1 and True are the same key otherwise.
@lru_cache(maxsize=16384, typed=True)
def value_term(name: str, value: object) -> str:
    """Return the term of a field that has the scalar, or an element that equals it."""
    match value:
        case None:
            return prefix(name, "z")
        case bool():
            return f"{prefix(name, 'b')}{int(value)}"
        case int() | float():
            return prefix(name, "n") + sortable_number(value)
    text = str(value)
    if len(text) <= LONGEST:
        return prefix(name, "s") + text
    return f"{prefix(name, 't')}{text[:LONGEST]}#{hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}"


def sortable_number(value: float) -> str:
    """Return text that sorts as the numbers do: the bits of the float64, and for a large integer what they leave out.

    An integer beyond every float sorts by its sign alone, so no filter takes one as a bound.
    """
    try:
        nearest = float(value) + 0.0  # -0.0 is 0.0
    except OverflowError:
        digest = hashlib.blake2b(hex(int(value)).encode(), digest_size=16).hexdigest()
        return sortable_number(math.inf if value > 0 else -math.inf) + digest
    (bits,) = struct.unpack(">Q", struct.pack(">d", nearest))
    bits ^= 0xFFFF_FFFF_FFFF_FFFF if bits >> 63 else 1 << 63
    if not 2**53 <= abs(nearest) < math.inf:
        return f"{bits:016x}"
    ulp = int(math.ulp(nearest))  # equal for all that share these bits, so the rest has one width
    return f"{bits:016x}{int(value) - int(nearest) + ulp:0{len(f'{2 * ulp:x}')}x}"


def _pieces(name: str, text: str) -> set[str]:
    searched = text[:_SEARCHED]
    step = _PIECE - LONGEST
    return {
        prefix(name, "c") + searched[start : start + _PIECE]
        for start in range(0, max(1, len(searched) - LONGEST), step)
    }
