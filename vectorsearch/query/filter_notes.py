"""Why a filter may find nothing: fields that no document has, and values of another kind than a field holds.

It is asked only where a filtered search has found nothing, and looks at a few documents.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vectorsearch.index.filters import MOMENT
from vectorsearch.stored_values import moment_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vectorsearch.collection import Collection

_LOOKED_AT = 50  # documents
_NAMED = 8  # fields
_NEGATIVE = ("$ne", "$nin", "$exists", "$not")  # they hold where the field is absent, so nothing is amiss


def filter_notes(collection: Collection, wanted: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what is amiss with a filter, which is in plain values, in words: empty if nothing is seen."""
    notes = []
    asked: dict[str, dict[str, Any]] = {}
    for field, kind, value in _comparisons(wanted):
        asked.setdefault(field, {}).setdefault(kind, value)
    unknown = collection.unknown_fields(wanted)
    for field, kinds in asked.items():
        if field in unknown:
            notes.append(f"filter: field {field!r} is in no document{_instead(collection, field)}")
            continue
        held: dict[str, Any] = {}
        examples = collection.examples(field, _LOOKED_AT)
        for value in examples:
            held |= dict.fromkeys(_kinds(value), value)
        if held and held.keys().isdisjoint(kinds):
            kind, value = next(iter(held.items()))
            notes.append(
                f"filter: field {field!r} is compared with {' and '.join(kinds)}, and holds {' and '.join(held)}, such "
                f"as {value!r:.60} ({len(examples)} of the documents that have it were looked at)"
            )
    return tuple(notes)


def _comparisons(wanted: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield the field, kind and value of each comparison that must hold, or may."""
    for name, asked in wanted.items():
        if name in ("$and", "$or"):
            for part in asked:
                yield from _comparisons(part)
        elif not name.startswith("$"):
            is_value = not isinstance(asked, Mapping) or MOMENT in asked
            for operator, operand in ({"$eq": asked} if is_value else asked).items():
                if operator not in _NEGATIVE:
                    for value in operand if operator == "$in" else [operand]:
                        yield name, _asked_kind(value), value


def _asked_kind(value: object) -> str:
    return "a moment" if isinstance(value, Mapping) else _kinds(value)[0]


def _kinds(value: object) -> list[str]:
    """Return what a stored value can be compared with; a list is its elements, and an empty one nothing."""
    match value:
        case None:
            return ["null"]
        case bool():
            return ["a boolean"]
        case int() | float():
            return ["a number"]
        case str():
            return ["text", "a moment"] if moment_in(value) else ["text"]
        case Sequence():
            return [kind for element in value for kind in _kinds(element)]
    return ["a mapping, which no filter looks into"]


def _instead(collection: Collection, field: str) -> str:
    """Return which fields there are, of the first documents."""
    documents = collection.first(_LOOKED_AT)
    names = list(dict.fromkeys(name for each in documents for name in each.metadata))
    if field.partition(".")[0] in names:
        return ": filters don't look into mappings, so store it as a field of its own"
    if close := difflib.get_close_matches(field, names, n=1):
        return f": did you mean {close[0]!r}?"
    more = ", …" if len(names) > _NAMED else ""
    return f"; fields are {', '.join(map(repr, names[:_NAMED]))}{more}" if names else "; no document has metadata"
