"""Sources with checksums: a restore that reads all of one compares its bytes and counts, and computes no digest."""

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from statelib.backends.heap.backend import HeapKeyedStateBackend
from statelib.backends.wrappers.changelog import ChangelogKeyedStateBackend
from statelib.errors import CorruptStateError
from statelib.model.handles import StreamStateHandle
from statelib.model.ids import CheckpointId
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import StateStatistics
from statelib.restore import entries as formats
from statelib.restore.live.keyed import restore_heap
from statelib.restore.plan import RestoreSource
from statelib.serializers.entries.rows import StateRows
from statelib.snapshots.strategies.canonical import CanonicalSnapshotStrategy
from statelib.snapshots.strategies.changelog import ChangelogSnapshotStrategy, MaterializationLimits
from statelib.snapshots.strategies.heap_native import HeapNativeSnapshotStrategy
from statelib.snapshots.strategy import take_snapshot
from statelib.storage.closeables import CloseableRegistry
from statelib.storage.filesystem.reader import DirectoryReader
from statelib.storage.ports.views import CheckpointedStateScope
from statelib.storage.uris import local_path
from statelib.testing.checkpoint_chain import CheckpointChain, files_of
from statelib.testing.keyed_samples import all_entries, fill, put, sample_schema

pytestmark = pytest.mark.slow

UID = "5a7b0000-0000-0000-0000-000000000000"
WHOLE = KeyGroupRange(0, 127)
HALF = KeyGroupRange(0, 63)
Entries = dict[str, dict[bytes, bytes]]


class CountingReader(DirectoryReader):
    """A reader that counts the bytes that it reads, as a sum over all files."""

    read_bytes = 0

    def read_range(self, handle: StreamStateHandle, start: int, stop: int) -> memoryview:
        self.read_bytes += stop - start
        return super().read_range(handle, start, stop)


@pytest.fixture(params=["heap", "heap compressed", "canonical", "canonical compressed", "changelog"])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[RestoreSource, Entries]]:
    """Yield a source of all key groups with checksums, and its entries."""
    chain, (strategy, *compressed) = CheckpointChain(tmp_path / "storage"), request.param.split()
    backend = HeapKeyedStateBackend(sample_schema(), WHOLE)
    fill(backend, 60)
    if strategy == "changelog":
        yield _logged(chain, backend)
        return
    taken = (
        HeapNativeSnapshotStrategy(backend, UID, bool(compressed))
        if strategy == "heap"
        else CanonicalSnapshotStrategy(backend, bool(compressed))
    )
    result = take_snapshot(taken, CheckpointId(1), chain.streams(1), CloseableRegistry())
    yield chain.source(1, result, backend), all_entries(backend)
    taken.close()
    backend.close()


def _logged(chain: CheckpointChain, below: HeapKeyedStateBackend) -> tuple[RestoreSource, Entries]:
    """Return the source of a second checkpoint, whose log changes the state of the first, and its entries."""
    backend = ChangelogKeyedStateBackend(below, 1 << 20)
    whole = CanonicalSnapshotStrategy(backend.inner, scope=CheckpointedStateScope.SHARED)
    strategy = ChangelogSnapshotStrategy(backend, UID, whole, MaterializationLimits(10_000, 3))
    take_snapshot(strategy, CheckpointId(1), chain.streams(1), CloseableRegistry())
    strategy.notify_checkpoint_complete(CheckpointId(1))
    put(backend, "means", ["key-1", "another key"], [0.5, 2.5])
    result = take_snapshot(strategy, CheckpointId(2), chain.streams(2), CloseableRegistry())
    source, entries = chain.source(2, result, backend), all_entries(backend)
    strategy.close()
    backend.close()
    return source, entries


