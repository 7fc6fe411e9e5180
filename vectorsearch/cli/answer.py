"""What a command says on stdout: text as it comes or, with `--json`, one document that is written when it has ended."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import math
import os
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


class Answer:
    """What a command that runs has to say at its end: one document if it was asked for JSON, and whether all went well.

    With JSON, what is printed on stdout meanwhile, by whomever, is kept from it, so that the document stands alone: it
    is the document's `text` where a command, such as `--help`, gives nothing else, and else is shown on stderr.
    """

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.document: dict[str, Any] = {}
        self.warnings: list[str] = []
        self.failed = False  # something went wrong after the answer was there

    def write(self, stray: str) -> None:
        """Write the document on stdout.

        Raises:
            OSError: it can't be written.
        """
        document = self.document or ({"text": stray} if stray else {})
        if self.document and stray:
            sys.stderr.write(stray)
        if self.warnings:
            document = {**document, "warnings": self.warnings}
        sys.stdout.write(json_text(document, indent=2) + "\n")
        sys.stdout.flush()


_current: ContextVar[Answer | None] = ContextVar("answer", default=None)


def current() -> Answer | None:
    """Return the answer of the command that is running; None where none is."""
    return _current.get()


def is_json() -> bool:
    """Return whether a command is running that was asked for JSON."""
    return (running := current()) is not None and running.as_json


@contextlib.contextmanager
def collected(*, as_json: bool) -> Iterator[Answer]:
    """Give the answer of the command that runs in the block, and write its document after it.

    Raises:
        OSError: stdout can't be written.
    """
    answer = Answer(as_json=as_json)
    stray = io.StringIO()
    token = _current.set(answer)
    try:
        with contextlib.redirect_stdout(stray) if as_json else contextlib.nullcontext():
            yield answer
    finally:
        _current.reset(token)
    if sys.stdout is None:  # `>&-`
        if as_json:
            raise OSError(errno.EBADF, "it is closed")
    elif as_json:
        answer.write(stray.getvalue())
    else:
        sys.stdout.flush()


def give(document: Mapping[str, Any]) -> None:
    """Make this the document of the running command, or write it where none is collected."""
    if (running := current()) is not None:
        running.document = dict(document)
    else:
        sys.stdout.write(json_text(document, indent=2) + "\n")


def json_text(value: object, *, indent: int | None = None) -> str:
    """Return JSON in characters that stdout can write: escapes where it isn't UTF-8, or for half a surrogate pair.

    Numbers that JSON doesn't have (not a number, infinity) are null.
    """
    value = _without_nan(value)
    text = json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)
    try:
        text.encode("utf-8" if (sys.stdout.encoding or "utf-8").lower().replace("-", "") == "utf8" else "ascii")
    except UnicodeEncodeError:
        return json.dumps(value, indent=indent, allow_nan=False)
    return text


def turn_away_stdout() -> None:
    """Send what is still to be written on stdout nowhere, as its reader has gone, so that no error is told at exit."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # a stream of a test's own has no descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _without_nan(value: object) -> object:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {key: _without_nan(each) for key, each in value.items()}
        case list() | tuple():
            return [_without_nan(each) for each in value]
    return value
