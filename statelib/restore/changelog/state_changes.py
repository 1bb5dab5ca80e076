"""What a log of changes comes to: for each key the end of its story, computed on columns.

Source: flink-formats.md section 9 (what each operation means), sections 2.2 and 3.2 (values).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from statelib.backends.key_order import as_arrow, as_ragged
from statelib.errors import CorruptStateError
from statelib.formats.changelog.change_set import ChangeRecords, Op
from statelib.formats.keyed.header import stored_value_type
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind
from statelib.model.types import LONG
from statelib.model.types import Tuple as TupleType
from statelib.restore.changelog.merged_windows import MERGING, Moved, MovedValue, Owner, rows_of, without_merges
from statelib.serializers.containers import MapCodec, SequenceCodec
from statelib.serializers.heap_values import lists_from_heap, maps_from_heap
from statelib.serializers.keys import KeyParts, check_end, group_prefix, join_keys
from statelib.serializers.registry import codec_of
from statelib.serializers.row_type import TupleCodec
from statelib.serializers.rows import NO_ROWS, StateRows
from statelib.serializers.spans import read_count
from statelib.serializers.walks import SEPARATOR, counted
from statelib.wire.ragged import Ragged, concat, from_fixed, from_list, gather, join, offsets_of

Rows = npt.NDArray[np.int64]
_NONE = concat([])
_MOMENT_BYTES = 8
_RESETS = (Op.CLEAR, Op.SET, Op.SET_INTERNAL)
"""Operations before which nothing of the key counts any more."""
_ALLOWED = {
    StateKind.LIST: (*_RESETS, Op.ADD, Op.ADD_ELEMENT),
    StateKind.TIMERS: (Op.ADD_ELEMENT, Op.REMOVE_ELEMENT),
    StateKind.MAP: (*_RESETS, Op.ADD, Op.ADD_ELEMENT, Op.ADD_OR_UPDATE_ELEMENT, Op.REMOVE_ELEMENT),
}


@dataclass(frozen=True, eq=False)
class StateChanges:
    """Of one state: ``put`` holds entries whatever lies below; the keys ``gone`` are not there any more; to the
    lists of ``appended`` elements are added; of the keys ``cleared`` (without their user keys) no map entry
    from below is left. Each key is in one of the first three at most. ``moved``: entries that are put as well, of what
    lies below under keys that are not there any more."""

    put: StateRows
    gone: Ragged
    appended: StateRows
    cleared: Ragged
    moved: tuple[MovedValue, ...] = ()

    @property
    def plain(self) -> bool:
        """Whether only single entries are put and removed."""
        return not len(self.appended) and not len(self.cleared) and not self.moved


NO_CHANGES = StateChanges(NO_ROWS, _NONE, NO_ROWS, _NONE)


def changes_of(
    schema: KeyedStateSchema,
    descriptor: StateDescriptor,
    batches: Sequence[ChangeRecords],
    *,
    over_nothing: bool = False,
) -> StateChanges:
    """The outcome of the changes of all batches, in their order. ``over_nothing``: no state lies below the log.

    Raises CorruptStateError (``corrupt-changelog`` and what the codecs raise), UnsupportedError
    (``merging-windows``)."""
    if not batches:
        return NO_CHANGES
    records = _joined(batches)
    _check_operations(descriptor, records.ops)
    told, moved = without_merges(descriptor, records, over_nothing)
    changes = _outcome(schema, descriptor, told)
    return replace(changes, moved=_moved_values(schema, descriptor, records, moved)) if moved else changes


def _outcome(schema: KeyedStateSchema, descriptor: StateDescriptor, records: ChangeRecords) -> StateChanges:
    if descriptor.kind is StateKind.TIMERS:
        return _of_timers(schema, descriptor, records)
    owners = join_keys(schema, descriptor, KeyParts(records.key_groups, records.keys, records.namespaces))
    codes, distinct = _coded(owners)
    resets = np.flatnonzero(np.isin(records.ops, _RESETS))
    last_reset = np.full(len(distinct), -1, np.int64)
    np.maximum.at(last_reset, codes[resets], resets)
    if descriptor.kind is StateKind.MAP:
        return _of_maps(descriptor, records, codes, distinct, last_reset)
    if descriptor.kind is StateKind.LIST:
        return _of_lists(descriptor, records, codes, distinct, last_reset)
    present = records.ops[last_reset] != Op.CLEAR
    put = StateRows(distinct.take(np.flatnonzero(present)), records.arguments.take(last_reset[present]))
    return StateChanges(put, distinct.take(np.flatnonzero(~present)), NO_ROWS, _NONE)


def _moved_values(
    schema: KeyedStateSchema, descriptor: StateDescriptor, records: ChangeRecords, moved: Sequence[Moved]
) -> tuple[MovedValue, ...]:
    """With serialized keys in place of owners, and values in place of records; an empty list is no part."""
    rows = [row for found in moved for row in found.rows]
    if descriptor.kind is StateKind.LIST:
        where, logged = _chunks(descriptor, rows_of(records, rows))
    else:
        where, logged = np.arange(len(rows)), records.arguments.take(np.array(rows, np.int64))
    values = dict(zip([rows[at] for at in where.tolist()], logged.to_list(), strict=True))
    keys = _keys_of(schema, descriptor, [owner for found in moved for owner in (found.owner, *found.below)])

    def parts(found: Moved) -> Iterator[tuple[bool, bytes]]:
        for part in found.parts:
            if not isinstance(part, int):
                yield True, keys[part]
            elif part in values:
                yield False, values[part]

    return tuple(MovedValue(keys[found.owner], tuple(parts(found))) for found in moved)


def _keys_of(schema: KeyedStateSchema, descriptor: StateDescriptor, owners: Sequence[Owner]) -> dict[Owner, bytes]:
    groups, keys, namespaces = zip(*owners, strict=True)
    parts = KeyParts(np.array(groups, np.int32), from_list(list(keys)), from_list(list(namespaces)))
    return dict(zip(owners, join_keys(schema, descriptor, parts).to_list(), strict=True))


def _of_timers(schema: KeyedStateSchema, descriptor: StateDescriptor, records: ChangeRecords) -> StateChanges:
    """The last that became of each timer: they are set several at once, and removed one by one."""
    timer = TupleCodec(
        TupleType((LONG, schema.key_type, descriptor.namespace_type)),
        (codec_of(LONG), codec_of(schema.key_type), codec_of(descriptor.namespace_type)),
    )
    set_, removed = (np.flatnonzero(records.ops == op) for op in (Op.ADD_ELEMENT, Op.REMOVE_ELEMENT))
    lists = records.arguments.take(set_)
    counts = read_count(lists.data, lists.starts, lists.offsets[1:], _MOMENT_BYTES, _value(descriptor))
    starts, ends = counted(timer.skip, lists.data, lists.starts + 4, lists.offsets[1:], counts)
    check_end(ends, lists.offsets[1:], _value(descriptor))
    stops = timer.skip(lists.data, starts, np.repeat(lists.offsets[1:], counts))
    timers = concat([gather(lists.data, starts, stops - starts), records.arguments.take(removed)])
    where = np.concatenate([np.repeat(set_, counts), removed])
    keys = join([group_prefix(schema, records.key_groups[where]), timers])
    codes, distinct = _coded(keys)
    last = np.full(len(distinct), -1, np.int64)
    np.maximum.at(last, codes, where)
    there = np.flatnonzero(records.ops[last] == Op.ADD_ELEMENT)
    put = distinct.take(there)
    nothing = Ragged(_NONE.data, np.zeros(len(put) + 1, np.int64))
    return StateChanges(
        StateRows(put, nothing), distinct.take(np.setdiff1d(np.arange(len(distinct)), there)), NO_ROWS, _NONE
    )


def _of_lists(
    descriptor: StateDescriptor, records: ChangeRecords, codes: Rows, distinct: Ragged, last_reset: Rows
) -> StateChanges:
    """Chunks of elements since the last reset of each key, one behind the other with separators."""
    where, chunks = _chunks(descriptor, records)
    live = np.flatnonzero(where >= last_reset[codes[where]])
    order = live[np.lexsort((where[live], codes[where[live]]))]
    keys, firsts = np.unique(codes[where[order]], return_index=True)
    following = np.ones(len(order), np.int64)
    following[firsts] = 0
    commas = Ragged(np.full(int(following.sum()), SEPARATOR, np.uint8), offsets_of(following))
    joined = join([commas, chunks.take(order)]) if len(order) else _NONE
    values = Ragged(joined.data, joined.offsets[np.append(firsts, len(order))])
    reset = last_reset[keys] >= 0
    left = np.setdiff1d(np.flatnonzero(last_reset >= 0), keys)
    rows = StateRows(distinct.take(keys), values)
    return StateChanges(rows.take(np.flatnonzero(reset)), distinct.take(left), rows.take(np.flatnonzero(~reset)), _NONE)


def _chunks(descriptor: StateDescriptor, records: ChangeRecords) -> tuple[Rows, Ragged]:
    """(record, the elements that it adds, as a value has them) of those that add any."""
    codec = codec_of(stored_value_type(descriptor))
    assert isinstance(codec, SequenceCodec)
    whole = np.flatnonzero(np.isin(records.ops, (Op.SET, Op.SET_INTERNAL, Op.ADD)))
    single = np.flatnonzero(records.ops == Op.ADD_ELEMENT)
    arguments = records.arguments
    lists = arguments.take(whole)
    elements, counts = lists_from_heap(codec, lists.data, lists.starts, lists.offsets[1:])
    check_end(codec.skip(lists.data, lists.starts, lists.offsets[1:]), lists.offsets[1:], _value(descriptor))
    where: Rows = np.concatenate([whole[counts > 0], single])
    chunks = concat([elements.take(np.flatnonzero(counts > 0)), arguments.take(single)])
    return where, chunks


def _of_maps(
    descriptor: StateDescriptor,
    records: ChangeRecords,
    codes: Rows,
    distinct: Ragged,
    last_reset: Rows,
) -> StateChanges:
    """The last change of each map entry since the last reset of its key."""
    entries = [_whole_maps(descriptor, records), _single_entries(descriptor, records), _removals(descriptor, records)]
    where = np.concatenate([rows for rows, _, _ in entries])
    order = np.argsort(where, kind="stable")
    order = order[where[order] >= last_reset[codes[where[order]]]]
    user_keys = concat([keys for _, keys, _ in entries]).take(order)
    values = concat([values for _, _, values in entries]).take(order)
    composite = join([distinct.take(codes[where[order]]), user_keys]) if len(order) else _NONE
    entry_codes, keys = _coded(composite)
    last = np.full(len(keys), -1, np.int64)
    np.maximum.at(last, entry_codes, np.arange(len(order), dtype=np.int64))
    present = values.lengths[last] > 0
    put = StateRows(keys.take(np.flatnonzero(present)), values.take(last[present]))
    return StateChanges(
        put, keys.take(np.flatnonzero(~present)), NO_ROWS, distinct.take(np.flatnonzero(last_reset >= 0))
    )


def _whole_maps(descriptor: StateDescriptor, records: ChangeRecords) -> tuple[Rows, Ragged, Ragged]:
    """(record, user key, value with its null flag) of each entry in the maps that were put as such."""
    rows = np.flatnonzero(np.isin(records.ops, (Op.SET, Op.SET_INTERNAL, Op.ADD)))
    codec = codec_of(stored_value_type(descriptor))
    assert isinstance(codec, MapCodec)
    maps = records.arguments.take(rows)
    limit = maps.offsets[1:]
    found = maps_from_heap(codec, maps.data, maps.starts, limit)
    check_end(codec.skip(maps.data, maps.starts, limit), limit, _value(descriptor))
    null = found.values.data[found.values.starts] != 0
    values = gather(found.values.data, found.values.starts, np.where(null, 1, found.values.lengths))
    return np.repeat(rows, found.counts), found.user_keys, values


def _single_entries(descriptor: StateDescriptor, records: ChangeRecords) -> tuple[Rows, Ragged, Ragged]:
    rows = np.flatnonzero(np.isin(records.ops, (Op.ADD_ELEMENT, Op.ADD_OR_UPDATE_ELEMENT)))
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
    arguments = records.arguments.take(rows)
    limit = arguments.offsets[1:]
    end = codec_of(descriptor.user_key_type).skip(arguments.data, arguments.starts, limit)
    user_keys = gather(arguments.data, arguments.starts, end - arguments.starts)
    return user_keys, gather(arguments.data, end, limit - end)


def _coded(rows: Ragged) -> tuple[Rows, Ragged]:
    """For each row the number of its content in the distinct ones."""
    coded = as_arrow(rows).dictionary_encode()
    return np.asarray(coded.indices.to_numpy(zero_copy_only=False), np.int64), as_ragged(coded.dictionary)


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
