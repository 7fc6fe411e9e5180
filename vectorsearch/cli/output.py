"""What the command line prints: results on stdout, and progress, warnings and errors on stderr."""

from __future__ import annotations

import time
from collections import deque
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.text import Text

from backends.errors import InvalidInput
from vectorsearch.cli import answer
from vectorsearch.evaluation import figures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path
    from types import TracebackType


class _ErrorConsole(Console):
    """The console of stderr: a command goes on where nobody reads it any more."""

    def on_broken_pipe(self) -> None:
        """Say no more."""
        self.quiet = True


out = Console(highlight=False)
err = _ErrorConsole(stderr=True, highlight=False)

WINDOW_S = 30.0  # the rate is of the last half minute: a resumed run skips fast, then embeds slowly
LINE_EVERY_S = 10.0  # without a terminal, a line now and then is enough

counted, format_ms = figures.counted, figures.format_ms


def _as_json(value: bool) -> bool:  # noqa: FBT001 -- typer calls it so
    return value or answer.is_json()  # wherever it stood in the command line


Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON document and nothing else on stdout.", callback=_as_json)
]


def print_json(document: Mapping[str, Any]) -> None:
    """Give the one JSON document that stdout is to hold; it is written when the command has ended."""
    answer.give(document)


def write_text(file: Path, text: str) -> None:
    """Write a result to the file that an option names.

    Raises:
        InvalidInput: it can't be written.
    """
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as exc:
        raise InvalidInput(f"{str(file)!r} can't be written ({exc}): name another file") from exc


def check_folder(file: Path | None, *, option: str) -> None:
    """Refuse a file in a folder that isn't there, before the work whose result it is to hold.

    Raises:
        InvalidInput: the folder isn't there.
    """
    if file is not None and not file.parent.is_dir():
        raise InvalidInput(
            f"there is no folder {str(file.parent)!r} for {option} {file.name}: make it, or name another"
        )


def print_error(text: str, notes: Iterable[str] = ()) -> None:
    """Print a red line on stderr, and notes under it."""
    err.print(Text.assemble(("error: ", "bold red"), (one_line(text), "red")), soft_wrap=True)
    for note in notes:
        err.print(Text(f"  {one_line(note)}"), soft_wrap=True)


def print_warning(text: str) -> None:
    """Print a yellow line on stderr; a JSON document has it among its `warnings` as well."""
    if (told := answer.current()) is not None:
        told.warnings.append(one_line(text))
    err.print(Text.assemble(("warning: ", "bold yellow"), one_line(text)), soft_wrap=True)


def print_truncated(count: int, max_tokens: int | None) -> None:
    """Warn of documents that are longer than what the embedder reads, if there are any."""
    if count:
        what = f"{counted(count, 'document')} longer than the {max_tokens or 'few'} tokens that the embedder reads"
        print_warning(f"{what}: their vectors are of the beginning alone; words are searched in the whole text")


def warn_of_failure(text: str) -> None:
    """Print a warning of what failed after the answer was there; the exit code is then 1 at least."""
    if (running := answer.current()) is not None:
        running.failed = True
    print_warning(text)


def print_note(text: str) -> None:
    """Print a grey line on stderr."""
    err.print(Text(one_line(text), style="dim"), soft_wrap=True)


def print_facts(facts: Mapping[str, Any]) -> None:
    """Print names and values, one pair a line and never cut; nested ones as `outer · inner`."""
    rows = _flat(facts)
    width = max((len(name) for name, _ in rows), default=0)
    for name, value in rows:
        out.print(Text.assemble((name.ljust(width + 2), "dim"), value), soft_wrap=True)


def print_clipped(text: Text, *, right: Text | None = None) -> None:
    """Print one line, cut to the terminal's width; `right` ends at its edge."""
    room = out.width - (len(right) + 2 if right else 0)
    text.truncate(room, overflow="ellipsis", pad=right is not None)
    out.print(Text.assemble(text, "  ", right) if right else text, no_wrap=True)


def reflow(text: str) -> str:
    """Join the lines of each paragraph, so that help is wrapped to the terminal; indented lines stay as they are."""
    paragraphs = text.strip().split("\n\n")
    return "\n\n".join(p if p.startswith("  ") else " ".join(p.split("\n")) for p in paragraphs)


