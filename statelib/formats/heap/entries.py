"""The conversion between entries of the heap stream (namespace, key, whole value) and StateRows, column by column.

Source: docs/spec/formats.md#composite-keys, #values, #heap-stream.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from statelib.errors import CorruptStateError
from statelib.formats.keyed.header import stored_value_type
from statelib.model.key_groups import KeyGroupRange, prefix_width
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind
from statelib.serializers.columns.codec import Cursor
from statelib.serializers.columns.cursors import big_endian
from statelib.serializers.containers.maps import MapCodec
from statelib.serializers.containers.sequence_codec import SequenceCodec
from statelib.serializers.entries.heap_values import (
    MapEntries,
    lists_from_heap,
    lists_to_heap,
    maps_from_heap,
    maps_to_heap,
)
from statelib.serializers.entries.keys import KeyParts, join_keys, split_keys
from statelib.serializers.entries.rows import NO_ROWS, StateRows, join_rows, key_groups_of
from statelib.serializers.registry import codec_of
from statelib.wire.ragged import Bytes, Ragged, from_fixed, gather, join, offsets_of


@dataclass(frozen=True, eq=False)
class HeapEntries:
    """Entries of one state: entry ``i``, of key group ``key_groups[i]``, is ``data[starts[i]:ends[i]]``."""

    data: Bytes
    key_groups: npt.NDArray[np.int32]
    starts: Cursor
    ends: Cursor


def rows_of(schema: KeyedStateSchema, descriptor: StateDescriptor, entries: HeapEntries, what: str) -> StateRows:
    """Return the rows of the entries: one per user key for map state, none for an empty list, else one per entry.

    ``what`` names the state in errors. Raise CorruptStateError (``bad-entry``, and the kinds of the codecs).
    """
    data, ends = entries.data, entries.ends
    if descriptor.kind is StateKind.TIMERS:
        return _timers_of(schema, entries)
    key_at = codec_of(descriptor.namespace_type).skip(data, entries.starts, ends)
    value_at = codec_of(schema.key_type).skip(data, key_at, ends)
    namespaces = gather(data, entries.starts, key_at - entries.starts)
    keys = KeyParts(entries.key_groups, gather(data, key_at, value_at - key_at), namespaces)
    codec = codec_of(stored_value_type(descriptor))
    _check_ends(codec.skip(data, value_at, ends), ends, what)
    if descriptor.user_key_type is not None:
        assert isinstance(codec, MapCodec)
        maps = maps_from_heap(codec, data, value_at, ends)
        keys = replace(_repeated(keys, maps.counts), user_keys=maps.user_keys)
        return StateRows(join_keys(schema, descriptor, keys), maps.values)
    if descriptor.kind is not StateKind.LIST:
        return StateRows(join_keys(schema, descriptor, keys), gather(data, value_at, ends - value_at))
    assert isinstance(codec, SequenceCodec)
    values, counts = lists_from_heap(codec, data, value_at, ends)
    rows = StateRows(join_keys(schema, descriptor, keys), values)
    return rows if counts.all() else rows.take(np.flatnonzero(counts))


def entries_of(
    schema: KeyedStateSchema, descriptor: StateDescriptor, rows: StateRows, bounds: npt.NDArray[np.int64]
) -> tuple[Ragged, npt.NDArray[np.int64]]:
    """Return the serialized entries of rows in key order, and per bound the index of its entry; inverse of
    :func:`rows_of`.

    ``bounds``: the row at which each key group begins, and the row at which the last one ends.
    """
    if descriptor.kind is StateKind.TIMERS:
        width = prefix_width(schema.max_parallelism)
        return gather(rows.keys.data, rows.keys.starts + width, rows.keys.lengths - width), bounds
    keys = split_keys(schema, descriptor, rows.keys)
    codec = codec_of(stored_value_type(descriptor))
    if descriptor.kind is StateKind.LIST:
        assert isinstance(codec, SequenceCodec)
        return join([keys.namespaces, keys.keys, lists_to_heap(codec, rows.values)]), bounds
    if keys.user_keys is None:
        return join([keys.namespaces, keys.keys, rows.values]), bounds
    firsts = np.flatnonzero(~_same_as_before(_owners(rows, keys.user_keys)))
    counts = np.diff(np.append(firsts, len(rows)))
    maps = maps_to_heap(MapEntries(counts, keys.user_keys, rows.values))
    entries = join([keys.namespaces.take(firsts), keys.keys.take(firsts), maps])
    return entries, np.searchsorted(firsts, bounds).astype(np.int64)


def _timers_of(schema: KeyedStateSchema, entries: HeapEntries) -> StateRows:
    """Return the rows of timers.

    The bytes of a timer in the stream are those of its key without the key group; decoding checks them.
    """
    timers = gather(entries.data, entries.starts, entries.ends - entries.starts)
    prefix = big_endian(entries.key_groups.astype(f"u{prefix_width(schema.max_parallelism)}"))
    keys = join([from_fixed(prefix), timers])
    return StateRows(keys, from_fixed(np.empty((len(keys), 0), np.uint8)))


def count_entries(
    schema: KeyedStateSchema, descriptor: StateDescriptor, batches: Iterable[StateRows], key_group_range: KeyGroupRange
) -> npt.NDArray[np.int64]:
    """Return the number of serialized entries per key group. The batches hold rows in key order."""
    counts = np.zeros(len(key_group_range), np.int64)
    before = NO_ROWS
    for rows in batches:
        if not len(rows):
            continue
        both = join_rows([before, rows])
        firsts = _firsts(schema, descriptor, both)
        groups = key_groups_of(both.keys, prefix_width(schema.max_parallelism))[firsts[firsts >= len(before)]]
        counts += np.bincount(groups - key_group_range.start, minlength=len(counts))
        before = StateRows(rows.keys.slice(len(rows) - 1, len(rows)), rows.values.slice(len(rows) - 1, len(rows)))
    return counts


def last_entry(schema: KeyedStateSchema, descriptor: StateDescriptor, rows: StateRows) -> int:
    """Return the row at which the last entry begins, if later rows may belong to it too; else the number of rows.

    Only the entries of map state take several rows.
    """
    return int(_firsts(schema, descriptor, rows)[-1]) if descriptor.user_key_type is not None else len(rows)


def _firsts(schema: KeyedStateSchema, descriptor: StateDescriptor, rows: StateRows) -> npt.NDArray[np.int64]:
    """Return the rows at which a serialized entry begins."""
    if descriptor.user_key_type is None:
        return np.arange(len(rows))
    user_keys = split_keys(schema, descriptor, rows.keys).user_keys
    assert user_keys is not None
    return np.flatnonzero(~_same_as_before(_owners(rows, user_keys)))


def _owners(rows: StateRows, user_keys: Ragged) -> Ragged:
    """Return the bytes of each key up to its user key: the rows of one map share them."""
    return gather(rows.keys.data, rows.keys.starts, rows.keys.lengths - user_keys.lengths)


def _check_ends(computed_ends: Cursor, ends: Cursor, what: str) -> None:
    """Raise CorruptStateError (``bad-entry``) unless each entry ends where it should."""
    wrong = np.flatnonzero(computed_ends != ends)
    if len(wrong):
        row = int(wrong[0])
        raise CorruptStateError(
            f"{what}: entry {row} ends at offset {computed_ends[row]}, expected it to fill the bytes up to {ends[row]}",
            kind="bad-entry",
        )


def _repeated(keys: KeyParts, counts: npt.NDArray[np.int64]) -> KeyParts:
    """Return the keys, each repeated as often as ``counts`` says."""
    rows = np.repeat(np.arange(len(counts)), counts)
    return KeyParts(keys.key_groups[rows], keys.keys.take(rows), keys.namespaces.take(rows))


def _same_as_before(rows: Ragged) -> npt.NDArray[np.bool_]:
    """Return which rows equal the row before them."""
    same = np.zeros(len(rows), np.bool_)
    lengths = rows.lengths
    alike = np.flatnonzero(lengths[1:] == lengths[:-1])
    before, after = rows.take(alike), rows.take(alike + 1)
    differing = offsets_of((before.data != after.data).view(np.uint8))
    same[alike + 1] = np.diff(differing[after.offsets]) == 0
    return same
