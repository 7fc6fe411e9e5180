"""The command group that imports a command when it is called, and turns errors into a clear line and an exit code."""

from __future__ import annotations

import contextlib
import errno
import importlib
import sys
from typing import TYPE_CHECKING, Any, ClassVar

import typer
from typer.core import TyperGroup

from backends.errors import VectorSearchError
from vectorsearch.cli import output

if TYPE_CHECKING:
    from collections.abc import Mapping

FAILED = 1
INTERRUPTED = 130


class Group(TyperGroup):
    """A group whose commands may raise what the library raises, and are imported from `homes` when they are called.

    Exit codes: 0 if all was done, 1 if something failed or was left out, 2 if the command line makes no sense, 130
    if it was interrupted.
    """

    homes: ClassVar[Mapping[str, str]] = {}

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:  # noqa: ANN401 -- as below
        """Return the command that is called, imported, and what is left of the arguments."""
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None and name in self.homes:
            command = import_command(name, self.homes[name])
        return name, command, rest

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 -- the base class's type of context is private to typer
        """Run the command; report what it raises."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as exc:
            _report(ctx, exc, str(exc) or "interrupted")
            raise typer.Exit(INTERRUPTED) from exc
        except VectorSearchError as exc:
            _report(ctx, exc)
            raise typer.Exit(FAILED) from exc
        except OSError as exc:
            if exc.errno == errno.EPIPE:
                raise  # the reader, such as `head`, has gone: the base class ends quietly
            _report(ctx, exc)
            raise typer.Exit(FAILED) from exc


def import_command(name: str, home: str) -> Any:  # noqa: ANN401 -- the type of commands is private to typer
    """Return a command, or a group of them, whose function or app is at `home`: `module:attribute` of this package.

    A function's help is the module's HELP, or else its docstring.
    """
    module_name, _, attribute = home.partition(":")
    module = importlib.import_module(f"vectorsearch.cli.{module_name}")
    found = getattr(module, attribute)
    if isinstance(found, typer.Typer):
        return typer.main.get_group(found)
    only = typer.Typer(add_completion=False)
    only.command(name, help=output.reflow(module.HELP) if hasattr(module, "HELP") else None)(found)
    return typer.main.get_command(only)


def _report(ctx: typer.Context, error: BaseException, text: str | None = None) -> None:
    output.print_error(text or error)
    if ctx.meta.get(output.JSON_KEY):
        with contextlib.suppress(OSError):  # stdout may be what failed, as on a full disk
            output.print_json(output.as_json_error(error))
            sys.stdout.flush()
