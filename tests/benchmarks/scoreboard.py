"""``python -m tests.benchmarks.scoreboard``: the rows P1 to P26, with goals, last figures and verdicts.

The figures are those of PERFORMANCE.md's table of ratios. Each verdict is computed from goal and figures, and a test
compares it with the document's own column."""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from tests.benchmarks.plots import CHECKOUT, goal_of

ROWS = tuple(f"P{number}" for number in range(1, 27))
_HEADER = "| row | ours / theirs |"
_VERDICTS = {True: "met", False: "missed"}


@dataclass(frozen=True)
class Row:
    """A row of the table of ratios. ``figures``: the ratios that it lists first, one per setting; empty if it is not
    measured. ``reached``: the document's own verdict."""

    name: str
    what: str
    goal: str
    figures: tuple[float, ...]
    reached: str

    @property
    def verdict(self) -> str:
        """Whether the figures reach the goal: ``met``, ``missed``, ``met in part``, ``not measured`` or ``no goal``."""
        goal = goal_of(self.goal)
        if goal is None:
            return "no goal"
        if not self.figures:
            return "not measured"
        outcomes = {figure <= goal for figure in self.figures}
        return _VERDICTS[outcomes.pop()] if len(outcomes) == 1 else "met in part"


def rows_of(document: str) -> list[Row]:
    """Return the rows of PERFORMANCE.md's table of ratios. A row without a name has that of the row above."""
    rows: list[Row] = []
    for line in document.partition(_HEADER)[2].splitlines()[2:]:
        if not line.startswith("| "):
            break
        name, what, goal, measured, reached = (cell.strip() for cell in line.removeprefix("|").split("|")[:5])
        name = name or rows[-1].name
        rows.append(Row(name, what, goal, tuple(_figures(measured)), reached))
    return rows


def _figures(measured: str) -> Iterator[float]:
    """Yield the first figures of a cell, such as 0.2 and 0.05 of ``0.2 (0.1 to 0.3) and 0.05, 0.04 CPU s``."""
    if measured.startswith("not measured"):
        return
    plain = re.sub(r" \([^)]*\)", "", measured)
    listed = re.match(r"[\d.]+((, | and )[\d.]+(?=,|;| and | in |$))*", plain)
    for number in re.findall(r"\d+(?:\.\d+)?", listed[0]) if listed else []:
        yield float(number)


def scoreboard(document: str) -> str:
    """Return the rows P1 to P26 as a Markdown table, and how many of them reach their goals."""
    rows = [row for row in rows_of(document) if row.name in ROWS and row.verdict != "no goal"]
    lines = ["| row | ours / theirs | goal | measured last | |", "|---|---|---|---|---|"]
    for row in rows:
        figures = ", ".join(f"{figure:g}" for figure in row.figures) or "-"
        lines.append(f"| {row.name} | {row.what} | {row.goal} | {figures} | {row.verdict} |")
    counts = {
        verdict: sum(row.verdict == verdict for row in rows) for verdict in dict.fromkeys(r.verdict for r in rows)
    }
    return "\n".join([*lines, "", ", ".join(f"{verdict}: {count}" for verdict, count in counts.items())])


if __name__ == "__main__":
    sys.stdout.write(scoreboard((CHECKOUT / "PERFORMANCE.md").read_text()) + "\n")
