"""`vectorsearch evaluate`: measure systems on a test collection, and compare them."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path  # noqa: TC003 -- typer reads it when it runs
from typing import TYPE_CHECKING, Annotated

import typer

from backends.catalogue import catalogue
from vectorsearch.cli import output
from vectorsearch.cli.commands.index import index_with_progress
from vectorsearch.cli.commands.search import RerankName, fetch_for_search, reranker_option
from vectorsearch.cli.compared import (
    Baseline,
    CollectionName,
    IgnoreOwn,
    JudgmentsFile,
    MeasureNames,
    QueryField,
    Report,
    collection_option,
    give_result,
)
from vectorsearch.cli.group import usage
from vectorsearch.cli.opening import MODES, BackendName, EmbedName, TenantName, as_mode, open_existing
from vectorsearch.cli.word_options import (
    NONE,
    Language,
)
from vectorsearch.database.engine import DEFAULT
from vectorsearch.evaluation.collecting.collections import read_judged
from vectorsearch.evaluation.collecting.indexed import needs_embedder, open_collection
from vectorsearch.evaluation.comparing.metrics import MEASURES, canonical_names
from vectorsearch.evaluation.experiment import Experiment, check_plan, check_rerankers
from vectorsearch.evaluation.systems import RANKING_DEPTH, System, current_defaults, parse_system, read_systems
from vectorsearch.query.planning.defaults import leaves_open
from vectorsearch.query.planning.plan import DEFAULT_RERANK_DEPTH

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from vectorsearch.database.database import Database
    from vectorsearch.evaluation.collecting.collections import TestCollection
    from vectorsearch.evaluation.collecting.topics import Judged
    from vectorsearch.evaluation.results import ExperimentResult
    from vectorsearch.ingestion.bulk import IngestReport
    from vectorsearch.types import Mode

HELP = """Measure search quality and time per query on a test collection, and compare systems.

Give a collection, a folder in BEIR's layout (corpus.jsonl, queries.jsonl, qrels/test.tsv), TREC's (topics.txt,
qrels.txt, documents/) or MS MARCO's (collection.tsv, queries.tsv, qrels.tsv), or ir_datasets:NAME, which is indexed
into the cache once; or a database with queries and judgments. Topics are read in the formats of TREC's tracks, TSV,
id:text and JSON. Systems are named one by one with [bold]--system[/] or in a TOML file;
or each [bold]--mode[/] is one, with [bold]--rerank[/] reranked. Without any they are lexical, dense, hybrid, with
--rerank also hybrid + rerank, and of a database that has been tuned its defaults, which are mode=auto as well. Each is
compared with the baseline, the first if none is named, by paired tests.

Nothing is degraded and no deadline is set. Answers are remembered under a digest of all that they depend on: one
system more asks only that one, and an interrupted run goes on where it stopped.

