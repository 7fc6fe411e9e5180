"""Run one of this project's modules in a child process, follow what it says, and bound what it takes.

The child prints one JSON value a line: steps for whoever waits, then its answer. What it takes is watched from outside:
its resident memory over what it had when it said that its runtime is imported, and its time. Address space is not
limited, since runtimes reserve far more of it than they use.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backends import errors
from backends.errors import BackendError, VectorSearchError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_WATCH_S = 0.005  # a graph fills some 10 MiB in it
_PS_WATCH_S = 0.1  # where each look is a process of its own
_SAID_LINES = 3  # of what a child printed last, in a message
_SAID_CHARACTERS = 2_000  # of an error


class ChildEnded(BackendError):
    """A child process ended without an answer, took longer than it may, or more memory."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a child may take: seconds in all, and bytes of resident memory over those at its line `baseline_nbytes`."""

    timeout_s: float
    resident_nbytes: int | None = None


def run_child(
    module: str,
    order: Mapping[str, Any],
    *,
    what: str,
    limits: Limits,
    progress: Callable[[str], object] | None = None,
) -> dict[str, Any]:
    """Run `python -m MODULE ORDER` and return its last line; `what` begins the message if it gives none.

    Raises:
        ChildEnded: it died, took longer than it may, or more memory.
        VectorSearchError: what it said was wrong, by the type that it had there.
    """
    command = [sys.executable, "-m", module, json.dumps(order)]
    with subprocess.Popen(  # noqa: S603 - this project's own module, and no shell
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8"
    ) as child:
        watch = _Watch(child, limits)
        said: list[str] = []
        listener = threading.Thread(target=lambda: said.extend(child.stderr or ()), daemon=True)
        watcher = threading.Thread(target=watch.run, daemon=True)
        listener.start()
        watcher.start()
        answer: dict[str, Any] = {}
        try:
            for found in _values(child.stdout or ()):
                answer = found
                watch.note(found)
                if "step" in found and progress is not None:
                    progress(found["step"])
            child.wait()  # it has said all, and how it ends may say more; it is watched still
        finally:
            child.kill()  # harmless if it has ended; else somebody interrupts us
            child.wait()
            watcher.join()
            listener.join()
    if "error" in answer:
        raise _error(answer["error"], answer["message"])
    if watch.reason or not answer or "step" in answer:
        words = "".join(said[-_SAID_LINES:]).strip()
        raise ChildEnded(f"{what}: the child process {watch.reason or _end(child)}" + (f". {words}" if words else ""))
    return answer


@dataclass(slots=True)
class _Watch:
    """Kills a child that takes too much; `reason` then says what."""

    child: subprocess.Popen[str]
    limits: Limits
    reason: str = ""
    _baseline_nbytes: int | None = None
    _begun: float = field(default_factory=time.monotonic)

    def note(self, said: Mapping[str, Any]) -> None:
        """Count memory from here on, if the child says what it had."""
        self._baseline_nbytes = said.get("baseline_nbytes", self._baseline_nbytes)

    def run(self) -> None:
        """Look until the child has ended."""
        every_s = _WATCH_S if Path(f"/proc/{self.child.pid}/statm").is_file() else _PS_WATCH_S
        while True:
            if self.limits.resident_nbytes is None:
                every_s = max(every_s, self._begun + self.limits.timeout_s - time.monotonic())
            try:
                self.child.wait(every_s)
            except subprocess.TimeoutExpired:
                self.reason = self._excess()
            else:
                return
            if self.reason:
                self.child.kill()
                return

    def _excess(self) -> str:
        if time.monotonic() - self._begun >= self.limits.timeout_s:
            return f"took longer than {self.limits.timeout_s:g} s"
        limit, baseline = self.limits.resident_nbytes, self._baseline_nbytes
        if limit is None or baseline is None:
            return ""
        taken = resident_nbytes_of(self.child.pid) - baseline
        return f"took more than {limit / 2**20:.0f} MiB of memory" if taken > limit else ""


def resident_nbytes_of(pid: int) -> int:
    """Return the resident memory of a process in bytes, 0 if it has ended."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        pass
    command = ["ps", "-o", "rss=", "-p", str(pid)]
    found = subprocess.run(command, capture_output=True, check=False, text=True)  # noqa: S603 - fixed
    return 1024 * int(found.stdout.strip() or 0)


def _values(lines: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401 - the pipe, or an empty tuple
    for line in lines:
        try:
            found = json.loads(line)
        except ValueError:
            continue  # a child that was killed in the middle of a line
        if isinstance(found, dict):
            yield found


def _end(child: subprocess.Popen[str]) -> str:
    hint = " (was it out of memory?)" if child.returncode == -9 else ""  # noqa: PLR2004 - SIGKILL, as the kernel sends
    return f"ended with {child.returncode}{hint}"


def _error(kind: str, message: str) -> VectorSearchError:
    """Return the child's error as the type that it had there, if it is one of ours."""
    if len(message) > _SAID_CHARACTERS:  # a hostile model may have words of its own in it
        message = f"{message[:_SAID_CHARACTERS]} …"
    known = getattr(errors, kind, BackendError)
    return known(message) if known is not BackendError else BackendError(f"{kind}: {message}")
