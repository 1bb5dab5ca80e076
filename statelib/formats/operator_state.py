"""Operator state streams: list, union and broadcast state of one subtask.

The stream has no structure behind its header: the handle's offsets say where each element lies.

Source: flink-formats.md section 7.2 (OperatorBackendSerializationProxy, PartitionableListState,
HeapBroadcastState); version 5 is written because every Flink since 1.17 reads it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa

from statelib.errors import CorruptStateError, StatelibError, UnsupportedError
from statelib.formats.keyed.header import MetaInfo, MetaKind, read_meta_info, write_meta_info
from statelib.formats.snappy_framing import decompress_blocks
from statelib.model.amounts import number_of
from statelib.model.handles import OperatorStreamStateHandle
from statelib.model.operator_state import OperatorStateDescriptor, OperatorStateMode
from statelib.serializers.broadcast_entries import entry_spans
from statelib.serializers.jumps import holds_opaque
from statelib.serializers.registry import codec_of
from statelib.serializers.snapshots import ForeignReader
from statelib.serializers.walks import counted
from statelib.wire.ragged import Bytes, Ragged, join
from statelib.wire.reader import Reader
from statelib.wire.writer import Writer

WRITTEN_VERSION = 5
IDENTIFIER_BYTES = 10
"""What a Snappy framed stream begins with."""
_HAS_COMPRESSION_FLAG = {5: False, 6: True}
"""By version of the header. Up to 4 (Flink 1.7) states were described in other ways, with serializers as Java objects;
Flink's own reader has refused them since 1.17."""
_MODE = "OPERATOR_STATE_DISTRIBUTION_MODE"
_KEY, _VALUE = "KEY_SERIALIZER", "VALUE_SERIALIZER"
StateOffsets = tuple[str, int, tuple[int, ...]]
"""(name, distribution mode, offset of each element), as OperatorStreamStateHandle holds them."""


@dataclass(frozen=True, eq=False)
class OperatorStateContent:
    """What one operator state holds, in columns nobody can change: ``values``, and in broadcast state ``keys``."""

    descriptor: OperatorStateDescriptor
    values: pa.Array
    keys: pa.Array | None = None

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class OperatorHeader:
    """``states``: list and union state; ``broadcast``: broadcast state. ``size_bytes``: of the header."""

    compressed: bool
    states: tuple[MetaInfo, ...]
    broadcast: tuple[MetaInfo, ...]
    size_bytes: int


def encode_operator_state(states: Sequence[OperatorStateContent]) -> tuple[bytes, tuple[StateOffsets, ...]]:
    """The stream, and what its handle says of it: ``OperatorStreamStateHandle(offsets, stream_handle)``.

    Raises InvalidRequestError (``null-value``): neither elements nor keys or values may be null."""
    broadcast = [s for s in states if s.descriptor.mode is OperatorStateMode.BROADCAST]
    lists = [s for s in states if s.descriptor.mode is not OperatorStateMode.BROADCAST]
    writer = Writer()
    writer.i32(WRITTEN_VERSION)
    for kind, group in ((MetaKind.OPERATOR, lists), (MetaKind.BROADCAST, broadcast)):
        writer.i16(len(group))
        for content in group:
            write_meta_info(writer, _info(kind, content.descriptor))
    offsets = [
        (content.descriptor.name, int(content.descriptor.mode), _write_content(writer, content))
        for content in (*lists, *broadcast)
    ]
    return writer.getvalue(), tuple(offsets)


def _info(kind: MetaKind, descriptor: OperatorStateDescriptor) -> MetaInfo:
    serializers = {_VALUE: descriptor.value_type}
    if descriptor.key_type is not None:
        serializers = {_KEY: descriptor.key_type, **serializers}
    return MetaInfo(descriptor.name, kind, {_MODE: descriptor.mode.name}, serializers)


def _write_content(writer: Writer, content: OperatorStateContent) -> tuple[int, ...]:
    """Append the elements; where each begins (broadcast state: the whole map is one)."""
    start, descriptor = writer.offset, content.descriptor
    rows = codec_of(descriptor.value_type).encode(content.values)
    if descriptor.key_type is not None:
        rows = join([codec_of(descriptor.key_type).encode(content.keys), rows])
        writer.i32(len(rows))
    writer.put(_bytes_of(rows))
    if descriptor.key_type is not None:
        return (start,)
    return tuple((rows.offsets[:-1] - rows.offsets[0] + start).tolist())


def _bytes_of(rows: Ragged) -> bytes:
    return bytes(rows.data[rows.offsets[0] : rows.offsets[-1]])


