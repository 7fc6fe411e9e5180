"""Spellings of one word."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.text.analyzer import Analyzer
from backends.text.characters import BECOMING_LETTERS, IGNORABLE, MARKS
from backends.text.spelling import fold, without_accents

LANGUAGES = [None, "tr", "ro"]
# Text in which the cases meet: plain characters of any script, and more often those that folding is about.
TEXTS = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs"]),
        st.sampled_from(
            "aIiİıſßςΣé\u0301\u0307\u0327\u00ad\u200b\u200c\u200d\u034f\ufeff'\u2019.\u0130ابيىٱأ\u064e\u0640\u093cकшё٣"
        ),
    ),
    max_size=12,
)


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        ("so\u00adft", "soft"),
        ("zero\u200bwidth", "zerowidth"),
        ("join\u200d\u200cer", "joiner"),
        ("\ufeffbom", "bom"),
        ("le\u200eft\u200fright\u202aembed\u2066iso", "leftrightembediso"),
        ("varia\ufe0ftion\U000e0101", "variation"),
        ("word\u2060joiner", "wordjoiner"),
        ("a\u034f\u0301", "á"),
        ("İSTANBUL", "istanbul"),
        ("I\u0307zmir i\u0307zmir", "izmir izmir"),
        ("ΟΔΥΣΣΕΥΣ", "οδυσσευσ"),
        ("οδυσσεύς", "οδυσσεύσ"),
        ("Straße STRASSE STRAẞE", "strasse strasse strasse"),
        ("שָׁלוֹם", "שלום"),
        ("\ufb2a\u05b8\u05dc\ufb35\u05dd", "שלום"),
        ("مُحَمَّد", "محمد"),
        ("العـــربية", "العربية"),
        ("أحمد إسلام آب ٱلكتاب", "احمد اسلام اب الكتاب"),
        ("ﻛﺘﺎﺏ", "كتاب"),
        ("کتابی", "كتابي"),
        ("क़लम \u0958लम", "कलम कलम"),
        ("Москва\u0301", "москва"),
        ("\uff21\uff42\uff43 \uff11\uff12\uff13", "abc 123"),
        ("ﬁne ﬄ", "fine ffl"),
        ("٣٤ ۳۴ ३४ ๓๔ ၃၄ ៣៤", "34 34 34 34 34 34"),
        ("l\u2019été l\u02bcété", "l'été l'été"),
        ("\uff76\uff9e\uff97\uff7d", "ガラス"),
    ],
)
def test_a_spelling_is_the_plain_one_when_it_is_folded(written: str, plain: str) -> None:
    """F6, F7: what no reader sees or tells apart makes no other word."""
    assert fold(written) == plain


@pytest.mark.parametrize(
    ("written", "folded"), [("ISPARTA", "ısparta"), ("İzmir", "izmir"), ("I\u0307zmir", "izmir"), ("ılık", "ılık")]
)
def test_i_keeps_its_dot_when_the_text_is_turkish(written: str, folded: str) -> None:
    """F7: in Turkish there are two letters, each with a capital of its own."""
    assert fold(written, "tr") == folded


def test_comma_and_cedilla_are_one_when_the_text_is_romanian() -> None:
    """F7: older texts have Turkish letters in place of Romanian ones, which stay themselves in Turkish."""
    assert fold("naţiuneaŞi", "ro") == fold("națiuneaȘi", "ro")
    assert fold("ş", "tr") != fold("ș", "tr")


def test_the_non_joiner_stays_when_it_parts_a_word_of_arabic_script() -> None:
    """F6: Persian parts words by it; in other scripts, and at a word's ends, nobody sees it."""
    assert fold("می\u200cخواهم") == "مي\u200cخواهم"
    assert fold("\u200cمی\u200c x\u200cy") == "مي xy"


@pytest.mark.parametrize("query", ["می\u200cخواهم", "میخواهم", "می خواهم", "مي‌خواهم"])
def test_a_parted_word_is_found_when_it_is_written_apart_or_together(query: str) -> None:
    """F6: all three ways to write a Persian word have words in common with the parted one."""
    analyzer = Analyzer(None)
    assert set(analyzer.words(query)) <= set(analyzer.words("می\u200cخواهم"))
    assert all(len(sequence) <= 2 for sequence in analyzer.sequences(query))


@given(text=TEXTS, language=st.sampled_from(LANGUAGES))
def test_folding_changes_nothing_when_it_is_done_again(text: str, language: str | None) -> None:
    """Folding is idempotent, and without accents likewise."""
    folded = fold(text, language)
    assert fold(folded, language) == folded
    assert without_accents(without_accents(folded)) == without_accents(folded)


@given(text=TEXTS, language=st.sampled_from([*LANGUAGES, "en", "de", "ar", "hi"]), accents=st.booleans())
def test_query_and_document_agree_when_they_are_normalised_otherwise(
    text: str,
    language: str | None,
    accents: bool,  # noqa: FBT001 -- given by name
) -> None:
    """NFC, NFD, NFKC and NFKD of a text have the same words."""
    analyzer = Analyzer(language, fold_accents=accents)
    words = analyzer.words(text)
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        assert analyzer.words(unicodedata.normalize(form, text)) == words  # type: ignore[arg-type]  # a plain loop


@given(text=TEXTS, language=st.sampled_from([None, "en", "tr"]))
def test_every_word_has_a_place_when_a_text_is_marked(text: str, language: str | None) -> None:
    """What the index has of a text can be shown in it: its places give its words, pairs across two of them aside."""
    analyzer = Analyzer(language)
    words = set(analyzer.words(text))
    shown = [text[start:end] for start, end in analyzer.spans(text, words)]
    assert words <= {word for part in shown for word in analyzer.words(part)}


@pytest.mark.deep
@pytest.mark.parametrize("language", LANGUAGES)
def test_folding_is_stable_when_it_is_given_every_character(language: str | None) -> None:
    """Each character, between letters and with an accent, folds once and for all, in every normal form."""
    plain = {*range(0x3400, 0xA000), *range(0xAC00, 0xF900), *range(0x12000, 0x1D000)}  # ideographs, syllables, gaps
    for code in sorted({*range(0x1F000), *range(0x2F800, 0x2FA20), *range(0xE0000, 0xE0200)} - plain):
        for text in (chr(code), f"a{chr(code)}b", f"i{chr(code)}\u0301"):
            folded = fold(text, language)
            assert fold(folded, language) == folded
            assert {fold(unicodedata.normalize(form, text), language) for form in ("NFC", "NFD", "NFKC")} == {folded}


def test_kinds_of_characters_are_whole_when_they_are_compared_with_unicode() -> None:
    """Every mark is one of MARKS and every sign that becomes a letter one of those; no separator is."""
    marks, letters, ignorable = (re.compile(f"[{kind}]") for kind in (MARKS, BECOMING_LETTERS, IGNORABLE))
    for character in map(chr, [*range(0x80, 0x3000), *range(0xA000, 0xAC00), *range(0xF900, 0x11000)]):
        category = unicodedata.category(character)
        if category[0] == "M":
            assert marks.match(character), hex(ord(character))
        if category[0] in "ZP" and not letters.match(character):
            assert not marks.match(character), hex(ord(character))
        if category == "So" and fold(character).isalnum():
            assert letters.match(character), hex(ord(character))
        if category == "Cf" and 0x200B <= ord(character) <= 0x206F:
            assert ignorable.match(character), hex(ord(character))
