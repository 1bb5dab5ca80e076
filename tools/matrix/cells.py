"""The cells of the matrix: the versions of Airflow and PySpark at both ends of the supported ranges, and between."""

from dataclasses import dataclass
from datetime import date
from itertools import product

AIRFLOWS = {
    "3.1.2": date(2025, 11, 5),
    "3.2.2": date(2026, 5, 29),
    "3.3.2": date(2026, 9, 17),
}
"""Version of Airflow -> the day of its release. What Airflow needs is taken as of that day, as the constraints pin it
that Airflow publishes with a release. The first version is the lower end of the range: the API of 3.1.0 accepts no
session cookie, so that nobody could see the page, and 3.1.1 does not start with the structlog of its own day."""
PYSPARKS = ("4.1.0", "4.2.0")
"""Versions of PySpark for which a ``pyspark-client`` of the same version exists: the ends of the range."""
CATALOGS = ("SQLite", "PostgreSQL")
"""Databases for the catalog."""
AS_OF = date(2026, 11, 25)
"""No package released after this day is installed, so that a run can be repeated. Move it when the matrix is run."""


@dataclass(frozen=True)
class Cell:
    """One environment to try: a version of Airflow and one of PySpark."""

    airflow: str
    pyspark: str

    def __str__(self) -> str:
        return f"airflow-{self.airflow}-pyspark-{self.pyspark}"


CELLS = tuple(Cell(airflow, pyspark) for airflow, pyspark in product(AIRFLOWS, PYSPARKS))
LOWEST = CELLS[0]
LOWEST_SPARK_PROVIDER = "6.3.0"
"""Version of Airflow's provider for Spark in the lowest cell: the lower end of its range. The others get the newest."""
CROSSED = Cell(min(AIRFLOWS), max(PYSPARKS))
"""The lowest version of Airflow with the highest one of PySpark. The pinned packages are the highest Airflow with a low
PySpark, so together they try both ends of both ranges."""
