"""The report's plots, as inline SVG. Positions are percentages: a plot takes any width, and text keeps its size."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vectorsearch.evaluation.figures import format_ms
from vectorsearch.evaluation.report.markup import Markup, element

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vectorsearch.evaluation.comparing.comparison import Difference
    from vectorsearch.evaluation.outcome import Outcome

_HEIGHT = 320  # pixels of the scatter plot
_LINE = 17  # pixels between two labels
_MOST_BARS = 600
_MOST_TICKS = 6


@dataclass(frozen=True, slots=True)
class Scale:
    """Map [low, high] to percentages of a plot's width or height, from its left or upper edge."""

    low: float
    high: float
    upward: bool = False

    def __call__(self, value: float) -> str:
        """Return the percentage of a value as SVG writes it."""
        return f"{self.position(value):.3f}%"

    def position(self, value: float) -> float:
        """Return the percentage of a value."""
        share = (value - self.low) / (self.high - self.low)
        return 100.0 * (1.0 - share if self.upward else share)


def quality_against_latency(result: Outcome) -> Markup:
    """Draw each timed system at its median time and its mean of the first measure.

    A line goes up and down over the mean's interval, another to the right to the 99th percentile of the times.
    """
    primary = result.comparison.measures[0]
    timed = [system for system in result.systems if system.latency_ms]
    figures = [result.comparison.figures[system.name][primary] for system in timed]
    times = [math.log10(max(system.latency_ms[key], 1e-3)) for system in timed for key in ("p50", "p99")]
    x = Scale(min(times) - 0.15, max(times) + 0.15)
    ticks = round_steps(min(figure.low for figure in figures), max(figure.high for figure in figures))
    y = Scale(ticks[0], ticks[-1], upward=True)
    shapes = [_rule_y(y(tick), f"{tick:.{_decimals(ticks)}f}") for tick in ticks]
    shapes += [_rule_x(x(math.log10(tick)), _time(tick)) for tick in _time_ticks(x.low, x.high)]
    lines, dots, names = [], [], []
    taken: list[float] = []
    # The highest label is placed first, and others give way downwards.
    for system, figure in sorted(zip(timed, figures, strict=True), key=lambda pair: -pair[1].mean):
        at, until = (math.log10(max(system.latency_ms[key], 1e-3)) for key in ("p50", "p99"))
        centre, color = (x(at), y(figure.mean)), color_class(result, system.name)
        label_y = y.position(figure.mean) * _HEIGHT / 100 - 8
        while any(abs(label_y - other) < _LINE for other in taken):
            label_y += _LINE
        taken.append(label_y)
        left = x.position(at) > 60  # noqa: PLR2004 -- percent: its name has more room on the left
        lines += [
            element("line", class_=f"whisker {color}", x1=centre[0], x2=x(until), y1=centre[1], y2=centre[1]),
            element("line", class_=f"whisker {color}", x1=centre[0], x2=centre[0], y1=y(figure.low), y2=y(figure.high)),
        ]
        dots.append(element("circle", class_=color, cx=centre[0], cy=centre[1], r=5))
        names.append(
            element(
                "text",
                system.name,
                class_=f"label {color}",
                x=centre[0],
                y=round(label_y, 1),
                dx=-9 if left else 9,
                text_anchor="end" if left else None,
            )
        )
    shapes += [*lines, *dots, *names]  # no line crosses a name
    spoken = "; ".join(
        f"{system.name}: {figure.mean:.3f} in {format_ms(system.latency_ms['p50'])}"
        for system, figure in zip(timed, figures, strict=True)
    )
    return _svg(shapes, height=_HEIGHT, label=f"{primary} against milliseconds a query. {spoken}")


