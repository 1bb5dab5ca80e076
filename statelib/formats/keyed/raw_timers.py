"""The timers in raw keyed state, where RocksDB and ForSt checkpoint the timers that they keep on the Java heap.

They are read as ordinary entries: one state per timer service and time domain, with keys and without values. Source:
docs/spec/formats.md#timers (InternalTimerServiceSerializationProxy, version 2).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from statelib.errors import CorruptStateError, UnsupportedError
from statelib.model.handles import KeyGroupsStateHandle
from statelib.model.key_groups import prefix_width
from statelib.model.state import EVENT_TIMERS, PROCESSING_TIMERS, StateDescriptor, timers_descriptor
from statelib.model.types import StateType
from statelib.serializers.entries.rows import StateRows
from statelib.serializers.snapshots import decode_serializer_snapshot
from statelib.serializers.typed_json import json_reader
from statelib.wire.ragged import from_list
from statelib.wire.reader import Reader

_MAGIC = 0xF1CD859F
_VERSION = 2
_SIGN = 1 << 63
_MASK = (1 << 64) - 1
ReadRange = Callable[[int, int], memoryview]


@dataclass(frozen=True, eq=False)
class RawTimers:
    """The timers of one state in some key groups of one handle, and the type of their keys."""

    key_type: StateType
    descriptor: StateDescriptor
    rows: StateRows


def is_empty(handle: KeyGroupsStateHandle) -> bool:
    """Return whether no key group has any timer; the offset of a key group without timers is -1."""
    return all(offset < 0 for offset in handle.offsets)


def read_raw_timers(
    data: bytes | memoryview, handle: KeyGroupsStateHandle, max_parallelism: int, what: str
) -> tuple[RawTimers, ...]:
    """Return all timers of a handle: two states per timer service, including states without timers.

    Raise CorruptStateError for damaged bytes, and UnsupportedError (``raw-keyed-state``) for raw keyed state that does
    not hold timers.
    """
    timers_by_state: dict[StateDescriptor, tuple[StateType, list[bytes]]] = {}
    width = prefix_width(max_parallelism)
    for key_group, offset in enumerate(handle.offsets, handle.key_group_range.start):
        if offset < 0:
            continue
        reader = Reader(data, f"{what}, key group {key_group}")
        reader.take(offset)
        _check_head(reader)
        prefix = key_group.to_bytes(width, "big")
        for _ in range(reader.count(6)):
            for key_type, descriptor, timers in _read_service(reader):
                expected_type, keys = timers_by_state.setdefault(descriptor, (key_type, []))
                if expected_type != key_type:
                    raise CorruptStateError(
                        f"{reader.what}: timers of keys of type {key_type}, expected {expected_type}",
                        kind="corrupt-header",
                    )
                keys += [prefix + timer for timer in timers]
    return tuple(
        RawTimers(key_type, descriptor, StateRows(from_list(keys), from_list([b""] * len(keys))))
        for descriptor, (key_type, keys) in timers_by_state.items()
    )


def _check_head(reader: Reader) -> None:
    at, magic = reader.offset, reader.u32()
    if magic != _MAGIC:
        raise UnsupportedError(
            f"{reader.what}: found {magic:08x} at offset {at}, expected raw keyed state of timers, {_MAGIC:08x}",
            kind="raw-keyed-state",
            hint="only the job's own code can read the raw keyed state that it writes",
        )
    version = reader.i32()
    if version != _VERSION:
        raise UnsupportedError(
            f"{reader.what}: timers of version {version}, expected {_VERSION}", kind="raw-keyed-state"
        )


def _read_service(reader: Reader) -> Iterator[tuple[StateType, StateDescriptor, list[bytes]]]:
    """Yield (type of the keys, state, timers as serialized keys) for event time, then for processing time."""
    name = reader.utf()
    key_type, namespace_type = decode_serializer_snapshot(reader), decode_serializer_snapshot(reader)
    key, namespace = json_reader(key_type), json_reader(namespace_type)
    for prefix in (EVENT_TIMERS, PROCESSING_TIMERS):
        timers = []
        for _ in range(reader.count(8)):
            start = reader.offset
            key(reader)
            namespace(reader)
            names = bytes(reader.since(start))
            timers.append(((reader.i64() ^ _SIGN) & _MASK).to_bytes(8, "big") + names)
        yield key_type, timers_descriptor(prefix, name, namespace_type), timers
