from __future__ import annotations

import json
from pathlib import Path

import pytest

from vectorsearch.evaluation.collecting.collections import read_qrels
from vectorsearch.evaluation.comparing.metrics import measure_queries
from vectorsearch.evaluation.formats.runs import read_run

FOLDER = Path(__file__).parents[2] / "golden" / "measures"
VALUES = json.loads((FOLDER / "values.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("library", ["pytrec_eval", "ranx"])
@pytest.mark.parametrize("run", ["plain", "ties"])
def test_measures_are_those_of_other_libraries_on_the_same_run(run: str, library: str) -> None:
    """S37: each query's value equals pytrec_eval's and ranx's to 1e-6, where scores tie as well."""
    qrels = read_qrels(FOLDER / "qrels.txt")
    expected = VALUES[run][library]
    found = measure_queries(read_run(FOLDER / f"{run}.trec").rankings, qrels, names=list(expected))
    for name, by_query in expected.items():
        # pytrec_eval says nothing of a query without results: it counts as 0 here.
        assert found[name] == pytest.approx([by_query.get(query, 0.0) for query in qrels], abs=1e-6), name
        assert len(by_query) >= len(qrels) - 1


def test_the_golden_run_has_ties_that_matter() -> None:
    """Positive control: in another order of its ties the run has other figures."""
    run = read_run(FOLDER / "ties.trec")
    assert run.ties > 100
    lines = [line.split() for line in (FOLDER / "ties.trec").read_text(encoding="utf-8").splitlines()]
    scores: dict[str, list[tuple[float, str]]] = {}
    for query, _, document, _, score, _ in lines:
        scores.setdefault(query, []).append((-float(score), document))
    other = {query: [document for _, document in sorted(found)] for query, found in scores.items()}
    qrels = read_qrels(FOLDER / "qrels.txt")
    values = [measure_queries(rankings, qrels, names=["AP"])["AP"].mean() for rankings in (run.rankings, other)]
    assert abs(values[0] - values[1]) > 1e-6
