"""The kinds of storage, and the URL scheme that selects each of them.

A place is an absolute path, a ``file:`` URI or the URI of an object storage. :class:`Places` is the registry of kinds.
:class:`PlacedCheckpointStorage` is a checkpoint storage that selects the kind per location.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from statelib.errors import UnsupportedError
from statelib.model.checkpoint import FileRecord
from statelib.model.ids import AttemptId, CheckpointId, PipelineName
from statelib.storage.filesystem.inventory import FileFinding, StoredFile, list_files, verify_files
from statelib.storage.filesystem.publish import METADATA_NAME, read_published
from statelib.storage.filesystem.reader import DirectoryReader
from statelib.storage.filesystem.storage import FileSystemCheckpointStorage
from statelib.storage.local.file_identity import same_file
from statelib.storage.objects.inventory import list_objects, verify_objects
from statelib.storage.objects.publish import read_published_object
from statelib.storage.objects.reader import ObjectReader
from statelib.storage.objects.storage import ObjectCheckpointStorage
from statelib.storage.objects.uris import is_object, object_location
from statelib.storage.retries import Retries
from statelib.storage.uris import AllowedRoot, local_path, relative_parts, shown, to_uri
from statelib.storage.views import (
    CheckpointOutputStream,
    CheckpointStateToolset,
    CheckpointStorageCoordinatorView,
    CheckpointStorageWorkerView,
    CheckpointStreamFactory,
    FileMergingSettings,
    StateReader,
    StorageReference,
)

Checksums = Mapping[str, tuple[int, int]]
"""A map from the path in a handle to (size in bytes, crc32c)."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


_HDFS = (
    "pyarrow, which speaks it, overwrites files and does not wait until they are on disk: no checkpoint is safe so",
    "keep checkpoints on a file system or an object storage; sources may stay on HDFS",
)
_REFUSED = {
    "hdfs": _HDFS,
    "viewfs": _HDFS,
    "webhdfs": _HDFS,
    "s3a": ("that is Hadoop's name of it", "write s3://bucket/prefix"),
    "s3n": ("that is Hadoop's name of it", "write s3://bucket/prefix"),
    "gcs": ("expected gs:", "write gs://bucket/prefix"),
    "abfs": ("without TLS", "write abfss://container@account.dfs.core.windows.net/prefix or az://container/prefix"),
    "wasbs": ("an old name of it", "write abfss://container@account.dfs.core.windows.net/prefix"),
}
"""Schemes that users try but that are not supported: (the reason, the hint)."""


class CheckpointStorage(CheckpointStorageWorkerView, CheckpointStorageCoordinatorView, Protocol):
    """The worker view and the coordinator view in one object."""


@dataclass(frozen=True)
class StorageSettings:
    """The settings of one pipeline's storage besides its root. ``scratch`` is a local directory that holds objects
    until they are uploaded; None stands for the system's own temporary directory."""

    pipeline: PipelineName
    inline_threshold_bytes: int
    scratch: str | None = None


class StorageKind(Protocol):
    """The operations that differ between kinds of storage. Each directory, root and place belongs to this kind."""

    def storage(self, root: str, settings: StorageSettings) -> CheckpointStorage:
        """Return the storage of one pipeline's checkpoints below ``root``."""
        ...

    def reader(self, directory: str, checksums: Checksums | None, allowed_root: AllowedRoot) -> StateReader:
        """Return a reader of the handles in the ``_metadata`` of ``directory``. ``checksums`` are the recorded sizes
        and checksums that it verifies. Absolute paths may also lead below ``allowed_root``."""
        ...

    def read_published(self, directory: str) -> bytes:
        """Return the bytes of ``_metadata`` in a directory.

        Raises NotFoundError (``no-metadata``), CorruptStateError (``metadata-too-large``)."""
        ...

    def verify_files(
        self, directory: str, files: Sequence[FileRecord], read_data: bool, allowed_root: AllowedRoot
    ) -> list[FileFinding]:
        """Return one finding per record, in the same order: whether the file exists and has its recorded size, and if
        ``read_data`` also its recorded checksums."""
        ...

    def list_files(self, directory: str) -> list[StoredFile]:
        """Return all files below a directory, sorted by path. Raises NotFoundError (``missing-file``) where there is
        no such directory."""
        ...

    def normalised(self, place: str) -> str:
        """Return the URI of a place in its normal form: equal places have equal text."""
        ...

    def shown(self, place: str) -> str:
        """Return a place as users write it. Messages about the place begin with this text."""
        ...


