"""Values of Flink's own serializers that write the bytes of another type, which is called their form.

Flink's windows, joins, CEP and SQL operators, and its Scala API, bring them along. The table below was checked against
snapshots and values that Flink wrote.

Source: docs/spec/formats.md#scalars, #containers, #sql-types; the classes named below.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

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
    Either,
    Enumeration,
    Like,
    ListOf,
    MapOf,
    Nullable,
    OneOf,
    Opaque,
    Option,
    StateType,
    Tuple,
)
from statelib.serializers.aspects.plain_hashing import NO_PLAIN_HASH
from statelib.serializers.aspects.snapshot_payloads import (
    BASE,
    RUNTIME,
    SnapshotPayload,
    SnapshotSupport,
    write_stored,
)
from statelib.serializers.aspects.steps import Step, StepsOf
from statelib.serializers.aspects.type_support import TypeSupport, no_last_part
from statelib.serializers.columns.codec import Codec, Cursor
from statelib.serializers.columns.unkeyed import Unkeyed
from statelib.serializers.containers.tuples import MAX_TUPLE_FIELDS
from statelib.wire.java_objects import read_object
from statelib.wire.ragged import Bytes, Ragged
from statelib.wire.reader import Reader

_FLINK = "org.apache.flink."
_STREAMING = _FLINK + "streaming."
_WINDOW = _FLINK + "table.runtime.operators.window."
_TABLE = _FLINK + "table.runtime.typeutils."
_VIEW = _FLINK + "table.dataview."
_CEP = _FLINK + "cep.nfa."
_SCALA = _FLINK + "api.scala.typeutils."

_BINARY_ROW = _TABLE + "BinaryRowDataSerializer$BinaryRowDataSerializerSnapshot"
_SORTED_MAP = _TABLE + "SortedMapSerializerSnapshot"
_LINKED_LIST = _TABLE + "LinkedListSerializer$LinkedListSerializerSnapshot"
_EXTERNAL = _TABLE + "ExternalSerializer$ExternalSerializerSnapshot"
_SCALA_ENUM = _SCALA + "ScalaEnumSerializerSnapshot"
_CASE_CLASS = _SCALA + "ScalaCaseClassSerializerSnapshot"
_CASE_TUPLE = _SCALA + "Tuple2CaseClassSerializerSnapshot"
_TRAVERSABLE = _SCALA + "TraversableSerializerSnapshot"
_NFA_STATE = _CEP + "NFAStateSerializerSnapshot"
_VERSION = 3

_VALUES = {
    "BooleanValue": BOOLEAN, "ByteValue": BYTE, "ShortValue": SHORT, "IntValue": INT, "LongValue": LONG,
    "FloatValue": FLOAT, "DoubleValue": DOUBLE, "CharValue": CHAR, "StringValue": STRING_VALUE,
}  # fmt: skip
_WITHOUT_PARTS: dict[str, StateType | None] = {
    **{f"{BASE}{name}Serializer${name}SerializerSnapshot": type_ for name, type_ in _VALUES.items()},
    RUNTIME + "Tuple0SerializerSnapshot": BYTE,
    _WINDOW + "TimeWindow$Serializer$TimeWindowSerializerSnapshot": TIME_WINDOW,
    _WINDOW + "CountWindow$Serializer$CountWindowSerializerSnapshot": LONG,
    _WINDOW + "GlobalWindow$Serializer$GlobalWindowSerializerSnapshot": GLOBAL_WINDOW,
    BASE + "BitmapSerializer$BitmapSerializerSnapshot": BYTES,
    _CEP + "sharedbuffer.EventId$EventIdSerializer$EventIdSerializerSnapshot": Tuple((INT, LONG)),
    _VIEW + "NullSerializer$NullSerializerSnapshot": None,
    BASE + "NullValueSerializer$NullValueSerializerSnapshot": None,
    BASE + "VariantSerializer$VariantSerializerSnapshot": None,
    _CEP + "DeweyNumber$DeweyNumberSerializer$DeweyNumberSerializerSnapshot": None,
    _FLINK + "runtime.state.JavaSerializer$JavaSerializerSnapshot": None,
    _FLINK + "table.runtime.operators.sink.SortedLongSerializer$SortedLongSerializerSnapshot": None,
}
"""Snapshots without payload, and the form of their values. None: nothing reads the values, and they stay bytes."""


def _element(element: StateType) -> OneOf:
    """Return the form of an element of a stream: a record with or without a time, a watermark, a latency marker (time,
    operator's id in two halves, subtask), or whether the stream is idle."""
    marker = Tuple((LONG, LONG, LONG, INT))
    return OneOf(((0, Tuple((LONG, element))), (1, element), (2, LONG), (3, marker), (4, INT)))


def _fields(*fields: StateType) -> Tuple | None:
    """Return the form of a case class."""
    return Tuple(fields) if 1 <= len(fields) <= MAX_TUPLE_FIELDS else None


def _option(element: StateType) -> Option | None:
    """Return the form of a Scala Option. An element that may be null itself has none: two flags would be one null."""
    return (
        None
        if isinstance(element.form if isinstance(element, Like) else element, Option | Nullable)
        else Option(element)
    )


def _traversable(element: StateType) -> ListOf | None:
    """Return the form of a Scala collection, whose elements have the flag of an Option."""
    form = _option(element)
    return None if form is None else ListOf(form)


_Form = Callable[..., StateType | None]
_WITH_PARTS: dict[str, tuple[int | None, _Form]] = {
    _CASE_CLASS: (None, _fields),
    _CASE_TUPLE: (2, _fields),
    _TRAVERSABLE: (1, _traversable),
    _SCALA + "ScalaOptionSerializerSnapshot": (1, _option),
    _SCALA + "ScalaEitherSerializerSnapshot": (2, Either),
    _SCALA + "ScalaTrySerializerSnapshot": (2, Either),
    _FLINK + "runtime.state.ArrayListSerializerSnapshot": (1, ListOf),
    _STREAMING + "runtime.streamrecord.StreamElementSerializer$StreamElementSerializerSnapshot": (1, _element),
    _STREAMING + "api.datastream.CoGroupedStreams$UnionSerializerSnapshot": (
        2, lambda first, second: OneOf(((1, first), (2, second))),
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
"""Snapshots with parts: their number, None for any, and the function that makes the form of the values from the types
of the parts. If it returns None, the values stay bytes."""


@dataclass(frozen=True)
class LikeCodec(Unkeyed):
    """The codec of the form, without its hashes: the hash of a LongValue is not that of a long."""

    type: Like
    form: Codec

    @property
    def arrow_type(self) -> pa.DataType:
        return self.form.arrow_type

    @property
    def width(self) -> int:
        return self.form.width

    @property
    def reported_length(self) -> int:
        return self.form.reported_length

    def encode(self, values: pa.Array) -> Ragged:
        return self.form.encode(values)

    def decode(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[pa.Array, Cursor]:
        return self.form.decode(data, cursor, limit)

    def skip(self, data: Bytes, cursor: Cursor, limit: Cursor) -> Cursor:
        return self.form.skip(data, cursor, limit)

    def steps(self, steps_of: StepsOf) -> list[Step]:
        return steps_of(self.form)


def _read_snapshot(payload: SnapshotPayload) -> StateType:
    payload.check_version(_VERSION)
    form = _read_form(payload)
    serializer, snapshot = _serializer(payload.name), payload.whole()
    return Opaque(serializer, "", snapshot) if form is None else Like(form, serializer, snapshot)


def _read_form(payload: SnapshotPayload) -> StateType | None:
    name, reader = payload.name, payload.reader
    if name in _WITHOUT_PARTS:
        return _WITHOUT_PARTS[name]
    if name == _BINARY_ROW:
        reader.i32("fields")
        return BYTES
    if name == _SCALA_ENUM:
        return _read_scala_enum(reader)
    if name == _SORTED_MAP:
        read_object(reader)  # the order of the keys
        return MapOf(*payload.nested(2))
    payload.begin_composite()
    has_null_mask = _read_own_data(payload)
    count, make_form = _WITH_PARTS[name]
    parts = payload.nested(count)
    return None if has_null_mask else make_form(*parts)


def _read_scala_enum(reader: Reader) -> StateType:
    """Read the class and the constants of a Scala enumeration. A value is stored as the id of its constant."""
    java_class = reader.utf("enum class")
    constants = [(reader.utf("constant"), reader.i32("id")) for _ in range(reader.count(6, "constants"))]
    names, ids = zip(*constants, strict=True) if constants else ((), ())
    return Enumeration(java_class, tuple(names)) if ids == tuple(range(len(ids))) else INT


def _read_own_data(payload: SnapshotPayload) -> bool:
    """Read the data before the snapshots of the parts. Return whether a mask of nulls precedes the elements of a
    list."""
    if payload.name == _EXTERNAL:
        read_object(payload.reader)  # the type as the user declared it
    if payload.name in (_CASE_CLASS, _CASE_TUPLE, _TRAVERSABLE):
        payload.reader.utf("class, or code that makes the builder of a collection")
    if payload.name in (_EXTERNAL, _NFA_STATE):
        payload.reader.bool("flag")
    return payload.name == _LINKED_LIST and payload.reader.bool("has null mask")


def _serializer(snapshot_class: str) -> str:
    """Return the class of the serializer whose snapshot has this class."""
    outer = snapshot_class.removesuffix("V2").removesuffix("Snapshot")
    return outer.rpartition("$")[0] if "$" in outer and "Serializer$" in outer else outer


ALIASED = TypeSupport(
    of=Like,
    codec=lambda type_, codec_of: LikeCodec(type_, codec_of(type_.form)),
    json_reader=lambda type_, reader_of: reader_of(type_.form),
    snapshot=SnapshotSupport(
        write_stored,
        readers=dict.fromkeys((*_WITHOUT_PARTS, *_WITH_PARTS, _BINARY_ROW, _SORTED_MAP, _SCALA_ENUM), _read_snapshot),
    ),
    plain_hash=NO_PLAIN_HASH,
    last_parts=no_last_part,
)
