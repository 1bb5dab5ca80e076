"""``docs/support.md`` lists the existing cells, and all of them passed."""

import re

from tools.matrix.cells import CATALOGS, CELLS
from tools.matrix.support_page import INTRODUCTION, NOTES, PAGE, Result, page


def test_every_cell_passed_when_the_matrix_was_last_run() -> None:
    text = PAGE.read_text()
    rows = [[part.strip() for part in line.split("|")] for line in re.findall(r"^\| (\d.*) \|$", text, re.MULTILINE)]
    assert [(row[0], row[1]) for row in rows] == [(cell.airflow, cell.pyspark) for cell in CELLS]
    assert [verdict for row in rows for verdict in row[2 : 2 + len(CATALOGS)] if not verdict.startswith("passed")] == []
    assert text.startswith(INTRODUCTION)
    assert text.endswith(NOTES)


def test_a_failed_cell_is_marked() -> None:
    from datetime import date

    results = [
        Result(CELLS[0], CATALOGS[0], "", 61.4, {"pyarrow": "1.0"}),
        Result(CELLS[0], CATALOGS[1], "it broke", 3.0),
    ]
    (row,) = (line for line in page(results, date(2026, 1, 2)).splitlines() if line.startswith(f"| {CELLS[0].airflow}"))
    assert row.startswith(f"| {CELLS[0].airflow} | {CELLS[0].pyspark} | passed, 61 s | **failed** |")
    assert "| 1.0 |" in row
