"""Health: counts by backend, a breaker that opens, lets one probe in and closes again; time is told, not waited for."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from backends.choosing.health import Breaker, Health
from backends.errors import InvalidInput


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def made(**settings: float) -> tuple[Clock, Health, Breaker]:
    """Return a clock, a health over it, and one backend's breaker."""
    clock = Clock()
    health = Health(clock=clock, **settings)  # type: ignore[arg-type]  (counts too)
    return clock, health, health.of("onnx")


def fail(breaker: Breaker, times: int) -> None:
    """Let calls fail."""
    for _ in range(times):
        breaker.failed()


def test_breaker_opens_when_enough_calls_and_more_than_the_share_failed() -> None:
    """Five of nine failures open it; four, or five of ten, don't."""
    _, _, breaker = made()
    for _ in range(4):
        breaker.succeeded()
    fail(breaker, 4)
    assert breaker.is_closed
    fail(breaker, 1)
    assert not breaker.is_closed
    _, _, other = made()
    for _ in range(5):
        other.succeeded()
    fail(other, 5)
    assert other.is_closed


def test_old_calls_do_not_count_when_two_intervals_are_over() -> None:
    """A million successes of the past don't hide that everything fails now; failures of the past are forgotten."""
    clock, _, breaker = made()
    for _ in range(1000):
        breaker.succeeded()
    clock.now = 7200.0
    fail(breaker, 4)
    clock.now += 130.0
    fail(breaker, 4)
    assert breaker.is_closed
    fail(breaker, 1)
    assert not breaker.is_closed


def test_one_probe_is_let_in_when_the_pause_is_over() -> None:
    """Open admits nobody, half-open one at a time; a probe that fails opens it again, one that succeeds closes it."""
    clock, health, breaker = made()
    fail(breaker, 5)
    assert [breaker.admits(), health.report()[0].state] == [False, "open"]
    clock.now = 30.0
    assert health.report()[0].state == "half-open"
    assert [breaker.admits(), breaker.admits()] == [True, False]
    breaker.failed()
    assert not breaker.admits()
    clock.now = 60.0
    assert breaker.admits()
    breaker.succeeded()
    assert [breaker.admits(), breaker.admits(), health.report()[0].state] == [True, True, "closed"]
    fail(breaker, 4)
    assert breaker.is_closed, "what was before it closed does not count"


def test_next_probe_is_let_in_when_one_was_undecided() -> None:
    """A probe that ended for another reason says nothing, and doesn't keep the breaker open for ever."""
    clock, _, breaker = made()
    fail(breaker, 5)
    clock.now = 30.0
    assert breaker.admits()
    breaker.undecided()
    assert breaker.admits()


def test_check_health_names_who_fails_or_falls_back_too_often() -> None:
    """Above the threshold a backend is named with its figures, at it or below it is not; an open breaker always is."""
    _, health, breaker = made()
    for _ in range(9):
        breaker.succeeded()
    breaker.failed()
    assert health.check_health(0.1) == ()
    (sick,) = health.check_health(0.05)
    assert (sick.backend, sick.successes, sick.failures, sick.fallbacks) == ("onnx", 9, 1, 0)
    assert sick.trouble == pytest.approx(0.1)
    assert "onnx: 10% of recent calls" in str(sick)
    for _ in range(6):
        health.of("jax").fell_back()
    assert [each.backend for each in health.check_health(0.5)] == ["jax"]
    fail(health.of("torch"), 5)
    assert [each.backend for each in health.check_health(1.0)] == ["torch"]


def test_counts_are_right_when_threads_report_together() -> None:
    """Failures and fallbacks of 8 threads are all counted."""
    _, health, breaker = made(threshold=1.0)
    with ThreadPoolExecutor(8) as pool:
        for _ in range(8):
            pool.submit(lambda: [(breaker.failed(), breaker.fell_back()) for _ in range(500)])  # type: ignore[func-returns-value]
    assert (health.report()[0].failures, health.report()[0].fallbacks) == (4000, 4000)


@pytest.mark.parametrize(
    "settings",
    [{"threshold": 1.5}, {"threshold": float("nan")}, {"interval_s": 0}, {"pause_s": -1}, {"least_failures": 0}],
)
def test_settings_are_refused_when_they_make_no_sense(settings: dict[str, float]) -> None:
    """Shares lie between 0 and 1, everything else is positive."""
    with pytest.raises(InvalidInput):
        made(**settings)
    with pytest.raises(InvalidInput):
        Health().check_health(-0.1)
