"""The codec of the header of keyed streams: the key type, the registered states, and whether key groups are compressed.

Source: docs/spec/formats.md#header-of-a-keyed-stream (KeyedBackendSerializationProxy, StateMetaInfoSnapshot).
"""

from dataclasses import dataclass
from enum import IntEnum

from statelib.errors import CorruptStateError, InvalidRequestError, StatelibError, UnsupportedError
from statelib.model.key_groups import prefix_width
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind
from statelib.model.types import VOID, ListOf, MapOf, StateType
from statelib.serializers.snapshots import ForeignReader, decode_serializer_snapshot, encode_serializer_snapshot
from statelib.wire.reader import Reader
from statelib.wire.writer import Writer

VERSION = 6
_FRAME_VERSION = 2
_COMPOSITE_MAGIC, _NESTED_MAGIC = 0x000DE704, 0x001457FD
_TIMER = "org.apache.flink.streaming.api.operators.TimerSerializerSnapshot"
_COMPOSITE_VERSION, _TIMER_VERSION = 3, 2
_TIMER_KEY = "KEY_SERIALIZER"
_KIND, _NAMESPACE, _VALUE, _USER_KEY = (
    "KEYED_STATE_TYPE",
    "NAMESPACE_SERIALIZER",
    "VALUE_SERIALIZER",
    "USER_KEY_SERIALIZER",
)


class MetaKind(IntEnum):
    """The kinds of state meta info, with the ordinals of Flink's BackendStateType that the header stores."""

    KEY_VALUE = 0
    OPERATOR = 1
    BROADCAST = 2
    PRIORITY_QUEUE = 3
    KEY_VALUE_V2 = 4


@dataclass(frozen=True)
class MetaInfo:
    """One StateMetaInfoSnapshot as it is stored.

    For timers, ``serializers`` holds those of key and namespace, under ``KEY_SERIALIZER`` and ``NAMESPACE_SERIALIZER``;
    in the stored bytes both are inside one ``VALUE_SERIALIZER``.
    """

    name: str
    kind: MetaKind
    options: dict[str, str]
    serializers: dict[str, StateType]


@dataclass(frozen=True)
class KeyedHeader:
    """The decoded header of a keyed stream.

    The state ids in the stream are indexes in ``schema.states``, which includes timers. ``size_bytes``: the length of
    the header itself.
    """

    schema: KeyedStateSchema
    compressed: bool
    size_bytes: int

    @property
    def prefix_width(self) -> int:
        """The size in bytes of the key group at the start of each serialized key."""
        return prefix_width(self.schema.max_parallelism)


def encode_header(schema: KeyedStateSchema, compressed: bool) -> bytes:
    """Return a header of version 6; state ids are the indexes in ``schema.states``.

    RocksDB's meta stream has ``compressed`` False. Raise InvalidRequestError or UnsupportedError for a type whose
    serializer snapshot cannot be written.
    """
    writer = Writer()
    writer.i32(VERSION)
    writer.bool(compressed)
    _write_framed(writer, schema.key_type)
    writer.i16(len(schema.states))
    for state in schema.states:
        write_meta_info(writer, meta_info_of(state, schema.key_type))
    return writer.getvalue()


def decode_header(data: bytes | memoryview, max_parallelism: int) -> tuple[KeyedStateSchema, bool, int]:
    """Return (schema, compressed, length of the header in bytes); see :func:`decode_keyed_header`."""
    header = decode_keyed_header(data, max_parallelism)
    return header.schema, header.compressed, header.size_bytes


def decode_keyed_header(data: bytes | memoryview, max_parallelism: int, what: str = "keyed header") -> KeyedHeader:
    """Return the header at the start of ``data``; other bytes may follow it.

    ``max_parallelism`` comes from ``_metadata``. Row fields are named f0, f1, ... because Flink stores no names. The
    type of a user's own serializer is opaque; such a header can only be read if its snapshot has no content of its own,
    which is checked by the header filling ``data``. ``what`` names the header in errors.

    Raise CorruptStateError, and UnsupportedError (``unknown-serializer``, ``header-version``).
    """
    try:
        return read_keyed_header(Reader(data, what), max_parallelism)
    except UnsupportedError as error:
        if error.kind != "unknown-serializer":
            raise
        header = _foreign_header(data, max_parallelism, what)
        if header is None:
            raise
        return header


def _foreign_header(data: bytes | memoryview, max_parallelism: int, what: str) -> KeyedHeader | None:
    try:
        header = read_keyed_header(ForeignReader(data, what), max_parallelism)
    except StatelibError:
        return None
    return header if header.size_bytes == len(data) else None


