"""`vectorsearch index`: JSONL files into a database, resumable."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from backends.errors import CannotServe, InvalidInput, ModelUnavailable, VectorSearchError
from backends.text.language_guess import guess_language
from backends.text.languages import LANGUAGES
from vectorsearch.cli import output
from vectorsearch.cli.group import FAILED
from vectorsearch.cli.opening import (
    BackendName,
    DatabaseFolder,
    EmbedName,
    TenantName,
    fetch_models,
    open_to_index,
)
from vectorsearch.cli.word_options import K1, B, FoldAccents, Language, StopWord, StopWords, Words, word_options
from vectorsearch.collection.storage.sqlite.schema import FILE_NAME
from vectorsearch.collection.storage.sqlite.settings import CollectionSettings
from vectorsearch.database.engine import DEFAULT
from vectorsearch.database.tenants import FOLDER_NAME
from vectorsearch.ingestion.bulk import DEFAULT_BATCH_SIZE, STDIN, IngestReport, first_texts, ingest

if TYPE_CHECKING:
    from backends.choosing.selection import Choice
    from vectorsearch.database.database import Database

HELP = """Index JSONL files into a database; made if it isn't there.

A row is a BEIR or Anserini document: _id (or id, docid), text (or contents), and if wanted title, metadata and vector.
Gzip is told by its content; - is standard input.

Documents are embedded on JAX wherever it is installed and can run the model, unless [bold]--backend[/] or a calibration
([bold]models calibrate[/]) says otherwise; the run tells which backend it takes and why.

A new database takes the language that its first documents seem to be in, and English if that isn't clear or they come
by standard input. A language or other words than the database has are taken over: the index of words is then built
again from the documents, and nothing is embedded.

Interrupted or killed, the same command goes on where it stopped: rows that are stored unchanged are not embedded
again. Bad rows go to rejects.jsonl in the database's folder, with their number and the reason, and the exit code is 1,
as it is if there are no rows at all.

