"""Text to words: one analyser for every lexical engine and for feature models, so that they find the same documents."""

from __future__ import annotations

import re
import threading
import unicodedata
from functools import cached_property
from importlib.metadata import version
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from backends.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Set as AbstractSet

_VERSION = 1
# Snowball's names of the languages that Tantivy has both a stemmer and a stop list for.
_LANGUAGES = {
    "da": "danish",
    "de": "german",
    "en": "english",
    "es": "spanish",
    "fi": "finnish",
    "fr": "french",
    "hu": "hungarian",
    "it": "italian",
    "nl": "dutch",
    "no": "norwegian",
    "pt": "portuguese",
    "ru": "russian",
    "sv": "swedish",
}
# Written without spaces between words (Thai, Lao, Burmese, Khmer; kana, Han, Hangul): single characters and pairs.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
# Marks belong to the letter before them, but `\w` leaves out the vowel signs of Arabic, Hebrew and Indic scripts.
_MARKS = (
    "\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06ed"
    "\u0900-\u0963\u0966-\u0dff\u1ab0-\u1aff\u1dc0-\u1dff"
)
_UNSPACED_RUN = re.compile(f"([{_UNSPACED}]+)")
_LETTER = f"(?:[^\\W_]|[{_MARKS}])"
_NAMED_BY_SIGN = r"(?<!\w)[a-z](?:\+\+|#)(?!\w)"  # C++, C#, F#: without the sign they are other languages
_WORD = re.compile(f"{_NAMED_BY_SIGN}|{_LETTER}+")
# The stemmer takes "reader's" to "reader"; cut at the apostrophe, a stray "s" would count as a word.
_ENGLISH_WORD = re.compile(f"{_NAMED_BY_SIGN}|{_LETTER}+(?:'{_LETTER}+)*")
_LONGEST_WORD = 128  # characters; what is longer is data, and is found by its beginning
_REMEMBERED = 200_000
_SPACED = f"(?:(?![{_UNSPACED}]){_LETTER})+"
# What a highlight covers: a character of an unspaced script, or a word.
_HIGHLIGHTED = re.compile(f"[{_UNSPACED}]|[^\\W_](?:\\+\\+|#)(?!\\w)|{_SPACED}(?:['\u2019]{_SPACED})*")


class Analyzer:
    """Cut text into words: NFKC, case folded, `_` `.` `-` and other signs between words.

    With a `language` ("en"), its stop words are dropped and the others reduced to Snowball's stems; None does neither.

    Raises:
        InvalidInput: a language that it has no stemmer for.
    """

    def __init__(self, language: str | None) -> None:
        if language is not None and language not in _LANGUAGES:
            raise InvalidInput(f"language {language!r} is unknown: use None or one of {', '.join(_LANGUAGES)}")
        self.language = language
        self._word = _ENGLISH_WORD if language == "en" else _WORD
        self._stems: dict[str, str] = {}  # words recur, and asking Tantivy for one takes longer than a look-up
        self._lock = threading.Lock()  # Tantivy's analyser is used by one thread at a time

    @cached_property
    def fingerprint(self) -> str:
        """Return what changes whenever this analyser may cut a text otherwise."""
        return f"words-{_VERSION}:{self.language}:{version('tantivy')}"

    def words(self, text: str) -> list[str]:
        """Return the words of a document or a query, in order; a text without any gives an empty list."""
        if text.isascii():
            return self._stemmed(self._word.findall(text.lower()))
        words: list[str] = []
        for part, unspaced in _parts(text):
            if unspaced:
                words += part
                words += map("".join, pairwise(part))
            else:
                words += self._stemmed(self._word.findall(part))
        return words

    def sequences(self, phrase: str) -> list[list[str]]:
        """Return the words of a phrase as `words` gives them side by side: one list, or more where scripts change.

        Stop words are left out, so a phrase spans them.
        """
        found = [list(part) if u else self._stemmed(self._word.findall(part)) for part, u in _parts(phrase)]
        return [sequence for sequence in found if sequence]

    def spans(self, text: str, wanted: AbstractSet[str]) -> list[tuple[int, int]]:
        """Return where in `text` the words are that `words` would give as one of `wanted`: (start, end), in order.

        Spans that touch, as those of neighbours in a script without spaces do, are one.
        """
        spans: list[tuple[int, int]] = []
        for match in _HIGHLIGHTED.finditer(text):
            if wanted.isdisjoint(self.words(match.group())):
                continue
            if spans and spans[-1][1] == match.start():
                spans[-1] = (spans[-1][0], match.end())
            else:
                spans.append(match.span())
        return spans

    def _stemmed(self, words: list[str]) -> list[str]:
        if self.language is None:
            return [word[:_LONGEST_WORD] for word in words]
        stems = list(map(self._stems.get, words))
        if None in stems:
            stems = [self._stem(word) if stem is None else stem for word, stem in zip(words, stems, strict=True)]
        return list(filter(None, stems))

    def _stem(self, word: str) -> str:
        """Return the stem, or nothing for a stop word."""
        with self._lock:
            stem = "".join(self._snowball.analyze(word[:_LONGEST_WORD]))
            if len(self._stems) >= _REMEMBERED:
                self._stems.clear()
            self._stems[word] = stem
        return stem

    @cached_property
    def _snowball(self) -> Any:  # noqa: ANN401 -- Tantivy's own type
        from tantivy import Filter, TextAnalyzerBuilder, Tokenizer  # noqa: PLC0415 -- Tantivy is loaded by the first text, not before

        name = _LANGUAGES[self.language or "en"]
        builder = TextAnalyzerBuilder(Tokenizer.raw())
        return builder.filter(Filter.stopword(name)).filter(Filter.stemmer(name)).build()


def _parts(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the folded text in parts, each with whether its script has no spaces."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()).replace("\u2019", "'")
    # The pattern has one group, so the odd parts are the unspaced runs.
    for number, part in enumerate(_UNSPACED_RUN.split(folded)):
        yield part, bool(number % 2)
