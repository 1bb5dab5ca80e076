"""Skippers: functions that move past one serialized value at a time, where only decoding shows where an entry ends."""

from collections.abc import Sequence

import numpy as np

from statelib.errors import UnsupportedError
from statelib.model.types import Opaque, StateType, parts_of
from statelib.serializers.aspects.steps import Skipper, Step, Stepped, chain
from statelib.serializers.columns.codec import Codec
from statelib.serializers.typed_json import json_reader, opaque_part
from statelib.wire.reader import Reader


def skipper_of(codecs: Sequence[Codec]) -> Skipper:
    """Return a skipper over one value of each codec, one after the other.

    It raises UnsupportedError (``opaque-entries``) at a value with a part that only a user's code can read."""
    return chain([step for codec in codecs for step in _steps(codec)])


def width_of(codecs: Sequence[Codec]) -> int:
    """Return the size in bytes of one value of each codec together, or -1 if sizes differ."""
    widths = [codec.width for codec in codecs]
    return sum(widths) if min(widths) > 0 else -1


def holds_opaque(kind: StateType) -> bool:
    """Return whether columns hold a part of the type as bytes, with or without a decoder of the user's."""
    return isinstance(kind, Opaque) or any(map(holds_opaque, parts_of(kind)))


def check_divisible(kind: StateType) -> None:
    """Check that a codec finds where a value of the type ends among other values. A decoder does not help a codec.

    Raise UnsupportedError (``opaque-entries``)."""
    if isinstance(kind, Opaque):
        raise _undivided(kind)
    for part in parts_of(kind):
        check_divisible(part)


def _undivided(opaque: Opaque) -> UnsupportedError:
    return UnsupportedError(
        f"only the class of its serializer can find where a value of {opaque} ends among other entries",
        kind="opaque-entries",
        hint="take a canonical savepoint with Flink, or give the class a decoder:"
        " statelib.serializers.register_decoder",
    )


def _steps(codec: Codec) -> list[Step]:
    if codec.width > 0:
        return [codec.width]
    if isinstance(codec, Stepped):
        return codec.steps(_steps)
    return [_skip_by_reading(codec.type) if holds_opaque(codec.type) else _skip_by_codec(codec)]


def _skip_by_reading(kind: StateType) -> Skipper:
    """Return a skipper over values with a part that only a decoder of the user's can read."""

    def skip(raw: bytes, at: int) -> int:
        opaque = opaque_part(kind)
        if opaque is not None:
            raise _undivided(opaque)
        reader = Reader(raw, str(kind))
        reader.take(at)
        json_reader(kind)(reader)
        return reader.offset

    return skip


def _skip_by_codec(codec: Codec) -> Skipper:
    """Return a skipper that has the codec skip one row. It is slow."""

    def skip(raw: bytes, at: int) -> int:
        end = codec.skip(np.frombuffer(raw, np.uint8), np.array([at], np.int64), np.array([len(raw)], np.int64))
        return int(end[0])

    return skip
