"""Tokenising: what is cut, that it is said, and that no text can break it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from backends.catalogue import catalogue
from backends.catalogue.entries import DEFAULT_RERANKER
from backends.errors import InvalidInput, InvalidModel
from backends.text.tokenizer import FolderTokenizer, to_unicode

CLS, SEP = 2, 3


@pytest.fixture
def words(make_folder: object) -> FolderTokenizer:
    """Return the tiny word-level tokenizer, read from a folder."""
    return FolderTokenizer(make_folder() / "tokenizer.json")  # type: ignore[operator]  (a fixture's function)


@pytest.mark.parametrize(
    ("text", "length", "truncated"),
    [("", 2, False), ("csv", 3, False), ("a b c", 5, False), ("a b c a b c a", 8, True), ("a " * 20_000, 8, True)],
)
def test_tail_is_cut_and_said_when_a_text_is_long(
    words: FolderTokenizer, text: str, length: int, *, truncated: bool
) -> None:
    """S41: a row has at most max_length tokens, special ones included, and says whether it lost its tail."""
    rows = words.texts([text], 8)
    assert (len(rows.input_ids[0]), bool(rows.truncated[0])) == (length, truncated)
    assert (rows.input_ids[0][0], rows.input_ids[0][-1]) == (CLS, SEP)


def test_padding_and_truncation_of_the_file_are_ignored_when_it_has_them(words: FolderTokenizer) -> None:
    """The file's own fixed length of 16 neither pads nor cuts."""
    rows = words.texts(["a " * 30, "a"], 512)
    assert rows.lengths.tolist() == [32, 3]


def test_query_is_whole_when_the_document_is_long(words: FolderTokenizer) -> None:
    """S41: the query's tokens are all there, the document's tail is cut, and the row says so."""
    rows = words.pairs("how read csv", ["dog " * 20_000, "cat"], 10)
    assert rows.input_ids[0] == [CLS, 10, 6, 4, SEP, 7, 7, 7, 7, SEP]
    assert rows.token_type_ids[0] == [0] * 5 + [1] * 5
    assert rows.truncated.tolist() == [True, False]


def test_document_keeps_some_room_when_the_query_is_too_long(words: FolderTokenizer) -> None:
    """A query longer than the whole row keeps its head, leaves a quarter for the document, and every row says so."""
    rows = words.pairs("how " * 100, ["cat", "dog " * 100], 23)
    assert [ids.count(10) for ids in rows.input_ids] == [15, 15]
    assert [ids.count(7) for ids in rows.input_ids] == [0, 5]
    assert rows.truncated.tolist() == [True, True]


def test_answer_is_exact_when_few_tokens_hide_in_many_characters(words: FolderTokenizer) -> None:
    """Blanks and an endless word don't deceive the cheap first cut: nothing is lost, and nothing is said to be."""
    rows = words.texts([" " * 100_000 + "csv", "x" * 100_000 + " csv", "csv " + " " * 50_000], 8)
    assert rows.input_ids == [[CLS, 4, SEP], [CLS, 1, 4, SEP], [CLS, 4, SEP]]
    assert not rows.truncated.any()


@pytest.mark.parametrize(
    "text", ["\x00", "csv \ud800 file", "😀👩‍👩‍👧", "漢字かな交じり文", "\u202eevil", "e\u0301" * 9]
)
def test_no_text_breaks_it_when_it_is_odd(words: FolderTokenizer, text: str) -> None:
    """NUL, lone surrogates, emoji, CJK, and combining marks give a row."""
    assert len(words.texts([text], 32).input_ids[0]) >= 2


def test_surrogates_are_replaced_when_they_are_alone() -> None:
    """A lone surrogate becomes U+FFFD, a pair its character, and sound text is left alone."""
    assert to_unicode("a\ud800b") == "a\ufffdb"
    assert to_unicode("\ud83d\ude00 \udc00") == "😀 \ufffd"
    assert to_unicode("naïve 漢") == "naïve 漢"


def test_room_is_refused_when_max_length_is_tiny(words: FolderTokenizer) -> None:
    """A length that leaves nothing beside the special tokens is the caller's error."""
    with pytest.raises(InvalidInput, match="max_length=3"):
        words.pairs("how", ["csv"], 3)


def test_a_text_is_left_a_token_when_a_pair_has_little_room(words: FolderTokenizer) -> None:
    """Every length either is refused or gives rows of it at most, however long the query: none goes on for ever."""
    query = " ".join(["how"] * 50)
    for max_length in range(1, 20):
        if max_length < 8:
            with pytest.raises(InvalidInput, match="needs at least 8"):
                words.pairs(query, ["csv file", ""], max_length)
        else:
            rows = words.pairs(query, ["csv file", ""], max_length)
            assert max(map(len, rows.input_ids)) <= max_length


@pytest.mark.parametrize("content", ["", "{}", "not json"])
def test_file_is_refused_when_it_is_no_tokenizer(tmp_path: Path, content: str) -> None:
    """A damaged tokenizer file is an invalid model, and the message names the file."""
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(InvalidModel, match=r"tokenizer\.json"):
        FolderTokenizer(tmp_path / "tokenizer.json")


@pytest.mark.models
def test_megabytes_are_cut_exactly_when_the_tokenizer_is_real() -> None:
    """S41: the head of 2 MB of text gives the same tokens as the head alone, and says that it was cut."""
    real = FolderTokenizer(catalogue.pull(DEFAULT_RERANKER).folder / "tokenizer.json")
    text = "The quick brown fox isn't jumping over 3.14 lazy dogs; "
    long, short = real.texts([text * 40_000], 512), real.texts([text * 60], 512)
    assert long.input_ids == short.input_ids
    assert long.truncated.all()


@pytest.mark.skipif(sys.platform == "win32", reason="fork is a POSIX call")
def test_nothing_is_printed_and_nothing_hangs_when_a_process_forks_after_tokenising(make_folder: object) -> None:
    """S40: a child forked after the parent tokenised can tokenise too, and no warning appears."""
    code = (
        "import os, sys; from pathlib import Path; from backends.text.tokenizer import FolderTokenizer\n"
        "t = FolderTokenizer(Path(sys.argv[1])); t.texts(['csv file'] * 100, 8)\n"
        "pid = os.fork()\n"
        "if pid == 0: os._exit(0 if len(t.texts(['csv'] * 100, 8).input_ids) == 100 else 1)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))"
    )
    path = make_folder() / "tokenizer.json"  # type: ignore[operator]  (a fixture's function)
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], cwd=root, capture_output=True, timeout=600, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
