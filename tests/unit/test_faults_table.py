"""The table of goals shows the measured figures, and the goals without any."""

import json

from tests.support.faults_table import GOALS, rows, table


def line(goal: str, what: str, tried: float, violations: int = 0, unit: str = "runs") -> str:
    return json.dumps({"goal": goal, "what": what, "tried": tried, "violations": violations, "unit": unit})


def test_figures_of_one_name_are_added_up() -> None:
    rows_by_goal = {row.goal.name: row for row in rows([line("G1", "killed", 600), line("G1", "killed", 400), ""])}
    assert rows_by_goal["G1"].figures == (("killed", 1000, "runs", 0),)
    assert rows_by_goal["G1"].reached is True
    assert [name for name, row in rows_by_goal.items() if row.reached is None] == [
        g.name for g in GOALS if g.name != "G1"
    ]


def test_too_few_runs_and_violations_are_not_enough() -> None:
    few, broken = rows([line("G1", "killed", 959), line("G2", "killed", 960, 1)])[:2]
    assert (few.reached, broken.reached, broken.violations) == (False, False, 1)


def test_figures_of_other_units_are_shown_but_not_counted() -> None:
    (row,) = [r for r in rows([line("G9", "settings", 2e6), line("G9", "worlds", 5, unit="states")]) if r.measured]
    assert (row.measured, row.reached, len(row.figures)) == (5, False, 2)


def test_the_largest_figure_of_a_cost_counts() -> None:
    measured = rows([line("G11", "heap", 2.5, unit="%"), line("G11", "rocksdb", 3.1, unit="%")])
    (cost,) = [row for row in measured if row.goal.name == "G11"]
    assert (cost.measured, cost.reached) == (3.1, False)
    assert "| G11 | verification's share of a checkpoint's time | at most 3 % | 3.1 % | 0 | no |" in table([cost])
