"""One form for what is written in several: case, composition, width, points, digits, apostrophes, the invisible."""

from __future__ import annotations

import re
import unicodedata

from backends.text.characters import IGNORABLE

# Aids to reading that most texts leave out: the points of Hebrew and Arabic, Arabic's stretching stroke, the dot below
# letters of Devanagari. Hamza and madda above a letter are among them, so that the forms of alef are one letter.
_POINTS = (
    "\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e8"
    "\u06ea-\u06ed\u08ca-\u08e1\u08e3-\u08ff\u093c"
)
# Letters of Arabic script that keyboards exchange: alef wasla, Persian kaf and yeh, alef maksura, Urdu's heh and yeh.
_EXCHANGED = "\u0671\u06a9\u06cc\u0649\u06c1\u06d2"
_EXCHANGES = str.maketrans(_EXCHANGED, "\u0627\u0643\u064a\u064a\u0647\u064a")
_DOTLESS = "\u0131"
# Accented letters that Unicode doesn't take apart.
_UNACCENTED = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ð": "d", "ħ": "h", _DOTLESS: "i", "ŧ": "t", "þ": "th", "æ": "ae", "œ": "oe"}
)
_CEDILLA_TO_COMMA = str.maketrans("şţ", "șț")

# Between letters of Arabic script, the zero-width non-joiner parts a word, as Persian writes: it stays.
_ARABIC = "\u0620-\u06ff"
_IGNORED = re.compile(f"[{IGNORABLE}](?:(?<![{_ARABIC}]\u200c)|(?![{_ARABIC}]))")
_APOSTROPHES = "\u2018\u2019\u201b\u02bb\u02bc"
_STRESS = re.compile("([аеиоуыэюяєіѣѵ]\u0308?)[\u0300\u0301]+")  # of Cyrillic, for learners
# Only where one of these is left after Unicode's own folding is there more to do.
_SPECIAL = re.compile(
    f"[{_POINTS}{_EXCHANGED}{IGNORABLE}\u0300\u0301\u0307\u0450\u045d\u0622-\u0626\u06c0\u06c2\u06d3\u0929\u0931\u0934]"
    r"|[^\D0-9]"
)
_ACCENTS = re.compile("[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff]+")


class _Replacements(dict[int, str]):
    """What replaces a character of a text taken apart, for `str.translate`; asked once for each that occurs."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        if _POINT.match(character):
            new = ""
        elif character.isdecimal():
            new = str(unicodedata.decimal(character))
        else:
            new = character.translate(_EXCHANGES)
        self[code] = new
        return new


_POINT = re.compile(f"[{_POINTS}]")
_REPLACEMENTS = _Replacements()


def fold(text: str, language: str | None = None) -> str:
    """Return the form that all spellings of a text share; folding it again changes nothing.

    It is Unicode's NFKC_Casefold and some more. A capital i with a dot is `i`, points of Hebrew and Arabic and stress
    marks of Cyrillic are dropped, letters of Arabic script that keyboards exchange are one, digits of any script are 0
    to 9 and all apostrophes straight. What is left invisible is the non-joiner inside a word of Arabic script. In
    Turkish (`tr`), `I` is the capital of the i without a dot; in Romanian (`ro`), a cedilla is a comma.
    """
    text = unicodedata.normalize("NFKC", text).replace("İ", "i")
    if language == "tr":
        text = text.replace("I", _DOTLESS)
    folded = unicodedata.normalize("NFKC", text.casefold())
    if _SPECIAL.search(folded):
        # What is ignored goes first, since it keeps letters and marks apart.
        folded = unicodedata.normalize("NFKC", _IGNORED.sub("", text).casefold())
        folded = _IGNORED.sub("", unicodedata.normalize("NFD", folded)).replace("i\u0307", "i")
        folded = unicodedata.normalize("NFC", _STRESS.sub(r"\1", folded.translate(_REPLACEMENTS)))
    if language == "ro":
        folded = folded.translate(_CEDILLA_TO_COMMA)
    for apostrophe in _APOSTROPHES:
        folded = folded.replace(apostrophe, "'")
    return folded


def without_accents(word: str) -> str:
    """Return a folded word without accents: `é` is `e` and `ø` is `o`; `й` stays, being no accented letter."""
    if word.isascii():
        return word
    apart = unicodedata.normalize("NFD", word).replace("и\u0306", "й")
    return unicodedata.normalize("NFC", _ACCENTS.sub("", apart)).translate(_UNACCENTED)
