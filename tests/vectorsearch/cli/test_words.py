"""Options of words on the command line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def unwrapped(shown: str) -> str:
    """Give what is shown in boxes as one line."""
    return " ".join(shown.replace("│", " ").split())


@pytest.fixture
def german(tmp_path: Path) -> Path:
    """Give a corpus of two German documents."""
    rows = [{"_id": "a", "text": "Die Häuser am See"}, {"_id": "b", "text": "Der Wald und die Wiese"}]
    path = tmp_path / "german.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


PAGES = {
    "de": "Die alte Bücherei steht in der Stadt, und der Fluss ist nicht weit von ihr. Das Haus hat einen Garten. ",
    "fr": "La vieille bibliothèque est dans la ville, et la rivière n'est pas loin. Les maisons ont un jardin. ",
    "ru": "Старая библиотека стоит в городе, и река недалеко от неё. У дома есть сад, а в саду растут яблони. ",
    "en": "The old library is in the town, and the river is not far from it. The house has a garden with trees. ",
    "zh": "古老的图书馆在城里，离河不远。房子有一个花园，花园里有树。",
}


@pytest.mark.parametrize("language", PAGES)
def test_the_language_is_that_of_the_documents_when_a_database_is_new(
    run: Callable, tmp_path: Path, language: str
) -> None:
    """F8: it is guessed from the first rows of files, told if it isn't English, and not guessed where it is said."""
    rows = [{"_id": str(n), "text": f"{PAGES[language]} {n}"} for n in range(8)]
    corpus, guessed, said = tmp_path / "corpus.jsonl", tmp_path / "guessed", tmp_path / "said"
    corpus.write_text("not json\n" + "".join(f"{json.dumps(row)}\n" for row in rows))
    done = run("index", corpus, "--db", guessed, "--embed", "none")
    wanted = "en" if language == "zh" else language
    assert run("info", "--db", guessed, "--json").json["language"] == wanted
    assert ("--language says otherwise" in unwrapped(done.stderr)) == (wanted != "en")
    run("index", corpus, "--db", said, "--embed", "none", "--language", "none")
    assert run("info", "--db", said, "--json").json["language"] is None
    run("index", corpus, "--db", said)
    assert run("info", "--db", said, "--json").json["language"] is None


def test_the_language_is_advised_when_documents_come_by_standard_input(spawn: Callable, tmp_path: Path) -> None:
    """F8: what can be read only once is stored first; the note says which language to name."""
    rows = "".join(f"{json.dumps({'_id': str(n), 'text': PAGES['de']})}\n" for n in range(8))
    done = spawn("index", "-", "--db", tmp_path / "db", "--embed", "none", stdin=rows.encode())
    assert done.exit_code == 0
    assert "`--language de`" in unwrapped(done.stderr)


def ids(run: Callable, db: Path, query: str) -> list[str]:
    """Return the ids found."""
    return [hit["id"] for hit in run("search", query, "--db", db, "--json").json["hits"]]


def test_words_are_as_wanted_when_a_database_is_made_so(run: Callable, german: Path, tmp_path: Path) -> None:
    """F8, F9: language by name, stop words from a file and one by one, accents and constants; `info` has them all."""
    listed = tmp_path / "stop.txt"
    listed.write_text("# my own\nDie\n\nder  # too\n")
    db = tmp_path / "db"
    options: list[Any] = ["--language", "German", "--stop-words", listed, "--stop-word", "See", "--fold-accents"]
    done = run("index", german, "--db", db, "--embed", "none", *options, "--k1", "0.9", "--b", "0.4")
    assert done.exit_code == 0, done.stderr
    assert ids(run, db, "haus") == ids(run, db, "HAUSER") == ["a"]
    assert ids(run, db, "see") == ids(run, db, "die") == []
    info = run("info", "--db", db, "--json").json
    assert info["language"] == "de"
    assert info["stop_words"] == ["der", "die", "see"]
    assert (info["fold_accents"], info["k1"], info["b"]) == (True, 0.9, 0.4)
    shown = run("info", "--db", db).stdout
    assert all(name in shown for name in ("language", "der, die, see", "fold accents", "0.9", "hi, hu"))


def test_other_words_are_taken_over_when_a_database_has_some(run: Callable, german: Path, tmp_path: Path) -> None:
    """F8: a second run with another language changes the database; a run that says nothing keeps it."""
    db = tmp_path / "db"
    assert run("index", german, "--db", db, "--embed", "none").exit_code == 0
    assert ids(run, db, "haus") == []
    done = run("index", german, "--db", db, "--language", "de", "--json")
    assert done.exit_code == 0
    assert done.json["unchanged"] == 2
    assert run("index", german, "--db", db).exit_code == 0
    assert ids(run, db, "haus") == ["a"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--language", "germna"], "germna"),
        (["--k1", "-1"], "k1 is -1"),
        (["--k1", "nan"], "nan"),
        (["--b", "1.5"], "b is 1.5"),
        (["--stop-words", "none", "--stop-word", "the"], "say different things"),
        (["--stop-words", "own", "--stop-word", "the"], "say different things"),
        (["--stop-words", "no-such-file.txt"], "no-such-file.txt"),
        (["--stop-word", "two words"], "two words"),
    ],
    ids=str,
)
def test_a_word_option_is_refused_when_it_is_not_understood(
    run: Callable, german: Path, tmp_path: Path, options: list[str], message: str
) -> None:
    """F8, F9: the message names the value, and no database is made."""
    done = run("index", german, "--db", tmp_path / "db", "--embed", "none", *options)
    assert done.exit_code == 2
    assert message in unwrapped(done.stderr)
    assert not (tmp_path / "db").exists()


@pytest.mark.parametrize(
    ("text", "message"), [("the\na b\n", "line 2"), ("# nothing\n", "no word"), ("...\n", "line 1")]
)
def test_a_list_is_refused_when_a_line_is_no_word(
    run: Callable, german: Path, tmp_path: Path, text: str, message: str
) -> None:
    """F8: a file of stop words is understood whole, or refused by line."""
    (tmp_path / "stop.txt").write_text(text)
    done = run("index", german, "--db", tmp_path / "db", "--embed", "none", "--stop-words", tmp_path / "stop.txt")
    assert done.exit_code != 0
    assert message in unwrapped(done.stderr)
    assert not (tmp_path / "db").exists()


def test_every_language_is_listed_when_help_is_asked_for(run: Callable) -> None:
    """F8: `index --help` names the languages and how they are written."""
    shown = " ".join(run("index", "--help").stdout.replace("│", " ").split())
    for name in (
        "ar (arabic)",
        "el (greek)",
        "hi (hindi)",
        "ro (romanian)",
        "ta (tamil)",
        "tr (turkish)",
        "--stop-words",
    ):
        assert name in shown
