"""Real state to damage: small parts of the Flink fixtures, so that many kinds of damage can be tried in a minute."""

import atexit
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from statelib.backends.keys.order import byte_order
from statelib.formats.canonical.reading import iter_canonical, read_header
from statelib.formats.heap.reading import iter_heap
from statelib.formats.manifest.trailer import read_checkpoint_file
from statelib.model.checkpoint import CheckpointMetadata
from statelib.model.handles import (
    ByteStreamStateHandle,
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
    StreamStateHandle,
)
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import KeyedStateSchema
from statelib.serializers.entries.rows import StateRows, key_groups_of
from statelib.wire.ragged import concat

ROOT = Path(__file__).resolve().parents[1] / "golden" / "flink"
CANONICAL = (
    "1.20.5/kinds-hashmap-canonical-p1",
    "1.20.5/keys-pojo-hashmap-canonical",
    "1.20.5/keys-row-hashmap-canonical",
    "1.20.5/keys-tuple2-hashmap-canonical",
    "1.20.5/timers-hashmap-canonical",
    "1.20.5/ttl-hashmap-canonical",
    "1.20.5/windows-hashmap-canonical",
)
SQL = ("1.20.5/sql-groupby2-hashmap-canonical", "1.20.5/sql-join-hashmap-canonical")
VALUES = "1.20.5/values-hashmap-native"


def metadata_files(most_bytes: int = 60_000) -> dict[str, bytes]:
    """Return every ``_metadata`` of the fixtures that is not larger than a limit."""
    paths = sorted(ROOT.rglob("_metadata"))
    return {str(path.relative_to(ROOT)): path.read_bytes() for path in paths if path.stat().st_size <= most_bytes}


def own_directory() -> Path:
    """Return a new directory, which is removed at the end of this process."""
    directory = Path(tempfile.mkdtemp(prefix="statelib-fuzz-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


def directory_of(fixture: str) -> Path:
    """Return the directory of the fixture's first snapshot."""
    return min((ROOT / fixture).rglob("_metadata")).parent


def metadata_of(fixture: str) -> CheckpointMetadata:
    return read_checkpoint_file((directory_of(fixture) / "_metadata").read_bytes())[0]


def content(fixture: str, stream: StreamStateHandle) -> bytes:
    if isinstance(stream, ByteStreamStateHandle):
        return stream.data
    return (directory_of(fixture) / stream.path).read_bytes()


@dataclass(frozen=True, eq=False)
class Sample:
    """Keyed state of one operator: the rows of some key groups, by state."""

    schema: KeyedStateSchema
    rows: tuple[StateRows, ...]
    key_groups: KeyGroupRange


def canonical_samples(fixture: str, most_rows: int = 12) -> Iterator[tuple[str, Sample]]:
    """Return one sample per stateful operator."""
    for operator in metadata_of(fixture).operators:
        handles = [s.keyed for _, s in operator.subtasks if isinstance(s.keyed, KeyGroupsSavepointStateHandle)]
        for handle in handles[:1]:
            data = memoryview(content(fixture, handle.stream))
            read_range = partial(_cut, data)
            header = read_header(read_range, handle, operator.max_parallelism)
            states: dict[int, list[StateRows]] = {}
            for state, rows in iter_canonical(read_range, handle, header):
                states.setdefault(state, []).append(rows)
            all_rows = [_joined(states.get(state, [])) for state in range(len(header.schema.states))]
            sample = _few(header.schema, header.prefix_width, all_rows, most_rows)
            if sample is not None:
                yield f"{fixture} {operator.operator_id.hex()[:6]}", sample


def _cut(data: memoryview, start: int, stop: int) -> memoryview:
    return data[start:stop]


def _joined(parts: list[StateRows]) -> StateRows:
    return StateRows(concat([part.keys for part in parts]), concat([part.values for part in parts]))


def _few(schema: KeyedStateSchema, width: int, states: list[StateRows], most: int) -> Sample | None:
    """Return the rows of the first few key groups that have any."""
    groups = [key_groups_of(rows.keys, width) if len(rows) else np.empty(0, np.int32) for rows in states]
    present = np.unique(np.concatenate(groups)) if groups else []
    if not len(present):
        return None
    last = int(present[min(len(present) - 1, 4)])
    few = tuple(_sorted(rows, np.flatnonzero(of <= last)[:most]) for rows, of in zip(states, groups, strict=True))
    return Sample(schema, few, KeyGroupRange(0, last))


def _sorted(rows: StateRows, which: np.ndarray) -> StateRows:
    taken = rows.take(which)
    return taken.take(byte_order(taken.keys)) if len(taken) else taken


def heap_handle(fixture: str) -> tuple[KeyGroupsStateHandle, bytes, int]:
    """Return the first native heap handle, its stream, and the operator's max parallelism."""
    for operator in metadata_of(fixture).operators:
        for _, state in operator.subtasks:
            if isinstance(state.keyed, KeyGroupsStateHandle):
                return state.keyed, content(fixture, state.keyed.stream), operator.max_parallelism
    raise LookupError(fixture)


def heap_sample(fixture: str) -> Sample:
    """Return a sample from a native snapshot of Flink's heap backend."""
    handle, data, max_parallelism = heap_handle(fixture)
    read_range = partial(_cut, memoryview(data))
    header = read_header(read_range, handle, max_parallelism)
    states_read: dict[int, list[StateRows]] = {}
    for state, rows in iter_heap(read_range, handle, header):
        states_read.setdefault(state, []).append(rows)
    states = [_joined(states_read.get(state, [])) for state in range(len(header.schema.states))]
    sample = _few(header.schema, header.prefix_width, states, 6)
    assert sample is not None
    return sample
