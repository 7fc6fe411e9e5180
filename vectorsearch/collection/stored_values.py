"""The one form in which metadata keeps what JSON has no type for; filters bring what is asked into the same form. Pure.

    date                    "2020-01-31"
    datetime                "2020-01-31T12:00:00.000000Z": in UTC, microseconds always; without a zone it is in UTC
    time without a zone     "12:00:00.000000"
    Decimal                 the number that is written the same, 19.99; refused if no float is
    UUID                    its text; an Enum its value
    NumPy's scalars         what they hold; datetime64 a date or datetime, an array a list

A document gives them back in this form. Whatever else is refused: it would have to be guessed when it is asked for.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from typing import Any
from uuid import UUID

import numpy as np

from backends.errors import InvalidInput

_MOMENT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?(Z|[+-][0-9]{2}:?[0-9]{2})?)?"
)
_SHORTEST = len("2020-01-31")
_MOST_DIGITS = 400  # of a whole Decimal: 1E+999999 has few of its own, and would be written out
_HINTS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    ((bytes, bytearray, memoryview), "decode it to text"),
    ((set, frozenset), "give a list, in an order of your own"),
    ((timedelta, np.timedelta64), "give a number, such as its total_seconds()"),
    (time, "leave out its zone, or give a datetime"),
    (Decimal, "no float is written so: give a float, or text if it isn't to be compared as a number"),
    (float, "leave the key out, or give None"),
)


def plain_scalar(value: object) -> Any:  # noqa: ANN401 -- whatever the caller gave
    """Return a value as JSON's text, number, boolean or None; dates and datetimes stay as Python's, without NumPy.

    What is none of these comes back as it is.

    Raises:
        ValueError: it has no form; the message tells the next step.
    """
    if value is np.ma.masked:
        raise ValueError("it is masked: leave the key out, or give None")
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, np.generic) and not isinstance(value, np.timedelta64):
        value = _of_numpy(value) if isinstance(value, np.datetime64) else value.item()
    match value:
        case datetime():
            return _checked(value)
        case Decimal():
            return _number(value)
        case UUID():
            return str(value)
        case time() if value.tzinfo is None:
            return value.isoformat(timespec="microseconds")
    return value


def stored_form(value: object) -> Any:  # noqa: ANN401 -- as above
    """Return a value as `plain_scalar`, and dates and datetimes as their text; raises what that does."""
    plain = plain_scalar(value)
    if isinstance(plain, datetime):
        return moment(plain)
    return plain.isoformat() if isinstance(plain, date) else plain


def moment(value: date) -> str:
    """Return the moment of a datetime, or at which a date begins in UTC, as text whose order is that of the moments.

    Raises:
        ValueError: in UTC it lies before the year 1 or after 9999.
    """
    if not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day, tzinfo=UTC)
    aware = value if value.utcoffset() is not None else value.replace(tzinfo=UTC)
    try:
        utc = aware.astimezone(UTC).replace(tzinfo=None)
    except OverflowError as exc:
        raise ValueError("in UTC it lies outside the years 1 to 9999: give text") from exc
    # Not of `value` itself, which may be of a class whose text has more digits.
    return datetime.isoformat(utc, timespec="microseconds")[:26] + "Z"


@lru_cache(maxsize=4096)
def moment_in(text: str) -> str | None:
    """Return the moment that a text states, if it is nothing but a date or time by ISO 8601; else None.

    Without a zone it is in UTC, a date is when it begins, and what is finer than a microsecond doesn't count.
    """
    if len(text) < _SHORTEST or text[4] != "-" or _MOMENT.fullmatch(text) is None:
        return None
    try:
        return moment(datetime.fromisoformat(text))
    except ValueError:  # the 31st of February
        return None


def refusal(what: str, value: object, reason: str = "") -> InvalidInput:
    """Return the error for a value that has no form: `what` names where it is."""
    hint = reason or next((hint for kinds, hint in _HINTS if isinstance(value, kinds)), "give its text, str(value)")
    shown = repr(value)
    shown = shown if len(shown) <= 100 else f"{shown[:100]}…"  # noqa: PLR2004 -- enough to recognise it
    return InvalidInput(
        f"{what}: {shown}, a {type(value).__name__}, can't be stored: {hint}; "
        "what can be is text, a finite number, a boolean, None, a date or a datetime"
    )


def _checked(value: datetime) -> datetime:
    if value != value:  # noqa: PLR0124 -- pandas' NaT, a datetime that equals nothing
        raise ValueError("it is no moment: leave the key out, or give None")
    if getattr(value, "nanosecond", 0):
        raise ValueError("it has nanoseconds, and microseconds are kept: round it, .round('us'), or give text")
    moment(value)
    return value


def _of_numpy(value: np.datetime64) -> date | datetime:
    if np.isnat(value):
        raise ValueError("it is no moment: leave the key out, or give None")
    is_date = np.datetime_data(value.dtype)[0] in ("Y", "M", "W", "D")
    fine = value.astype("datetime64[D]" if is_date else "datetime64[us]")
    if fine != value:
        raise ValueError("it has parts of a microsecond, and microseconds are kept: round it, or give text")
    plain = fine.item()
    if not isinstance(plain, date):
        raise ValueError("it lies outside the years 1 to 9999: give text")  # noqa: TRY004 -- a value, not a type
    return plain


def _number(value: Decimal) -> float | int | Decimal:
    """Return the number that is written like the decimal; the decimal itself, which nothing takes, if there is none."""
    if not value.is_finite() or abs(value.adjusted()) > _MOST_DIGITS:
        return value
    if value == value.to_integral_value():
        return int(value)
    nearest = float(value)
    return nearest if math.isfinite(nearest) and Decimal(repr(nearest)) == value else value
