"""Odd values in every column of the catalog: each command and the page continue or name the damaged row, no file
that a completed checkpoint needs is deleted, and ``catalog check`` names the row."""

import json
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter
from sqlalchemy import BigInteger, Integer
from statelib_airflow.api import responses

from statelib.catalog.tables.schema import METADATA
from statelib.catalog.views.browsing import PageRequest
from statelib.errors import CorruptStateError, StatelibError
from statelib.flows.views import overview
from statelib.flows.views.anatomy import portrait
from statelib.flows.views.comparison import compare
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId, PipelineName
from tests.integration.garbage import needed, stored
from tests.integration.shop import open_shop
from tests.integration.shop_cli import call
from tests.support.extent import TEST_ALL

SEED = 20261124
SALES = PipelineName("sales")
NUMBERS: tuple[Any, ...] = ("abc", "", b"\xff\x00", 1.5, -1, 0, (1 << 63) - 1, -(1 << 63), None)
TEXTS: tuple[Any, ...] = (b"\xff\x00", "", "\x00\x1b[31m", "../../x", "é" * 5000, "NEW_WORD", "{[", None)
NO_TEXT = "CAST(x'80ff' AS TEXT)"
COMMANDS = (
    "checkpoints list --all", "checkpoints list --json", "checkpoints show sales/5 --json", "checkpoints show sales/1",
    "checkpoints diff sales/1 sales/5", "inspect sales/5", "verify --no-read-data", "history", "history --json",
    "pipelines status sales", "gc --dry-run", "gc --json", "orphans --json", "orphans --delete --force --grace 1h",
    "why {root}/state/sales/chk-5/_metadata", "restore sales 5 --dry-run", "savepoint dispose sales/4 --dry-run",
    "run sales --start 2013-01-03 --end 2013-01-04 --dry-run", "catalog rebuild --merge --dry-run",
    "pipelines cancel sales", "pipelines resume sales", "export sales/5", "catalog check", "catalog check --json",
)  # fmt: skip
Harm = tuple[str, str, Any]


def harms() -> list[Harm]:
    """Return every value for every column, or a few that the seed selects."""
    chance, chosen = random.Random(SEED), []
    for table in METADATA.sorted_tables:
        for column in table.columns:
            values = NUMBERS if isinstance(column.type, BigInteger | Integer) else (*TEXTS, NO_TEXT)
            every = [(table.name, column.name, value) for value in values]
            chosen += every if TEST_ALL else chance.sample(every, 1)
    return chosen if TEST_ALL else chance.sample(chosen, 20)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    deployment = open_shop(tmp_path_factory.mktemp("damaged"))
    for name in ("sales", "tours"):
        deployment.catalog().cleanup.pin(PipelineName(name), CheckpointId(1), "test", 1 << 40)
    with closing(sqlite3.connect(file_of(deployment))) as connection, connection:
        connection.execute(
            "INSERT INTO quality_result VALUES ('sales', 5, 1, 0, 'complete', 'files', 'FAIL', 1, 3, 0, '[\"all\"]', 9)"
        )
        connection.execute("INSERT INTO gc_log VALUES ('r', 'sales', 'file:/gone', 'DELETED', 9)")
    shutil.copy(file_of(deployment), file_of(deployment).with_name("whole.db"))
    shutil.copytree(deployment.storage_root, file_of(deployment).with_name("kept"))
    return deployment


@pytest.fixture
def deployment(shop: Deployment) -> Iterator[Deployment]:
    """Return the deployment of the module. Changes by a test are undone after it."""
    yield shop
    shutil.copy(file_of(shop).with_name("whole.db"), file_of(shop))
    shutil.rmtree(shop.storage_root)
    shutil.copytree(file_of(shop).with_name("kept"), shop.storage_root)


def file_of(deployment: Deployment) -> Path:
    return Path(deployment.catalog_url.removeprefix("sqlite:///"))


def harm(deployment: Deployment, table: str, column: str, value: Any) -> bool:
    """Put the value into one row. Return False if the database itself refuses it."""
    with closing(sqlite3.connect(file_of(deployment))) as connection, connection:
        (row,) = connection.execute(f"SELECT max(rowid) FROM {table}").fetchone()
        try:
            if value == NO_TEXT:
                connection.execute(f"UPDATE {table} SET {column} = {NO_TEXT} WHERE rowid = ?", [row])
            else:
                connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", [value, row])
        except sqlite3.IntegrityError:
            return False
    return True


def page(deployment: Deployment) -> Iterator[Callable[[], object]]:
    """Yield a function for each route of the page; it does the work of the route."""
    browsing = deployment.existing_catalog().browsing
    yield lambda: [
        responses.pipeline_row(view, True, "") for view in overview.overview(deployment, overview.names(deployment))
    ]
    yield lambda: [responses.checkpoint_row(e, "") for e in browsing.page(SALES, PageRequest(limit=50)).entries]
    for number in (1, 5):
        yield lambda number=number: responses.checkpoint_detail(portrait(deployment, SALES, CheckpointId(number)), "")
    yield lambda: responses.comparison_detail(compare(deployment, SALES, CheckpointId(1), CheckpointId(5)), "")
    yield lambda: [
        responses.storage_row(*each) for each in overview.storage_now(deployment, overview.names(deployment)).items()
    ]
    yield lambda: [responses.storage_point(sample) for sample in overview.storage_samples(deployment, SALES)]
    yield lambda: browsing.begun_by(SALES, "sales.checkpoint/run/")


