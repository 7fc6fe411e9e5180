"""The command group that turns errors into one clear line and an exit code."""

from __future__ import annotations

import contextlib
import errno
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from backends.errors import VectorSearchError
from vectorsearch.cli import output

FAILED = 1
INTERRUPTED = 130


class Group(TyperGroup):
    """A group whose commands may raise what the library raises.

    Exit codes: 0 if all was done, 1 if something failed or was left out, 2 if the command line makes no sense, 130
    if it was interrupted.
    """

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 -- the base class's type of context is private to typer
        """Run the command; report what it raises."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as exc:
            _report(ctx, exc, "interrupted")
            raise typer.Exit(INTERRUPTED) from exc
        except VectorSearchError as exc:
            _report(ctx, exc)
            raise typer.Exit(FAILED) from exc
        except OSError as exc:
            if exc.errno == errno.EPIPE:
                raise  # the reader, such as `head`, has gone: the base class ends quietly
            _report(ctx, exc)
            raise typer.Exit(FAILED) from exc


def _report(ctx: typer.Context, error: BaseException, text: str | None = None) -> None:
    output.print_error(text or error)
    if ctx.meta.get(output.JSON_KEY):
        with contextlib.suppress(OSError):  # stdout may be what failed, as on a full disk
            output.print_json(output.as_json_error(error))
            sys.stdout.flush()
