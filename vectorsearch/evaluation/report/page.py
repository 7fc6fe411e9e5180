"""The report as one HTML page that needs nothing else: no script, no network."""

from __future__ import annotations

import base64
import hashlib
from importlib import resources
from typing import TYPE_CHECKING

import numpy as np

import vectorsearch
from vectorsearch.evaluation.figures import counted, format_ms, format_p, signed
from vectorsearch.evaluation.report.markup import Markup, element, escape
from vectorsearch.evaluation.report.plots import (
    color_class,
    differences_by_query,
    interval,
    interval_scale,
    quality_against_latency,
)
from vectorsearch.evaluation.report.side_by_side import changed_queries
from vectorsearch.evaluation.tables import describe_models, describe_options, finding, is_best, mark, method

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vectorsearch.evaluation.comparing.comparison import Difference, Figure
    from vectorsearch.evaluation.outcome import Outcome, SystemResult
    from vectorsearch.evaluation.report.plots import Scale


def page(result: Outcome) -> str:
    """Return the whole page."""
    style = resources.files(__package__).joinpath("style.css").read_text(encoding="utf-8")
    # Only this style sheet may act: a document's text could not even if it became markup.
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{result.collection}: {counted(len(result.systems), 'system')} compared"),
        element("style", Markup(style)),
    )
    body = element("body", _header(result), element("main", *_sections(result)))
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def _sections(result: Outcome) -> Iterable[Markup]:
    yield _section("Figures", _figures(result))
    if result.comparison.others:
        yield _section(f"Difference from {result.comparison.baseline}", _differences(result))
    if any(system.latency_ms for system in result.systems):
        text = (
            f"{result.comparison.measures[0]} against the median time of a query: higher is better, further left is "
            "faster. Lines: the mean's 95 % interval; from p50 to p99 of the times."
        )
        caption = element("figcaption", text)
        yield _section("Quality against time", element("figure", caption, quality_against_latency(result)))
    if result.comparison.others:
        yield _section("Query by query", *(_by_query(result, name) for name in result.comparison.others))
    yield _section("How this was measured", *_measured(result))


def _header(result: Outcome) -> Markup:
    facts = [counted(len(result.systems), "system"), counted(len(result.comparison.queries), "query")]
    if result.documents is not None:
        facts.append(counted(result.documents, "document"))
    others = result.comparison.others
    findings = [element("li", _dotted(result, name, finding(result, name))) for name in others]
    return element(
        "header",
        element("h1", result.collection),
        element("p", " · ".join(facts), class_="quiet"),
        element("ul", *findings, class_="findings") if findings else None,
    )


def _figures(result: Outcome) -> Markup:
    measures = result.comparison.measures
    timed = any(system.latency_ms for system in result.systems)
    headings = ["system", *(Markup(escape(name) + _mark(None)) for name in measures)]
    headings += ["p50", "p99"] if timed else []
    rows = []
    for system in result.systems:
        figures = result.comparison.figures[system.name]
        cells = [_figure(figures[name], best=is_best(result, name, figures[name])) for name in measures]
        if timed:
            times = (format_ms(system.latency_ms[key]) if system.latency_ms else "" for key in ("p50", "p99"))
            cells += [element("td", time) for time in times]
        rows.append(element("tr", _system(result, system), *cells))
    caption = "Means over the judged queries, each with half the width of its 95 % interval"
    if timed:
        caption += "; time of one query, median and 99th percentile"
    return Markup(element("p", f"{caption}.", class_="quiet") + _table("Figures", headings, rows))


def _system(result: Outcome, system: SystemResult) -> Markup:
    is_baseline = len(result.systems) > 1 and system.name == result.comparison.baseline
    small = ["baseline"] if is_baseline else []
    small += [text for text in (describe_options(system), describe_models(system)) if text]
    name = _dotted(result, system.name, system.name, element("small", "; ".join(small)) if small else None)
    return element("th", name, scope="row")


def _dotted(result: Outcome, system: str, *children: Markup | str | None) -> Markup:
    """Return the children beside a dot in the system's colour."""
    dot = element("span", class_=f"dot {color_class(result, system)}")
    return element("span", dot, element("span", *children), class_="dotted")


def _figure(figure: Figure, *, best: bool) -> Markup:
    half = (figure.high - figure.low) / 2
    return element(
        "td",
        element("span", f"{figure.mean:.3f}", class_="best" if best else None),
        _mark(figure.difference),
        element("small", f"± {half:.3f}"),
    )


