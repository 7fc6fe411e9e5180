"""The live picture: published while somebody watches, never shown when it isn't of now."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from vectorsearch.database import top
from vectorsearch.database.top import FILE_NAME, STALE_S, WATCH_NAME, WATCHED_S, Picture, Publisher, Sighting, Watcher
from vectorsearch.errors import StoreError

if TYPE_CHECKING:
    from pathlib import Path

    from lifecycle import ManagerSnapshot

    from ..conftest import OpenDatabase


class Clock:
    """Seconds since 1970 that only the test moves; begins when the files' times do."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@pytest.fixture
def snapshot(open_database: OpenDatabase) -> ManagerSnapshot:
    """Return the snapshot of a store whose two tenants share a model that was used twice."""
    db = open_database()
    for name in ("acme", "globex"):
        db.tenant(name).add([{"id": "a", "text": "apple"}])
    return db.models()


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    """Return a clock that shows the time of the watch's file, which is made by it."""
    (tmp_path / WATCH_NAME).touch()
    return Clock((tmp_path / WATCH_NAME).stat().st_mtime)


def watch(folder: Path, clock: Clock) -> None:
    """Touch the watch at the clock's time."""
    (folder / WATCH_NAME).touch()
    os.utime(folder / WATCH_NAME, (clock.now, clock.now))


def test_a_picture_is_published_when_somebody_watches(tmp_path: Path, clock: Clock, snapshot: ManagerSnapshot) -> None:
    """It is the whole snapshot, and none comes before a watcher does, nor five seconds after the last touch."""
    publisher = Publisher(tmp_path, lambda: snapshot, clock=clock)
    assert publisher.step()
    seen = Watcher(tmp_path, clock=clock).look().picture
    assert seen == Picture(os.getpid(), seen.host if seen else "", clock.now, snapshot)
    watch(tmp_path, clock)
    clock.now += WATCHED_S
    assert not publisher.step()
    (tmp_path / WATCH_NAME).unlink()
    assert not publisher.step()
    assert json.loads((tmp_path / FILE_NAME).read_text())["published_at"] == clock.now - WATCHED_S


def test_a_picture_stays_when_a_forked_child_closes_its_copy(
    tmp_path: Path, clock: Clock, snapshot: ManagerSnapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The picture is the parent's, which removes it when it closes."""
    publisher = Publisher(tmp_path, lambda: snapshot, clock=clock)
    publisher.step()
    with monkeypatch.context() as child:
        child.setattr(top.os, "getpid", lambda: -1)
        publisher.close()
    assert (tmp_path / FILE_NAME).exists()
    publisher.close()
    assert not (tmp_path / FILE_NAME).exists()


def test_nothing_is_taken_when_nobody_watches(tmp_path: Path) -> None:
    """Without a watcher no snapshot is made and no file is written."""
    publisher = Publisher(tmp_path, lambda: pytest.fail("nobody asked"))
    assert not publisher.step()
    assert list(tmp_path.iterdir()) == []


def test_a_picture_is_never_shown_when_it_is_old(tmp_path: Path, clock: Clock, snapshot: ManagerSnapshot) -> None:
    """A publisher that hangs is told with how long it has been silent; one that is dead with its number."""
    Publisher(tmp_path, lambda: snapshot, clock=clock).step()
    watcher = Watcher(tmp_path, clock=clock)
    clock.now += STALE_S - 0.1
    assert watcher.look().picture is not None
    clock.now += 3.1
    hung = watcher.look()
    assert hung.picture is None
    assert f"process {os.getpid()} on" in hung.reason
    assert "has told nothing for 6 s" in hung.reason

    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    picture = Picture(gone.pid, top.socket.gethostname(), clock.now, snapshot)
    (tmp_path / FILE_NAME).write_text(json.dumps(picture.to_dict()))
    dead = watcher.look()
    assert dead.picture is None
    assert f"process {gone.pid}, which had" in dead.reason
    (tmp_path / FILE_NAME).write_text(json.dumps(replace(picture, host="elsewhere").to_dict()))
    assert watcher.look().picture is not None  # its number means nothing here, so its age decides


def test_a_watcher_waits_when_there_is_no_picture_yet(tmp_path: Path, clock: Clock) -> None:
    """For three seconds the first picture may come; then nobody has the store open."""
    watcher = Watcher(tmp_path, clock=clock)
    assert watcher.look() == Sighting(None, "")
    clock.now += 3.1
    assert "no process has" in watcher.look().reason


def test_an_error_tells_when_a_picture_cannot_be_read(tmp_path: Path, clock: Clock) -> None:
    """Another release's picture, or a folder that can't be written to, is an error with its cause."""
    (tmp_path / FILE_NAME).write_text('{"pid": 1}')
    with pytest.raises(StoreError, match=r"top\.json can't be read .*another release"):
        Watcher(tmp_path, clock=clock).look()
    with pytest.raises(StoreError, match="can't be watched"):
        Watcher(tmp_path / "none", clock=clock).look()


def test_a_store_publishes_itself_when_it_is_open_to_write(
    open_database: OpenDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread answers a watcher and ends with it; readers publish nothing; closing leaves no file."""
    folder = tmp_path / "db"
    for name, seconds in (("EVERY_S", 0.01), ("STALE_S", 60.0), ("_PATIENCE_S", 60.0)):  # on a busy machine too
        monkeypatch.setattr(top, name, seconds)
    before = set(top.threading.enumerate())  # of databases that other tests have dropped
    db = open_database(folder)
    db.tenant("acme").add([{"id": "a", "text": "apple"}])
    watcher = Watcher(folder)
    while (sighting := watcher.look()).picture is None:
        assert sighting.reason == ""
    assert sighting.picture.snapshot.by_tenant.keys() == {"acme"}
    open_database(folder, read_only=True).close()
    assert (folder / FILE_NAME).exists()
    db.close()
    assert not (folder / FILE_NAME).exists()
    assert not (folder / WATCH_NAME).exists()
    new = set(top.threading.enumerate()) - before
    assert not [thread for thread in new if thread.name == "vectorsearch-top"]
