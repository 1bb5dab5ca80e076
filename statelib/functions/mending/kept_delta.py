"""The delta of a data interval: what its events alone do to each entry of a state, and the value before them.

A checkpoint keeps deltas as side data, per interval, state and subtask, under names that no pipeline can declare.
Source: docs/spec/formats.md#kept-deltas.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.aggregates.declared import folding_of
from statelib.aggregates.grouping import Rows, nullable_rows, one_array
from statelib.backends.keys.lookup import find_rows
from statelib.backends.keys.order import byte_order
from statelib.errors import CorruptStateError, InvalidRequestError
from statelib.formats.changelog.encoder import ChangedRows
from statelib.formats.manifest.trailer import OWN_STATE_PREFIX
from statelib.model.checkpoint import DataInterval
from statelib.model.key_groups import KeyGroupRange, prefix_width
from statelib.model.state import StateDescriptor
from statelib.serializers.entries.rows import key_groups_of
from statelib.serializers.entries.values import decode_values, value_arrow_type
from statelib.wire.ragged import Ragged, as_arrow, as_ragged, concat

_PREFIX = f"{OWN_STATE_PREFIX}delta."
_ROWS_AT_ONCE = 1 << 16
Mask = npt.NDArray[np.bool_]


def delta_name(interval: DataInterval, state: str) -> str:
    """Return the name of the side data that holds the delta of an interval to a state."""
    return f"{_PREFIX}{interval.start_ms}:{interval.end_ms}.{state}"


def interval_of_delta(name: str) -> DataInterval | None:
    """Return the interval whose delta is the side data of this name; None if it is other side data."""
    if not name.startswith(_PREFIX):
        return None
    start, _, end = name.removeprefix(_PREFIX).partition(".")[0].partition(":")
    return DataInterval(int(start), int(end))


@dataclass(frozen=True, eq=False)
class KeptDelta:
    """The effect of the events of one interval on the entries of one state, one row per entry, in the order of keys.

    Attributes:
        descriptor: The description of the state.
        keys: The serialized keys of the entries.
        deleted: Whether an event deleted the entry's key. Events before the delete have no effect.
        values: The accumulators of the events alone, of those after the delete; null if there are none.
        before: The values before the interval; null for an entry that did not exist.
    """

    descriptor: StateDescriptor
    keys: Ragged
    deleted: Mask
    values: pa.Array
    before: pa.Array

    def take(self, rows: Rows) -> "KeptDelta":
        """Return the rows with these numbers, in this order."""
        values, before = (column.take(pa.array(rows)) for column in (self.values, self.before))
        return KeptDelta(self.descriptor, self.keys.take(rows), self.deleted[rows], values, before)

    def after(self) -> pa.Array:
        """Return the values after the interval; null for an entry that does not exist then.

        Raise InvalidRequestError, as accumulators do."""
        folding = folding_of(self.descriptor)
        assert folding is not None, "the pipeline file is checked for states that cannot be merged"
        rows = np.arange(len(self.keys), dtype=np.int64)
        below = self.before.take(nullable_rows(np.where(self.deleted, -1, rows)))
        merged = folding.merged_values(below, self.values)
        exists = _mask(below.is_valid()) | _mask(self.values.is_valid())
        return merged.take(nullable_rows(np.where(exists, rows, -1)))

    def encoded(self) -> bytes:
        """Return the delta as an Arrow stream."""
        sink, schema = pa.BufferOutputStream(), _stream_schema(self.descriptor)
        columns = [as_arrow(self.keys), pa.array(self.deleted), self.values, self.before]
        table = pa.Table.from_arrays(columns, schema=schema)
        with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
            writer.write_table(table, max_chunksize=_ROWS_AT_ONCE)
        return bytes(sink.getvalue())


def _stream_schema(descriptor: StateDescriptor) -> pa.Schema:
    """Return the schema of the stream of a kept delta. Its metadata has the meanings of the values as text."""
    value = value_arrow_type(descriptor)
    columns = [("key", pa.large_binary()), ("deleted", pa.bool_()), ("value", value), ("before", value)]
    meanings = [(m.field, m.agg, m.of, m.by, m.bounds, m.keeps_nulls, m.together, m.where) for m in descriptor.meanings]
    return pa.schema(columns, {"meanings": repr(meanings)})


def decoded(
    descriptor: StateDescriptor, name: str, parts: Sequence[tuple[KeyGroupRange, bytes]], max_parallelism: int
) -> KeptDelta:
    """Return a delta that several subtasks may have kept. ``name``: the name of its side data. ``parts``: the key
    groups for which each stream counts, and the stream, which may have rows of others.

    Raise CorruptStateError (``bad-delta``), InvalidRequestError (``not-mendable``) if the definition of the state was
    another one."""
    tables, expected = [], _stream_schema(descriptor)
    for key_groups, data in parts:
        try:
            with pa.ipc.open_stream(pa.py_buffer(data)) as stream:
                if not stream.schema.equals(expected, check_metadata=True):
                    raise InvalidRequestError(
                        f"state {descriptor.name!r} was defined in another way when {name} was kept",
                        kind="not-mendable",
                        hint="restore the newest checkpoint before the interval, and run the intervals from there on",
                    )
                tables.append(_within(stream.read_all(), key_groups, max_parallelism))
        except (pa.ArrowInvalid, OSError) as error:
            raise CorruptStateError(f"{name} is not an Arrow stream: {error}", kind="bad-delta") from error
    table = pa.concat_tables([expected.empty_table(), *tables]).combine_chunks()
    keys, deleted, values, before = (column.combine_chunks() for column in table.columns)
    return KeptDelta(descriptor, as_ragged(keys), _mask(deleted), values, before)


def _within(rows: pa.Table, key_groups: KeyGroupRange, max_parallelism: int) -> pa.Table:
    """Return the rows of some key groups."""
    groups = key_groups_of(as_ragged(one_array(rows["key"])), prefix_width(max_parallelism))
    own = (groups >= key_groups.start) & (groups <= key_groups.end)
    return rows if own.all() else rows.filter(pa.array(own))


def delta_of(descriptor: StateDescriptor, changes: ChangedRows) -> KeptDelta:
    """Return the delta of the changes that a run logs which has not read the state. The values before are null."""
    gone, partial = changes.removed, changes.merged
    rows = find_rows(partial.keys, gone)
    alone = np.flatnonzero(rows < 0)
    keys = concat([partial.keys, gone.take(alone)])
    deleted = np.ones(len(keys), np.bool_)
    deleted[: len(partial)] = False
    deleted[rows[rows >= 0]] = True
    values = decode_values(descriptor, partial.values)
    before = pa.nulls(len(keys), values.type)
    delta = KeptDelta(descriptor, keys, deleted, pa.concat_arrays([values, before[: len(alone)]]), before)
    return delta.take(byte_order(keys))


def _mask(values: pa.BooleanArray) -> Mask:
    return np.asarray(values.to_numpy(zero_copy_only=False), np.bool_)
