"""`vectorsearch evaluate`: measure systems on a test collection."""

from __future__ import annotations

import hashlib
from contextlib import ExitStack
from pathlib import Path  # noqa: TC003 -- typer reads it when it runs
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from backends import catalogue
from vectorsearch import config
from vectorsearch.cli import output
from vectorsearch.cli.index import REJECTS_NAME, index_with_progress
from vectorsearch.cli.opening import MODES, NONE, BackendName, EmbedName, Language, as_mode, open_existing, open_or_make
from vectorsearch.cli.search import RerankName, fetch_for_search, reranker_option
from vectorsearch.engine import DEFAULT
from vectorsearch.evaluation import experiment
from vectorsearch.evaluation.cache import digest_files, evaluate_cached
from vectorsearch.evaluation.collections import TestCollection, read_collection, read_judged_queries, read_qrels
from vectorsearch.evaluation.experiment import RANKING_DEPTH, EvaluationFailed, Judged, System, SystemResult, Topics
from vectorsearch.evaluation.metrics import MEASURES, require_ir_measures
from vectorsearch.query.plan import DEFAULT_RERANK_DEPTH

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vectorsearch.database import Database
    from vectorsearch.types import Mode

HELP = """Measure search quality and time per query on a test collection.

Give a collection's folder in BEIR layout (corpus.jsonl, queries.jsonl, qrels/test.tsv), which is indexed into the cache
once, or a database with queries and judgments. Each [bold]--mode[/] is one system, with [bold]--rerank[/] reranked;
without --mode these are lexical, dense, hybrid, and with --rerank also hybrid + rerank. Nothing is degraded and no
deadline is set. Figures are remembered under a digest of all that they depend on.

[bold]Examples[/]

  vectorsearch evaluate --collection scifact --rerank default
  vectorsearch evaluate --db my.db --queries q.jsonl --qrels q.tsv --mode hybrid"""

_COMPLETE = "complete"  # a file in a cached database: every row of the corpus is in


def evaluate(
    *,
    collection: Annotated[
        Path | None, typer.Option(help="A collection's folder.", exists=True, file_okay=False, metavar="DIR")
    ] = None,
    db: Annotated[Path | None, typer.Option(help="A database to search.", file_okay=False, metavar="DIR")] = None,
    queries: Annotated[
        Path | None, typer.Option(help="JSONL of _id and text.", exists=True, dir_okay=False, metavar="FILE")
    ] = None,
    qrels: Annotated[
        Path | None, typer.Option(help="Judgments, BEIR's TSV or TREC's.", exists=True, dir_okay=False, metavar="FILE")
    ] = None,
    split: Annotated[str, typer.Option(help="Which of the collection's judgments.", metavar="NAME")] = "test",
    mode: Annotated[list[str] | None, typer.Option(help=f"A system: {MODES}; may be repeated.", metavar="MODE")] = None,
    rerank: RerankName = "none",
    depth: Annotated[
        int, typer.Option(help="How many hits the reranker reads.", min=1, metavar="N")
    ] = DEFAULT_RERANK_DEPTH,
    k: Annotated[int, typer.Option(help="How many hits are measured.", min=1, metavar="N")] = RANKING_DEPTH,
    limit: Annotated[int | None, typer.Option(help="Only the first N judged queries.", min=1, metavar="N")] = None,
    run: Annotated[
        Path | None,
        typer.Option(help="Write a TREC run; of several systems, FILE.NAME.trec each.", dir_okay=False, metavar="FILE"),
    ] = None,
    embed: EmbedName = DEFAULT,
    backend: BackendName = None,
    language: Language = DEFAULT,
    cached: Annotated[bool, typer.Option("--cache/--no-cache", help="Take figures of an earlier, equal run.")] = True,
    as_json: output.Json = False,
) -> None:
    """Measure and print."""
    if (queries is None) != (qrels is None):
        raise typer.BadParameter("--queries and --qrels go together")
    require_ir_measures()
    modes = [as_mode(name) for name in mode or []]
    reranker = reranker_option(rerank)
    if reranker is not None:
        catalogue.resolve(reranker)  # an unknown name shall not be found out after minutes of indexing
    test_collection = read_collection(collection, split=split) if collection else None
    judged = _read_topics(queries, qrels) if queries and qrels else test_collection
    if judged is not None and db is not None:
        database = open_existing(db, backend=backend)
    elif judged is not None and test_collection is not None:
        database = open_cached(test_collection, embed=embed, backend=backend, language=language)
    else:
        raise typer.BadParameter("give --collection DIR, or --db DIR with --queries FILE and --qrels FILE")
    judged = Topics.first(judged, limit)
    with database:
        systems = choose_systems(modes, reranker, depth=depth, k=k, dense=database.embedder is not None)
        results = list(run_systems(database, judged, systems, cached=cached))
        documents = database.count()
    if run is not None:
        _write_runs(run, results)
    name = test_collection.name if test_collection else str(db)
    if as_json:
        systems_json = [result.to_dict() for result in results]
        output.print_json(
            {"collection": name, "documents": documents, "queries": len(judged.queries), "systems": systems_json}
        )
    else:
        print_results(results, f"{name}: {len(judged.queries):,} queries, {documents:,} documents")


