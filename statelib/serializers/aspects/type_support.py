"""The port of a type: everything that this room needs to handle values of it, in one object.

Each file of ``scalars``, ``temporal``, ``containers``, ``java`` and ``sql`` makes one for its type, or one per type of
a family. ``registry`` lists them. The modules beside the registry look a type up there and use one aspect each.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from statelib.errors import InvalidRequestError
from statelib.model.types import Scalar, StateType
from statelib.serializers.aspects.json_values import ReaderOf, ReadJson
from statelib.serializers.aspects.plain_hashing import PlainHash
from statelib.serializers.aspects.snapshot_payloads import SnapshotSupport
from statelib.serializers.columns.codec import Codec

T = TypeVar("T", bound=StateType)

CodecOf = Callable[[StateType], Codec]
"""Returns the codec of a type. It is how a type with parts gets the codecs of its parts."""


@dataclass(frozen=True)
class TypeSupport(Generic[T]):
    """All aspects of one type. None has a default: the file of a type that lacks an aspect states it.

    ``of``: the class of the type, or the type itself if it is a scalar.
    ``codec``: makes the codec of a type; it raises InvalidRequestError (``bad-type``) if no serializer of Flink writes
    such a type. How to skip a value belongs to the codec.
    ``json_reader``: makes the function that reads one value as typed JSON.
    ``snapshot``: reads and writes the snapshot of the type's serializer.
    ``plain_hash``: computes Java's hash code of one value.
    ``last_parts``: the types of the parts of which one ends each value, if nothing follows it; None if something may
    follow. An opaque part is readable only where it is the last one.
    """

    of: type[T] | Scalar
    codec: Callable[[T, CodecOf], Codec]
    json_reader: Callable[[T, ReaderOf], ReadJson]
    snapshot: SnapshotSupport
    plain_hash: PlainHash
    last_parts: Callable[[T], tuple[StateType, ...] | None]


def scalar_support(
    codec: Codec, json_reader: ReadJson, snapshot: SnapshotSupport, plain_hash: PlainHash
) -> TypeSupport[Scalar]:
    """Return the support of the scalar that ``codec`` is for."""
    scalar = codec.type
    assert isinstance(scalar, Scalar)
    return TypeSupport(
        of=scalar,
        codec=lambda _type, _codec_of: codec,
        json_reader=lambda _type, _reader_of: json_reader,
        snapshot=snapshot,
        plain_hash=plain_hash,
        last_parts=no_last_part,
    )


def no_last_part(_type: StateType) -> None:
    """Return None: nothing is known of the part with which a value of the type ends."""


def no_serializer(type_: StateType, hint: str) -> InvalidRequestError:
    """Return the error for a type that no serializer of Flink writes."""
    return InvalidRequestError(f"type {type_}: Flink has no serializer for it", kind="bad-type", hint=hint)
