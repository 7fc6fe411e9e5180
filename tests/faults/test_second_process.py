"""Two processes and one database."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from vectorsearch.collection.collection import Collection
from vectorsearch.collection.storage.errors import DatabaseLocked
from vectorsearch.types import Document

ROOT = Path(__file__).parents[2]

HOLD = """
import sys
from pathlib import Path
from vectorsearch.collection.collection import Collection
from vectorsearch.types import Document
with Collection.open(Path(sys.argv[1])) as collection:
    collection.write([Document("theirs", "apple")], on_conflict="replace")
    print("holding", flush=True)
    sys.stdin.readline()
"""
READ = """
import sys
from pathlib import Path
from vectorsearch.collection.collection import Collection
with Collection.open(Path(sys.argv[1]), read_only=True) as collection:
    for line in sys.stdin:
        print(len(collection.lexical("apple", 100).rows), flush=True)
"""


def start(code: str, folder: Path) -> subprocess.Popen[str]:
    """Run code in another process, with pipes to it."""
    return subprocess.Popen(
        [sys.executable, "-c", code, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
    )


def ask(process: subprocess.Popen[str]) -> str:
    """Send a line and return the answer."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def test_the_second_writer_is_refused_when_another_process_writes(tmp_path: Path) -> None:
    """S20: DatabaseLocked at once, naming the process; nothing is written; when that process dies the lock is free."""
    with start(HOLD, tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "holding\n"
        with pytest.raises(DatabaseLocked, match=f"in process {process.pid} "):
            Collection.open(tmp_path)
        process.kill()
    with Collection.open(tmp_path) as collection:
        assert [doc.id for doc in collection.iter()] == ["theirs"]
        collection.write([Document("ours", "apple")])


def test_a_reading_process_sees_commits_when_another_writes(tmp_path: Path) -> None:
    """Read-only opening in another process finds what is committed after it was opened."""
    with Collection.open(tmp_path) as collection:
        collection.write([Document("d0", "apple", vector=np.ones(4, np.float32))])
        with start(READ, tmp_path) as process:
            assert ask(process) == "1"
            collection.write([Document(f"d{i}", "apple") for i in range(1, 5)])
            assert ask(process) == "5"
            collection.delete(["d1"])
            collection.flush()
            assert ask(process) == "4"
            assert process.stdin is not None
            process.stdin.close()
        assert process.returncode == 0
