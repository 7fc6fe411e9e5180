"""Each mistake of the usual sketch, put back, is noticed by a check that passes without it, as the README tells."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from lifecycle_checks import Violation
from lifecycle_switches import SWITCHES

import lifecycle

if TYPE_CHECKING:
    from lifecycle_switches import Check, Switch

PACKAGE = Path(lifecycle.__file__).parent
TESTS = Path(__file__).parents[2]
INVARIANTS = "| invariant | tested by, beside the walk | mistakes that are noticed | by |"
README = (TESTS / "lifecycle" / "README.md").read_text(encoding="utf-8")
CASES = {  # of public reports, by the design's numbers
    1, 2, 4, 6, 7, 9, 11, 12, 13, 15, 16, 17, 19, 21, 22, 23, 25, 27,
    29, 30, 33, 34, 35, 36, 38, 39, 41, 42, 44, 45, 47, 48, 49, 50, 51, 53,
}  # fmt: skip


@pytest.mark.parametrize(("switch", "check", "invariant"), SWITCHES, ids=[switch.__name__ for switch, *_ in SWITCHES])
def test_check_fails_when_a_known_mistake_is_put_back(
    switch: Switch, check: Check, invariant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check passes as things are, and fails with the mistake; a walk names the invariant that it breaks."""
    check()
    switch(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)) as caught:
        check()
    if isinstance(caught.value, Violation):
        number = str(caught.value).partition(":")[0]
        assert number == invariant or not (invariant or number.isdigit())


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the README's table that has this heading."""
    table = README.split(f"\n{heading}\n", 1)[1].split("\n\n", 1)[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[1:]]


def killer(check: Check) -> str:
    """Return how the README calls what notices a mistake."""
    return f"`{check.__name__}`" if check.__name__.startswith("check_") else "the walk"


def test_table_names_each_mistake_when_it_says_how_an_invariant_is_proved() -> None:
    """Each of the fifteen has a row with at least one mistake that is put back, and with what notices it; all agree."""
    mistakes, killers = defaultdict(list), defaultdict(list)
    for switch, check, invariant in SWITCHES:
        mistakes[invariant].append(f"`{switch.__name__}`")
        killers[invariant].append(killer(check))
    table = rows(INVARIANTS)
    told = {"".join(re.findall(r"^\d+", name)): (switches, by) for name, _, switches, by in table}
    real = {number: (", ".join(mistakes[number]), ", ".join(dict.fromkeys(killers[number]))) for number in mistakes}
    assert told == real
    assert set(told) == {"", *map(str, range(1, 16))}


def test_walk_can_name_each_invariant_when_it_is_said_to_check_it() -> None:
    """Every invariant but 10, which is about threads, is one that a check of the walk names."""
    checks = "".join(
        path.read_text(encoding="utf-8") for path in Path(__file__).parents[1].glob("support/lifecycle_*.py")
    )
    named = set(re.findall(r'"(\d+): ', checks))
    assert named == {str(number) for number in range(1, 16)} - {"10"}


@pytest.mark.parametrize("heading", [INVARIANTS, "| | built in | tested by |"])
def test_files_are_there_when_the_readme_names_them(heading: str) -> None:
    """Every test file and module in the tables exists, and every case is one of the design's."""
    cells = [cell for row in rows(heading) for cell in row]
    assert cells
    for name in {name for cell in cells for name in re.findall(r"`(\w+\.py)`", cell)}:
        assert next((found for place in (PACKAGE, TESTS) for found in place.rglob(name)), None), name
    assert {int(number) for cell in cells for number in re.findall(r"\bL(\d+)", cell)} <= CASES


def test_each_case_is_a_test_when_the_design_lists_it() -> None:
    """Every case of the public reports is named by the docstring of at least one test."""
    found = set()
    for path in TESTS.rglob("test_*.py"):
        for docstring in re.findall(r'def test_[^"]*?:(?:  # .*)?\n    """(.*)', path.read_text(encoding="utf-8")):
            found |= set(map(int, re.findall(r"\bL(\d+)\b", docstring)))
    assert found >= CASES
