"""The comparison as a Markdown table, and how its figures are written everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vectorsearch.evaluation.comparing.significance import ALPHA, PERMUTATIONS
from vectorsearch.evaluation.figures import format_ms, format_p, signed
from vectorsearch.query.planning.plan import DEFAULT_RERANK_DEPTH

if TYPE_CHECKING:
    from vectorsearch.evaluation.comparing.comparison import Difference, Figure
    from vectorsearch.evaluation.outcome import Outcome, SystemResult

BETTER, WORSE = "▲", "▼"

_ALMOST = 5e-4


def markdown_table(result: Outcome) -> str:
    """Return a row for each system: means, ▲ or ▼ where they differ significantly, difference, tests, times, models."""
    comparison = result.comparison
    primary = comparison.measures[0]
    headings = ["system", *comparison.measures]
    if comparison.others:
        headings += [f"Δ {primary}", "95 %", "p", "p (t)", "better / equal / worse"]
    if any(system.latency_ms for system in result.systems):
        headings += ["p50", "p99", "models"]
    lines = [headings, ["---", *["---:"] * (len(headings) - 1)]]
    lines += [_row(result, system, primary) for system in result.systems]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def marked(figure: Figure) -> str:
    """Return the mean, with ▲ or ▼ if it differs from the baseline's significantly."""
    return f"{figure.mean:.3f}{mark(figure.difference)}"


def mark(difference: Difference | None) -> str:
    """Return ▲ or ▼ for a significant difference, else nothing."""
    if difference is None or not difference.significant:
        return ""
    return BETTER if difference.mean > 0 else WORSE


def is_best(result: Outcome, measure: str, figure: Figure) -> bool:
    """Tell whether no system has a higher mean; means that are printed alike are equally high."""
    return figure.mean > max(system.metrics[measure] for system in result.systems) - _ALMOST


def finding(result: Outcome, system: str) -> str:
    """Return in a sentence how a system compares with the baseline on the first measure."""
    comparison = result.comparison
    primary = comparison.measures[0]
    difference = comparison.figures[system][primary].difference
    if difference is None:
        return f"{system} is the baseline."
    tests = f"95 % interval {signed(difference.low)} to {signed(difference.high)}, p\u00a0{_p(difference.p)}"
    if not difference.significant:
        return f"{system} doesn't differ significantly from {comparison.baseline} in {primary} ({tests})."
    word = "better" if difference.mean > 0 else "worse"
    return f"{system} is {word} than {comparison.baseline} by {abs(difference.mean):.3f} {primary} ({tests})."


def legend(result: Outcome) -> str:
    """Return what the marks mean, in words; empty for a single system."""
    comparison = result.comparison
    if not comparison.others:
        return ""
    return (
        f"{BETTER} {WORSE} differ from {comparison.baseline} at p < {ALPHA}: paired randomisation test over "
        f"{len(comparison.queries):,} queries, corrected by Holm's method for {len(comparison.others)} "
        f"{'comparison' if len(comparison.others) == 1 else 'comparisons'}."
    )


def method(result: Outcome) -> list[str]:
    """Return how the figures were come by, a paragraph each; last what of the files a reader should know."""
    measures = (
        "Measures are those of ir-measures, over all judged queries; a query without results counts as 0. Only the "
        "order of a ranking counts. Intervals are Student's t, of the mean over the queries."
    )
    paragraphs = [measures]
    if result.comparison.others:
        paragraphs.append(
            f"{legend(result)} Beside it stands the paired t-test, corrected likewise. {PERMUTATIONS:,} sign patterns "
            "are drawn with a fixed seed; of few queries all are tried."
        )
    if any(system.latency_ms for system in result.systems):
        paragraphs.append(
            "Times are of one query after the other on one machine, the whole search with its texts, models loaded; "
            "no deadline was set and no stage left out."
        )
    if any(system.cached for system in result.systems):
        paragraphs.append("Some answers, and their times, are of an earlier run with the same data, models and code.")
    return [*paragraphs, *(f"{note}." for note in result.notes)]


def describe_models(system: SystemResult) -> str:
    """Return the models and where they ran: "bge-small-en-v1.5-int8 on onnx (cpu)"."""
    return "; ".join(
        f"{model.name} on {model.backend}{f' ({_kind(model.device)})' if model.device else ''}"
        for model in system.models
    )


def describe_options(system: SystemResult) -> str:
    """Return the system's options in words, as far as they aren't the usual ones; empty for another engine's run."""
    options = system.system
    if options is None:
        return ""
    words: list[str] = [options.mode]
    if options.mode in ("hybrid", "auto") and options.fusion not in (None, "rrf"):
        words.append(f"fused by {options.fusion}")
    for stage in options.stages:
        blended = f", blended {stage.blend:g}" if stage.blend is not None else ""
        words.append(f"best {stage.depth or DEFAULT_RERANK_DEPTH} reranked{blended}")
    return ", ".join(words)


def _kind(device: str) -> str:
    """Return the kind of a device: "cpu" of "cpu:CPUExecutionProvider"."""
    return device.partition(":")[0]


def _p(p: float) -> str:
    text = format_p(p)
    return text.replace(" ", "\u00a0") if text.startswith("<") else f"=\u00a0{text}"


def _row(result: Outcome, system: SystemResult, primary: str) -> list[str]:
    figures = result.comparison.figures[system.name]
    cells = [_cell(system.name), *(marked(figures[name]) for name in result.comparison.measures)]
    if result.comparison.others:
        difference = figures[primary].difference
        cells += ["baseline", "", "", "", ""] if difference is None else _difference(difference)
    if any(each.latency_ms for each in result.systems):
        times = [format_ms(system.latency_ms[name]) if system.latency_ms else "" for name in ("p50", "p99")]
        cells += [*times, _cell(describe_models(system) or "none")]
    return cells


def _difference(difference: Difference) -> list[str]:
    return [
        signed(difference.mean),
        f"{signed(difference.low)} to {signed(difference.high)}",
        format_p(difference.p),
        format_p(difference.p_t),
        f"{difference.wins} / {difference.ties} / {difference.losses}",
    ]


def _cell(text: str) -> str:
    """Return the text so that it stays one cell and is no HTML."""
    return "".join(f"\\{c}" if c in "\\|<`" else c for c in " ".join(text.split()))
