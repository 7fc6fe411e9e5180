"""Kill a writing process again and again, at random and at every step of a write, and count what is lost.

python tests/benchmarks/kill_store.py [--rounds N] [--json]

One database for all rounds. A process writes, replaces, deletes, searches, flushes and compacts; it says what it begins
and what was acknowledged, and is killed with SIGKILL: in every other round at a random moment, else at one of the steps
between which a write, an index or its files could be torn, the first to fifth time that it is reached. After each kill
the database is opened: it must hold the acknowledged documents, with or without the whole of the one change that was
under way, and both retrievers must find exactly those. `tests/faults/test_kill.py` does 20 such rounds.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

TEST = Path(__file__).parents[1] / "faults" / "test_kill.py"


def fault_test() -> Any:
    """Load the test's own writer, model and check, so that both ask for the same."""
    spec = importlib.util.spec_from_file_location("test_kill", TEST)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def one_round(kill: Any, folder: Path, model: Any, number: int, rng: random.Random) -> str:
    """Start a writer, have it killed, check what is left, and return where it died."""
    at_step = number % 2 == 1
    step = rng.choice(kill.FAILPOINTS) if at_step else "random"
    arguments = [step, str(rng.randint(1, 5))] if at_step else []
    with kill.start(folder, str(number + 1), *arguments) as process:
        if not at_step:
            lines = [process.stdout.readline() for _ in range(rng.randint(1, 16))]
            time.sleep(rng.uniform(0, 0.05))
            process.send_signal(signal.SIGKILL)
            lines += process.stdout.readlines()
        else:
            lines = process.stdout.readlines()
    if process.returncode != -signal.SIGKILL:
        raise RuntimeError(f"round {number}: the writer ended with {process.returncode}: {lines[-3:]}")
    kill.check(folder, model, model.follow([line for line in lines if line.endswith("\n")]))
    return step


def main() -> None:
    """Run the rounds and print what came of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    kill, rng = fault_test(), random.Random(23)  # noqa: S311 -- a repeatable choice, no secret
    model = kill.Model()
    steps: dict[str, int] = {}
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.rounds):
            try:
                step = one_round(kill, Path(folder) / "db", model, number, rng)
            except AssertionError as exc:
                wrong.append(f"round {number}: {str(exc)[:500]}")
                break
            steps[step] = steps.get(step, 0) + 1
            if number % 20 == 19:
                print(f"{number + 1} kills, {len(model.stored)} documents", file=sys.stderr)
    result = {"kills": sum(steps.values()), "by_step": steps, "documents": len(model.stored), "wrong": wrong}
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        print(f"{result['kills']} kills, {len(wrong)} wrong: {', '.join(f'{s} {n}' for s, n in sorted(steps.items()))}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
