"""Kinds of storage and the URL schemes that choose them: the one way through to all of them.

A place is an absolute path, a ``file:`` URI or an ``s3://bucket/prefix``. :class:`Places` is the registry,
:class:`PlacedCheckpointStorage` a checkpoint storage that picks the kind for each location it is given.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from statelib.errors import UnsupportedError
from statelib.model.checkpoint import FileRecord
from statelib.model.ids import AttemptId, CheckpointId, PipelineName
from statelib.storage.filesystem import FileSystemCheckpointStorage
from statelib.storage.inventory import FileFinding, StoredFile, list_files, verify_files
from statelib.storage.publish import read_published
from statelib.storage.reader import DirectoryReader
from statelib.storage.retries import Retries
from statelib.storage.s3 import S3CheckpointStorage
from statelib.storage.s3_inventory import s3_list_files, s3_verify_files
from statelib.storage.s3_publish import s3_read_published
from statelib.storage.s3_reader import S3Reader
from statelib.storage.s3_uris import is_s3, s3_location
from statelib.storage.uris import local_path, relative_parts, shown, to_uri
from statelib.storage.views import (
    CheckpointStorageCoordinatorView,
    CheckpointStorageWorkerView,
    CheckpointStreamFactory,
    StateReader,
    StorageReference,
)

Checksums = Mapping[str, tuple[int, int]]
"""Path as in a handle -> (size in bytes, crc32c)."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


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
    def reader(self, directory: str, checksums: Checksums | None, allowed_root: str | None) -> StateReader: ...
    def read_published(self, directory: str) -> bytes: ...
    def verify_files(
        self, directory: str, files: Sequence[FileRecord], read_data: bool, allowed_root: str | None
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

    def reader(self, directory: str, checksums: Checksums | None, allowed_root: str | None) -> StateReader:
        return DirectoryReader(directory, checksums, allowed_root=allowed_root)

    def read_published(self, directory: str) -> bytes:
        return read_published(directory)

    def verify_files(
        self, directory: str, files: Sequence[FileRecord], read_data: bool, allowed_root: str | None
    ) -> list[FileFinding]:
        return verify_files(directory, files, read_data, allowed_root)

    def list_files(self, directory: str) -> list[StoredFile]:
        return list_files(directory)

    def normalised(self, place: str) -> str:
        return to_uri(place)

    def shown(self, place: str) -> str:
        return local_path(place)


@dataclass(frozen=True)
class S3Kind:
    """S3 and what speaks its protocol; credentials and endpoint come from the environment."""

    retries: Retries

    def storage(self, root: str, settings: StorageSettings) -> CheckpointStorage:
        return S3CheckpointStorage(
            root, settings.pipeline, self.retries, settings.inline_threshold_bytes, settings.scratch
        )

    def reader(self, directory: str, checksums: Checksums | None, allowed_root: str | None) -> StateReader:
        return S3Reader(directory, self.retries, checksums, allowed_root)

    def read_published(self, directory: str) -> bytes:
        return s3_read_published(directory, self.retries)

    def verify_files(
        self, directory: str, files: Sequence[FileRecord], read_data: bool, allowed_root: str | None
    ) -> list[FileFinding]:
        return s3_verify_files(directory, files, read_data, self.retries, allowed_root)

    def list_files(self, directory: str) -> list[StoredFile]:
        return s3_list_files(directory, self.retries)

    def normalised(self, place: str) -> str:
        return s3_location(place).uri

    def shown(self, place: str) -> str:
        return s3_location(place).uri


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
            raise UnsupportedError(
                f"storage of scheme {shown(scheme)}: expected an absolute path or one of {known}",
                kind="unknown-scheme",
                hint="mount the storage as a file system",
            )
        return self._kinds[scheme]

    def file_uri(self, directory: str, path: str) -> str:
        """The URI of a checkpoint's file: ``path`` is relative to ``directory``, or absolute already."""
        if is_absolute(path):
            return self.kind(path).normalised(path)
        return "/".join((self.kind(directory).normalised(directory), *relative_parts(path)))

    def storage(self, root: str, settings: StorageSettings) -> CheckpointStorage:
        """Of one pipeline's checkpoints below ``root``; its savepoints may go to places of any kind."""
        self.kind(root)
        return PlacedCheckpointStorage(self, root, settings)


class PlacedCheckpointStorage:
    """Both views: of each location the kind that its own URI says."""

    def __init__(self, places: Places, root: str, settings: StorageSettings) -> None:
        self._places = places
        self._root = root
        self._settings = settings

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
        storage = self._at(reference.directory)
        return storage.resolve_checkpoint_storage_location(checkpoint_id, reference, attempt, subtask)

    def _at(self, place: str) -> CheckpointStorage:
        """The storage's own root where that is of the place's kind, else one rooted at the place itself."""
        kind = self._places.kind(place)
        root = self._root if kind is self._places.kind(self._root) else place
        return kind.storage(root, self._settings)


def is_absolute(path: str) -> bool:
    """Whether a file's path is absolute or a URI, not relative to its checkpoint."""
    return path.startswith(("/", "file:")) or is_s3(path)
