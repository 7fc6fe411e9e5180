"""`vectorsearch demo`: the whole way on real input, from documents to reranked hits and their measures."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Any

from rich.padding import Padding
from rich.rule import Rule
from rich.text import Text

from backends.catalogue import catalogue
from vectorsearch import config
from vectorsearch.cli import output
from vectorsearch.cli.commands.collections import build_with_progress, stdlib_folder
from vectorsearch.cli.commands.evaluate import open_with_progress, run_with_progress
from vectorsearch.cli.compared import print_result
from vectorsearch.cli.opening import fetch_models
from vectorsearch.evaluation.collecting.collections import read_collection
from vectorsearch.evaluation.experiment import Experiment
from vectorsearch.evaluation.systems import System

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import RenderableType

    from vectorsearch.database.database import Database
    from vectorsearch.evaluation.collecting.collections import TestCollection
    from vectorsearch.query.results import Hit, StageStats

    Say = Callable[[RenderableType], None]

# Questions of the collection whose words are not those of the answer.
QUESTIONS = (
    "compare secrets without leaking timing",
    "do two files have exactly the same content?",
    "which of two snippets is faster",
)
SYSTEMS = (
    System(mode="lexical"),
    System(mode="hybrid"),
    System(mode="hybrid", rerank=config.DEFAULT_RERANKER, rerank_depth=50),
)
SHOWN_HITS = 3
SHOWN_MS = 0.5  # shorter stages only clutter
_MARKS = {1: "○", 2: "●"}


def demo(*, as_json: output.Json = False) -> None:
    """Show the whole way: fetch two models, index Python's own documentation, ask, and measure.

    A second run does nothing twice; only the questions are asked again.
    """
    say = _silent if as_json else _print
    say(_title("Models"))
    specs = [catalogue.resolve(name) for name in (config.DEFAULT_EMBEDDER, config.DEFAULT_RERANKER)]
    fetch_models(specs)
    say(Text(f"{specs[0].name} embeds, {specs[1].name} reranks"))

    say(_title("Documents"))
    folder = stdlib_folder()
    if not (folder / "build.json").exists():
        build_with_progress(folder)
    collection = read_collection(folder)
    with open_with_progress(collection, SYSTEMS) as database:
        documents = database.count()
        say(Text(f"{documents:,} entries of the documentation of Python {platform.python_version()}"))

        say(_title("Three questions"))
        say(
            Text.assemble(
                (_MARKS[2], "green"), " answers the question, ", (_MARKS[1], "green"), " helps, as judged by hand"
            )
        )
        answers = [_ask(database, collection, question, say) for question in QUESTIONS]

        say(_title("Evaluation"))
        result = run_with_progress(Experiment(SYSTEMS, db=database, judged=collection), database)
    if as_json:
        output.print_json({**result.to_dict(), "questions": answers})
    else:
        print_result(result, f"{len(collection.queries)} questions with graded judgments")


def _ask(database: Database, collection: TestCollection, question: str, say: Say) -> dict[str, Any]:
    """Ask one question of each system, print the answers, and return them as plain values."""
    query_id = next((key for key, text in collection.queries.items() if text == question), None)
    grades = collection.qrels[query_id] if query_id else {}
    say(Text(f"\n{question}", style="bold"))
    answers = {}
    for system in SYSTEMS:
        result = system.search(database, question)
        answers[system.name] = {**result.to_dict(), "hits": [hit.id for hit in result[:SHOWN_HITS]]}
        say(Text.assemble(("  " + system.name, "cyan"), (f"  {output.format_ms(result.latency_ms)}", "dim")))
        for hit in result[:SHOWN_HITS]:
            say(_hit_line(hit, grades.get(hit.id, 0)))
        stages = [_stage(stage) for stage in result.stats if stage.latency_ms >= SHOWN_MS]
        say(Padding(Text(", ".join(stages), style="dim"), (0, 0, 0, 4)))
    return {"question": question, "answers": answers}


def _hit_line(hit: Hit, grade: int) -> Text:
    line = Text.assemble(f"    {hit.rank} ", (_MARKS.get(grade, " "), "green"), " ", (hit.id, "bold" if grade else ""))
    line.append(f"  {output.one_line(hit.text[:200])}", style="dim")
    line.truncate(output.out.width, overflow="ellipsis")
    return line


def _stage(stage: StageStats) -> str:
    text = f"{stage.stage} {output.format_ms(stage.latency_ms)}"
    if stage.model is None:
        return text
    return f"{text} ({f'cold, {output.format_ms(stage.load_ms)} loading' if stage.cold else 'warm'})"


def _title(text: str) -> Padding:
    return Padding(Rule(f"[bold]{text}[/]", align="left", style="dim"), (1, 0, 0, 0))


def _print(line: RenderableType) -> None:
    output.out.print(line)


def _silent(line: RenderableType) -> None:
    """Print nothing: stdout is for the JSON document."""
