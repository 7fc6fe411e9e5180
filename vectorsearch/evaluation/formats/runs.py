"""Read runs, so that the rankings of any engine can be judged: TREC's, MS MARCO's, and those written as JSON."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, field
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from backends.errors import InvalidInput
from vectorsearch.evaluation.formats.columns import by_query
from vectorsearch.evaluation.formats.text_files import ENDINGS, Lines, numbered_lines, shown, split_blank
from vectorsearch.evaluation.systems import refuse_repeated_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_MARCO, _MARCO_SCORED, _TREC = 3, 4, 6
_EXPECTED = (
    "a TREC run has 6 (query, Q0, document, rank, score, tag), MS MARCO's 3 or 4 (query, document, rank, and a score)"
)
_FILLERS = frozenset({"0", "Q0", "q0"})  # what stands in the second column of judgments
_GRADES = frozenset({-2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0})
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(inf|nan|infinity)", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True, slots=True)
class Run:
    """An engine's rankings: query id to document ids, best first. `tag` is the file's last column.

    `ties` counts neighbours of equal score; they are ordered as trec_eval orders them. `scores` are query id to
    {document id: score as float32}, in the order of the rankings; of a run without scores, the negative rank.
    """

    path: Path
    tag: str
    rankings: Mapping[str, Sequence[str]]
    ties: int
    scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def read_run(path: str | Path) -> Run:
    """Return the run in a file, which may be compressed.

    Of `query Q0 document rank score tag` lines, as for trec_eval, the score orders a query's documents and the rank
    column counts for nothing; equal scores are ordered by document id, descending, so that figures are those of
    trec_eval, whatever tool computes them. It holds scores as float32: what differs by less than that tells is equal.
    The lines `query document rank` of MS MARCO are ordered by rank; a fourth column is a score, and orders them. JSON
    is {query: {document: score}}.

    Raises:
        InvalidInput: a line is malformed, a score is no finite number, or a query has a document twice, or a rank; or
            the file holds judgments. The message holds the file and the line.
    """
    path = Path(path)
    lines = _Lines(path)
    source = numbered_lines(path)
    for number, line in source:
        if not lines.width and line.lstrip().startswith("{") and not _are_columns(line):
            found = _of_json(path, chain([(number, line)], source))
            return _run(path, "", found, _oddities(path, found))
        try:
            lines.take(line)
        except InvalidInput as exc:
            raise InvalidInput(f"{path}, line {number}: {exc}") from exc
    if not lines.scores:
        raise InvalidInput(f"{path}: holds no run")
    return _run(path, lines.tag(), lines.scores, lines.notes())


def name_runs(runs: Iterable[Run]) -> dict[str, Run]:
    """Return the runs by name: their tags if each has one and no two are alike, else their files' names.

    Raises:
        InvalidInput: the files' names are alike as well.
    """
    listed = list(runs)
    names = [run.tag for run in listed]
    if len(set(names)) < len(names) or not all(names):
        names = [_file_name(run.path) for run in listed]
    refuse_repeated_names(names)
    return dict(zip(names, listed, strict=True))


def _are_columns(line: str) -> bool:
    """Return whether a line is one of a run though it begins as JSON does, since a query's id may be anything."""
    columns = split_blank(line)
    numbers = {_TREC: columns[4:5], _MARCO_SCORED: columns[2:], _MARCO: columns[2:]}.get(len(columns), [])
    return bool(numbers) and all(map(_NUMBER.fullmatch, numbers))


