"""The blocks that the output of a command for people is made of, and the function that prints them.

A command describes its result twice: as a document for ``--json``, and as a view, which is a sequence of blocks.
:func:`present` prints one of the two. No command prints anything itself, except for the lines of ``export``.
"""

import io
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any, TextIO

from rich import box
from rich.cells import cell_len
from rich.markup import escape
from rich.measure import Measurement
from rich.segment import Segments
from rich.table import Table as RichTable
from rich.tree import Tree

from statelib.cli.presenters import console
from statelib.cli.presenters.console import UNBOUNDED, width
from statelib.visible import visible, visible_json

LABEL_WIDTH = 12
_GAP = "  "
_LINES_AT_ONCE = 1_000


@dataclass(frozen=True)
class Line:
    """One line of the result. The terminal wraps it, so that it can be copied in one piece."""

    text: str = ""


@dataclass(frozen=True)
class Note:
    """One line beside the result. It goes to the error stream, with ``--json`` too."""

    text: str


@dataclass(frozen=True)
class Fields:
    """Lines of a label and a value, the values aligned."""

    pairs: Sequence[tuple[str, str]]
    label_width: int = LABEL_WIDTH


@dataclass(frozen=True)
class TableColumn:
    """A column of a table. ``wraps``: its cells may break at spaces. ``spare``: it is left out if the terminal is too
    narrow for all columns."""

    heading: str
    right: bool = False
    wraps: bool = False
    spare: bool = False


@dataclass(frozen=True)
class TextTable:
    """A table with a title. Where it is too wide, spare columns are left out; no word is ever cut."""

    title: str
    columns: Sequence[TableColumn]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Drawing:
    """A tree, such as that of a snapshot's operators and states. No word of it is ever cut."""

    tree: Tree


Block = Line | Note | Fields | TextTable | Drawing


def present(document: Any, view: Iterable[Block], as_json: bool) -> None:
    """Print the result of a command: the document with ``--json``, else the view."""
    if as_json:
        print_json(document)
    else:
        show(view)


def show(view: Iterable[Block]) -> None:
    """Print the blocks of a view, one after the other."""
    for block in view:
        match block:
            case Line(text):
                console.out.print(visible(text), markup=False, soft_wrap=True)
            case Note(text):
                console.err.print(visible(text), markup=False, soft_wrap=True)
            case Fields(pairs, label_width):
                show(Line(f"{label:<{label_width}} {value}") for label, value in pairs)
            case TextTable():
                _print_table(block)
            case Drawing(tree):
                _print_tree(tree)


def print_json(value: Any) -> None:
    """Print one JSON document in UTF-8. Dataclasses become objects with a key per field.

    Invisible characters are written as JSON escapes: a parser reads the exact text, and no terminal obeys it."""
    in_utf8().write(visible_json(json.dumps(_plain(value), indent=2, ensure_ascii=False)) + "\n")


def in_utf8() -> TextIO:
    """Return the standard output, which from now on is in UTF-8, as programs expect of JSON."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.encoding.lower() != "utf-8":
        sys.stdout.reconfigure(encoding="utf-8")
    return sys.stdout


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _print_table(block: TextTable) -> None:
    rows = [[visible(cell) for cell in row] for row in block.rows]  # before widths are counted
    show([Line()])
    console.out.print(f"[bold]{escape(visible(block.title))}[/]", soft_wrap=True)
    if any(column.wraps for column in block.columns):
        _print_wrapped(block.columns, rows)
    else:
        _print_lines(block.columns, rows)


def _print_lines(columns: Sequence[TableColumn], rows: Sequence[Sequence[str]]) -> None:
    """Print a table whose cells are not wrapped, one line per row. Of a table with very many rows, this takes a small
    part of the time that Rich would take."""
    widths = [max(map(cell_len, (column.heading, *cells))) for column, *cells in zip(columns, *rows, strict=True)]
    shown = _fitting(columns, lambda shown: _line_width(widths, shown))

    def line(cells: Sequence[str]) -> str:
        padded = (_padded(cells[i], widths[i], right=columns[i].right) for i in shown)
        return _GAP.join(padded).rstrip(" ")

    console.out.print(f"[bold]{escape(line([column.heading for column in columns]))}[/]", soft_wrap=True)
    rule = "-" if console.out.options.ascii_only else "─"
    console.out.print(rule * _line_width(widths, shown), soft_wrap=True)
    for start in range(0, len(rows), _LINES_AT_ONCE):
        text = "\n".join(map(line, rows[start : start + _LINES_AT_ONCE]))
        console.out.print(text, markup=False, soft_wrap=True)


def _fitting(columns: Sequence[TableColumn], least_width: Callable[[Sequence[int]], int]) -> list[int]:
    """Return the numbers of the columns to show: all, without as many spare ones as the width requires.
    ``least_width``: returns the width that a table of these columns needs."""
    shown = list(range(len(columns)))
    spare = [i for i in shown if columns[i].spare]
    while spare and least_width(shown) > width():
        shown.remove(spare.pop())
    return shown


def _line_width(widths: Sequence[int], shown: Sequence[int]) -> int:
    return sum(widths[i] for i in shown) + len(_GAP) * (len(shown) - 1)


def _padded(cell: str, cells: int, *, right: bool) -> str:
    spaces = " " * (cells - cell_len(cell))
    return spaces + cell if right else cell + spaces


def _print_wrapped(columns: Sequence[TableColumn], rows: Sequence[Sequence[str]]) -> None:
    shown = _fitting(columns, lambda shown: _widths(_rich_table(columns, rows, shown)).minimum)
    table = _rich_table(columns, rows, shown)
    widths = _widths(table)
    table.width = min(max(width(), widths.minimum), widths.maximum)
    console.out.print(table, crop=False)


def _rich_table(columns: Sequence[TableColumn], rows: Sequence[Sequence[str]], shown: Sequence[int]) -> RichTable:
    table = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for i in shown:
        column = columns[i]
        cells = [column.heading, *(row[i] for row in rows)]
        words = [word for cell in cells for word in cell.split()] if column.wraps else cells
        table.add_column(
            column.heading,
            justify="right" if column.right else "left",
            no_wrap=not column.wraps,
            min_width=max(map(cell_len, words), default=0),
        )
    for row in rows:
        table.add_row(*(escape(row[i]) for i in shown))
    return table


def _print_tree(tree: Tree) -> None:
    widths = _widths(tree)
    options = console.out.options.update(width=max(min(width(), widths.maximum), widths.minimum))
    console.out.print(Segments(console.out.render(tree, options)), crop=False, end="")


def _widths(renderable: RichTable | Tree) -> Measurement:
    """Return the least and the greatest width that the renderable can take."""
    return Measurement.get(console.out, console.out.options.update(width=UNBOUNDED), renderable)
