"""Text to words."""

from __future__ import annotations

import threading

import pytest

from backends.analyzer import Analyzer
from backends.errors import InvalidInput


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The readers' running of csv.reader", ["reader", "run", "csv", "reader"]),
        ("multi-agent read_csv a/b", ["multi", "agent", "read", "csv", "b"]),
        ("C++ and C# but i++ or c++11 issue#12", ["c++", "c#", "i++", "c", "11", "issu", "12"]),
        ("R", ["r"]),
        ("what's don\u2019t", ["what", "don't"]),
        ("我喜欢", ["我", "喜", "欢", "我喜", "喜欢"]),
        ("py我s", ["py", "我", "s"]),
        ("ﬁne CAFÉ cafe\u0301 Straße", ["fine", "café", "café", "strass"]),
        ("हिन्दी", ["हिन्दी"]),
        ("the of and", []),
        ("…!? \0 \ud800", []),
    ],
)
def test_words_are_cut_when_the_language_is_english(text: str, words: list[str]) -> None:
    """Case, composition, signs, stems, stop words, scripts without spaces: each has its rule."""
    assert Analyzer("en").words(text) == words


def test_words_are_left_whole_when_there_is_no_language() -> None:
    """Without a language nothing is stemmed or dropped, and an apostrophe separates."""
    assert Analyzer(None).words("The readers running l'homme") == ["the", "readers", "running", "l", "homme"]


def test_a_word_is_cut_when_it_is_very_long() -> None:
    """Data without a space is found by its beginning: no term is longer than what Tantivy keeps."""
    for language in (None, "en"):
        assert max(map(len, Analyzer(language).words("x" * 100_000 + " y"))) <= 128


def test_a_language_is_refused_when_it_is_unknown() -> None:
    """The message names the languages that there are."""
    with pytest.raises(InvalidInput, match="'tlh' is unknown: use None or one of da, de, en"):
        Analyzer("tlh")


def test_every_language_stems_when_it_is_asked_for() -> None:
    """Each language on offer has a stemmer and a stop list in the engine."""
    for language in ("da", "de", "en", "es", "fi", "fr", "hu", "it", "nl", "no", "pt", "ru", "sv"):
        assert Analyzer(language).words("universum")


def test_fingerprints_differ_when_analysers_do() -> None:
    """An index built with one language is never read with another."""
    assert len({Analyzer(language).fingerprint for language in ("en", "de", None)}) == 3


def test_words_are_the_same_when_threads_share_an_analyser() -> None:
    """Many threads cutting texts of ever new words at once get what one thread gets."""
    shared, texts = Analyzer("en"), [" ".join(f"running{i}{j}ing" for j in range(50)) for i in range(40)]
    wanted = [Analyzer("en").words(text) for text in texts]
    found: list[list[list[str]]] = []
    threads = [threading.Thread(target=lambda: found.append([shared.words(text) for text in texts])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [wanted] * 4


@pytest.mark.parametrize(
    ("text", "query", "marked"),
    [
        ("Parsing CSV files: he parses.", "parse csv", ["Parsing", "CSV", "parses"]),
        ("Café, cafe\u0301 and CAFÉ", "café", ["Café", "cafe\u0301", "CAFÉ"]),
        ("我喜欢苹果 apples", "苹果 apple", ["苹果", "apples"]),
        ("用pythonの本", "python", ["python"]),
        ("\uff46\uff55\uff4c\uff4c width", "full", ["\uff46\uff55\uff4c\uff4c"]),
        ("C++ and C# and c", "c++", ["C++"]),
        ("the reader's view", "reader", ["reader's"]),
        ("nothing here", "apple", []),
        ("", "apple", []),
        ("AND ( NEAR \x00", 'NEAR("', ["NEAR"]),
    ],
)
def test_words_are_marked_where_they_stand_when_a_query_has_them(text: str, query: str, marked: list[str]) -> None:
    """Spans are offsets into the text as it was given, and cover every form that the index takes for the word."""
    analyzer = Analyzer("en")
    spans = analyzer.spans(text, set(analyzer.words(query)))
    assert [text[start:end] for start, end in spans] == marked