def send(answer: object) -> None:
    """Convert an answer to JSON, as its route does. A value that is not of the declared type is an error."""
    for part in answer if isinstance(answer, list) else [answer]:
        TypeAdapter(type(part)).dump_json(part, warnings="error")


@pytest.mark.timeout(1200)
def test_with_any_value_in_a_row_each_command_works_or_names_the_damage(deployment: Deployment) -> None:
    root, remaining = file_of(deployment).parent, needed(deployment)
    for what in harms():
        if not harm(deployment, *what):
            continue
        print(f"seed {SEED}: {what}")
        for answer in page(deployment):
            with suppress(StatelibError):
                send(answer())
        for command in COMMANDS:
            result = call(deployment, *command.format(root=root).split())
            assert result.exit_code in (0, 1, 2), (what, command, result.output)
        assert remaining <= stored(deployment), what
        shutil.copy(root / "whole.db", file_of(deployment))
        if stored(deployment) != remaining:
            shutil.rmtree(deployment.storage_root)
            shutil.copytree(root / "kept", deployment.storage_root)


@pytest.mark.parametrize("base", [5, 6])
def test_a_base_that_is_not_older_is_named_as_damage(deployment: Deployment, base: int) -> None:
    with closing(sqlite3.connect(file_of(deployment))) as connection, connection:
        connection.execute("UPDATE checkpoint SET base = ? WHERE pipeline = 'sales' AND checkpoint_id = 5", [base])
    for act in (
        lambda: deployment.catalog().lineage(SALES, CheckpointId(5)),
        lambda: portrait(deployment, SALES, CheckpointId(5)),
    ):
        with pytest.raises(CorruptStateError, match=r"checkpoint sales/5: base: expected an older") as damage:
            act()
        assert damage.value.kind == "catalog-row-damaged"


def test_other_pipelines_work_and_the_check_names_every_damaged_row(deployment: Deployment) -> None:
    with closing(sqlite3.connect(file_of(deployment))) as connection, connection:
        connection.execute("UPDATE checkpoint SET state = 'DONE' WHERE pipeline = 'sales' AND checkpoint_id = 2")
        connection.execute("UPDATE checkpoint SET entries = 'many' WHERE pipeline = 'sales' AND checkpoint_id = 5")
    listed = call(deployment, "checkpoints", "list", "--json")
    assert (listed.exit_code, [each["pipeline"] for each in json.loads(listed.stdout)]) == (1, ["tours"])
    assert "in trouble: catalog: checkpoint sales/5: entries: expected an integer from 0, found 'many'" in listed.stderr
    views = {view.name: view for view in overview.overview(deployment, [SALES, PipelineName("tours")])}
    assert "sales/5" in (views["sales"].error or "")
    assert views["tours"].error is None
    with closing(sqlite3.connect(file_of(deployment))) as connection, connection:
        connection.execute("UPDATE lease SET head = 99 WHERE pipeline = 'tours'")
    checked = call(deployment, "catalog", "check", "--json")
    assert checked.exit_code == 1
    faults = {
        (each["pipeline"], each["checkpoint_id"], each["column"]) for each in json.loads(checked.stdout)["faults"]
    }
    assert faults == {("sales", 2, "state"), ("sales", 5, "entries"), ("tours", None, "head")}


def test_one_fault_is_counted_in_the_singular(deployment: Deployment) -> None:
    with closing(sqlite3.connect(file_of(deployment))) as connection, connection:
        connection.execute("UPDATE lease SET head = 99 WHERE pipeline = 'tours'")
    assert call(deployment, "catalog", "check").stderr.endswith(" rows, 1 fault\n")


def test_an_undamaged_catalog_has_no_faults(deployment: Deployment) -> None:
    assert json.loads(call(deployment, "catalog", "check", "--json").stdout)["faults"] == []


@pytest.mark.parametrize(
    ("change", "faults"),
    [
        ("epoch = 999 WHERE pipeline = 'tours'", "found 1 is ahead of its pipeline's epoch or generation"),
        (
            "state = 'ABORTED', completed_at_ms = NULL WHERE pipeline = 'sales' AND checkpoint_id = 1",
            "2 continues from 1,",
        ),
    ],
)
def test_valid_rows_with_an_inconsistent_history_are_named(deployment: Deployment, change: str, faults: str) -> None:
    with closing(sqlite3.connect(file_of(deployment))) as connection, connection:
        connection.execute(f"UPDATE checkpoint SET {change}")
    checked = call(deployment, "catalog", "check")
    assert checked.exit_code == 1
    assert "history: expected a consistent history, found" in checked.stdout
    assert faults in checked.stdout
