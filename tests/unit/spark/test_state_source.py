"""The data source without a session: the bytes that its reader reads after filters were pushed down."""

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.datasource import CaseInsensitiveDict, EqualTo, Filter, GreaterThanOrEqual

from statelib.errors import InvalidRequestError, NotFoundError, StatelibError
from statelib.savepoints.opened import Checkpoint
from statelib.spark.dataframe import options
from statelib.spark.dataframe.metadata_source import MetadataDataSource
from statelib.spark.dataframe.state_source import StateDataSource
from statelib.testing.counting_reader import counting
from tests.support.stored_longs import SCHEMA, STRIDE, UID, long_columns, store_longs

ENTRIES = 20_000
READ: Counter[str] = Counter()


class Counted(StateDataSource):
    """The data source, except that READ counts what its readers read."""

    cores = 4

    def opened(self) -> Checkpoint:
        snapshot = counting(super().opened())
        object.__setattr__(snapshot, "read_bytes", READ)
        return snapshot


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return store_longs(tmp_path_factory.mktemp("longs"), ENTRIES)


def read(directory: Path, *filters: Filter, **options: str) -> tuple[list[dict[str, object]], int, int]:
    """Return (rows, parts, bytes read from storage by the tasks)."""
    source = Counted(CaseInsensitiveDict({"path": str(directory), **options}))
    reader = source.reader(source.schema())
    assert list(reader.pushFilters(list(filters))) == list(filters)
    parts = reader.partitions()
    READ.clear()
    rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    return rows, len(parts), READ.total()


def test_for_one_key_only_its_key_group_is_read(directory: Path) -> None:
    every, parts, all_bytes = read(directory)
    assert (len(every), parts) == (ENTRIES, 4)
    result, parts, read_bytes = read(directory, EqualTo(("key",), 77 * STRIDE))
    assert parts == 1
    assert {"key": 77 * STRIDE, "value": 77 * STRIDE % 1000 + 1} in [
        {"key": row["key"], "value": row["value"]} for row in result
    ]
    assert len({row["key_group"] for row in result}) == 1
    assert 0 < read_bytes < all_bytes / 50


def test_for_a_range_of_key_groups_only_its_share_is_read(directory: Path) -> None:
    _, _, all_bytes = read(directory)
    result, _, read_bytes = read(directory, GreaterThanOrEqual(("key_group",), 96))
    assert {row["key_group"] for row in result} == set(range(96, 128))
    assert read_bytes < all_bytes / 3


def test_without_key_groups_there_are_no_parts(directory: Path) -> None:
    assert read(directory, EqualTo(("key_group",), 500)) == ([], 0, 0)
    source = Counted(CaseInsensitiveDict({"path": str(directory)}))
    assert list(source.reader(source.schema()).read(None)) == []


def test_columns_and_the_uid_of_the_operator_are_options(directory: Path) -> None:
    rows, parts, _ = read(directory, operator=UID, columns="value, key", partitions="7")
    assert parts == 7
    assert sorted(row["key"] for row in rows) == long_columns(ENTRIES)["key"].to_pylist()
    assert list(rows[0]) == ["value", "key"]


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"state": "nope"}, "unknown-state"),
        ({"operator": "nope"}, "no-operator"),
        ({"columns": "key,nope"}, "unknown-column"),
        ({"columns": "key,key"}, "unknown-column"),
        ({"columns": ""}, "unknown-column"),
        ({"partitions": "0"}, "bad-option"),
        ({"states": "counts"}, "unknown-option"),
        ({"relocate": "/a"}, "bad-relocate"),
        ({"path": ""}, "no-path"),
        ({"path": "/nowhere"}, "no-metadata"),
        ({"path": "sales/4", "relocate": "/a=/b"}, "bad-relocate"),
    ],
)
def test_errors_have_a_kind_and_name_it_in_a_note(directory: Path, options: dict[str, str], kind: str) -> None:
    with pytest.raises(StatelibError) as caught:
        read(directory, **{"path": str(directory), **options}) if "path" not in options else _planned(options)
    assert caught.value.kind == kind
    assert f"kind: {kind}" in caught.value.__notes__


def _planned(options: dict[str, str]) -> None:
    source = StateDataSource(CaseInsensitiveDict(options))
    source.reader(source.schema())


def test_a_directory_with_the_name_of_a_pipeline_does_not_hide_its_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sales").mkdir()
    monkeypatch.chdir(tmp_path)
    asked: list[str] = []
    monkeypatch.setattr(options, "deployment", lambda: None)
    monkeypatch.setattr(options, "resolve", lambda _deployment, text: asked.append(text))
    options.snapshot_of({"path": "sales"})
    assert asked == ["sales"]


def test_a_schema_of_the_users_own_is_refused(directory: Path) -> None:
    source = StateDataSource(CaseInsensitiveDict({"path": str(directory)}))
    other = StateDataSource(CaseInsensitiveDict({"path": str(directory), "columns": "key"})).schema()
    with pytest.raises(InvalidRequestError) as caught:
        source.reader(other)
    assert caught.value.kind == "bad-schema"


def test_a_snapshot_without_a_manifest_has_metadata_without_entry_counts(directory: Path) -> None:
    source = MetadataDataSource(CaseInsensitiveDict({"path": str(directory)}))
    batch = pa.Table.from_batches(source.reader(source.schema()).read(None))
    assert batch.num_rows == SCHEMA.max_parallelism
    assert batch["key_group"].to_pylist() == list(range(SCHEMA.max_parallelism))
    assert set(batch["subtask"].to_pylist()) == {0, 1}
    assert set(batch["entries"].to_pylist()) == {None}
    assert min(batch["key_group_bytes"].to_pylist()) > 0
    assert (batch["state"][0].as_py(), batch["key_type"][0].as_py()) == ("counts", "long")
    unknown = MetadataDataSource(CaseInsensitiveDict({"path": str(directory), "operator": "nope"}))
    with pytest.raises(NotFoundError):
        unknown.reader(unknown.schema())
