"""Checkpoint storage on S3, and on what speaks its protocol and honours ``If-None-Match``.

Layout: as on a file system, with keys below ``s3://bucket/prefix``: ``<pipeline>/chk-<id>/``,
``savepoints/savepoint-<pipeline>-<id>/``, and ``<pipeline>/shared/`` for files that checkpoints share.
S3 has no directories: a location that was begun holds the empty object :data:`LOCATION_NAME`.
Source: FsCheckpointStorageAccess; protocol sections 2.3 and 2.5; R84 to R101.
"""

import itertools
from dataclasses import dataclass, field

from statelib.errors import ConflictError, InvalidRequestError, NotFoundError
from statelib.model.handles import (
    ByteStreamStateHandle,
    FileStateHandle,
    RelativeFileStateHandle,
    StreamStateHandle,
)
from statelib.model.ids import AttemptId, CheckpointId, PipelineName, pipeline_name
from statelib.storage.filesystem import DEFAULT_INLINE_THRESHOLD_BYTES, MAX_INLINE_THRESHOLD_BYTES
from statelib.storage.names import checked_number, file_prefix, is_numbered
from statelib.storage.publish import METADATA_NAME
from statelib.storage.retries import Retries
from statelib.storage.s3_objects import S3Objects
from statelib.storage.s3_publish import check_put_if_absent, s3_put_if_absent, s3_read_published
from statelib.storage.s3_spool import SpooledObject
from statelib.storage.s3_uris import S3Location, s3_location
from statelib.storage.streams import CheckpointStream
from statelib.storage.uris import shown
from statelib.storage.views import CheckpointedStateScope, StorageReference

LOCATION_NAME = ".location"
SHARED_NAME = "shared"


@dataclass(frozen=True)
class S3CheckpointStorage:
    """Both views of the checkpoints of one pipeline below ``root``, an ``s3://bucket/prefix``.

    Constructing it does no I/O; it is a value and may be pickled. ``scratch``: local directory for what is on its
    way up, None = the system's own."""

    root: str
    pipeline: PipelineName
    retries: Retries = field(compare=False)
    inline_threshold_bytes: int = DEFAULT_INLINE_THRESHOLD_BYTES
    scratch: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "root", s3_location(self.root).uri)
        pipeline_name(self.pipeline)
        if not 0 <= self.inline_threshold_bytes <= MAX_INLINE_THRESHOLD_BYTES:
            raise InvalidRequestError(
                f"inline threshold {self.inline_threshold_bytes}: expected 0 to {MAX_INLINE_THRESHOLD_BYTES} bytes",
                kind="bad-inline-threshold",
            )

    def initialize_location(self, checkpoint_id: CheckpointId) -> StorageReference:
        """Begin ``chk-<id>``; ConflictError (``location-taken``) if a checkpoint was published there,
        UnsupportedError (``no-put-if-absent``) on a storage that would overwrite it."""
        return self._claim(self.root, self.pipeline, f"chk-{checked_number(checkpoint_id, 'checkpoint id')}")

    def initialize_savepoint_location(self, checkpoint_id: CheckpointId, target: str | None) -> StorageReference:
        """Begin ``savepoint-<pipeline>-<id>`` under ``target``; raises as above."""
        name = f"savepoint-{self.pipeline}-{checked_number(checkpoint_id, 'checkpoint id')}"
        if target is None:
            return self._claim(self.root, "savepoints", name)
        return self._claim(target, name)

    def publish_metadata(self, reference: StorageReference, data: bytes) -> bytes:
        location = s3_location(reference.directory).below(METADATA_NAME)
        return s3_put_if_absent(self._objects(location), location, data)

    def read_metadata(self, reference: StorageReference) -> bytes:
        return s3_read_published(reference.directory, self.retries)

    def resolve_checkpoint_storage_location(
        self, checkpoint_id: CheckpointId, reference: StorageReference, attempt: AttemptId, subtask: int
    ) -> "S3StreamFactory":
        """Raises NotFoundError (``no-location``) if nobody began the location, or not in this worker's storage."""
        directory = s3_location(reference.directory)
        prefix = file_prefix(attempt, subtask)
        try:
            self._objects(directory).size(directory.below(LOCATION_NAME).key)
        except NotFoundError:
            raise NotFoundError(
                f"checkpoint {checkpoint_id}: nothing was begun at {directory.uri}",
                kind="no-location",
                hint="every Spark executor must see the same storage: compare AWS_ENDPOINT_URL",
            ) from None
        return S3StreamFactory(self, directory, prefix)

    def _claim(self, root: str, *parts: str) -> StorageReference:
        """A begin that crashed may be repeated, until something is published."""
        base = s3_location(root)
        directory, objects = base.below(*parts), self._objects(base)
        check_put_if_absent(objects, base)
        try:
            objects.size(directory.below(METADATA_NAME).key)
        except NotFoundError:
            objects.put(directory.below(LOCATION_NAME).key, 0, lambda: iter(()))
            return StorageReference(directory.uri)
        raise ConflictError(
            f"{directory.uri}: a checkpoint was published here already, ids are never reused",
            kind="location-taken",
            hint="a catalog restored from a backup must first learn of the checkpoints made since",
        )

    def _objects(self, location: S3Location) -> S3Objects:
        return S3Objects(location.bucket, self.retries)