def choose_systems(
    modes: Sequence[Mode], reranker: str | None, *, depth: int, k: int = RANKING_DEPTH, dense: bool = True
) -> list[System]:
    """Return the systems to measure: each mode, reranked if a reranker is given; a sensible set without modes."""
    if modes:
        return [System(mode=mode, rerank=reranker, rerank_depth=depth, k=k) for mode in dict.fromkeys(modes)]
    plain: list[Mode] = ["lexical", "dense", "hybrid"] if dense else ["lexical"]
    systems = [System(mode=mode, k=k) for mode in plain]
    if reranker:
        systems.append(System(mode=plain[-1], rerank=reranker, rerank_depth=depth, k=k))
    return systems


def run_systems(
    database: Database, judged: Judged, systems: Sequence[System], *, cached: bool = True
) -> Iterator[SystemResult]:
    """Measure one system after the other, with progress."""
    run = evaluate_cached if cached else experiment.evaluate
    for system in systems:
        fetch_for_search(database, system.mode, system.rerank)
        with output.Meter(system.name, "queries") as meter:
            yield run(database, judged, system, on_progress=meter.update)


def open_cached(
    collection: TestCollection, *, embed: str = DEFAULT, backend: str | None = None, language: str = DEFAULT
) -> Database:
    """Return the cached database of a collection, indexed now if it isn't complete.

    Raises:
        EvaluationFailed: rows of the corpus were rejected.
    """
    embedder = None if embed == NONE else catalogue.resolve(config.DEFAULT_EMBEDDER if embed == DEFAULT else embed)
    key = f"{digest_files([collection.corpus_path])} {embedder.digest if embedder else NONE} {backend} {language}"
    folder = catalogue.cache_dir() / "collections" / f"{collection.name}-{_short_digest(key)}"
    if (folder / _COMPLETE).exists():
        return open_existing(folder, backend=backend)
    with ExitStack() as on_error:
        database = open_or_make(folder, embed=embed, backend=backend, language=language)
        on_error.callback(database.close)
        _index_corpus(database, collection, folder / REJECTS_NAME)
        (folder / _COMPLETE).touch()
        on_error.pop_all()
    return database


def _index_corpus(database: Database, collection: TestCollection, rejects_path: Path) -> None:
    report, interrupted = index_with_progress(database, [str(collection.corpus_path)], rejects_path)
    if interrupted:
        raise KeyboardInterrupt
    if not report.complete:
        failures = "".join(f"; {failure}" for failure in report.failures)
        raise EvaluationFailed(
            f"{report.rejected} rows of {collection.corpus_path} were rejected, so figures would be of another "
            f"collection: see {rejects_path}{failures}"
        )


def print_results(results: Sequence[SystemResult], title: str) -> None:
    """Print the table of systems; the best of each measure is bold."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("system")
    for heading in (*MEASURES, "p50", "p99"):
        table.add_column(heading, justify="right")
    best = {name: max(result.metrics[name] for result in results) for name in MEASURES}
    for result in results:
        figures = [
            Text(f"{result.metrics[name]:.3f}", style="bold green" if result.metrics[name] == best[name] else "")
            for name in MEASURES
        ]
        times = [Text(output.format_ms(result.latency_ms[name])) for name in ("p50", "p99")]
        table.add_row(Text(result.name), *figures, *times)
    output.out.print(table)
    if any(result.cached for result in results):
        output.out.print(Text("Figures of an earlier run with the same data, models and code.", style="dim"))


def _read_topics(queries: Path, qrels: Path) -> Topics:
    """Return the judged queries of two files, in the order of the judgments."""
    judgments = read_qrels(qrels)
    return Topics(read_judged_queries(queries, judgments), judgments)


def _write_runs(path: Path, results: Sequence[SystemResult]) -> None:
    for result in results:
        infix = f".{result.name.replace(' ', '')}" if len(results) > 1 else ""
        path.with_name(f"{path.stem}{infix}{path.suffix}").write_text(result.run, encoding="utf-8")


def _short_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
