"""Which language texts seem to be in: by their script, and in Latin letters by the share of stop words."""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING

from backends.text.analyzer import Analyzer
from backends.text.languages import LANGUAGES

if TYPE_CHECKING:
    from collections.abc import Iterable

_TEXTS = 200
_WORDS = 20_000
_FEWEST_WORDS = 50
_LEAST_SHARE = 0.15  # of words that the language's list has; other languages' texts have some as well
_LEAD = 1.25  # of the best over the next: Danish and Norwegian lists share most of their words
# Of languages that Tantivy has no list for: what stands in nearly every paragraph of theirs, and in no other's here.
_COMMON = {
    "ro": "și în este care pentru din fost sunt prin după între această către fiind sau dintre",
    "tr": "ve bir bu için olarak ile olan gibi daha çok sonra kadar ancak olduğu göre ise",
}
# A script of one language with a stemmer, and letters that only others have who write in it.
_SCRIPTS = {
    "ar": ("\u0620", "\u06ff", "پچژگٹڈڑںے"),
    "el": ("\u0370", "\u03ff", ""),
    "hi": ("\u0900", "\u097f", "ळ"),
    "ru": ("\u0400", "\u04ff", "іїєґўјљњћђџѓќәғқңөұүһ"),
    "ta": ("\u0b80", "\u0bff", ""),
}
_FOREIGN_SHARE = 0.003


def guess_language(texts: Iterable[str]) -> str | None:
    """Return the code of a language that can be stemmed and that the first texts seem to be in; None if unsure."""
    words = [word for text in islice(texts, _TEXTS) for word in Analyzer(None).words(text[:2000])][:_WORDS]
    words = [word for word in words if word.isalpha() or not word.isascii()]
    if len(words) < _FEWEST_WORDS:
        return None
    letters = Counter(character for word in words for character in word)
    for code, (first, last, foreign) in _SCRIPTS.items():
        share = sum(count for letter, count in letters.items() if first <= letter <= last) / letters.total()
        if share > 0.5:  # noqa: PLR2004 -- most of them
            return code if sum(letters[letter] for letter in foreign) / letters.total() < _FOREIGN_SHARE else None
    counts = Counter(words)
    shares = sorted(((_share(counts, code), code) for code in (*_listed(), *_COMMON)), reverse=True)
    (best, code), (next_best, _) = shares[:2]
    return code if best >= _LEAST_SHARE and best >= _LEAD * next_best else None


def _share(counts: Counter[str], code: str) -> float:
    if code in _COMMON:
        return sum(counts[word] for word in _COMMON[code].split()) / counts.total() * 2  # the lists are short
    analyzer = _analyzer(code)
    return sum(count for word, count in counts.items() if not analyzer.words(word)) / counts.total()


def _listed() -> list[str]:
    return [code for code, language in LANGUAGES.items() if language.stop_words]


@cache
def _analyzer(code: str) -> Analyzer:
    return Analyzer(code)