class FileSystemKind:
    """The kind of local, shared and mounted file systems."""

    def storage(self, root: str, settings: StorageSettings) -> CheckpointStorage:
        return FileSystemCheckpointStorage(root, settings.pipeline, settings.inline_threshold_bytes)

    def reader(self, directory: str, checksums: Checksums | None, allowed_root: AllowedRoot) -> StateReader:
        return DirectoryReader(directory, checksums, allowed_root=allowed_root)

    def read_published(self, directory: str) -> bytes:
        return read_published(directory)

    def verify_files(
        self, directory: str, files: Sequence[FileRecord], read_data: bool, allowed_root: AllowedRoot
    ) -> list[FileFinding]:
        return verify_files(directory, files, read_data, allowed_root)

    def list_files(self, directory: str) -> list[StoredFile]:
        return list_files(directory)

    def normalised(self, place: str) -> str:
        return to_uri(place)

    def shown(self, place: str) -> str:
        return local_path(place)


@dataclass(frozen=True)
class ObjectKind:
    """The kind of object storages: S3, Google Cloud Storage and Azure Blob Storage. Credentials and endpoint come from
    the environment.

    ``patience`` is called for each storage or reader that is opened, and returns the retries of its requests."""

    patience: Callable[[], Retries]

    @property
    def retries(self) -> Retries:
        return self.patience()

    def storage(self, root: str, settings: StorageSettings) -> CheckpointStorage:
        return ObjectCheckpointStorage(
            root, settings.pipeline, self.retries, settings.inline_threshold_bytes, settings.scratch
        )

    def reader(self, directory: str, checksums: Checksums | None, allowed_root: AllowedRoot) -> StateReader:
        return ObjectReader(directory, self.retries, checksums, allowed_root)

    def read_published(self, directory: str) -> bytes:
        return read_published_object(directory, self.retries)

    def verify_files(
        self, directory: str, files: Sequence[FileRecord], read_data: bool, allowed_root: AllowedRoot
    ) -> list[FileFinding]:
        return verify_objects(directory, files, read_data, self.retries, allowed_root)

    def list_files(self, directory: str) -> list[StoredFile]:
        return list_objects(directory, self.retries)

    def normalised(self, place: str) -> str:
        return object_location(place).uri

    def shown(self, place: str) -> str:
        return object_location(place).uri