def _mark(difference: Difference | None) -> Markup:
    """Return the mark, or its room, so that figures stand one below the other."""
    text = mark(difference)
    if difference is None or not text:
        return element("span", class_="mark")
    kind, word = ("up", "better") if difference.mean > 0 else ("down", "worse")
    return element("span", text, class_=f"mark {kind}", role="img", aria_label=f"significantly {word}")


def _differences(result: Outcome) -> Markup:
    comparison = result.comparison
    parts = []
    for i, measure in enumerate(comparison.measures):
        of_system = {name: comparison.figures[name][measure].difference for name in comparison.others}
        differences = {name: each for name, each in of_system.items() if each is not None}
        ends = [end for each in differences.values() for end in (each.low, each.high)]
        scale = interval_scale(ends)
        rows = [_difference(result, name, each, scale) for name, each in differences.items()]
        headings = ["system", "", measure, "95 % interval", "p", "p (t)", "better", "equal", "worse"]
        table = _table(f"Difference in {measure}", headings, rows)
        # The first measure is what the page is about; the others are there for who asks.
        parts.append(table if i == 0 else element("details", element("summary", measure), table))
    caption = (
        "p is of the paired randomisation test and p (t) of the paired t-test, both corrected by Holm's method; "
        "better, equal and worse count queries."
    )
    return Markup(element("p", caption, class_="quiet") + "".join(parts))


def _difference(result: Outcome, name: str, difference: Difference, scale: Scale) -> Markup:
    kind = "up" if difference.mean > 0 else "down"
    counts = (difference.wins, difference.ties, difference.losses)
    return element(
        "tr",
        element("th", _dotted(result, name, name), scope="row"),
        element("td", interval(difference, scale), class_="plot"),
        element("td", signed(difference.mean), class_=kind if difference.significant else None),
        element("td", f"{signed(difference.low)} to {signed(difference.high)}"),
        *(element("td", format_p(p)) for p in (difference.p, difference.p_t)),
        *(element("td", f"{count:,}") for count in counts),
    )


def _by_query(result: Outcome, name: str) -> Markup:
    comparison = result.comparison
    measure = comparison.measures[0]
    limit = max(float(np.abs(comparison.differences(other, measure)).max()) for other in comparison.others) or 0.01
    differences = comparison.differences(name, measure).tolist()
    labels = [
        f"{signed(value)}  {result.queries.get(query_id) or query_id}"
        for query_id, value in zip(comparison.queries, differences, strict=True)
    ]
    counted = comparison.figures[name][measure].difference
    told = f"Each bar is a query's {measure} less that of {comparison.baseline}, the largest gain first"
    if counted is not None:
        told += f": {counted.wins} gain, {counted.ties} are equal, {counted.losses} lose"
    figure = element(
        "figure",
        element("figcaption", f"{told}."),
        differences_by_query(differences, labels, measure=measure, limit=limit),
    )
    return Markup(element("h3", name) + figure + element("div", changed_queries(result, name), class_="queries"))


def _measured(result: Outcome) -> Iterable[Markup]:
    yield from (element("p", text) for text in method(result))
    terms: list[Markup] = []
    for system in result.systems:
        if system.system is not None:
            options = ", ".join(f"{key}={value!r}" for key, value in system.system.options.items())
            stages = ", ".join(f"{stage} {format_ms(each)}" for stage, each in system.stages_ms.items())
            told = [
                element("code", options),
                *(element("div", text) for text in (describe_models(system), stages) if text),
            ]
            terms += [element("dt", system.name), element("dd", *told)]
    if terms:
        yield element("dl", *terms)
    yield element("p", f"vectorsearch {vectorsearch.__version__}", class_="quiet")


def _section(title: str, *children: Markup) -> Markup:
    return element("section", element("h2", title), *children, aria_label=title)


def _table(label: str, headings: Iterable[str], rows: Iterable[Markup]) -> Markup:
    head = element("tr", *(element("th", heading, scope="col") if heading else element("td") for heading in headings))
    table = element("table", element("thead", head), element("tbody", *rows), aria_label=label)
    # What is wider than the screen is scrolled, by keyboard as well.
    return element("div", table, class_="scroll", tabindex=0, role="region", aria_label=label)
