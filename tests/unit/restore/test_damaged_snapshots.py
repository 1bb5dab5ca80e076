"""Damaged snapshots are refused with a typed error, or what is damaged did not matter; never served."""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from statelib.backends.keyed import KeyedStateBackend
from statelib.errors import CorruptStateError, StatelibError
from statelib.model.handles import IncrementalRemoteKeyedStateHandle, RelativeFileStateHandle
from statelib.model.state import StateStatistics
from statelib.restore.live.keyed import restore_heap, restore_rocksdb
from statelib.restore.plan import RestoreSource
from statelib.testing.keyed_samples import all_entries
from statelib.testing.stored_snapshots import KEY_GROUPS, UID, Stored

pytestmark = pytest.mark.slow

Restore = Callable[[RestoreSource], KeyedStateBackend]


@pytest.fixture
def in_place(tmp_path: Path) -> Restore:
    return lambda source: restore_rocksdb(source.schema, KEY_GROUPS, [source], str(tmp_path / "restored"), UID)


@pytest.fixture
def entry_by_entry(tmp_path: Path) -> Restore:
    return lambda source: restore_heap(source.schema, KEY_GROUPS, [source], str(tmp_path / "scratch"))


@pytest.fixture(autouse=True)
def _nothing_is_left(tmp_path: Path) -> Iterator[None]:
    yield
    assert sorted(p.name for p in tmp_path.iterdir()) == ["storage"]


def _is_harmless_or_refused(restore: Restore, stored: Stored, source: RestoreSource | None = None) -> bool:
    """Return whether the damage was detected; if not, assert that all entries are correct."""
    try:
        backend = restore(source or stored.source)
    except StatelibError:
        return True
    entries = all_entries(backend)
    backend.close()
    assert entries == stored.entries
    return False


