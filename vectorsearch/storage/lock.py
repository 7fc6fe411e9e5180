"""One writer per database: an advisory lock that dies with its process."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from vectorsearch.storage.errors import DatabaseLocked

if TYPE_CHECKING:
    from pathlib import Path

LOCK_NAME = "writer.lock"

if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

    def _unlock(descriptor: int) -> None:
        """Do nothing: closing unlocks, and no process is forked there."""

else:
    import fcntl

    def _try_lock(descriptor: int) -> None:
        # flock belongs to the open file, not to the process: a second handle in this process is refused as well.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _unlock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


class WriterLock:
    """Hold the right to write to the database in `folder`, from construction until `release`.

    The operating system drops it when the process ends, however it ends, so no stale lock needs removing.

    Raises:
        DatabaseLocked: at once, if another handle has it.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / LOCK_NAME
        self._owner = os.getpid()
        self._descriptor: int | None = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            _try_lock(self._descriptor)
        except OSError as exc:
            holder = (
                os.pread(self._descriptor, 32, 1).decode(errors="replace").strip() if sys.platform != "win32" else ""
            )
            self.release()
            raise DatabaseLocked(
                f"database {str(folder)!r} is open for writing in process {holder or '?'} (this is {os.getpid()}): "
                "close it there, or open it here with read_only=True"
            ) from exc
        # The first byte is what Windows locks, so the holder's number starts at the second.
        with suppress(OSError):  # on a full disk nobody is told who holds it
            os.ftruncate(self._descriptor, 0)
            os.write(self._descriptor, f" {os.getpid()}\n".encode())

    def release(self) -> None:
        """Give the lock back; a second call does nothing."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        if os.getpid() == self._owner:
            _unlock(descriptor)  # a forked child holds the same open file, and would keep it locked until it ends
        os.close(descriptor)
