"""The soak's checker notices each kind of wrong answer, and lets each right one pass."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from concurrent_soak import run
from serial_model import ABSENT, Asked, SerialModel, Window, faults, vector

DIM = 8


@pytest.fixture
def model() -> SerialModel:
    """Return a model of six documents: 0 to 3 have the versions 1 to 4, two are absent."""
    made = SerialModel(6, DIM)
    made.acknowledge(made.begin({doc: doc + 1 for doc in range(4)}))
    return made


def quiet(model: SerialModel) -> Window:
    """Return the window of a search beside which nothing was written."""
    return model.window(model.look())


ALL = [(0, 1), (1, 2), (2, 3), (3, 4)]
RIGHT = [
    (Asked(10, word=0), ALL),
    (Asked(4, word=0), ALL),
    (Asked(2, word=0), ALL[1:3]),
    (Asked(10, word=3), [(2, 3)]),
    (Asked(10, word=9), []),
    (Asked(10, word=0, at_least=3), ALL[2:]),
]
WRONG = [
    (Asked(10, word=0), ALL[:3], "3 hits of 10, where 4 match"),
    (Asked(2, word=0), ALL[:1], "1 hits of 2"),
    (Asked(2, word=0), ALL[:3], "where 2 were wanted"),
    (Asked(10, word=3), [], "document 2 matches"),
    (Asked(10, word=0), [*ALL[:3], (3, 5)], "no version 5"),
    (Asked(10, word=0), [*ALL, (4, 5)], "no version 5"),
    (Asked(10, word=0), [*ALL[:3], ALL[0]], "twice"),
    (Asked(10, word=0, at_least=3), ALL[1:], "doesn't match"),
    (Asked(10, word=0, at_least=3), ALL[3:], "document 2 matches"),
    (Asked(10, vector=3, at_least=3), ALL[3:], "document 2 matches"),
]


@pytest.mark.parametrize(("asked", "found"), RIGHT)
def test_answer_passes_when_a_serial_database_would_give_it(
    model: SerialModel, asked: Asked, found: list[tuple[int, int]]
) -> None:
    """What matches, all of it or any k of it, is right."""
    assert not faults(asked, found, quiet(model))


@pytest.mark.parametrize(("asked", "found", "why"), WRONG)
def test_answer_is_refused_when_no_serial_database_would_give_it(
    model: SerialModel, asked: Asked, found: list[tuple[int, int]], why: str
) -> None:
    """Too few, too many, one twice, one that never was, one that doesn't match: each is noticed."""
    assert any(why in fault for fault in faults(asked, found, quiet(model)))


def test_answer_may_be_of_either_moment_when_a_change_is_not_acknowledged(model: SerialModel) -> None:
    """What is written while a search runs may be seen or not; once it is acknowledged, the next search must see it."""
    first = model.look()
    number = model.begin({0: 7, 1: ABSENT, 4: 8})
    window = model.window(first)
    asked = Asked(10, word=0)
    for found in (ALL, [(0, 7), (2, 3), (3, 4), (4, 8)], [(0, 1), (2, 3), (3, 4)]):
        assert not faults(asked, found, window)
    assert faults(asked, [(2, 3), (3, 4)], window)  # the first matched at every moment
    model.acknowledge(number)
    assert faults(asked, ALL, quiet(model))
    assert not faults(asked, [(0, 7), (2, 3), (3, 4), (4, 8)], quiet(model))
    assert not faults(asked, ALL, model.window(first))


def test_change_that_began_before_counts_when_it_is_not_done(model: SerialModel) -> None:
    """A change that was under way when the search began is of its window, done or not."""
    model.begin({0: ABSENT})
    window = quiet(model)
    assert not faults(Asked(10, word=0), ALL, window)
    assert not faults(Asked(10, word=0), ALL[1:], window)


def test_nearer_document_is_missed_when_the_index_is_exact(model: SerialModel) -> None:
    """By cosines that are exact, none may be left out that is nearer than the last hit."""
    asked = Asked(1, vector=2)
    window = quiet(model)
    cosines = {doc: float(vector(version, DIM) @ vector(2, DIM)) for doc, version in ALL}
    assert not faults(asked, [(1, 2)], window, scores=[cosines[1]])
    assert "nearer" in faults(asked, [(0, 1)], window, scores=[cosines[0]])[0]


def test_result_may_be_short_when_it_says_so(model: SerialModel) -> None:
    """A result that tells that some may be missing is only checked for what it holds."""
    asked, window = Asked(10, word=0), quiet(model)
    assert not faults(asked, ALL[:1], window, cut=True)
    assert faults(asked, [(0, 5)], window, cut=True)


def test_soak_finds_nothing_when_it_runs_for_a_moment() -> None:
    """Writers, searches and the comparison work together; the long run is `tests/benchmarks/concurrent_soak.py`."""
    told = run(0.2, readers=2, writers=2, dense="auto")
    assert (told["wrong"], told["failures"], told["faults"]) == ([], [], [])
    assert told["writes"] > 0
