"""The sorting of any number of lines in Java's order of text, in bounded memory: sorted runs on disk, then one
merge."""

import heapq
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

from statelib.storage.local.scratch import scratch_directory

RUN_CHARACTERS = 32 << 20
"""The number of characters that are sorted in memory at a time."""


def java_order(line: str) -> bytes:
    """Return a sort key that orders lines as Java's ``String.compareTo`` does: by UTF-16 code units."""
    return line.encode("utf-16-be", "surrogatepass")


def in_java_order(
    lines: Iterable[str], scratch: str | None = None, run_characters: int = RUN_CHARACTERS
) -> Iterator[str]:
    """Yield all lines in Java's order. No line may contain a line break.

    ``run_characters``: the characters that are sorted in memory. Earlier runs are written to a temporary directory
    below ``scratch``, which is removed at the end, also after an error."""
    with ExitStack() as resources:
        files: list[Path] = []
        run: list[str] = []
        size = 0
        directory = None
        for line in lines:
            run.append(line)
            size += len(line)
            if size >= run_characters:
                directory = directory or Path(resources.enter_context(scratch_directory(scratch, "sort")))
                files.append(directory / str(len(files)))
                _write(files[-1], sorted(run, key=java_order))
                run, size = [], 0
        run.sort(key=java_order)
        stored = [resources.enter_context(file.open(encoding="utf-8", newline="\n")) for file in files]
        runs = [(line[:-1] for line in file) for file in stored]
        yield from heapq.merge(*runs, run, key=java_order)


def _write(path: Path, lines: list[str]) -> None:
    with path.open("x", encoding="utf-8", newline="\n") as file:
        file.writelines(line + "\n" for line in lines)
