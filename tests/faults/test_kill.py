"""S17: SIGKILL at any moment loses nothing acknowledged and keeps nothing half-written."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from vectorsearch.collection.collection import Collection, CollectionSettings

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL is POSIX")

WRITER = Path(__file__).with_name("writing_process.py")
ROOT = WRITER.parents[2]
FAILPOINTS = (
    "store.after_delete",
    "store.after_documents",
    "store.before_commit",
    "store.after_commit",
    "files.before_replace",
    "dense.before_manifest",
    "lexical.after_commit",
)


class Model:
    """What must be stored: the acknowledged documents, with or without the one change that was under way."""

    def __init__(self) -> None:
        self.stored: dict[str, str] = {}

    def follow(self, lines: list[str]) -> dict[str, str]:
        """Apply what a writer said and return the state with its unfinished change, if there is one."""
        pending = self.stored
        for line in lines:
            kind, *change = json.loads(line)
            if kind == "begin":
                upserted, deleted = change
                pending = {**self.stored, **dict(upserted)}
                for doc_id in deleted:
                    pending.pop(doc_id, None)
            elif kind == "done":
                self.stored = pending
        return pending


def check(folder: Path, model: Model, pending: dict[str, str]) -> None:
    """Open: both retrievers find exactly the acknowledged documents, or those and the whole last change."""
    with Collection.open(folder, CollectionSettings(dense="Flat")) as collection:
        stored = {doc.id: doc for doc in collection.iter()}
        texts = {doc_id: doc.text for doc_id, doc in stored.items()}
        assert texts in (model.stored, pending)
        model.stored = texts
        if not stored:
            return
        for found in (
            collection.lexical("apple", len(stored) + 100),
            collection.dense(next(iter(stored.values())).vector, len(stored) + 100),  # type: ignore[arg-type]  # it has one
        ):
            assert {doc.id for doc in collection.fetch(found.rows) if doc} == stored.keys()
            assert len(found.rows) == len(stored)
        for doc in list(stored.values())[:20]:
            word = doc.text.split()[1]
            assert [hit.id for hit in collection.fetch(collection.lexical(word, 5).rows) if hit] == [doc.id]
            assert collection.dense(doc.vector, 1).rows == collection.lexical(word, 1).rows  # type: ignore[arg-type]  # as above


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start a writer."""
    command = [sys.executable, str(WRITER), str(folder), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env={"PYTHONPATH": str(ROOT)})


def test_nothing_acknowledged_is_lost_when_the_writer_is_killed_at_random(tmp_path: Path) -> None:
    """S17: 20 kills at random moments of writing, deleting, searching and flushing, all on one database."""
    rng, model = random.Random(17), Model()  # noqa: S311 -- a repeatable test, no secret
    for round_number in range(20):
        with start(tmp_path / "db", str(round_number + 1)) as process:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(rng.randint(1, 16))]
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(rng.uniform(0, 0.05))
            process.send_signal(signal.SIGKILL)
            lines += process.stdout.readlines()
        assert process.returncode == -signal.SIGKILL
        pending = model.follow([line for line in lines if line.endswith("\n")])
        check(tmp_path / "db", model, pending)


@pytest.mark.parametrize("failpoint", FAILPOINTS)
def test_nothing_acknowledged_is_lost_when_the_writer_is_killed_between_two_steps(
    tmp_path: Path, failpoint: str
) -> None:
    """S17: a kill at each step of a write, of an index and of its files, the first and the third time it is reached."""
    model = Model()
    for round_number, count in enumerate((1, 3)):
        with start(tmp_path / "db", str(round_number + 1), failpoint, str(count)) as process:
            assert process.stdout is not None
            lines = process.stdout.readlines()
        assert process.returncode == -signal.SIGKILL
        check(tmp_path / "db", model, model.follow(lines))
