"""From a StateType to its codec: the closed table of types."""

from functools import lru_cache

from statelib.errors import InvalidRequestError
from statelib.model.types import (
    BOOLEAN,
    BYTE,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    SHORT,
    ArrayOf,
    ListOf,
    MapOf,
    Row,
    Scalar,
    StateType,
    Tuple,
)
from statelib.serializers.codec import Codec
from statelib.serializers.containers import BytesCodec, MapCodec, SequenceCodec
from statelib.serializers.row_type import RowCodec, TupleCodec
from statelib.serializers.scalars import NUMBERS, BooleanCodec, VoidCodec
from statelib.serializers.strings import StringCodec
from statelib.serializers.temporal import TEMPORALS

MAX_TUPLE_FIELDS = 25
ARRAY_ELEMENTS = (BOOLEAN, SHORT, INT, LONG, FLOAT, DOUBLE)

_SCALARS: dict[Scalar, Codec] = {
    codec.type: codec
    for codec in (*NUMBERS, *TEMPORALS, BooleanCodec(), VoidCodec(), StringCodec(), BytesCodec())
    if isinstance(codec.type, Scalar)
}


@lru_cache(maxsize=1024)
def codec_of(type: StateType) -> Codec:  # noqa: A002
    """The codec of a type; equal types share one.

    Raises InvalidRequestError (``bad-type``) for a type that no Flink serializer stands for."""
    match type:
        case Scalar():
            return _scalar(type)
        case ArrayOf():
            return _array(type)
        case ListOf(element):
            return SequenceCodec(type, codec_of(element))
        case MapOf(key, value):
            return MapCodec(type, codec_of(key), codec_of(value))
        case Tuple():
            return _tuple(type)
        case Row():
            return _row(type)


def _array(type_: ArrayOf) -> Codec:
    if type_.element not in ARRAY_ELEMENTS:
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