class OperatorStream:
    """One stream opened for reading, with the states and elements that ``handle`` names.

    Making one raises what :func:`decode_operator_header` raises, and CorruptStateError where handle
    and header do not agree."""

    def __init__(
        self, handle: OperatorStreamStateHandle, data: bytes | memoryview, what: str = "operator state"
    ) -> None:
        self.header = _header_before(handle, data, what)
        self._what = what
        if len({name for name, _, _ in handle.states}) != len(handle.states):
            raise CorruptStateError(f"{what}: the handle names a state twice", kind="corrupt-header")
        self._offsets = {name: offsets for name, _, offsets in handle.states}
        infos = {info.name: info for info in (*self.header.states, *self.header.broadcast)}
        self.descriptors = tuple(self._descriptor(infos, name, mode) for name, mode, _ in handle.states)
        self._content = _content(self.header, memoryview(data).cast("B"), what)

    def read(self, descriptor: OperatorStateDescriptor) -> OperatorStateContent:
        """What the state of that name holds, with the descriptor's own names of Row fields.

        Raises CorruptStateError (``bad-offset``, ``bad-count`` and what the codecs raise), UnsupportedError
        (``opaque-entries``)."""
        starts = self._content.located(self._offsets[descriptor.name], f"{self._what} {descriptor.name!r}")
        codec = codec_of(descriptor.value_type)
        if descriptor.key_type is None:
            values, _ = codec.decode(self._content.data, starts, self._ends(starts))
            return OperatorStateContent(descriptor, values)
        if len(starts) != 1:
            raise CorruptStateError(
                f"{self._what} {descriptor.name!r}: {number_of(len(starts), 'offset')}, a broadcast state has one",
                kind="bad-offset",
            )
        return self._broadcast(descriptor, int(starts[0]))

    def _broadcast(self, descriptor: OperatorStateDescriptor, start: int) -> OperatorStateContent:
        assert descriptor.key_type is not None
        data = self._content.data
        key, value = codec_of(descriptor.key_type), codec_of(descriptor.value_type)
        end = int(self._ends(np.array([start]))[0])
        part, what = data[start:end], f"{self._what} {descriptor.name!r}"
        if holds_opaque(descriptor.key_type) or holds_opaque(descriptor.value_type):
            begins, middles, ends = _spans(descriptor, part.tobytes(), what)
            keys, _ = key.decode(part, begins, middles)
            values, _ = value.decode(part, middles, ends)
            return OperatorStateContent(descriptor, values, keys)
        counts = np.array([Reader(part.tobytes(), what).count()], np.int64)

        def skip(data: Bytes, cursor: np.ndarray, limit: np.ndarray) -> np.ndarray:
            return value.skip(data, key.skip(data, cursor, limit), limit)

        limit = np.array([len(part)])
        starts, _ = counted(skip, part, np.array([4]), limit, counts)
        limits = np.full(len(starts), limit[0], np.int64)
        keys, at = key.decode(part, starts, limits)
        values, _ = value.decode(part, at, limits)
        return OperatorStateContent(descriptor, values, keys)

    def stored(self, descriptor: OperatorStateDescriptor) -> tuple[bytes, ...]:
        """What the state holds, serialized: each element; of broadcast state the one map, its count in front.

        A part goes on to where the next one of any state begins: only its type says where it really ends.
        Raises CorruptStateError (``bad-offset``)."""
        starts = self._content.located(self._offsets[descriptor.name], f"{self._what} {descriptor.name!r}")
        data = self._content.data
        return tuple(data[a:b].tobytes() for a, b in zip(starts.tolist(), self._ends(starts).tolist(), strict=True))

    def _ends(self, starts: np.ndarray) -> np.ndarray:
        """Where the next thing behind each start begins, or all ends."""
        ends: np.ndarray = self._bounds[np.searchsorted(self._bounds, starts, side="right")]
        return ends.clip(max=len(self._content.data))

    @cached_property
    def _bounds(self) -> np.ndarray:
        """Where anything begins, and where all ends."""
        starts = [self._content.located(offsets, f"{self._what} {name!r}") for name, offsets in self._offsets.items()]
        return np.append(np.unique(np.concatenate([np.empty(0, np.int64), *starts])), len(self._content.data) + 1)

    def contents(self) -> Iterable[OperatorStateContent]:
        """Every state of the handle, with the types of the stream's own header."""
        return (self.read(descriptor) for descriptor in self.descriptors)

    def _descriptor(self, infos: dict[str, MetaInfo], name: str, mode: int) -> OperatorStateDescriptor:
        info = infos.get(name)
        if info is None or mode not in set(OperatorStateMode) or _VALUE not in info.serializers:
            raise self._disagreement(name, mode, "nothing that fits")
        found = OperatorStateMode(mode)
        broadcast = found is OperatorStateMode.BROADCAST
        if info.options.get(_MODE) != found.name or broadcast != (info.kind is MetaKind.BROADCAST):
            raise self._disagreement(name, mode, f"{info.kind.name} {info.options.get(_MODE)}")
        key_type = info.serializers.get(_KEY) if broadcast else None
        if broadcast and key_type is None:
            raise self._disagreement(name, mode, "no serializer of its keys")
        return OperatorStateDescriptor(name, found, info.serializers[_VALUE], key_type)

    def _disagreement(self, name: str, mode: int, found: str) -> CorruptStateError:
        return CorruptStateError(
            f"{self._what}: the handle names state {name!r} of mode {mode}, the header holds {found}",
            kind="corrupt-header",
        )


