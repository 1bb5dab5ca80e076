"""Copy all files of a checkpoint for the first checkpoint of another pipeline."""

from contextlib import closing

from statelib.definition.pipeline import Pipeline
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import FileRecord
from statelib.model.handles import ByteStreamStateHandle, FileStateHandle, RelativeFileStateHandle
from statelib.model.ids import AttemptId
from statelib.model.record import CheckpointRecord
from statelib.savepoints.opened import Checkpoint
from statelib.snapshots.strategies.stored import copied_stream
from statelib.snapshots.uploads.previous import CopyableFile
from statelib.snapshots.uploads.streams import Uploads
from statelib.snapshots.uploads.threads import UploadThreads
from statelib.storage.closeables import CloseableRegistry
from statelib.storage.names import SHARED_DIRECTORY, TASK_OWNED_DIRECTORY
from statelib.storage.ports.kind import StorageSettings
from statelib.storage.ports.views import CheckpointedStateScope, StorageReference, WrittenStream
from statelib.storage.registry import PLACES
from statelib.storage.uris import is_absolute


def copied_files(
    deployment: Deployment, pipeline: Pipeline, source: Checkpoint, record: CheckpointRecord, attempt: AttemptId
) -> dict[str, str]:
    """Copy each file of ``source`` into the directories of the pending checkpoint ``record``. Files from a directory of
    shared or task-owned files are copied into a shared directory, so that later checkpoints may refer to them. Return
    the URIs of the copies by those of the originals.

    The storage copies by itself if it can; otherwise the bytes are read, verified and written. An attempt that fails
    deletes its files. The orphan sweep deletes those of an attempt that was killed, by the attempt in their names."""
    assert source.manifest is not None
    # No file is stored inline, however small: handles may refer to segments of it.
    settings = StorageSettings(pipeline.name, 0, deployment.scratch())
    streams = PLACES.storage(deployment.storage_root, settings).resolve_checkpoint_storage_location(
        record.checkpoint_id, StorageReference(record.directory), attempt, 0
    )
    reader = source.reader()
    with closing(UploadThreads()) as threads, Uploads(streams, CloseableRegistry()) as uploads:

        def copy(uri: str, file: FileRecord) -> WrittenStream:
            lasting = uri.split("/")[-2] in (SHARED_DIRECTORY, TASK_OWNED_DIRECTORY)
            scope = CheckpointedStateScope.SHARED if lasting else CheckpointedStateScope.EXCLUSIVE
            kind = FileStateHandle if is_absolute(file.path) else RelativeFileStateHandle
            handle = kind(file.path, file.size_bytes)
            reader.locate(handle)  # raises for a path that no restore would read
            stored = CopyableFile(WrittenStream(handle, file.size_bytes, file.crc32c, file.xxh3), uri)
            return uploads.duplicate(stored, scope, lambda: copied_stream(uploads, reader, handle, scope))

        files = [(PLACES.file_uri(source.directory, file.path), file) for file in source.manifest.files]
        copies = threads.run(uploads, copy, files)
        uploads.complete()
    return {uri: PLACES.file_uri(record.directory, _path(written)) for uri, written in copies}


def _path(written: WrittenStream) -> str:
    assert not isinstance(written.handle, ByteStreamStateHandle), "nothing is kept inline"
    return written.handle.path
