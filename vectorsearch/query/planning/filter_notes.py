"""Why a filter may not say what was meant: fields that no document has, and values of another kind than a field holds.

It is asked where a filter has let nothing through, and looks at a few documents; and where a filter asks that a field
isn't something, which a mistyped name lets all through.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vectorsearch.collection.index.filtering.filters import MOMENT
from vectorsearch.collection.stored_values import moment_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vectorsearch.collection.collection import Collection

_LOOKED_AT = 50  # documents
_NAMED = 8  # fields
_NEGATIVE = ("$ne", "$nin", "$exists", "$not")  # they hold where the field is absent, so the kind is never amiss


def filter_notes(collection: Collection, wanted: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what is amiss with a filter, which is in plain values, in words: empty if nothing is seen."""
    unknown = collection.unknown_fields(wanted)
    notes = [_unknown(collection, field) for field in unknown]
    asked: dict[str, dict[str, Any]] = {}
    for field, kind, value in _comparisons(wanted):
        if field not in unknown:
            asked.setdefault(field, {}).setdefault(kind, value)
    for field, kinds in asked.items():
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


def denial_notes(collection: Collection, wanted: Mapping[str, Any]) -> tuple[str, ...]:
    """Return which fields no document has of which a filter asks that they aren't something: that lets all through."""
    if not any(operator in _NEGATIVE for operator in _operators(wanted)):
        return ()
    return tuple(_unknown(collection, field) for field in collection.unknown_fields(wanted))


def _unknown(collection: Collection, field: str) -> str:
    return f"filter: field {field!r} is in no document{_instead(collection, field)}"


def _operators(wanted: object) -> Iterator[str]:
    """Yield every operator of a filter, at whatever depth."""
    if isinstance(wanted, Mapping):
        for name, asked in wanted.items():
            if name.startswith("$"):
                yield name
            yield from _operators(asked)
    elif isinstance(wanted, list):
        for part in wanted if any(isinstance(part, Mapping) for part in wanted) else ():
            yield from _operators(part)


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
