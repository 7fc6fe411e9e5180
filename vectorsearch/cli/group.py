"""The command group that imports a command when it is called, and turns errors into a clear line and an exit code."""

from __future__ import annotations

import contextlib
import errno
import importlib
import math
import sys
import traceback
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import typer
from typer.core import TyperGroup

from backends.errors import InvalidInput, VectorSearchError
from vectorsearch.cli import answer, output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

DONE = 0
FAILED = 1
NOT_UNDERSTOOD = 2
INTERRUPTED = 130

JSON_FLAG = "--json"
_REFUSAL: Any = typer.BadParameter.__mro__[2]  # ClickException: what typer raises is wrong usage, and kin to this


class _Interrupted(Exception):
    """A KeyboardInterrupt with its message: typer would turn the original into an exit code."""


class Root(TyperGroup):
    """The whole command line. Its commands may raise what the library raises, and are imported when they are called.

    Exit codes: 0 if all was done; 1 if the command was understood, and something failed, is missing or was left out,
    or a check found a fault; 2 if the command line makes no sense, whatever files and databases there are; 130 if it
    was interrupted. `--json` may stand anywhere before `--`: then stdout is one JSON document, whatever happens.
    """

    homes: ClassVar[Mapping[str, str]] = {}

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:  # noqa: ANN401 -- as below
        """Return the command that is called, imported, and what is left of the arguments."""
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None and name in self.homes:
            command = import_command(name, self.homes[name])
        return name, command, rest

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 -- the base class's type of context is private to typer
        """Run the command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as exc:
            raise _Interrupted(str(exc) or "interrupted") from exc

    def main(self, args: Sequence[str] | None = None, *positional: Any, **extra: Any) -> NoReturn:  # noqa: ANN401 -- as above
        """Run the command line and exit."""
        rest, as_json = _without_json(sys.argv[1:] if args is None else args)
        try:
            with answer.collected(as_json=as_json) as told:
                code = self._code(rest, *positional, **extra)
                code = max(code, FAILED) if told.failed else code
        except OSError as exc:  # stdout can't be written
            code = _lost(exc)
        sys.exit(code)

    def _code(self, args: list[str], *positional: Any, **options: Any) -> int:  # noqa: ANN401 -- as above
        """Run the command, report what it raises, and return the exit code."""
        code = FAILED
        try:
            _check_characters(args)
            code = int(super().main(args, *positional, **{**options, "standalone_mode": False}) or DONE)
        except _REFUSAL as exc:
            code = _report_refusal(exc)
        except _Interrupted as exc:
            _report(exc, type_name="KeyboardInterrupt")
            code = INTERRUPTED
        except (VectorSearchError, typer.Abort) as exc:
            _report(exc)
        except OSError as exc:
            if exc.errno == errno.EPIPE:
                raise
            _report(exc)
        except SystemExit as exc:
            if not answer.is_json():
                raise
            code = exc.code if isinstance(exc.code, int) else FAILED
        except Exception as exc:
            if not answer.is_json():
                raise
            traceback.print_exc()
            _report(exc)
        return code


@contextlib.contextmanager
def usage() -> Iterator[None]:
    """Tell what the library refuses in this block as wrong usage: what it refuses is the command line's own.

    Raises:
        typer.BadParameter: for an InvalidInput.
    """
    try:
        yield
    except InvalidInput as exc:
        raise typer.BadParameter(str(exc)) from exc


def import_command(name: str, home: str) -> Any:  # noqa: ANN401 -- the type of commands is private to typer
    """Return a command, or a group of them, whose function or app is at `home`: `module:attribute` of `commands`.

    A function's help is the module's HELP, or else its docstring.
    """
    module_name, _, attribute = home.partition(":")
    module = importlib.import_module(f"vectorsearch.cli.commands.{module_name}")
    found = getattr(module, attribute)
    if isinstance(found, typer.Typer):
        group = typer.main.get_group(found)
        for command in group.commands.values():
            _refuse_infinite(command)
        return group
    only = typer.Typer(add_completion=False)
    only.command(name, help=output.reflow(module.HELP) if hasattr(module, "HELP") else None)(found)
    command = typer.main.get_command(only)
    _refuse_infinite(command)
    return command


def _refuse_infinite(command: Any) -> None:  # noqa: ANN401 -- the type of commands is private to typer
    """Let a command's options refuse `nan` and `inf`, which pass for numbers, and what no machine counts to."""
    for param in command.params:
        param.callback = _finite(param.callback)


