"""Snapshots of Flink's own serializers whose bytes are those of a type that is there already, or a tag and one of some.

Flink's windows, joins, CEP and SQL operators bring them along. Each was written by a real Flink, and compared.

Source: flink-formats.md sections 6.2, 6.3 and 6.7; the classes named below.
"""

from collections.abc import Callable

from statelib.errors import CorruptStateError, UnsupportedError
from statelib.model.types import (
    BOOLEAN,
    BYTE,
    BYTES,
    CHAR,
    DOUBLE,
    FLOAT,
    GLOBAL_WINDOW,
    INT,
    LONG,
    SHORT,
    STRING_VALUE,
    TIME_WINDOW,
    Like,
    ListOf,
    MapOf,
    Nullable,
    OneOf,
    Opaque,
    StateType,
    Tuple,
)
from statelib.wire.java_objects import read_object
from statelib.wire.reader import Reader

_FLINK = "org.apache.flink."
_BASE = _FLINK + "api.common.typeutils.base."
_RUNTIME = _FLINK + "api.java.typeutils.runtime."
_STREAMING = _FLINK + "streaming."
_WINDOW = _FLINK + "table.runtime.operators.window."
_TABLE = _FLINK + "table.runtime.typeutils."
_VIEW = _FLINK + "table.dataview."
_CEP = _FLINK + "cep.nfa."

_BINARY_ROW = _TABLE + "BinaryRowDataSerializer$BinaryRowDataSerializerSnapshot"
_SORTED_MAP = _TABLE + "SortedMapSerializerSnapshot"
_LINKED_LIST = _TABLE + "LinkedListSerializer$LinkedListSerializerSnapshot"
_EXTERNAL = _TABLE + "ExternalSerializer$ExternalSerializerSnapshot"
_NFA_STATE = _CEP + "NFAStateSerializerSnapshot"
_COMPOSITE_MAGIC, _VERSION = 0x000DE704, 3

_VALUES = {
    "BooleanValue": BOOLEAN, "ByteValue": BYTE, "ShortValue": SHORT, "IntValue": INT, "LongValue": LONG,
    "FloatValue": FLOAT, "DoubleValue": DOUBLE, "CharValue": CHAR, "StringValue": STRING_VALUE,
}  # fmt: skip
_SIMPLE: dict[str, StateType | None] = {
    **{f"{_BASE}{name}Serializer${name}SerializerSnapshot": type_ for name, type_ in _VALUES.items()},
    _RUNTIME + "Tuple0SerializerSnapshot": BYTE,
    _WINDOW + "TimeWindow$Serializer$TimeWindowSerializerSnapshot": TIME_WINDOW,
    _WINDOW + "CountWindow$Serializer$CountWindowSerializerSnapshot": LONG,
    _WINDOW + "GlobalWindow$Serializer$GlobalWindowSerializerSnapshot": GLOBAL_WINDOW,
    _BASE + "BitmapSerializer$BitmapSerializerSnapshot": BYTES,
    _CEP + "sharedbuffer.EventId$EventIdSerializer$EventIdSerializerSnapshot": Tuple((INT, LONG)),
    _VIEW + "NullSerializer$NullSerializerSnapshot": None,
    _BASE + "NullValueSerializer$NullValueSerializerSnapshot": None,
    _BASE + "VariantSerializer$VariantSerializerSnapshot": None,
    _CEP + "DeweyNumber$DeweyNumberSerializer$DeweyNumberSerializerSnapshot": None,
    _FLINK + "runtime.state.JavaSerializer$JavaSerializerSnapshot": None,
    _FLINK + "table.runtime.operators.sink.SortedLongSerializer$SortedLongSerializerSnapshot": None,
}
"""Snapshots without content; None where the values stay bytes."""


def _element(element: StateType) -> OneOf:
    """What streams carry: records with and without a time, watermarks, latency markers (time, operator's id in two
    halves, subtask), and whether a stream is idle."""
    marker = Tuple((LONG, LONG, LONG, INT))
    return OneOf(((0, Tuple((LONG, element))), (1, element), (2, LONG), (3, marker), (4, INT)))


