"""Operator state streams: the list, union and broadcast state of one subtask.

After the header, the stream has no structure of its own: the offsets in its handle give the start of each element.

Source: docs/spec/formats.md#operator-state (OperatorBackendSerializationProxy, PartitionableListState,
HeapBroadcastState). Version 5 is written because every Flink since 1.17 reads it.
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
from statelib.serializers.columns.elements import counted
from statelib.serializers.entries.broadcast import entry_spans
from statelib.serializers.registry import codec_of
from statelib.serializers.skippers import holds_opaque
from statelib.serializers.snapshots import ForeignReader
from statelib.wire.ragged import Bytes, Ragged, join
from statelib.wire.reader import Reader
from statelib.wire.writer import Writer

WRITTEN_VERSION = 5
IDENTIFIER_BYTES = 10
"""The size in bytes of the identifier at the start of a Snappy framed stream."""
_HAS_COMPRESSION_FLAG = {5: False, 6: True}
"""Whether the header has a compression flag, by version of the header.

Versions up to 4 (Flink 1.7) describe states differently, with serializers as Java objects; Flink itself has not read
them since 1.17.
"""
_MODE = "OPERATOR_STATE_DISTRIBUTION_MODE"
_KEY, _VALUE = "KEY_SERIALIZER", "VALUE_SERIALIZER"
StateOffsets = tuple[str, int, tuple[int, ...]]
"""(name, distribution mode, offset of each element in bytes), as OperatorStreamStateHandle holds them."""


@dataclass(frozen=True, eq=False)
class OperatorStateContent:
    """The content of one operator state as immutable columns: ``values``, and ``keys`` for broadcast state."""

    descriptor: OperatorStateDescriptor
    values: pa.Array
    keys: pa.Array | None = None

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class OperatorHeader:
    """The decoded header of an operator state stream.

    ``states``: list and union state; ``broadcast``: broadcast state; ``size_bytes``: the length of the header itself.
    """

    compressed: bool
    states: tuple[MetaInfo, ...]
    broadcast: tuple[MetaInfo, ...]
    size_bytes: int


def encode_operator_state(states: Sequence[OperatorStateContent]) -> tuple[bytes, tuple[StateOffsets, ...]]:
    """Return the bytes of a stream, and the offsets for its handle: ``OperatorStreamStateHandle(offsets,
    stream_handle)``.

    Raise InvalidRequestError (``null-value``) if an element, a key or a value is null.
    """
    broadcast = [s for s in states if s.descriptor.mode is OperatorStateMode.BROADCAST]
    lists = [s for s in states if s.descriptor.mode is not OperatorStateMode.BROADCAST]
    writer = Writer()
    writer.i32(WRITTEN_VERSION)
    for kind, group in ((MetaKind.OPERATOR, lists), (MetaKind.BROADCAST, broadcast)):
        writer.i16(len(group))
        for content in group:
            write_meta_info(writer, _meta_info(kind, content.descriptor))
    offsets = [
        (content.descriptor.name, int(content.descriptor.mode), _write_content(writer, content))
        for content in (*lists, *broadcast)
    ]
    return writer.getvalue(), tuple(offsets)


def _meta_info(kind: MetaKind, descriptor: OperatorStateDescriptor) -> MetaInfo:
    serializers = {_VALUE: descriptor.value_type}
    if descriptor.key_type is not None:
        serializers = {_KEY: descriptor.key_type, **serializers}
    return MetaInfo(descriptor.name, kind, {_MODE: descriptor.mode.name}, serializers)


def _write_content(writer: Writer, content: OperatorStateContent) -> tuple[int, ...]:
    """Append the elements, and return the offset of each. The whole map of broadcast state is one element."""
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
    """An operator state stream opened for reading, with the states and elements that ``handle`` lists.

    The constructor raises the errors of :func:`decode_operator_header`, and CorruptStateError if handle and header do
    not agree.
    """

    def __init__(
        self, handle: OperatorStreamStateHandle, data: bytes | memoryview, what: str = "operator state"
    ) -> None:
        self.header = _header_for(handle, data, what)
        self._what = what
        if len({name for name, _, _ in handle.states}) != len(handle.states):
            raise CorruptStateError(f"{what}: the handle names a state twice", kind="corrupt-header")
        self._offsets = {name: offsets for name, _, offsets in handle.states}
        infos = {info.name: info for info in (*self.header.states, *self.header.broadcast)}
        self.descriptors = tuple(self._descriptor(infos, name, mode) for name, mode, _ in handle.states)
        self._content = _content_of(self.header, memoryview(data).cast("B"), what)

    def read(self, descriptor: OperatorStateDescriptor) -> OperatorStateContent:
        """Return the content of the state with the descriptor's name; Row fields get the descriptor's names.

        Raise CorruptStateError (``bad-offset``, ``bad-count`` and the kinds of the codecs), and UnsupportedError
        (``opaque-entries``).
        """
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
        """Return the serialized elements of the state; for broadcast state, its one map with the number of entries in
        front.

        Each part reaches to the start of the next element of any state; only the state's type can tell its true end.
        Raise CorruptStateError (``bad-offset``).
        """
        starts = self._content.located(self._offsets[descriptor.name], f"{self._what} {descriptor.name!r}")
        data = self._content.data
        return tuple(data[a:b].tobytes() for a, b in zip(starts.tolist(), self._ends(starts).tolist(), strict=True))

    def _ends(self, starts: np.ndarray) -> np.ndarray:
        """Return, per start, the next start of any element, or the end of the content."""
        ends: np.ndarray = self._bounds[np.searchsorted(self._bounds, starts, side="right")]
        return ends.clip(max=len(self._content.data))

    @cached_property
    def _bounds(self) -> np.ndarray:
        """The starts of all elements, and a number beyond the end of the content."""
        starts = [self._content.located(offsets, f"{self._what} {name!r}") for name, offsets in self._offsets.items()]
        return np.append(np.unique(np.concatenate([np.empty(0, np.int64), *starts])), len(self._content.data) + 1)

    def contents(self) -> Iterable[OperatorStateContent]:
        """Yield the content of every state of the handle, with the types of the stream's own header.

        Raise the errors of :meth:`read`.
        """
        return (self.read(descriptor) for descriptor in self.descriptors)

    def _descriptor(self, infos: dict[str, MetaInfo], name: str, mode: int) -> OperatorStateDescriptor:
        info = infos.get(name)
        if info is None or mode not in set(OperatorStateMode) or _VALUE not in info.serializers:
            raise self._disagreement(name, mode, "nothing that fits")
        state_mode = OperatorStateMode(mode)
        broadcast = state_mode is OperatorStateMode.BROADCAST
        if info.options.get(_MODE) != state_mode.name or broadcast != (info.kind is MetaKind.BROADCAST):
            raise self._disagreement(name, mode, f"{info.kind.name} {info.options.get(_MODE)}")
        key_type = info.serializers.get(_KEY) if broadcast else None
        if broadcast and key_type is None:
            raise self._disagreement(name, mode, "no serializer of its keys")
        return OperatorStateDescriptor(name, state_mode, info.serializers[_VALUE], key_type)

    def _disagreement(self, name: str, mode: int, header_content: str) -> CorruptStateError:
        return CorruptStateError(
            f"{self._what}: the handle names state {name!r} of mode {mode}, the header holds {header_content}",
            kind="corrupt-header",
        )


def _spans(descriptor: OperatorStateDescriptor, part: bytes, what: str) -> np.ndarray:
    """Return three rows: per entry, its start, the start of its value, and its end.

    Raise UnsupportedError (``opaque-entries``) if the entries cannot be separated.
    """
    spans = entry_spans(descriptor, part, what)
    if spans is None:
        raise UnsupportedError(
            f"{what}: only the class of their serializer can tell where its entries end",
            kind="opaque-entries",
            hint="register a decoder with statelib.serializers.register_decoder; an export has all of its bytes",
        )
    return np.array(spans, np.int64).reshape(-1, 3).T


@dataclass(frozen=True, eq=False)
class _Content:
    """The uncompressed bytes after the header.

    ``blocks`` maps offsets of the stream to offsets in ``data``; None if both are the same. ``first``: the lowest
    offset in ``data`` at which an element may begin.
    """

    data: Bytes = field(repr=False)
    first: int
    blocks: dict[int, int] | None

    def located(self, offsets: tuple[int, ...], what: str) -> np.ndarray:
        """Return the offset in ``data`` per offset of the stream.

        Raise CorruptStateError (``bad-offset``) if no element can begin there, or if two elements begin at one offset.
        """
        data_offsets = offsets if self.blocks is None else tuple(self.blocks.get(offset, -1) for offset in offsets)
        starts = np.array(data_offsets, np.int64)
        repeated = np.ones(len(starts), np.bool_)  # no two elements begin at one offset
        repeated[np.unique(starts, return_index=True)[1]] = False
        bad = np.flatnonzero((starts < self.first) | (starts > len(self.data)) | repeated)
        if len(bad):
            raise CorruptStateError(f"{what}: no element can begin at offset {offsets[bad[0]]}", kind="bad-offset")
        return starts


def _content_of(header: OperatorHeader, data: memoryview, what: str) -> _Content:
    if not header.compressed:
        return _Content(np.frombuffer(data, np.uint8), header.size_bytes, None)
    content, blocks = decompress_blocks(data, header.size_bytes, what)
    return _Content(content, 0, blocks)


def _header_for(handle: OperatorStreamStateHandle, data: bytes | memoryview, what: str) -> OperatorHeader:
    """Return the header of the stream.

    If it holds a user's own serializer, its end must be the offset of the first element in the handle.
    """
    try:
        return decode_operator_header(data, what)
    except UnsupportedError as error:
        if error.kind != "unknown-serializer":
            raise
        first_offset = min((offset for _, _, offsets in handle.states for offset in offsets), default=-1)
        try:
            header = read_operator_header(ForeignReader(data, what))
        except StatelibError:
            raise error from None
        if header.size_bytes + (IDENTIFIER_BYTES if header.compressed else 0) != first_offset:
            raise
        return header


def decode_operator_header(data: bytes | memoryview, what: str = "operator state") -> OperatorHeader:
    """Return the header at the start of ``data``, of version 5 or 6; ``what`` names it in errors.

    Raise CorruptStateError, and UnsupportedError (``header-version``, ``unknown-serializer``).
    """
    return read_operator_header(Reader(data, what))


def read_operator_header(reader: Reader) -> OperatorHeader:
    """Read a header and leave ``reader`` at its end. Raise the errors of :func:`decode_operator_header`."""
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
    infos = tuple(_read_numbered_state(reader, kind, number) for number in range(count))
    for info in infos:
        if info.kind is not kind:
            raise CorruptStateError(
                f"{reader.what}: state {info.name!r} of type {info.kind.name}, expected {kind.name}",
                kind="corrupt-header",
            )
    return infos


def _read_numbered_state(reader: Reader, kind: MetaKind, number: int) -> MetaInfo:
    with reader.part(f"{kind.name.lower()} state {number}"):
        return read_meta_info(reader)
