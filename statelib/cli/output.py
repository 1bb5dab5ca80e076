"""How commands speak: tables and progress for people, one JSON document for machines."""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, is_dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, NoReturn

import typer
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from statelib.errors import CorruptStateError, StatelibError

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

UNBOUNDED = 10_000
"""Columns of a pipe: whoever reads it must not find a word broken in two."""

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document for machines.")]
PipelineOption = Annotated[str | None, typer.Option("--pipeline", "-p", help="Only this pipeline.")]


@dataclass(frozen=True)
class Column:
    """``wraps``: may break at spaces; ``spare``: left out where the terminal is too narrow for all."""

    heading: str
    right: bool = False
    wraps: bool = False
    spare: bool = False


def print_json(value: Any) -> None:
    """One document, keys as in the records; dataclasses become objects."""
    sys.stdout.write(json.dumps(_plain(value), indent=2, ensure_ascii=False) + "\n")


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
    shown = list(range(len(columns)))
    spare = [i for i, column in enumerate(columns) if column.spare]
    made = _table(columns, rows, shown)
    while spare and _widths(made).minimum > width():
        shown.remove(spare.pop())
        made = _table(columns, rows, shown)
    line()
    out.print(f"[bold]{escape(title)}[/]", soft_wrap=True)
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
    """Print a line as it is: the terminal wraps it, and it can be copied in one piece."""
    out.print(text, markup=False, soft_wrap=True)


def note(text: str) -> None:
    """The same, beside the result: to the error stream."""
    err.print(text, markup=False, soft_wrap=True)


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
    if as_json:
        print_json({"error": error.kind, "message": error.message, "hint": error.hint})
    else:
        err.print(f"[bold red]statelib:[/] {escape(error.message)}", soft_wrap=True)
        if error.hint:
            err.print(f"  [dim]hint:[/] {escape(error.hint)}", soft_wrap=True)
    raise typer.Exit(1 if isinstance(error, CorruptStateError) else 2) from error


@contextmanager
def errors(as_json: bool = False) -> Iterator[None]:
    """Turn statelib's errors into one line and an exit status; anything else is a bug and shows as one."""
    try:
        yield
    except StatelibError as error:
        fail(error, as_json)
