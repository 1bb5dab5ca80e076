"""Native snapshots of Flink's heap backend contain exactly the state that the jobs recorded, compared by exported
lines."""

import struct
from dataclasses import replace
from pathlib import Path

import pytest

from statelib.errors import CorruptStateError, InvalidRequestError, StatelibError
from statelib.formats.canonical.reading import iter_canonical, read_header
from statelib.formats.heap.encoder import HeapStream
from statelib.formats.heap.reading import iter_heap
from statelib.formats.keyed.group_spans import ReadRange
from statelib.formats.keyed.header import KeyedHeader
from statelib.model.handles import ByteStreamStateHandle, KeyGroupsSavepointStateHandle, KeyGroupsStateHandle
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import StateKind
from statelib.restore.entries import iter_entries
from statelib.restore.live.keyed import restore_heap, restore_rocksdb
from statelib.savepoints.opened import Checkpoint
from statelib.testing.keyed_samples import all_entries
from tests.golden.flink_fixtures import ROOT
from tests.golden.flink_fixtures import opened as newest

KINDS = [
    "1.20.5/kinds-hashmap-native-p2",
    "2.3.0/kinds-hashmap-native-p2",
    "1.20.5/hashmap-full-checkpoint",
    "1.20.5/compressed-hashmap-full-checkpoint",
]
UID = "5a7b0000-0000-0000-0000-000000000000"


def opened(fixture: str) -> Checkpoint:
    return newest(ROOT / fixture)


def stream_of(checkpoint: Checkpoint) -> tuple[KeyGroupsStateHandle, ReadRange, KeyedHeader]:
    handle = checkpoint.handles()[0]
    assert isinstance(handle, KeyGroupsStateHandle)
    data = memoryview(checkpoint.reader().read(handle.stream))
    return handle, lambda start, stop: data[start:stop], read_header(lambda a, b: data[a:b], handle, 128)


@pytest.mark.parametrize("fixture", KINDS)
def test_a_native_heap_snapshot_is_restored_into_the_heap_at_another_parallelism(fixture: str) -> None:
    sources, schema = opened(fixture).sources(), opened(fixture).schema()
    whole = all_entries(restore_heap(schema, KeyGroupRange(0, 127), sources))
    parts: dict[str, dict[bytes, bytes]] = {name: {} for name in whole}
    for key_groups in (KeyGroupRange(0, 40), KeyGroupRange(41, 99), KeyGroupRange(100, 127)):
        for name, entries in all_entries(restore_heap(schema, key_groups, sources)).items():
            assert all(key[0] in key_groups for key in entries)
            parts[name] |= entries
    assert parts == whole
    assert all(whole[d.name] for d in schema.states if d.kind is not StateKind.TIMERS)  # No job of these has timers.


@pytest.mark.parametrize("fixture", KINDS)
def test_a_stream_that_is_written_back_has_the_same_length_and_entries(fixture: str) -> None:
    checkpoint = opened(fixture)
    schema, source = checkpoint.schema(), checkpoint.sources()[0]
    backend = restore_heap(schema, source.handle.key_group_range, [source])
    handle, _, header = stream_of(checkpoint)
    content = HeapStream(schema, handle.key_group_range, [backend.scan(d.name) for d in schema.states], False)
    ours = b"".join(content)
    again = replace(source, handle=replace(handle, offsets=content.offsets, stream=ByteStreamStateHandle("x", ours)))
    assert all_entries(restore_heap(schema, handle.key_group_range, [again])) == all_entries(backend)
    if not header.compressed:
        groups = len(ours) - content.offsets[0]
        assert groups == handle.stream.size_bytes - header.size_bytes