[bold]Examples[/]

  vectorsearch index corpus.jsonl --db my.db
  zcat parts/*.gz | vectorsearch index - --db my.db --embed none"""

REJECTS_NAME = "rejects.jsonl"


def index(
    corpus: Annotated[list[str], typer.Argument(help="JSONL files, or - for standard input.", metavar="CORPUS…")],
    *,
    db: DatabaseFolder,
    tenant: TenantName = None,
    embed: EmbedName = DEFAULT,
    batch_size: Annotated[
        int,
        typer.Option("--batch-size", help="Documents in one transaction; what a kill can lose.", min=1, metavar="N"),
    ] = DEFAULT_BATCH_SIZE,
    backend: BackendName = None,
    language: Language = DEFAULT,
    stop_words: StopWords = DEFAULT,
    stop_word: StopWord = None,
    fold_accents: FoldAccents = None,
    k1: K1 = None,
    b: B = None,
    as_json: output.Json = False,
) -> None:
    """Index files."""
    _check_sources(corpus)
    rejected = (db if tenant is None else db / FOLDER_NAME / tenant) / REJECTS_NAME
    words = word_options(
        language=language, stop_words=stop_words, stop_word=stop_word, fold_accents=fold_accents, k1=k1, b=b
    )
    left_open = tenant is None and "language" not in words and not (db / FILE_NAME).exists()
    if left_open:
        words |= _guessed(corpus)
    with open_to_index(db, tenant=tenant, embed=embed, backend=backend, words=words) as database:
        report, interrupted = index_with_progress(database, corpus, rejected, batch_size=batch_size)
        if left_open and STDIN in corpus:
            _advise(database)
        documents = database.count()
        embedding = _embedding(database)
        max_tokens = database.info().get("embedder_max_tokens")
    rejects = str(rejected) if report.rejected else None
    if as_json:
        counts = {
            name: getattr(report, name) for name in ("rows", "stored", "unchanged", "rejected", "truncated", "failures")
        }
        values = {**counts, "documents": documents, "interrupted": interrupted, "rejects": rejects}
        output.print_json({"db": str(db), **values, "embedding": embedding})
    for failure in report.failures:
        output.print_error(failure)
    if interrupted:
        raise KeyboardInterrupt(f"interrupted: {_stored(report)}; run the same command to go on")
    if not as_json:
        _print_report(report, documents, rejects)
        output.print_truncated(report.truncated, max_tokens)
    if not report.rows:
        output.print_error(f"{', '.join(corpus)} holds no rows, so nothing was indexed: is it the right file?")
    if not (report.complete and report.rows):
        raise typer.Exit(FAILED)


def index_with_progress(
    database: Database, sources: list[str], rejects_path: Path, *, batch_size: int = DEFAULT_BATCH_SIZE
) -> tuple[IngestReport, bool]:
    """Ingest the sources and bring the indexes up to date, with progress; True if the user interrupted it.

    Raises:
        VectorSearchError: with a note of what is stored, if something failed on the way.
    """
    report = IngestReport()
    try:
        if database.embedder is not None:
            fetch_models([database.embedder])
            if choice := _choice(database):
                output.print_note(f"embedding on {choice.reason}")
        with output.Meter("indexing", "documents") as meter:

            def show(progress: IngestReport) -> None:
                nonlocal report
                report = progress
                count = progress.stored + progress.unchanged
                meter.update(progress.nbytes, progress.total_nbytes, count)

            report = ingest(database, sources, rejects_path=rejects_path, batch_size=batch_size, on_progress=show)
        with output.Meter("building indexes", "rows") as meter:
            database.refresh(progress=meter.update)
    except VectorSearchError as exc:
        exc.add_note(f"{_stored(report)}; run the same command to go on")
        raise
    except KeyboardInterrupt:
        return report, True
    return report, False


def _choice(database: Database) -> Choice | None:
    """Return the backend of bulk embedding; None if nothing can embed, which is no fault where vectors are given."""
    try:
        return database.embedder_choice("bulk")
    except (CannotServe, ModelUnavailable):
        return None


def _embedding(database: Database) -> dict[str, Any] | None:
    """Return which backend was to embed the passages, why, and on which ones a model was really loaded for it."""
    choice = _choice(database)
    if choice is None or database.embedder is None:
        return None
    digest = database.embedder.digest
    ran = [each for each in database.models().models if each.key.digest == digest and (each.loads or each.resident)]
    backends = [{"backend": each.backend, "device": each.device} for each in ran]
    return {"model": database.embedder.name, "backend": choice.backend, "reason": choice.reason, "loaded": backends}


def _guessed(corpus: list[str]) -> Words:
    """Return the language of a new database as an option, told, where the documents seem to be in one but English."""
    code = guess_language(first_texts(corpus))
    if code is None or code == CollectionSettings().language:
        return {}
    name = LANGUAGES[code].name.capitalize()
    output.print_note(f"the documents look {name}, and their words are stemmed as such: --language says otherwise")
    return {"language": code}


def _advise(database: Database) -> None:
    """Tell of another language than the database has, where its documents could be seen only once they were stored."""
    code = guess_language(document.full_text for document in islice(database.iter(), 200))
    if code not in (None, database.language):
        name = LANGUAGES[code].name.capitalize()
        output.print_note(f"the documents look {name}: `--language {code}` stems their words as such, also later")


def _check_sources(sources: list[str]) -> None:
    """Refuse what can't be read before anything is done.

    Raises:
        typer.BadParameter: standard input is named twice.
        InvalidInput: a file isn't there.
    """
    if sources.count(STDIN) > 1:
        raise typer.BadParameter("standard input (-) can be read only once", param_hint="CORPUS")
    for source in sources:
        if source != STDIN and (not Path(source).exists() or Path(source).is_dir()):
            reason = "is a folder" if Path(source).is_dir() else "does not exist"
            raise InvalidInput(f"CORPUS {source!r} {reason}: name a JSONL file, or - for standard input")


def _stored(report: IngestReport) -> str:
    return f"{output.counted(report.stored + report.unchanged, 'document')} stored"


def _print_report(report: IngestReport, documents: int, rejects: str | None) -> None:
    counts = ", ".join(f"{getattr(report, name):,} {name}" for name in ("stored", "unchanged", "rejected"))
    output.out.print(Text(f"{output.counted(report.rows, 'row')}: {counts}"))
    if rejects:
        output.print_warning(f"{output.counted(report.rejected, 'row')} rejected; the reasons are in {rejects}")
    output.out.print(Text(f"{output.counted(documents, 'document')} in the database", style="dim"))