def _with_other_statistics(source: RestoreSource, entries: int, digest: int) -> RestoreSource:
    """Return the source with other statistics of the first state's first key group that has entries."""
    assert source.statistics is not None
    first, *rest = source.statistics
    group = int(np.flatnonzero(first.entries)[0])
    assert group in HALF
    counts, digests = first.entries.copy(), first.digests.copy()
    counts[group] += entries
    digests[group] += np.uint64(digest)
    return replace(source, statistics=(StateStatistics(first.key_group_range, counts, digests), *rest))


def _restored(source: RestoreSource, key_groups: KeyGroupRange = WHOLE) -> Entries:
    backend = restore_heap(source.schema, key_groups, [source])
    entries = all_entries(backend)
    backend.close()
    return entries


def test_digests_are_compared_only_where_checksums_prove_nothing(stored: tuple[RestoreSource, Entries]) -> None:
    source, entries = stored
    wrong = _with_other_statistics(source, 0, 1)
    assert _restored(wrong) == entries
    for partial_or_unproved in ((wrong, HALF), (replace(wrong, checksummed=False), WHOLE)):
        with pytest.raises(CorruptStateError, match=r"expected \d+ entr(y|ies), read \d+ with digest") as caught:
            _restored(*partial_or_unproved)
        assert caught.value.kind == "restore-mismatch"


def test_a_wrong_count_is_always_found(stored: tuple[RestoreSource, Entries]) -> None:
    source, _ = stored
    for key_groups in (WHOLE, HALF):
        with pytest.raises(CorruptStateError, match=r"expected \d+ entr(y|ies), read \d+; key groups") as caught:
            _restored(_with_other_statistics(source, 1, 0), key_groups)
        assert caught.value.kind == "restore-mismatch"


def test_every_changed_bit_of_every_file_is_found(stored: tuple[RestoreSource, Entries]) -> None:
    source, _ = stored
    for uri in sorted(files_of(source)):
        path = Path(local_path(uri))
        good = path.read_bytes()
        for bit in random.Random(3).sample(range(len(good) * 8), 60):
            bad = bytearray(good)
            bad[bit // 8] ^= 1 << bit % 8
            path.write_bytes(bad)
            with pytest.raises(CorruptStateError) as caught:
                _restored(source)
            assert caught.value.kind == "checksum-mismatch"
            assert path.name in caught.value.message
        path.write_bytes(good)


def test_the_materialised_stream_is_read_once(stored: tuple[RestoreSource, Entries]) -> None:
    source, entries = stored
    reader = source.reader
    assert isinstance(reader, DirectoryReader)
    counting = CountingReader(reader.directory_uri, reader.checksums, allowed_root=reader.allowed_root)
    assert _restored(replace(source, reader=counting)) == entries
    sizes = [Path(local_path(uri)).stat().st_size for uri in files_of(source)]
    assert counting.read_bytes == max(sizes)


@pytest.mark.parametrize(
    ("stored", "format_reader"), [("heap", "iter_heap"), ("canonical", "iter_canonical")], indirect=["stored"]
)
def test_a_stream_that_was_not_read_in_order_is_read_again(
    stored: tuple[RestoreSource, Entries], monkeypatch: pytest.MonkeyPatch, format_reader: str
) -> None:
    """Else a change that no format notices would be served."""
    in_order = getattr(formats, format_reader)

    def halves_swapped(*args: Any, **options: Any) -> Iterator[tuple[int, StateRows]]:
        for half in (KeyGroupRange(64, 127), HALF):
            yield from in_order(*args[:3], half, **options)

    source, entries = stored
    monkeypatch.setattr(formats, format_reader, halves_swapped)
    assert _restored(source) == entries
    value = max(entries["totals"].values())
    (path,) = (Path(local_path(uri)) for uri in files_of(source))
    path.write_bytes(path.read_bytes().replace(value, value[:-1] + bytes([value[-1] ^ 1])))
    with pytest.raises(CorruptStateError) as caught:
        _restored(source)
    assert caught.value.kind == "checksum-mismatch"
