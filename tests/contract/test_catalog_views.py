"""The views for SQL, on both databases, show the content of the catalog."""

import dataclasses
import re
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import pytest
from alembic.command import upgrade as real_upgrade
from sqlalchemy import create_engine, text

from statelib.catalog.catalog import Catalog
from statelib.catalog.views.history import CHECKPOINT_HISTORY, VIEWS
from statelib.errors import InvalidRequestError
from statelib.model.checkpoint import SnapshotMeasure
from statelib.model.failure import CheckpointFailureReason
from statelib.model.ids import CheckpointId
from statelib.model.record import mend_key, mended_interval
from tests.contract import catalog_kit
from tests.contract.catalog_kit import PIPE, complete, day, locate, request

postgresql, url, catalog = catalog_kit.postgresql, catalog_kit.url, catalog_kit.catalog
MOMENTS = (0, 1, 999, 1_000, 1_357_084_800_123, 1_700_000_000_007, 4_102_444_799_999, -1, -86_400_001)


@pytest.mark.parametrize("view", VIEWS)
def test_the_views_have_the_columns_that_are_documented(catalog: Catalog, url: str, view: str) -> None:
    with create_engine(url).connect() as connection:
        assert list(connection.execute(text(f"SELECT * FROM {view}")).keys()) == list(VIEWS[view])


def test_the_row_of_a_completed_checkpoint_has_all_its_facts(catalog: Catalog) -> None:
    first = complete(catalog, 0)
    second = complete(catalog, 1)
    newest, oldest = catalog.history.checkpoints(PIPE, None)
    assert list(newest) == list(CHECKPOINT_HISTORY)
    assert (oldest["is_head"], newest["is_head"], newest["base"]) == (0, 1, first.checkpoint_id)
    assert second.interval is not None
    assert second.completed_at_ms is not None
    assert newest["interval_start"] == iso(second.interval.start_ms)
    assert newest["completed_at"] == iso(second.completed_at_ms)
    assert newest["duration_ms"] == second.completed_at_ms - second.created_at_ms > 0
    assert newest["lag_ms"] == second.completed_at_ms - second.interval.end_ms
    assert second.events is not None
    assert newest["events_per_second"] == pytest.approx(second.events.applied * 1000 / newest["duration_ms"])
    assert (newest["entries"], newest["size_bytes"]) == (second.entries, second.size_bytes)
    assert newest["attempts"] == 1


def test_a_correction_has_the_interval_that_it_corrects(catalog: Catalog) -> None:
    mended = day(0)
    wanted = dataclasses.replace(request(1), interval=None, mends=mended, key=mend_key(mended, CheckpointId(1)))
    complete(catalog, 0)
    catalog.begin(wanted, locate)
    correction, other = catalog.history.checkpoints(PIPE, None)
    assert (correction["interval_start"], correction["interval_end_ms"]) == (None, None)
    assert (correction["mended_start"], correction["mended_end"]) == (iso(mended.start_ms), iso(mended.end_ms))
    assert (correction["mended_start_ms"], correction["mended_end_ms"]) == (mended.start_ms, mended.end_ms)
    assert [other[f"mended_{name}"] for name in ("start", "end", "start_ms", "end_ms")] == [None] * 4


@pytest.mark.parametrize("key", ["mend:", "mend::@", "mend:x:y@1", "mend:-5:-1@7", "a mend:1:2@3"])
def test_only_the_key_of_a_correction_has_a_mended_interval(catalog: Catalog, url: str, key: str) -> None:
    complete(catalog, 0)
    with create_engine(url).begin() as connection:
        connection.execute(text("UPDATE checkpoint SET idempotency_key = :key"), {"key": key})
        bounds = connection.execute(text("SELECT mended_start_ms, mended_end_ms FROM checkpoint_history")).one()
    mended = mended_interval(key)
    assert tuple(bounds) == ((None, None) if mended is None else (mended.start_ms, mended.end_ms))


