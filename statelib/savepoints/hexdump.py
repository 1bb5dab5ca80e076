"""Annotated dumps of the bytes of a snapshot's files. Damaged files are annotated up to the damage."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from statelib.errors import CorruptStateError, NotFoundError, StatelibError
from statelib.formats.manifest.trailer import read_checkpoint_file
from statelib.formats.text.annotated import (
    Annotated,
    annotate_change_log,
    annotate_keyed,
    annotate_meta,
    annotate_metadata,
    annotate_operator_state,
    raw_bytes,
)
from statelib.model.checkpoint import OperatorState, OperatorSubtaskState
from statelib.model.handles import (
    ByteStreamStateHandle,
    ChangelogStateBackendHandleImpl,
    FilePart,
    FileStateHandle,
    IncrementalRemoteKeyedStateHandle,
    KeyedStateHandle,
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
    OperatorStreamStateHandle,
    RelativeFileStateHandle,
    SegmentFileStateHandle,
    StreamStateHandle,
    log_streams,
    materialized_parts,
    stream_handles,
)
from statelib.restore.changelog.change_log import with_whole_files
from statelib.savepoints.opened import Checkpoint, relocation_at
from statelib.savepoints.own_directories import own_roots
from statelib.storage.ports.views import StateReader
from statelib.storage.registry import PLACES
from statelib.storage.uris import is_absolute

_Annotate = Callable[[memoryview, str, int], tuple[Annotated, ...]]


@dataclass(frozen=True)
class HexDump:
    """The annotated bytes of one file. ``parts``: the bytes that each parser read, in their order in the file.
    ``notes``: further remarks for the reader, such as why the bytes could not be annotated."""

    path: str
    size_bytes: int
    parts: tuple[Annotated, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Stream:
    """A stream of a snapshot, with the function that annotates its bytes."""

    handle: StreamStateHandle
    annotate: _Annotate


def dump_metadata(directory: str) -> HexDump:
    """Return the dump of the ``_metadata`` file in a directory, even if the file is damaged.

    Raises NotFoundError (``no-metadata``)."""
    kind = PLACES.kind(directory)
    path, data = f"{kind.shown(directory)}/_metadata", kind.read_published(directory)
    return HexDump(path, len(data), annotate_metadata(data, path))


def dump_file(
    directory: str,
    name: str,
    storage_root: str | None = None,
    relocate: Mapping[str, str] | None = None,
    limit: int = 0,
) -> HexDump:
    """Return the dump of a file that a snapshot refers to. ``name``: the path of the file in the snapshot's handles,
    the last part of that path, or the name of a stream inside ``_metadata``.

    The handles that refer to the file determine its format. If ``_metadata`` is too damaged to be read, the bytes are
    shown without annotations.

    ``storage_root`` and ``relocate``: as for :func:`open_checkpoint`; with ``relocate``, ``name`` is the path after
    relocation. ``limit``: the number of entries per key group whose fields are annotated.

    Raises NotFoundError (``no-file``, ``missing-file``), InvalidRequestError (``bad-relocation``)."""
    kind = PLACES.kind(directory)
    relocation, data = relocation_at(directory, relocate), kind.read_published(directory)
    try:
        metadata, manifest = read_checkpoint_file(data, f"{kind.shown(directory)}/_metadata")
    except StatelibError as error:
        reader = kind.reader(directory, None, (*own_roots(directory, storage_root, None), *relocation.roots) or None)
        return _without_annotations(directory, reader, name, f"nothing says what these bytes are: {error.message}")
    roots = (*own_roots(directory, storage_root, manifest), *relocation.roots) or None
    reader = kind.reader(directory, None, roots)
    metadata, manifest = relocation.metadata(metadata), relocation.manifest(manifest)
    opened = Checkpoint(directory, metadata, manifest, data, allowed_root=roots)
    named_streams = [stream for stream in _streams(opened, limit) if name in _names(stream.handle)]
    if not named_streams:
        raise NotFoundError(
            f"{kind.shown(directory)}: no handle refers to a file {name!r}",
            kind="no-file",
            hint="statelib inspect shows the files",
        )
    return _dump(directory, reader, named_streams)


def _dump(directory: str, reader: StateReader, streams: list[_Stream]) -> HexDump:
    """Return the dump of the streams that lie in one file; a stream that several handles share is dumped once."""
    parts: list[Annotated] = []
    notes: list[str] = []
    for stream in {stream.handle: stream for stream in streams}.values():
        data, note = _bytes_of(directory, reader, stream.handle)
        notes += [note] if note else []
        parts += stream.annotate(data, _name(stream.handle), _start(stream.handle))
    parts.sort(key=lambda part: part.base)
    size_bytes = sum(len(part.data) for part in parts)
    return HexDump(_name(streams[0].handle), size_bytes, tuple(parts), tuple(notes))


def _without_annotations(directory: str, reader: StateReader, name: str, note: str) -> HexDump:
    handle = FileStateHandle(name, 0) if is_absolute(name) else RelativeFileStateHandle(name, 0)
    data, _ = _bytes_of(directory, reader, handle)
    return HexDump(name, len(data), raw_bytes("bytes", data), (note,))


def _bytes_of(directory: str, reader: StateReader, handle: StreamStateHandle) -> tuple[memoryview, str]:
    """Return the bytes of a handle that exist, and the problem with their number; '' if there is none."""
    try:
        return reader.read(handle), ""
    except CorruptStateError as error:
        if error.kind != "size-mismatch" or isinstance(handle, ByteStreamStateHandle):
            raise
        existing_bytes = max(_file_size(directory, handle) - _start(handle), 0)
        if isinstance(handle, SegmentFileStateHandle):
            existing_bytes = min(existing_bytes, handle.size_bytes)
        return reader.read(replace(handle, size_bytes=existing_bytes)), error.message


def _file_size(directory: str, handle: FilePart) -> int:
    """Return the actual size in bytes of the file that the handle refers to, from the listing of its directory."""
    parent, _, name = PLACES.file_uri(directory, handle.path).rpartition("/")
    sizes = {file.path: file.size_bytes for file in PLACES.kind(parent).list_files(parent)}
    return sizes[name]


def _streams(opened: Checkpoint, limit: int) -> Iterator[_Stream]:
    for operator in opened.operators:
        if operator.coordinator is not None:
            yield _Stream(operator.coordinator, partial(_raw, "state of a source coordinator"))
        for _, state in operator.subtasks:
            yield from _non_keyed_streams(state)
            if state.keyed is not None:
                keyed = state.keyed if opened.manifest else with_whole_files(state.keyed)
                yield from _keyed_streams(operator, keyed, limit)


def _non_keyed_streams(state: OperatorSubtaskState) -> Iterator[_Stream]:
    """Yield the streams of a subtask's operator state and raw state."""
    if state.operator is not None:
        yield _Stream(state.operator.stream, partial(_operator_state, state.operator))
    for handle in (state.raw_operator, state.raw_keyed):
        if handle is not None:
            yield from (_Stream(stream, partial(_raw, "raw state")) for stream in stream_handles(handle))


