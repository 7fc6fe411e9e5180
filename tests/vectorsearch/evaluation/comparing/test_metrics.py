from __future__ import annotations

import sys

import numpy as np
import pytest

from backends.errors import InvalidInput, MissingExtra
from vectorsearch.evaluation.comparing.metrics import (
    MEASURES,
    canonical_names,
    deepest_cutoff,
    measure,
    measure_queries,
    parse_measure,
    require_ir_measures,
)


def test_measures_count_0_when_a_query_has_no_results() -> None:
    """S54: a query without results, or missing from the ranking, counts as 0 in every mean."""
    qrels = {"q1": {"a": 1}, "q2": {"b": 1}, "q3": {"c": 1}, "q4": {"d": 1}}
    metrics = measure({"q1": ["a"], "q2": [], "q3": ["x"]}, qrels)
    assert metrics == {name: pytest.approx(0.25) for name in MEASURES}


def test_measures_are_those_of_the_order_when_it_is_known() -> None:
    """S37: only the order of a ranking counts, and the four measures have their textbook values."""
    metrics = measure({"q": ["x", "a", "y", "b"]}, {"q": {"a": 1, "b": 1}})
    assert metrics["RR@10"] == pytest.approx(1 / 2)
    assert metrics["AP"] == pytest.approx((1 / 2 + 2 / 4) / 2)
    assert metrics["R@100"] == pytest.approx(1.0)
    assert metrics["nDCG@10"] == pytest.approx((0.63093 + 0.43068) / (1 + 0.63093), abs=1e-4)


def test_measures_ignore_what_is_beyond_when_they_have_a_cutoff() -> None:
    """A relevant document on rank 11 counts for R@100 and AP, not for the measures at 10."""
    metrics = measure({"q": [f"x{i}" for i in range(10)] + ["a"]}, {"q": {"a": 1}})
    assert metrics["nDCG@10"] == metrics["RR@10"] == 0.0
    assert metrics["R@100"] == 1.0
    assert metrics["AP"] == pytest.approx(1 / 11)


def test_values_are_in_the_order_of_the_judgments_when_taken_by_query() -> None:
    """Each judged query has one value, in order, and what has no judgments is left out."""
    values = measure_queries({"b": ["x"], "a": ["y", "x"], "z": ["x"]}, {"a": {"x": 1}, "b": {"x": 1}}, names=["RR"])
    assert np.array_equal(values["RR"], [0.5, 1.0])


def test_judged_counts_what_has_a_judgment() -> None:
    """Judged@k is the share of the first k results that anybody judged, and 0 for an empty result."""
    values = measure_queries({"a": ["x", "y"], "b": []}, {"a": {"x": 0}, "b": {"x": 1}}, names=["Judged@10"])
    assert np.array_equal(values["Judged@10"], [0.5, 0.0])


@pytest.mark.parametrize(
    ("name", "canonical"),
    [
        ("nDCG@10", "nDCG@10"),
        ("NDCG@10", "nDCG@10"),
        ("MRR@10", "RR@10"),
        (" AP ", "AP"),
        ("AP(rel=2)", "AP(rel=2)"),
        ("P(rel=2)@5", "P(rel=2)@5"),
        ("IPrec@0.5", "IPrec@0.5"),
        ("SetF(beta=2.0)", "SetF(beta=2.0)"),
        ("nDCG(dcg='exp-log2')@10", "nDCG(dcg='exp-log2')@10"),
        ("Judged@10", "Judged@10"),
        ("Success@1", "Success@1"),
    ],
)
def test_a_measure_is_named_as_the_library_names_it(name: str, canonical: str) -> None:
    """Names, aliases, parameters and cutoffs are understood, without the library's own parser."""
    assert str(parse_measure(name)) == canonical
    values = measure_queries({"q": ["a"]}, {"q": {"a": 2}}, names=[name])
    assert list(values) == [name]


def test_a_parsed_measure_is_the_librarys_when_its_parser_works() -> None:
    """Where the library's own parser runs, it gives an equal measure."""
    if sys.version_info >= (3, 12):
        pytest.skip("the library's parser warns from Python 3.12 on, and fails from 3.14 on")
    ir_measures = require_ir_measures()
    for name in ("nDCG@10", "AP(rel=2)", "P(rel=2)@5", "nDCG(gains={0: 0, 1: 5})@3"):
        assert parse_measure(name) == ir_measures.parse_measure(name)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("nope", "unknown"),
        ("P@0", "start at 1"),
        ("nDCG@-1", "start at 1"),
        ("R@0", "start at 1"),
        ("AP(rel=0)", "start at 1"),
        ("P", "cutoff"),
        ("AP(3)", "named"),
        ("nDCG@", "can't be read: write nDCG@10"),
        ("nDCG@x", "can't be read: write nDCG@10"),
        ("", "can't be read: write nDCG@10"),
        ("nDCG@10 AP", "can't be read"),
        ("__import__('os')", "named"),
        ("nDCG@os.getpid()", "can't be read"),
        ("alpha_nDCG@10", "not installed"),
        ("AP(colour=1)", "colour"),
        ("nDCG@{[]}", "can't be read"),
        ("-" * 100_000 + "1", "can't be read"),
        ("nDCG@" + "+".join(["1"] * 20_000), "can't be read"),
    ],
)
def test_a_name_is_refused_when_it_is_of_no_measure(name: str, told: str) -> None:
    """The error holds the name and the reason; what would end the process in the library is among them."""
    with pytest.raises(InvalidInput, match=told):
        parse_measure(name)


@pytest.mark.parametrize("name", ["AP(rel=99999999999)", "nDCG@True", "nDCG@99999999999999999999"])
def test_a_name_is_refused_when_its_measure_can_not_be_computed(name: str) -> None:
    """What the evaluator can't take is found out when measures are named, and an error of this library either way."""
    with pytest.raises(InvalidInput, match="check the measures' parameters"):
        canonical_names(["AP", name])
    with pytest.raises(InvalidInput, match="check the measures' parameters"):
        measure({"q": ["a"]}, {"q": {"a": 1}}, names=[name])


def test_names_are_unique_when_aliases_meet() -> None:
    """Two names of one measure are one measure, in the order first named."""
    assert canonical_names(["MRR@10", "AP", "RR@10", "MAP"]) == ("RR@10", "AP")


def test_each_name_has_the_values_when_aliases_meet() -> None:
    """Two names of one measure are two keys with the same values."""
    values = measure_queries({"q": ["x", "a"]}, {"q": {"a": 1}}, names=["RR@10", "MRR@10"])
    assert {name: each.tolist() for name, each in values.items()} == {"RR@10": [0.5], "MRR@10": [0.5]}


def test_the_deepest_cutoff_is_found() -> None:
    """A measure without a cutoff looks at what there is; a share of recall is no depth."""
    assert deepest_cutoff(["nDCG@10", "R@1000", "AP"]) == 1000
    assert deepest_cutoff(["AP", "IPrec@0.5"]) == 0


def test_a_missing_package_is_named_when_measures_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without ir-measures the error names the pip command."""
    monkeypatch.setitem(sys.modules, "ir_measures", None)
    with pytest.raises(MissingExtra, match=r"pip install 'vectorsearch\[eval\]'"):
        measure({}, {"q": {"a": 1}})
