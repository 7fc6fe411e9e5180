"""What a step costs grows no faster than the number of those who wait."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from lifecycle_world import LAZY, key

from lifecycle.heart import signals
from lifecycle.heart.states import Limits, State
from lifecycle.heart.transitions import step

if TYPE_CHECKING:
    from types import FrameType

FEW, MANY = 100, 400


def asked(state: State, waiters: int) -> State:
    """Let so many more callers ask for one model."""
    first = 1 + max((entry.number for entry in state.queue), default=1)
    for number in range(first, first + waiters):
        state, _ = step(state, signals.Request(number, (key("A"),), 100.0, tenants=frozenset("t")), state.now)
    return state


def crowd(waiters: int, *, has_room: bool) -> State:
    """Return a state in which so many wait for one model: for its load, or for room that a lease holds."""
    state = State(Limits(1))
    for name in "AB":
        state, _ = step(state, signals.Register(key(name), 1, LAZY, ("t",)), 0.0)
    if not has_room:
        state, _ = step(state, signals.Request(1, (key("B"),), 100.0), 0.0)
        state, _ = step(state, signals.Loaded(1, 1), 0.0)
    return asked(state, waiters)


def calls(state: State, event: signals.Input) -> int:
    """Return how many functions of this package and its comprehensions one step calls."""
    counted = 0

    def count(frame: FrameType, what: str, _: object) -> None:
        nonlocal counted
        counted += what == "call" and "lifecycle" in frame.f_code.co_filename

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        step(state, event, state.now)
    finally:
        sys.setprofile(before)
    return counted


@pytest.mark.parametrize("has_room", [True, False], ids=["loading", "no room"])
def test_one_more_costs_the_same_when_many_wait_for_one_model(*, has_room: bool) -> None:
    """L10: what a newcomer sets going is no more than to look at each who waits already, without any call."""
    newcomer = signals.Request(10_000, (key("A"),), 100.0, tenants=frozenset("t"))
    few, many = (calls(crowd(waiters, has_room=has_room), newcomer) for waiters in (FEW, MANY))
    assert many < 1.5 * few


def test_all_are_served_in_linear_work_when_their_model_is_loaded() -> None:
    """L10: so is to hand it out."""
    few, many = (calls(crowd(waiters, has_room=True), signals.Loaded(1, 1)) for waiters in (FEW, MANY))
    assert many < 1.5 * MANY / FEW * few
