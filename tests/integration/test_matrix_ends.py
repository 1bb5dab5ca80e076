"""The lowest and the highest cell of the matrix: the wheel with both ends of the ranges of Airflow and PySpark.

The environments come from the package index, take a minute each the first time, and are kept in ``.work/matrix``.
"""

from pathlib import Path

import pytest

from tests.integration.installed_wheel import build
from tools.matrix.__main__ import problem_of
from tools.matrix.cells import HIGHEST, LOWEST, Cell
from tools.matrix.environments import CannotInstallError, environment_of


@pytest.mark.timeout(1500)
@pytest.mark.parametrize(("cell", "database"), [(LOWEST, "SQLite"), (HIGHEST, "PostgreSQL")], ids=str)
def test_the_wheel_works_at_both_ends_of_the_version_ranges(cell: Cell, database: str, tmp_path: Path) -> None:
    try:
        programs = environment_of(cell, build("wheel", tmp_path / "wheel"))
    except CannotInstallError as error:
        if error.by_conflict:
            raise
        pytest.skip(f"the package index cannot be used: {error}")
    assert problem_of(programs, database, tmp_path / "home") == ""
