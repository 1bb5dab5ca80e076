"""How commands speak: tables and progress for people, one JSON document for machines."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, is_dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, NoReturn, Self

import typer
from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.measure import Measurement
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.segment import Segment
from rich.table import Table

from statelib.cli import completion
from statelib.errors import CorruptStateError, InvalidRequestError, StatelibError
from statelib.extras import extras_named
from statelib.flows.cleanup.each_pipeline import Troubles
from statelib.telemetry.logs import hidden
from statelib.telemetry.secrets import secrets
from statelib.visible import visible, visible_json


class SafeConsole(Console):
    """A console whose text is only text: what a terminal would obey, or nobody could see, is written as an escape.

    Whatever is printed comes through here; the styles of the presenter are no part of the text."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else visible(segment.text, lines=True)
            yield segment if text is segment.text else Segment(text, segment.style, segment.control)


out = SafeConsole(highlight=False, emoji=False)
err = SafeConsole(stderr=True, highlight=False, emoji=False)

UNBOUNDED = 10_000
"""Columns of a pipe: whoever reads it must not find a word broken in two."""

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document for machines.")]
PipelineOption = Annotated[
    str | None,
    typer.Option("--pipeline", "-p", help="Only this pipeline.", autocompletion=completion.pipelines),
]


@dataclass(frozen=True)
class Column:
    """``wraps``: may break at spaces; ``spare``: left out where the terminal is too narrow for all."""

    heading: str
    right: bool = False
    wraps: bool = False
    spare: bool = False


def print_json(value: Any) -> None:
    """One document, keys as in the records; dataclasses become objects. Hidden characters are JSON's escapes: exact
    for who parses it, harmless for who reads it."""
    sys.stdout.write(visible_json(json.dumps(_plain(value), indent=2, ensure_ascii=False)) + "\n")


class Steps:
    """A progress bar of so many pieces of work, each of named steps: on a terminal only, beside the result."""

    def __init__(self, pieces: int) -> None:
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        self._progress = Progress(*columns, console=err, transient=True, disable=not err.is_terminal)
        self._task = self._progress.add_task("", total=pieces)
        self._begun = 0

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def of(self, piece: str) -> Callable[[str], None]:
        """What is told the names of the next piece's steps."""
        self._progress.update(self._task, completed=self._begun, description=piece)
        self._begun += 1
        return lambda step: self._progress.update(self._task, description=f"{piece}: {step}")


@contextmanager
def working(what: str) -> Iterator[None]:
    """For work whose end nobody knows: a spinner, on a terminal only, beside the result."""
    if not err.is_terminal:
        yield
        return
    with err.status(escape(visible(what))):
        yield


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def table(title: str, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; spare columns go first where it is too wide, and no word is ever cut."""
    rows = [[visible(cell) for cell in row] for row in rows]  # before widths are counted
    shown = list(range(len(columns)))
    spare = [i for i, column in enumerate(columns) if column.spare]
    made = _table(columns, rows, shown)
    while spare and _widths(made).minimum > width():
        shown.remove(spare.pop())
        made = _table(columns, rows, shown)
    line()
    out.print(f"[bold]{escape(visible(title))}[/]", soft_wrap=True)
    widths = _widths(made)
    made.width = min(max(width(), widths.minimum), widths.maximum)
    out.print(made, crop=False)


def _table(columns: Sequence[Column], rows: Sequence[Sequence[str]], shown: Sequence[int]) -> Table:
    made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for i in shown:
        column = columns[i]
        cells = [column.heading, *(row[i] for row in rows)]
        words = [word for cell in cells for word in cell.split()] if column.wraps else cells
        made.add_column(
            column.heading,
            justify="right" if column.right else "left",
            no_wrap=not column.wraps,
            min_width=max(map(cell_len, words), default=0),
        )
    for row in rows:
        made.add_row(*(escape(row[i]) for i in shown))
    return made


def _widths(made: Table) -> Measurement:
    return Measurement.get(out, out.options.update(width=UNBOUNDED), made)


def width() -> int:
    """Columns to print to: the terminal's, or those that COLUMNS says; without bounds into a pipe."""
    told = os.environ.get("COLUMNS", "")
    if told.isdecimal() and int(told):
        return int(told)
    return out.width if out.is_terminal else UNBOUNDED


def line(text: str = "") -> None:
    """Print one line: the terminal wraps it, and it can be copied in one piece."""
    out.print(visible(text), markup=False, soft_wrap=True)


def note(text: str) -> None:
    """The same, beside the result: to the error stream."""
    err.print(visible(text), markup=False, soft_wrap=True)


def size(size_bytes: int | None) -> str:
    """Bytes for people: 1.5 MiB; '-' where unknown."""
    if size_bytes is None:
        return "-"
    amount = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def when(epoch_ms: int | None) -> str:
    """UTC, to the second; '-' where unknown."""
    return "-" if epoch_ms is None else datetime.fromtimestamp(epoch_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def count(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def fail(error: StatelibError, as_json: bool) -> NoReturn:
    """Print the one line that says what is wrong, then leave: 1 for damage, 2 for a bad call."""
    message = hidden(error.message, secrets(os.environ))
    if as_json:
        print_json({"error": error.kind, "message": message, "hint": error.hint})
    else:
        err.print(f"[bold red]statelib:[/] {escape(message)}", soft_wrap=True)
        if error.hint:
            err.print(f"  [dim]hint:[/] {escape(error.hint)}", soft_wrap=True)
    raise typer.Exit(1 if isinstance(error, CorruptStateError) else 2) from error


def confirmed(question: str, yes: bool, as_json: bool) -> None:
    """Go on only if the person says so; InvalidRequestError (``not-confirmed``) where nobody can be asked."""
    if yes:
        return
    try:
        agreed = None if as_json else typer.confirm(f"\n{visible(question, lines=True)}", err=True)
    except typer.Abort:
        agreed = None
    if agreed is None:
        raise InvalidRequestError("not confirmed: nothing was changed", kind="not-confirmed", hint="add --yes")
    if not agreed:
        note("nothing was changed")
        raise typer.Exit(1)


def end_in_trouble(troubles: Troubles) -> None:
    """Name every pipeline that was left out, and end with exit status 1; nothing where there is none."""
    for trouble in troubles.found():
        note(f"in trouble: {trouble.message}" + (f" ({trouble.hint})" if trouble.hint else ""))
    if troubles.errors:
        raise typer.Exit(1)


@contextmanager
def errors(as_json: bool = False) -> Iterator[None]:
    """Turn statelib's errors into one line and an exit status; anything else is a bug and shows as one."""
    try:
        with extras_named():
            yield
    except StatelibError as error:
        fail(error, as_json)
