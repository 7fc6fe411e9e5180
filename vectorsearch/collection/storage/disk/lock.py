"""One writer per database: an advisory lock that dies with its process."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from vectorsearch.collection.storage.errors import DatabaseLocked, DatabaseMoved, StoreError

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


_HELD = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EDEADLK)


def require_same(path: Path, identity: tuple[int, int]) -> None:
    """Insist that the file at `path` is the one of this device and number, which was opened.

    Raises:
        DatabaseMoved: it is gone, or is another one.
    """
    try:
        found = path.stat()
    except OSError as exc:
        raise _moved(path, f"is gone ({exc.strerror})") from exc
    if (found.st_dev, found.st_ino) != identity:
        raise _moved(path, "is another file than the one that was opened")


def _moved(path: Path, what: str) -> DatabaseMoved:
    return DatabaseMoved(
        f"{path.name} of database {str(path.parent)!r} {what}: it was deleted, moved or replaced while the database "
        "was open; nothing was written: close it, and open it where it is now"
    )


def _no_locks(folder: Path, why: str | None) -> StoreError:
    return StoreError(
        f"database {str(folder)!r} can't be opened to write: locks don't work in this file system ({why}), so two "
        "processes could write at once: put it on a local disk, or open it with read_only=True"
    )


def _locks_twice(path: Path) -> bool:
    """Tell whether a lock that is held is granted a second time: the file system then only pretends."""
    second = os.open(path, os.O_RDWR)
    try:
        _try_lock(second)
    except OSError:
        return False
    finally:
        os.close(second)  # which also gives back what it was granted
    return True


def holder_lives(folder: Path) -> bool:
    """Tell whether the process lives that the lock names; one of another machine or namespace seems not to."""
    if sys.platform == "win32":  # there a signal can't be used to ask
        return True
    try:
        os.kill(int((folder / LOCK_NAME).read_text(encoding="ascii")), 0)
    except PermissionError:  # it is somebody else's
        return True
    except (OSError, ValueError, OverflowError):
        return False
    return True


class WriterLock:
    """Hold the right to write to the database in `folder`, from construction until `release`.

    The operating system drops it when the process ends, however it ends, so no stale lock needs removing.

    Raises:
        DatabaseLocked: at once, if another handle has it.
        StoreError: locks don't work where the folder is.
    """

    def __init__(self, folder: Path) -> None:
        self._path = path = folder / LOCK_NAME
        self._owner = os.getpid()
        self._descriptor: int | None = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            _try_lock(self._descriptor)
        except OSError as exc:
            if exc.errno not in _HELD:
                self.release()
                raise _no_locks(folder, exc.strerror) from exc
            holder = (
                os.pread(self._descriptor, 32, 1).decode(errors="replace").strip() if sys.platform != "win32" else ""
            )
            self.release()
            raise DatabaseLocked(
                f"database {str(folder)!r} is open for writing in process {holder or '?'} (this is {os.getpid()}): "
                "close it there, or open it here with read_only=True"
            ) from exc
        if _locks_twice(path):
            self.release()
            raise _no_locks(folder, "a second lock was granted beside the first")
        # The first byte is what Windows locks, so the holder's number starts at the second.
        with suppress(OSError):  # on a full disk nobody is told who holds it
            os.ftruncate(self._descriptor, 0)
            os.write(self._descriptor, f" {os.getpid()}\n".encode())

    def prove(self) -> None:
        """Insist that the file at the path is the one that is locked here.

        Raises:
            DatabaseMoved: it isn't, or is gone: another process may hold the right to write by now.
        """
        if self._descriptor is not None:
            held = os.fstat(self._descriptor)
            require_same(self._path, (held.st_dev, held.st_ino))

    def release(self) -> None:
        """Give the lock back; a second call does nothing."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        if os.getpid() == self._owner:
            _unlock(descriptor)  # a forked child holds the same open file, and would keep it locked until it ends
        os.close(descriptor)
