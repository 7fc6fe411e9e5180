"""The report's part on single queries: which changed most, and what either system put on top."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vectorsearch.evaluation.figures import signed
from vectorsearch.evaluation.report.changes import SHOWN_DOCUMENTS, Change, gained_most, lost_most
from vectorsearch.evaluation.report.markup import Markup, element

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vectorsearch.evaluation.outcome import Outcome

_TEXT = 400  # characters; the style shows three lines of them
_MOST_RELEVANT = 8  # judged documents of which the ranks are told


def changed_queries(result: Outcome, system: str) -> Markup:
    """Return the queries that gained and those that lost most, each to be opened; the first gain is open."""
    lists: list[Markup] = []
    for title, changes in (
        ("Gained most", gained_most(result.comparison, system)),
        ("Lost most", lost_most(result.comparison, system)),
    ):
        rows = [_query(result, system, change, is_open=not lists and i == 0) for i, change in enumerate(changes)]
        none = element("p", "None.", class_="quiet")
        lists.append(element("div", element("h4", title), *(rows or [none])))
    return Markup("".join(lists))


def _query(result: Outcome, system: str, change: Change, *, is_open: bool) -> Markup:
    baseline = result.comparison.baseline
    text = result.queries.get(change.query_id, "")
    direction = "up" if change.difference > 0 else "down"
    summary = element(
        "summary",
        element("span", signed(change.difference), class_=f"by {direction}"),
        element("span", text or change.query_id, class_="query", dir="auto"),
    )
    columns = [
        element(
            "div",
            element("h4", f"{name}: {value:.3f}"),
            _documents(result, name, change.query_id),
        )
        for name, value in ((baseline, change.before), (system, change.after))
    ]
    inside = [element("div", *columns, class_="pair"), _relevant(result, system, change.query_id)]
    return element("details", summary, element("div", *inside, class_="inside"), open=is_open)


def _documents(result: Outcome, system: str, query_id: str) -> Markup:
    ids = result[system].rankings.get(query_id, ())
    if not ids:
        return element("p", "No results.", class_="quiet")
    grades = result.qrels[query_id]
    rows = [_document(result, rank, doc_id, grades) for rank, doc_id in enumerate(ids[:SHOWN_DOCUMENTS], 1)]
    return element("ol", *rows, class_="documents")


def _document(result: Outcome, rank: int, doc_id: str, grades: Mapping[str, int]) -> Markup:
    title, text = result.texts.get(doc_id, ("", ""))
    grade = grades.get(doc_id)
    relevant = grade is not None and grade > 0
    told = "not judged" if grade is None else f"relevant, grade {grade}" if relevant else "judged not relevant"
    return element(
        "li",
        element(
            "div",
            element("span", str(rank)),
            element("code", doc_id),
            element("span", told, class_="grade" if relevant else None),
            class_="head",
        ),
        element("span", title, class_="title", dir="auto") if title else None,
        element("span", text[:_TEXT], class_="text", dir="auto") if text else None,
        class_="relevant" if relevant else None,
    )


def _relevant(result: Outcome, system: str, query_id: str) -> Markup:
    """Tell on which ranks the two systems have the relevant documents."""
    baseline = result.comparison.baseline
    relevant = [doc_id for doc_id, grade in result.qrels[query_id].items() if grade > 0]
    before, after = (_ranks(result[name].rankings.get(query_id, ())) for name in (baseline, system))
    relevant.sort(key=lambda doc_id: min(before.get(doc_id, 1 << 30), after.get(doc_id, 1 << 30)))
    told = [
        element(
            "span", "; " if i else "", element("code", doc_id), f" {_rank(before, doc_id)} → {_rank(after, doc_id)}"
        )
        for i, doc_id in enumerate(relevant[:_MOST_RELEVANT])
    ]
    rest = len(relevant) - len(told)
    return element(
        "p",
        f"Ranks of the relevant documents, {baseline} → {system}: ",
        told or "there are none",
        f"; and {rest} more" if rest else None,
        ".",
        class_="quiet",
    )


def _ranks(ids: Sequence[str]) -> dict[str, int]:
    return {doc_id: rank for rank, doc_id in enumerate(ids, 1)}


def _rank(ranks: Mapping[str, int], doc_id: str) -> str:
    return str(ranks[doc_id]) if doc_id in ranks else "not found"
