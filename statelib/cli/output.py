"""How commands speak: tables and progress for people, one JSON document for machines."""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from statelib.errors import CorruptStateError, StatelibError

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document for machines.")]
PipelineOption = Annotated[str | None, typer.Option("--pipeline", "-p", help="Only this pipeline.")]


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


def table(title: str, columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]]) -> None:
    """Columns: (heading, 'left' or 'right'). Narrow terminals fold, pipes get plain text."""
    shown = Table(title=title, title_justify="left", header_style="bold")
    for heading, justify in columns:
        shown.add_column(heading, justify="right" if justify == "right" else "left", overflow="fold")
    for row in rows:
        shown.add_row(*map(escape, row))
    out.print(shown)


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
    return "-" if epoch_ms is None else datetime.fromtimestamp(epoch_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def count(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def fail(error: StatelibError, as_json: bool) -> NoReturn:
    """Print the one line that says what is wrong, then leave: 1 for damage, 2 for a bad call."""
    if as_json:
        print_json({"error": error.kind, "message": error.message, "hint": error.hint})
    else:
        err.print(f"[bold red]statelib:[/] {escape(error.message)}")
        if error.hint:
            err.print(f"  [dim]hint:[/] {escape(error.hint)}")
    raise typer.Exit(1 if isinstance(error, CorruptStateError) else 2) from error


@contextmanager
def errors(as_json: bool = False) -> Iterator[None]:
    """Turn statelib's errors into one line and an exit status; anything else is a bug and shows as one."""
    try:
        yield
    except StatelibError as error:
        fail(error, as_json)
