"""How the lifecycle manager was proved: worlds explored, mistakes put back, races hit.

    python tests/benchmarks/lifecycle_proof.py [--json] [--quick]

Runs the tests that explore, mutate and stress (`tests/lifecycle/`), and prints what they did: for each small world
the reachable states, the transitions between them, the depth of the walk and the violations of an invariant; for each
mutation switch the check that fails with it and passes without; for the stress the operations, and how often each race
was really hit. `--quick` leaves the stress out.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from lifecycle_measuring import finish, parse_options

if TYPE_CHECKING:
    from collections.abc import Callable

TESTS = Path(__file__).parent.parent / "lifecycle"


class Collector:
    """A pytest plugin that keeps what each test was about, how it ended, and what it recorded."""

    def __init__(self) -> None:
        self.worlds: dict[str, dict[str, Any]] = {}
        self.mutations: dict[str, dict[str, Any]] = {}
        self.stress: dict[str, Any] = {}
        self.failed: list[str] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
        """File one test's report where it belongs."""
        report = yield
        if report.failed:
            self.failed.append(item.nodeid)
        if call.when == "call" and isinstance(item, pytest.Function):
            recorded = dict(item.user_properties)
            parameters = item.callspec.params if hasattr(item, "callspec") else {}
            seconds = {"seconds": round(call.duration, 2)}
            if "name" in parameters:  # a walk that ends in an error records nothing
                counts = map(int, re.findall(r"\d+", str(recorded.get("exploration", "0 0 0"))))
                world = dict(zip(("states", "transitions", "depth"), counts, strict=True))
                self.worlds[parameters["name"]] = world | seconds | {"violations": int(report.failed)}
            elif "switch" in parameters:
                killed_by = _name_of(parameters["check"])
                mutation = {"breaks": parameters["invariant"], "killed": report.passed, "killed_by": killed_by}
                self.mutations[parameters["switch"].__name__] = mutation | seconds
            elif "stress" in recorded:
                self.stress[item.name] = recorded["stress"] | seconds
        return report


def _name_of(check: Callable[[], object]) -> str:
    """Return the name of a check, which may be the walk through one of its module's worlds."""
    scenario = inspect.getclosurevars(check).nonlocals.get("scenario")
    if scenario is None:
        return check.__name__
    return "exploration of " + next(name for name, value in vars(inspect.getmodule(check)).items() if value is scenario)


def main() -> None:
    """Run the tests and print what they did; fail if one failed, or a mistake was not noticed."""
    options = parse_options(__doc__, plots=False)
    files = ["test_exploration.py", "test_mutations.py", *(() if options.quick else ("test_stress.py",))]
    proof = Collector()
    with contextlib.redirect_stdout(io.StringIO()) as said:
        ended = pytest.main(
            [str(next(TESTS.rglob(name))) for name in files] + ["-q", "-p", "no:cacheprovider"], plugins=[proof]
        )
    if ended != pytest.ExitCode.OK:
        print(said.getvalue(), file=sys.stderr)
    worlds = proof.worlds.values()
    figures = {
        "exploration": {
            **{name: sum(world[name] for world in worlds) for name in ("states", "transitions", "violations")},
            "depth": max((world["depth"] for world in worlds), default=0),
            "seconds": round(sum(world["seconds"] for world in worlds), 2),
            "worlds": proof.worlds,
        },
        "mutations": proof.mutations,
        "stress": proof.stress,
    }
    wrong = {
        "failed_tests": len(proof.failed),
        "violations": figures["exploration"]["violations"],
        "surviving_mutations": sum(not mutation["killed"] for mutation in proof.mutations.values()),
        "nothing_ran": int(not (proof.worlds and proof.mutations)),
    }
    finish(figures, options, wrong=wrong)


if __name__ == "__main__":
    main()
