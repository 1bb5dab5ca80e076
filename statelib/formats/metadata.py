"""Flink's ``_metadata``: reads versions 2 to 6, writes version 3.

Version 3 is written because every Flink since 1.17 reads it and it ends without a
Java-serialized trailer, so statelib's own manifest can follow (``formats.manifest``).

Source: flink-formats.md sections 4.1 and 4.2 (Checkpoints, MetadataSerializers).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from statelib.errors import CorruptStateError, InvalidRequestError, UnsupportedError
from statelib.formats.handle_codec import (
    read_keyed_handle,
    read_operator_handle,
    read_stream_handle,
    skip_channel_handle,
    skip_tagged_channel_handle,
    write_keyed_handle,
    write_operator_handle,
    write_stream_handle,
)
from statelib.model.checkpoint import CheckpointMetadata, OperatorState, OperatorSubtaskState
from statelib.model.handles import OperatorStreamStateHandle, StreamStateHandle
from statelib.model.key_groups import MAX_MAX_PARALLELISM
from statelib.wire.reader import Reader
from statelib.wire.writer import Writer

MAGIC = 0x4960672D
WRITTEN_VERSION = 3
_MASTER_STATE_MAGIC = 0xC96B1696
_OPERATOR_ID_BYTES = 16
_FINISHED = -1


@dataclass(frozen=True)
class _Layout:
    """What differs between the versions, each difference a step of its own."""

    names: Callable[[Reader], tuple[str, str]]
    coordinator: Callable[[Reader], StreamStateHandle | None]
    subtask_prefix: Callable[[Reader], None]
    channels: Callable[[Reader], int]
    trailer: Callable[[Reader], None]


def encode_metadata(metadata: CheckpointMetadata) -> bytes:
    """Version 3, whatever ``metadata.version`` says; operator names and uids have no place in it.

    Raises InvalidRequestError (``channel-state``) for a checkpoint with in-flight buffers: writing
    it without them would lose records.
    """
    writer = Writer()
    writer.u32(MAGIC)
    writer.i32(WRITTEN_VERSION)
    writer.i64(metadata.checkpoint_id)
    writer.i32(0)
    writer.i32(len(metadata.operators))
    for operator in metadata.operators:
        _write_operator(writer, operator)
    return writer.getvalue()


def decode_metadata(data: bytes | memoryview, what: str = "_metadata") -> tuple[CheckpointMetadata, int]:
    """The content, and the offset where Flink's part ends (versions 2 and 3; later ones fill the file).

    ``what`` names the file in errors. Raises CorruptStateError, and UnsupportedError (kinds
    ``metadata-version``, ``unsupported-handle``) for what is well-formed but cannot be read.
    """
    reader = Reader(data, what)
    magic = reader.u32()
    if magic != MAGIC:
        raise CorruptStateError(f"{what}: magic {magic:08x}, expected {MAGIC:08x}", kind="corrupt-metadata")
    version = reader.i32()
    layout = _LAYOUTS.get(version)
    if layout is None:
        known = ", ".join(map(str, _LAYOUTS))
        raise UnsupportedError(f"{what}: version {version}, can be read: {known}", kind="metadata-version")
    checkpoint_id = reader.i64()
    if checkpoint_id < 0:
        raise CorruptStateError(f"{what}: checkpoint id {checkpoint_id} is negative", kind="corrupt-metadata")
    for _ in range(reader.count(8)):
        _skip_master_state(reader)
    operators = tuple(_read_operator(reader, layout) for _ in range(reader.count(_OPERATOR_ID_BYTES + 12)))
    layout.trailer(reader)
    return CheckpointMetadata(checkpoint_id, operators, version), reader.offset


def _skip_master_state(reader: Reader) -> None:
    at, magic = reader.offset, reader.u32()
    if magic != _MASTER_STATE_MAGIC:
        raise CorruptStateError(
            f"{reader.what}: magic {magic:08x} of a master state at offset {at}, expected {_MASTER_STATE_MAGIC:08x}",
            kind="corrupt-metadata",
        )
    reader.take(reader.count())


def _read_operator(reader: Reader, layout: _Layout) -> OperatorState:
    name, uid = layout.names(reader)
    operator_id = bytes(reader.take(_OPERATOR_ID_BYTES))
    at, parallelism, max_parallelism = reader.offset, reader.i32(), reader.i32()
    if not (0 <= parallelism <= MAX_MAX_PARALLELISM and max_parallelism <= MAX_MAX_PARALLELISM):
        raise CorruptStateError(
            f"{reader.what}: parallelism {parallelism}, max parallelism {max_parallelism} at offset {at}, "
            f"expected at most {MAX_MAX_PARALLELISM}",
            kind="corrupt-metadata",
        )
    coordinator = layout.coordinator(reader)
    at, count = reader.offset, reader.i32()
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
    at, stored = reader.offset, reader.i32()
    index = stored if stored >= 0 else -stored - 1
    if index >= parallelism:
        raise CorruptStateError(
            f"{reader.what}: subtask {index} at offset {at}, expected 0 to {parallelism - 1}", kind="corrupt-metadata"
        )
    if stored < 0:
        return index, OperatorSubtaskState(finished=True)
    layout.subtask_prefix(reader)
    state = OperatorSubtaskState(
        operator=_read_optional_operator_handle(reader),
        raw_operator=_read_optional_operator_handle(reader),
        keyed=read_keyed_handle(reader),
        raw_keyed=read_keyed_handle(reader),
        channel_handles=layout.channels(reader),
    )
    return index, state


def _read_optional_operator_handle(reader: Reader) -> OperatorStreamStateHandle | None:
    at, flag = reader.offset, reader.i32()
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


def _names(reader: Reader) -> tuple[str, str]:
    name = reader.utf()
    return name, reader.utf()


def _skip_chain_length(reader: Reader) -> StreamStateHandle | None:
    reader.i32()
    return None


def _nothing(_reader: Reader) -> None:
    """A step that this version does not have."""


def _skip_legacy_state(reader: Reader) -> None:
    reader.i64()
    at, count = reader.offset, reader.i32()
    if count > 0:
        raise UnsupportedError(
            f"{reader.what}: {count} legacy states at offset {at} (before Flink 1.3)", kind="legacy-state"
        )


def _no_channels(_reader: Reader) -> int:
    return 0


def _skip_channels(reader: Reader) -> int:
    return _count_channels(reader, skip_channel_handle)


def _skip_tagged_channels(reader: Reader) -> int:
    return _count_channels(reader, skip_tagged_channel_handle)


def _count_channels(reader: Reader, skip: Callable[[Reader], None]) -> int:
    total = 0
    for _direction in ("input", "output"):
        count = reader.count()
        for _ in range(count):
            skip(reader)
        total += count
    return total


def _skip_properties(reader: Reader) -> None:
    """CheckpointProperties, one Java-serialized object up to the end: says nothing about state."""
    at = reader.offset
    if bytes(reader.take(4)) != b"\xac\xed\x00\x05":
        raise CorruptStateError(
            f"{reader.what}: expected a Java-serialized object at offset {at}", kind="corrupt-metadata"
        )
    reader.take(reader.remaining)


_V2 = _Layout(_no_names, _skip_chain_length, _skip_legacy_state, _no_channels, _nothing)
_V3 = _Layout(_no_names, read_stream_handle, _nothing, _skip_channels, _nothing)
_V4 = replace(_V3, trailer=_skip_properties)
_V5 = replace(_V4, names=_names)
_V6 = replace(_V5, channels=_skip_tagged_channels)
_LAYOUTS = {2: _V2, 3: _V3, 4: _V4, 5: _V5, 6: _V6}
