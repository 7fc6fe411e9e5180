"""Options that say how a database's words are cut and scored."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from backends.errors import InvalidInput
from backends.text.analyzer import Analyzer
from backends.text.languages import LANGUAGES, NAMES
from vectorsearch.cli.group import usage
from vectorsearch.collection.index.lexical.bm25 import BM25
from vectorsearch.database.engine import DEFAULT

Words = dict[str, Any]
NONE = "none"
_OWN = "own"
_UNLISTED = ", ".join(language.code for language in LANGUAGES.values() if not language.stop_words)

Language = Annotated[
    str,
    typer.Option(
        "--language",
        help=f"Language of stemming and stop words, by code or name: {NAMES}; or [bold]none[/]. By default the "
        "database's own, and for a new one what the documents seem to be in, or en.",
        metavar="NAME|none",
        show_default=False,
    ),
]
StopWords = Annotated[
    str,
    typer.Option(
        "--stop-words",
        help="Words that count for nothing: a file with one a line, # before a comment; [bold]none[/]; or "
        f"[bold]own[/], the language's list ({_UNLISTED} have none).",
        metavar="FILE|none|own",
        show_default=False,
    ),
]
StopWord = Annotated[
    list[str] | None,
    typer.Option("--stop-word", help="One such word; may be repeated.", metavar="WORD", show_default=False),
]
FoldAccents = Annotated[
    bool | None,
    typer.Option(
        "--fold-accents/--keep-accents",
        help="Whether words are the same that differ in accents only; not so in a new database.",
        show_default=False,
    ),
]
K1 = Annotated[
    float | None,
    typer.Option(
        "--k1", help="BM25's constant of repeated words; 1.2 in a new database.", metavar="X", show_default=False
    ),
]
B = Annotated[
    float | None,
    typer.Option("--b", help="BM25's constant of length, 0 to 1; 0.75 in a new one.", metavar="X", show_default=False),
]


def word_options(
    *,
    language: str = DEFAULT,
    stop_words: str = DEFAULT,
    stop_word: list[str] | None = None,
    fold_accents: bool | None = None,
    k1: float | None = None,
    b: float | None = None,
) -> Words:
    """Return the options of `vectorsearch.open` that were given.

    Raises:
        typer.BadParameter: both none or the language's list and words of one's own are given, or a file's line is no
            word.
    """
    given: Words = {"fold_accents": fold_accents, "k1": k1, "b": b}
    given = {name: value for name, value in given.items() if value is not None}
    if language != DEFAULT:
        given["language"] = None if language.strip().casefold() == NONE else language
    if stop_words in (NONE, _OWN) and stop_word:
        raise typer.BadParameter(
            f"--stop-words {stop_words} and --stop-word {stop_word[0]} say different things: give one of them",
            param_hint="--stop-words",
        )
    if stop_words == NONE:
        given["stop_words"] = []
    elif stop_words == _OWN:
        given["stop_words"] = _OWN
    elif stop_words != DEFAULT or stop_word:
        listed = [] if stop_words == DEFAULT else _read(Path(stop_words))
        given["stop_words"] = [*listed, *(stop_word or [])]
    _check(given)
    return given


def _check(given: Words) -> None:
    """Refuse as wrong usage what no database could be opened with.

    Raises:
        typer.BadParameter: the message names the option's value.
    """
    own = given.get("stop_words")
    with usage():
        Analyzer(given.get("language"), stop_words=own if isinstance(own, list) else None)
        BM25.of(given.get("k1", 1), given.get("b", 1))


def _read(path: Path) -> list[str]:
    """Return the words of a file, one a line.

    Raises:
        typer.BadParameter: it can't be read, has none, or a line is no single word; the message names the line.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as exc:
        raise typer.BadParameter(
            f"{str(path)!r} can't be read as a list of words: {exc}", param_hint="--stop-words"
        ) from exc
    words = []
    for number, line in enumerate(lines, 1):
        if not (word := line.partition("#")[0].strip()):
            continue
        try:
            Analyzer(None, stop_words=[word])
        except InvalidInput as exc:
            raise typer.BadParameter(f"{path}, line {number}: {exc}", param_hint="--stop-words") from exc
        words.append(word)
    if not words:
        raise typer.BadParameter(f"{str(path)!r} has no word in it: use {NONE} for none", param_hint="--stop-words")
    return words