def _keyed_streams(operator: OperatorState, handle: KeyedStateHandle, limit: int) -> Iterator[_Stream]:
    for part in materialized_parts(handle):
        if isinstance(part, IncrementalRemoteKeyedStateHandle):
            yield _Stream(part.meta, partial(_meta, operator.max_parallelism))
            for name, stream in (*part.shared, *part.private):
                yield _Stream(stream, partial(_raw, f"RocksDB's file {name}"))
        else:
            yield _Stream(part.stream, partial(_keyed, part, operator.max_parallelism, limit=limit))
    if isinstance(handle, ChangelogStateBackendHandleImpl):
        yield from (_Stream(stream, annotate_change_log) for stream in log_streams(handle))


def _keyed(
    handle: KeyGroupsStateHandle | KeyGroupsSavepointStateHandle,
    max_parallelism: int,
    data: memoryview,
    what: str,
    base: int,
    *,
    limit: int,
) -> tuple[Annotated, ...]:
    return annotate_keyed(data, handle, max_parallelism, what, base, limit=limit)


def _meta(max_parallelism: int, data: memoryview, what: str, base: int) -> tuple[Annotated, ...]:
    return annotate_meta(data, max_parallelism, what, base)


def _operator_state(handle: OperatorStreamStateHandle, data: memoryview, what: str, base: int) -> tuple[Annotated, ...]:
    return annotate_operator_state(data, handle, what, base)


def _raw(title: str, data: memoryview, _what: str, base: int) -> tuple[Annotated, ...]:
    return raw_bytes(title, data, base)


def _name(handle: StreamStateHandle) -> str:
    return handle.name if isinstance(handle, ByteStreamStateHandle) else handle.path


def _names(handle: StreamStateHandle) -> tuple[str, str]:
    """Return the two names by which a stream can be chosen: its path, and the last part of the path."""
    name = _name(handle)
    return name, name.rpartition("/")[2]


def _start(handle: StreamStateHandle) -> int:
    return handle.start if isinstance(handle, SegmentFileStateHandle) else 0