def _spans(descriptor: OperatorStateDescriptor, part: bytes, what: str) -> np.ndarray:
    """Of each entry where it begins, where its value begins and where it ends, as three rows."""
    spans = entry_spans(descriptor, part, what)
    if spans is None:
        raise UnsupportedError(
            f"{what}: where its entries end, only the class of their serializer knows",
            kind="opaque-entries",
            hint="statelib.serializers.register_decoder gives it one; an export has all of its bytes",
        )
    return np.array(spans, np.int64).reshape(-1, 3).T


@dataclass(frozen=True, eq=False)
class _Content:
    """The bytes behind the header, uncompressed; ``blocks``: where in ``data`` the part at an offset of
    the stream begins, None where the two are the same."""

    data: Bytes = field(repr=False)
    first: int
    blocks: dict[int, int] | None

    def located(self, offsets: tuple[int, ...], what: str) -> np.ndarray:
        """Where the elements begin in ``data``; CorruptStateError (``bad-offset``)."""
        found = offsets if self.blocks is None else tuple(self.blocks.get(offset, -1) for offset in offsets)
        starts = np.array(found, np.int64)
        again = np.ones(len(starts), np.bool_)  # an element is there once
        again[np.unique(starts, return_index=True)[1]] = False
        bad = np.flatnonzero((starts < self.first) | (starts > len(self.data)) | again)
        if len(bad):
            raise CorruptStateError(f"{what}: no element can begin at offset {offsets[bad[0]]}", kind="bad-offset")
        return starts


def _content(header: OperatorHeader, data: memoryview, what: str) -> _Content:
    if not header.compressed:
        return _Content(np.frombuffer(data, np.uint8), header.size_bytes, None)
    content, blocks = decompress_blocks(data, header.size_bytes, what)
    return _Content(content, 0, blocks)


def _header_before(handle: OperatorStreamStateHandle, data: bytes | memoryview, what: str) -> OperatorHeader:
    """The header; where it names a user's serializer, its end must be where the handle says that elements begin."""
    try:
        return decode_operator_header(data, what)
    except UnsupportedError as error:
        if error.kind != "unknown-serializer":
            raise
        begin = min((offset for _, _, offsets in handle.states for offset in offsets), default=-1)
        try:
            found = read_operator_header(ForeignReader(data, what))
        except StatelibError:
            raise error from None
        if found.size_bytes + (IDENTIFIER_BYTES if found.compressed else 0) != begin:
            raise
        return found


def decode_operator_header(data: bytes | memoryview, what: str = "operator state") -> OperatorHeader:
    """Versions 5 and 6. Raises CorruptStateError, UnsupportedError (``header-version``, ``unknown-serializer``)."""
    return read_operator_header(Reader(data, what))


def read_operator_header(reader: Reader) -> OperatorHeader:
    """As :func:`decode_operator_header`; the reader stands behind the header then."""
    what, version = reader.what, reader.i32("version")
    if version not in _HAS_COMPRESSION_FLAG:
        raise UnsupportedError(
            f"{what}: version {version}, can be read: {', '.join(map(str, _HAS_COMPRESSION_FLAG))}",
            kind="header-version",
            hint="" if version > max(_HAS_COMPRESSION_FLAG) else "let Flink 1.8 to 1.16 take the savepoint once more",
        )
    compressed = _HAS_COMPRESSION_FLAG[version] and reader.bool("compressed")
    states = _read_infos(reader, MetaKind.OPERATOR)
    broadcast = _read_infos(reader, MetaKind.BROADCAST)
    return OperatorHeader(compressed, states, broadcast, reader.offset)


def _read_infos(reader: Reader, kind: MetaKind) -> tuple[MetaInfo, ...]:
    at, count = reader.offset, reader.i16(f"{kind.name.lower()} states")
    if not 0 <= count <= reader.remaining:
        raise CorruptStateError(f"{reader.what}: {count} states at offset {at}", kind="bad-count")
    infos = tuple(_numbered(reader, kind, number) for number in range(count))
    for info in infos:
        if info.kind is not kind:
            raise CorruptStateError(
                f"{reader.what}: state {info.name!r} of type {info.kind.name}, expected {kind.name}",
                kind="corrupt-header",
            )
    return infos


def _numbered(reader: Reader, kind: MetaKind, number: int) -> MetaInfo:
    with reader.part(f"{kind.name.lower()} state {number}"):
        return read_meta_info(reader)
