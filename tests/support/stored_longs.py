"""A savepoint of many long keys with long values, written like any other, for measurements and for tests of
reading."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from statelib.backends.heap.backend import HeapKeyedStateBackend
from statelib.backends.keys.order import byte_order
from statelib.formats.metadata.metadata_file import encode_metadata
from statelib.formats.metadata.operator_id import operator_id
from statelib.model.checkpoint import CheckpointMetadata, OperatorState, OperatorSubtaskState
from statelib.model.ids import AttemptId, CheckpointId, PipelineName
from statelib.model.key_groups import KeyGroupRange, subtask_ranges
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind
from statelib.model.types import LONG
from statelib.serializers.entries.keys import encode_keys, key_groups
from statelib.serializers.entries.rows import StateRows
from statelib.serializers.entries.values import encode_values
from statelib.snapshots.strategies.canonical import CanonicalSnapshotStrategy
from statelib.snapshots.strategy import take_snapshot
from statelib.storage.closeables import CloseableRegistry
from statelib.storage.filesystem.storage import FileSystemCheckpointStorage
from statelib.storage.ports.views import StorageReference

UID = "longs"
COUNTS = StateDescriptor("counts", StateKind.VALUE, LONG)
SCHEMA = KeyedStateSchema(LONG, 128, (COUNTS,))
STRIDE = 100_003
"""The keys are its multiples, 0 first, so that they are distributed over the key groups and over the bytes of a
long."""


def long_columns(entries: int) -> pa.Table:
    """Return the columns ``key`` and ``value``, always the same for the same number."""
    keys = np.arange(entries, dtype=np.int64) * STRIDE
    return pa.table({"key": keys, "value": keys % 1_000 + 1})


def store_longs(root: Path, entries: int, parallelism: int = 2) -> Path:
    """Write a canonical savepoint of :func:`long_columns`, one file per subtask, without a manifest, and return its
    directory."""
    storage = FileSystemCheckpointStorage(str(root), PipelineName(UID), 0)
    reference = storage.initialize_location(CheckpointId(1))
    columns = long_columns(entries)
    groups = key_groups(SCHEMA, columns["key"].combine_chunks())
    subtasks = []
    for subtask, key_range in enumerate(subtask_ranges(parallelism, SCHEMA.max_parallelism)):
        owned = columns.filter(pa.array((groups >= key_range.start) & (groups <= key_range.end)))
        subtasks.append((subtask, _store(storage, reference, subtask, key_range, owned)))
    operator = OperatorState(operator_id(UID), parallelism, SCHEMA.max_parallelism, tuple(subtasks))
    storage.publish_metadata(reference, encode_metadata(CheckpointMetadata(1, (operator,))))
    return Path(reference.directory.removeprefix("file://"))


def _store(
    storage: FileSystemCheckpointStorage,
    reference: StorageReference,
    subtask: int,
    key_range: KeyGroupRange,
    owned: pa.Table,
) -> OperatorSubtaskState:
    keys = owned["key"].combine_chunks()
    encoded = encode_keys(SCHEMA, COUNTS, keys, key_groups(SCHEMA, keys))
    order = byte_order(encoded)
    values = owned["value"].combine_chunks().take(pa.array(order))
    backend = HeapKeyedStateBackend(SCHEMA, key_range)
    backend.load(COUNTS.name, StateRows(encoded.take(order), encode_values(COUNTS, values)))
    streams = storage.resolve_checkpoint_storage_location(CheckpointId(1), reference, AttemptId("0" * 32), subtask)
    strategy = CanonicalSnapshotStrategy(backend)
    result = take_snapshot(strategy, CheckpointId(1), streams, CloseableRegistry())
    strategy.close()
    backend.close()
    return OperatorSubtaskState(result.keyed)
