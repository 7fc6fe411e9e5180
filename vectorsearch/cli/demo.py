"""`vectorsearch demo`: the whole way on real input, from documents to reranked hits and their measures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from backends import catalogue
from vectorsearch import config
from vectorsearch.cli import output
from vectorsearch.cli.collections import build_with_progress, stdlib_folder
from vectorsearch.cli.evaluate import open_cached, print_results, run_systems
from vectorsearch.cli.opening import fetch_models
from vectorsearch.evaluation.collections import read_collection
from vectorsearch.evaluation.experiment import System

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vectorsearch.database import Database
    from vectorsearch.evaluation.collections import TestCollection
    from vectorsearch.results import SearchResult, StageStats

# Questions of the collection where words alone mislead.
QUESTIONS = ("q001", "q002", "q003")
SYSTEMS = (
    System(mode="lexical"),
    System(mode="hybrid"),
    System(mode="hybrid", rerank=config.DEFAULT_RERANKER, rerank_depth=50),
)
SHOWN_HITS = 3
_MARKS = {0: "", 1: "helps", 2: "answers"}


def demo(*, as_json: output.Json = False) -> None:
    """Show the whole way: fetch two models, index Python's own documentation, ask, and measure.

    A second run does nothing twice; only the questions are asked again.
    """
    _step("Models", as_json)
    specs = [catalogue.resolve(name) for name in (config.DEFAULT_EMBEDDER, config.DEFAULT_RERANKER)]
    fetch_models(specs)
    _say(f"embed with {specs[0].name}, rerank with {specs[1].name}", as_json)

    _step("Documents", as_json)
    folder = stdlib_folder()
    if not (folder / "build.json").exists():
        build_with_progress(folder)
    collection = read_collection(folder)
    with open_cached(collection) as database:
        documents = database.count()
        _say(f"{documents:,} entries of the standard library of Python, {len(collection.queries)} questions", as_json)

        _step("Three questions", as_json)
        answers = [_ask(database, collection, query_id, as_json) for query_id in QUESTIONS]

        _step("Evaluation", as_json)
        results = list(run_systems(database, collection, SYSTEMS))
    if as_json:
        figures = [result.to_dict() for result in results]
        output.print_json({"documents": documents, "questions": answers, "systems": figures})
    else:
        print_results(results, f"{len(collection.queries)} questions with graded judgments")


def _ask(database: Database, collection: TestCollection, query_id: str, as_json: bool) -> dict[str, Any]:  # noqa: FBT001
    """Ask one question of each system, print the answers, and return them as plain values."""
    text = collection.queries[query_id]
    if not as_json:
        output.out.print(Text(f"\n{text}", style="bold"))
    answers = {}
    for system in SYSTEMS:
        result = system.search(database, text)
        answers[system.name] = {**result.to_dict(), "hits": [hit.id for hit in result[:SHOWN_HITS]]}
        if not as_json:
            _print_answer(system.name, result, collection.qrels[query_id])
    return {"question": text, "answers": answers}


def _print_answer(name: str, result: SearchResult, grades: Mapping[str, int]) -> None:
    output.out.print(Text.assemble(("  " + name, "cyan"), (f"  {output.format_ms(result.latency_ms)}", "dim")))
    table = Table.grid(padding=(0, 1))
    for hit in result[:SHOWN_HITS]:
        grade = grades.get(hit.id, 0)
        table.add_row(
            "   ",
            str(hit.rank),
            Text(hit.id, style="bold green" if grade else ""),
            Text(_MARKS.get(grade, ""), style="green"),
        )
    output.out.print(table)
    stages = [_stage(stage) for stage in result.stats if stage.latency_ms >= 0.1]  # noqa: PLR2004 -- shorter ones only clutter
    output.out.print(Text("    " + ", ".join(stages), style="dim"))


def _stage(stage: StageStats) -> str:
    text = f"{stage.stage} {output.format_ms(stage.latency_ms)}"
    if stage.model is None:
        return text
    return f"{text} ({f'cold: {output.format_ms(stage.load_ms)} loading' if stage.cold else 'warm'})"


def _step(title: str, as_json: bool) -> None:  # noqa: FBT001
    if not as_json:
        output.out.print(Rule(title, align="left", style="dim"))


def _say(text: str, as_json: bool) -> None:  # noqa: FBT001
    if not as_json:
        output.out.print(Text(text))
