"""The live picture of a store's models: the process that writes to it publishes one while another process watches."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import sys
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from lifecycle import ManagerSnapshot
from vectorsearch.collection.storage.disk.files import replace_file
from vectorsearch.collection.storage.errors import StoreError
from vectorsearch.database.tenants_view import TenantSnapshot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FILE_NAME = "top.json"
WATCH_NAME = "top.watch"  # whoever watches touches it
EVERY_S = 1.0  # how often the publisher looks whether somebody watches, and publishes
WATCHED_S = 5.0  # for so long after a touch somebody is taken to watch
STALE_S = 3.0  # a live publisher's picture is younger
_PATIENCE_S = 3.0  # how long a watcher waits for the first picture

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Picture:
    """What the process `pid` on `host` told of its models at `published_at`, in seconds since 1970."""

    pid: int
    host: str
    published_at: float
    snapshot: ManagerSnapshot

    def seen_by(self, tenant: str | None) -> ManagerSnapshot | TenantSnapshot:
        """Return what a tenant may see of it; all of it for None."""
        return self.snapshot if tenant is None else TenantSnapshot.of(self.snapshot, tenant)

    def to_dict(self, *, tenant: str | None = None) -> dict[str, Any]:
        """Return plain values, as JSON has them, of what a tenant may see."""
        told = {"pid": self.pid, "host": self.host, "published_at": self.published_at}
        return told | self.seen_by(tenant).to_dict()


@dataclass(frozen=True, slots=True)
class Sighting:
    """What a watcher sees: a picture of now, or None and the reason, `""` while the first one may still come."""

    picture: Picture | None
    reason: str = ""


class Publisher:
    """Publish what `take` tells, once a second while somebody watches; a stat a second is all it costs otherwise.

    `start` begins, on a thread of its own; `close` ends it, and leaves nothing behind.
    """

    def __init__(
        self, folder: Path, take: Callable[[], ManagerSnapshot], *, clock: Callable[[], float] = time.time
    ) -> None:
        self._file = folder / FILE_NAME
        self._watch = folder / WATCH_NAME
        self._take = take
        self._clock = clock
        self._owner = os.getpid()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="vectorsearch-top", daemon=True)

    def start(self) -> Self:
        """Begin to look for watchers, and remove what a process that was killed has left."""
        self._clear()
        self._thread.start()
        return self

    def step(self) -> bool:
        """Publish if somebody watches, and tell whether it did. A disk that is full is not the program's concern."""
        now = self._clock()
        try:
            if now - self._watch.stat().st_mtime >= WATCHED_S:
                return False
            picture = Picture(os.getpid(), socket.gethostname(), now, self._take())
            replace_file(self._file, json.dumps(picture.to_dict()).encode(), durable=False)
        except FileNotFoundError:  # nobody has ever watched, or the folder is gone
            return False
        except OSError as exc:
            _log.debug("%s can't be written: %s", self._file, exc)
            return False
        return True

    def end(self) -> None:
        """Let the thread end by itself, soon: where the database was dropped, nobody waits for it."""
        self._closing.set()

    def close(self) -> None:
        """End the thread, and remove the picture: it is nobody's now."""
        self.end()
        if self._thread.is_alive():
            self._thread.join()
        self._clear()

    def _run(self) -> None:
        while not self._closing.wait(EVERY_S):
            try:
                self.step()
            except Exception:  # noqa: BLE001 -- a fault here must not end what a watcher relies on
                _log.exception("no picture for %s", self._file)

    def _clear(self) -> None:
        for path in (self._file, self._watch) if os.getpid() == self._owner else ():  # not a forked child's
            with contextlib.suppress(OSError):
                path.unlink()


class Watcher:
    """See the models of the process that has the store in `folder` open to write."""

    def __init__(self, folder: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._clock = clock
        self._begun = clock()

    def look(self) -> Sighting:
        """Ask for pictures for the next seconds, and return the latest one if it is of now.

        Raises:
            StoreError: this process may not write to the folder, or the picture is another release's.
        """
        try:
            (self._folder / WATCH_NAME).touch()
        except OSError as exc:
            raise StoreError(f"{self._folder} can't be watched ({exc}): its folder must be writable") from exc
        picture, now = _read(self._folder / FILE_NAME), self._clock()
        if picture is not None:
            if not _is_alive(picture):
                return Sighting(None, f"process {picture.pid}, which had {self._folder} open, ended without closing it")
            if abs(now - picture.published_at) < STALE_S:
                return Sighting(picture)
        if now - self._begun < _PATIENCE_S:
            return Sighting(None)
        if picture is None:
            return Sighting(None, f"no process has {self._folder} open to write: only a writer shows its models")
        silent_s = now - picture.published_at
        return Sighting(None, f"process {picture.pid} on {picture.host} has told nothing for {silent_s:.0f} s")


def _read(path: Path) -> Picture | None:
    try:
        values = json.loads(path.read_bytes())
        told = (values["pid"], values["host"], values["published_at"])
        return Picture(*told, ManagerSnapshot.from_dict(values))
    except OSError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as exc:
        raise StoreError(f"{path} can't be read ({exc!r}): another release of vectorsearch has written it") from exc


def _is_alive(picture: Picture) -> bool:
    """Return whether the process is there, as far as that can be told from here."""
    if sys.platform == "win32" or picture.host != socket.gethostname():  # there, os.kill would do as it says
        return True
    try:
        os.kill(picture.pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is another user's
        return True
    return True
