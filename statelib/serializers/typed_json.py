"""Typed JSON: serialized bytes of one value to JSON, without loss, for every type that a Flink job can store.

Columns cannot hold all values (the kind of a Row, the year 1,000,000, half a surrogate pair); JSON can. It is for
people and for comparisons. It is not a hot path.

Source: docs/spec/formats.md#serializer-snapshots. The members are those of the fixtures' truth files.
"""

from functools import partial

from statelib.model.types import Opaque, StateType, parts_of
from statelib.serializers.aspects.json_values import ReadJson
from statelib.serializers.java.decoders import decoder_of
from statelib.serializers.java.opaque import read_opaque
from statelib.serializers.registry import support_of


def json_reader(type: StateType) -> ReadJson:  # noqa: A002
    """Return the function that reads one value of the type and returns its typed JSON.

    The function raises CorruptStateError if the bytes are no value of the type. An opaque value takes all bytes that
    are left, because nothing shows where it ends. A value in which something may follow such a part is read as one
    opaque value."""
    opaque = opaque_part(type)
    if opaque is None or opaque_is_last(type):
        return support_of(type).json_reader(type, json_reader)
    return partial(read_opaque, opaque)


def ends_by_itself(type: StateType) -> bool:  # noqa: A002
    """Return whether the bytes of a value show where it ends."""
    return opaque_part(type) is None


def opaque_part(type: StateType) -> Opaque | None:  # noqa: A002
    """Return the first part without a decoder that only a user's code can read, or None if all parts are readable."""
    if isinstance(type, Opaque):
        return type if decoder_of(type) is None else None
    return next((opaque for part in parts_of(type) if (opaque := opaque_part(part)) is not None), None)


def opaque_is_last(type: StateType) -> bool:  # noqa: A002
    """Return whether an opaque part of the type is always the last part of a value."""
    parts = support_of(type).last_parts(type)
    return parts is not None and all(opaque_part(part) is None or opaque_is_last(part) for part in parts)
