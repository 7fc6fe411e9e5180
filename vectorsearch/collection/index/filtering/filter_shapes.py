"""Filters in the shape of other libraries: as metadata they would mean something else, and find nothing. Pure."""

from __future__ import annotations

from typing import Any

_FIELDS = ("field", "key", "path")
_OPERATORS = ("operator", "op")
# What such an operator says, in whatever case; fields of this name that hold something else are fields.
_COMPARISONS = {
    **dict.fromkeys(("=", "==", "eq", "equal", "equals", "is"), "$eq"),
    **dict.fromkeys(("!=", "<>", "ne", "notequal", "not_equal", "not equal"), "$ne"),
    **dict.fromkeys((">", "gt", "greaterthan", "greater_than"), "$gt"),
    **dict.fromkeys((">=", "gte", "ge", "greaterthanequal", "greater_than_equal"), "$gte"),
    **dict.fromkeys(("<", "lt", "lessthan", "less_than"), "$lt"),
    **dict.fromkeys(("<=", "lte", "le", "lessthanequal", "less_than_equal"), "$lte"),
    **dict.fromkeys(("in", "any", "containsany", "contains_any"), "$in"),
    **dict.fromkeys(("not in", "not_in", "nin"), "$nin"),
    **dict.fromkeys(("contains", "like", "text_match"), "$contains"),
    **dict.fromkeys(("exists", "is_empty", "isnull", "is_null"), "$exists"),
}
_JUNCTIONS = {
    **dict.fromkeys(("and", "all", "must", "conditions", "filters", "operands", "filter", "bool", "query"), "$and"),
    **dict.fromkeys(("or", "any", "should"), "$or"),
    **dict.fromkeys(("not", "none", "must_not", "mustnot"), "$not"),
}
_CLAUSES = frozenset({"term", "terms", "match", "range", "exists", "prefix", "wildcard", "match_phrase"})


def foreign_shape(wanted: dict[Any, Any]) -> str | None:
    """Return how a filter that another library would take is said here; None for what may be a filter of ours.

    `{"field": "year", "operator": ">=", "value": 2019}` is Haystack's, with other names LlamaIndex's and Weaviate's;
    what Qdrant and Elasticsearch take has lists of mappings and mappings of them, which no field is asked for.
    """
    operator = next((wanted[name] for name in _OPERATORS if name in wanted), None)
    field = next((wanted[name] for name in _FIELDS if isinstance(wanted.get(name), str | list)), None)
    if isinstance(operator, str) and field is not None:
        ours = _COMPARISONS.get(operator.lower())
        name = ".".join(map(str, field)) if isinstance(field, list) else field.removeprefix("meta.")
        value = next((asked for key, asked in wanted.items() if str(key).startswith("value")), "…")
        return None if ours is None else f"{{{name!r}: {{{ours!r}: {value!r}}}}}"
    for key, asked in wanted.items():
        if not isinstance(key, str) or not isinstance(asked, dict | list) or _is_ours(asked):
            continue
        is_parts = isinstance(asked, dict) or any(isinstance(part, dict) for part in asked)
        if is_parts and (ours := _JUNCTIONS.get(key.lower())):
            return f"{{{ours!r}: …}}"
        if (key in _CLAUSES and isinstance(asked, dict)) or key == "key":
            return "{'year': {'$gte': 2019}}, the field first and then its operators"
    return None


def _is_ours(asked: object) -> bool:
    """Tell whether a field may be asked for so: a mapping that has an operator of ours."""
    return isinstance(asked, dict) and any(str(key).startswith("$") for key in asked)
