"""The codec of Flink's ``_metadata`` file: reads versions 2 to 7, and writes version 3, or 5 and 6 for a rewritten
savepoint.

Version 3 is written because every Flink since 1.17 reads it and because it ends without a Java-serialized trailer, so
that statelib's own manifest can follow (``formats.manifest.trailer``).

Source: docs/spec/formats.md#metadata-file, #operators (Checkpoints, MetadataSerializers).
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from statelib.errors import CorruptStateError, InvalidRequestError, UnsupportedError
from statelib.formats.metadata.handle_codec import (
    ChannelHandle,
    read_channel_handle,
    read_operator_handle,
    read_stream_handle,
    read_tagged_channel_handle,
    write_operator_handle,
    write_stream_handle,
)
from statelib.formats.metadata.keyed_handle_codec import read_keyed_handle, write_keyed_handle
from statelib.model.checkpoint import CheckpointMetadata, OperatorState, OperatorSubtaskState
from statelib.model.handles import OperatorStreamStateHandle, StreamStateHandle
from statelib.model.key_groups import MAX_MAX_PARALLELISM
from statelib.wire.java_objects import read_object
from statelib.wire.reader import Reader
from statelib.wire.writer import Writer

MAGIC = 0x4960672D
WRITTEN_VERSION = 3
_NAMED_VERSIONS = (5, 6)
"""The versions that have operator names and uids, and are written besides version 3."""
_MASTER_STATE_MAGIC = 0xC96B1696
_OPERATOR_ID_BYTES = 16
_FINISHED = -1


@dataclass(frozen=True)
class _Layout:
    """The fields in which the versions of ``_metadata`` differ: one reading step per field."""

    names: Callable[[Reader], tuple[str, str]]
    coordinator: Callable[[Reader], StreamStateHandle | None]
    subtask_prefix: Callable[[Reader], None]
    channels: Callable[[Reader], list[ChannelHandle]]
    subtask_suffix: Callable[[Reader], None]
    trailer: Callable[[Reader], bytes]


def encode_metadata(metadata: CheckpointMetadata) -> bytes:
    """Return the bytes of a ``_metadata`` file, without a manifest.

    Version 3 is written, which has no operator names and uids. If ``metadata`` is of version 5 or 6 and has checkpoint
    properties, that version is written instead, with names and uids.

    Raise InvalidRequestError (``channel-state``) for a checkpoint with in-flight buffers: without them, records would
    be lost.
    """
    writer = Writer()
    writer.u32(MAGIC)
    named = metadata.version in _NAMED_VERSIONS and bool(metadata.properties)
    writer.i32(metadata.version if named else WRITTEN_VERSION)
    writer.i64(metadata.checkpoint_id)
    writer.i32(0)
    writer.i32(len(metadata.operators))
    for operator in metadata.operators:
        if named:
            writer.utf(operator.name)
            writer.utf(operator.uid)
        _write_operator(writer, operator)
    if named:
        writer.put(metadata.properties)
    return writer.getvalue()


def decode_metadata(data: bytes | memoryview, what: str = "_metadata") -> tuple[CheckpointMetadata, int]:
    """Return the content of a ``_metadata`` file, and the offset where Flink's part ends.

    In versions 2 and 3 more bytes may follow Flink's part; in later versions it fills the file. ``what`` names the file
    in errors. Raise CorruptStateError for damaged bytes, and UnsupportedError (``metadata-version``, ``unknown-handle``
    and others) for well-formed content that statelib cannot read.
    """
    reader = Reader(data, what)
    return read_metadata(reader), reader.offset


def read_metadata(reader: Reader) -> CheckpointMetadata:
    """Read Flink's part of a ``_metadata`` file and leave ``reader`` at its end.

    Raise the errors of :func:`decode_metadata`.
    """
    what = reader.what
    magic = reader.u32("magic")
    if magic != MAGIC:
        raise CorruptStateError(f"{what}: magic {magic:08x}, expected {MAGIC:08x}", kind="corrupt-metadata")
    version = reader.i32("version")
    layout = _LAYOUTS.get(version)
    if layout is None:
        readable_versions = ", ".join(map(str, _LAYOUTS))
        raise UnsupportedError(f"{what}: version {version}, can be read: {readable_versions}", kind="metadata-version")
    checkpoint_id = reader.i64("checkpoint id")
    if checkpoint_id < 0:
        raise CorruptStateError(f"{what}: checkpoint id {checkpoint_id} is negative", kind="corrupt-metadata")
    for _ in range(reader.count(8, "master states")):
        _skip_master_state(reader)
    count = reader.count(_OPERATOR_ID_BYTES + 12, "operators")
    operators = tuple(_read_operator(reader, layout, number) for number in range(count))
    return CheckpointMetadata(checkpoint_id, operators, version, layout.trailer(reader))


def _skip_master_state(reader: Reader) -> None:
    at, magic = reader.offset, reader.u32("magic of a master state")
    if magic != _MASTER_STATE_MAGIC:
        raise CorruptStateError(
            f"{reader.what}: magic {magic:08x} of a master state at offset {at}, expected {_MASTER_STATE_MAGIC:08x}",
            kind="corrupt-metadata",
        )
    reader.take(reader.count(name="length"), "master state")


def _read_operator(reader: Reader, layout: _Layout, number: int) -> OperatorState:
    with reader.part(f"operator {number}"):
        return _read_operator_state(reader, layout)


def _read_operator_state(reader: Reader, layout: _Layout) -> OperatorState:
    name, uid = layout.names(reader)
    operator_id = bytes(reader.take(_OPERATOR_ID_BYTES, "operator id"))
    at, parallelism, max_parallelism = reader.offset, reader.i32("parallelism"), reader.i32("max parallelism")
    if not (0 <= parallelism <= MAX_MAX_PARALLELISM and max_parallelism <= MAX_MAX_PARALLELISM):
        raise CorruptStateError(
            f"{reader.what}: parallelism {parallelism}, max parallelism {max_parallelism} at offset {at}, "
            f"expected at most {MAX_MAX_PARALLELISM}",
            kind="corrupt-metadata",
        )
    with reader.part("coordinator"):
        coordinator = layout.coordinator(reader)
    at, count = reader.offset, reader.i32("subtasks")
    finished = count < 0
    if count > parallelism:
        raise CorruptStateError(
            f"{reader.what}: {count} subtasks at offset {at}, expected at most {parallelism}", kind="corrupt-metadata"
        )
    subtasks = tuple(_read_subtask(reader, layout, parallelism) for _ in range(max(count, 0)))
    if len({index for index, _ in subtasks}) != len(subtasks):
        raise CorruptStateError(f"{reader.what}: a subtask is listed twice after offset {at}", kind="corrupt-metadata")
    return OperatorState(
        operator_id, parallelism, max_parallelism, subtasks, name, uid, coordinator=coordinator, finished=finished
    )


def _read_subtask(reader: Reader, layout: _Layout, parallelism: int) -> tuple[int, OperatorSubtaskState]:
    at, stored = reader.offset, reader.i32("subtask")
    index = stored if stored >= 0 else -stored - 1
    if index >= parallelism:
        raise CorruptStateError(
            f"{reader.what}: subtask {index} at offset {at}, expected 0 to {parallelism - 1}", kind="corrupt-metadata"
        )
    if stored < 0:
        return index, OperatorSubtaskState(finished=True)
    with reader.part(f"subtask {index}"):
        layout.subtask_prefix(reader)
        state = _read_subtask_state(reader, layout)
        layout.subtask_suffix(reader)
        return index, state


def _read_subtask_state(reader: Reader, layout: _Layout) -> OperatorSubtaskState:
    with reader.part("operator state"):
        operator = _read_optional_operator_handle(reader)
    with reader.part("raw operator state"):
        raw_operator = _read_optional_operator_handle(reader)
    with reader.part("keyed state"):
        keyed = read_keyed_handle(reader)
    with reader.part("raw keyed state"):
        raw_keyed = read_keyed_handle(reader)
    with reader.part("in-flight buffers"):
        channels = layout.channels(reader)
    return OperatorSubtaskState(
        keyed,
        operator,
        raw_keyed,
        raw_operator,
        channel_handles=len(channels),
        channel_bytes=sum(size for size, _ in channels),
        channel_streams=tuple(dict.fromkeys(stream for _, stream in channels)),
    )


def _read_optional_operator_handle(reader: Reader) -> OperatorStreamStateHandle | None:
    at, flag = reader.offset, reader.i32("handles")
    if flag not in (0, 1):
        raise CorruptStateError(
            f"{reader.what}: {flag} operator state handles at offset {at}, expected 0 or 1", kind="corrupt-metadata"
        )
    return read_operator_handle(reader) if flag else None


def _write_operator(writer: Writer, operator: OperatorState) -> None:
    writer.put(operator.operator_id)
    writer.i32(operator.parallelism)
    writer.i32(operator.max_parallelism)
    write_stream_handle(writer, operator.coordinator)
    writer.i32(_FINISHED if operator.finished else len(operator.subtasks))
    for index, state in operator.subtasks:
        if state.finished:
            writer.i32(-index - 1)
            continue
        writer.i32(index)
        _write_subtask(writer, state)


def _write_subtask(writer: Writer, state: OperatorSubtaskState) -> None:
    if state.channel_handles:
        raise InvalidRequestError(
            f"{state.channel_handles} handles of in-flight buffers cannot be written",
            kind="channel-state",
            hint="take a savepoint or an aligned checkpoint of that job",
        )
    for handle in (state.operator, state.raw_operator):
        writer.i32(0 if handle is None else 1)
        if handle is not None:
            write_operator_handle(writer, handle)
    write_keyed_handle(writer, state.keyed)
    write_keyed_handle(writer, state.raw_keyed)
    writer.i32(0)
    writer.i32(0)


def _no_names(_reader: Reader) -> tuple[str, str]:
    return "", ""


def _read_names(reader: Reader) -> tuple[str, str]:
    name = reader.utf("name")
    return name, reader.utf("uid")


def _skip_chain_length(reader: Reader) -> StreamStateHandle | None:
    reader.i32("chain length")
    return None


def _read_nothing(_reader: Reader) -> None:
    """Read nothing: this version does not have the field."""


def _skip_legacy_state(reader: Reader) -> None:
    reader.i64("duration")
    at, count = reader.offset, reader.i32("legacy states")
    if count > 0:
        raise UnsupportedError(
            f"{reader.what}: {count} legacy states at offset {at}, of functions with Checkpointed (up to Flink 1.3)",
            kind="legacy-state",
        )


def _no_channels(_reader: Reader) -> list[ChannelHandle]:
    return []


def _read_channels(reader: Reader) -> list[ChannelHandle]:
    return _read_each_channel(reader, read_channel_handle)


def _read_tagged_channels(reader: Reader) -> list[ChannelHandle]:
    return _read_each_channel(reader, read_tagged_channel_handle)


def _read_each_channel(reader: Reader, read: Callable[[Reader], ChannelHandle]) -> list[ChannelHandle]:
    """Return the handles of the input channels, then those of the output channels."""
    handles: list[ChannelHandle] = []
    for direction in ("input", "output"):
        handles += [read(reader) for _ in range(reader.count(name=f"{direction} channels"))]
    return handles


def _skip_reference(reader: Reader) -> None:
    """Skip the id of the earlier checkpoint that the state of this subtask comes from.

    Flink writes it if the subtask took no part in this checkpoint. All handles of the state are listed here as well, so
    the id is not needed.
    """
    at, marker = reader.offset, reader.u8()
    if marker not in (0, 1):
        raise CorruptStateError(
            f"{reader.what}: marker {marker} at offset {at}, expected 0 or 1", kind="corrupt-metadata"
        )
    if marker:
        reader.i64()


def _no_properties(_reader: Reader) -> bytes:
    return b""


def _read_properties(reader: Reader) -> bytes:
    """Return the CheckpointProperties: one Java-serialized object that reaches to the end of the file.

    It holds nothing about state. It is parsed all the same, because that shows whether the file was cut.
    """
    at = reader.offset
    start = bytes(reader.take(4, "start of a Java object"))
    if start != b"\xac\xed\x00\x05":
        raise CorruptStateError(
            f"{reader.what}: expected a Java-serialized object at offset {at}", kind="corrupt-metadata"
        )
    rest = bytes(reader.take(reader.remaining, "checkpoint properties"))
    with suppress(UnsupportedError):
        read_object(Reader(start + rest, f"{reader.what}, checkpoint properties at offset {at}"))
    return start + rest


_V2 = _Layout(_no_names, _skip_chain_length, _skip_legacy_state, _no_channels, _read_nothing, _no_properties)
_V3 = _Layout(_no_names, read_stream_handle, _read_nothing, _read_channels, _read_nothing, _no_properties)
_V4 = replace(_V3, trailer=_read_properties)
_V5 = replace(_V4, names=_read_names)
_V6 = replace(_V5, channels=_read_tagged_channels)
_V7 = replace(_V6, subtask_suffix=_skip_reference)
_LAYOUTS = {2: _V2, 3: _V3, 4: _V4, 5: _V5, 6: _V6, 7: _V7}
