"""What the cutting of words is worth: nDCG@10 of lexical search over many collections, each cut in several ways.

The folder has a folder in BEIR layout for each collection; one whose name ends in a language's code, as `xquad-de`
does, is in that language, any other in English. `vectorsearch collections build stdlib --out FOLDER/stdlib` makes one.
The ways are

- none: words as they are written;
- en: English stems and stop words;
- own: the language's own, where there is a stemmer, else none; this is what the others are compared with;
- accents: own, with accents folded;
- letters: own, with single letters of the Latin alphabet dropped;
- bare, bare accents: own and accents, asked by queries that have lost their accents.

`guess` is the language that `vectorsearch index` takes for a new database. Stars mark differences from `own` whose p is
below 0.05, by the paired randomisation test, uncorrected.

Run: `python tests/benchmarks/lexical_words.py FOLDER [--only NAME,…] [--json]`
"""

from __future__ import annotations

import argparse
import json
import string
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import vectorsearch as vs
from backends.text.analyzer import Analyzer
from backends.text.language_guess import guess_language
from backends.text.languages import LANGUAGES
from backends.text.spelling import without_accents
from vectorsearch.evaluation.collecting.collections import read_collection
from vectorsearch.evaluation.comparing.metrics import measure_queries
from vectorsearch.evaluation.comparing.significance import randomisation_test
from vectorsearch.ingestion.bulk import first_texts, ingest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from vectorsearch.evaluation.collecting.collections import TestCollection

MEASURE = "nDCG@10"
WAYS = ("none", "en", "own", "accents", "letters", "bare", "bare accents")


@dataclass(frozen=True)
class Row:
    """A collection, and what each way to cut words reaches; `p` compares it with `own`, on the queries that differ."""

    collection: str
    language: str
    guess: str | None
    documents: int
    queries: int
    values: dict[str, float]
    p: dict[str, float]

    def __str__(self) -> str:
        cells = [f"{self.values[way]:.3f}{'*' if self.p.get(way, 1) < 0.05 else ''}" for way in WAYS]
        told = (self.collection, self.language, self.guess or "none", f"{self.documents:,}", f"{self.queries:,}")
        return f"| {' | '.join((*told, *cells))} |"


def language_of(name: str) -> str:
    """Return the code at a name's end, `en` if there is none."""
    code = name.rpartition("-")[2]
    return code if "-" in name and len(code) == 2 else "en"


def measured(collection: TestCollection, options: dict[str, Any], *, bare: bool = False) -> NDArray[np.float64]:
    """Return the measure of each query, or of each without its accents: float64[queries]."""
    queries = collection.queries
    if bare:
        queries = {query: without_accents(text.lower()) for query, text in queries.items()}
    with tempfile.TemporaryDirectory() as scratch, vs.open(Path(scratch) / "db", embed=None, **options) as db:
        report = ingest(db, [collection.corpus_path], rejects_path=Path(scratch) / "rejects")
        if not report.complete:
            raise SystemExit(f"{collection.name}: {report.rejected} documents were rejected")
        found = {query: [hit.id for hit in db.search(text, mode="lexical")] for query, text in queries.items()}
    return measure_queries(found, collection.qrels, names=[MEASURE])[MEASURE]


def own_stop_words(collection: TestCollection, language: str | None) -> list[str]:
    """Return the words of a collection's documents that its language's list has."""
    if language is None or not LANGUAGES[language].stop_words:
        return []
    whole, dropping = Analyzer(None), Analyzer(language)
    words: set[str] = set()
    for line in collection.corpus_path.open(encoding="utf-8"):
        words.update(whole.words(" ".join(str(json.loads(line).get(name, "")) for name in ("title", "text"))))
    return sorted(word for word in words if not dropping.words(word))


def row_of(folder: Path) -> Row:
    """Measure one collection in every way."""
    collection = read_collection(folder)
    language = language_of(folder.name)
    own = language if language in LANGUAGES else None
    letters = [*own_stop_words(collection, own), *string.ascii_lowercase]
    ways: dict[str, dict[str, Any]] = {
        "none": {"language": None},
        "en": {"language": "en"},
        "own": {"language": own},
        "accents": {"language": own, "fold_accents": True},
        "letters": {"language": own, "stop_words": letters},
    }
    values = {way: measured(collection, options) for way, options in ways.items()}
    values["bare"] = measured(collection, ways["own"], bare=True)
    values["bare accents"] = measured(collection, ways["accents"], bare=True)
    differences = {way: each - values["own"] for way, each in values.items() if way != "own"}
    documents = sum(1 for _ in collection.corpus_path.open("rb"))
    return Row(
        folder.name,
        language,
        guess_language(first_texts([collection.corpus_path])),
        documents,
        len(collection.queries),
        {way: float(each.mean()) for way, each in values.items()},
        {way: randomisation_test(each) if each.any() else 1.0 for way, each in differences.items()},
    )


def main() -> None:
    """Measure the collections of a folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", help="names of collections, separated by commas")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    names = given.only.split(",") if given.only else sorted(path.name for path in given.folder.iterdir())
    if missing := [name for name in names if not (given.folder / name / "corpus.jsonl").exists()]:
        parser.error(f"{given.folder} has no collection {', '.join(missing)}")
    if not given.json:
        columns = ("collection", "language", "guess", "documents", "queries", *WAYS)
        sys.stdout.write(f"| {' | '.join(columns)} |\n|{' --- |' * len(columns)}\n")
    rows = []
    for name in names:
        rows.append(row_of(given.folder / name))
        if not given.json:
            sys.stdout.write(f"{rows[-1]}\n")
            sys.stdout.flush()
    if given.json:
        sys.stdout.write(f"{json.dumps({'measure': MEASURE, 'rows': [asdict(row) for row in rows]}, indent=2)}\n")


if __name__ == "__main__":
    main()
