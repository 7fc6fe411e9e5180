"""A search as a picture: its stages and the loads of its models on one line of time, as a self-contained SVG."""

from __future__ import annotations

import html
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from vectorsearch.query.planning.plan import QueryPlan
    from vectorsearch.query.results import SearchResult, StageStats

_WIDTH, _LEFT, _RIGHT = 960.0, 250.0, 90.0
_TOP, _ROW, _BAR = 78.0, 30.0, 16.0
_TICKS = 6
_LEAST_BAR = 1.5  # narrower ones can't be seen
_LONGEST_LABEL, _LONGEST_LINE = 36, 110  # characters that fit
_FORBIDDEN = re.compile("[^\\t\\n\\r\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")

# Colours of either theme: page, text, faint text, lines, then the kinds of bars.
_LIGHT = {"page": "#ffffff", "text": "#1f2933", "faint": "#6b7785", "line": "#dde2e8", "retrieve": "#3b76c4"}
_LIGHT |= {"merge": "#8b97a5", "rerank": "#c2682b", "load": "#9a7fc9", "wait": "#e3d9f3", "failed": "#c0392b"}
_DARK = {"page": "#14181d", "text": "#e4e8ec", "faint": "#94a0ad", "line": "#2d353e", "retrieve": "#6ba3ea"}
_DARK |= {"merge": "#7c8996", "rerank": "#e08e51", "load": "#a98fdb", "wait": "#3d3350", "failed": "#ef6a5b"}
_KINDS = {"retrieve": "retrieval", "merge": "fusion and fetching", "rerank": "reranking", "load": "a model's load"}
_KINDS |= {"wait": "waiting for a load", "failed": "left out"}


@dataclass(frozen=True, slots=True)
class Bar:
    """One row: a label, what it is (a key of the colours), from when to when in milliseconds, and words beside it.

    The first `wait_ms` are spent waiting for a model. `hollow` is an estimate rather than a measurement.
    """

    label: str
    kind: str
    start_ms: float
    latency_ms: float
    note: str = ""
    wait_ms: float = 0.0
    hollow: bool = False

    @property
    def end_ms(self) -> float:
        """Return when it ends."""
        return self.start_ms + self.latency_ms


def measured_bars(result: SearchResult) -> list[Bar]:
    """Return what happened: the loads of models, those that began before the search cut at its start, and the stages.

    Rows come in the order in which they began.
    """
    bars = [
        Bar(f"load {load.model}", "load", max(0.0, load.start_ms), load.latency_ms + min(0.0, load.start_ms))
        for load in result.loads
    ]
    return sorted([*bars, *map(_stage_bar, result.stats)], key=lambda bar: (bar.start_ms, -bar.latency_ms))


def planned_bars(plan: QueryPlan) -> list[Bar]:
    """Return what is expected to happen; a stage of unknown cost has a row without length."""
    bars, retrieved_ms = [], 0.0
    prefetched = {}
    for model in plan.models:
        if model.ref in plan.prefetch:
            prefetched[model.name] = model.load_ms or 0.0
            note = "" if model.load_ms is not None else "unknown"
            bars.append(Bar(f"load {model.name}", "load", 0.0, prefetched[model.name], note, hollow=True))
    for retriever in plan.retrievers:
        start = 0.0
        if retriever.model is not None:
            expected_ms = retriever.model.expected_ms(1)
            wait_ms = 0.0 if retriever.model.resident else retriever.model.load_ms or 0.0
            bars.append(_planned(f"encode · {retriever.model.name}", "retrieve", start, expected_ms, wait_ms=wait_ms))
            start = bars[-1].end_ms
        bars.append(_planned(retriever.kind, "retrieve", start, retriever.expected_ms))
        retrieved_ms = max(retrieved_ms, bars[-1].end_ms)
    for stage in plan.rerank:
        member = stage.members[0]
        loads_ms = prefetched.get(member.model.name, 0.0) if member.model else 0.0
        hidden_ms = min(loads_ms, retrieved_ms)
        expected_ms = None if member.expected_ms is None else member.expected_ms - hidden_ms
        label = f"{stage.stage} · {member.name}"
        bars.append(_planned(label, "rerank", retrieved_ms, expected_ms, wait_ms=loads_ms - hidden_ms))
        retrieved_ms = bars[-1].end_ms
    return bars


def draw(bars: Sequence[Bar], *, title: str, subtitle: str = "", budget_ms: float | None = None) -> str:
    """Return an SVG, which follows the viewer's light or dark theme and needs nothing from elsewhere.

    `budget_ms` is drawn as the limit of the time.
    """
    until_ms = max([1e-3, *(bar.end_ms for bar in bars), *([budget_ms] if budget_ms else [])])
    step = _step(until_ms)
    scale = (_WIDTH - _LEFT - _RIGHT) / until_ms
    bottom = _TOP + _ROW * len(bars)
    kinds = dict.fromkeys(kind for bar in bars for kind in ([bar.kind] + (["wait"] if bar.wait_ms > 0 else [])))
    body = [
        f'<text x="24" y="30" class="title">{_text(title)}</text>',
        f'<text x="24" y="50" class="faint">{_text(subtitle)}</text>',
        *_axis(step, until_ms, scale=scale, bottom=bottom),
    ]
    if budget_ms:
        x = _LEFT + budget_ms * scale
        body.append(f'<line x1="{x:.1f}" y1="{_TOP - 8}" x2="{x:.1f}" y2="{bottom}" class="budget"/>')
        body.append(f'<text x="{x - 5:.1f}" y="{_TOP - 1}" class="limit">limit {_ms(budget_ms)}</text>')
    for row, bar in enumerate(bars):
        body.extend(_bar(bar, _TOP + _ROW * row, scale=scale))
    body.extend(_legend(list(kinds), bottom + 44))
    height = bottom + 62
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH:.0f} {height:.0f}" width="{_WIDTH:.0f}" '
        f'height="{height:.0f}" role="img"><title>{_text(title)}</title><style>{_style()}</style>'
        f'<rect width="100%" height="100%" class="page"/>{"".join(body)}</svg>\n'
    )


