"""Results that hold what a hostile corpus would, to be reported."""

from __future__ import annotations

from dataclasses import replace

import pytest

from vectorsearch.evaluation.answers import ModelUse
from vectorsearch.evaluation.results import ExperimentResult, judge
from vectorsearch.evaluation.systems import System

HOSTILE = (
    "<script>document.title = 'hacked'; throw Error('ran')</script><img src=x onerror=alert(1)>"
    "\x00\u202e\ud800 ]]> --> &amp;"
)
N_QUERIES = 60


@pytest.fixture
def hostile() -> str:
    """Give a text that would act if it became markup."""
    return HOSTILE


@pytest.fixture
def result() -> ExperimentResult:
    """Return three systems over sixty queries, times and all; every text in it is hostile."""
    qrels = {f"q{i}": {f"d{i}": 1, "d0": 0} for i in range(N_QUERIES)}
    base = {query: ["x", *grades] for query, grades in qrels.items()}
    better = {query: list(grades) if i % 3 else ["x"] for i, (query, grades) in enumerate(qrels.items())}
    deep = {query: [*(f"{HOSTILE}{i}" for i in range(9)), *grades] for query, grades in qrels.items()}
    judged = judge(
        {"base": base, f"better {HOSTILE}": better, "deep": deep},
        qrels,
        collection=f"collection {HOSTILE}",
        queries={query: f"query {query} {HOSTILE}" for query in qrels},
    )
    times = ({"p50": 0.8, "p99": 3.0}, {"p50": 12.0, "p99": 40.0}, {"p50": 900.0, "p99": 2100.0})
    systems = tuple(
        replace(
            system,
            latency_ms=latency,
            stages_ms={"lexical": 1.0},
            system=System(name=system.name),
            models=(ModelUse(HOSTILE, "fake", "cpu"),),
        )
        for system, latency in zip(judged.systems, times, strict=True)
    )
    shown = (f"title {HOSTILE}", f"text {HOSTILE} " * 20)
    texts = dict.fromkeys(("x", *(f"d{i}" for i in range(N_QUERIES))), shown)
    return replace(judged, systems=systems, texts=texts)