def differences_by_query(differences: Sequence[float], labels: Sequence[str], *, measure: str, limit: float) -> Markup:
    """Draw a bar for each query, the largest gain first; of very many queries, evenly chosen ones.

    Args:
        differences: of each query from the baseline.
        labels: what a pointer that rests on a query's bar is told.
        measure: its name.
        limit: the largest absolute difference that the plot has room for.
    """
    order = np.argsort(-np.asarray(differences), kind="stable")
    if len(order) > _MOST_BARS:
        order = order[np.linspace(0, len(order) - 1, _MOST_BARS).round().astype(int)]
    y = Scale(-limit, limit, upward=True)
    shapes = [_rule_y(y(tick), f"{tick:+.2f}".replace("-", "\u2212") if tick else "0") for tick in (limit, 0.0, -limit)]
    width = 100.0 / len(order)
    for place, i in enumerate(order):
        value = differences[i]
        if value == 0.0:
            continue
        top, bottom = sorted((y.position(value), y.position(0.0)))
        bar = element(
            "rect",
            element("title", labels[i]),
            class_="gain" if value > 0 else "loss",
            x=f"{place * width:.3f}%",
            y=f"{top:.3f}%",
            width=f"{width * 0.82:.3f}%",
            height=f"{bottom - top:.3f}%",
        )
        shapes.append(bar)
    gains, losses = (int(np.count_nonzero(sign * np.asarray(differences) > 0)) for sign in (1, -1))
    label = f"Difference in {measure} of each of {len(differences)} queries: {gains} gain, {losses} lose"
    return _svg(shapes, height=150, label=label)


def interval_scale(ends: Sequence[float]) -> Scale:
    """Return a scale with room for all intervals and for 0."""
    low, high = min([0.0, *ends]), max([0.0, *ends])
    room = 0.08 * (high - low) or 0.01
    return Scale(low - room, high + room)


def interval(difference: Difference, scale: Scale) -> Markup:
    """Draw a difference and its interval on a line of its own, with a mark at 0."""
    kind = "even" if not difference.significant else "gain" if difference.mean > 0 else "loss"
    shapes = [
        element("line", class_="zero", x1=scale(0.0), x2=scale(0.0), y1="-40%", y2="140%"),
        element("line", class_="whisker", x1=scale(difference.low), x2=scale(difference.high), y1="50%", y2="50%"),
        element("circle", cx=scale(difference.mean), cy="50%", r=4.5),
    ]
    return element("svg", *shapes, class_=f"interval {kind}", width="100%", height=26, aria_hidden="true")


def color_class(result: Outcome, system: str) -> str:
    """Return the class that colours a system: the baseline is grey, the others differ while the colours last."""
    others = result.comparison.others
    return f"c{1 + others.index(system) % 6}" if system in others else "c0"


def round_steps(low: float, high: float) -> list[float]:
    """Return round values in equal steps, from at most `low` to at least `high`."""
    step = 10.0 ** math.floor(math.log10(max(high - low, 1e-3)))
    for factor in (0.2, 0.5, 1.0, 2.0):
        if (high - low) / (step * factor) <= _MOST_TICKS - 1:
            step *= factor
            break
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 9) for i in range(first, max(last, first + 1) + 1)]


def _decimals(ticks: Sequence[float]) -> int:
    return max(0, -math.floor(math.log10(ticks[1] - ticks[0]) + 1e-9))


def _time_ticks(low: float, high: float) -> list[float]:
    """Return round milliseconds between two decimal logarithms."""
    factors = (1, 2, 5) if high - low < 2 else (1,)  # noqa: PLR2004 -- decades
    values = [factor * 10.0**power for power in range(math.floor(low), math.ceil(high) + 1) for factor in factors]
    return [value for value in values if low <= math.log10(value) <= high]


def _time(milliseconds: float) -> str:
    return f"{milliseconds:g} ms" if milliseconds < 1000 else f"{milliseconds / 1000:g} s"  # noqa: PLR2004 -- a second


def _rule_y(y: str, label: str) -> Markup:
    return Markup(
        element("line", class_="rule", x1="0", x2="100%", y1=y, y2=y)
        + element("text", label, class_="tick", x=-8, y=y, dy="0.32em", text_anchor="end")
    )


def _rule_x(x: str, label: str) -> Markup:
    return Markup(
        element("line", class_="rule", x1=x, x2=x, y1="0", y2="100%")
        + element("text", label, class_="tick", x=x, y="100%", dy="1.5em", text_anchor="middle")
    )


def _svg(shapes: Sequence[Markup], *, height: int, label: str) -> Markup:
    svg = element("svg", *shapes, width="100%", height=height, role="img", aria_label=label)
    return element("div", svg, class_="chart")