def test_rocksdb_refuses_a_native_heap_snapshot_by_name(tmp_path: Path) -> None:
    checkpoint = opened(KINDS[0])
    with pytest.raises(InvalidRequestError, match="KeyGroupsStateHandle") as caught:
        restore_rocksdb(checkpoint.schema(), KeyGroupRange(0, 127), checkpoint.sources(), str(tmp_path / "db"), UID)
    assert caught.value.kind == "backend-changed"
    assert caught.value.hint is not None
    assert "canonical savepoint" in caught.value.hint
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("fixture", KINDS)
def test_a_heap_stream_is_refused_as_a_canonical_stream(fixture: str) -> None:
    checkpoint = opened(fixture)
    source = checkpoint.sources()[0]
    handle, read_range, header = stream_of(checkpoint)
    for group in handle.key_group_range:
        wanted = KeyGroupRange(group, group)
        wrong = KeyGroupsSavepointStateHandle(handle.key_group_range, handle.offsets, handle.stream)
        with pytest.raises(CorruptStateError):
            list(iter_canonical(read_range, wrong, header, wanted))
    with pytest.raises(CorruptStateError):
        list(iter_entries(replace(source, handle=wrong)))


def test_a_canonical_stream_is_refused_as_a_heap_stream() -> None:
    for fixture in ("kinds-hashmap-canonical-p1", "compressed-hashmap-canonical", "maxpar32768-hashmap-canonical"):
        checkpoint = opened(f"1.20.5/{fixture}")
        source = checkpoint.sources()[0]
        assert isinstance(source.handle, KeyGroupsSavepointStateHandle)
        handle = KeyGroupsStateHandle(source.handle.key_group_range, source.handle.offsets, source.handle.stream)
        with pytest.raises(CorruptStateError, match="Unexpected key-group in restore") as caught:
            list(iter_entries(replace(source, handle=handle)))
        assert caught.value.kind == "unexpected-key-group"


@pytest.mark.parametrize("group", range(128))
def test_each_single_key_group_of_a_canonical_stream_is_refused(group: int) -> None:
    """This includes the first key group, whose canonical bytes begin like key group 0 of a heap stream."""
    source = opened("1.20.5/kinds-hashmap-canonical-p1").sources()[0]
    assert isinstance(source.handle, KeyGroupsSavepointStateHandle)
    offset = source.handle.offsets[group]
    handle = KeyGroupsStateHandle(KeyGroupRange(group, group), (offset,), source.handle.stream)
    with pytest.raises(StatelibError) as caught:
        list(iter_entries(replace(source, handle=handle)))
    assert caught.value.kind == ("unexpected-key-group" if group or not offset else "unknown-state-id")


def test_a_timer_in_a_heap_stream_is_read() -> None:
    """One event timer is put into the last key group of a stream of Flink, which has no timers there."""
    handle, read_range, header = stream_of(opened(KINDS[0]))
    data, size = bytes(read_range(0, handle.stream.size_bytes)), handle.stream.size_bytes
    timer_id = max(i for i, state in enumerate(header.schema.states) if state.kind is StateKind.TIMERS)
    last = data[handle.offsets[-1] :]
    at = handle.offsets[-1] + last.rindex(struct.pack(">Hi", timer_id, 0))
    timer = struct.pack(">Qq", 1_700_000_000_000 ^ (1 << 63), 42) + b"\0"
    changed = data[:at] + struct.pack(">Hi", timer_id, 1) + timer + data[at + 6 :]
    assert len(changed) == size + 17
    view = memoryview(changed)

    def read(start: int, stop: int) -> memoryview:
        return view[start:stop]

    stream = replace(handle, stream=ByteStreamStateHandle("x", changed))
    timer_rows = [rows for state, rows in iter_heap(read, stream, header) if state == timer_id]
    assert [rows.keys.to_list() for rows in timer_rows] == [[bytes([handle.key_group_range.end]) + timer]]
    assert [rows.values.to_list() for rows in timer_rows] == [[b""]]


def test_the_fixtures_include_every_kind_of_state() -> None:
    kinds = {d.kind for d in opened(KINDS[0]).schema().states}
    assert kinds == set(StateKind)
