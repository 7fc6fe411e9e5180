"""The report of an experiment: one HTML page that needs no network, and the same as Markdown and JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vectorsearch.evaluation.figures import signed
from vectorsearch.evaluation.report.changes import gained_most, lost_most
from vectorsearch.evaluation.report.page import page
from vectorsearch.evaluation.tables import finding, markdown_table, method

if TYPE_CHECKING:
    from vectorsearch.evaluation.outcome import Outcome


def write_report(result: Outcome, folder: str | Path) -> Path:
    """Write report.html, report.md and report.json to the folder, made if it isn't there; return the page's path.

    Raises:
        OSError: the folder can't be written.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_text(json.dumps(_values(result), indent=1, default=repr), encoding="utf-8")
    (folder / "report.md").write_text(_markdown(result), encoding="utf-8", errors="replace")
    path = folder / "report.html"
    path.write_text(page(result), encoding="utf-8")
    return path


def _values(result: Outcome) -> dict[str, Any]:
    """Return what `to_dict` does, and each query's values."""
    comparison = result.comparison
    queries = {
        query_id: {
            "text": result.queries.get(query_id),
            "values": {
                system: {name: float(each[i]) for name, each in by_measure.items()}
                for system, by_measure in comparison.values.items()
            },
        }
        for i, query_id in enumerate(comparison.queries)
    }
    return {**result.to_dict(), "by_query": queries}


def _markdown(result: Outcome) -> str:
    others = result.comparison.others
    parts = [f"# {_line(result.collection)}\n", markdown_table(result)]
    parts += ["".join(f"- {_line(finding(result, name))}\n" for name in others)] if others else []
    for name in others:
        rows = [
            f"| {signed(change.difference)} | {_line(result.queries.get(change.query_id) or change.query_id)} |\n"
            for change in [*gained_most(result.comparison, name), *reversed(lost_most(result.comparison, name))]
        ]
        if rows:
            parts.append(f"## {_line(name)}: what changed most\n\n| Δ | query |\n| ---: | --- |\n{''.join(rows)}")
    parts.append("## How this was measured\n")
    parts += [f"{_line(text)}\n" for text in method(result)]
    return "\n".join(parts)


def _line(text: str) -> str:
    r"""Return the text as one line in which nothing is Markdown or HTML."""
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>#|~" else c for c in " ".join(text.split()))
