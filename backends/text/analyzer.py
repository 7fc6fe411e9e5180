"""Text to words: one analyser for every lexical engine and for feature models, so that they find the same documents."""

from __future__ import annotations

import hashlib
import threading
import unicodedata
from functools import cached_property
from importlib.metadata import version
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from backends.errors import InvalidInput
from backends.text import hindi
from backends.text.languages import LANGUAGES, language_code
from backends.text.spelling import fold, without_accents
from backends.text.words import NON_JOINER, as_written_together, cut, parts, pieces, places, units

if TYPE_CHECKING:
    import re
    from collections.abc import Collection
    from collections.abc import Set as AbstractSet

_VERSION = 3
_LONGEST_WORD = 128  # characters; what is longer is data, and is found by its beginning
_REMEMBERED = 200_000


class Analyzer:
    """Cut text into words: folded (`spelling.fold`), `_` `.` `-` and other signs between words.

    With a `language` ("en", see `languages`), its stop words are dropped and the others reduced to Snowball's stems;
    None does neither. `stop_words` are dropped in place of the language's own: none for an empty collection, and None
    for its own. With `fold_accents`, `é` is `e`.

    Raises:
        InvalidInput: a language that it has no stemmer for, or a stop word that is no single word.
    """

    def __init__(
        self, language: str | None, *, stop_words: Collection[str] | None = None, fold_accents: bool = False
    ) -> None:
        self.language = None if language is None else language_code(language)
        if not isinstance(fold_accents, bool):
            raise InvalidInput(f"fold_accents is {fold_accents!r}: it is True or False")
        self._fold_accents = fold_accents
        self._stems: dict[str, str] = {}  # words recur, and asking Tantivy for one takes longer than a look-up
        self._lock = threading.Lock()  # Tantivy's analyser is used by one thread at a time
        self.has_own_stop_words = (
            stop_words is None and self.language is not None and LANGUAGES[self.language].stop_words
        )
        self._stop_words: frozenset[str] = frozenset()
        if stop_words is not None:
            self._stop_words = frozenset(self._as_stop_word(word) for word in listed(stop_words))

    @property
    def stop_words(self) -> tuple[str, ...]:
        """Return the stop words that were given, as they are compared, in order."""
        return tuple(sorted(self._stop_words))

    @cached_property
    def fingerprint(self) -> str:
        """Return what changes whenever this analyser may cut a text otherwise."""
        stops = (
            "own"
            if self.has_own_stop_words
            else hashlib.sha256("\n".join(sorted(self._stop_words)).encode()).hexdigest()[:16]
        )
        accents = "no accents" if self._fold_accents else "accents"
        libraries = f"{version('tantivy')}, unicode {unicodedata.unidata_version}"
        return f"words-{_VERSION}:{self.language}:{accents}:stop words {stops}:{libraries}"

    def words(self, text: str) -> list[str]:
        """Return the words of a document or a query, in order; a text without any gives an empty list.

        In scripts without spaces they are characters and pairs of them. A word of Arabic script that a non-joiner parts
        is its pieces and the whole, for texts that write it apart or together.
        """
        if text.isascii() and self.language != "tr":
            return self._kept(cut(text.lower(), self.language))
        words: list[str] = []
        for part, unspaced in parts(fold(text, self.language)):
            if unspaced:
                characters = units(part)
                words += self._unstopped([*characters, *map("".join, pairwise(characters))])
            else:
                found = cut(part, self.language)
                if NON_JOINER in part:
                    found = [piece for word in found for piece in _with_pieces(word)]
                words += self._kept(found)
        return words

    def sequences(self, phrase: str) -> list[list[str]]:
        """Return the words of a phrase as `words` gives them side by side: one list, or more where they aren't.

        Stop words are left out, so a phrase spans them.
        """
        found: list[list[str]] = []
        for part, unspaced in parts(fold(phrase, self.language)):
            if unspaced:
                found.append(self._unstopped(units(part)))
                continue
            run: list[str] = []
            for word in cut(part, self.language):
                if len(pieces(word)) > 1:
                    found += [self._kept(run), self._kept(pieces(word))]
                    run = []
                else:
                    run.append(word)
            found.append(self._kept(run))
        return [sequence for sequence in found if sequence]

    def spans(self, text: str, wanted: AbstractSet[str]) -> list[tuple[int, int]]:
        """Return where in `text` the words are that `words` would give as one of `wanted`: (start, end), in order.

        In a script without spaces a character that was asked for beside another is marked where it is beside it, and
        alone only if nothing else is to be marked. Spans that touch are one.
        """
        found = [match for match in places(text) if not wanted.isdisjoint(self.words(match.group()))]
        spans: list[tuple[int, int]] = []
        for match in self._beside(found, wanted) or found:
            if spans and spans[-1][1] == match.start():
                spans[-1] = (spans[-1][0], match.end())
            else:
                spans.append(match.span())
        return spans

    def _beside(self, found: list[re.Match[str]], wanted: AbstractSet[str]) -> list[re.Match[str]]:
        """Return the places without characters that are wanted in pairs, and are in none of these here."""
        paired = {unit for word in wanted if len(word) > 1 for unit in units(word)}
        if not paired:
            return found
        kept = {n for n, match in enumerate(found) if paired.isdisjoint(self.words(match.group()))}
        for n, (one, other) in enumerate(pairwise(found)):
            if one.end() == other.start():
                apart = {*self.words(one.group()), *self.words(other.group())}
                if not wanted.isdisjoint(set(self.words(one.group() + other.group())) - apart):
                    kept |= {n, n + 1}
        return [found[n] for n in sorted(kept)]

    def _unstopped(self, words: list[str]) -> list[str]:
        return [word for word in words if word not in self._stop_words] if self._stop_words else words

    def _kept(self, words: list[str]) -> list[str]:
        """Return the stems of words that aren't stop words."""
        stems = list(map(self._stems.get, words))
        if None in stems:
            stems = [self._stem(word) if stem is None else stem for word, stem in zip(words, stems, strict=True)]
        return list(filter(None, stems))

    def _stem(self, word: str) -> str:
        """Return the stem, or nothing for a stop word."""
        with self._lock:
            stem = self._stemmed(word)
            if len(self._stems) >= _REMEMBERED:
                self._stems.clear()
            self._stems[word] = stem
        return stem

    def _stemmed(self, word: str) -> str:
        whole = as_written_together(word)[:_LONGEST_WORD]
        if whole == word and self.has_own_stop_words and not self._not_listed.analyze(word):
            return ""  # an abbreviation such as "I.T." is no stop word
        compared = without_accents(whole) if self._fold_accents else whole
        if compared in self._stop_words:
            return ""
        if self.language is None:
            return compared
        return hindi.stem(compared) if self.language == "hi" else "".join(self._snowball.analyze(compared))

    def _as_stop_word(self, given: object) -> str:
        """Return a stop word as it is compared.

        Raises:
            InvalidInput: it is no text, or not exactly one word.
        """
        found = (
            [part for part in parts(fold(given, self.language)) if part[0].strip()] if isinstance(given, str) else []
        )
        if len(found) == 1:
            part, unspaced = found[0]
            words = units(part) if unspaced else cut(part, self.language)
            # In an unspaced script, words of one or two characters are what is looked for.
            if len(words) == 1 or (unspaced and len(words) == 2):  # noqa: PLR2004 -- a pair
                word = as_written_together("".join(words))[:_LONGEST_WORD]
                return without_accents(word) if self._fold_accents else word
        raise InvalidInput(f"stop word {given!r} is no single word here: give words one by one")

    @cached_property
    def _snowball(self) -> Any:  # noqa: ANN401 -- Tantivy's own type
        return _tantivy_filter("stemmer", LANGUAGES[self.language or "en"].name)

    @cached_property
    def _not_listed(self) -> Any:  # noqa: ANN401 -- Tantivy's own type
        return _tantivy_filter("stopword", LANGUAGES[self.language or "en"].name)


def _with_pieces(word: str) -> list[str]:
    found = pieces(word)
    return [word] if len(found) == 1 else [*found, word]


def _tantivy_filter(kind: str, language: str) -> Any:  # noqa: ANN401 -- Tantivy's own type
    from tantivy import Filter, TextAnalyzerBuilder, Tokenizer  # noqa: PLC0415 -- loaded by the first text, not before

    return TextAnalyzerBuilder(Tokenizer.raw()).filter(getattr(Filter, kind)(language)).build()


def listed(stop_words: object) -> list[Any]:
    """Return stop words as a list.

    Raises:
        InvalidInput: they are none, such as a text, which would be taken for its characters.
    """
    if isinstance(stop_words, str | bytes) or not hasattr(stop_words, "__iter__"):
        raise InvalidInput(
            f"stop_words is {stop_words!r}: give a list of words, [] for none, or leave them out for the language's"
        )
    return list(stop_words)
