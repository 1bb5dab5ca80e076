"""Past one serialized value at a time: for streams where only decoding tells where an entry ends.

The codecs move columns, and need every start at once. Where entries follow each other without
lengths, the starts must be found one by one; these functions do that with as little Python as
possible and check nothing but bounds: the codecs read the values again, and check them.
"""

import struct
from collections.abc import Callable, Sequence

import numpy as np

from statelib.errors import UnsupportedError
from statelib.model.types import Opaque, StateType, parts_of
from statelib.serializers.columns.codec import Codec
from statelib.serializers.containers.rows import KIND_BITS, RowCodec, TupleCodec
from statelib.serializers.containers.sequences import BytesCodec, MapCodec, SequenceCodec
from statelib.serializers.containers.ttl import TIMESTAMP_BYTES, TtlCodec
from statelib.serializers.java.aliased_types import LikeCodec
from statelib.serializers.scalars.strings import StringCodec
from statelib.serializers.typed_json import exact, opaque_part
from statelib.wire.reader import Reader

Jump = Callable[[bytes, int], int]
"""The offset behind the value at an offset. It may lie beyond the end of the bytes; IndexError and
struct.error where the bytes end before that can be told."""
_Part = int | Jump
"""A width, or a jump over something that has none."""
_U32 = struct.Struct(">I")
_MAX_PLANS = 4096


def jump_over(codecs: Sequence[Codec]) -> Jump:
    """One value of each codec, one behind the other."""
    return _chain([part for codec in codecs for part in _parts(codec)])


def width_of(codecs: Sequence[Codec]) -> int:
    """Bytes that one value of each takes together, -1 if they differ."""
    widths = [codec.width for codec in codecs]
    return sum(widths) if min(widths) > 0 else -1


def _parts(codec: Codec) -> list[_Part]:
    if codec.width > 0:
        return [codec.width]
    if isinstance(codec, TtlCodec):
        return [TIMESTAMP_BYTES, *_parts(codec.value)]
    if isinstance(codec, LikeCodec):
        return _parts(codec.form)
    if isinstance(codec, TupleCodec):
        return [part for field in codec.fields for part in _parts(field)]
    return [_jump(codec)]


def _jump(codec: Codec) -> Jump:  # noqa: PLR0911 - a table of types
    match codec:
        case StringCodec(own_null=True):
            return _string
        case BytesCodec():
            return _sized(1)
        case SequenceCodec():
            width = codec.element.width
            return _sized(width) if width > 0 else _repeated(_chain(_parts(codec.element)))
        case MapCodec():
            return _repeated(_chain([*_parts(codec.key), _flagged(_chain(_parts(codec.value)))]))
        case RowCodec():
            return _row(codec)
        case _ if holds_opaque(codec.type):
            return _read_through(codec.type)
        case _:
            return _by_codec(codec)


def _chain(parts: Sequence[_Part]) -> Jump:
    """Widths that meet become one addition."""
    jumps: list[tuple[int, Jump]] = []
    width = 0
    for part in parts:
        if isinstance(part, int):
            width += part
        else:
            jumps.append((width, part))
            width = 0
    if not jumps:
        return lambda raw, at: at + width  # noqa: ARG005 - the form of a jump
    if len(jumps) == 1:
        ((before, single),) = jumps
        return lambda raw, at: single(raw, at + before) + width

    def several(raw: bytes, at: int) -> int:
        for before, jump in jumps:
            at = jump(raw, at + before)
        return at + width

    return several


def _string(raw: bytes, at: int) -> int:
    size = raw[at]
    at += 1
    if size >= 0x80:
        size, at = _varlen(raw, at, size & 0x7F)
    if size < 2:
        return at
    end = at + size - 1
    return end if raw[at:end].isascii() else _units(raw, at, size - 1)


def _varlen(raw: bytes, at: int, value: int) -> tuple[int, int]:
    """The rest of a number whose first seven bits are ``value``."""
    shift = 7
    while raw[at] >= 0x80 and shift < 35:
        value |= (raw[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return value | (raw[at] << shift), at + 1


def _units(raw: bytes, at: int, count: int) -> int:
    """Behind ``count`` UTF-16 units, each at most three bytes, the last of them below 0x80."""
    window = np.frombuffer(raw, np.uint8, max(min(3 * count, len(raw) - at), 0), at)
    return at + int(np.flatnonzero(window < 0x80)[count - 1]) + 1


def _sized(width: int) -> Jump:
    def jump(raw: bytes, at: int) -> int:
        (count,) = _U32.unpack_from(raw, at)
        return at + 4 + int(count) * width

    return jump


def _repeated(element: Jump) -> Jump:
    def jump(raw: bytes, at: int) -> int:
        (count,) = _U32.unpack_from(raw, at)
        at += 4
        if count > len(raw) - at:  # an element takes a byte at least, or all that is left
            raise IndexError(at)
        for _ in range(count):
            at = element(raw, at)
            if at > len(raw):
                raise IndexError(at)
        return at

    return jump


def _flagged(value: Jump) -> Jump:
    return lambda raw, at: at + 1 if raw[at] else value(raw, at + 1)


def _row(codec: RowCodec) -> Jump:
    """The mask in front decides which fields follow: one chain for each mask that comes along."""
    size = (KIND_BITS + len(codec.fields) + 7) // 8
    fields = [_parts(field) for field in codec.fields]
    plans: dict[bytes, Jump] = {}

    def jump(raw: bytes, at: int) -> int:
        mask = raw[at : at + size]
        plan = plans.get(mask)
        if plan is None:
            if len(plans) >= _MAX_PLANS:
                plans.clear()
            plan = plans[mask] = _chain(_present(mask, fields, size))
        return plan(raw, at + size)

    return jump


def _present(mask: bytes, fields: Sequence[Sequence[_Part]], size: int) -> list[_Part]:
    """What lies behind this mask."""
    if len(mask) < size:
        raise IndexError(size)
    null = np.unpackbits(np.frombuffer(mask, np.uint8))[KIND_BITS:]
    return [part for i, parts in enumerate(fields) if not null[i] for part in parts]


def _read_through(kind: StateType) -> Jump:
    """Over a value with a part that only a decoder of the user's can read."""

    def jump(raw: bytes, at: int) -> int:
        unread = opaque_part(kind)
        if unread is not None:
            raise UnsupportedError(
                f"where a value of {unread} ends among other entries, only the class of its serializer knows",
                kind="opaque-entries",
                hint="take a canonical savepoint with Flink, or give the class a decoder:"
                " statelib.serializers.register_decoder",
            )
        reader = Reader(raw, str(kind))
        reader.take(at)
        exact(kind)(reader)
        return reader.offset

    return jump


def holds_opaque(kind: StateType) -> bool:
    """Whether columns hold a part of it as bytes, with a decoder of the user's or without."""
    return isinstance(kind, Opaque) or any(map(holds_opaque, parts_of(kind)))


def _by_codec(codec: Codec) -> Jump:
    """For a codec that this module does not know: slow, and as right as the codec."""

    def jump(raw: bytes, at: int) -> int:
        end = codec.skip(np.frombuffer(raw, np.uint8), np.array([at], np.int64), np.array([len(raw)], np.int64))
        return int(end[0])

    return jump
