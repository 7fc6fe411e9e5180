"""Is a difference between two systems more than chance? Paired tests over the same queries. Pure.

Smucker, Allan and Carterette, "A Comparison of Statistical Significance Tests for Information Retrieval Evaluation",
CIKM 2007, on the randomisation and the t-test; Holm, "A Simple Sequentially Rejective Multiple Test Procedure",
Scandinavian Journal of Statistics 6, 1979.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np

from backends.errors import MissingExtra

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

ALPHA = 0.05
CONFIDENCE = 0.95
PERMUTATIONS = 19_999
SEED = 20_071  # fixed, so that the same runs give the same figures

_EXACT_UP_TO = 14  # queries: 2 ** 14 sign patterns are fewer than PERMUTATIONS
_CHUNK = 1 << 22  # signs drawn at once, 32 MiB
_ROUNDING = 1e-9  # two sums of the same numbers in another order are equal


def randomisation_test(differences: NDArray[np.float64], *, permutations: int = PERMUTATIONS) -> float:
    """Return the two-sided p of Fisher's paired randomisation test of "the mean difference is 0".

    If the two systems were alike, each query's difference could as well have had the other sign. The share of sign
    patterns that give a mean at least as far from 0 is p: of all patterns for up to 14 queries, else of
    `permutations` drawn with a fixed seed, the observed one counted among them, so that p is never 0.

    Args:
        differences: float64[n], one value a query.
        permutations: how many patterns are drawn.
    """
    moved = differences[differences != 0.0]  # a query without a difference has no sign to change
    n = len(moved)
    observed = abs(float(moved.sum())) - _ROUNDING
    if n <= _EXACT_UP_TO:
        patterns = (np.arange(1 << n)[:, None] >> np.arange(n)) & 1
        return float(np.mean(np.abs((1.0 - 2.0 * patterns) @ moved) >= observed))
    rng = np.random.default_rng(SEED)
    extreme, drawn = 0, 0
    while drawn < permutations:
        rows = min(permutations - drawn, max(1, _CHUNK // n))
        signs = rng.integers(0, 2, (rows, n), dtype=np.int8).astype(np.float64)
        sums = moved.sum() - 2.0 * (signs @ moved)
        extreme += int(np.count_nonzero(np.abs(sums) >= observed))
        drawn += rows
    return (1 + extreme) / (1 + permutations)


def t_test(differences: NDArray[np.float64]) -> float:
    """Return the two-sided p of Student's paired t-test of "the mean difference is 0"; 1.0 for fewer than 2 queries.

    Raises:
        MissingExtra: scipy is not installed.
    """
    n = len(differences)
    mean, error = _mean_and_error(differences)
    if n < 2 or mean == 0.0:  # noqa: PLR2004 -- one value has no spread
        return 1.0
    return float(2.0 * require_scipy_stats().t.sf(abs(mean) / error, n - 1)) if error else 0.0


def t_interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the 95 % interval of the mean by Student's t; for fewer than 2 values the mean itself, twice.

    Raises:
        MissingExtra: scipy is not installed.
    """
    mean, error = _mean_and_error(values)
    if error == 0.0:
        return mean, mean
    half = float(require_scipy_stats().t.ppf((1.0 + CONFIDENCE) / 2.0, len(values) - 1)) * error
    return mean - half, mean + half


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values corrected for there being several, in the order given (Holm 1979)."""
    order = np.argsort(p_values, kind="stable")
    factors = np.arange(len(order), 0, -1)
    adjusted = np.minimum(1.0, np.maximum.accumulate(factors * np.asarray(p_values, dtype=np.float64)[order]))
    result = np.empty_like(adjusted)
    result[order] = adjusted
    return [float(p) for p in result]


def require_scipy_stats() -> Any:  # noqa: ANN401 -- the module; it has no type information
    """Return scipy.stats.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        return importlib.import_module("scipy.stats")
    except ImportError as exc:
        raise MissingExtra("comparing systems needs scipy: pip install 'vectorsearch[eval]'") from exc


def _mean_and_error(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the mean and its standard error; no error for fewer than 2 values, or for equal ones."""
    n = len(values)
    if n == 0:
        return 0.0, 0.0
    mean = float(values.mean())
    if n < 2 or np.ptp(values) <= _ROUNDING:  # noqa: PLR2004 -- one value has no spread
        return mean, 0.0
    return mean, float(values.std(ddof=1) / np.sqrt(n))
