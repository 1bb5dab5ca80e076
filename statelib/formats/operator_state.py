"""Operator state streams, and the one that statelib keeps: how far the source has been applied.

The position is an ordinary Flink operator list state, ``statelib.source-position``, of one Row
(start_ms, end_ms, watermark_ms), the first two null before the first interval.

Source: flink-formats.md section 7.2 (OperatorBackendSerializationProxy); version 5 is written
because every Flink since 1.17 reads it.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from statelib.errors import CorruptStateError, UnsupportedError
from statelib.formats.keyed_header import MetaInfo, MetaKind, read_meta_info, write_meta_info
from statelib.model.checkpoint import DataInterval, SourcePosition
from statelib.model.handles import OperatorStreamStateHandle
from statelib.model.types import LONG, Field, Row, StateType
from statelib.serializers.registry import codec_of
from statelib.wire.reader import Reader
from statelib.wire.writer import Writer

SOURCE_POSITION = "statelib.source-position"
SPLIT_DISTRIBUTE = 0
POSITION_TYPE: StateType = Row((Field("start_ms", LONG), Field("end_ms", LONG), Field("watermark_ms", LONG)))
WRITTEN_VERSION = 5
_HAS_COMPRESSION_FLAG = {3: False, 4: False, 5: False, 6: True}
_MODE = "OPERATOR_STATE_DISTRIBUTION_MODE"
_VALUE = "VALUE_SERIALIZER"
StateOffsets = tuple[str, int, tuple[int, ...]]
"""(name, distribution mode, offset of each element), as OperatorStreamStateHandle holds them."""


@dataclass(frozen=True)
class OperatorHeader:
    """``states``: list and union state; ``broadcast``: broadcast state. ``size_bytes``: of the header."""

    compressed: bool
    states: tuple[MetaInfo, ...]
    broadcast: tuple[MetaInfo, ...]
    size_bytes: int


def encode_source_position(position: SourcePosition) -> tuple[bytes, StateOffsets]:
    """The stream, and what its handle says of it: ``OperatorStreamStateHandle((offsets,), stream_handle)``."""
    writer = Writer()
    writer.i32(WRITTEN_VERSION)
    writer.i16(1)
    info = MetaInfo(SOURCE_POSITION, MetaKind.OPERATOR, {_MODE: "SPLIT_DISTRIBUTE"}, {_VALUE: POSITION_TYPE})
    write_meta_info(writer, info)
    writer.i16(0)
    offset = writer.offset
    codec = codec_of(POSITION_TYPE)
    interval = position.interval
    row = {
        "start_ms": None if interval is None else interval.start_ms,
        "end_ms": None if interval is None else interval.end_ms,
        "watermark_ms": position.watermark_ms,
    }
    encoded = codec.encode(pa.array([row], codec.arrow_type))
    writer.put(encoded.to_list()[0])
    return writer.getvalue(), (SOURCE_POSITION, SPLIT_DISTRIBUTE, (offset,))


def decode_source_position(handle: OperatorStreamStateHandle, data: bytes | memoryview) -> SourcePosition:
    """The position in ``data``, the bytes of ``handle.stream``.

    Raises CorruptStateError (``no-source-position`` when the stream holds none).
    """
    header = decode_operator_header(data)
    _check_position_state(header)
    for name, _mode, offsets in handle.states:
        if name == SOURCE_POSITION and len(offsets) == 1 and header.size_bytes <= offsets[0] <= len(data):
            return _decode_row(memoryview(data).cast("B"), offsets[0])
    raise CorruptStateError(
        f"operator state: expected one element of {SOURCE_POSITION!r}, found {handle.states}", kind="no-source-position"
    )


def decode_operator_header(data: bytes | memoryview, what: str = "operator state") -> OperatorHeader:
    """Versions 3 to 6. Raises CorruptStateError, UnsupportedError (``header-version``, ``unknown-serializer``)."""
    reader = Reader(data, what)
    version = reader.i32()
    if version not in _HAS_COMPRESSION_FLAG:
        raise UnsupportedError(
            f"{what}: version {version}, can be read: {', '.join(map(str, _HAS_COMPRESSION_FLAG))}",
            kind="header-version",
        )
    compressed = _HAS_COMPRESSION_FLAG[version] and reader.bool()
    states = _read_infos(reader, MetaKind.OPERATOR)
    broadcast = _read_infos(reader, MetaKind.BROADCAST)
    return OperatorHeader(compressed, states, broadcast, reader.offset)


def _read_infos(reader: Reader, kind: MetaKind) -> tuple[MetaInfo, ...]:
    at, count = reader.offset, reader.i16()
    if not 0 <= count <= reader.remaining:
        raise CorruptStateError(f"{reader.what}: {count} states at offset {at}", kind="bad-count")
    infos = tuple(read_meta_info(reader) for _ in range(count))
    for info in infos:
        if info.kind is not kind:
            raise CorruptStateError(
                f"{reader.what}: state {info.name!r} of type {info.kind.name}, expected {kind.name}",
                kind="corrupt-header",
            )
    return infos


def _check_position_state(header: OperatorHeader) -> None:
    if header.compressed:
        raise UnsupportedError("operator state: compressed source position", kind="compressed-operator-state")
    for info in header.states:
        if info.name == SOURCE_POSITION:
            found = info.serializers.get(_VALUE)
            if isinstance(found, Row) and [field.type for field in found.fields] == [LONG, LONG, LONG]:
                return
            raise CorruptStateError(
                f"operator state {SOURCE_POSITION!r}: type {found}, expected {POSITION_TYPE}", kind="corrupt-header"
            )
    raise CorruptStateError(f"operator state: no state {SOURCE_POSITION!r}", kind="no-source-position")


def _decode_row(data: memoryview, offset: int) -> SourcePosition:
    codec = codec_of(POSITION_TYPE)
    limit = np.array([len(data)], np.int64)
    values, _ = codec.decode(np.frombuffer(data, np.uint8), np.array([offset], np.int64), limit)
    row = values[0].as_py()
    start, end, watermark = row["start_ms"], row["end_ms"], row["watermark_ms"]
    if watermark is None or (start is None) != (end is None):
        raise CorruptStateError(f"operator state {SOURCE_POSITION!r}: {row}", kind="corrupt-position")
    return SourcePosition(None if start is None else DataInterval(start, end), watermark)
