"""Checkpoint storage in buckets: S3 and storages with its protocol, Google Cloud Storage, Azure Blob Storage.

The storage must support conditional PUTs, which store an object only if its key is free (on S3: ``If-None-Match``). The
layout is that of a file system, with keys below ``<scheme>://<bucket>/<prefix>``: ``<pipeline>/chk-<id>/``,
``savepoints/savepoint-<pipeline>-<id>/``, and ``<pipeline>/shared/`` for files that checkpoints share. Buckets have no
directories. Therefore an initialized location holds the empty object :data:`LOCATION_NAME`. Source:
FsCheckpointStorageAccess; docs/spec/protocol.md#a-checkpoint-step-by-step, #publishing; docs/spec/requirements.md R84
to R101.
"""

import itertools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from statelib.errors import InvalidRequestError, NotFoundError
from statelib.model.handles import (
    ByteStreamStateHandle,
    FileStateHandle,
    RelativeFileStateHandle,
    SegmentFileStateHandle,
    StreamStateHandle,
)
from statelib.model.ids import SAVEPOINTS_DIRECTORY, AttemptId, CheckpointId, PipelineName, pipeline_name
from statelib.storage.filesystem.publish import location_taken
from statelib.storage.filesystem.storage import DEFAULT_INLINE_THRESHOLD_BYTES, check_inline_threshold
from statelib.storage.names import (
    LOCATION_NAME,
    METADATA_NAME,
    SHARED_DIRECTORY,
    TASK_OWNED_DIRECTORY,
    checkpoint_directory,
    file_prefix,
    is_numbered,
    savepoint_directory,
)
from statelib.storage.objects.bucket import Bucket
from statelib.storage.objects.copies import copy_object, in_bucket_of
from statelib.storage.objects.publish import check_put_if_absent, put_object_if_absent, read_published_object
from statelib.storage.objects.spool import SpooledObject
from statelib.storage.objects.task_owned import ObjectTaskOwned
from statelib.storage.objects.uris import SCHEMES, ObjectLocation, object_location
from statelib.storage.ports.views import (
    CheckpointedStateScope,
    CheckpointStorageWorkerView,
    FileMergingSettings,
    PhysicalFile,
    StorageReference,
    WrittenStream,
)
from statelib.storage.retries import Retries
from statelib.storage.streams import CheckpointStream
from statelib.storage.uris import shown
from statelib.storage.wrappers.merging import FileMergingStorage, whole_files


