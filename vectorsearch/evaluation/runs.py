"""Read and write TREC runs, so that the rankings of any engine can be judged."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from backends.errors import InvalidInput
from vectorsearch.evaluation.lines import parsed_lines
from vectorsearch.evaluation.systems import refuse_repeated_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_COLUMNS = 6


@dataclass(frozen=True, slots=True)
class Run:
    """An engine's rankings: query id to document ids, best first. `tag` is the file's last column.

    `ties` counts neighbours of equal score; they are ordered as trec_eval orders them.
    """

    path: Path
    tag: str
    rankings: Mapping[str, Sequence[str]]
    ties: int


def read_run(path: str | Path) -> Run:
    """Return the run in a file of `query Q0 document rank score tag` lines; it may be gzipped.

    As for trec_eval, the score orders a query's documents and the rank column counts for nothing; equal scores are
    ordered by document id, descending, so that figures are those of trec_eval, whatever tool computes them. It holds
    scores as float32: what differs by less than that tells is equal.

    Raises:
        InvalidInput: a line is malformed, a score is no finite number, or a query has a document twice; the message
            holds the file and the line.
    """
    scores: dict[str, dict[str, float]] = {}
    tag = ""
    for number, (query, document, score, last_column) in parsed_lines(Path(path), _parse):
        found = scores.setdefault(query, {})
        if document in found:
            raise InvalidInput(f"{path}, line {number}: query {query!r} has document {document!r} twice")
        found[document] = score
        tag = last_column
    if not scores:
        raise InvalidInput(f"{path}: holds no run")
    ties = sum(len(found) - len(set(found.values())) for found in scores.values())
    rankings = {query: _ordered(found) for query, found in scores.items()}
    return Run(Path(path), tag, rankings, ties)


def name_runs(runs: Iterable[Run]) -> dict[str, Run]:
    """Return the runs by name: their tags if no two are alike, else their files' names.

    Raises:
        InvalidInput: the files' names are alike as well.
    """
    listed = list(runs)
    names = [run.tag for run in listed]
    if len(set(names)) < len(names):
        names = [run.path.name.removesuffix(".gz") for run in listed]
    refuse_repeated_names(names)
    return dict(zip(names, listed, strict=True))


def _ordered(scores: Mapping[str, float]) -> list[str]:
    return sorted(scores, key=lambda document: (scores[document], document), reverse=True)


def _parse(line: str) -> tuple[str, str, float, str]:
    columns = line.split()
    if len(columns) != _COLUMNS:
        raise InvalidInput(f"{len(columns)} columns: a TREC run has 6 (query, Q0, document, rank, score, tag)")
    query, _, document, _, score, tag = columns
    try:
        value = float(score)
    except ValueError as exc:
        raise InvalidInput(f"the score {score[:60]!r} is no number") from exc
    if not math.isfinite(value):
        raise InvalidInput(f"the score {score[:60]!r} is no finite number")
    with np.errstate(over="ignore"):  # to infinity, as in C
        return query, document, float(np.float32(value)), tag
