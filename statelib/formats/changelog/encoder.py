"""The encoder of a change log stream with one change set: the last change of each key of an interval, in Flink's own
records; or partial values in statelib's own.

A changed map entry is one record, so that unchanged entries of the map are not written. Flink's record of a single map
entry cannot hold null; a null is therefore written as a map with that one entry.

Source: docs/spec/formats.md#change-log (StateChangeFormat, KvStateChangeLoggerImpl).
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto

import numpy as np
import numpy.typing as npt

from statelib.formats import snappy_framing
from statelib.formats.changelog.change_set import META_INFO_VERSIONS, METADATA_GROUP, Op
from statelib.formats.keyed.header import MetaKind, meta_info_of, stored_value_type, write_meta_info
from statelib.model.key_groups import prefix_width
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind
from statelib.serializers.columns.cursors import fixed, spread
from statelib.serializers.containers.sequence_codec import SequenceCodec
from statelib.serializers.entries.heap_values import lists_to_heap
from statelib.serializers.entries.keys import split_keys
from statelib.serializers.entries.rows import NO_ROWS, StateRows, key_groups_of, windows, without_values
from statelib.serializers.registry import codec_of
from statelib.wire.ragged import Ragged, from_fixed, gather, join
from statelib.wire.writer import Writer

COMPRESSED = b"\1"
_GROUP = struct.Struct(">ii")
_COUNT = struct.Struct(">i")
Mask = npt.NDArray[np.bool_]


class Kind(Enum):
    """The kind of a change: a row is new or changed, it is removed, or its value is merged into the stored one."""

    UPDATED = auto()
    REMOVED = auto()
    MERGED = auto()


@dataclass(frozen=True, eq=False)
class ChangedRows:
    """The changed rows of one state, each in ascending key order: ``updated`` are new or changed rows, ``removed`` the
    keys of removed rows, ``merged`` rows whose values are partial accumulators. A key may be
    removed and merged, in this order; otherwise it is in one of the three."""

    updated: StateRows
    removed: Ragged
    merged: StateRows = NO_ROWS

    def __len__(self) -> int:
        return len(self.updated) + len(self.removed) + len(self.merged)

    def parts(self) -> tuple[tuple[Kind, StateRows], ...]:
        """Return the rows of each kind; removed rows have empty values."""
        return (
            (Kind.UPDATED, self.updated),
            (Kind.REMOVED, without_values(self.removed)),
            (Kind.MERGED, self.merged),
        )


def encode_changes(schema: KeyedStateSchema, states: Sequence[ChangedRows]) -> bytes:
    """Return the whole stream, compressed; b'' if nothing changed. ``states`` are in the order of the schema."""
    blocks: dict[int, list[tuple[int, memoryview]]] = {}
    metadata = []
    for number, (_, changed) in enumerate(zip(schema.states, states, strict=True)):
        if not len(changed):
            continue
        metadata.append(_metadata(schema, number))
        for kind, rows in changed.parts():
            for window in windows(rows):
                for group, count, block in _blocks(schema, number, window, kind):
                    blocks.setdefault(group, []).append((count, block))
    if not metadata:
        return b""
    return b"".join((COMPRESSED, *snappy_framing.compress_pieces(_pieces(metadata, blocks))))


def _pieces(metadata: Sequence[bytes], blocks: dict[int, list[tuple[int, memoryview]]]) -> Iterator[bytes | memoryview]:
    """Yield the change set in pieces. ``blocks`` is emptied on the way, so that memory is released."""
    yield _COUNT.pack(len(blocks) + 1) + _GROUP.pack(len(metadata), METADATA_GROUP)
    for record in metadata:
        yield _COUNT.pack(len(record)) + record
    for group in sorted(blocks):
        of_group = blocks.pop(group)
        yield _GROUP.pack(sum(count for count, _ in of_group), group)
        for _, block in of_group:
            yield block


def _metadata(schema: KeyedStateSchema, number: int) -> bytes:
    descriptor = schema.states[number]
    timers = descriptor.kind is StateKind.TIMERS
    writer = Writer()
    writer.u8(Op.METADATA)
    writer.i32(META_INFO_VERSIONS[0])
    write_meta_info(writer, meta_info_of(descriptor, schema.key_type))
    if not timers:
        writer.bool(False)  # no time to live here: the serializer holds it
        writer.bool(False)
    writer.i16(number)
    writer.u8(MetaKind.PRIORITY_QUEUE if timers else MetaKind.KEY_VALUE)
    return writer.getvalue()


def _blocks(schema: KeyedStateSchema, number: int, rows: StateRows, kind: Kind) -> list[tuple[int, int, memoryview]]:
    """Return (key group, number of changes, their bytes) for each key group that has any."""
    if not len(rows):
        return []
    descriptor = schema.states[number]
    ops, arguments = _changes(schema, descriptor, rows, kind)
    heads = np.empty((len(rows), 3), np.uint8)
    heads[:, 0], heads[:, 1], heads[:, 2] = ops, number >> 8, number & 0xFF
    records = join([from_fixed(heads), *arguments])
    framed = join([fixed(records.lengths.astype("i4")), records])
    groups = key_groups_of(rows.keys, prefix_width(schema.max_parallelism))
    changed_groups, firsts, counts = np.unique(groups, return_index=True, return_counts=True)
    view = framed.data.data
    starts, stops = framed.offsets[firsts].tolist(), framed.offsets[firsts + counts].tolist()
    return [
        (group, count, view[start:stop])
        for group, count, start, stop in zip(changed_groups.tolist(), counts.tolist(), starts, stops, strict=True)
    ]


def _changes(
    schema: KeyedStateSchema, descriptor: StateDescriptor, rows: StateRows, kind: Kind
) -> tuple[npt.NDArray[np.uint8] | int, list[Ragged]]:
    """Return the operation on each row, and the columns that follow its state id."""
    if descriptor.kind is not StateKind.TIMERS:
        keys = split_keys(schema, descriptor, rows.keys)
        ops, arguments = _arguments(descriptor, rows, keys.user_keys, kind)
        return ops, [keys.keys, keys.namespaces, *arguments]
    width = prefix_width(schema.max_parallelism)
    timers = gather(rows.keys.data, rows.keys.starts + width, rows.keys.lengths - width)
    if kind is Kind.REMOVED:
        return Op.REMOVE_ELEMENT, [timers]
    return Op.ADD_ELEMENT, [fixed(np.ones(len(rows), "i4")), timers]


def _arguments(
    descriptor: StateDescriptor, rows: StateRows, user_keys: Ragged | None, kind: Kind
) -> tuple[npt.NDArray[np.uint8] | int, list[Ragged]]:
    """Return the operation on each row, and the columns that follow its key and namespace."""
    if kind is Kind.MERGED:
        return Op.MERGE, [rows.values] if user_keys is None else [user_keys, _without_flags(rows.values)]
    if user_keys is not None:
        return (Op.REMOVE_ELEMENT, [user_keys]) if kind is Kind.REMOVED else _map_arguments(rows, user_keys)
    if kind is Kind.REMOVED:
        return Op.CLEAR, []
    if descriptor.kind is StateKind.LIST:
        codec = codec_of(stored_value_type(descriptor))
        assert isinstance(codec, SequenceCodec)
        return Op.SET, [lists_to_heap(codec, rows.values)]
    return Op.SET, [rows.values]


def _map_arguments(rows: StateRows, user_keys: Ragged) -> tuple[npt.NDArray[np.uint8], list[Ragged]]:
    values = rows.values
    null: Mask = values.data[values.starts] != 0
    nulls = int(null.sum())
    one = spread(fixed(np.ones(nulls, "i4")), null)
    flag = spread(from_fixed(np.ones((nulls, 1), np.uint8)), null)
    bare = _without_flags(values, null)
    return np.where(null, Op.ADD, Op.ADD_OR_UPDATE_ELEMENT).astype(np.uint8), [one, user_keys, flag, bare]


def _without_flags(values: Ragged, null: Mask | bool = False) -> Ragged:
    """Return the values of a map without their null flags; of a ``null`` value nothing is left."""
    return gather(values.data, values.starts + 1, np.where(null, 0, values.lengths - 1))
