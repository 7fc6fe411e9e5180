"""Text to words."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from backends.errors import InvalidInput
from backends.text.analyzer import Analyzer
from backends.text.languages import LANGUAGES


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
        ("the U.S.A. and e.g. I.T. but end. Of line", ["usa", "eg", "it", "end", "line"]),
        (
            "\U0001f44d\U0001f3fd \U0001f1e9\U0001f1ea ok\u2764\ufe0f",
            ["\U0001f44d", "\U0001f1e9\U0001f1ea", "ok", "\u2764"],
        ),
        ("…!? \0 \ud800", []),
    ],
)
def test_words_are_cut_when_the_language_is_english(text: str, words: list[str]) -> None:
    """Case, composition, signs, stems, stop words, scripts without spaces: each has its rule."""
    assert Analyzer("en").words(text) == words


def test_words_are_left_whole_when_there_is_no_language() -> None:
    """Without a language nothing is stemmed or dropped, and an apostrophe separates."""
    assert Analyzer(None).words("The readers running l'homme") == ["the", "readers", "running", "l", "homme"]


def test_sentences_without_a_space_are_no_abbreviation_when_they_have_marks() -> None:
    """Only single letters, each with its marks, make an abbreviation: whole words between points stay words."""
    analyzer = Analyzer(None)
    assert analyzer.words("किताब.नदी. ए.पी.जे. कलाम") == ["किताब", "नदी", "एपीजे", "कलाम"]
    text = "ए.पी.जे. कलाम"
    assert [text[start:end] for start, end in analyzer.spans(text, {"एपीजे"})] == ["ए.पी.जे."]
    assert analyzer.words("1\ufe0f\u20e3") == ["1"]


def test_a_word_is_cut_when_it_is_very_long() -> None:
    """Data without a space is found by its beginning: no term is longer than what Tantivy keeps."""
    for language in (None, "en"):
        assert max(map(len, Analyzer(language).words("x" * 100_000 + " y"))) <= 128


def test_a_language_is_refused_when_it_is_unknown() -> None:
    """The message names the languages that there are."""
    with pytest.raises(InvalidInput, match=r"'tlh' is unknown: use one of ar \(arabic\), da \(danish\)"):
        Analyzer("tlh")


@pytest.mark.parametrize(
    ("language", "one", "other"),
    [
        ("ar", "الكتاب", "كتاب"),
        ("da", "huset", "huse"),
        ("de", "Häuser", "Haus"),
        ("el", "άνθρωπος", "ΑΝΘΡΩΠΟΙ"),
        ("en", "running", "runs"),
        ("es", "canciones", "canción"),
        ("fi", "talossa", "talon"),
        ("fr", "élèves", "élève"),
        ("hi", "लड़कियों", "लड़का"),
        ("hu", "házak", "házat"),
        ("it", "ragazzi", "ragazzo"),
        ("nl", "huizen", "huizen"),
        ("no", "husene", "huset"),
        ("pt", "livros", "livro"),
        ("ro", "națiuni", "naţiunile"),
        ("ru", "книгами", "книга"),
        ("sv", "husen", "huset"),
        ("ta", "வீடுகள்", "வீடு"),
        ("tr", "kitapları", "kitap"),
    ],
)
def test_forms_of_a_word_are_one_when_their_language_is_named(language: str, one: str, other: str) -> None:
    """F8: every language on offer stems, those that have no stop list included."""
    analyzer = Analyzer(language)
    assert analyzer.words(one) == analyzer.words(other) != []


def test_every_language_is_in_the_table_of_forms_when_it_is_on_offer() -> None:
    """F8: Tantivy's eighteen stemmers and the Hindi one are on offer."""
    assert " ".join(LANGUAGES) == "ar da de el en es fi fr hi hu it nl no pt ro ru sv ta tr"


@pytest.mark.parametrize("name", ["de", "DE", "german", "German", "deu", "ger", " de "])
def test_a_language_is_known_when_it_goes_by_another_name(name: str) -> None:
    """F8: codes of two and three letters and English names mean the same, in any case."""
    assert Analyzer(name).language == "de"
    assert Analyzer(name).fingerprint == Analyzer("de").fingerprint


@pytest.mark.parametrize("language", ["", "none", "de-DE", "zh", "klingon", True, 3, ["en"], b"en"])
def test_a_language_is_refused_when_it_is_no_name_of_one(language: Any) -> None:
    """F8: nothing is taken for a language that isn't one."""
    with pytest.raises(InvalidInput, match=r"language .* is unknown"):
        Analyzer(language)


