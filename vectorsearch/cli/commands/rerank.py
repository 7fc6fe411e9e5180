"""`vectorsearch rerank`: order any engine's candidates by a cross-encoder, from a TREC run or from JSON lines."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from backends.catalogue import catalogue
from backends.errors import InvalidInput, VectorSearchError
from rerank import CrossEncoder
from vectorsearch import config
from vectorsearch.cli import output
from vectorsearch.cli.answer import json_text
from vectorsearch.cli.group import FAILED
from vectorsearch.cli.opening import BackendName, fetch_models
from vectorsearch.evaluation.formats.document_files import DocumentFile
from vectorsearch.evaluation.formats.runs import read_run
from vectorsearch.evaluation.formats.topic_files import read_topics
from vectorsearch.ingestion.documents import parse_document, parse_json
from vectorsearch.query.results import format_trec

if TYPE_CHECKING:
    from collections.abc import Iterable

HELP = """Order the candidates of any engine by a cross-encoder; needs no database.

Either a run with its queries and corpus, in any format that evaluate and compare read, written as a TREC run with the
model's scores (candidates that it didn't read follow, each 1 below the one before); or, without --run, JSON lines
on standard input, {"query": "…", "documents": ["…", {"id": "…", "text": "…"}]}, answered by a line each on standard
output: {"query": "…", "results": [{"index": 0, "id": "…", "score": 3.2}]}, best first. A line that can't be read is
answered by {"error": "…"}, and the exit code is 1. With --json all answers are one document, written at the end.

