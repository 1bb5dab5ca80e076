"""``docs/support.md``: which versions of Airflow, PySpark and the catalog's database were seen to work, and when."""

import platform
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date

from demo.places import CHECKOUT
from statelib import __version__
from tools.matrix.cells import CATALOGS, Cell

PAGE = CHECKOUT / "docs" / "support.md"
OTHER_PACKAGES = ("apache-airflow-providers-apache-spark", "pyarrow", "pandas", "sqlalchemy", "fastapi")
"""Packages whose versions the page names besides."""
INTRODUCTION = """\
# Supported versions

Written by `make matrix`; do not edit. Each cell is an environment of its own, into which the wheel is installed with
`pip install "statelib[all]"`, one version of Airflow and one of PySpark. Packages that Airflow itself needs are as
old as that Airflow, as its published constraints have them; all else is as new as possible, except that the first
cell gets the oldest supported provider for Spark. In a cell an Airflow with `plugins/`, `jobs/` and `dags/` of its
own loads and serializes the DAGs, lists the page and the connection type, and answers for the page; one checkpoint
(whose first try fails), one savepoint and one restore are run by Airflow through `spark-submit`, and the checkpoint
is exported. `make test-all` runs the second cell: the lowest Airflow
with the highest PySpark.
"""
NOTES = """\
Python 3.11, 3.12 and 3.13 are admitted. PySpark and `pyspark-client`, which Airflow's provider for Spark requires,
share files and must have the same version: there is no client 4.1.4, 4.2.1 or 4.3.0, hence the gaps in the range. If
you choose an older PySpark, choose the same client: `pip install "statelib[all]" pyspark==4.1.3 pyspark-client==4.1.3`.

Airflow 3.1.0 is left out, because its API accepts no session cookie, so that nobody could see the page **State**, and
3.1.1, because it does not start with a structlog that was released on the same day. In Airflow 3.1 a restore cannot
find out whether the DAG to be replayed is paused, and clears its runs all the same; they wait until you unpause it.
There, `CronDataIntervalTimetable` is imported from `airflow.timetables.interval`, and the approval of a restore and
the callbacks of `alerts.deadline` need a triggerer.
"""


@dataclass(frozen=True)
class Result:
    """The result of one cell with one database for the catalog. ``problem`` is empty if everything succeeded."""

    cell: Cell
    catalog: str
    problem: str
    seconds: float
    packages: dict[str, str] = field(default_factory=dict)


def page(results: Sequence[Result], day: date) -> str:
    """Return the text of the page."""
    head = ["Airflow", "PySpark", *(f"catalog on {name}" for name in CATALOGS), *OTHER_PACKAGES]
    lines = [head, ["---"] * len(head), *_rows(results)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    seen = (
        f"Run on {day} with statelib {__version__}, Python {platform.python_version()}, {_java()}, "
        f"{platform.system()} {platform.machine()}:"
    )
    return f"{INTRODUCTION}\n{seen}\n\n{table}\n\n{NOTES}"


def _rows(results: Sequence[Result]) -> Iterator[list[str]]:
    for cell in dict.fromkeys(result.cell for result in results):
        own = {result.catalog: result for result in results if result.cell == cell}
        verdicts = [_verdict(own[name]) if name in own else "not run" for name in CATALOGS]
        packages = next((result.packages for result in own.values() if result.packages), {})
        yield [cell.airflow, cell.pyspark, *verdicts, *(packages.get(name, "") for name in OTHER_PACKAGES)]


def _verdict(result: Result) -> str:
    return "**failed**" if result.problem else f"passed, {result.seconds:.0f} s"


def _java() -> str:
    """Return the name and version of the Java that Spark finds."""
    done = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)  # noqa: S607
    version = re.search(r'version "([^"]+)"', done.stderr)
    return f"Java {version[1]}" if version else "Java"
