"""The net changes of a change log: the last state of each key, computed on columns.

Source: docs/spec/formats.md#change-log (the meaning of each operation), #values, #heap-stream.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from statelib.backends.keys.order import coded
from statelib.errors import CorruptStateError
from statelib.formats.changelog.change_set import ChangeRecords, Op
from statelib.formats.keyed.header import stored_value_type
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind
from statelib.model.types import LONG
from statelib.model.types import Tuple as TupleType
from statelib.restore.changelog.merged_values import GONE, MERGED, PUT, Steps, outcome_of
from statelib.restore.changelog.merged_windows import MERGING, Moved, MovedValue, Owner, rows_of, without_merges
from statelib.serializers.columns.cursors import read_count
from statelib.serializers.columns.elements import SEPARATOR, counted
from statelib.serializers.containers.maps import MapCodec
from statelib.serializers.containers.sequence_codec import SequenceCodec
from statelib.serializers.containers.tuples import TupleCodec
from statelib.serializers.entries.heap_values import lists_from_heap, maps_from_heap
from statelib.serializers.entries.keys import KeyParts, check_end, group_prefix, join_keys
from statelib.serializers.entries.rows import NO_ROWS, StateRows, without_values
from statelib.serializers.registry import codec_of
from statelib.serializers.skippers import check_divisible
from statelib.wire.ragged import Ragged, concat, from_fixed, from_list, gather, join, offsets_of

Rows = npt.NDArray[np.int64]
_NONE = concat([])
_MOMENT_BYTES = 8
_RESETS = (Op.CLEAR, Op.SET, Op.SET_INTERNAL)
"""Operations that make all earlier changes of the key irrelevant."""
_ALLOWED = {
    StateKind.LIST: (*_RESETS, Op.ADD, Op.ADD_ELEMENT),
    StateKind.TIMERS: (Op.ADD_ELEMENT, Op.REMOVE_ELEMENT),
    StateKind.MAP: (*_RESETS, Op.ADD, Op.ADD_ELEMENT, Op.ADD_OR_UPDATE_ELEMENT, Op.REMOVE_ELEMENT, Op.MERGE),
    StateKind.VALUE: (*_RESETS, Op.MERGE),
}


@dataclass(frozen=True, eq=False)
class StateChanges:
    """The net changes of one state, relative to the materialised entries below the log.

    ``put`` holds entries that replace those below. ``gone`` holds keys whose entries are removed. ``appended`` holds
    elements that are appended to the lists below. ``cleared`` holds keys without their user keys, of which every map
    entry below is removed. ``merged`` holds values that are merged into the entries below, or are put where there is
    none. A key is in at most one of ``put``, ``gone``, ``appended`` and ``merged``. ``moved`` holds further entries to
    put, whose values come from entries below that are removed."""

    put: StateRows
    gone: Ragged
    appended: StateRows
    cleared: Ragged
    moved: tuple[MovedValue, ...] = ()
    merged: StateRows = NO_ROWS

    @property
    def plain(self) -> bool:
        """Whether the changes only put and remove single entries."""
        return not (len(self.appended) or len(self.cleared) or len(self.merged) or self.moved)


NO_CHANGES = StateChanges(NO_ROWS, _NONE, NO_ROWS, _NONE)


def changes_of(
    schema: KeyedStateSchema,
    descriptor: StateDescriptor,
    batches: Sequence[ChangeRecords],
    *,
    over_nothing: bool = False,
) -> StateChanges:
    """Return the net changes of all batches, applied in their order. ``over_nothing`` means that no state is
    materialised below the log.

    Raise CorruptStateError (``corrupt-changelog`` and what the codecs raise), UnsupportedError
    (``merging-windows``; ``opaque-entries`` for values, not last in a change, that only a user's code can read)."""
    if not batches:
        return NO_CHANGES
    records = _joined(batches)
    _check_operations(descriptor, records.ops)
    unmerged, moved = without_merges(descriptor, records, over_nothing)
    changes = _outcome(schema, descriptor, unmerged)
    return replace(changes, moved=_moved_values(schema, descriptor, records, moved)) if moved else changes


def _outcome(schema: KeyedStateSchema, descriptor: StateDescriptor, records: ChangeRecords) -> StateChanges:
    if descriptor.kind is StateKind.TIMERS:
        return _timer_changes(schema, descriptor, records)
    owners = join_keys(schema, descriptor, KeyParts(records.key_groups, records.keys, records.namespaces))
    codes, distinct = coded(owners)
    resets = np.flatnonzero(np.isin(records.ops, _RESETS))
    last_reset = np.full(len(distinct), -1, np.int64)
    np.maximum.at(last_reset, codes[resets], resets)
    if descriptor.kind is StateKind.MAP:
        return _map_changes(descriptor, records, codes, distinct, last_reset)
    if descriptor.kind is StateKind.LIST:
        return _list_changes(descriptor, records, codes, distinct, last_reset)
    if (records.ops == Op.MERGE).any():
        return _merged_changes(descriptor, records, codes, distinct)
    present = records.ops[last_reset] != Op.CLEAR
    put = StateRows(distinct.take(np.flatnonzero(present)), records.arguments.take(last_reset[present]))
    return StateChanges(put, distinct.take(np.flatnonzero(~present)), NO_ROWS, _NONE)


def _merged_changes(descriptor: StateDescriptor, records: ChangeRecords, codes: Rows, distinct: Ragged) -> StateChanges:
    """Return the changes of a state with one entry per key, some of which merge a value."""
    kinds = np.where(records.ops == Op.MERGE, MERGED, np.where(records.ops == Op.CLEAR, GONE, PUT)).astype(np.int8)
    steps = Steps(codes, kinds, records.arguments)
    outcome = outcome_of(descriptor, distinct, steps, np.zeros(len(distinct), np.bool_))
    return StateChanges(outcome.put, outcome.gone, NO_ROWS, _NONE, merged=outcome.merged)


def _moved_values(
    schema: KeyedStateSchema, descriptor: StateDescriptor, records: ChangeRecords, moved: Sequence[Moved]
) -> tuple[MovedValue, ...]:
    """Return the moved values with serialized keys for owners and values for records. Parts that are empty lists are
    omitted."""
    rows = [row for value in moved for row in value.rows]
    if descriptor.kind is StateKind.LIST:
        positions, logged = _chunks(descriptor, rows_of(records, rows))
    else:
        positions, logged = np.arange(len(rows)), records.arguments.take(np.array(rows, np.int64))
    values = dict(zip([rows[position] for position in positions.tolist()], logged.to_list(), strict=True))
    keys = _keys_of(schema, descriptor, [owner for value in moved for owner in (value.owner, *value.below)])

    def parts(value: Moved) -> Iterator[tuple[bool, bytes]]:
        for part in value.parts:
            if not isinstance(part, int):
                yield True, keys[part]
            elif part in values:
                yield False, values[part]

    return tuple(MovedValue(keys[value.owner], tuple(parts(value))) for value in moved)


def _keys_of(schema: KeyedStateSchema, descriptor: StateDescriptor, owners: Sequence[Owner]) -> dict[Owner, bytes]:
    groups, keys, namespaces = zip(*owners, strict=True)
    parts = KeyParts(np.array(groups, np.int32), from_list(list(keys)), from_list(list(namespaces)))
    return dict(zip(owners, join_keys(schema, descriptor, parts).to_list(), strict=True))


def _timer_changes(schema: KeyedStateSchema, descriptor: StateDescriptor, records: ChangeRecords) -> StateChanges:
    """Return the last change of each timer. One record sets several timers, but removes only one."""
    timer = TupleCodec(
        TupleType((LONG, schema.key_type, descriptor.namespace_type)),
        (codec_of(LONG), codec_of(schema.key_type), codec_of(descriptor.namespace_type)),
    )
    set_rows, removed_rows = (np.flatnonzero(records.ops == op) for op in (Op.ADD_ELEMENT, Op.REMOVE_ELEMENT))
    lists = records.arguments.take(set_rows)
    counts = read_count(lists.data, lists.starts, lists.offsets[1:], _MOMENT_BYTES, _value(descriptor))
    starts, ends = counted(timer.skip, lists.data, lists.starts + 4, lists.offsets[1:], counts)
    check_end(ends, lists.offsets[1:], _value(descriptor))
    stops = timer.skip(lists.data, starts, np.repeat(lists.offsets[1:], counts))
    timers = concat([gather(lists.data, starts, stops - starts), records.arguments.take(removed_rows)])
    rows = np.concatenate([np.repeat(set_rows, counts), removed_rows])
    keys = join([group_prefix(schema, records.key_groups[rows]), timers])
    codes, distinct = coded(keys)
    last = np.full(len(distinct), -1, np.int64)
    np.maximum.at(last, codes, rows)
    is_set = np.flatnonzero(records.ops[last] == Op.ADD_ELEMENT)
    put = distinct.take(is_set)
    return StateChanges(
        without_values(put), distinct.take(np.setdiff1d(np.arange(len(distinct)), is_set)), NO_ROWS, _NONE
    )


def _list_changes(
    descriptor: StateDescriptor, records: ChangeRecords, codes: Rows, distinct: Ragged, last_reset: Rows
) -> StateChanges:
    """Return the list elements since the last reset of each key, joined with separators."""
    rows_of_chunks, chunks = _chunks(descriptor, records)
    live = np.flatnonzero(rows_of_chunks >= last_reset[codes[rows_of_chunks]])
    order = live[np.lexsort((rows_of_chunks[live], codes[rows_of_chunks[live]]))]
    keys, firsts = np.unique(codes[rows_of_chunks[order]], return_index=True)
    following = np.ones(len(order), np.int64)
    following[firsts] = 0
    commas = Ragged(np.full(int(following.sum()), SEPARATOR, np.uint8), offsets_of(following))
    joined = join([commas, chunks.take(order)]) if len(order) else _NONE
    values = Ragged(joined.data, joined.offsets[np.append(firsts, len(order))])
    reset = last_reset[keys] >= 0
    emptied = np.setdiff1d(np.flatnonzero(last_reset >= 0), keys)
    rows = StateRows(distinct.take(keys), values)
    return StateChanges(
        rows.take(np.flatnonzero(reset)), distinct.take(emptied), rows.take(np.flatnonzero(~reset)), _NONE
    )


def _chunks(descriptor: StateDescriptor, records: ChangeRecords) -> tuple[Rows, Ragged]:
    """Return (record number, serialized elements) of each record that adds elements."""
    codec = codec_of(stored_value_type(descriptor))
    assert isinstance(codec, SequenceCodec)
    whole = np.flatnonzero(np.isin(records.ops, (Op.SET, Op.SET_INTERNAL, Op.ADD)))
    single = np.flatnonzero(records.ops == Op.ADD_ELEMENT)
    arguments = records.arguments
    if len(whole):
        check_divisible(descriptor.value_type)
    lists = arguments.take(whole)
    elements, counts = lists_from_heap(codec, lists.data, lists.starts, lists.offsets[1:])
    check_end(codec.skip(lists.data, lists.starts, lists.offsets[1:]), lists.offsets[1:], _value(descriptor))
    rows: Rows = np.concatenate([whole[counts > 0], single])
    chunks = concat([elements.take(np.flatnonzero(counts > 0)), arguments.take(single)])
    return rows, chunks


def _map_changes(
    descriptor: StateDescriptor,
    records: ChangeRecords,
    codes: Rows,
    distinct: Ragged,
    last_reset: Rows,
) -> StateChanges:
    """Return the last change of each map entry since the last reset of its key, and the merged values after it."""
    parts = [
        _whole_maps(descriptor, records),
        _single_entries(descriptor, records),
        _removals(descriptor, records),
        _merges(descriptor, records),
    ]
    rows_of_entries = np.concatenate([rows for rows, _, _ in parts])
    order = np.argsort(rows_of_entries, kind="stable")
    order = order[rows_of_entries[order] >= last_reset[codes[rows_of_entries[order]]]]
    user_keys = concat([keys for _, keys, _ in parts]).take(order)
    values = concat([values for _, _, values in parts]).take(order)
    owners = codes[rows_of_entries[order]]
    composite = join([distinct.take(owners), user_keys]) if len(order) else _NONE
    entries, keys = coded(composite)
    is_merge = records.ops[rows_of_entries[order]] == Op.MERGE
    kinds = np.where(is_merge, MERGED, np.where(values.lengths > 0, PUT, GONE)).astype(np.int8)
    cleared = distinct.take(np.flatnonzero(last_reset >= 0))
    if is_merge.any():
        absent = np.zeros(len(keys), np.bool_)
        absent[entries] = last_reset[owners] >= 0
        outcome = outcome_of(descriptor, keys, Steps(entries, kinds, values), absent)
        return StateChanges(outcome.put, outcome.gone, NO_ROWS, cleared, merged=outcome.merged)
    last = np.full(len(keys), -1, np.int64)
    np.maximum.at(last, entries, np.arange(len(order), dtype=np.int64))
    present = kinds[last] == PUT
    put = StateRows(keys.take(np.flatnonzero(present)), values.take(last[present]))
    return StateChanges(put, keys.take(np.flatnonzero(~present)), NO_ROWS, cleared)


def _whole_maps(descriptor: StateDescriptor, records: ChangeRecords) -> tuple[Rows, Ragged, Ragged]:
    """Return (record number, user key, value with its null flag) of each entry of the whole maps that were put."""
    rows = np.flatnonzero(np.isin(records.ops, (Op.SET, Op.SET_INTERNAL, Op.ADD)))
    codec = codec_of(stored_value_type(descriptor))
    assert isinstance(codec, MapCodec)
    if len(rows):
        check_divisible(codec.type)
    maps = records.arguments.take(rows)
    limit = maps.offsets[1:]
    elements = maps_from_heap(codec, maps.data, maps.starts, limit)
    check_end(codec.skip(maps.data, maps.starts, limit), limit, _value(descriptor))
    null = elements.values.data[elements.values.starts] != 0
    values = gather(elements.values.data, elements.values.starts, np.where(null, 1, elements.values.lengths))
    return np.repeat(rows, elements.counts), elements.user_keys, values


def _single_entries(descriptor: StateDescriptor, records: ChangeRecords) -> tuple[Rows, Ragged, Ragged]:
    return _with_values(descriptor, records, Op.ADD_ELEMENT, Op.ADD_OR_UPDATE_ELEMENT)


def _merges(descriptor: StateDescriptor, records: ChangeRecords) -> tuple[Rows, Ragged, Ragged]:
    return _with_values(descriptor, records, Op.MERGE)


def _with_values(descriptor: StateDescriptor, records: ChangeRecords, *ops: Op) -> tuple[Rows, Ragged, Ragged]:
    rows = np.flatnonzero(np.isin(records.ops, ops))
    user_keys, rest = _user_keys(descriptor, records, rows)
    present = from_fixed(np.zeros((len(rows), 1), np.uint8))
    return rows, user_keys, join([present, rest]) if len(rows) else _NONE


def _removals(descriptor: StateDescriptor, records: ChangeRecords) -> tuple[Rows, Ragged, Ragged]:
    rows = np.flatnonzero(records.ops == Op.REMOVE_ELEMENT)
    user_keys, rest = _user_keys(descriptor, records, rows)
    check_end(rest.starts, rest.offsets[1:], _value(descriptor))
    return rows, user_keys, rest


def _user_keys(descriptor: StateDescriptor, records: ChangeRecords, rows: Rows) -> tuple[Ragged, Ragged]:
    assert descriptor.user_key_type is not None
    if len(rows):
        check_divisible(descriptor.user_key_type)
    arguments = records.arguments.take(rows)
    limit = arguments.offsets[1:]
    end = codec_of(descriptor.user_key_type).skip(arguments.data, arguments.starts, limit)
    user_keys = gather(arguments.data, arguments.starts, end - arguments.starts)
    return user_keys, gather(arguments.data, end, limit - end)


def _joined(batches: Sequence[ChangeRecords]) -> ChangeRecords:
    if len(batches) == 1:
        return batches[0]
    return ChangeRecords(
        np.concatenate([b.ops for b in batches]),
        np.concatenate([b.key_groups for b in batches]),
        concat([b.keys for b in batches]),
        concat([b.namespaces for b in batches]),
        concat([b.arguments for b in batches]),
    )


def _check_operations(descriptor: StateDescriptor, ops: npt.NDArray[np.uint8]) -> None:
    allowed = (*_ALLOWED.get(descriptor.kind, _RESETS), *([Op.MERGE_NS] if descriptor.kind in MERGING else []))
    unknown = ops[~np.isin(ops, allowed)]
    if not len(unknown):
        return
    raise CorruptStateError(
        f"state {descriptor.name!r} of kind {descriptor.kind}: operation {unknown[0]} in its log",
        kind="corrupt-changelog",
    )


def _value(descriptor: StateDescriptor) -> str:
    return f"logged value of state {descriptor.name!r}"
