"""What callers may set: configs merge, and numbers that make no sense are refused where they are given."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from backends.errors import InvalidInput
from lifecycle import (
    LoadPolicy,
    ModelConfig,
    ModelManager,
)
from lifecycle.config import merge_configs

if TYPE_CHECKING:
    from collections.abc import Callable

    from lifecycle_fakes import Bench

    MakeBench = Callable[..., Bench]


def test_configs_merge_to_the_most_protective_when_refs_share_a_key() -> None:
    """Longest TTL, lowest priority number, any pin, any warm-up, any eager, longest load timeout."""
    one = ModelConfig(ttl_s=5.0, eviction_rank=3, warm_up=False, load_timeout_s=9.0)
    two = ModelConfig(ttl_s=7.0, eviction_rank=-1, pinned=True, load_policy=LoadPolicy.EAGER, warm_up=False)
    merged = merge_configs([one, two])
    assert merged == ModelConfig(
        ttl_s=7.0, eviction_rank=-1, pinned=True, load_policy=LoadPolicy.EAGER, warm_up=False, load_timeout_s=120.0
    )
    assert merge_configs([one, ModelConfig(ttl_s=None)]).ttl_s is None


@pytest.mark.parametrize("fields", [{"ttl_s": -1.0}, {"ttl_s": math.nan}, {"load_timeout_s": 0.0}])
def test_config_is_refused_when_it_makes_no_sense(fields: dict[str, float]) -> None:
    """L38: a negative TTL means neither "for ever" nor "now"; it is refused by name."""
    with pytest.raises(InvalidInput, match=next(iter(fields))):
        ModelConfig(**fields)  # type: ignore[arg-type] - floats all


@pytest.mark.parametrize(
    "limits", [{"max_parallel_loads": 0}, {"unload_timeout_s": 0.0}, {"backoff_s": 0.0}, {"backoff_cap_s": 0.1}]
)
def test_manager_is_refused_when_its_limits_make_no_sense(limits: dict[str, Any]) -> None:
    """Every limit must be positive, so that every wait ends."""
    with pytest.raises(InvalidInput):
        ModelManager(1, **limits)
    with pytest.raises(InvalidInput):
        ModelManager(-1)


@pytest.mark.parametrize("value", [math.nan, True, "9", None, 1.5, -math.inf])
def test_number_is_refused_when_it_is_none(bench: MakeBench, value: Any) -> None:
    """Budgets, quotas and counts are whole numbers, times are real ones; NaN, booleans and text are neither."""
    b = bench(1)
    whole: dict[str, Callable[[Any], object]] = {
        "budget_nbytes": ModelManager,
        "nbytes": b.manager.set_budget,
        "guaranteed_nbytes": lambda n: b.manager.set_tenant("t", guaranteed_nbytes=n),
        "max_parallel_loads": lambda n: ModelManager(1, max_parallel_loads=n),
        "eviction_rank": lambda n: ModelConfig(eviction_rank=n),
    }
    times: dict[str, Callable[[Any], object]] = {
        "unload_timeout_s": lambda s: ModelManager(1, unload_timeout_s=s),
        "backoff_s": lambda s: ModelManager(1, backoff_s=s),
        "backoff_cap_s": lambda s: ModelManager(1, backoff_cap_s=s),
        "ageing_s": lambda s: ModelManager(1, ageing_s=s),
        "min_residency_s": lambda s: ModelConfig(min_residency_s=s),
        "load_timeout_s": lambda s: ModelConfig(load_timeout_s=s),
    }
    optional: dict[str, Callable[[Any], object]] = {
        "max_waiters": lambda n: ModelManager(1, max_waiters=n),
        "quota_nbytes": lambda n: b.manager.set_tenant("t", quota_nbytes=n),
    }
    for name, use in (whole | (optional if value is not None else {}) | (times if value != 1.5 else {})).items():
        with pytest.raises(InvalidInput, match=f"{name} is"):
            use(value)
    assert b.manager.budget_nbytes == 1


@pytest.mark.parametrize("seconds", [-1.0, math.inf, math.nan])
def test_wait_is_refused_when_it_would_not_end(bench: MakeBench, seconds: float) -> None:
    """Leases, drains and closing all insist on finite seconds."""
    b = bench(1)
    ref = b.add("A")
    with pytest.raises(InvalidInput, match="timeout_s"):
        b.use("A", seconds)
    with pytest.raises(InvalidInput, match="drain_timeout_s"):
        b.manager.unload(ref, drain_timeout_s=seconds)
    with pytest.raises(InvalidInput, match="timeout_s"):
        b.manager.close(timeout_s=seconds)
    with pytest.raises(InvalidInput, match="at least one"):
        b.manager.lease_set([])


def test_old_name_of_the_rank_serves_for_one_release_and_says_so() -> None:
    """`priority` is `eviction_rank`, in the same direction; a replaced config keeps it without a word."""
    with pytest.warns(DeprecationWarning, match="priority is now eviction_rank"):
        config = ModelConfig(priority=3)  # type: ignore[call-arg]
    assert config == ModelConfig(eviction_rank=3)
    assert replace(config, pinned=True).eviction_rank == 3
    with pytest.warns(DeprecationWarning, match="priority is now eviction_rank"):
        assert config.priority == 3  # type: ignore[attr-defined]
