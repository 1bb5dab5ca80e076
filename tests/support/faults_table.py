"""``python -m tests.support.faults_table [--json] FILE``: goals G1 to G13 beside what the tests of faults measured.

``FILE``: what :func:`tests.support.figures.record` appended to. Ends with 1 if a goal was broken or came short.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Goal:
    """A goal of RELIABILITY.md. ``least``: the number of runs, or the amount in ``unit``, that one run of
    ``make test-faults`` promises. For a goal with ``at_most`` it is the largest allowed measure, and the largest
    measure counts."""

    name: str
    says: str
    least: float
    unit: str
    at_most: bool = False


GOALS = (
    Goal("G1", "no completed checkpoint is lost or corrupt", 960, "runs"),
    Goal("G2", "no file is left over", 960, "runs"),
    Goal("G3", "every mutation of a file is detected", 50_000, "mutations"),
    Goal("G4", "never a silently empty or short restore", 1, "runs"),
    Goal("G5", "a superseded coordinator commits and deletes nothing", 10_000, "take-overs"),
    Goal("G6", "one key, one completed checkpoint", 960, "runs"),
    Goal("G7", "a lost catalog is rebuilt as it was", 1, "runs"),
    Goal("G8", "hostile input: a typed error, nothing else", 300, "inputs"),
    Goal("G9", "the protocol's model holds, every mechanism is needed", 1_000_000, "states"),
    Goal("G10", "soak: ends with G1 and G2", 50, "kills"),
    Goal("G11", "verification's share of a checkpoint's time", 3, "%", at_most=True),
    Goal("G12", "each fault of storage is found by the gate in its turn", 16, "faults"),
    Goal("G13", "a table is that of a checkpoint, wherever its publisher dies", 200, "kills"),
)


@dataclass(frozen=True)
class Row:
    """A row of the table. ``reached`` None: not measured. ``figures``: (name, amount, unit, violations)."""

    goal: Goal
    measured: float
    violations: int
    figures: tuple[tuple[str, float, str, int], ...]
    reached: bool | None


def rows(lines: Iterable[str]) -> list[Row]:
    """Return one row for each goal. Figures of one name are added up; only those in the goal's unit count towards
    it."""
    figures: dict[str, dict[tuple[str, str], list[float]]] = {}
    for line in map(json.loads, filter(str.strip, lines)):
        figure = figures.setdefault(line["goal"], {}).setdefault((line["what"], line["unit"]), [0, 0])
        figure[0] += line["tried"]
        figure[1] += line["violations"]
    return [_row(goal, figures.get(goal.name, {})) for goal in GOALS]


def _row(goal: Goal, figures: dict[tuple[str, str], list[float]]) -> Row:
    figures_of_goal = tuple(
        (what, tried, unit, int(broken)) for (what, unit), (tried, broken) in sorted(figures.items())
    )
    counted = [tried for _, tried, unit, _ in figures_of_goal if unit == goal.unit]
    measured = max(counted, default=0) if goal.at_most else sum(counted)
    violations = sum(broken for *_, broken in figures_of_goal)
    enough = measured <= goal.least if goal.at_most else measured >= goal.least
    return Row(goal, measured, violations, figures_of_goal, (enough and not violations) if counted else None)


def table(goal_rows: Sequence[Row]) -> str:
    lines = ["| goal | | promised | measured | violations | reached |", "|---|---|---|---|---|---|"]
    for row in goal_rows:
        goal, bound = row.goal, "at most" if row.goal.at_most else "at least"
        answer = {None: "not measured", True: "yes", False: "no"}[row.reached]
        measured = "" if row.reached is None else f"{_shown(row.measured)} {goal.unit}"
        violations = "" if row.reached is None else str(row.violations)
        promised = f"{bound} {_shown(goal.least)} {goal.unit}"
        lines.append(f"| {goal.name} | {goal.says} | {promised} | {measured} | {violations} | {answer} |")
    lines += [
        f"{row.goal.name}: {what}: {_shown(tried)} {unit}, {broken} violations"
        for row in goal_rows
        for what, tried, unit, broken in row.figures
    ]
    return "\n".join(lines)


def _shown(figure: float) -> str:
    return f"{figure:,.0f}" if float(figure).is_integer() else f"{figure:,.3g}"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(arguments)
    read_rows = rows(asked.file.read_text(encoding="utf-8").splitlines() if asked.file.exists() else [])
    as_json: list[dict[str, Any]] = [asdict(row) for row in read_rows]
    print(json.dumps(as_json, indent=1) if asked.json else table(read_rows))
    return int(any(row.reached is False for row in read_rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