def one_line(text: str) -> str:
    """Return the text on one line, without the control characters by which a document could drive a terminal."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def format_duration(seconds: float) -> str:
    """Return 0:09, 12:30 or 1:02:03."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def format_mib(nbytes: float) -> str:
    """Return 34 MiB."""
    return f"{nbytes / 2**20:,.0f} MiB" if nbytes >= 10 * 2**20 else f"{nbytes / 2**20:.1f} MiB"


class Meter:
    """A progress bar with rate and time left on stderr; without a terminal, a line every ten seconds.

    `update(done, total, count)` moves it: `done` of `total` drives the bar and the time left, `count` things, named
    by `unit`, are what the rate is of. Use it as a context manager.
    """

    def __init__(self, label: str, unit: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._label = label
        self._unit = unit
        self._clock = clock
        self._start = self._last_line = clock()
        self._points = deque([(self._start, 0.0, 0.0)])  # (time, done, count) of the last WINDOW_S
        columns = (
            TextColumn(f"{label:<20}"),
            BarColumn(bar_width=18),
            TaskProgressColumn(show_speed=False),
            TextColumn("{task.fields[note]}"),
        )
        self._progress = Progress(*columns, console=err, refresh_per_second=5, disable=not err.is_terminal)
        self._task = self._progress.add_task(label, total=None, note="")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._progress.live.is_started:
            _, _, count = self._points[-1]
            total = self._progress.tasks[0].completed or 1
            note = f"{self._counted(count)} in {format_duration(self._clock() - self._start)}"
            self._progress.update(self._task, completed=total, total=total, note=note)
        self._progress.stop()

    def update(self, done: float, total: float | None, count: float | None = None) -> None:
        """Say how far it is; `count` is `done` if left out."""
        if total == 0:
            return
        self._progress.start()  # only now: what needs no work shows no bar
        now = self._clock()
        count = done if count is None else count
        self._points.append((now, float(done), float(count)))
        while len(self._points) > 2 and now - self._points[0][0] > WINDOW_S:  # noqa: PLR2004 -- two make a rate
            self._points.popleft()
        note = self._note(total)
        self._progress.update(self._task, completed=done, total=total, note=note)
        if not err.is_terminal and now - self._last_line >= LINE_EVERY_S:
            self._last_line = now
            percentage = f" {100 * done / total:.0f} %," if total else ""
            print_note(f"{self._label}:{percentage} {note}")

    def _note(self, total: float | None) -> str:
        (then, done_then, count_then), (now, done, count) = self._points[0], self._points[-1]
        elapsed = now - then
        if elapsed <= 0:
            return self._counted(count)
        rate = (count - count_then) / elapsed
        note = f"{self._counted(count)}, {self._rate(rate)}"
        if total and done > done_then:
            note += f", {format_duration((total - done) * elapsed / (done - done_then))} left"
        return note

    def _counted(self, count: float) -> str:
        return format_mib(count) if self._unit == "bytes" else f"{count:,.0f} {self._unit}"

    def _rate(self, rate: float) -> str:
        if self._unit == "bytes":
            return f"{format_mib(rate)}/s"
        if 0 < rate < 1:
            return f"{1 / rate:.1f} s each"
        return f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s"  # noqa: PLR2004 -- digits


@contextmanager
def step_meters(units: Mapping[str, str]) -> Iterator[Callable[[str, int, int], None]]:
    """Give a callback `(step, done, total)` that shows a bar for each step; `units` names what a step counts."""
    with ExitStack() as stack:
        meters: dict[str, Meter] = {}

        def show(step: str, done: int, total: int) -> None:
            if step not in meters:
                stack.close()  # ends the bar of the step before
                meters[step] = stack.enter_context(Meter(step, units[step]))
            meters[step].update(done, total)

        yield show


def _flat(facts: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows = []
    for key, value in facts.items():
        name = f"{prefix}{key.replace('_', ' ')}"
        if isinstance(value, dict):
            rows.extend(_flat(value, f"{name} · "))
        else:
            is_size = key.endswith("nbytes") and isinstance(value, int)
            rows.append((name.removesuffix(" nbytes"), format_mib(value) if is_size else _shown(value)))
    return rows


def _shown(value: object) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case list() | tuple():
            return ", ".join(_shown(item) for item in value) or "none"
    return one_line(str(value))
