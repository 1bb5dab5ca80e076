"""The reader of Flink's change log: streams of state changes. The writer is ``formats.changelog.encoder``.

A stream is ``u8 compressed``, then change sets. The offset in a handle is that of one change set, counted in
decompressed bytes after the first byte of the stream. A change set is ``i32 groups``, then per group ``i32 changes, i32
key group`` and the changes, each ``i32 length, bytes``; key group -1 holds metadata and comes first. Finding the
boundaries of changes takes a loop over integers; everything else moves columns.

Source: docs/spec/formats.md#change-log (StateChangeFormat).
"""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from statelib.errors import CorruptStateError, UnsupportedError
from statelib.formats import snappy_framing
from statelib.formats.keyed.header import MetaKind, header_state, read_meta_info, stored_value_type, timers_key_type
from statelib.model.amounts import number_of
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import StateDescriptor, StateKind
from statelib.model.types import StateType
from statelib.serializers.registry import codec_of
from statelib.serializers.skippers import check_divisible
from statelib.wire.java_objects import read_object
from statelib.wire.ragged import Bytes, Ragged, equally_spaced, gather
from statelib.wire.reader import Reader

METADATA_GROUP = -1
META_INFO_VERSIONS = (6, 7)
_U32 = struct.Struct(">I")
_OP_AND_STATE = 3
"""The size in bytes of the operation and the state id at the start of each change."""


class Op(IntEnum):
    """The operations of Flink's StateChangeOperation, by code, and one of statelib's own. Flink refuses a log with
    :attr:`MERGE`."""

    CLEAR = 0
    SET = 1
    SET_INTERNAL = 2
    ADD = 3
    MERGE_NS = 4
    ADD_ELEMENT = 5
    ADD_OR_UPDATE_ELEMENT = 6
    REMOVE_ELEMENT = 7
    METADATA = 8
    MERGE = 64


@dataclass(frozen=True, eq=False)
class ChangeSet:
    """The changes of one change set.

    ``metadata``: the records that bind state ids to states. Change ``i``, of key group ``key_groups[i]``, is
    ``data[starts[i]:ends[i]]``.
    """

    metadata: tuple[memoryview, ...]
    data: Bytes
    key_groups: npt.NDArray[np.int32]
    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ChangeRecords:
    """The changes of one state in their order: operation ``ops[i]`` on key ``keys[i]`` with ``arguments[i]``."""

    ops: npt.NDArray[np.uint8]
    key_groups: npt.NDArray[np.int32]
    keys: Ragged
    namespaces: Ragged
    arguments: Ragged


def decode_stream(raw: memoryview, what: str) -> Bytes:
    """Return the decompressed change sets of a stream; ``what`` names the stream in errors.

    Raise CorruptStateError (``corrupt-changelog``, and the kinds of Snappy's framing).
    """
    if not len(raw) or raw[0] > 1:
        raise _corrupt(what, f"expected 0 or 1 in the first byte, found {bytes(raw[:1]).hex() or 'no byte'}")
    if not raw[0]:
        return np.frombuffer(raw[1:], np.uint8)
    data, end = snappy_framing.decompress(raw[1:], what)
    if end != len(raw) - 1:
        raise _corrupt(what, f"the compressed changes end at offset {end + 1} of {len(raw)}")
    return data


def decode_change_set(data: Bytes, offset: int, wanted: KeyGroupRange, what: str) -> ChangeSet:
    """Return the change set at ``offset`` without the changes of key groups that are not ``wanted``.

    Raise CorruptStateError (``corrupt-changelog``) if the set reaches beyond the data.
    """
    metadata: list[memoryview] = []
    groups: list[tuple[int, npt.NDArray[np.int64], int]] = []
    raw = data.data
    reader = Reader(raw[min(offset, len(data)) :], what)
    try:
        for group, count, bounds in read_groups(reader, raw, offset):
            if group == METADATA_GROUP:
                metadata += [raw[a + 4 : b] for a, b in pairwise(bounds)]
            elif group in wanted:
                groups.append((group, bounds, count))
    except CorruptStateError as error:
        raise _corrupt(
            what, f"the change set at offset {offset} reaches beyond {number_of(len(data), 'byte')} ({error})"
        ) from error
    return ChangeSet(
        tuple(metadata),
        data,
        np.repeat(np.array([g for g, _, _ in groups], np.int32), [n for _, _, n in groups]),
        _joined(bounds[:-1] for _, bounds, _ in groups) + 4,
        _joined(bounds[1:] for _, bounds, _ in groups),
    )


def change_set_of(changes: Iterable[tuple[int, bytes]], wanted: KeyGroupRange) -> ChangeSet:
    """Return the change set of changes that a handle holds in memory: pairs of key group (-1 for metadata) and bytes.

    Changes of key groups that are not ``wanted`` are left out.
    """
    pairs = list(changes)
    wanted_changes = [(group, change) for group, change in pairs if group in wanted]
    lengths = np.array([len(change) for _, change in wanted_changes], np.int64)
    ends = np.cumsum(lengths)
    return ChangeSet(
        tuple(memoryview(change) for group, change in pairs if group == METADATA_GROUP),
        np.frombuffer(b"".join(change for _, change in wanted_changes), np.uint8),
        np.array([group for group, _ in wanted_changes], np.int32),
        ends - lengths,
        ends,
    )


