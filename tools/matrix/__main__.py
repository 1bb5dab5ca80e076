"""``python -m tools.matrix [CELL ...]``: run the cells, all of them by default, and write ``docs/support.md``.

A cell is named ``AIRFLOW/PYSPARK``, for example ``3.2.2/4.1.0``. The page is written only if all cells were run.
"""

import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.contract.catalog_kit import new_database
from tests.integration.installed_wheel import build
from tests.support.postgresql_server import NoServer, postgresql_server
from tools.matrix.cells import CATALOGS, CELLS, CROSSED, Cell
from tools.matrix.environments import MATRIX, CannotInstallError, environment_of, installed
from tools.matrix.story import EXPECTED, Home, StoryError, outcome
from tools.matrix.support_page import PAGE, Result, page


@contextmanager
def new_catalog(database: str) -> Iterator[str | None]:
    """Yield the URL of a new, empty catalog in the database; None stands for a file in the story's own directory."""
    if database == "SQLite":
        yield None
    else:
        with postgresql_server() as directory:
            yield new_database(directory)


def problem_of(programs: Path, database: str, root: Path) -> str:
    """Live through the story in an environment; return what went wrong, or nothing."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    try:
        with new_catalog(database) as url:
            seen = outcome(Home(root, programs, url).live())
    except (StoryError, NoServer) as error:
        return str(error)
    return "\n".join(
        f"{name}: {seen[name]!r}, expected {wanted!r}" for name, wanted in EXPECTED.items() if seen[name] != wanted
    )


def run(cell: Cell, wheel: Path) -> Iterator[Result]:
    """Yield the result of a cell with each database."""
    try:
        programs = environment_of(cell, wheel)
    except CannotInstallError as error:
        yield from (Result(cell, database, str(error), 0.0) for database in CATALOGS)
        return
    for database in CATALOGS:
        begun = time.monotonic()
        problem = problem_of(programs, database, MATRIX / "homes" / f"{cell}-{database}")
        yield Result(cell, database, problem, time.monotonic() - begun, installed(programs))
    if cell != CROSSED:  # make test keeps this one
        shutil.rmtree(programs.parent)


def main(names: list[str]) -> int:
    """Run the cells and print each result; return the exit status."""
    chosen = [cell for cell in CELLS if not names or f"{cell.airflow}/{cell.pyspark}" in names]
    results: list[Result] = []
    with TemporaryDirectory() as directory:
        wheel = build("wheel", Path(directory))
        for cell in chosen:
            for result in run(cell, wheel):
                results.append(result)
                verdict = result.problem or "passed"
                line = f"Airflow {cell.airflow}, PySpark {cell.pyspark}, {result.catalog}: {verdict}"
                print(line, flush=True)  # noqa: T201
    if len(chosen) == len(CELLS):
        PAGE.write_text(page(results, datetime.now(UTC).date()))
    return 1 if not results or any(result.problem for result in results) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