def read_keyed_header(reader: Reader, max_parallelism: int) -> KeyedHeader:
    """Read a header and leave ``reader`` at its end.

    Raise the errors of :func:`decode_keyed_header`, without trying a user's own serializer.
    """
    what, version = reader.what, reader.i32("version")
    if version != VERSION:
        raise UnsupportedError(
            f"{what}: version {version}, expected {VERSION}",
            kind="header-version",
            hint="Flink 1.8 and later write it; is this a keyed stream?",
        )
    compressed = reader.bool("compressed")
    with reader.part("key serializer"):
        key_type = read_framed(reader)
    count = reader.i16("states")
    if not 0 <= count <= reader.remaining:
        raise CorruptStateError(f"{what}: {count} states before offset {reader.offset}", kind="bad-count")
    try:
        states = tuple(header_state(_read_numbered_state(reader, number), key_type, what) for number in range(count))
        schema = KeyedStateSchema(key_type, max_parallelism, states)
    except InvalidRequestError as error:
        if error.kind in ("bad-state-name", "bad-state-descriptor"):  # Flink's heap backend accepts the name 'default'
            raise UnsupportedError(f"{what}: {error.message}", kind=error.kind) from error
        raise CorruptStateError(f"{what}: {error.message}", kind="corrupt-header") from error
    return KeyedHeader(schema, compressed, reader.offset)


def _read_numbered_state(reader: Reader, number: int) -> MetaInfo:
    with reader.part(f"state {number}"):
        return read_meta_info(reader)


def timers_key_type(info: MetaInfo) -> StateType | None:
    """Return the key type that a meta info of timers holds; None for other state."""
    return info.serializers.get(_TIMER_KEY)


def stored_value_type(state: StateDescriptor) -> StateType:
    """Return the type whose serializer the header holds: List for a list state, Map for a map state."""
    if state.kind is StateKind.LIST:
        return ListOf(state.value_type)
    if state.user_key_type is not None:
        return MapOf(state.user_key_type, state.value_type)
    return state.value_type


def meta_info_of(state: StateDescriptor, key_type: StateType) -> MetaInfo:
    """Return the meta info of a keyed state. ``key_type`` is used for timers, which hold keys."""
    if state.kind is StateKind.TIMERS:
        timers = {_TIMER_KEY: key_type, _NAMESPACE: state.namespace_type}
        return MetaInfo(state.name, MetaKind.PRIORITY_QUEUE, {}, timers)
    serializers = {_NAMESPACE: state.namespace_type, _VALUE: stored_value_type(state)}
    return MetaInfo(state.name, MetaKind.KEY_VALUE, {_KIND: state.kind.name}, serializers)


def write_meta_info(writer: Writer, info: MetaInfo) -> None:
    """Write the meta info of one state.

    Raise InvalidRequestError or UnsupportedError, naming the state, for a type whose serializer snapshot cannot be
    written.
    """
    writer.utf(info.name)
    writer.i32(info.kind)
    writer.i32(len(info.options))
    for name, value in info.options.items():
        writer.utf(name)
        writer.utf(value)
    if info.kind is MetaKind.PRIORITY_QUEUE:
        writer.i32(1)
        writer.utf(_VALUE)
        _write_timer_snapshot(writer, info.serializers[_TIMER_KEY], info.serializers[_NAMESPACE])
        return
    writer.i32(len(info.serializers))
    for name, type_ in info.serializers.items():
        writer.utf(name)
        try:
            _write_framed(writer, type_)
        except (InvalidRequestError, UnsupportedError) as error:
            raise type(error)(f"state {info.name!r}: {error.message}", kind=error.kind, hint=error.hint) from error


def read_meta_info(reader: Reader) -> MetaInfo:
    """Read the meta info of one state. Raise CorruptStateError, and UnsupportedError (``unknown-state-kind`` and
    others)."""
    name = reader.utf("name")
    at, ordinal = reader.offset, reader.i32("type")
    if ordinal not in set(MetaKind):
        raise UnsupportedError(
            f"{reader.what}: state {name!r} has type {ordinal} at offset {at}, expected 0 to {max(MetaKind)}",
            kind="unknown-state-kind",
        )
    options = {}
    for _ in range(reader.count(4, "options")):
        option = reader.utf("option")
        options[option] = reader.utf("value")
    serializers: dict[str, StateType] = {}
    for _ in range(reader.count(10, "serializers")):
        role = reader.utf("role")
        with reader.part(role):
            if ordinal == MetaKind.PRIORITY_QUEUE:
                serializers |= _read_timer_snapshot(reader)
            else:
                serializers[role] = read_framed(reader)
    return MetaInfo(name, MetaKind(ordinal), options, serializers)


def read_framed(reader: Reader) -> StateType:
    """Read a serializer snapshot with its framing version, and return the type."""
    _expect(reader, _FRAME_VERSION, "framing version")
    return decode_serializer_snapshot(reader)


