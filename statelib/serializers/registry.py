"""The list of all types, and the codec of each.

A new type is a file that makes its ``TypeSupport``, and one line in :data:`TYPES`. If no class of
``statelib/model/types.py`` describes it, it needs a class there, and its words in ``type_text``.
"""

from functools import lru_cache
from typing import Any

import pyarrow as pa

from statelib.model.types import Scalar, StateType
from statelib.serializers.aspects.type_support import TypeSupport, no_serializer
from statelib.serializers.columns.codec import Codec, KeyEncoder
from statelib.serializers.containers.arrays import ARRAYS
from statelib.serializers.containers.either import EITHER
from statelib.serializers.containers.lists import LISTS
from statelib.serializers.containers.maps import MAPS
from statelib.serializers.containers.nullable import NULLABLE
from statelib.serializers.containers.object_arrays import OBJECT_ARRAYS
from statelib.serializers.containers.rows import ROWS
from statelib.serializers.containers.sets import SETS
from statelib.serializers.containers.ttl import TTL
from statelib.serializers.containers.tuples import TUPLES
from statelib.serializers.java.aliased import ALIASED
from statelib.serializers.java.enums import ENUMS
from statelib.serializers.java.opaque import OPAQUE
from statelib.serializers.java.options import OPTIONS
from statelib.serializers.java.pojos import POJOS
from statelib.serializers.java.tagged import TAGGED
from statelib.serializers.scalars.big_numbers import BIG_NUMBERS
from statelib.serializers.scalars.booleans import BOOLEANS
from statelib.serializers.scalars.byte_arrays import BYTE_ARRAYS
from statelib.serializers.scalars.decimals import DECIMALS
from statelib.serializers.scalars.numbers import NUMBERS
from statelib.serializers.scalars.strings import STRINGS
from statelib.serializers.scalars.void import VOIDS
from statelib.serializers.scalars.windows import WINDOWS
from statelib.serializers.sql.sql_type import SQL
from statelib.serializers.temporal.dates import DATES
from statelib.serializers.temporal.datetimes import DATETIMES
from statelib.serializers.temporal.instants import INSTANTS
from statelib.serializers.temporal.java_dates import JAVA_DATES
from statelib.serializers.temporal.times import TIMES
from statelib.wire.ragged import Ragged

TYPES: tuple[TypeSupport[Any], ...] = (
    BOOLEANS,
    *NUMBERS,
    *STRINGS,
    BYTE_ARRAYS,
    DATES,
    TIMES,
    DATETIMES,
    INSTANTS,
    VOIDS,
    *BIG_NUMBERS,
    DECIMALS,
    *JAVA_DATES,
    *WINDOWS,
    ARRAYS,
    LISTS,
    SETS,
    MAPS,
    TUPLES,
    ROWS,
    OBJECT_ARRAYS,
    NULLABLE,
    EITHER,
    OPTIONS,
    TTL,
    ENUMS,
    POJOS,
    OPAQUE,
    ALIASED,
    TAGGED,
    SQL,
)
_BY_TYPE: dict[Any, TypeSupport[Any]] = {support.of: support for support in TYPES}


def support_of(type: StateType) -> TypeSupport[Any]:  # noqa: A002
    """Return the support of a type.

    Raise InvalidRequestError (``bad-type``) for a scalar that does not exist."""
    support = _BY_TYPE.get(type if isinstance(type, Scalar) else type.__class__)
    if support is None:
        scalars = ", ".join(str(each) for each in _BY_TYPE if isinstance(each, Scalar))
        raise no_serializer(type, f"scalars are {scalars}")
    return support


def key_bytes(type: StateType, keys: pa.Array) -> Ragged:  # noqa: A002
    """Return the bytes of each key of a type. They may differ from those of an equal value that is no key.

    Raise as ``encode`` of the codec does."""
    codec = codec_of(type)
    return codec.encode_keys(keys) if isinstance(codec, KeyEncoder) else codec.encode(keys)


@lru_cache(maxsize=1024)
def codec_of(type: StateType) -> Codec:  # noqa: A002
    """Return the codec of a type. Equal types share one.

    Raise InvalidRequestError (``bad-type``) for a type that no serializer of Flink writes, UnsupportedError
    (``no-columns``) for a type that columns cannot hold."""
    return support_of(type).codec(type, codec_of)