def _finite(callback: Callable[..., Any] | None) -> Callable[..., Any]:
    def check(context: Any, param: Any, value: Any) -> Any:  # noqa: ANN401 -- as above
        if isinstance(value, float) and not math.isfinite(value):
            raise typer.BadParameter(f"{value} is no finite number", ctx=context, param=param)
        if isinstance(value, int) and abs(value) > sys.maxsize:
            raise typer.BadParameter(
                f"a number of {len(str(abs(value)))} digits is too large", ctx=context, param=param
            )
        return value if callback is None else callback(context, param, value)

    return check


def _without_json(args: Sequence[str]) -> tuple[list[str], bool]:
    """Return the arguments without `--json`, and whether it was among them."""
    end = args.index("--") if "--" in args else len(args)
    options = [arg for arg in args[:end] if arg != JSON_FLAG]
    as_json = len(options) < end or any(arg.startswith(f"{JSON_FLAG}=") for arg in options)
    return [*options, *args[end:]], as_json


def _check_characters(args: Sequence[str]) -> None:
    """Refuse what can't be meant: nothing, as of a shell's variable that isn't set, and NUL, of a caller in Python."""
    for before, arg in zip(["", *args], args, strict=False):
        option, equals, value = arg.partition("=")
        if not arg or (option.startswith("--") and equals and not value):
            where = before if not arg and before.startswith("-") else option if arg else "an argument"
            raise typer.BadParameter(f"{where} is empty: say what is meant, or leave it out")
        if "\0" in arg:
            raise typer.BadParameter(f"{arg!r} holds a NUL character")


def _report_refusal(error: Any) -> int:  # noqa: ANN401 -- its class is private to typer
    """Tell what typer refuses, and return the exit code: whether a file is there isn't wrong usage."""
    param, context = getattr(error, "param", None), getattr(error, "ctx", None)
    if type(error) is typer.BadParameter and param is not None and _is_path(param):
        _report(error, error.format_message(), type_name=InvalidInput.__name__)
        return FAILED
    told = error.format_message()
    if type(error).__name__ == "NoArgsIsHelpError":  # the help is printed
        told = "a command is missing"
    elif context is not None:
        output.err.print(context.get_usage(), markup=False, soft_wrap=True)
    if context is not None:
        error.add_note(f"see `{context.command_path} --help`")
    _report(error, told, type_name="UsageError")
    return NOT_UNDERSTOOD


def _is_path(param: Any) -> bool:  # noqa: ANN401 -- its class is private to typer
    described = getattr(param, "type_descriptor", None)  # of typer with a parser of its own, and before that click's
    return bool(described.is_path if described is not None else param.type.name in {"path", "file", "directory"})


def _report(error: BaseException, message: str | None = None, *, type_name: str | None = None) -> None:
    """Print an error on stderr, and put it into the document."""
    told = message or str(error) or type(error).__name__
    notes = list(getattr(error, "__notes__", ()))
    output.print_error(told, notes)
    if (running := answer.current()) is not None:
        described = {"type": type_name or type(error).__name__, "message": told, "notes": notes}
        running.document["error"] = described


def _lost(error: OSError) -> int:
    """Tell that stdout can't be written, unless its reader has gone as `head` does, and return the exit code."""
    answer.turn_away_stdout()
    if error.errno != errno.EPIPE:
        output.print_error(f"stdout can't be written: {error}")
    return FAILED