def test_a_catalog_of_the_first_schema_is_migrated(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    old = Catalog(url, catalog_kit.clock)
    with monkeypatch.context() as patched:
        patched.setattr("alembic.command.upgrade", lambda config, _: real_upgrade(config, "0007"))
        old.migrate()
    with create_engine(url).begin() as connection:
        names = list(connection.execute(text("SELECT * FROM checkpoint_history")).keys())
        assert "mended_start" not in names
    with pytest.raises(InvalidRequestError, match="expected schema 0009, found 0007"):
        complete(Catalog(url, catalog_kit.clock), 0)
    old.migrate()
    complete(old, 0)
    assert old.history.checkpoints(PIPE, None)[0]["mended_start"] is None


def test_the_row_has_the_measured_cost_if_there_is_one(catalog: Catalog) -> None:
    record = complete(catalog, 0)
    (row,) = catalog.history.checkpoints(None, None)
    cost = record.measured or SnapshotMeasure(0, 0)
    for name in ("upload_ms", "uploaded_bytes", "keys_changed"):
        assert row[name] == getattr(cost, name)


def test_pending_and_aborted_checkpoints_have_rows_with_their_reason(catalog: Catalog) -> None:
    begun = catalog.begin(request(0), locate)
    (row,) = catalog.history.checkpoints(PIPE, 1)
    assert (row["state"], row["completed_at"], row["duration_ms"], row["failure"]) == ("PENDING", None, None, None)
    catalog.abort(PIPE, begun.checkpoint_id, "no more", CheckpointFailureReason.TASK_FAILURE)
    (row,) = catalog.history.checkpoints(PIPE, 1)
    assert (row["state"], row["failure"], row["reason"]) == ("ABORTED", "TASK_FAILURE", "no more")


def test_the_newest_checkpoints_come_first_up_to_the_limit(catalog: Catalog) -> None:
    for number in range(4):
        complete(catalog, number)
    assert [row["checkpoint_id"] for row in catalog.history.checkpoints(PIPE, 3)] == [4, 3, 2]


@pytest.mark.parametrize("ms", MOMENTS)
def test_times_are_exact_to_the_millisecond(catalog: Catalog, url: str, ms: int) -> None:
    complete(catalog, 0)
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE checkpoint SET interval_start_ms = :ms"), {"ms": ms})
        assert connection.execute(text("SELECT interval_start FROM checkpoint_history")).scalar() == iso(ms)


def test_the_newest_run_of_the_gate_is_marked(catalog: Catalog, url: str) -> None:
    record = complete(catalog, 0)
    insert = (
        "INSERT INTO quality_result (pipeline, checkpoint_id, run, position, check_group, check_name, severity, "
        "passed, checked, failed, sentences, at_ms) "
        "VALUES (:p, :c, :run, 0, 'structure', 'files', 'fail', :passed, 5, 0, '[]', :ms)"
    )
    with create_engine(url).begin() as connection:
        for run, passed in ((1, 0), (2, 1)):
            values = {"p": PIPE, "c": record.checkpoint_id, "run": run, "passed": passed, "ms": 1_000 * run}
            connection.execute(text(insert), values)
        rows = connection.execute(text("SELECT run, passed, is_newest, at FROM quality_history ORDER BY run")).all()
    assert [tuple(row) for row in rows] == [(1, 0, 0, iso(1_000)), (2, 1, 1, iso(2_000))]


def test_the_storage_view_has_one_row_per_sample(catalog: Catalog, url: str) -> None:
    complete(catalog, 0)
    with create_engine(url).begin() as connection:
        connection.execute(text("INSERT INTO storage_sample VALUES (:p, 5, 1, 2, 3, 4, 5)"), {"p": PIPE})
        assert tuple(connection.execute(text("SELECT * FROM storage_history")).one()) == (
            PIPE, iso(5), 1, 2, 3, 4, 5, 5,
        )  # fmt: skip


def test_sqlite_itself_reads_the_views(tmp_path: object) -> None:
    """A BI tool has its own SQLite, without functions of statelib."""
    path = f"{tmp_path}/catalog.db"
    made = Catalog(f"sqlite:///{path}", catalog_kit.clock)
    made.migrate()
    complete(made, 0)
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT interval_end FROM checkpoint_history").fetchone() == (iso(day(0).end_ms),)


def iso(ms: int) -> str:
    moment = datetime.fromtimestamp(ms // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z"


DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "observability.md"
QUERIES = re.findall(r"```sql\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)


@pytest.mark.parametrize("query", QUERIES, ids=["head", "cost", "failures"])
def test_the_queries_of_the_document_return_rows(catalog: Catalog, url: str, query: str) -> None:
    complete(catalog, 0)
    last = complete(catalog, 1)
    begun = catalog.begin(request(2), locate)
    catalog.abort(PIPE, begun.checkpoint_id, "no more", CheckpointFailureReason.TASK_FAILURE)
    with create_engine(url).connect() as connection:
        rows = [dict(row) for row in connection.execute(text(query)).mappings()]
    assert [row["pipeline"] for row in rows] == [PIPE]
    (row,) = rows
    if "is_head" in query:
        assert (row["checkpoint_id"], row["entries"]) == (last.checkpoint_id, last.entries)
    elif "ABORTED" in query:
        assert (row["failure"], row["times"]) == ("TASK_FAILURE", 1)
    else:
        assert (row["checkpoints"], row["day"]) == (2, "1970-01-01")