def test_words_of_ones_own_are_dropped_when_they_are_given() -> None:
    """F8: a list takes the place of the language's own; its words are compared in any case, before stemming."""
    text = "The Running of acme Widgets 的 苹果"
    assert Analyzer("en", stop_words=["Acme", "widgets"]).words(text)[:3] == ["the", "run", "of"]
    assert "acm" not in Analyzer("en", stop_words=["Acme"]).words(text)
    assert Analyzer("en", stop_words=[]).words("the of and") == ["the", "of", "and"]
    assert Analyzer(None, stop_words=["the"]).words("The THE them") == ["them"]
    assert Analyzer("ar", stop_words=["على"]).words("علي") == []
    assert Analyzer(None, stop_words=["的", "苹果"]).words("的 苹果") == ["苹", "果"]
    assert Analyzer(None, stop_words=["élan"], fold_accents=True).words("elan ÉLAN") == []


@pytest.mark.parametrize("stop_words", ["the", b"the", 7, ["two words"], ["..."], [""], [3], [None], ["the", "a-b"]])
def test_stop_words_are_refused_when_they_are_no_words(stop_words: Any) -> None:
    """F8: what isn't understood as a word is named, a text in place of a list too."""
    with pytest.raises(InvalidInput, match="stop"):
        Analyzer("en", stop_words=stop_words)


def test_accents_count_unless_they_are_folded() -> None:
    """F7: with `fold_accents` a word is found without its accents, and letters that only look accented stay."""
    text = "café Łódź smørrebrød čtvrtek Việt ΆΝΘΡΩΠΟΣ йод"
    plain, folded = Analyzer(None), Analyzer(None, fold_accents=True)
    assert folded.words("cafe Lodz smorrebrod ctvrtek Viet ΑΝΘΡΩΠΟΣ йод") == folded.words(text)
    assert plain.words(text)[0] == "café"
    assert folded.words("под") != folded.words("пой")
    assert Analyzer("de", fold_accents=True).words("für Häuser") == ["haus"]  # a stop word keeps its accent


@pytest.mark.parametrize("fold_accents", [1, "yes", None])
def test_folding_is_refused_when_it_is_no_truth_value(fold_accents: Any) -> None:
    """F7: True and False are meant, nothing like them."""
    with pytest.raises(InvalidInput, match="fold_accents"):
        Analyzer("en", fold_accents=fold_accents)


def test_fingerprints_differ_when_analysers_do() -> None:
    """An index built with one language is never read with another."""
    analyzers = [Analyzer(language) for language in ("en", "de", None)]
    analyzers += [Analyzer("en", stop_words=words) for words in ([], ["a"], ["a", "b"])]
    analyzers += [Analyzer("en", fold_accents=True)]
    assert len({analyzer.fingerprint for analyzer in analyzers}) == 7
    assert Analyzer("en", stop_words=["b", "a", "A"]).fingerprint == analyzers[5].fingerprint


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
        ("学生们去图书馆，机器学习", "学习", ["学习"]),
        ("学生们去图书馆，机器学习", "学校", ["学", "学"]),  # nothing else is there to be marked
        ("学生们读书，看书", "书", ["书", "书"]),
        ("นักเรียนอ่านหนังสือ", "หนังสือ", ["หนังสือ"]),
        ("大学でﾃﾞｰﾀﾍﾞｰｽの本", "データベース", ["ﾃﾞｰﾀﾍﾞｰｽ"]),
        ("本を読みました。また来た", "読みました", ["読みました"]),
        ("\uff46\uff55\uff4c\uff4c width", "full", ["\uff46\uff55\uff4c\uff4c"]),
        ("C++ and C# and c", "c++", ["C++"]),
        ("the reader's view", "reader", ["reader's"]),
        (
            "a hy\u00adphen\u200bated U.S.A. tour \u2122Foo\u2122",
            "hyphenated usa tmfootm",
            ["hy\u00adphen\u200bated", "U.S.A.", "\u2122Foo\u2122"],
        ),
        ("\U0001f44d\U0001f3fd ok", "\U0001f44d", ["\U0001f44d\U0001f3fd"]),
        ("مُحَمَّد والعـــربية", "محمد", ["مُحَمَّد"]),
        ("می\u200cخواهم", "خواهم", ["می\u200cخواهم"]),
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
