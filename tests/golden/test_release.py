"""Databases of release 0.1.0 live on: with tenants, registered models, a log that was not folded in."""

from __future__ import annotations

import importlib.util
import json
import signal
import sqlite3
import subprocess
import sys
import zipfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import vectorsearch as vs
from vectorsearch.collection.collection import Collection
from vectorsearch.collection.storage.errors import NewerFormat
from vectorsearch.collection.storage.sqlite.schema import FILE_NAME, FORMAT

if TYPE_CHECKING:
    from types import ModuleType

RELEASE = Path(__file__).parent / "release_0_1_0"
ROOT = Path(__file__).parents[2]
NAMES = ("store", "compacted", "killed")
KILLED = """
import os, signal, sys
from pathlib import Path
from vectorsearch.collection.collection import Collection
from vectorsearch.collection.storage.disk import failpoints
from vectorsearch.collection.storage.sqlite import upgrade
left = int(sys.argv[3])
def reached():
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
upgrade._CHUNK_ROWS = 3
failpoints.arm(sys.argv[2], reached)
Collection.open(Path(sys.argv[1])).close()
"""


def maker() -> ModuleType:
    """Return the script that made them, which asks them too."""
    spec = importlib.util.spec_from_file_location("make_release", RELEASE / "make_release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def unpacked(name: str, folder: Path) -> Path:
    """Unpack one of the databases below `folder` and return where it is."""
    with zipfile.ZipFile(RELEASE / "databases.zip") as packed:
        packed.extractall(folder, [entry for entry in packed.namelist() if entry.startswith(f"{name}/")])
    return folder / name


def same(found: Any, wanted: Any) -> bool:
    """Tell whether answers are the same; scores may differ in their last digits."""
    if isinstance(wanted, dict):
        return (
            isinstance(found, dict) and found.keys() == wanted.keys() and all(same(found[k], wanted[k]) for k in wanted)
        )
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(same, found, wanted))
    return bool(found == pytest.approx(wanted, abs=2e-4) if isinstance(wanted, float) else found == wanted)


@pytest.mark.parametrize("name", NAMES)
def test_a_database_answers_as_before_when_release_0_1_0_made_it(tmp_path: Path, name: str) -> None:
    """Documents, tenants, their sizes and models, and every kind of search are what that release had; and again."""
    folder, wanted = unpacked(name, tmp_path), json.loads((RELEASE / "answers.json").read_text(encoding="utf-8"))[name]
    for _ in range(2):
        found = maker().store_answers(folder)
        assert found.keys() == wanted.keys()
        for tenant, told in wanted.items():
            for what, answer in told.items():
                assert same(found[tenant][what], answer), (tenant, what, found[tenant][what], answer)


def formats(folder: Path) -> set[int]:
    """Return the formats of the documents' files below a folder, logs included."""
    found = set()
    for path in folder.rglob(FILE_NAME):
        with closing(sqlite3.connect(path)) as conn:
            found.add(conn.execute("PRAGMA user_version").fetchone()[0])
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_database_is_upgraded_with_a_word_when_it_is_opened_to_write(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Readers leave it as it is; who may write brings it to this format, logs and tells it, and finds no fault."""
    folder = unpacked(name, tmp_path)
    with vs.open(folder, rerank=None, backend="numpy", read_only=True) as db:
        before = db.count()
        assert db.verify().ok
    assert formats(folder) <= {1, 2}
    with vs.open(folder, rerank=None, backend="numpy") as db:
        assert "upgraded from format" in caplog.text
        assert db.info()["upgraded_from"] in (1, 2)
        assert db.count() == before
        assert db.verify().ok
    assert formats(folder) == {FORMAT}


@pytest.mark.parametrize("failpoint", ["upgrade.before_commit", "upgrade.after_tables", "upgrade.after_vectors"])
@pytest.mark.parametrize("count", [1, 2])
def test_an_upgrade_goes_on_when_it_was_killed(tmp_path: Path, failpoint: str, count: int) -> None:
    """A kill between any two steps costs nothing: the next opening finishes, and every vector has its digest."""
    folder = unpacked("killed", tmp_path)
    command = [sys.executable, "-c", KILLED, str(folder), failpoint, str(count)]
    ended = subprocess.run(command, check=False, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}).returncode
    assert ended in (-signal.SIGKILL, 0)
    assert (ended == 0) == (count == 2 and failpoint == "upgrade.after_tables")  # there is one such step
    with Collection.open(folder) as collection:
        assert collection.count() == 8
        assert collection.upkeep.verify().ok
    with closing(sqlite3.connect(folder / FILE_NAME)) as conn:
        assert conn.execute("SELECT count(*) FROM vector_digests").fetchone() == (8,)
        assert conn.execute("PRAGMA user_version").fetchone() == (FORMAT,)


def test_a_later_format_is_refused_by_name(tmp_path: Path) -> None:
    """A release that reads up to some format names both, says what to do, and changes nothing."""
    folder = unpacked("compacted", tmp_path)
    with closing(sqlite3.connect(folder / FILE_NAME)) as conn:
        conn.execute(f"PRAGMA user_version = {FORMAT + 1}")
    before = (folder / FILE_NAME).read_bytes()
    for read_only in (False, True):
        with pytest.raises(NewerFormat, match=f"has format {FORMAT + 1}, this release reads up to {FORMAT}: upgrade"):
            vs.open(folder, read_only=read_only)
    assert (folder / FILE_NAME).read_bytes() == before