@dataclass(frozen=True)
class ObjectCheckpointStorage:
    """The coordinator view and the worker view of the checkpoints of one pipeline below ``root``, such as
    ``s3://bucket/prefix``.

    Streams of at most ``inline_threshold_bytes`` become inline handles. ``scratch`` is the local directory that holds
    objects until they are uploaded, None for the system's own temporary directory. Constructing it does no I/O; it is
    a value and can be pickled."""

    root: str
    pipeline: PipelineName
    retries: Retries = field(compare=False)
    inline_threshold_bytes: int = DEFAULT_INLINE_THRESHOLD_BYTES
    scratch: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "root", object_location(self.root).uri)
        pipeline_name(self.pipeline)
        check_inline_threshold(self.inline_threshold_bytes)

    def initialize_location(self, checkpoint_id: CheckpointId) -> StorageReference:
        """Initialize ``chk-<id>`` and return its location.

        Raises ConflictError (``location-taken``) if a checkpoint was published there, UnsupportedError
        (``no-put-if-absent``) if the storage does not support conditional PUTs."""
        return self._claim(self.root, self.pipeline, checkpoint_directory(checkpoint_id))

    def initialize_savepoint_location(self, checkpoint_id: CheckpointId, target: str | None) -> StorageReference:
        """Initialize ``savepoint-<pipeline>-<id>`` under ``target`` and return its location.

        Raises like :meth:`initialize_location`."""
        name = savepoint_directory(self.pipeline, checkpoint_id)
        if target is None:
            return self._claim(self.root, SAVEPOINTS_DIRECTORY, name)
        return self._claim(target, name)

    def publish_metadata(self, reference: StorageReference, data: bytes) -> bytes:
        location = object_location(reference.directory).below(METADATA_NAME)
        return put_object_if_absent(self._objects(location), location, data)

    def read_metadata(self, reference: StorageReference) -> bytes:
        return read_published_object(reference.directory, self.retries)

    def resolve_checkpoint_storage_location(
        self, checkpoint_id: CheckpointId, reference: StorageReference, attempt: AttemptId, subtask: int
    ) -> "ObjectStreamFactory":
        """Return the stream factory of one subtask's attempt. Raises NotFoundError (``no-location``) if the location
        was not initialized in the storage that this worker uses."""
        directory = object_location(reference.directory or self.default_location(checkpoint_id).directory)
        prefix = file_prefix(attempt, subtask)
        try:
            self._objects(directory).size(directory.below(LOCATION_NAME).key)
        except NotFoundError:
            raise NotFoundError(
                f"checkpoint {checkpoint_id}: nothing was begun at {directory.uri}",
                kind="no-location",
                hint=f"every Spark executor must see the same storage: compare {SCHEMES[directory.scheme].settings}",
            ) from None
        own = directory.uri == self.default_location(checkpoint_id).directory
        return ObjectStreamFactory(self, directory, prefix, is_of_pipeline=own)

    def to_file_merging_storage(self, settings: FileMergingSettings) -> CheckpointStorageWorkerView:
        return FileMergingStorage(self, settings)

    def default_location(self, checkpoint_id: CheckpointId) -> StorageReference:
        name = checkpoint_directory(checkpoint_id)
        return StorageReference(object_location(self.root).below(self.pipeline, name).uri)

    def create_task_owned_state_stream(self, attempt: AttemptId, subtask: int) -> CheckpointStream:
        return self.create_task_owned_checkpoint_state_toolset(attempt, subtask).create_stream()

    def create_task_owned_checkpoint_state_toolset(self, attempt: AttemptId, subtask: int) -> ObjectTaskOwned:
        directory = object_location(self.root).below(self.pipeline, TASK_OWNED_DIRECTORY)
        objects = self._objects(directory)
        return ObjectTaskOwned(objects, directory, attempt, subtask, self.inline_threshold_bytes, scratch=self.scratch)

    def _claim(self, root: str, *parts: str) -> StorageReference:
        """Initialize a location and return it. The call may be repeated after a crash, until ``_metadata`` is
        published there. Raise ConflictError (``location-taken``) then."""
        base = object_location(root)
        directory, objects = base.below(*parts), self._objects(base)
        check_put_if_absent(objects, base)
        try:
            objects.size(directory.below(METADATA_NAME).key)
        except NotFoundError:
            objects.put(directory.below(LOCATION_NAME).key, 0, lambda: iter(()))
            return StorageReference(directory.uri)
        raise location_taken(directory.uri)

    def _objects(self, location: ObjectLocation) -> Bucket:
        return Bucket(location.bucket_uri, self.retries)