_Form = Callable[..., StateType | None]
_COMPOSED: dict[str, tuple[int, _Form]] = {
    _FLINK + "runtime.state.ArrayListSerializerSnapshot": (1, ListOf),
    _STREAMING + "runtime.streamrecord.StreamElementSerializer$StreamElementSerializerSnapshot": (1, _element),
    _STREAMING + "api.datastream.CoGroupedStreams$UnionSerializerSnapshot": (
        2, lambda one, two: OneOf(((1, one), (2, two))),
    ),
    _STREAMING + "api.operators.co.IntervalJoinOperator$BufferEntrySerializerSnapshot": (
        1, lambda element: Tuple((BOOLEAN, element)),
    ),
    _TABLE + "WindowKeySerializer$WindowKeySerializerSnapshot": (1, lambda key: Tuple((LONG, key))),
    _TABLE + "RawValueDataSerializer$RawValueDataSerializerSnapshot": (1, lambda _: BYTES),
    _EXTERNAL: (1, lambda internal: internal),
    _LINKED_LIST: (1, ListOf),
    _VIEW + "ListViewSerializerSnapshot": (1, lambda items: items),
    _VIEW + "MapViewSerializerSnapshot": (1, lambda items: items),
    _VIEW + "NullAwareMapSerializerSnapshot": (2, lambda key, value: ListOf(Tuple((Nullable(key), value)))),
    _NFA_STATE: (3, lambda *_: None),
    _CEP + "sharedbuffer.NodeId$NodeIdSerializer$NodeIdSerializerSnapshot": (1, lambda _: None),
    _CEP + "sharedbuffer.LockableTypeSerializerSnapshot": (1, lambda _: None),
    _CEP + "sharedbuffer.SharedBufferEdge$SharedBufferEdgeSerializer$SharedBufferEdgeSerializerSnapshot": (
        2, lambda *_: None,
    ),
    _CEP + "sharedbuffer.SharedBufferNodeSerializerSnapshotV2": (1, lambda _: None),
    _STREAMING + "api.functions.sink.TwoPhaseCommitSinkFunction$StateSerializerSnapshot": (2, lambda *_: None),
    _STREAMING + "api.functions.sink.legacy.TwoPhaseCommitSinkFunction$StateSerializerSnapshot": (2, lambda *_: None),
}  # fmt: skip
"""Number of serializers within, and the form that their types come to; None where the values stay bytes."""
NAMES = frozenset({*_SIMPLE, *_COMPOSED, _BINARY_ROW, _SORTED_MAP})

ReadNested = Callable[[], list[StateType]]


def read_like(reader: Reader, name: str, version: int, start: int, nested: ReadNested) -> StateType:
    """The rest of a snapshot of one of :data:`NAMES`. ``start``: where it begins, its class name included; ``nested``
    reads the snapshots within.

    Raises UnsupportedError (``serializer-version``, ``unknown-serializer``), CorruptStateError
    (``bad-serializer-snapshot``)."""
    if version != _VERSION:
        raise UnsupportedError(
            f"{reader.what} before offset {reader.offset}: {name} of version {version}, known is {_VERSION}",
            kind="serializer-version",
        )
    form = _form(reader, name, nested)
    serializer, snapshot = _serializer(name), bytes(reader.since(start))
    return Opaque(serializer, "", snapshot) if form is None else Like(form, serializer, snapshot)


def _form(reader: Reader, name: str, nested: ReadNested) -> StateType | None:
    if name in _SIMPLE:
        return _SIMPLE[name]
    if name == _BINARY_ROW:
        reader.i32("fields")
        return BYTES
    if name == _SORTED_MAP:
        read_object(reader)  # how keys are compared
        return MapOf(*_exactly(2, nested(), reader))
    magic = reader.u32("magic")
    if magic != _COMPOSITE_MAGIC:
        raise CorruptStateError(
            f"{reader.what} before offset {reader.offset}: expected mark {_COMPOSITE_MAGIC:#010x}, found {magic:#010x}",
            kind="bad-serializer-snapshot",
        )
    reader.i32("own version")
    masked = _read_own(reader, name)
    count, form = _COMPOSED[name]
    parts = _exactly(count, nested(), reader)
    return None if masked else form(*parts)


def _read_own(reader: Reader, name: str) -> bool:
    """What stands in front of the serializers within; whether a mask of nulls lies in front of a list's elements."""
    if name == _EXTERNAL:
        read_object(reader)  # the type as the user declared it
    if name in (_EXTERNAL, _NFA_STATE):
        reader.bool("flag")
    return name == _LINKED_LIST and reader.bool("has null mask")


def _exactly(count: int, parts: list[StateType], reader: Reader) -> list[StateType]:
    if len(parts) != count:
        raise UnsupportedError(
            f"{reader.what} before offset {reader.offset}: expected {count} nested serializers, found {len(parts)}",
            kind="unknown-serializer",
        )
    return parts


def _serializer(snapshot_class: str) -> str:
    outer = snapshot_class.removesuffix("V2").removesuffix("Snapshot")
    return outer.rpartition("$")[0] if "$" in outer and "Serializer$" in outer else outer
