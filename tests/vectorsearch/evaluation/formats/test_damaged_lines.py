"""Whatever happens to a line: it is read, it is said, or the file is refused with its number; never passed over."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING

import pytest

from backends.errors import InvalidInput
from vectorsearch.evaluation.formats.document_files import read_documents
from vectorsearch.evaluation.formats.judgments import read_judgments
from vectorsearch.evaluation.formats.runs import read_run
from vectorsearch.evaluation.formats.sgml import TAG
from vectorsearch.evaluation.formats.topic_files import read_topics

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

N = 6
FILES = {
    "TREC judgments": (read_judgments, [f"q{i} 0 d{i} 1" for i in range(N)]),
    "BEIR judgments": (read_judgments, ["query-id\tcorpus-id\tscore", *(f"q{i}\td{i}\t1" for i in range(N))]),
    "TREC run": (read_run, [f"q{i} Q0 d{i} 1 0.5 tag" for i in range(N)]),
    "MS MARCO run": (read_run, [f"q{i}\td{i}\t1" for i in range(N)]),
    "TSV topics": (read_topics, [f"q{i}\twords of {i}" for i in range(N)]),
    "colon topics": (read_topics, [f"q{i}:words of {i}" for i in range(N)]),
    "JSON topics": (read_topics, [f'{{"_id": "q{i}", "text": "words of {i}"}}' for i in range(N)]),
    "classic topics": (read_topics, [f"<top><num> Number: q{i}<title>words of {i}</top>" for i in range(N)]),
    "XML topics": (read_topics, [f'<topic number="q{i}"><query>words of {i}</query></topic>' for i in range(N)]),
    "SGML documents": (read_documents, [f"<DOC><DOCNO>d{i}</DOCNO><TEXT>words of {i}</TEXT></DOC>" for i in range(N)]),
    "TSV documents": (read_documents, [f"d{i}\twords of {i}" for i in range(N)]),
    "JSON documents": (read_documents, [f'{{"_id": "d{i}", "text": "words of {i}"}}' for i in range(N)]),
}
_CHARACTERS = "<>/\"'{}[]:,# \t0aé\ufeff\u2028\x1c\xa0"


def damaged(line: str, chance: random.Random) -> str:
    """Return a line with a part cut out, doubled, or something put in."""
    start, length = chance.randrange(len(line)), chance.choice([1, 1, 2, 5, len(line)])
    part = line[start : start + length]
    put = chance.choice(["", part + part, chance.choice(_CHARACTERS), part[::-1], part.upper()])
    return line[:start] + put + line[start + length :]


def entries(read: Callable, path: Path) -> tuple[int, tuple[str, ...]]:
    """Return how many entries a file has, and what is said of it.

    An entry is a judgment, a document of a run, a query or a document.
    """
    if read is read_documents:
        notes: list[str] = []
        return sum(1 for _ in read_documents([path], notes)), tuple(notes)
    found = read(path)
    nested = getattr(found, "grades", None) or getattr(found, "rankings", None)
    return sum(map(len, nested.values())) if nested else len(found.texts), found.notes


def try_damage(kind: str, seed: int, folder: Path) -> None:
    """Damage one line of a file, read it, and check that no line is passed over."""
    read, lines = FILES[kind]
    chance = random.Random(f"{kind} {seed}")  # noqa: S311 -- a test's own dice
    at = chance.randrange(len(lines))
    changed = damaged(lines[at], chance)
    path = folder / "file"
    path.write_text("\n".join([*lines[:at], changed, *lines[at + 1 :]]) + "\n", encoding="utf-8", newline="")
    try:
        count, notes = entries(read, path)
    except InvalidInput as error:
        told = str(error)
    else:
        # What is left may be white space, or a tag between elements, as a root's is.
        blank = not TAG.sub("", changed).split() and "query-id" not in lines[at]
        said = any("comments" in note or "come twice" in note for note in notes)
        assert count >= N - blank or said, (changed, count, notes)
        return
    assert re.search(r"file, line \d+: |file: (holds no|query|'\S+' stands)", told), (changed, told)


@pytest.mark.parametrize("kind", FILES)
def test_no_line_is_passed_over_when_one_is_damaged(tmp_path: Path, kind: str) -> None:
    """A file with one damaged line has as many entries as before, or says which it lacks, or is refused."""
    for seed in range(150):
        try_damage(kind, seed, tmp_path)


@pytest.mark.deep
@pytest.mark.parametrize("kind", FILES)
def test_no_line_is_passed_over_when_many_are_damaged(tmp_path: Path, kind: str) -> None:
    """The same, three thousand times."""
    for seed in range(3_000):
        try_damage(kind, seed, tmp_path)
