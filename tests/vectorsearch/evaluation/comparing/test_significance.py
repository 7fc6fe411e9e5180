from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from backends.errors import MissingExtra
from vectorsearch.evaluation.comparing.significance import holm, randomisation_test, t_interval, t_test

SEEDS = range(5)
P_VALUES = st.lists(st.floats(0, 1), min_size=1, max_size=8)
DIFFERENCES = arrays(np.float64, st.integers(0, 12), elements=st.integers(-4, 4).map(lambda i: i / 4))


def sample(n: int, seed: int, *, shift: float = 0.05) -> np.ndarray:
    """Return differences as two systems have them: many zeros, some of either sign."""
    rng = np.random.default_rng(seed)
    values = rng.normal(shift, 0.3, n)
    values[rng.random(n) < 0.4] = 0.0
    return values


@pytest.mark.parametrize("seed", SEEDS)
def test_p_of_the_t_test_is_scipys(seed: int) -> None:
    """The paired t-test's p and the interval of the mean equal scipy's."""
    differences = sample(60, seed)
    expected = stats.ttest_1samp(differences, 0.0)
    assert t_test(differences) == pytest.approx(expected.pvalue, rel=1e-9)
    assert t_interval(differences) == pytest.approx(tuple(expected.confidence_interval(0.95)), rel=1e-9)


@pytest.mark.parametrize("n", [2, 5, 12])
@pytest.mark.parametrize("seed", SEEDS)
def test_p_of_the_randomisation_test_is_scipys_when_all_patterns_are_tried(n: int, seed: int) -> None:
    """For few queries the test is exact, and equals scipy's over all sign patterns."""
    differences = sample(n, seed)
    expected = stats.permutation_test(
        (differences,), np.mean, permutation_type="samples", n_resamples=np.inf, vectorized=True
    )
    assert randomisation_test(differences) == pytest.approx(expected.pvalue, abs=1e-12)


@pytest.mark.parametrize("shift", [0.0, 0.04, 0.08])
def test_p_of_the_randomisation_test_is_near_scipys_when_patterns_are_drawn(shift: float) -> None:
    """For many queries two samples of patterns agree within five standard errors of a share."""
    differences = sample(200, 3, shift=shift)
    expected = stats.permutation_test(
        (differences,), np.mean, permutation_type="samples", n_resamples=9_999, vectorized=True, rng=1
    ).pvalue
    p = randomisation_test(differences)
    assert abs(p - expected) < 5 * np.sqrt(max(expected, 1e-3) / 9_999) * 1.3
    assert p == randomisation_test(differences)  # a fixed seed: the same runs have the same figures


def test_p_is_the_same_when_drawn_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large collection's patterns are drawn in parts: none is lost, and p stays a share of all."""
    differences = np.full(30, 0.1)
    monkeypatch.setattr("vectorsearch.evaluation.comparing.significance._CHUNK", 100)
    assert randomisation_test(differences, permutations=999) == pytest.approx(1 / 1000)
    assert randomisation_test(np.tile([0.1, -0.1], 15), permutations=999) == 1.0


def test_p_is_1_when_there_is_no_difference() -> None:
    """Equal systems, one query, or none: nothing speaks for a difference."""
    for differences in (np.zeros(50), np.zeros(0)):
        assert randomisation_test(differences) == t_test(differences) == 1.0
    assert t_test(np.array([0.3])) == randomisation_test(np.array([0.3])) == 1.0


def test_p_is_0_for_the_t_test_when_all_differences_are_equal() -> None:
    """Without spread the t-test is certain; its interval is the one value; nothing warns of a division by zero."""
    assert t_test(np.full(20, 0.25)) == 0.0
    assert t_interval(np.full(20, 0.25)) == (0.25, 0.25)


@given(DIFFERENCES)
def test_p_doesnt_depend_on_order_or_side(differences: np.ndarray) -> None:
    """The order of the queries, and which system is called the baseline, change no p; p is in (0, 1]."""
    p = randomisation_test(differences)
    assert 0.0 < p <= 1.0
    assert randomisation_test(differences[::-1]) == pytest.approx(p)
    assert randomisation_test(-differences) == pytest.approx(p)
    assert t_test(-differences) == pytest.approx(t_test(differences))


@given(P_VALUES)
def test_holms_correction_keeps_the_order_and_never_lowers(p_values: list[float]) -> None:
    """Corrected values are no smaller than the raw ones, at most 1, at most Bonferroni's, and in the same order."""
    corrected = holm(p_values)
    for raw, adjusted in zip(p_values, corrected, strict=True):
        assert raw <= adjusted <= min(1.0, raw * len(p_values)) + 1e-12
    assert [corrected[i] for i in np.argsort(p_values)] == sorted(corrected)


def test_holms_correction_is_the_papers() -> None:
    """Holm's step-down values: 0.01, 0.04, 0.03, 0.005 become 0.03, 0.06, 0.06, 0.02; of none there are none."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []


def test_a_missing_package_is_named_when_systems_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without scipy the error names the pip command."""
    monkeypatch.setitem(sys.modules, "scipy.stats", None)
    with pytest.raises(MissingExtra, match=r"pip install 'vectorsearch\[eval\]'"):
        t_test(np.array([0.1, 0.2]))