[bold]Examples[/]

  vectorsearch evaluate --collection scifact --rerank default
  vectorsearch evaluate --collection scifact --report report \\
    --system "BM25: mode=lexical" --system "best: rerank=default depth=20"
  vectorsearch evaluate --collection scifact \\
    --system "mode=lexical" --system "mixed: rerank=default blend=0.35"
  vectorsearch evaluate --db my.db --queries q.jsonl --qrels q.tsv \\
    --systems systems.toml --baseline BM25"""

_USAGE = "give --collection DIR, or --db DIR with --queries FILE and --qrels FILE"


def evaluate(
    *,
    collection: CollectionName = None,
    db: Annotated[Path | None, typer.Option(help="A database to search.", file_okay=False, metavar="DIR")] = None,
    tenant: TenantName = None,
    queries: Annotated[
        Path | None,
        typer.Option(
            help="JSON lines of _id and text, TSV, or TREC topics.", exists=True, dir_okay=False, metavar="FILE"
        ),
    ] = None,
    query_field: QueryField = None,
    qrels: JudgmentsFile = None,
    split: Annotated[str, typer.Option(help="Which of the collection's judgments.", metavar="NAME")] = "test",
    system: Annotated[
        list[str] | None,
        typer.Option(
            help='"NAME: mode=hybrid rerank=default depth=50 k=100 fusion=rrf"; may be repeated.', metavar="SYSTEM"
        ),
    ] = None,
    systems: Annotated[
        Path | None,
        typer.Option(
            help="TOML; each system is a table in the array called system.", exists=True, dir_okay=False, metavar="FILE"
        ),
    ] = None,
    mode: Annotated[list[str] | None, typer.Option(help=f"A system: {MODES}; may be repeated.", metavar="MODE")] = None,
    rerank: RerankName = "none",
    depth: Annotated[
        int, typer.Option(help="How many hits the reranker reads.", min=1, metavar="N")
    ] = DEFAULT_RERANK_DEPTH,
    k: Annotated[int, typer.Option(help="How many hits are measured.", min=1, metavar="N")] = RANKING_DEPTH,
    baseline: Baseline = None,
    measure: MeasureNames = None,
    limit: Annotated[int | None, typer.Option(help="Only the first N judged queries.", min=1, metavar="N")] = None,
    ignore_identical_ids: IgnoreOwn = None,
    run: Annotated[
        Path | None,
        typer.Option(help="Write a TREC run; of several systems, FILE.NAME.trec each.", dir_okay=False, metavar="FILE"),
    ] = None,
    report: Report = None,
    embed: EmbedName = DEFAULT,
    backend: BackendName = None,
    language: Language = DEFAULT,
    cached: Annotated[bool, typer.Option("--cache/--no-cache", help="Take answers of an earlier, equal run.")] = True,
    as_json: output.Json = False,
) -> None:
    """Measure and print."""
    with usage():
        named = [parse_system(text) for text in system or []]
        measures = canonical_names(measure or MEASURES)
    named += read_systems(systems) if systems else []
    modes, reranker = [as_mode(name) for name in mode or []], reranker_option(rerank)
    if named and reranker and not modes:
        raise typer.BadParameter("say rerank=… in the systems, or name a --mode", param_hint="--rerank")
    if db is not None and (embed, language) != (DEFAULT, DEFAULT):
        raise typer.BadParameter("a database has its own model and language", param_hint="--embed, --language")
    if tenant is not None and db is None:
        raise typer.BadParameter("a tenant is one of a database: give --db as well", param_hint="--tenant")
    output.check_folder(run, option="--run")
    if modes:
        named += choose_systems(modes, reranker, depth=depth, k=k)
    planned = named or choose_systems([], reranker, depth=depth, k=k, dense=embed != NONE)
    _check_run_files(run, [each.name for each in planned])
    check_plan(planned, measures)  # what can't work shall not be found out after minutes of indexing
    if db is None:  # which may have models of its own
        check_rerankers(planned, catalogue.resolve)
    test_collection = collection_option(collection, split=split, field=query_field)
    judged = _judged(test_collection, queries, qrels, field=query_field)
    with _open(
        test_collection, db, planned, tenant=tenant, embed=embed, backend=backend, language=language
    ) as database:
        if not named:
            planned = choose_systems([], reranker, depth=depth, k=k, dense=database.embedder is not None)
            planned += [System(name="defaults", mode="auto", k=k)] if current_defaults(database) else []
        experiment = Experiment(
            planned,
            db=database,
            judged=judged,
            name=test_collection.name if test_collection else "/".join(filter(None, (str(db), tenant))),
            measures=measures,
            baseline=baseline,
            limit=limit,
            cache=cached,
            ignore_identical_ids=ignore_identical_ids,
        )
        result = run_with_progress(experiment, database)
    title = f"{result.collection}: {len(result.queries):,} queries, {result.documents:,} documents"
    give_result(result, title, report=report, as_json=as_json)
    if run is not None:
        write_runs(run, result)


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


def run_with_progress(experiment: Experiment, database: Database) -> ExperimentResult:
    """Fetch the models, and ask one system after the other with a progress bar for each."""
    for system in experiment.systems:
        for name in system.reranker_names or (None,):
            fetch_for_search(database, system.mode, name)
    if (kept := current_defaults(database)) and any(
        leaves_open(system.search_options()) for system in experiment.systems
    ):
        fetch_for_search(database, "auto", kept.rerank)
    with ExitStack() as stack:
        meters: dict[str, output.Meter] = {}

        def show(system: System, done: int, total: int) -> None:
            if system.name not in meters:
                stack.close()  # ends the bar of the system before
                meters[system.name] = stack.enter_context(output.Meter(system.name, "queries"))
            meters[system.name].update(done, total)

        return experiment.run(on_progress=show)


def open_with_progress(
    collection: TestCollection,
    systems: Sequence[System],
    *,
    embed: str = DEFAULT,
    backend: str | None = None,
    language: str = DEFAULT,
) -> Database:
    """Return the cached database of a collection, indexed now, with progress, if it isn't complete.

    Where no system searches vectors, nothing is embedded.

    Raises:
        EvaluationFailed: rows of the corpus were rejected.
    """
    without = embed == NONE or not needs_embedder(systems)
    return open_collection(
        collection,
        embed=None if without else embed,
        backend=backend,
        language=None if language == NONE else language,
        index=_index,
    )


def write_runs(path: Path, result: ExperimentResult) -> None:
    """Write each system's TREC run: to the file itself, or, of several, to FILE.NAME.trec each."""
    files = _run_files(path, [system.name for system in result.systems])
    for system, file in zip(result.systems, files, strict=True):
        output.write_text(file, system.run)


def _run_files(path: Path, names: Sequence[str]) -> list[Path]:
    if len(names) == 1:
        return [path]
    safe = (re.sub(r"[^-+.\w]", "_", "".join(name.split())) for name in names)  # it may hold what separates folders
    return [path.with_name(f"{path.stem}.{name}{path.suffix}") for name in safe]


def _check_run_files(path: Path | None, names: Sequence[str]) -> None:
    """Refuse systems whose runs would be one file, also where capitals count for nothing in files' names."""
    taken: dict[str, str] = {}
    for name, file in zip(names, _run_files(path, names), strict=True) if path is not None else ():
        other = taken.setdefault(file.name.casefold(), name)
        if other != name:
            raise typer.BadParameter(f"{other!r} and {name!r} would both be {file}: rename one", param_hint="--run")


def _index(database: Database, corpus: Path, rejects: Path) -> IngestReport:
    report, interrupted = index_with_progress(database, [str(corpus)], rejects)
    if interrupted:
        raise KeyboardInterrupt
    return report


def _judged(
    collection: TestCollection | None, queries: Path | None, qrels: Path | None, *, field: str | None
) -> Judged:
    if (queries is None) != (qrels is None):
        raise typer.BadParameter("--queries and --qrels go together")
    if queries is not None and qrels is not None:
        return read_judged(queries, qrels, field=field)
    if collection is None:
        raise typer.BadParameter(_USAGE)
    return collection


def _open(
    collection: TestCollection | None,
    db: Path | None,
    systems: Sequence[System],
    *,
    tenant: str | None,
    embed: str,
    backend: str | None,
    language: str,
) -> AbstractContextManager[Database]:
    if db is not None:
        return open_existing(db, tenant=tenant, backend=backend)
    if collection is None:
        raise typer.BadParameter(_USAGE)
    return open_with_progress(collection, systems, embed=embed, backend=backend, language=language)
