"""Kinds of storage and the URL schemes that choose them: the one way through to all of them.

A place is an absolute path, a ``file:`` URI or the URI of an object storage. :class:`Places` is the registry,
:class:`PlacedCheckpointStorage` a checkpoint storage that picks the kind for each location it is given.
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
"""Path as in a handle -> (size in bytes, crc32c)."""

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
"""Schemes that people try: why not, and what to do instead."""


class CheckpointStorage(CheckpointStorageWorkerView, CheckpointStorageCoordinatorView, Protocol):
    """Both views in one object."""


@dataclass(frozen=True)
class StorageSettings:
    """What a storage of one pipeline needs besides its root. ``scratch``: local directory for data on its way."""

    pipeline: PipelineName
    inline_threshold_bytes: int
    scratch: str | None = None


class StorageKind(Protocol):
    """All that depends on where bytes lie."""

    def storage(self, root: str, settings: StorageSettings) -> CheckpointStorage: ...
    def reader(self, directory: str, checksums: Checksums | None, allowed_root: AllowedRoot) -> StateReader: ...
    def read_published(self, directory: str) -> bytes: ...
    def verify_files(
        self, directory: str, files: Sequence[FileRecord], read_data: bool, allowed_root: AllowedRoot
    ) -> list[FileFinding]: ...
    def list_files(self, directory: str) -> list[StoredFile]: ...
    def normalised(self, place: str) -> str:
        """The URI of a place: equal places have equal text."""
        ...

    def shown(self, place: str) -> str:
        """A place as people write it, and as messages about it begin."""
        ...


class FileSystemKind:
    """Local, shared or mounted file systems."""

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
    """S3, Google Cloud Storage and Azure Blob Storage; credentials and endpoint come from the environment.
    ``patience`` says, each time that something is opened, how long it is asked."""

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
    """The kinds of storage there are, by URL scheme; '' is that of a plain path."""

    def __init__(self, kinds: Mapping[str, StorageKind]) -> None:
        self._kinds = dict(kinds)

    def kind(self, place: str) -> StorageKind:
        """Raises UnsupportedError (``unknown-scheme``)."""
        found = _SCHEME.match(place)
        scheme = found[1].lower() if found else ""
        if scheme not in self._kinds:
            known = ", ".join(f"{name}:" for name in sorted(self._kinds) if name)
            reason, hint = _REFUSED.get(scheme, ("", "mount the storage as a file system"))
            raise UnsupportedError(
                f"storage of scheme {shown(scheme)}: {reason or f'expected an absolute path or one of {known}'}",
                kind="unknown-scheme",
                hint=hint,
            )
        return self._kinds[scheme]

    def file_uri(self, directory: str, path: str) -> str:
        """The URI of a checkpoint's file: ``path`` is relative to ``directory``, or absolute already."""
        if is_absolute(path):
            return self.kind(path).normalised(path)
        return "/".join((self.kind(directory).normalised(directory), *relative_parts(path)))

    def same_place(self, first: str, second: str) -> bool | None:
        """Whether two directories of published snapshots are one, however they are written or linked; None where only
        their content can tell, as with two mounts of one disk."""
        if self.kind(first).normalised(first) == self.kind(second).normalised(second):
            return True
        if is_object(first) and is_object(second):
            same_bucket = object_location(first).bucket_uri == object_location(second).bucket_uri
            return False if same_bucket else None
        if is_object(first) or is_object(second):
            return None
        return same_file(*(f"{local_path(place)}/{METADATA_NAME}" for place in (first, second)))

    def storage(self, root: str, settings: StorageSettings) -> CheckpointStorage:
        """Of one pipeline's checkpoints below ``root``; its savepoints may go to places of any kind."""
        self.kind(root)
        return PlacedCheckpointStorage(self, root, settings)


class PlacedCheckpointStorage:
    """Both views: of each location the kind that its own URI says."""

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
        """The storage's own root where that is of the place's kind, else one rooted at the place itself."""
        kind = self._places.kind(place)
        root = self._root if kind is self._places.kind(self._root) else place
        return kind.storage(root, self._settings)


def is_absolute(path: str) -> bool:
    """Whether a file's path is absolute or a URI, not relative to its checkpoint."""
    return path.startswith(("/", "file:")) or is_object(path)
