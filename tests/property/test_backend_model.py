"""A backend is a dict, and rescaling only moves entries: for both backends, statistics included."""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statelib.backends.heap.backend import HeapKeyedStateBackend
from statelib.backends.keyed import KeyedStateBackend
from statelib.backends.rocksdb.backend import RocksDBKeyedStateBackend
from statelib.model.ids import AttemptId, CheckpointId, PipelineName
from statelib.model.key_groups import KeyGroupRange, all_key_groups, prefix_width, subtask_ranges
from statelib.model.state import KeyedStateSchema
from statelib.restore.live.keyed import restore_heap, restore_rocksdb
from statelib.restore.plan import RestoreSource
from statelib.serializers.entries.rows import statistics_of
from statelib.snapshots.strategies.canonical import CanonicalSnapshotStrategy
from statelib.snapshots.strategies.heap_native import HeapNativeSnapshotStrategy
from statelib.snapshots.strategies.rocksdb.full import RocksDBFullSnapshotStrategy
from statelib.snapshots.strategy import SnapshotResult, take_snapshot
from statelib.storage.closeables import CloseableRegistry
from statelib.storage.filesystem.reader import DirectoryReader
from statelib.storage.filesystem.storage import FileSystemCheckpointStorage
from statelib.testing.keyed_samples import (
    all_entries,
    fill,
    got,
    put,
    sample_schema,
    scanned,
)
from tests.support.extent import examples

UID = "5a7b0000-0000-0000-0000-000000000000"
BACKENDS = ("heap", "rocksdb")
RESCALES = (("heap", "canonical"), ("heap", "full"), ("rocksdb", "canonical"), ("rocksdb", "full"))

KEYS = st.sampled_from([f"key-{i}" for i in range(12)] + ["", "ÿ", "x" * 90])
USER_KEYS = st.sampled_from(["", "ATL", "JFK"])
VALUES = {
    "totals": st.fixed_dictionaries(
        {"count": st.none() | st.integers(-(2**63), 2**63 - 1), "last": st.none() | st.text(max_size=5)}
    ),
    "means": st.floats(allow_nan=False),
    "visits": st.lists(st.integers(-9, 9), max_size=4),
    "per_place": st.integers(-9, 9),
}


def batches(state: str) -> st.SearchStrategy[dict[tuple[str, str | None], object]]:
    user_keys = USER_KEYS if state == "per_place" else st.none()
    return st.dictionaries(st.tuples(KEYS, user_keys), st.none() | VALUES[state], max_size=10)


STEPS = st.lists(
    st.sampled_from(sorted(VALUES)).flatmap(lambda state: st.tuples(st.just(state), batches(state))), max_size=8
)


@pytest.mark.parametrize("kind", BACKENDS)
@settings(max_examples=examples(40), deadline=None)
@given(steps=STEPS)
def test_a_backend_behaves_like_a_dict(
    kind: str, steps: list[tuple[str, dict[tuple[str, str | None], object]]]
) -> None:
    schema = sample_schema()
    with scratch() as directory:
        backend = new_backend(kind, schema, all_key_groups(schema.max_parallelism), directory / "backend")
        model: dict[str, dict[tuple[str, str | None], object]] = {name: {} for name in VALUES}
        for state, changes in steps:
            keys = [key for key, _ in changes]
            users = [user or "" for _, user in changes] if state == "per_place" else None
            assert got(backend, state, keys, users) == [model[state].get(key) for key in changes]
            put(backend, state, keys, list(changes.values()), users)
            model[state] |= changes
            model[state] = {k: v for k, v in model[state].items() if v is not None and v != []}
        for state, content in model.items():
            keys = [key for key, _ in content]
            users = [user or "" for _, user in content] if state == "per_place" else None
            assert got(backend, state, keys, users) == list(content.values())
            assert len(scanned(backend, state)) == len(content)
        for descriptor, statistics in zip(schema.states, backend.statistics(), strict=True):
            counted = statistics_of(scanned(backend, descriptor.name), prefix_width(128), backend.key_group_range)
            assert statistics.same_content(counted)
        backend.close()


@pytest.mark.parametrize(("kind", "strategy"), RESCALES)
@settings(max_examples=examples(12), deadline=None)
@given(
    p=st.integers(1, 5), q=st.integers(1, 5), max_parallelism=st.sampled_from([5, 128, 300]), count=st.integers(0, 150)
)
def test_rescaling_keeps_every_entry(
    kind: str, strategy: str, p: int, q: int, max_parallelism: int, count: int
) -> None:
    schema = sample_schema(max_parallelism)
    with scratch() as directory:
        filled = []
        for number, key_groups in enumerate(subtask_ranges(p, max_parallelism)):
            filled.append(new_backend(kind, schema, key_groups, directory / f"filled-{number}"))
            fill(filled[-1], count)
        expected = content(filled)
        rescaled(kind, strategy, filled, (q, p), directory, expected)


