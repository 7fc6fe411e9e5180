"""T1, T2: limits of time, the learning rate at their end, and models that were ruined."""

from __future__ import annotations

import math

import numpy as np
import pytest

from backends.errors import InvalidModel
from rerank.training.soundness import check_scores
from rerank.training.time_limit import TimeLimit


class Clock:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        """Return the time in seconds."""
        return self.now


def test_parts_and_what_is_kept_end_earlier_when_a_limit_is_shared() -> None:
    """A part is of what is left when it begins; all look at the one clock, and the error tells the whole's times."""
    clock = Clock()
    limit = TimeLimit.starting(1.0, clock=clock)
    clock.now = 120.0
    part, keeping = limit.part(0.25), limit.keeping(30.0)
    assert (limit.left_s, part.left_s, keeping.left_s) == (40.0, 10.0, 10.0)
    clock.now = 130.0
    assert (limit.is_up(), part.is_up(), keeping.is_up(), limit.is_up(keeping_s=30.0)) == (False, True, True, True)
    assert part.elapsed_s == limit.elapsed_s == 30.0
    assert "before dinner, after 30 s of 60" in str(part.too_short("dinner"))


def test_nothing_is_ever_up_when_there_is_no_limit() -> None:
    """None is no limit, for parts too, and NaN never comes up."""
    limit = TimeLimit.starting(None, clock=Clock())
    for each in (limit, limit.part(0.1), limit.keeping(1e9), limit.part(0.5).keeping(1.0)):
        assert each.left_s == math.inf
        assert not each.is_up(keeping_s=1e300)


@pytest.mark.parametrize("done", [0.0, 0.05, 0.1, 0.5, 1.0, 1.0 + 1e-9, 2.0, 5e12])
def test_the_learning_rate_is_never_negative_when_it_is_late(done: float) -> None:
    """T1: what was done is more than all there was, where the time was up before the first step."""
    pytest.importorskip("torch")
    from rerank.distilling.distil_training import _rate  # noqa: PLC0415  (imports PyTorch)

    assert 0.0 <= _rate(done, 0.01) <= 1.0


FINE = [np.zeros(3, np.float32), np.array([0.0, 0.1], np.float32)]


@pytest.mark.parametrize(
    "ruined",
    [
        [np.zeros(5, np.float32)],
        [np.full(5, 7.1, np.float32), np.full(3, -2.0, np.float32)],
        [np.array([1000.0, 1000.001], np.float32)],
        [*FINE, np.array([1.0, np.nan], np.float32)],
        [*FINE, np.array([1.0, np.inf], np.float32)],
        [],
    ],
)
def test_a_model_is_refused_when_it_tells_no_texts_apart(ruined: list[np.ndarray]) -> None:
    """T1: equal scores for every query, and what is no number for any."""
    with pytest.raises(InvalidModel, match="nothing was written"):
        check_scores(ruined)


def test_a_model_is_sound_when_it_tells_some_texts_apart() -> None:
    """Equal scores within one query alone are no fault: its texts may be equal."""
    check_scores(FINE)
