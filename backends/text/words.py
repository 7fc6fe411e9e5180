"""Where words begin and end: in a folded text, to index them, and in a text as it was given, to mark them."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from backends.text.characters import BECOMING_LETTERS, EMOJI, FLAG_LETTERS, IGNORABLE, MARKS, UNSPACED, UNSPACED_MARKS

if TYPE_CHECKING:
    from collections.abc import Iterator

NON_JOINER = "\u200c"
_SIGNED = r"(?<!\w)[a-z](?:\+\+|#)(?!\w)"  # C++, C#, F#: without the sign they are other languages
_RUN = f"[^\\W_]+(?:[{MARKS}]+[^\\W_]*)*"
_RUNS = f"{_RUN}(?:{NON_JOINER}{_RUN})*"
# One letter before each point: MARKS has letters between its marks, as in Devanagari.
_ABBREVIATED = f"(?<![\\w.])(?:[^\\W\\d_](?:(?!\\w)[{MARKS}])*\\.){{2,}}(?!\\w)"
_SIGNS = f"[{FLAG_LETTERS}]{{2}}|[{EMOJI}]"
_ASCII_RUN = "[a-z0-9]+"
_ASCII_ABBREVIATED = r"(?<![\w.])(?:[a-z]\.){2,}(?!\w)"
# The stemmer takes "reader's" to "reader"; cut at the apostrophe, a stray "s" would count as a word. In Turkish, what
# follows a name's apostrophe are endings of the language, which the stemmer cuts off together with it.
_KEEPING_APOSTROPHES = ("en", "tr")

_UNSPACED_RUN = re.compile(f"([{UNSPACED}]+)")
_UNIT = re.compile(f"[{UNSPACED}][{UNSPACED_MARKS}]*")

_INSIDE = f"{MARKS}{IGNORABLE}{BECOMING_LETTERS}"
_AS_GIVEN = f"(?:(?![{UNSPACED}])(?:[^\\W_]|[{_INSIDE}]))+"
# A character of an unspaced script, a name with a sign, an abbreviation, a word with its apostrophes, an emoji.
_HIGHLIGHTED = re.compile(
    f"[{UNSPACED}][{UNSPACED_MARKS}{IGNORABLE}]*"
    f"|[^\\W_][{IGNORABLE}]*(?:\\+\\+|#)(?!\\w)"
    f"|(?<![\\w.])(?:(?![{UNSPACED}])[^\\W\\d_](?:(?!\\w)[{_INSIDE}])*\\.){{2,}}(?!\\w)"
    f"|{_AS_GIVEN}(?:['\u2018\u2019\u201b\u02bb\u02bc\uff07]{_AS_GIVEN})*"
    f"|[{FLAG_LETTERS}]{{2}}|[{EMOJI}][{IGNORABLE}]*"
)


def parts(folded: str) -> Iterator[tuple[str, bool]]:
    """Yield a folded text in parts, each with whether its script has no spaces between words."""
    # The pattern has one group, so the odd parts are the unspaced runs.
    for number, part in enumerate(_UNSPACED_RUN.split(folded)):
        yield part, bool(number % 2)


def units(part: str) -> list[str]:
    """Return the characters of an unspaced part, each with its marks."""
    return _UNIT.findall(part)


def cut(part: str, language: str | None) -> list[str]:
    """Return the words of a folded part whose script has spaces.

    An abbreviation keeps its points ("u.s."), and so does a word of Arabic script its non-joiners.
    """
    return _pattern(language in _KEEPING_APOSTROPHES, part.isascii()).findall(part)


def pieces(word: str) -> list[str]:
    """Return the parts of a word that are written together with non-joiners; a single one of any other word."""
    return word.split(NON_JOINER)


def as_written_together(word: str) -> str:
    """Return a word without what parts it inside: `u.s.` is `us`."""
    return word.replace(NON_JOINER, "").replace(".", "")


def places(text: str) -> Iterator[re.Match[str]]:
    """Yield the words of a text as it was given: each match is one, folding into one word or more."""
    return _HIGHLIGHTED.finditer(text)


@cache
def _pattern(apostrophes: bool, ascii_only: bool) -> re.Pattern[str]:  # noqa: FBT001 -- of this file
    run, abbreviated = (_ASCII_RUN, _ASCII_ABBREVIATED) if ascii_only else (_RUNS, _ABBREVIATED)
    word = f"{run}(?:'{run})*" if apostrophes else run
    return re.compile("|".join([_SIGNED, abbreviated, word, *([] if ascii_only else [_SIGNS])]))
