"""LIFECYCLE's cases, each with its number: loads that fail, models that are too large, and larger than was thought."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from lifecycle_fakes import key

from lifecycle import (
    BudgetExhausted,
    LoadFailed,
    ModelRef,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from lifecycle_fakes import Bench

    MakeBench = Callable[..., Bench]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), MemoryError()])
def test_all_waiters_are_told_when_the_loader_raises_anything(bench: MakeBench, error: BaseException) -> None:
    """L19: a BaseException from the loader reaches every waiter, and after the backoff the key loads again."""
    b = bench(1)
    b.add("A")
    gate = b.loader.hold("A")
    b.loader.faults["A", "load"] = [error]
    waiters = [b.later("A") for _ in range(3)]
    b.waiting(3)
    gate.opened.set()
    for waiter in waiters:
        told = waiter.error()
        assert isinstance(told, LoadFailed)
        assert told.__cause__ is error
    b.pass_time(1.0)
    b.use("A")
    assert b.loads("A") == 2


def test_deficit_is_worked_off_first_when_a_model_measures_more(bench: MakeBench) -> None:
    """L27: memory measured above what was reserved is charged, and the next admission evicts for it first."""
    b = bench(4)
    b.add("A", 2, measured=3)
    b.add("B", 2)
    b.add("C", 1)
    b.use("B")
    b.use("A")
    assert b.manager.snapshot().deficit_nbytes == 1
    assert b.manager.snapshot().charged_nbytes == 5
    b.use("C")
    assert b.loader.order[-3:] == ["close B", "load C", "nbytes C"]
    assert b.state.charged_nbytes == 4
    b.manager.unload(ModelRef("t", "A"))
    gate = b.loader.hold("A")
    again = b.later("A")
    gate.reached.wait()
    assert b.state.charged_nbytes == 4, "the second load reserves what the first one measured"
    gate.opened.set()
    again.result()


def test_nothing_stays_reserved_when_a_load_fails(bench: MakeBench) -> None:
    """L29: after a failed load the key is FAILED and nothing is charged."""
    b = bench(1)
    b.add("A")
    b.loader.faults["A", "load"] = [OSError("no such file")]
    with pytest.raises(LoadFailed, match="no such file") as caught:
        b.use("A")
    assert caught.value.retry_after_s == 1.0
    assert b.phase("A") == "failed"
    assert b.state.charged_nbytes == 0


def test_refused_at_once_when_a_model_is_larger_than_the_budget(bench: MakeBench) -> None:
    """L30: what can never fit is refused at once, and nobody is evicted for it."""
    b = bench(2)
    b.add("A", 2)
    b.add("B", 3)
    b.use("A")
    with pytest.raises(BudgetExhausted) as caught:
        b.use("B")
    assert (caught.value.needed_nbytes, caught.value.budget_nbytes) == (3, 2)
    assert [holder.name for holder in caught.value.holders] == ["'t/A'"]
    assert b.phase("A") == "ready"


def test_retried_after_the_backoff_when_a_load_failed_once(bench: MakeBench) -> None:
    """L41: a load that fails once is tried again after the backoff, and the failure is forgotten."""
    b = bench(1)
    b.add("A")
    b.loader.faults["A", "load"] = [OSError("busy")]
    with pytest.raises(LoadFailed):
        b.use("A")
    b.pass_time(1.0)
    b.use("A")
    assert b.state.models[key("A")].failures == 0


def test_one_attempt_when_a_broken_model_is_polled(bench: MakeBench) -> None:
    """L42: a hundred requests within the backoff make one attempt, and each is told when to come back."""
    b = bench(1)
    b.add("A")
    b.loader.faults["A", "load"] = [OSError("broken")] * 9
    for _ in range(100):
        with pytest.raises(LoadFailed) as caught:
            b.use("A")
        assert caught.value.retry_after_s == 1.0
    assert b.loads("A") == 1
    waits = []
    for _ in range(8):
        b.pass_time(caught.value.retry_after_s)
        with pytest.raises(LoadFailed) as caught:
            b.use("A")
        waits.append(caught.value.retry_after_s)
    assert waits == [2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]