class Places:
    """The registry of the kinds of storage, by URL scheme. The scheme '' stands for a plain path."""

    def __init__(self, kinds: Mapping[str, StorageKind]) -> None:
        self._kinds = dict(kinds)

    def kind(self, place: str) -> StorageKind:
        """Return the kind of storage of a place. Raises UnsupportedError (``unknown-scheme``)."""
        scheme_match = _SCHEME.match(place)
        scheme = scheme_match[1].lower() if scheme_match else ""
        if scheme not in self._kinds:
            supported = ", ".join(f"{name}:" for name in sorted(self._kinds) if name)
            reason, hint = _REFUSED.get(scheme, ("", "mount the storage as a file system"))
            raise UnsupportedError(
                f"storage of scheme {shown(scheme)}: {reason or f'expected an absolute path or one of {supported}'}",
                kind="unknown-scheme",
                hint=hint,
            )
        return self._kinds[scheme]

    def file_uri(self, directory: str, path: str) -> str:
        """Return the URI of a checkpoint's file. ``path`` is absolute, or relative to ``directory``."""
        if is_absolute(path):
            return self.kind(path).normalised(path)
        return "/".join((self.kind(directory).normalised(directory), *relative_parts(path)))

    def same_place(self, first: str, second: str) -> bool | None:
        """Return whether two paths or URIs lead to one directory of a published snapshot, even if they are written
        differently or one is a link. Return None where only the content can decide that, as with two mounts of one
        disk."""
        if self.kind(first).normalised(first) == self.kind(second).normalised(second):
            return True
        if is_object(first) and is_object(second):
            same_bucket = object_location(first).bucket_uri == object_location(second).bucket_uri
            return False if same_bucket else None
        if is_object(first) or is_object(second):
            return None
        return same_file(*(f"{local_path(place)}/{METADATA_NAME}" for place in (first, second)))

    def storage(self, root: str, settings: StorageSettings) -> CheckpointStorage:
        """Return the storage of one pipeline's checkpoints below ``root``. Its savepoints may go to places of any
        kind. Raises UnsupportedError (``unknown-scheme``)."""
        self.kind(root)
        return PlacedCheckpointStorage(self, root, settings)


class PlacedCheckpointStorage:
    """A :class:`CheckpointStorage` that uses, per location, the kind of storage of the location's URI."""

    def __init__(
        self, places: Places, root: str, settings: StorageSettings, merging: FileMergingSettings | None = None
    ) -> None:
        self._places = places
        self._root = root
        self._settings = settings
        self._merging = merging

    def initialize_location(self, checkpoint_id: CheckpointId) -> StorageReference:
        return self._at(self._root).initialize_location(checkpoint_id)

    def initialize_savepoint_location(self, checkpoint_id: CheckpointId, target: str | None) -> StorageReference:
        return self._at(target or self._root).initialize_savepoint_location(checkpoint_id, target)

    def publish_metadata(self, reference: StorageReference, data: bytes) -> bytes:
        return self._at(reference.directory).publish_metadata(reference, data)

    def read_metadata(self, reference: StorageReference) -> bytes:
        return self._at(reference.directory).read_metadata(reference)

    def resolve_checkpoint_storage_location(
        self, checkpoint_id: CheckpointId, reference: StorageReference, attempt: AttemptId, subtask: int
    ) -> CheckpointStreamFactory:
        storage: CheckpointStorageWorkerView = self._at(reference.directory or self._root)
        if self._merging is not None:
            storage = storage.to_file_merging_storage(self._merging)
        return storage.resolve_checkpoint_storage_location(checkpoint_id, reference, attempt, subtask)

    def to_file_merging_storage(self, settings: FileMergingSettings) -> CheckpointStorageWorkerView:
        return PlacedCheckpointStorage(self._places, self._root, self._settings, settings)

    def default_location(self, checkpoint_id: CheckpointId) -> StorageReference:
        return self._at(self._root).default_location(checkpoint_id)

    def create_task_owned_state_stream(self, attempt: AttemptId, subtask: int) -> CheckpointOutputStream:
        return self._at(self._root).create_task_owned_state_stream(attempt, subtask)

    def create_task_owned_checkpoint_state_toolset(self, attempt: AttemptId, subtask: int) -> CheckpointStateToolset:
        return self._at(self._root).create_task_owned_checkpoint_state_toolset(attempt, subtask)

    def _at(self, place: str) -> CheckpointStorage:
        """Return a storage of the place's kind. Its root is the root of this storage if that has the same kind, else
        the place itself."""
        kind = self._places.kind(place)
        root = self._root if kind is self._places.kind(self._root) else place
        return kind.storage(root, self._settings)


def is_absolute(path: str) -> bool:
    """Return whether a file's path is absolute or a URI, and not relative to its checkpoint's directory."""
    return path.startswith(("/", "file:")) or is_object(path)