[bold]Examples[/]

  vectorsearch rerank --run bm25.trec --queries queries.jsonl --corpus corpus.jsonl --run-out reranked.trec
  echo '{"query": "csv", "documents": ["csv.reader", "time.sleep"]}' | vectorsearch rerank"""

TAG = "vectorsearch"

Input = Annotated[Path | None, typer.Option(exists=True, dir_okay=False, metavar="FILE", show_default=False)]


def rerank(  # noqa: D103 -- HELP is its help
    *,
    model: Annotated[
        str, typer.Option(help="The cross-encoder: a name, a folder, or [bold]default[/].", metavar="NAME")
    ] = "default",
    run: Input = None,
    queries: Input = None,
    corpus: Input = None,
    run_out: Annotated[
        Path | None,
        typer.Option(help="Where the new run goes; standard output by default.", metavar="FILE", show_default=False),
    ] = None,
    depth: Annotated[
        int, typer.Option(help="How many of a query's candidates are read; the others follow in their order.", min=1)
    ] = 100,
    max_length: Annotated[
        int | None, typer.Option(help="Tokens of query and text together; by default the model's own.", min=8)
    ] = None,
    backend: BackendName = None,
    as_json: output.Json = False,
) -> None:
    name = config.DEFAULT_RERANKER if model == "default" else model
    if run is not None and (queries is None or corpus is None):
        raise typer.BadParameter("a run needs --queries and --corpus as well", param_hint="--run")
    if run is None and (queries or corpus or run_out):
        raise typer.BadParameter("--queries, --corpus and --run-out belong to --run", param_hint="--run")
    output.check_folder(run_out, option="--run-out")
    fetch_models([catalogue.resolve(name)])
    with CrossEncoder(name, backend=backend, max_length=max_length) as encoder:
        if run is None:
            _answer_lines(encoder, _input(), as_json=as_json)
        else:
            _order_run(encoder, run, queries or Path(), corpus or Path(), depth=depth, out=run_out, as_json=as_json)


def _input() -> Iterable[bytes]:
    if sys.stdin is None:
        raise InvalidInput("standard input is closed: pipe the lines in, or give --run")
    return sys.stdin.buffer  # bytes: a line that isn't UTF-8 is one line's error, not the end of all


def _answer_lines(encoder: CrossEncoder, lines: Iterable[bytes], *, as_json: bool) -> None:
    failed = False
    asked = 0
    answers: list[dict[str, Any]] = []
    for line in lines:
        if not line.strip():
            continue
        asked += 1
        try:
            answer = _answer(encoder, line)
        except VectorSearchError as exc:
            answer, failed = {"error": str(exc)}, True
        if as_json:
            answers.append(answer)
            continue
        sys.stdout.write(json_text(answer) + "\n")
        sys.stdout.flush()  # whoever asks line by line waits for it
    if not asked:
        raise InvalidInput('standard input holds no line: a line is {"query": "…", "documents": ["…"]}')
    if as_json:
        output.print_json({"model": encoder.name, "answers": answers})
    if failed:
        raise typer.Exit(FAILED)


def _answer(encoder: CrossEncoder, line: bytes) -> dict[str, Any]:
    asked = parse_json(line)
    documents = asked.get("documents") if isinstance(asked, dict) else None
    if not isinstance(documents, list) or not isinstance(asked.get("query"), str):
        raise InvalidInput('a line must be {"query": "…", "documents": ["…"]}')
    texts = [_text_of(index, document) for index, document in enumerate(documents)]
    results = []
    for found in encoder.rank(asked["query"], texts):
        document = documents[found.index]
        named = {"id": document["id"]} if isinstance(document, dict) and "id" in document else {}
        results.append({"index": found.index, **named, "score": found.score})
    return {"query": asked["query"], "results": results}


def _text_of(index: int, document: object) -> str:
    text = document.get("text") if isinstance(document, dict) else document
    if not isinstance(text, str):
        raise InvalidInput(f"documents[{index}] has no text: give a string, or an object with 'text'")
    return text


def _order_run(
    encoder: CrossEncoder, run: Path, queries: Path, corpus: Path, *, depth: int, out: Path | None, as_json: bool
) -> None:
    candidates, topics = read_run(run), read_topics(queries)
    rankings, asked = candidates.rankings, topics.texts
    notes = [*candidates.notes, *topics.notes]
    if unknown := [query for query in rankings if query not in asked]:
        raise InvalidInput(f"{run}: query {unknown[0]!r} has no text in {queries}")
    texts = _texts(corpus, {document for ranking in rankings.values() for document in ranking[:depth]})
    for note in notes:
        output.print_warning(note)
    lines: list[str] = []
    with output.Meter("reranking", "queries") as meter:
        for done, (query, ranking) in enumerate(rankings.items(), 1):
            ordered = encoder.rank(asked[query], [texts[document] for document in ranking[:depth]])
            ids = [ranking[found.index] for found in ordered] + [*ranking[depth:]]
            lines.append(format_trec(query, ids, tag=TAG, scores=[found.score for found in ordered]))
            meter.update(done, len(rankings))
    text = "".join(lines)
    if out is None and not as_json:
        sys.stdout.write(text)
        return
    if out is not None:
        output.write_text(out, text)
    if as_json:
        output.print_json({"model": encoder.name, "queries": len(rankings), "run_out": str(out) if out else None})
    else:
        output.out.print(Text(f"{output.counted(len(rankings), 'ranking')} by {encoder.name}: {out}"))


def _texts(corpus: Path, wanted: set[str]) -> dict[str, str]:
    """Return the texts of the wanted documents; the corpus is read once, and only those are kept."""
    texts: dict[str, str] = {}
    for number, row in DocumentFile(corpus):
        try:
            document = parse_document(row, row_number=number)
        except InvalidInput as exc:
            raise InvalidInput(f"{corpus}, line {number}: {exc}") from exc
        text = document.full_text
        if document.id in wanted and texts.setdefault(document.id, text) != text:
            raise InvalidInput(f"{corpus}, line {number}: document {document.id!r} comes twice, with another text")
    if missing := wanted - texts.keys():
        others = f", nor {len(missing) - 1} others" if len(missing) > 1 else ""
        raise InvalidInput(f"{corpus}: document {min(missing)!r} of the run is not there{others}")
    return texts
