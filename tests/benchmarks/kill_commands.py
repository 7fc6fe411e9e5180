"""Kill the command line's writing commands at random moments, and see what each leaves behind.

python tests/benchmarks/kill_commands.py [--rounds N] [--seed N] [--json]

Each round copies one store of three databases (its own and two tenants'), starts `vectorsearch index`, `compact`,
`repair`, `snapshot`, `tenants add` or `tenants remove` on the copy in a process, and kills it with SIGKILL at a moment
drawn evenly from the time that the command took when it was left alone. Then the same must hold whatever the moment:
the store opens, `verify` finds no fault, every document that was there before is there (a removed tenant whole or not
at all; of a new file's documents any number, each whole), each is found by its own word and vector and nothing else is,
a snapshot is there whole or not at all, and the same command run again ends well.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import vectorsearch as vs
from vectorsearch.errors import VectorSearchError

N = 200
TENANTS = ("acme", "globex")


def vector(number: int) -> list[float]:
    """Give a vector of its own for each number."""
    return np.random.default_rng(number).standard_normal(8).astype(np.float32).tolist()


def rows(first: int, last: int) -> list[dict[str, Any]]:
    """Give documents with a word and a vector of their own."""
    return [{"id": f"d{i}", "text": f"apple unique{i}", "vector": vector(i)} for i in range(first, last)]


def make(folder: Path) -> None:
    """Make the store that each round begins with, and the file that `index` reads."""
    with vs.open(folder / "db", embed=None, rerank=None) as db:
        for database in (db, *(db.tenant(name) for name in TENANTS)):
            database.add(rows(0, N))
            database.delete([f"d{i}" for i in range(0, N, 10)])
    lines = (json.dumps(row) + "\n" for row in rows(N, 4 * N))
    (folder / "new.jsonl").write_text("".join(lines), encoding="utf-8")


def commands(folder: Path) -> dict[str, list[str]]:
    """Give the arguments of each command."""
    at = ["--db", str(folder / "db")]
    return {
        "index": ["index", str(folder / "new.jsonl"), *at],
        "compact": ["compact", *at],
        "repair": ["repair", *at],
        "snapshot": ["snapshot", str(folder / "copy"), *at],
        "tenants add": ["tenants", "add", "new", *at],
        "tenants remove": ["tenants", "remove", "acme", "--yes", *at],
    }


def start(arguments: list[str]) -> subprocess.Popen[bytes]:
    """Start a command whose output nobody reads."""
    command = [sys.executable, "-m", "vectorsearch", *arguments]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def ask(db: vs.Database, *, whole: bool) -> list[str]:
    """Return what of a database is wrong: documents that are lost, or found wrongly; `whole` means nothing is added."""
    stored = {document.id: document for document in db.iter()}
    before = {f"d{i}" for i in range(N) if i % 10}
    wrong = [f"lost {sorted(before - stored.keys())[:3]}"] if before - stored.keys() else []
    if whole and stored.keys() - before:
        wrong.append(f"not asked for: {sorted(stored.keys() - before)[:3]}")
    if {hit.id for hit in db.search("apple", k=10 * N)} != stored.keys():
        wrong.append("the word of all doesn't find all")
    for doc_id, document in list(stored.items())[:: max(1, len(stored) // 20)]:
        if [hit.id for hit in db.search(document.text.split()[1], mode="lexical")] != [doc_id]:
            wrong.append(f"{doc_id} is not found by its word")
        if db.search(vector=document.vector, k=1)[0].id != doc_id:
            wrong.append(f"{doc_id} is not found by its vector")
    return wrong


def check(folder: Path, name: str) -> list[str]:
    """Return what is wrong with a store after a kill."""
    wrong: list[str] = []
    try:
        for read_only in (True, False):
            with vs.open(folder / "db", embed=None, rerank=None, read_only=read_only) as db:
                if not read_only:
                    wrong += ask(db, whole=name != "index")
                    there = {tenant.name for tenant in db.tenants()}
                    lost = set(TENANTS) - there - ({"acme"} if name == "tenants remove" else set())
                    wrong += [f"tenant {tenant} is lost" for tenant in lost]
                    for tenant in there - {"new"}:
                        wrong += [f"tenant {tenant}: {what}" for what in ask(db.tenant(tenant), whole=True)]
                wrong += [f"verify, read_only={read_only}: {fault}" for fault in db.verify().faults]
        if (folder / "copy").exists():
            with vs.open(folder / "copy", embed=None, rerank=None) as copy:
                wrong += [f"copy: {what}" for what in ask(copy, whole=True)]
    except VectorSearchError as exc:
        wrong.append(f"refused: {exc}")
    return wrong


def again(folder: Path, name: str) -> list[str]:
    """Run the command once more and return what is wrong then; what is done already may say so."""
    done = {"snapshot": (folder / "copy").exists(), "tenants remove": not (folder / "db/tenants/acme").exists()}
    code = start(commands(folder)[name]).wait()
    if code and not done.get(name) and name != "tenants add":
        return [f"run again it ends with {code}"]
    return []


def main() -> None:
    """Run the rounds and print what came of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rng = random.Random(options.seed)  # noqa: S311 -- a repeatable choice, no secret
    wrong: list[str] = []
    killed: dict[str, int] = {}
    took: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as temporary:
        base = Path(temporary) / "base"
        base.mkdir()
        make(base)
        for number in range(options.rounds):
            folder = Path(temporary) / "round"
            shutil.copytree(base, folder)
            name = list(commands(folder))[number % len(commands(folder))]
            began = time.perf_counter()
            process = start(commands(folder)[name])
            if name not in took:
                if process.wait():
                    raise RuntimeError(f"{name} ended with {process.returncode}")
                took[name] = time.perf_counter() - began
            else:
                time.sleep(rng.uniform(0.2, 1.0) * took[name])  # before that only modules are imported
                process.send_signal(signal.SIGKILL)
                killed[name] = killed.get(name, 0) + (process.wait() == -signal.SIGKILL)
            wrong += [f"round {number}, {name}: {what}" for what in (*check(folder, name), *again(folder, name))]
            shutil.rmtree(folder)
    result = {"kills": killed, "wrong": wrong}
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        print(f"{sum(killed.values())} kills, {len(wrong)} wrong: {', '.join(f'{n} {k}' for n, k in killed.items())}")
        print("\n".join(wrong))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