def _stage_bar(stage: StageStats) -> Bar:
    kind = "merge" if stage.stage in ("fuse", "fetch", "min_score") else "retrieve"
    kind = "rerank" if stage.stage.startswith("rerank") else kind
    is_left_out = stage.error is not None and stage.candidates_out == 0
    label = f"{stage.stage} · {stage.model}" if stage.model else stage.stage
    note = f"{stage.candidates_in:,} → {stage.candidates_out:,}"
    wait_ms = min(stage.load_ms, stage.latency_ms) if stage.cold else 0.0
    return Bar(label, "failed" if is_left_out else kind, stage.start_ms, stage.latency_ms, note, wait_ms)


def _planned(label: str, kind: str, start_ms: float, expected_ms: float | None, *, wait_ms: float = 0.0) -> Bar:
    if expected_ms is None:
        return Bar(label, kind, start_ms, 0.0, "unknown", hollow=True)
    return Bar(label, kind, start_ms, expected_ms, wait_ms=min(wait_ms, expected_ms), hollow=True)


def _bar(bar: Bar, top: float, *, scale: float) -> Iterable[str]:
    x, y, width = _LEFT + bar.start_ms * scale, top + (_ROW - _BAR) / 2, max(_LEAST_BAR, bar.latency_ms * scale)
    middle = top + _ROW / 2 + 4
    hollow = " hollow" if bar.hollow else ""
    yield f'<text x="{_LEFT - 12}" y="{middle}" class="label">{_text(bar.label, _LONGEST_LABEL)}</text>'
    yield f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{_BAR}" rx="2" class="{bar.kind}{hollow}"/>'
    if bar.wait_ms > 0:
        yield f'<rect x="{x:.1f}" y="{y}" width="{bar.wait_ms * scale:.1f}" height="{_BAR}" rx="2" class="wait"/>'
    words = bar.note if bar.note == "unknown" else _ms(bar.latency_ms) + (f", {bar.note}" if bar.note else "")
    end = x + width
    # Words stand behind the bar, or before it where there is no room.
    inside = end + 8 * len(words) > _WIDTH
    at, anchor = (x - 6, "end") if inside and x - 6 - 7 * len(words) > _LEFT else (end + 6, "start")
    if inside and anchor == "start":
        at, anchor = _WIDTH - 6, "end"
    yield f'<text x="{at:.1f}" y="{middle}" class="note" text-anchor="{anchor}">{_text(words)}</text>'


def _axis(step: float, until_ms: float, *, scale: float, bottom: float) -> Iterable[str]:
    for number in range(int(until_ms / step + 1e-9) + 1):
        x = _LEFT + number * step * scale
        yield f'<line x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{bottom}" class="grid"/>'
        yield f'<text x="{x:.1f}" y="{bottom + 16}" class="tick">{_ms(number * step)}</text>'


def _legend(kinds: Sequence[str], y: float) -> Iterable[str]:
    x = _LEFT
    for kind in kinds:
        yield f'<rect x="{x:.1f}" y="{y - 10}" width="12" height="12" rx="2" class="{kind}"/>'
        yield f'<text x="{x + 18:.1f}" y="{y}" class="faint">{_KINDS[kind]}</text>'
        x += 34 + 6.5 * len(_KINDS[kind])


def _style() -> str:
    fixed = (
        "text{font:12px system-ui,sans-serif;fill:var(--text)}.title{font-size:15px;font-weight:600}"
        ".label{text-anchor:end}.tick{text-anchor:middle}.limit{text-anchor:end;fill:var(--failed)}"
        ".faint,.tick,.note{fill:var(--faint)}.note,.tick{font-variant-numeric:tabular-nums;font-size:11px}"
        ".grid{stroke:var(--line)}.budget{stroke:var(--failed);stroke-dasharray:4 3}.hollow{fill-opacity:.35}"
    )
    bars = "".join(f".{kind}{{fill:var(--{kind})}}" for kind in ("page", *_KINDS))
    light, dark = (";".join(f"--{name}:{colour}" for name, colour in theme.items()) for theme in (_LIGHT, _DARK))
    return f":root{{{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}{fixed}{bars}"


def _step(until_ms: float) -> float:
    """Return a round distance between ticks, 1, 2 or 5 times a power of ten, so that there are about six."""
    raw = until_ms / _TICKS
    power = 10.0 ** math.floor(math.log10(raw))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * (1 - 1e-9))


def _ms(ms: float) -> str:
    return f"{ms / 1000:.3g} s" if ms >= 1000 else f"{ms:.3g} ms"  # noqa: PLR2004 -- a second


def _text(text: str, longest: int = _LONGEST_LINE) -> str:
    """Return a text as XML can hold it: shortened, escaped, and without the characters that XML forbids."""
    shown = text if len(text) <= longest else f"{text[: longest - 1]}…"
    return html.escape(_FORBIDDEN.sub("\ufffd", shown))
