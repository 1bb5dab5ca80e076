"""A state as a table in parts: every entry is in one part, and no more is read than the columns and groups need."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from statelib.errors import CorruptStateError, InvalidRequestError
from statelib.model.handles import KeyGroupsSavepointStateHandle
from statelib.model.state import KeyedStateSchema, StateDescriptor
from statelib.model.types import LONG, STRING
from statelib.savepoints.opened import Checkpoint, open_checkpoint
from statelib.savepoints.tables.state_table import Split, StateTable, group_bytes, state_table
from statelib.serializers.entries.keys import key_groups
from statelib.testing.counting_reader import counting
from statelib.testing.keyed_samples import PER_PLACE
from statelib.testing.stored_snapshots import stored_canonical, stored_heap, stored_rocksdb
from tests.support.stored_longs import COUNTS, SCHEMA, long_columns, store_longs

pytestmark = pytest.mark.slow

ENTRIES = 4_000


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return store_longs(tmp_path_factory.mktemp("longs"), ENTRIES, parallelism=3)


def opened(directory: Path) -> Checkpoint:
    return open_checkpoint(str(directory))


def whole(table: StateTable, splits: tuple[Split, ...], *columns: str) -> pa.Table:
    names = columns or table.arrow_schema().names
    empty = table.arrow_schema().empty_table().select(names)
    return pa.concat_tables([empty, *(part for split in splits for part in table.read(split, names))])


def text(table: pa.Table) -> str:
    """Return the rows as text, because a NaN equals no value but its text does."""
    return repr(table.to_pylist())


@pytest.mark.parametrize("parts", [None, 1, 2, 7, 128, 1000])
def test_every_entry_is_in_exactly_one_part(directory: Path, parts: int | None) -> None:
    table = state_table(opened(directory), None)
    splits = table.splits(None, parts, 2)
    assert len(splits) == {None: 3, 1: 3, 2: 3, 1000: 128}.get(parts, len(splits))
    groups = [group for split in splits for run in split.runs for group in run]
    assert groups == sorted(set(groups))
    rows = whole(table, splits)
    assert rows.select(["key", "value"]).sort_by("key") == long_columns(ENTRIES)
    assert rows["key_group"].to_pylist() == key_groups(SCHEMA, rows["key"].combine_chunks()).tolist()


def test_parts_have_about_equal_sizes(directory: Path) -> None:
    table = state_table(opened(directory), COUNTS.name)
    sizes = [_bytes(table, split) for split in table.splits(None, 9, 2)]
    assert len(sizes) == 9
    assert max(sizes) < 2 * min(sizes)


def test_for_a_few_key_groups_only_their_bytes_are_read(directory: Path) -> None:
    read: dict[str, int] = {}
    for name, wanted in (("all", None), ("two", {17, 99}), ("none", {128})):
        snapshot = counting(opened(directory))
        table = state_table(snapshot, None)
        snapshot.read_bytes.clear()
        rows = whole(table, table.splits(wanted, None, 2))
        read[name] = sum(snapshot.read_bytes.values())
        assert set(rows["key_group"].to_pylist()) == (set(range(128)) if wanted is None else wanted & {17, 99})
    assert read["none"] == 0
    headers = 2 * _header_bytes(directory)
    groups = sum(_group_bytes(directory, group) for group in (17, 99))
    assert read["two"] == headers + groups
    assert read["two"] < read["all"] / 10


def test_the_ranges_of_parts_do_not_overlap(directory: Path) -> None:
    table = state_table(opened(directory), None)
    splits = table.splits(frozenset(range(0, 128, 5)), 4, 2)
    for one in splits:
        for other in splits:
            if one is not other and one.source == other.source:
                assert not len(one.span.intersection(other.span))


def test_values_are_not_decoded_if_their_column_is_not_requested(directory: Path) -> None:
    """The values are declared as strings and are none, so that a read of them would fail."""
    table = state_table(opened(directory), None)
    wrong = replace(table, schema=replace(SCHEMA, states=(replace(COUNTS, value_type=STRING),)))
    splits = wrong.splits(None, None, 2)
    assert sorted(whole(wrong, splits, "key")["key"].to_pylist()) == long_columns(ENTRIES)["key"].to_pylist()
    with pytest.raises(CorruptStateError, match="state counts"):
        whole(wrong, splits, "key", "value")


def test_columns_have_the_requested_order(directory: Path) -> None:
    table = state_table(opened(directory), None)
    rows = whole(table, table.splits({3}, None, 2), "value", "key_group")
    assert rows.column_names == ["value", "key_group"]
    assert set(rows["key_group"].to_pylist()) == {3}
    assert pc.min(rows["value"]).as_py() >= 1


def test_unknown_states_are_named(directory: Path) -> None:
    with pytest.raises(InvalidRequestError, match=r"count.*known states are counts") as caught:
        state_table(opened(directory), "count")
    assert caught.value.kind == "unknown-state"


def test_the_sizes_of_key_groups_add_up_to_the_stream(directory: Path) -> None:
    for handle in opened(directory).handles():
        sizes = group_bytes(handle)
        assert isinstance(handle, KeyGroupsSavepointStateHandle)
        assert int(sizes.sum()) == handle.stream.size_bytes - min(o for o in handle.offsets if o)
        assert np.array_equal(sizes > 0, np.array(handle.offsets) > 0)


FLINK = Path(__file__).resolve().parents[2] / "golden" / "flink"
FOREIGN = (
    "1.20.5/kinds-hashmap-native-p2",
    "1.20.5/kinds-hashmap-canonical-p4-files",
    "2.3.0/windows-hashmap-canonical",
    "1.20.5/ttl-hashmap-canonical",
)


@pytest.mark.parametrize("fixture", FOREIGN)
def test_every_state_and_column_of_flink_jobs_is_read(fixture: str) -> None:
    """Windows have namespaces, timers have timestamps, and states share their streams with others."""
    (path,) = (FLINK / fixture).glob("savepoint-*")
    for part in opened(path).each_operator():
        for state in part.schema().states:
            table, expected = state_table(part, state.name), part.to_arrow(state.name)
            rows = whole(table, table.splits(None, None, 2))
            assert text(rows) == text(expected)
            for column in expected.column_names:
                assert text(whole(table, table.splits(None, None, 2), column)) == text(expected.select([column]))


@pytest.mark.parametrize("kind", ["canonical", "heap", "rocksdb"])
def test_each_kind_of_snapshot_is_read_in_parts(kind: str, tmp_path: Path) -> None:
    if kind == "rocksdb":
        stored = stored_rocksdb(tmp_path / "state", tmp_path / "db")
    else:
        stored = {"canonical": stored_canonical, "heap": stored_heap}[kind](tmp_path / "state", compressed=True)
    for state in stored.source.schema.states:
        table = StateTable(stored.directory.as_uri(), stored.source.schema, state.name, (stored.source,))
        splits = table.splits(None, None, 4)
        assert len(splits) == (1 if kind == "rocksdb" else 4), "a copy of RocksDB's files is made once"
        assert len(table.splits(None, 4, 1)) == 4
        rows = whole(table, splits)
        assert len(rows) == len(stored.entries[state.name]) > 50
        some = {int(group) for group in rows["key_group"].to_pylist()[:7]}
        filtered = rows.filter(pc.is_in(rows["key_group"], pa.array(sorted(some), pa.int32())))
        assert sorted(map(repr, _only(table, some).to_pylist())) == sorted(map(repr, filtered.to_pylist()))
    assert not list(tmp_path.glob("statelib-scratch-*"))


def test_user_keys_are_not_decoded_if_their_column_is_not_requested(tmp_path: Path) -> None:
    stored = stored_canonical(tmp_path, compressed=True)
    schema = stored.source.schema
    wrong = replace(
        schema, states=tuple(replace(s, user_key_type=LONG) if s == PER_PLACE else s for s in schema.states)
    )
    table = StateTable(stored.directory.as_uri(), wrong, PER_PLACE.name, (stored.source,))
    splits = table.splits(None, None, 1)
    assert len(whole(table, splits, "key", "value")) == len(stored.entries[PER_PLACE.name])
    with pytest.raises(CorruptStateError):
        whole(table, splits, "key", "user_key")


def _with(schema: KeyedStateSchema, other: StateDescriptor) -> KeyedStateSchema:
    return replace(schema, states=tuple(other if state.name == other.name else state for state in schema.states))


def _only(table: StateTable, groups: set[int]) -> pa.Table:
    """Return the rows of the key groups, filtered again after reading, as Spark does."""
    rows = whole(table, table.splits(groups, None, 4))
    return rows.filter(pc.is_in(rows["key_group"], pa.array(sorted(groups), pa.int32())))


def _bytes(table: StateTable, split: Split) -> int:
    handle = table.sources[split.source].handle
    sizes = group_bytes(handle)
    return sum(int(sizes[g - handle.key_group_range.start]) for run in split.runs for g in run)


def _group_bytes(directory: Path, group: int) -> int:
    (handle,) = [h for h in opened(directory).handles() if group in h.key_group_range]
    return int(group_bytes(handle)[group - handle.key_group_range.start])


def _header_bytes(directory: Path) -> int:
    handle = opened(directory).handles()[0]
    assert isinstance(handle, KeyGroupsSavepointStateHandle)
    return min(offset for offset in handle.offsets if offset)