class ObjectStreamFactory:
    """A :class:`~statelib.storage.ports.views.CheckpointStreamFactory` of one subtask's attempt. Its keys contain the
    attempt id, so no other attempt writes them.

    ``is_of_pipeline``: whether the streams belong to one of the pipeline's own checkpoints, not to a savepoint."""

    def __init__(
        self, storage: ObjectCheckpointStorage, directory: ObjectLocation, prefix: str, *, is_of_pipeline: bool
    ) -> None:
        self.is_of_pipeline = is_of_pipeline
        self._objects = Bucket(directory.bucket_uri, storage.retries)
        self._directory = directory
        self._shared = object_location(storage.root).below(storage.pipeline, SHARED_DIRECTORY)
        self._prefix = prefix
        self.inline_threshold_bytes = storage.inline_threshold_bytes
        self._scratch = storage.scratch
        self._numbers = itertools.count()

    def create_stream(self, scope: CheckpointedStateScope) -> CheckpointStream:
        """Return a new stream. Its object lies beside ``_metadata`` and has a relative handle if its scope
        is EXCLUSIVE. It lies in the pipeline's ``shared/`` and has an absolute handle if its scope is SHARED."""
        name = self.new_name()
        return CheckpointStream(name, self.inline_threshold_bytes, lambda _size: self.new_file(name, scope))

    def flush(self) -> Mapping[str, PhysicalFile]:
        """Return an empty result, because the object of a stream is stored once its handle was taken."""
        return {}

    def reusable(self, earlier: Collection[WrittenStream]) -> frozenset[StreamStateHandle]:
        return whole_files(earlier)

    def duplicate(self, original: StreamStateHandle, scope: CheckpointedStateScope) -> StreamStateHandle | None:
        place, name = self._place(scope), self.new_name()
        file = in_bucket_of(original, place)
        if file is None:
            return None
        objects, target = self._objects_at(place), place.below(name)
        try:
            copy_object(objects, file, target)
        except BaseException:
            objects.delete(target.key)
            raise
        return self._handle(place, name, file.size_bytes)

    def new_name(self) -> str:
        """Return a new object name of this attempt: ``<attempt>-<subtask>-<number>``."""
        return f"{self._prefix}{next(self._numbers)}"

    def discard(self, handle: StreamStateHandle) -> None:
        """Delete an object of this attempt. It succeeds if the object is gone already. Inline state has no object.

        Raises InvalidRequestError (``foreign-file``) for an object that this factory did not create."""
        if isinstance(handle, ByteStreamStateHandle):
            return
        if isinstance(handle, RelativeFileStateHandle):
            directory, name = "", handle.path
        else:
            directory, _, name = handle.path.rpartition("/")
        foreign = isinstance(handle, SegmentFileStateHandle) or not is_numbered(name, self._prefix)
        if foreign or directory not in ("", self._directory.uri, self._shared.uri):
            raise InvalidRequestError(
                f"discarding {shown(handle.path)}: expected a file named {self._prefix}<number>", kind="foreign-file"
            )
        place = self._shared if directory == self._shared.uri else self._directory
        self._objects_at(place).delete(place.below(name).key)

    def new_file(self, name: str, scope: CheckpointedStateScope, *, absolute: bool = False) -> SpooledObject:
        """Return a new object that is not uploaded yet. With ``absolute``, its handle is absolute in either scope."""
        place = self._place(scope)
        location = place.below(name)

        def handle(size_bytes: int) -> StreamStateHandle:
            return self._handle(place, name, size_bytes, absolute=absolute)

        return SpooledObject(self._objects_at(place), location, self._scratch, handle)

    def _handle(
        self, place: ObjectLocation, name: str, size_bytes: int, *, absolute: bool = False
    ) -> StreamStateHandle:
        if absolute or place == self._shared:
            return FileStateHandle(place.below(name).uri, size_bytes)
        return RelativeFileStateHandle(name, size_bytes)

    def uri_of(self, name: str, scope: CheckpointedStateScope) -> str:
        """Return the URI of the object that :meth:`new_file` creates for this name and scope."""
        return self._place(scope).below(name).uri

    def _place(self, scope: CheckpointedStateScope) -> ObjectLocation:
        return self._directory if scope == CheckpointedStateScope.EXCLUSIVE else self._shared

    def _objects_at(self, place: ObjectLocation) -> Bucket:
        """Return the bucket of a place. A savepoint may lie in another bucket than the pipeline's ``shared/``."""
        if place.bucket_uri == self._directory.bucket_uri:
            return self._objects
        return Bucket(place.bucket_uri, self._objects.retries)
