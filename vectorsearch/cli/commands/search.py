"""`vectorsearch search`: one query, its hits, and what each stage did."""

from __future__ import annotations

import contextlib
import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import typer
from rich.text import Text

from backends.errors import InvalidInput, ModelUnavailable
from vectorsearch import config
from vectorsearch.cli import output
from vectorsearch.cli.group import FAILED, usage
from vectorsearch.cli.opening import (
    MODES,
    BackendName,
    DatabaseFolder,
    TenantName,
    as_mode,
    fetch_models,
    one_of,
    open_existing,
)
from vectorsearch.collection.index.filtering.filters import MOMENT, checked_filter
from vectorsearch.collection.stored_values import moment_in
from vectorsearch.ingestion.documents import parse_json
from vectorsearch.query.execution.fusion import Fusion
from vectorsearch.query.planning.request import SearchRequest, check_request
from vectorsearch.query.planning.rerankers import Rerank

if TYPE_CHECKING:
    from vectorsearch.database.database import Database
    from vectorsearch.query.results import SearchResult
    from vectorsearch.types import Mode

HELP = """Search a database and print the best hits.

What isn't said by options is done as the database has learned it ([bold]tune[/]), or else as told below.

If a stage had to be left out (no memory for its model, say), the hits of the others are printed, a warning says so,
and the exit code is 1.

[bold]Examples[/]

  vectorsearch search "parse a csv file" --db my.db
  vectorsearch search "parse a csv file" --db my.db --rerank default --explain --svg timeline.svg
  vectorsearch search "tax law" --db my.db --filter year=2020 --json"""

RerankName = Annotated[
    str | None,
    typer.Option(
        "--rerank",
        help=f"Reranking model: a name, a folder, [bold]default[/] ({config.DEFAULT_RERANKER}), or [bold]none[/].",
        metavar="NAME",
    ),
]

_SIGNS = {"=": "$eq", "!=": "$ne", ">": "$gt", ">=": "$gte", "<": "$lt", "<=": "$lte"}
_COMPARISON = re.compile(r"(.+?)(>=|<=|!=|=|>|<)(.*)", re.DOTALL)

# What is to be said of such names where no stage has an error to tell.
_DETAILS = {
    ":budget": "its model doesn't fit into the memory budget",
    "dense:unavailable": "its model can't be used here; --mode dense tells why",
}

SvgFile = Annotated[
    Path | None,
    typer.Option("--svg", help="Write the stages as a timeline to this file.", dir_okay=False, metavar="FILE"),
]
Blend = Annotated[
    float | None,
    typer.Option(
        help="Weight of the rerank score beside the first stage's, 0 to 1; by default it decides alone.",
        min=0,
        max=1,
        metavar="W",
        show_default=False,
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        help="Seconds that the search may take; what is late is left out. The loading of models counts.",
        metavar="S",
        show_default=False,
    ),
]
Filters = Annotated[
    list[str] | None,
    typer.Option(
        "--filter",
        help="Only documents whose metadata has this; may be repeated. Beside = there are != > >= < <=. Numbers, true, "
        """false, null and dates (2020-01-31) are read as such; "quotes" make text of them. Or a filter as JSON: """
        """'{"year": {"$gte": 2020}, "day": {"$lt": {"$date": "2020-01-31"}}}'.""",
        metavar="KEY=VALUE|JSON",
    ),
]
MinScore = Annotated[
    float | None, typer.Option(help="Drop hits whose rerank score is lower.", metavar="X", show_default=False)
]
FusionName = Annotated[
    str | None, typer.Option(help=f"How hybrid lists are merged: {', '.join(get_args(Fusion))}.", metavar="NAME")
]


def search(
    query: Annotated[str, typer.Argument(help="What to look for.", metavar='"QUERY"')],
    *,
    db: DatabaseFolder,
    tenant: TenantName = None,
    k: Annotated[int, typer.Option("-k", help="Number of hits.", min=0, metavar="N")] = 10,
    mode: Annotated[
        str, typer.Option(help=f"{MODES}; auto is hybrid if there is an embedder.", metavar="MODE")
    ] = "auto",
    rerank: RerankName = None,
    rerank_depth: Annotated[
        int | None,
        typer.Option(help="How many hits the reranker reads; the larger of k and 50 by default.", min=0, metavar="N"),
    ] = None,
    min_score: MinScore = None,
    blend: Blend = None,
    fusion: FusionName = None,
    timeout: Timeout = None,
    filters: Filters = None,
    explain: Annotated[bool, typer.Option("--explain", help="Print the plan and what each stage did.")] = False,
    svg: SvgFile = None,
    backend: BackendName = None,
    as_json: output.Json = False,
) -> None:
    """Search and print."""
    wanted = parse_filters(filters or [])
    chosen = as_mode(mode)
    merged: Fusion = "rrf" if fusion is None else as_fusion(fusion)
    reranker = reranker_option(rerank)
    with usage():  # what no database could answer
        check_request(SearchRequest(query=query, k=k, mode=chosen, fusion=merged, timeout_s=timeout))
        checked_filter(wanted)
    output.check_folder(svg, option="--svg")
    if blend is not None and reranker is None:
        raise typer.BadParameter("nothing reranks: give --rerank NAME as well", param_hint="--blend")
    with open_existing(db, tenant=tenant, backend=backend) as database:
        with contextlib.suppress(ModelUnavailable):  # the search tells what it has to go without, or that it can't
            fetch_for_search(database, chosen, reranker)
        explanation = database.explain(
            query,
            analyze=True,
            k=k,
            mode=chosen,
            filter=wanted or None,
            fusion=None if fusion is None else merged,
            rerank=Rerank(reranker, blend=blend) if reranker else None if rerank is None else False,
            rerank_depth=rerank_depth,
            min_score=min_score,
            timeout_s=timeout,
        )
    result = explanation.ran
    if as_json:
        output.print_json({**result.to_dict(), **({"plan": asdict(result.plan)} if explain else {})})
    else:
        _print_hits(result)
        if explain:
            output.out.print(Text(f"\n{explanation}"), soft_wrap=True)
    if svg is not None:
        output.write_text(svg, explanation.to_svg())
    for note in result.notes:
        output.print_warning(note)
    if result.degraded:
        for line in degradations(result):
            output.print_warning(line)
        raise typer.Exit(FAILED)


