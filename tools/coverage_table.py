"""Print how many lines of each room the tests executed: ``python -m tools.coverage_table``, after ``pytest --cov``."""

import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import PurePath

from coverage import Coverage

PACKAGES = ("statelib_airflow", "statelib_jobs")
"""The packages that count as one room each."""


def room(path: PurePath) -> str:
    """Return the room of a source file: the folder below ``statelib``, or another package as a whole."""
    parts = path.parts
    for package in PACKAGES:
        if package in parts:
            return package
    below = parts[parts.index("statelib") + 1 :]
    return f"statelib/{below[0]}" if len(below) > 1 else "statelib/*.py"


def counted(files: Iterable[tuple[PurePath, int, int]]) -> dict[str, tuple[int, int]]:
    """Return (lines, executed lines) of each room, from (path, lines, executed lines) of each file."""
    rooms: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for path, lines, executed in files:
        lines_before, executed_before = rooms[room(path)]
        rooms[room(path)] = (lines_before + lines, executed_before + executed)
    return dict(rooms)


def table(rooms: Mapping[str, tuple[int, int]]) -> str:
    """Return a line of text for each room, and one for all of them. A line of code counts if it is a statement."""
    total = (sum(lines for lines, _ in rooms.values()), sum(executed for _, executed in rooms.values()))
    rows = [*sorted(rooms.items()), ("all", total)]
    texts = [f"{name:<22}{lines:>7}{executed / max(1, lines):>10.0%}" for name, (lines, executed) in rows]
    return "\n".join([f"{'room':<22}{'lines':>7}{'executed':>10}", *texts])


def measured(coverage: Coverage) -> list[tuple[PurePath, int, int]]:
    """Return (path, lines, executed lines) of each file that was measured, of those without an executed line too."""
    files = []
    for path in coverage.get_data().measured_files():
        _, lines, _, missing, _ = coverage.analysis2(path)
        files.append((PurePath(path), len(lines), len(lines) - len(missing)))
    return files


if __name__ == "__main__":
    recorded = Coverage()
    recorded.load()
    sys.stdout.write(table(counted(measured(recorded))) + "\n")
