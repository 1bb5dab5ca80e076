"""Restoring: the snapshots that can be restored into each backend, and the errors for all others."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from statelib.errors import CorruptStateError, InvalidRequestError
from statelib.model.handles import KeyGroupsSavepointStateHandle, KeyGroupsStateHandle
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import FieldMeaning, KeyedStateSchema, StateDescriptor, StateKind
from statelib.model.types import DOUBLE, LONG, STRING, Field, ListOf, MapOf, Row, StateType, Tuple
from statelib.restore.entries import iter_entries
from statelib.restore.live.keyed import restore_heap, restore_rocksdb
from statelib.restore.schemas.matching import as_stored
from statelib.testing.keyed_samples import MEANS, PER_PLACE, TOTALS, VISITS, all_entries, sample_schema
from statelib.testing.stored_snapshots import KEY_GROUPS, UID, Stored

RENAMED = replace(
    TOTALS,
    value_type=Row((Field("n", LONG), Field("most_recent", STRING))),
    meanings=(FieldMeaning("n", renamed_from=("count",)), FieldMeaning("most_recent", renamed_from=("last",))),
)


def _schema(*states: StateDescriptor, key: StateType = STRING, max_parallelism: int = 128) -> KeyedStateSchema:
    return KeyedStateSchema(key, max_parallelism, states)


def test_a_canonical_snapshot_restores_into_both_backends(canonical: Callable[[bool], Stored], tmp_path: Path) -> None:
    stored = canonical(True)
    heap = restore_heap(sample_schema(), KEY_GROUPS, [stored.source])
    rocksdb = restore_rocksdb(sample_schema(), KEY_GROUPS, [stored.source], str(tmp_path / "restored"), UID)
    assert all_entries(heap) == all_entries(rocksdb) == stored.entries
    rocksdb.close()


def test_rocksdb_files_restore_into_the_heap_with_a_scratch_directory(full: Stored, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        restore_heap(sample_schema(), KEY_GROUPS, [full.source])
    assert caught.value.kind == "no-scratch-directory"
    heap = restore_heap(sample_schema(), KEY_GROUPS, [full.source], str(tmp_path / "scratch"))
    assert all_entries(heap) == full.entries
    assert not list(tmp_path.glob("scratch*"))


def test_only_the_wanted_key_groups_are_restored(canonical: Callable[[bool], Stored]) -> None:
    stored = canonical(True)
    part = restore_heap(sample_schema(), KeyGroupRange(17, 63), [stored.source])
    expected = {name: {k: v for k, v in e.items() if 17 <= k[0] <= 63} for name, e in stored.entries.items()}
    assert all_entries(part) == expected
    assert part.key_group_range == KeyGroupRange(17, 63)


@pytest.mark.parametrize("key_groups", [KeyGroupRange(0, 0), KeyGroupRange(64, 127), KeyGroupRange(127, 127)])
def test_entries_of_rocksdb_files_are_cut_to_the_wanted_key_groups(
    full: Stored, tmp_path: Path, key_groups: KeyGroupRange
) -> None:
    results = [
        key
        for state, rows in iter_entries(full.source, key_groups, str(tmp_path / "scratch"))
        if state == 1
        for key in rows.keys.to_list()
    ]
    assert results == sorted(k for k in full.entries["means"] if k[0] in key_groups)


def test_states_are_matched_by_name_and_not_by_position(full: Stored, tmp_path: Path) -> None:
    schema = _schema(PER_PLACE, VISITS, MEANS, RENAMED)
    backend = restore_rocksdb(schema, KEY_GROUPS, [full.source], str(tmp_path / "restored"), UID)
    assert all_entries(backend) == full.entries
    assert [s.total_entries for s in backend.statistics()] == [len(full.entries[d.name]) for d in schema.states]
    backend.close()
    assert all_entries(restore_heap(schema, KEY_GROUPS, [full.source], str(tmp_path / "scratch"))) == full.entries


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (_schema(TOTALS, replace(MEANS, value_type=LONG), VISITS, PER_PLACE), "state 'means'.*long.*double"),
        (_schema(TOTALS, replace(MEANS, kind=StateKind.VALUE), VISITS, PER_PLACE), "state 'means'.*value.*reducing"),
        (_schema(TOTALS, MEANS, VISITS, PER_PLACE, key=LONG), "the key: .*long.*string"),
        (
            _schema(replace(TOTALS, value_type=Row((Field("n", LONG),))), MEANS, VISITS, PER_PLACE),
            "'totals'.*field 'n'.*'count' of the same type",
        ),
    ],
)
def test_the_error_names_the_state_with_a_changed_schema(
    full: Stored, tmp_path: Path, schema: KeyedStateSchema, message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message) as caught:
        restore_rocksdb(schema, KEY_GROUPS, [full.source], str(tmp_path / "restored"), UID)
    assert caught.value.kind == "state-schema-changed"
    with pytest.raises(InvalidRequestError, match=message):
        restore_heap(schema, KEY_GROUPS, [full.source], str(tmp_path / "scratch"))
    assert [p.name for p in tmp_path.iterdir()] == ["storage"]


def test_the_states_of_a_stream_must_be_those_of_its_manifest(canonical: Callable[[bool], Stored]) -> None:
    stored = canonical(False)
    schema = _schema(TOTALS, replace(MEANS, value_type=LONG), VISITS, PER_PLACE)
    with pytest.raises(InvalidRequestError, match="means") as caught:
        restore_heap(schema, KEY_GROUPS, [replace(stored.source, schema=schema)])
    assert caught.value.kind == "state-schema-changed"


def test_max_parallelism_cannot_change(canonical: Callable[[bool], Stored]) -> None:
    schema = sample_schema(64)
    with pytest.raises(InvalidRequestError, match=r"expected 64.*has 128") as caught:
        restore_heap(schema, KeyGroupRange(0, 63), [canonical(False).source])
    assert caught.value.kind == "max-parallelism-changed"


@pytest.mark.parametrize("compressed", [False, True])
def test_a_native_heap_snapshot_restores_into_the_heap_only(
    heap_native: Callable[[bool], Stored], tmp_path: Path, compressed: bool
) -> None:
    stored = heap_native(compressed)
    assert isinstance(stored.source.handle, KeyGroupsStateHandle)
    assert min(stored.source.handle.offsets) > 0
    assert stored.source.handle.state_handle_id == f"{UID}-1"
    assert all_entries(restore_heap(sample_schema(), KEY_GROUPS, [stored.source])) == stored.entries
    part = all_entries(restore_heap(sample_schema(), KeyGroupRange(17, 63), [stored.source]))
    assert part == {name: {k: v for k, v in e.items() if 17 <= k[0] <= 63} for name, e in stored.entries.items()}
    with pytest.raises(InvalidRequestError, match="KeyGroupsStateHandle") as caught:
        restore_rocksdb(sample_schema(), KEY_GROUPS, [stored.source], str(tmp_path / "restored"), UID)
    assert caught.value.kind == "backend-changed"
    assert not (tmp_path / "restored").exists()


@pytest.mark.parametrize("compressed", [False, True])
def test_the_type_of_the_handle_selects_the_reader_of_the_stream(
    canonical: Callable[[bool], Stored], compressed: bool
) -> None:
    stored = canonical(compressed)
    old = stored.source.handle
    assert isinstance(old, KeyGroupsSavepointStateHandle)
    wrong = KeyGroupsStateHandle(old.key_group_range, old.offsets, old.stream)
    with pytest.raises(CorruptStateError, match="Unexpected key-group in restore: expected key group") as caught:
        restore_heap(sample_schema(), KEY_GROUPS, [replace(stored.source, handle=wrong)])
    assert caught.value.kind == "unexpected-key-group"


def test_a_heap_stream_is_refused_as_a_canonical_stream(heap_native: Callable[[bool], Stored]) -> None:
    stored = heap_native(False)
    old = stored.source.handle
    assert isinstance(old, KeyGroupsStateHandle)
    wrong = KeyGroupsSavepointStateHandle(old.key_group_range, old.offsets, old.stream)
    with pytest.raises(CorruptStateError):
        restore_heap(sample_schema(), KEY_GROUPS, [replace(stored.source, handle=wrong, statistics=None)])


def test_a_restore_without_sources_gives_an_empty_backend(tmp_path: Path) -> None:
    assert all_entries(restore_heap(sample_schema(), KEY_GROUPS, [])) == {d.name: {} for d in sample_schema().states}
    backend = restore_rocksdb(sample_schema(), KEY_GROUPS, [], str(tmp_path / "restored"), UID)
    assert all_entries(backend) == {d.name: {} for d in sample_schema().states}
    backend.close()


def test_field_names_of_rows_are_ignored_at_any_depth() -> None:
    def of(first: str) -> StateType:
        row = Row((Field(first, DOUBLE), Field("x", LONG)))
        return Tuple((ListOf(row), MapOf(STRING, row)))

    assert of("a") != of("b")
    assert as_stored(of("a")) == as_stored(of("b"))
    assert str(as_stored(of("a"))) == ("tuple<list<row<f0: double, f1: long>>, map<string, row<f0: double, f1: long>>>")
