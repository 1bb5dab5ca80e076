"""The cost of reading the catalog depends on what is shown, not on the length of the history. Rows and statements are
counted, not timed."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import Engine, event, insert

from statelib.catalog.catalog import Catalog
from statelib.catalog.tables.schema import CHECKPOINT, LEASE
from statelib.catalog.views.browsing import PageRequest
from statelib.model.ids import CheckpointId, PipelineName
from tests.contract.catalog_kit import clock

PIPELINES = [PipelineName(f"p{n:02}") for n in range(50)]
STEP = 10
"""The number of instructions of SQLite's machine between two counts."""


@dataclass
class Cost:
    """The statements that were sent, and the number of instructions that SQLite executed for them."""

    statements: int = 0
    instructions: int = 0


@contextmanager
def counted() -> Iterator[Cost]:
    cost = Cost()

    def step() -> None:
        cost.instructions += STEP

    def connected(connection: sqlite3.Connection, _record: object) -> None:
        connection.set_progress_handler(step, STEP)

    def sent(*_: object) -> None:
        cost.statements += 1

    event.listen(Engine, "connect", connected)
    event.listen(Engine, "before_cursor_execute", sent)
    try:
        yield cost
    finally:
        event.remove(Engine, "connect", connected)
        event.remove(Engine, "before_cursor_execute", sent)


def filled(path: Path, checkpoints: int) -> Catalog:
    """Return a catalog with 50 pipelines with so many checkpoints each, every tenth aborted, the newest pending."""
    catalog = Catalog(f"sqlite:///{path}", clock)
    catalog.migrate()
    leases = [
        {"pipeline": p, "epoch": 1, "next_id": checkpoints + 1, "generation": 0, "head": checkpoints - 1, "owner": "o",
         "heartbeat_at_ms": 0}
        for p in PIPELINES
    ]  # fmt: skip
    records = [row(pipeline, number, checkpoints) for pipeline in PIPELINES for number in range(1, checkpoints + 1)]
    with catalog.cleanup.transaction() as connection:
        connection.execute(insert(LEASE), leases)
        connection.execute(insert(CHECKPOINT), records)
    return catalog


def row(pipeline: PipelineName, number: int, last: int) -> dict[str, object]:
    state = "PENDING" if number == last else "ABORTED" if number % 10 == 0 else "COMPLETED"
    failure = "TASK_FAILURE" if state == "ABORTED" else None
    return {
        "pipeline": pipeline, "checkpoint_id": number, "kind": "CHECKPOINT", "state": state, "owner": "SYSTEM",
        "epoch": 1, "idempotency_key": str(number), "generation": 0, "base": number - 1 or None, "strategy": "full",
        "parallelism": 2, "directory": f"file:/s/{pipeline}/chk-{number}", "created_at_ms": number, "note": "",
        "reason": "", "report": "", "failure": failure, "metadata_size_bytes": 1,
        "completed_at_ms": number if state == "COMPLETED" else None,
    }  # fmt: skip


@pytest.fixture(scope="module")
def short_and_long(tmp_path_factory: pytest.TempPathFactory) -> tuple[Catalog, Catalog]:
    root = tmp_path_factory.mktemp("load")
    return filled(root / "short.db", 20), filled(root / "long.db", 1000)


def cost(look: Callable[[Catalog], object], catalog: Catalog) -> Cost:
    look(catalog)  # Statements that a process sends only once are not counted.
    with counted() as result:
        look(catalog)
    return result


LOOKS = {
    "overview": lambda c: c.browsing.summaries(PIPELINES),
    "first page": lambda c: c.browsing.page(PIPELINES[7], PageRequest(limit=20)),
    "one checkpoint": lambda c: c.browsing.entry(PIPELINES[7], CheckpointId(15)),
}
STATEMENTS = {"overview": 4, "first page": 4, "one checkpoint": 3}
"""The number of statements of each view, in a transaction, which takes :data:`OPENING` further statements."""
OPENING = 5
"""The statements that open a transaction: SQLite's BEGIN, two for the version of the schema, and two to detect a
replaced file."""


@pytest.mark.parametrize("name", sorted(LOOKS))
def test_the_number_of_statements_does_not_depend_on_the_length_of_the_history(
    short_and_long: tuple[Catalog, Catalog], name: str
) -> None:
    short, long = (cost(LOOKS[name], catalog) for catalog in short_and_long)
    assert short.statements == long.statements == STATEMENTS[name] + OPENING


def test_the_overview_does_not_read_whole_histories(short_and_long: tuple[Catalog, Catalog]) -> None:
    short, long = (cost(LOOKS["overview"], catalog) for catalog in short_and_long)
    assert long.instructions < 1.2 * short.instructions + 1000, "fifty times as many checkpoints"
    assert len(short_and_long[1].browsing.summaries(PIPELINES)) == 50


def test_a_page_reads_at_most_one_history(short_and_long: tuple[Catalog, Catalog]) -> None:
    _, catalog = short_and_long
    assert cost(LOOKS["first page"], catalog).instructions < 60 * 1000
    assert cost(LOOKS["one checkpoint"], catalog).instructions < 2000