def as_fusion(name: str) -> Fusion:
    """Return the fusion of this name.

    Raises:
        typer.BadParameter: there is none.
    """
    return cast("Fusion", one_of(get_args(Fusion), name, option="--fusion"))


def reranker_option(name: str | None) -> str | None:
    """Return the model that `--rerank NAME` names."""
    return {None: None, "none": None, "default": config.DEFAULT_RERANKER}.get(name, name)


def fetch_for_search(database: Database, mode: Mode, reranker: str | None) -> None:
    """Fetch the models that a search will need, so that a download shows its progress.

    Raises:
        UnknownModel: the reranker's name is unknown.
    """
    specs = [database.find_reranker(reranker)] if reranker else []
    if mode != "lexical" and database.embedder is not None:
        specs.append(database.embedder)
    fetch_models(specs)


def parse_filters(options: list[str]) -> dict[str, Any]:
    """Return the filter of `KEY=VALUE` options, `>=` and the like, and of whole filters in JSON; all of them must hold.

    A value that is a JSON scalar is read as such, a date or time by ISO 8601 as a moment, and operators after `=` as
    themselves.

    Raises:
        typer.BadParameter: an option is neither, or a key comes twice.
    """
    fields: dict[str, dict[str, Any]] = {}
    whole = []
    for option in options:
        if option.lstrip().startswith("{"):
            whole.append(_json_filter(option))
            continue
        parts = _COMPARISON.fullmatch(option)
        if parts is None:
            raise typer.BadParameter(f"{option!r} is not KEY=VALUE", param_hint="--filter")
        key, sign, text = parts.groups()
        asked = _operand(key, sign, text)
        held = fields.setdefault(key, {})
        if held.keys() & asked.keys() or (held and "$eq" in {*held, *asked}):
            raise typer.BadParameter(f"{key!r} is given twice", param_hint="--filter")
        held |= asked
    filters = {key: asked.get("$eq", asked) if len(asked) == 1 else asked for key, asked in fields.items()}
    return {"$and": [*([filters] if filters else []), *whole]} if whole else filters


def _json_filter(text: str) -> dict[str, Any]:
    try:
        wanted: dict[str, Any] = parse_json(text)
    except InvalidInput as exc:
        raise typer.BadParameter(f"{text[:60]!r}: {exc}", param_hint="--filter") from exc
    return wanted


def _operand(key: str, sign: str, text: str) -> dict[str, Any]:
    """Return the operators that a value stands for: one by its sign, or those that it states itself as JSON."""
    try:
        value = parse_json(text)
    except InvalidInput:
        value = {MOMENT: text} if moment_in(text) else text
    if not isinstance(value, dict | list) or (isinstance(value, dict) and MOMENT in value):
        return {_SIGNS[sign]: value}
    if sign == "=" and isinstance(value, dict) and value and all(name.startswith("$") for name in value):
        return value
    hint = f"""{key}={{"$in": {text}}} for one of several""" if isinstance(value, list) else f'{key}={{"$gte": 1}}'
    raise typer.BadParameter(
        f"{key}{sign}{text[:60]} is neither a value nor operators: say {hint}, and put text in double quotes",
        param_hint="--filter",
    )


def degradations(result: SearchResult) -> list[str]:
    """Return a line for each stage that was left out."""
    errors = {stage.stage: stage.error for stage in result.stats if stage.error}
    reasons = []
    for name in result.degraded:
        if name.startswith("defaults:"):
            reasons.append(f"its defaults are {result.plan.defaults}")
            continue
        stage = "encode" if name.startswith("dense:") else name.partition(":")[0]
        detail = errors.get(stage) or next((text for end, text in _DETAILS.items() if name.endswith(end)), "")
        reasons.append(f"went without {name}{f': {detail}' if detail else ''}")
    return reasons


def _print_hits(result: SearchResult) -> None:
    width = len(str(len(result)))
    for hit in result:
        score = f"{hit.score:.4g}"
        heading = Text(f"{hit.rank:>{width}}  ", style="cyan")
        heading.append(output.one_line(hit.id), style="bold default")
        output.print_clipped(heading, right=Text(score, style="green"))
        for line, style in ((hit.title, ""), (hit.text[:1000], "dim")):
            if line:
                output.print_clipped(Text(" " * (width + 2)).append(output.one_line(line), style=style))
    stages = [result.plan.mode] + (["rerank"] if any("rerank" in hit.scores for hit in result) else [])
    found = output.counted(len(result), "hit") if result.hits else "no hits"
    documents = output.counted(result.plan.documents, "document")
    time = output.format_ms(result.latency_ms)
    output.out.print(Text(f"{found}, {' + '.join(stages)}, {documents}, {time}", style="dim"))
