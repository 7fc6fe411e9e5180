"""Kill `vectorsearch index` with SIGKILL at random moments, again and again, until it finishes.

python tests/benchmarks/kill_index.py [--documents N] [--kills N] [--embed NAME|none] [--json]

After each kill the database is opened, and must hold whole chunks of the corpus and nothing else, never fewer than
after the kill before; every document that it holds must be found by lexical and by dense search, and none other.
Then the same command is run again, and goes on. Documents lost, and found without being stored, must be 0.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import vectorsearch as vs

WORDS = [f"{noun}{i}" for noun in ("index", "search", "vector", "lease") for i in range(4)]


def write_corpus(path: Path, n: int, rng: random.Random) -> None:
    """Write n short documents, each with a word of its own."""
    with path.open("w", encoding="utf-8") as file:
        for i in range(n):
            row = {"_id": f"doc{i}", "title": f"unique{i}", "text": " ".join(rng.choices(WORDS, k=12))}
            file.write(json.dumps(row) + "\n")


def check(db_folder: Path, n: int, known: set[str]) -> tuple[set[str], int, int]:
    """Return the ids stored, how many of the known ones are lost, and how many are found that should not be."""
    with vs.open(db_folder) as db:
        documents = {document.id: document for document in db.iter()}
        lost = len(known - documents.keys())
        wrong = len(documents.keys() - {f"doc{i}" for i in range(n)})
        for i in range(n):
            doc_id = f"doc{i}"
            found = {hit.id for hit in db.search(f"unique{i}", mode="lexical", k=2)}
            document = documents.get(doc_id)
            if document is None:
                wrong += bool(found)
                continue
            lost += doc_id not in found
            if document.vector is not None:
                lost += doc_id not in {hit.id for hit in db.search(vector=document.vector, mode="dense", k=3)}
        return set(documents), lost, wrong


def main() -> None:
    """Run it and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=5000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--embed", default="default")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rng = random.Random(options.seed)  # noqa: S311 -- moments of a test, not secrets
    figures: dict[str, Any] = {"documents": options.documents, "kills": 0, "lost": 0, "found_unstored": 0}
    with tempfile.TemporaryDirectory() as folder:
        corpus, db_folder = Path(folder, "corpus.jsonl"), Path(folder, "db")
        write_corpus(corpus, options.documents, rng)
        command = [sys.executable, "-m", "vectorsearch", "index", str(corpus), "--db", str(db_folder), "--json"]
        if options.embed != "default":
            command += ["--embed", options.embed]
        known: set[str] = set()
        stored_after_kill = []
        while figures["kills"] < options.kills:
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(rng.uniform(0.3, 4.0))
            finished = process.poll() is not None
            process.send_signal(signal.SIGKILL)
            process.wait()
            if finished:  # nothing left to kill: start over with an empty database
                known = set()
                subprocess.run(["rm", "-rf", str(db_folder)], check=True)
                continue
            figures["kills"] += 1
            if not db_folder.exists():
                continue
            known, lost, wrong = check(db_folder, options.documents, known)
            figures["lost"] += lost
            figures["found_unstored"] += wrong
            stored_after_kill.append(len(known))
        start = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        figures["resumed_s"] = time.perf_counter() - start
        figures["exit_code"] = done.returncode
        known, lost, wrong = check(db_folder, options.documents, known)
        figures["lost"] += lost + (options.documents - len(known))
        figures["found_unstored"] += wrong
        figures["stored_after_each_kill"] = stored_after_kill
    print(json.dumps(figures) if options.json else "\n".join(f"{key}: {value}" for key, value in figures.items()))
    sys.exit(bool(figures["lost"] or figures["found_unstored"] or figures["exit_code"]))


if __name__ == "__main__":
    main()
