"""Kill the command line's writing commands at random moments, and see what each leaves behind.

python tests/benchmarks/kill_commands.py [--rounds N] [--seed N] [--only NAME] [--json]

Each round copies one store of three databases (its own and two tenants') with registered models, starts a command that
writes to it in a process, and kills that with SIGKILL at a moment drawn evenly from the time that the command took when
it was left alone. Then the same must hold whatever the moment: the store opens, `verify` finds no fault, every document
that was there before is there (a removed tenant whole or not at all; of a new file's documents any number, each whole),
each is found by its own word and vector and nothing else is, so are the registered models but the one that the command
is about, a snapshot is there whole or not at all, and the same command run again ends well. `upgrade` is `compact` of
databases of format 2. `train-reranker` and `distil-reranker` write as `models register` does, and aren't tried.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

import vectorsearch as vs
from vectorsearch.errors import VectorSearchError
from vectorsearch.query.planning.defaults import SearchDefaults

sys.path.insert(0, str(Path(__file__).parents[1] / "lifecycle" / "support"))

from hostile_folders import write_embedder

N = 200
OF_FORMAT_2 = (
    *(f"ALTER TABLE state DROP COLUMN {name}" for name in ("stamp", "log_after", "log_from")),
    "DROP TABLE generations",
    "DROP TABLE vector_digests",
    "PRAGMA user_version = 2",
)
TENANTS = ("acme", "globex")


def vector(number: int) -> list[float]:
    """Give a vector of its own for each number."""
    return np.random.default_rng(number).standard_normal(8).astype(np.float32).tolist()


def rows(first: int, last: int) -> list[dict[str, Any]]:
    """Give documents with a word and a vector of their own."""
    return [
        {"id": f"d{i}", "text": f"apple unique{i} a{i % 37} b{i % 41} c{i % 29}", "vector": vector(i)}
        for i in range(first, last)
    ]


def make(folder: Path) -> None:
    """Make the store that each round begins with, and the file that `index` reads."""
    with vs.open(folder / "db", embed=None, rerank=None) as db:
        for database in (db, *(db.tenant(name) for name in TENANTS)):
            database.add(rows(0, N))
            database.delete([f"d{i}" for i in range(0, N, 10)])
        for name, database in (("mine", db), ("own", db.tenant("acme"))):
            database.register_model(name, write_embedder(folder / name, seed=len(name)), "embed", compare=False)
        db.defaults = SearchDefaults(k1=1.5, b=0.5)
    write_embedder(folder / "model", seed=1)
    lines = (json.dumps(row) + "\n" for row in rows(N, 4 * N))
    (folder / "new.jsonl").write_text("".join(lines), encoding="utf-8")
    fit = ["models", "fit-features", "--db", str(folder / "db"), "--dim", "32", "--out", str(folder / "features")]
    subprocess.run([sys.executable, "-m", "vectorsearch", *fit], check=True, stdout=subprocess.DEVNULL)


def make_old(folder: Path) -> None:
    """Bring a store's documents back to format 2, whose indexes knew no history."""
    for path in (folder / "db").rglob("documents.sqlite"):
        with closing(sqlite3.connect(path)) as conn:
            for statement in OF_FORMAT_2:
                conn.execute(statement)
            conn.commit()
            conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        for kind in ("lexical", "dense"):
            shutil.rmtree(path.with_name(kind), ignore_errors=True)


def commands(folder: Path) -> dict[str, list[str]]:
    """Give the arguments of each command."""
    at = ["--db", str(folder / "db")]
    return {
        "index": ["index", str(folder / "new.jsonl"), *at],
        "index --tenant": ["index", str(folder / "new.jsonl"), "--tenant", "acme", *at],
        "index --language": ["index", str(folder / "new.jsonl"), "--language", "de", *at],
        "reindex": ["reindex", "--embed", str(folder / "features"), *at],
        "upgrade": ["compact", *at],
        "models register": ["models", "register", "new", str(folder / "model"), "--task", "embedder", *at],
        "models unregister": ["models", "unregister", "own", "--tenant", "acme", *at],
        "tune --reset": ["tune", "--reset", *at],
        "tenants set": ["tenants", "set", "acme", "--quota", "100MiB", *at],
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
    if {hit.id for hit in db.search("apple", mode="lexical", k=10 * N)} != stored.keys():
        wrong.append("the word of all doesn't find all")
    for doc_id, document in list(stored.items())[:: max(1, len(stored) // 20)]:
        if [hit.id for hit in db.search(document.text.split()[1], mode="lexical")] != [doc_id]:
            wrong.append(f"{doc_id} is not found by its word")
        if db.search(vector=document.vector, k=1)[0].id != doc_id:
            wrong.append(f"{doc_id} is not found by its vector")
    return wrong


def astray(db: vs.Database, name: str) -> list[tuple[str, str]]:
    """Return the models that are registered and shouldn't be, or the other way."""
    registered = {model.name for model in db.registered_models()}
    registered |= {model.name for tenant in db.tenants() for model in db.tenant(tenant.name).registered_models()}
    free = {"models register": {"new"}, "models unregister": {"own"}, "tenants remove": {"own"}}.get(name, set())
    lost, strange = {"mine", "own"} - registered - free, registered - {"mine", "own"} - free
    return [*((model, "lost") for model in lost), *((model, "there") for model in strange)]


def check(folder: Path, name: str) -> list[str]:
    """Return what is wrong with a store after a kill."""
    wrong: list[str] = []
    try:
        for read_only in (True, False):
            with vs.open(folder / "db", rerank=None, read_only=read_only) as db:
                if not read_only:
                    wrong += ask(db, whole=name not in ("index", "index --language"))
                    there = {tenant.name for tenant in db.tenants()}
                    lost = set(TENANTS) - there - ({"acme"} if name == "tenants remove" else set())
                    wrong += [f"tenant {tenant} is lost" for tenant in lost]
                    for tenant in there - {"new"}:
                        is_whole = name != "index --tenant" or tenant != "acme"
                        wrong += [f"tenant {tenant}: {what}" for what in ask(db.tenant(tenant), whole=is_whole)]
                    wrong += [f"model {model} is {how}" for model, how in astray(db, name)]
                wrong += [f"verify, read_only={read_only}: {fault}" for fault in db.verify().faults]
        if (folder / "copy").exists():
            with vs.open(folder / "copy", rerank=None) as copy:
                wrong += [f"copy: {what}" for what in ask(copy, whole=True)]
    except VectorSearchError as exc:
        wrong.append(f"refused: {exc}")
    return wrong


def again(folder: Path, name: str) -> list[str]:
    """Run the command once more and return what is wrong then; what is done already may say so."""
    done = {"snapshot": (folder / "copy").exists(), "tenants remove": not (folder / "db/tenants/acme").exists()}
    code = start(commands(folder)[name]).wait()
    if code and not done.get(name) and name not in ("tenants add", "models unregister"):
        return [f"run again it ends with {code}"]
    return []


def main() -> None:
    """Run the rounds and print what came of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=75)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="one command, by the name that is printed")
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
            names = [options.only] if options.only else list(commands(folder))
            name = names[number % len(names)]
            if name == "upgrade":
                make_old(folder)
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
