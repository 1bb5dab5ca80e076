"""From a StateType to its codec: the closed table of types."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from statelib.errors import InvalidRequestError
from statelib.model.types import (
    BIGDECIMAL,
    BIGINT,
    BOOLEAN,
    BYTE,
    CHAR,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    SHORT,
    STRING,
    STRING_VALUE,
    ArrayOf,
    Either,
    Enumeration,
    Like,
    ListOf,
    MapOf,
    Nullable,
    ObjectArray,
    OneOf,
    Opaque,
    Pojo,
    Row,
    Scalar,
    SetOf,
    Sql,
    StateType,
    Ttl,
    Tuple,
)
from statelib.serializers.columns.codec import Codec
from statelib.serializers.containers.rows import RowCodec, TupleCodec
from statelib.serializers.containers.sequences import BytesCodec, MapCodec, SequenceCodec
from statelib.serializers.containers.ttl import TtlCodec
from statelib.serializers.java.aliased_types import LikeCodec, OneOfCodec
from statelib.serializers.java.codecs import EitherCodec, EnumCodec, FlaggedCodec, OpaqueCodec, OwnNullCodec, PojoCodec
from statelib.serializers.scalars.big_numbers import BigNumberCodec
from statelib.serializers.scalars.numbers import GLOBAL_WINDOWS, NUMBERS, BooleanCodec, VoidCodec
from statelib.serializers.scalars.strings import StringCodec
from statelib.serializers.scalars.temporal import JAVA_TEMPORALS, TEMPORALS
from statelib.serializers.scalars.windows import TimeWindowCodec
from statelib.serializers.sql.values import sql_codec

MAX_TUPLE_FIELDS = 25
ARRAY_ELEMENTS = (BOOLEAN, SHORT, INT, LONG, FLOAT, DOUBLE)

_PLAIN: tuple[Codec, ...] = (
    *NUMBERS,
    *TEMPORALS,
    *JAVA_TEMPORALS,
    BooleanCodec(),
    VoidCodec(),
    StringCodec(),
    StringCodec(STRING_VALUE, own_null=False),
    BytesCodec(),
    BigNumberCodec(BIGINT, scaled=False),
    BigNumberCodec(BIGDECIMAL, scaled=True),
    TimeWindowCodec(),
    GLOBAL_WINDOWS,
)
_SCALARS: dict[Scalar, Codec] = {codec.type: codec for codec in _PLAIN if isinstance(codec.type, Scalar)}


@lru_cache(maxsize=1024)
def codec_of(type: StateType) -> Codec:  # noqa: A002 - a closed table, one case a type
    """The codec of a type; equal types share one.

    Raises InvalidRequestError (``bad-type``) for a type that no Flink serializer stands for."""
    return _CODECS[type.__class__](type)


def _array(type_: ArrayOf) -> Codec:
    if type_.element == STRING:
        return SequenceCodec(type_, OwnNullCodec(StringCodec(), b"\0"))
    if type_.element not in (*ARRAY_ELEMENTS, CHAR):
        raise _bad_type(type_, "write byte[] as bytes" if type_.element == BYTE else "use list<...>")
    return SequenceCodec(type_, _scalar(type_.element))


def _tuple(type_: Tuple) -> Codec:
    if not 1 <= len(type_.fields) <= MAX_TUPLE_FIELDS:
        raise _bad_type(type_, f"a tuple has 1 to {MAX_TUPLE_FIELDS} fields; use a row for more")
    return TupleCodec(type_, tuple(map(codec_of, type_.fields)))


def _row(type_: Row) -> Codec:
    if not type_.fields or len({field.name for field in type_.fields}) != len(type_.fields):
        raise _bad_type(type_, "a row has at least one field, and each name once")
    return RowCodec(type_, tuple(codec_of(field.type) for field in type_.fields))


def _scalar(type_: Scalar) -> Codec:
    codec = _SCALARS.get(type_)
    if codec is None:
        raise _bad_type(type_, f"scalars are {', '.join(str(known) for known in _SCALARS)}")
    return codec


def _bad_type(type_: StateType, hint: str) -> InvalidRequestError:
    return InvalidRequestError(f"type {type_}: no serializer of Flink stands for it", kind="bad-type", hint=hint)


_CODECS: dict[Any, Callable[[Any], Codec]] = {
    Scalar: _scalar,
    ArrayOf: _array,
    ListOf: lambda kind: SequenceCodec(kind, codec_of(kind.element)),
    MapOf: lambda kind: MapCodec(kind, codec_of(kind.key), codec_of(kind.value)),
    Tuple: _tuple,
    Row: _row,
    ObjectArray: lambda kind: SequenceCodec(kind, FlaggedCodec(codec_of(kind.element), null_flag=0)),
    SetOf: lambda kind: SequenceCodec(kind, FlaggedCodec(codec_of(kind.element))),
    Nullable: lambda kind: FlaggedCodec(codec_of(kind.element), padding=kind.padding),
    Enumeration: EnumCodec,
    Either: lambda kind: EitherCodec(kind, codec_of(kind.left), codec_of(kind.right)),
    Pojo: lambda kind: PojoCodec(kind, tuple(codec_of(field.type) for field in kind.fields)),
    Sql: lambda kind: sql_codec(kind.type),
    Opaque: OpaqueCodec,
    OneOf: lambda kind: OneOfCodec(kind, tuple(codec_of(type_) for _, type_ in kind.cases)),
    Like: lambda kind: LikeCodec(kind, codec_of(kind.form)),
    Ttl: lambda kind: TtlCodec(kind, codec_of(kind.value)),
}
