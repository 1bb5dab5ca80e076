"""Entries between the heap stream (namespace, key, whole value) and StateRows, column by column.

Source: flink-formats.md sections 2.1, 2.2 and 3.2.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from statelib.errors import CorruptStateError
from statelib.formats.keyed_header import stored_value_type
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind
from statelib.serializers.codec import Cursor
from statelib.serializers.containers import MapCodec, SequenceCodec
from statelib.serializers.heap_values import (
    MapEntries,
    lists_from_heap,
    lists_to_heap,
    maps_from_heap,
    maps_to_heap,
)
from statelib.serializers.keys import KeyParts, join_keys, split_keys
from statelib.serializers.registry import codec_of
from statelib.serializers.rows import StateRows
from statelib.wire.ragged import Bytes, Ragged, gather, join, offsets_of


@dataclass(frozen=True, eq=False)
class HeapEntries:
    """Entry ``i`` of key group ``key_groups[i]`` is ``data[starts[i]:ends[i]]``."""

    data: Bytes
    key_groups: npt.NDArray[np.int32]
    starts: Cursor
    ends: Cursor


def rows_of(schema: KeyedStateSchema, descriptor: StateDescriptor, entries: HeapEntries, what: str) -> StateRows:
    """The rows that the entries stand for: one a user key for map state, none for an empty list.

    Raises CorruptStateError (``bad-entry``, and what the codecs raise)."""
    data, ends = entries.data, entries.ends
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
    """The inverse of :func:`rows_of` for rows in key order: serialized entries, and for each of
    ``bounds`` (row numbers where key groups begin) the entry that the row belongs to."""
    keys = split_keys(schema, descriptor, rows.keys)
    codec = codec_of(stored_value_type(descriptor))
    if descriptor.kind is StateKind.LIST:
        assert isinstance(codec, SequenceCodec)
        return join([keys.namespaces, keys.keys, lists_to_heap(codec, rows.values)]), bounds
    if keys.user_keys is None:
        return join([keys.namespaces, keys.keys, rows.values]), bounds
    owners = gather(rows.keys.data, rows.keys.starts, rows.keys.lengths - keys.user_keys.lengths)
    firsts = np.flatnonzero(~_same_as_before(owners))
    counts = np.diff(np.append(firsts, len(rows)))
    maps = maps_to_heap(MapEntries(counts, keys.user_keys, rows.values))
    entries = join([keys.namespaces.take(firsts), keys.keys.take(firsts), maps])
    return entries, np.searchsorted(firsts, bounds).astype(np.int64)


def _check_ends(found: Cursor, ends: Cursor, what: str) -> None:
    wrong = np.flatnonzero(found != ends)
    if len(wrong):
        row = int(wrong[0])
        raise CorruptStateError(
            f"{what}: entry {row} ends at offset {found[row]}, expected it to fill the bytes up to {ends[row]}",
            kind="bad-entry",
        )


def _repeated(keys: KeyParts, counts: npt.NDArray[np.int64]) -> KeyParts:
    rows = np.repeat(np.arange(len(counts)), counts)
    return KeyParts(keys.key_groups[rows], keys.keys.take(rows), keys.namespaces.take(rows))


def _same_as_before(rows: Ragged) -> npt.NDArray[np.bool_]:
    """Which rows equal the row before them."""
    same = np.zeros(len(rows), np.bool_)
    lengths = rows.lengths
    alike = np.flatnonzero(lengths[1:] == lengths[:-1])
    before, after = rows.take(alike), rows.take(alike + 1)
    differing = offsets_of((before.data != after.data).view(np.uint8))
    same[alike + 1] = np.diff(differing[after.offsets]) == 0
    return same
