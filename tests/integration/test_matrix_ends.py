"""One cell of the matrix: the wheel with the lowest Airflow and the highest PySpark.

With test_wheel_in_airflow.py, whose pinned packages are the highest Airflow and a low PySpark, both ends of the ranges
are tried. ``make matrix`` runs all cells. The environment comes from the package index, takes a minute the first time,
and is kept in ``.work/matrix``.
"""

from pathlib import Path

import pytest

from tests.integration.installed_wheel import build
from tests.support.extent import large
from tools.matrix.__main__ import problem_of
from tools.matrix.cells import CROSSED
from tools.matrix.environments import CannotInstallError, environment_of


@large("make test has the pinned packages, test_wheel_in_airflow")
@pytest.mark.timeout(1500)
def test_the_wheel_works_with_the_lowest_airflow_and_the_highest_pyspark(tmp_path: Path) -> None:
    try:
        programs = environment_of(CROSSED, build("wheel", tmp_path / "wheel"))
    except CannotInstallError as error:
        if error.by_conflict:
            raise
        pytest.skip(f"the package index cannot be used: {error}")
    assert problem_of(programs, "PostgreSQL", tmp_path / "home") == ""
