"""A restore reads as many bytes per subtask as its plan shows."""

from pathlib import Path

import pytest

from statelib.coordinator.state_assignment import assign
from statelib.model.key_groups import subtask_ranges
from statelib.restore.live.keyed import restore_heap, restore_rocksdb
from statelib.restore.volume import bytes_to_read, entries_to_read
from statelib.testing.counting_reader import counting
from statelib.testing.keyed_samples import fill, sample_schema
from statelib.testing.stored_checkpoints import Way, store_checkpoint
from statelib.testing.stored_snapshots import UID

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("parallelism", [1, 2, 3, 5])
@pytest.mark.parametrize("inline_threshold_bytes", [0, 1 << 20])
@pytest.mark.parametrize("manifest", [True, False])
@pytest.mark.parametrize(
    ("backend", "strategy", "restored"),
    [
        ("heap", "canonical", "heap"),
        ("heap", "canonical", "rocksdb"),
        ("heap", "full", "heap"),
        ("rocksdb", "full", "rocksdb"),
        ("heap", "changelog", "heap"),
        ("heap", "changelog", "rocksdb"),
        ("rocksdb", "changelog", "rocksdb"),
    ],
)
def test_a_restore_reads_the_planned_bytes_and_entries(
    tmp_path: Path,
    backend: str,
    strategy: str,
    restored: str,
    manifest: bool,
    inline_threshold_bytes: int,
    parallelism: int,
) -> None:
    """Two subtasks wrote the snapshot; the key groups of 1, 3 and 5 subtasks are not aligned with theirs. Some key
    groups are empty."""
    if strategy == "changelog" and not manifest:
        pytest.skip("a log without a manifest is Flink's own: tests/golden")
    schema = sample_schema()
    way = Way(backend, strategy, 2, manifest, inline_threshold_bytes)
    opened = counting(store_checkpoint(tmp_path / "stored", schema, way, lambda b: fill(b, 60)))
    handles = [(source.handle.key_group_range, source) for source in opened.sources()]
    total = 0
    for subtask, sources in enumerate(assign(handles, parallelism, schema.max_parallelism)):
        key_groups = subtask_ranges(parallelism, schema.max_parallelism)[subtask]
        planned = bytes_to_read(schema, key_groups, sources, restored)
        opened.read_bytes.clear()
        if restored == "heap":
            live = restore_heap(schema, key_groups, sources)
        else:
            live = restore_rocksdb(schema, key_groups, sources, str(tmp_path / f"live-{subtask}"), UID)
        entries = sum(statistics.total_entries for statistics in live.statistics())
        live.close()
        assert sum(opened.read_bytes.values()) == planned
        assert entries_to_read(key_groups, sources) == (entries if manifest else None)
        total += entries
    assert total == 60 * 5


def test_a_subtask_without_sources_reads_nothing() -> None:
    (whole,) = subtask_ranges(1, 128)
    assert bytes_to_read(sample_schema(), whole, (), "rocksdb") == 0
    assert entries_to_read(whole, ()) == 0


def test_only_the_header_of_a_snapshot_without_entries_is_read(tmp_path: Path) -> None:
    opened = counting(store_checkpoint(tmp_path, sample_schema(), Way(), lambda _: None))
    (source,) = opened.sources()
    (whole,) = subtask_ranges(1, 128)
    restore_heap(sample_schema(), whole, [source])
    assert sum(opened.read_bytes.values()) == bytes_to_read(sample_schema(), whole, [source], "heap") > 0
