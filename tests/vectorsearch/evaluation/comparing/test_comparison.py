from __future__ import annotations

import numpy as np
import pytest

from backends.errors import InvalidInput
from vectorsearch.evaluation.comparing.comparison import compare
from vectorsearch.evaluation.results import judge

QRELS = {f"q{i}": {"good": 1} for i in range(1, 11)}
GOOD, BAD = ["good", "x"], ["x", "good"]
BASE = dict.fromkeys(QRELS, BAD)
BETTER = {**dict.fromkeys(QRELS, GOOD), "q10": ["x"]}
RANKINGS = {"base": BASE, "better": BETTER, "same": BASE}


def test_wins_ties_and_losses_are_counted_by_query() -> None:
    """Nine queries gain, one loses; an equal system ties in all; the baseline has no difference."""
    figures = compare(RANKINGS, QRELS, measures=["RR@10"]).figures
    assert figures["base"]["RR@10"].difference is None
    better, same = figures["better"]["RR@10"].difference, figures["same"]["RR@10"].difference
    assert better is not None
    assert same is not None
    assert (better.wins, better.ties, better.losses) == (9, 0, 1)
    assert better.mean == pytest.approx(0.4)
    assert better.low < better.mean < better.high
    assert (same.wins, same.ties, same.losses) == (0, 10, 0)
    assert same.p == same.p_t == 1.0


def test_p_is_corrected_for_the_number_of_systems() -> None:
    """With a second system compared on the measure, the smaller p is doubled."""
    alone = compare({"base": BASE, "better": BETTER}, QRELS, measures=["RR@10"]).figures["better"]["RR@10"].difference
    beside = compare(RANKINGS, QRELS, measures=["RR@10"]).figures["better"]["RR@10"].difference
    assert alone is not None
    assert beside is not None
    assert beside.p == pytest.approx(2 * alone.p)
    assert beside.p_t == pytest.approx(2 * alone.p_t)
    assert alone.p == pytest.approx(22 / 1024)  # all ten differences of one size: |9 - 1| of 10 signs or more extreme
    assert alone.significant


def test_a_missing_query_counts_as_0_on_either_side() -> None:
    """S54: what a system doesn't answer is 0, and its difference counts among the queries."""
    comparison = compare(
        {"a": {"q1": GOOD}, "b": {"q2": GOOD}}, {"q1": {"good": 1}, "q2": {"good": 1}}, measures=["RR"]
    )
    assert np.array_equal(comparison.values["a"]["RR"], [1.0, 0.0])
    assert np.array_equal(comparison.differences("b", "RR"), [-1.0, 1.0])


def test_the_baseline_is_the_first_or_the_one_named() -> None:
    """Without a name the first system is the baseline; another name is refused with those there are."""
    assert compare(RANKINGS, QRELS, measures=["RR"]).baseline == "base"
    named = compare(RANKINGS, QRELS, measures=["RR"], baseline="better")
    assert named.others == ("base", "same")
    assert named.figures["base"]["RR"].difference is not None
    with pytest.raises(InvalidInput, match="'base', 'better', 'same'"):
        compare(RANKINGS, QRELS, baseline="best")


@pytest.mark.parametrize(("rankings", "qrels"), [({}, QRELS), (RANKINGS, {})])
def test_nothing_is_compared_when_there_is_nothing(rankings: dict, qrels: dict) -> None:
    """Without systems or judged queries there is an error, not a table of nothing."""
    with pytest.raises(InvalidInput, match="nothing to compare"):
        compare(rankings, qrels)


def test_a_table_has_a_row_for_each_system_when_asked_for() -> None:
    """The Markdown table marks what differs significantly, and a name can't break a row."""
    rankings = {"base": BASE, "bet|ter\nx": BETTER}
    lines = judge(rankings, QRELS, measures=["RR@10", "AP"]).table().splitlines()
    assert len(lines) == 4
    assert "| bet\\|ter x |" in lines[3]
    assert "0.900▲" in lines[3]
    assert "9 / 0 / 1" in lines[3]
    assert "baseline" in lines[2]


def test_plain_values_and_a_frame_are_given_when_asked_for() -> None:
    """JSON has each system's figures with their tests; the frame has a row for each system and measure."""
    pandas = pytest.importorskip("pandas")
    result = judge(RANKINGS, QRELS, measures=["RR@10", "AP"], baseline="same", collection="demo")
    values = result.to_dict()
    assert (values["baseline"], values["measures"], values["queries"]) == ("same", ["RR@10", "AP"], 10)
    assert values["systems"][1]["figures"]["RR@10"]["difference"]["wins"] == 9
    frame = result.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert len(frame) == 6
    assert frame.set_index(["system", "measure"]).loc[("better", "RR@10"), "mean"] == pytest.approx(0.9)
    assert result["better"].metrics["RR@10"] == pytest.approx(0.9)
