"""Lines of any number in the order of Java's text, in bounded memory: sorted runs on disk, then one merge."""

import heapq
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

from statelib.storage.local.scratch import scratch_directory

RUN_CHARACTERS = 32 << 20
"""Text that is sorted in memory at a time."""


def java_order(line: str) -> bytes:
    """Sorts as Java's String does: by units of UTF-16."""
    return line.encode("utf-16-be", "surrogatepass")


def in_java_order(
    lines: Iterable[str], scratch: str | None = None, run_characters: int = RUN_CHARACTERS
) -> Iterator[str]:
    """All lines, none of which holds a line break. What does not fit into one run goes to files in a directory
    below ``scratch``, which is gone at the end, however that comes."""
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