@dataclass
class _Lines:
    path: Path
    width: int = 0
    scores: dict[str, dict[str, float]] = field(default_factory=dict)
    ranks: dict[str, set[int]] = field(default_factory=dict)
    tags: Counter[str] = field(default_factory=Counter)
    stated: dict[str, list[tuple[str, float]]] = field(default_factory=dict)

    def take(self, line: str) -> None:
        """Take a line that isn't blank."""
        columns = split_blank(line)
        if len(columns) not in (_MARCO, _MARCO_SCORED, _TREC):
            raise InvalidInput(f"{len(columns)} columns: {_EXPECTED}")
        if self.width not in (0, len(columns)):
            raise InvalidInput(f"{len(columns)} columns, and the lines before have {self.width}: {_EXPECTED}")
        self.width = len(columns)
        if self.width == _TREC:
            query, _, document, rank, score, tag = columns
            self.tags[tag] += 1
            value = _score(score)
            self.stated.setdefault(query, []).append((rank, value))
        else:
            query, document, rank, *rest = columns
            if document in _FILLERS:
                raise InvalidInput(f"the document is {document!r}: this looks like judgments, and a run is expected")
            value = _score(rest[0]) if rest else -float(_rank(rank))
            self._take_rank(query, _rank(rank))
        found = self.scores.setdefault(query, {})
        if document in found:
            raise InvalidInput(f"query {query!r} has document {document!r} twice")
        found[document] = value

    def _take_rank(self, query: str, rank: int) -> None:
        ranks = self.ranks.setdefault(query, set())
        if rank in ranks:
            raise InvalidInput(f"query {query!r} has rank {rank} twice: are these judgments, and no run?")
        ranks.add(rank)

    def tag(self) -> str:
        return next(reversed(self.tags), "")

    def notes(self) -> tuple[str, ...]:
        """Return what should be known of the lines.

        Raises:
            InvalidInput: what stands in the column of MS MARCO's ranks isn't ranks.
        """
        for query, ranks in self.ranks.items():
            if min(ranks) > 1 or max(ranks) - min(ranks) >= len(ranks):
                raise InvalidInput(
                    f"{self.path}: query {query!r} has {len(ranks)} documents and ranks {min(ranks)} to {max(ranks)}: "
                    f"ranks count from 1, without a gap; {_EXPECTED}"
                )
        notes = []
        if self.ranks:
            notes.append(f"read as a run of MS MARCO: query, document, rank{', score' * (self.width > _MARCO)}")
        if against := sum(map(_are_upside_down, self.stated.values())):
            notes.append(
                f"of {against:,} of {len(self.stated):,} queries the ranks say the opposite of the scores: ordered by "
                "score, as trec_eval does; are the scores distances?"
            )
        if len(self.tags) > 1:
            notes.append(f"the lines have {len(self.tags):,} tags, from {next(iter(self.tags))!r} to {self.tag()!r}")
        return tuple(f"{self.path.name}: {note}" for note in notes)


def _oddities(path: Path, scores: Mapping[str, Mapping[str, float]]) -> tuple[str, ...]:
    if all(score in _GRADES for found in scores.values() for score in found.values()):
        return (f"{path.name}: every score is a whole number from -2 to 4: are these judgments?",)
    return ()


def _run(path: Path, tag: str, scores: Mapping[str, Mapping[str, float]], notes: tuple[str, ...]) -> Run:
    ties = sum(len(found) - len(set(found.values())) for found in scores.values())
    ordered = {query: {document: found[document] for document in _ordered(found)} for query, found in scores.items()}
    return Run(path, tag, {query: list(found) for query, found in ordered.items()}, ties, ordered, notes)


def _are_upside_down(stated: Sequence[tuple[str, float]]) -> bool:
    """Return whether the scores rise strictly with the ranks, of a query's documents that are several."""
    if len(stated) == 1 or not all(rank.isdecimal() for rank, _ in stated):
        return False
    scores = [score for _, score in sorted(stated, key=lambda each: int(each[0]))]
    return len({rank for rank, _ in stated}) == len(stated) and all(a < b for a, b in pairwise(scores))


def _ordered(scores: Mapping[str, float]) -> list[str]:
    return sorted(scores, key=lambda document: (scores[document], document), reverse=True)


def _score(text: str) -> float:
    if not _NUMBER.fullmatch(text):
        raise InvalidInput(f"the score {text[:60]!r} is no number")
    value = float(text)
    if not math.isfinite(value):
        raise InvalidInput(f"the score {text[:60]!r} is no finite number")
    return _float32(value)


def _float32(value: float) -> float:
    with np.errstate(over="ignore"):  # to infinity, as in C
        return float(np.float32(value))


def _rank(text: str) -> int:
    if not re.fullmatch(r"\d{1,9}", text):
        raise InvalidInput(f"the rank {text[:60]!r} is no whole number: {_EXPECTED}")
    return int(text)


def _of_json(path: Path, lines: Lines) -> dict[str, dict[str, float]]:
    scores: dict[str, dict[str, float]] = {}
    for query, found in by_query(path, lines).items():
        for document, score in found.items():
            scores.setdefault(query, {})[document] = _json_score(path, query, document, score)
    if not scores:
        raise InvalidInput(f"{path}: holds no run")
    return scores


def _json_score(path: Path, query: str, document: str, score: Any) -> float:  # noqa: ANN401 -- whatever is written
    if not isinstance(score, int | float) or isinstance(score, bool):
        raise InvalidInput(f"{path}: {query!r} and {document!r}: the score is {shown(score)}, not a number")
    try:
        value = float(score)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise InvalidInput(f"{path}: {query!r} and {document!r}: the score is no finite number")
    return _float32(value)


def _file_name(path: Path) -> str:
    return path.name.removesuffix(next((each for each in ENDINGS[1:] if path.name.endswith(each)), ""))