def _write_framed(writer: Writer, type_: StateType) -> None:
    writer.i32(_FRAME_VERSION)
    writer.put(encode_serializer_snapshot(type_))


def _write_timer_snapshot(writer: Writer, key: StateType, namespace: StateType) -> None:
    writer.i32(_FRAME_VERSION)
    writer.utf(_TIMER)
    writer.i32(_COMPOSITE_VERSION)
    writer.u32(_COMPOSITE_MAGIC)
    writer.i32(_TIMER_VERSION)
    writer.u32(_NESTED_MAGIC)
    writer.i32(1)
    writer.i32(2)
    writer.put(encode_serializer_snapshot(key))
    writer.put(encode_serializer_snapshot(namespace))


def _read_timer_snapshot(reader: Reader) -> dict[str, StateType]:
    """Read the snapshot of a TimerSerializer: a composite of the key's and the namespace's serializer."""
    _expect(reader, _FRAME_VERSION, "framing version")
    at, name = reader.offset, reader.utf("class")
    if name != _TIMER:
        raise UnsupportedError(
            f"{reader.what}: serializer {name!r} of a priority queue at offset {at}", kind="unknown-serializer"
        )
    _expect(reader, _COMPOSITE_VERSION, "version of the timer serializer")
    _expect(reader, _COMPOSITE_MAGIC, "magic of a composite serializer")
    _expect(reader, _TIMER_VERSION, "version of the timer serializer's own part")
    _expect(reader, _NESTED_MAGIC, "magic of nested serializers")
    _expect(reader, 1, "version of nested serializers")
    _expect(reader, 2, "number of a timer's serializers")
    key = decode_serializer_snapshot(reader)
    return {_TIMER_KEY: key, _NAMESPACE: decode_serializer_snapshot(reader)}


def header_state(info: MetaInfo, key_type: StateType | None, what: str) -> StateDescriptor:
    """Return the descriptor of the keyed state that the meta info describes.

    ``key_type``: the type of the stream's keys, None if it is unknown. Raise UnsupportedError (``unknown-state-kind``,
    ``mixed-serializers``).
    """
    if info.kind in (MetaKind.KEY_VALUE, MetaKind.KEY_VALUE_V2):
        return _descriptor(info, what)
    if info.kind is MetaKind.PRIORITY_QUEUE:
        if key_type is not None and info.serializers.get(_TIMER_KEY) != key_type:
            raise UnsupportedError(
                f"{what}: timers {info.name!r} of keys of type {info.serializers.get(_TIMER_KEY)}, the other states"
                f" have keys of type {key_type}",
                kind="mixed-serializers",
            )
        return StateDescriptor(info.name, StateKind.TIMERS, VOID, None, info.serializers[_NAMESPACE])
    raise UnsupportedError(
        f"{what}: state {info.name!r} of type {info.kind.name} in a keyed stream", kind="unknown-state-kind"
    )


def _descriptor(info: MetaInfo, what: str) -> StateDescriptor:
    word = info.options.get(_KIND, "")
    kind = StateKind.__members__.get(word)
    if kind in (None, StateKind.TIMERS):
        raise UnsupportedError(f"{what}: state {info.name!r} of kind {word!r}", kind="unknown-state-kind")
    if _VALUE not in info.serializers or _NAMESPACE not in info.serializers:
        raise UnsupportedError(
            f"{what}: state {info.name!r} has serializers {sorted(info.serializers)}, "
            f"expected {_NAMESPACE} and {_VALUE}",
            kind="unknown-state-kind",
        )
    namespace, stored = info.serializers[_NAMESPACE], info.serializers[_VALUE]
    if info.kind is MetaKind.KEY_VALUE_V2:
        return StateDescriptor(info.name, kind, stored, info.serializers.get(_USER_KEY), namespace)
    if kind is StateKind.LIST and isinstance(stored, ListOf):
        return StateDescriptor(info.name, kind, stored.element, None, namespace)
    if kind is StateKind.MAP and isinstance(stored, MapOf):
        return StateDescriptor(info.name, kind, stored.value, stored.key, namespace)
    if kind in (StateKind.LIST, StateKind.MAP):
        raise UnsupportedError(
            f"{what}: state {info.name!r} of kind {word} has the serializer of {stored}", kind="unknown-state-kind"
        )
    return StateDescriptor(info.name, kind, stored, None, namespace)


def _expect(reader: Reader, expected: int, what: str) -> None:
    at, value = reader.offset, reader.i32(what)
    if value != expected:
        raise UnsupportedError(
            f"{reader.what}: {what} {value} at offset {at}, expected {expected}", kind="serializer-version"
        )