class S3StreamFactory:
    """Streams of one subtask's try, whose id makes its keys its own."""

    def __init__(self, storage: S3CheckpointStorage, directory: S3Location, prefix: str) -> None:
        self._objects = S3Objects(directory.bucket, storage.retries)
        self._directory = directory
        self._shared = s3_location(storage.root).below(storage.pipeline, SHARED_NAME)
        self._prefix = prefix
        self._inline_threshold_bytes = storage.inline_threshold_bytes
        self._scratch = storage.scratch
        self._numbers = itertools.count()

    def create_stream(self, scope: CheckpointedStateScope) -> CheckpointStream:
        """EXCLUSIVE: an object beside ``_metadata``, relative to it. SHARED: one below the pipeline's ``shared/``,
        by absolute URI."""
        name = f"{self._prefix}{next(self._numbers)}"
        return CheckpointStream(name, self._inline_threshold_bytes, lambda _size: self._spill(scope, name))

    def discard(self, handle: StreamStateHandle) -> None:
        """Raises InvalidRequestError (``foreign-file``) for an object that this factory did not name."""
        if isinstance(handle, ByteStreamStateHandle):
            return
        if isinstance(handle, RelativeFileStateHandle):
            directory, name = "", handle.path
        else:
            directory, _, name = handle.path.rpartition("/")
        if directory not in ("", self._shared.uri) or not is_numbered(name, self._prefix):
            raise InvalidRequestError(
                f"discarding {shown(handle.path)}: expected a file named {self._prefix}<number>", kind="foreign-file"
            )
        self._objects_of(directory).delete((self._shared if directory else self._directory).below(name).key)

    def _spill(self, scope: CheckpointedStateScope, name: str) -> SpooledObject:
        if scope == CheckpointedStateScope.EXCLUSIVE:
            location = self._directory.below(name)
            return SpooledObject(
                self._objects, location, self._scratch, lambda size: RelativeFileStateHandle(name, size)
            )
        location = self._shared.below(name)
        objects = self._objects_of(self._shared.uri)
        return SpooledObject(objects, location, self._scratch, lambda size: FileStateHandle(location.uri, size))

    def _objects_of(self, directory: str) -> S3Objects:
        """A savepoint may lie in another bucket than the pipeline's own."""
        if not directory or self._shared.bucket == self._directory.bucket:
            return self._objects
        return S3Objects(self._shared.bucket, self._objects.retries)