@pytest.mark.parametrize("max_parallelism", [128, 300])
def test_a_chain_of_native_heap_snapshots_keeps_every_entry(max_parallelism: int) -> None:
    schema = sample_schema(max_parallelism)
    with scratch() as directory:
        filled: list[KeyedStateBackend] = []
        for key_groups in subtask_ranges(2, max_parallelism):
            filled.append(HeapKeyedStateBackend(schema, key_groups))
            fill(filled[-1], 1000)
        rescaled("heap", "full", filled, (5, 3, 1, 8), directory, content(filled))


def rescaled(
    kind: str,
    strategy: str,
    filled: list[KeyedStateBackend],
    parallelisms: Sequence[int],
    directory: Path,
    expected: dict[str, list[tuple[bytes, bytes]]],
) -> None:
    """Take a snapshot and restore it at each parallelism in turn. Assert that the content does not change."""
    schema = filled[0].schema
    for step, parallelism in enumerate(parallelisms):
        sources = snapshot(filled, strategy, directory / f"storage-{step}", CheckpointId(step + 1))
        for backend in filled:
            backend.close()
        filled = [
            restore(kind, schema, key_groups, sources, directory / f"restored-{step}-{number}")
            for number, key_groups in enumerate(subtask_ranges(parallelism, schema.max_parallelism))
        ]
        assert content(filled) == expected
    for backend in filled:
        backend.close()


def content(backends: Sequence[KeyedStateBackend]) -> dict[str, list[tuple[bytes, bytes]]]:
    """Return the sorted entries of each state over all backends. Assert that the statistics of each backend are
    right."""
    entries_read: dict[str, list[tuple[bytes, bytes]]] = {}
    for backend in backends:
        width = prefix_width(backend.schema.max_parallelism)
        for name, statistics in zip(all_entries(backend), backend.statistics(), strict=True):
            rows = scanned(backend, name)
            assert statistics.same_content(statistics_of(rows, width, backend.key_group_range))
            entries_read.setdefault(name, []).extend(zip(rows.keys.to_list(), rows.values.to_list(), strict=True))
    return {name: sorted(entries) for name, entries in entries_read.items()}


def snapshot(
    backends: Sequence[KeyedStateBackend], strategy: str, root: Path, checkpoint_id: CheckpointId
) -> list[RestoreSource]:
    storage = FileSystemCheckpointStorage(str(root), PipelineName("rescale"), 1000)
    reference = storage.initialize_location(checkpoint_id)
    sources = []
    for subtask, backend in enumerate(backends):
        streams = storage.resolve_checkpoint_storage_location(checkpoint_id, reference, AttemptId("0" * 32), subtask)
        result = TAKE[strategy](backend, lambda s, c=streams: take_snapshot(s, checkpoint_id, c, CloseableRegistry()))
        assert result.keyed is not None
        sources.append(
            RestoreSource(result.keyed, DirectoryReader(reference.directory), backend.schema, backend.statistics())
        )
    return sources


Take = Callable[..., SnapshotResult]


def _take_full(backend: KeyedStateBackend, take: Take) -> SnapshotResult:
    if isinstance(backend, HeapKeyedStateBackend):
        return take(HeapNativeSnapshotStrategy(backend, UID))
    assert isinstance(backend, RocksDBKeyedStateBackend)
    strategy = RocksDBFullSnapshotStrategy(backend, UID)
    try:
        return take(strategy)
    finally:
        strategy.close()


TAKE: dict[str, Callable[[KeyedStateBackend, Take], SnapshotResult]] = {
    "canonical": lambda backend, take: take(CanonicalSnapshotStrategy(backend)),
    "full": _take_full,
}


def restore(
    kind: str, schema: KeyedStateSchema, key_groups: KeyGroupRange, sources: Sequence[RestoreSource], directory: Path
) -> KeyedStateBackend:
    touching = [s for s in sources if len(s.handle.key_group_range.intersection(key_groups))]
    if kind == "heap":
        return restore_heap(schema, key_groups, touching)
    return restore_rocksdb(schema, key_groups, touching, str(directory), UID)


def new_backend(kind: str, schema: KeyedStateSchema, key_groups: KeyGroupRange, directory: Path) -> KeyedStateBackend:
    if kind == "heap":
        return HeapKeyedStateBackend(schema, key_groups)
    return RocksDBKeyedStateBackend(schema, key_groups, str(directory), UID)


@contextmanager
def scratch() -> Iterator[Path]:
    """Yield a directory for one example: hypothesis runs many examples within one test's tmp_path."""
    directory = Path(tempfile.mkdtemp(prefix="statelib-model-"))
    try:
        yield directory
        assert not list(directory.glob("backend*"))
        assert not list(directory.glob("restored*"))
    finally:
        shutil.rmtree(directory)
