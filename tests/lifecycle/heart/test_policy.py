"""Victims: who, in which order, and never more than needed."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st
from lifecycle_gdsf import reference_gdsf, run_gdsf

from lifecycle.heart.policy import Candidate, choose_victims, worth


def candidate(
    number: int, nbytes: int = 1, *, idle: bool = True, eviction_rank: int = 0, last_used: float = 0.0
) -> Candidate:
    """Return a candidate; all but its number has a default."""
    return Candidate(number, nbytes, idle, eviction_rank, 0.0, last_used)


def test_least_recently_used_leaves_first_when_all_are_idle() -> None:
    """The oldest last release goes first, and ties go by number."""
    pool = [candidate(1, last_used=3.0), candidate(2, last_used=1.0), candidate(3, last_used=1.0)]
    assert choose_victims(1, pool) == (2,)
    assert choose_victims(2, pool) == (2, 3)


def test_higher_priority_number_leaves_first_when_priorities_differ() -> None:
    """Priority outweighs recency."""
    pool = [candidate(1, last_used=1.0), candidate(2, eviction_rank=5, last_used=9.0)]
    assert choose_victims(1, pool) == (2,)


def test_idle_leaves_before_leased_when_both_could() -> None:
    """A leased model is claimed only for what the idle ones can't give."""
    pool = [candidate(1, idle=False, last_used=1.0, eviction_rank=9), candidate(2, last_used=9.0)]
    assert choose_victims(1, pool) == (2,)
    assert choose_victims(2, pool) == (2, 1)


def test_nobody_leaves_when_all_together_are_too_small() -> None:
    """A plan that can't free enough is no plan."""
    assert choose_victims(4, [candidate(1), candidate(2, 2)]) is None


def test_small_ones_are_spared_when_the_last_one_suffices_alone() -> None:
    """A victim that the later ones make superfluous is put back."""
    pool = [candidate(1, 1, last_used=1.0), candidate(2, 8, last_used=2.0)]
    assert choose_victims(8, pool) == (2,)


@given(st.lists(st.integers(0, 9), max_size=7), st.integers(0, 40))
def test_plan_is_irredundant_when_sizes_are_arbitrary(sizes: list[int], short: int) -> None:
    """A plan frees enough, no proper subset of it would, and there is one whenever everybody together suffices."""
    pool = [candidate(n, size, last_used=float(n)) for n, size in enumerate(sizes)]
    plan = choose_victims(short, pool)
    assert (plan is None) == (sum(sizes) < short)
    if plan is not None:
        assert sum(sizes[n] for n in plan) >= short
        for fewer in combinations(plan, max(0, len(plan) - 1)):
            assert not plan or sum(sizes[n] for n in fewer) < short


@given(st.lists(st.integers(0, 4), max_size=60), st.lists(st.integers(1, 9), min_size=5, max_size=5), st.integers(1, 4))
def test_heart_keeps_what_the_paper_keeps_when_eviction_is_cost_aware(
    requests: list[int], costs: list[int], budget: int
) -> None:
    """For models of one size, the heart under "gdsf" has the residents of GreedyDual-Size-Frequency as published."""
    assert run_gdsf(requests, costs, budget) == reference_gdsf(requests, costs, budget)


@given(st.integers(1, 99), st.integers(1, 99), st.integers(1, 99), st.floats(0, 1e6))
def test_worth_rises_with_use_and_cost_and_falls_with_size(uses: int, cost: int, size: int, floor: float) -> None:
    """More uses, a dearer load and a smaller size never make a model worth less, and none is worth less than L."""
    here = worth(floor, uses, cost, size)
    assert floor <= here <= worth(floor, uses + 1, cost, size)
    assert worth(floor, uses, cost, size + 1) <= here <= worth(floor, uses, cost + 1, size)


def test_cheap_model_leaves_first_when_eviction_is_cost_aware() -> None:
    """Among idle models of one priority the least worth leaves, and of equals the least recently used."""
    dear = replace(candidate(1, last_used=1.0), worth=5.0)
    cheap = replace(candidate(2, last_used=9.0), worth=1.0)
    assert choose_victims(1, [dear, cheap]) == (2,)
    assert choose_victims(1, [dear, replace(cheap, worth=5.0)]) == (1,)