def read_groups(reader: Reader, raw: memoryview, base: int) -> Iterator[tuple[int, int, npt.NDArray[np.int64]]]:
    """Yield (key group or -1, number of changes, bounds) for each group of the change set at the reader's offset.

    The bounds are the offsets in ``raw`` at which each change begins and the last one ends. ``base``: the offset in
    ``raw`` of the reader's first byte. Raise CorruptStateError.
    """
    for number in range(reader.count(8, "groups")):
        with reader.part(f"group {number}"):
            count, group = reader.count(4, "changes"), reader.i32("key group")
            bounds = _change_bounds(raw, base + reader.offset, count, reader.what)
            reader.take(int(bounds[-1]) - base - reader.offset, "metadata" if group == METADATA_GROUP else "content")
        yield group, count, bounds


@dataclass(frozen=True)
class Binding:
    """The state that a number stands for in the changes of a stream. ``key_type`` is the key type of timers; None for
    other state, whose metadata does not hold it."""

    number: int
    descriptor: StateDescriptor
    key_type: StateType | None


def read_binding(record: memoryview, what: str) -> Binding:
    """Return the binding in a metadata record: the changes after it refer to the state by its number.

    Raise CorruptStateError (``corrupt-changelog``), and UnsupportedError (``changelog-version`` and the kinds of the
    serializers).
    """
    reader = Reader(record, what)
    if reader.u8() != Op.METADATA:
        raise _corrupt(what, f"expected metadata, found operation {record[0]}")
    version = reader.i32()
    if version not in META_INFO_VERSIONS:
        raise UnsupportedError(f"{what}: version {version} of a state's metadata", kind="changelog-version")
    info = read_meta_info(reader)
    state = header_state(info, None, what)
    if state.kind is not StateKind.TIMERS:
        if reader.bool():
            read_object(reader)  # the configuration of the time to live
        if reader.bool():
            reader.take(_value_size(stored_value_type(state), record, reader.offset))
    number, code = reader.i16(), reader.u8()
    if reader.remaining or code not in (MetaKind.KEY_VALUE, MetaKind.PRIORITY_QUEUE, 10):
        raise _corrupt(what, f"state {state.name!r} of type {code}, {reader.remaining} bytes after its metadata")
    return Binding(number, state, timers_key_type(info))


def state_ids(changes: ChangeSet, what: str) -> npt.NDArray[np.int16]:
    """Return the state id of each change. Raise CorruptStateError (``corrupt-changelog``) if a change has none."""
    if len(changes.starts) and int((changes.ends - changes.starts).min()) < _OP_AND_STATE:
        raise _corrupt(what, "a change is too short to hold an operation and a state id")
    high, low = (changes.data[changes.starts + at].astype(np.int16) for at in (1, 2))
    return (high << np.int16(8)) | low


def records_of(
    changes: ChangeSet, rows: npt.NDArray[np.int64], key: StateType, descriptor: StateDescriptor
) -> ChangeRecords:
    """Return the changes in ``rows``, all of one state, split into key, namespace and arguments.

    Timers are keys themselves: for them the whole content is in the arguments. Raise CorruptStateError,
    UnsupportedError (``opaque-entries``) for keys that only a user's code can read.
    """
    check_divisible(key)
    data, starts, ends = changes.data, changes.starts[rows], changes.ends[rows]
    namespace_at = rest = starts + _OP_AND_STATE
    if descriptor.kind is not StateKind.TIMERS:
        namespace_at = codec_of(key).skip(data, starts + _OP_AND_STATE, ends)
        rest = codec_of(descriptor.namespace_type).skip(data, namespace_at, ends)
    return ChangeRecords(
        data[starts],
        changes.key_groups[rows],
        gather(data, starts + _OP_AND_STATE, namespace_at - starts - _OP_AND_STATE),
        gather(data, namespace_at, rest - namespace_at),
        gather(data, rest, ends - rest),
    )


def _change_bounds(raw: memoryview, at: int, count: int, what: str) -> npt.NDArray[np.int64]:
    """Return the offset of each of ``count`` changes, and of the end of the last one.

    A negative length is read as unsigned, and thus points beyond the end. Raise CorruptStateError
    (``corrupt-changelog``).
    """
    if count > 1 and (equal := _equal_bounds(raw, at, count)) is not None:
        return equal
    bounds = [at]
    append, unpack = bounds.append, _U32.unpack_from
    try:
        for _ in range(count):
            at += 4 + unpack(raw, at)[0]
            append(at)
    except struct.error as error:
        raise _corrupt(what, f"a change at offset {at} reaches beyond {number_of(len(raw), 'byte')}") from error
    return np.array(bounds, np.int64)


def _equal_bounds(raw: memoryview, at: int, count: int) -> npt.NDArray[np.int64] | None:
    """Return what :func:`_change_bounds` returns if all changes have the same length, otherwise None."""
    if at + 4 > len(raw):
        return None
    bounds = at + np.arange(count + 1) * (4 + _U32.unpack_from(raw, at)[0])
    if bounds[-1] > len(raw):
        return None
    stride = int(bounds[1]) - at
    lengths = equally_spaced(np.frombuffer(raw, np.uint8), at, count, stride, "u4")
    return bounds if bool((lengths == lengths[0]).all()) else None


def _joined(parts: Iterable[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    return np.concatenate([np.empty(0, np.int64), *parts])


def _value_size(type_: StateType, record: memoryview, at: int) -> int:
    """Return the size in bytes of the serialized value at ``at``."""
    check_divisible(type_)
    data = np.frombuffer(record, np.uint8)
    return int(codec_of(type_).skip(data, np.array([at]), np.array([len(data)]))[0]) - at


def _corrupt(what: str, problem: str) -> CorruptStateError:
    return CorruptStateError(f"{what}: {problem}", kind="corrupt-changelog", hint="restore an older checkpoint")
