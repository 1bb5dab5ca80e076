"""The two streams that commands print to: results go to standard output, everything else to standard error."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.segment import Segment

from statelib.visible import visible

UNBOUNDED = 10_000
"""The width of a pipe. It is so large that no word is broken in two for the program that reads the pipe."""


class SafeConsole(Console):
    """A console that prints control characters and invisible characters as escapes, so that no terminal obeys them.

    All output of the commands passes through it. Its own styles are not part of the text, and stay as they are."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else visible(segment.text, lines=True)
            yield segment if text is segment.text else Segment(text, segment.style, segment.control)


out = SafeConsole(highlight=False, emoji=False)
err = SafeConsole(stderr=True, highlight=False, emoji=False)


def width() -> int:
    """Return the number of columns to print to: ``COLUMNS``, else the terminal's; unbounded into a pipe."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return int(columns)
    return out.width if out.is_terminal else UNBOUNDED


def drop_output() -> None:
    """Drop what is still to be written to the standard output: its reader is gone, or its disk is full. The interpreter
    flushes once more at the end of the process."""
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


class ProgressBar:
    """A progress bar for work that has a known number of pieces. It appears on a terminal only."""

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

    def next_piece(self, piece: str) -> Callable[[str], None]:
        """Begin the next piece of work. Return the function that shows the name of each step of it."""
        self._progress.update(self._task, completed=self._begun, description=piece)
        self._begun += 1
        return lambda step: self._progress.update(self._task, description=f"{piece}: {step}")


@contextmanager
def working(work: str) -> Iterator[None]:
    """Show a spinner for work of unknown length. It appears on a terminal only."""
    if not err.is_terminal:
        yield
        return
    with err.status(escape(visible(work))):
        yield
