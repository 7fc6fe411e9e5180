"""What a reader of figures should know of judgments, documents and runs that don't quite fit; what fits nowhere raises.

Figures of what has nothing in common are all 0, and look like those of a bad system.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from backends.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    Grades = Mapping[str, Mapping[str, int]]

_BEST, _HARDLY = 10, 0.01  # where one answer a query is judged, as in MS MARCO, bad systems have three in a hundred
SAME_SHARE = 0.9  # of the queries with a document's id, those that have its text too: then each is that document


def odd_judgments(qrels: Grades) -> list[str]:
    """Return what is to be said of judgments by themselves.

    Raises:
        InvalidInput: there is none, or none says that a document is relevant.
    """
    without = [query for query, grades in qrels.items() if not any(grade > 0 for grade in grades.values())]
    if len(without) == len(qrels):
        raise InvalidInput(
            f"none of {len(qrels):,} judged queries has a document with a grade above 0: every figure would be 0"
        )
    if without:
        return [f"{len(without):,} of {len(qrels):,} judged queries have no relevant document: they count as 0"]
    return []


def missing_documents(qrels: Grades, known: Callable[[str], bool], count: int) -> list[str]:
    """Return what is to be said of judged documents that aren't among the `count` known ones.

    Raises:
        InvalidInput: none of them is.
    """
    relevant = {document for grades in qrels.values() for document, grade in grades.items() if grade > 0}
    judged = {document for grades in qrels.values() for document in grades}
    missing = {document for document in judged if not known(document)}
    if judged and len(missing) == len(judged):
        raise InvalidInput(
            f"none of {len(judged):,} judged documents is among the {count:,} that are searched: judged are, for "
            f"example, {_some(sorted(judged))}: are these the judgments of another collection?"
        )
    if not missing:
        return []
    which = f"{len(missing):,} of {len(judged):,} judged documents, {len(missing & relevant):,} of them relevant"
    such = _some(sorted(missing & relevant or missing))
    return [f"{which}, aren't among those searched, such as {such}: no system can find them"]


def nothing_in_common(name: str, rankings: Mapping[str, Sequence[str]], qrels: Grades) -> str | None:
    """Return what a run and the judgments lack in common, their queries or their documents; None if they have both."""
    if not rankings.keys() & qrels.keys():
        return (
            f"{name} has none of the {len(qrels):,} judged queries: it answers {_some(rankings)}, and judged are "
            f"{_some(qrels)}"
        )
    judged = {document for grades in qrels.values() for document in grades}
    found = {document for ranking in rankings.values() for document in ranking}
    if found and judged.isdisjoint(found):
        return (
            f"none of the {len(found):,} documents of {name} is judged: it has {_some(sorted(found))}, and judged are "
            f"{_some(sorted(judged))}: are these the judgments of another collection?"
        )
    return None


def odd_run(name: str, rankings: Mapping[str, Sequence[str]], qrels: Grades) -> Iterator[str]:
    """Yield what is to be said of a run beside the judgments."""
    if (told := nothing_in_common(name, rankings, qrels)) or (told := _hardly_judged(name, rankings, qrels)):
        yield told
    if missing := len(qrels.keys() - rankings.keys()):
        yield f"{name} has no results for {missing:,} of {len(qrels):,} judged queries: they count as 0"
    if unjudged := len(rankings.keys() - qrels.keys()):
        yield f"{name} has results for {unjudged:,} queries without judgments: they are left out"


def _hardly_judged(name: str, rankings: Mapping[str, Sequence[str]], qrels: Grades) -> str | None:
    best = [(query, document) for query in qrels for document in rankings.get(query, ())[:_BEST]]
    judged = sum(document in qrels[query] for query, document in best)
    if judged >= _HARDLY * len(best):
        return None
    return (
        f"{judged:,} of {len(best):,} results among the best {_BEST} of {name} are judged: are these the judgments of "
        "its collection?"
    )


def nothing_found(values: Iterable[Iterable[float]]) -> list[str]:
    """Return what is to be said where each of the values, a system's figures each, is 0."""
    if any(value for of_system in values for value in of_system):
        return []
    return ["nothing relevant was found, so every figure is 0: are documents, queries and judgments of one collection?"]


def queries_are_documents(
    queries: Mapping[str, str], qrels: Grades, texts_of: Callable[[str], Collection[str]]
) -> bool:
    """Return whether queries that have a document's id are that document, as in ArguAna and Quora.

    So it is where at least nine in ten of them have its text as well. Elsewhere, as in Cranfield and Vaswani, both
    are numbered and it says nothing. And not where the document itself is what most of them are to find.

    Args:
        queries: query id to text.
        qrels: query id to {document id: grade}.
        texts_of: returns the texts of the document of an id, with and without its title; none if there is none.
    """
    coinciding = {query: texts for query in queries if (texts := texts_of(query))}
    same = sum(_words(queries[query]) in map(_words, texts) for query, texts in coinciding.items())
    wanted = sum(qrels.get(query, {}).get(query, 0) > 0 for query in coinciding)
    return bool(coinciding) and same >= SAME_SHARE * len(coinciding) and wanted <= len(coinciding) / 2


def without_own(rankings: Mapping[str, Sequence[str]]) -> tuple[dict[str, Sequence[str]], int]:
    """Return the rankings without each query's own document, and how many queries had found theirs."""
    had = sum(query in ranking for query, ranking in rankings.items())
    return {query: [each for each in ranking if each != query] for query, ranking in rankings.items()}, had


def _words(text: str) -> str:
    return " ".join(text.split())


def _some(ids: Iterable[str]) -> str:
    return ", ".join(map(repr, islice(ids, 3)))