@pytest.mark.parametrize("prefix", ["MANIFEST", "CURRENT", "0"])
def test_a_flipped_bit_of_a_rocksdb_file_is_detected(in_place: Restore, full: Stored, prefix: str) -> None:
    handle = full.source.handle
    assert isinstance(handle, IncrementalRemoteKeyedStateHandle)
    seen = []
    for name, stream in handle.private:
        if not name.startswith(prefix):
            continue
        path = full.directory / stream.path
        good = path.read_bytes()
        for bit in random.Random(7).sample(range(len(good) * 8), 20):
            bad = bytearray(good)
            bad[bit // 8] ^= 1 << bit % 8
            path.write_bytes(bad)
            seen.append(_is_harmless_or_refused(in_place, full))
        path.write_bytes(good)
    assert sum(seen) >= len(seen) * 0.8  # Some bits of an SST file have no effect (properties that are not read).


def test_the_error_for_a_flipped_bit_in_an_entry_names_state_and_key_group(
    entry_by_entry: Restore, canonical: Callable[[bool], Stored]
) -> None:
    stored = canonical(False)
    path = stored.path("")
    data = bytearray(path.read_bytes())
    key, value = next((k, v) for k, v in stored.entries["means"].items() if any(v))
    at = data.index(key[1:] + len(value).to_bytes(4, "big") + value) + len(key) + 3
    data[at + len(value) - 1] ^= 0x10
    path.write_bytes(data)
    with pytest.raises(CorruptStateError, match=f"'means', key group {key[0]}: expected") as caught:
        entry_by_entry(stored.source)
    assert caught.value.kind == "restore-mismatch"


@pytest.mark.parametrize("compressed", [False, True])
def test_every_flipped_bit_of_a_canonical_stream_is_detected(
    entry_by_entry: Restore, canonical: Callable[[bool], Stored], compressed: bool
) -> None:
    stored = canonical(compressed)
    path = stored.path("")
    good = path.read_bytes()
    for bit in random.Random(3).sample(range(len(good) * 8), 150):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        path.write_bytes(bad)
        _is_harmless_or_refused(entry_by_entry, stored)


@pytest.mark.parametrize("compressed", [False, True])
def test_every_flipped_bit_of_a_heap_stream_is_detected(
    entry_by_entry: Restore, heap_native: Callable[[bool], Stored], compressed: bool
) -> None:
    stored = heap_native(compressed)
    path = stored.path("")
    good = path.read_bytes()
    seen = []
    for bit in random.Random(3).sample(range(len(good) * 8), 150):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        path.write_bytes(bad)
        seen.append(_is_harmless_or_refused(entry_by_entry, stored))
    assert sum(seen) >= 140  # A few bits of the header have no effect.


def test_a_truncated_manifest_is_detected_and_not_read_as_a_smaller_database(
    in_place: Restore, entry_by_entry: Restore, full: Stored
) -> None:
    path = full.path("MANIFEST")
    good = path.read_bytes()
    noticed = 0
    lengths = range(0, len(good), 7)
    for number, length in enumerate(lengths):
        path.write_bytes(good[:length])
        source = replace(full.source, handle=_resized(full.source.handle, "MANIFEST", length))
        noticed += _is_harmless_or_refused((in_place, entry_by_entry)[number % 2], full, source)
    assert noticed >= len(lengths) - 4


def test_a_database_without_one_of_its_files_is_refused(in_place: Restore, full: Stored) -> None:
    handle = full.source.handle
    assert isinstance(handle, IncrementalRemoteKeyedStateHandle)
    for missing in (name for name, _ in handle.private if not name.startswith("OPTIONS")):
        private = tuple((name, stream) for name, stream in handle.private if name != missing)
        with pytest.raises(CorruptStateError):
            in_place(replace(full.source, handle=replace(handle, private=private)))


def test_the_error_for_a_lost_entry_names_its_key_group(
    in_place: Restore, entry_by_entry: Restore, full: Stored
) -> None:
    assert full.source.statistics is not None
    means = full.source.statistics[1]
    entries = means.entries.copy()
    entries[40] += 1
    changed = StateStatistics(means.key_group_range, entries, means.digests)
    statistics = (full.source.statistics[0], changed, *full.source.statistics[2:])
    for restore in (in_place, entry_by_entry):
        with pytest.raises(CorruptStateError, match="'means', key group 40: expected") as caught:
            restore(replace(full.source, statistics=statistics))
        assert caught.value.kind == "restore-mismatch"


@pytest.mark.parametrize(
    "name", ["../000009.sst", "rocksdict-config.json", "LOCK", "000009.sst.bak", "CURRENT\n", "", "IDENTITY"]
)
def test_a_file_that_does_not_belong_to_rocksdb_is_refused_before_anything_is_copied(
    in_place: Restore, entry_by_entry: Restore, full: Stored, name: str
) -> None:
    handle = full.source.handle
    assert isinstance(handle, IncrementalRemoteKeyedStateHandle)
    hostile = replace(handle, private=((name, handle.meta), *handle.private))
    for restore in (in_place, entry_by_entry):
        with pytest.raises(CorruptStateError) as caught:
            restore(replace(full.source, handle=hostile))
        assert caught.value.kind == "bad-file-name"


def test_a_file_that_is_listed_twice_is_refused(in_place: Restore, full: Stored) -> None:
    handle = full.source.handle
    assert isinstance(handle, IncrementalRemoteKeyedStateHandle)
    with pytest.raises(CorruptStateError) as caught:
        in_place(replace(full.source, handle=replace(handle, shared=handle.private[:1])))
    assert caught.value.kind == "bad-file-name"


def _resized(handle: object, prefix: str, size_bytes: int) -> IncrementalRemoteKeyedStateHandle:
    assert isinstance(handle, IncrementalRemoteKeyedStateHandle)
    private = tuple(
        (name, RelativeFileStateHandle(stream.path, size_bytes) if name.startswith(prefix) else stream)
        for name, stream in handle.private
    )
    return replace(handle, private=private)
