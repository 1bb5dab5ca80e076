"""File systems as a kind of storage."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO

from statelib.model.checkpoint import FileRecord
from statelib.storage.filesystem.inventory import list_files, source_entries, verify_files
from statelib.storage.filesystem.publish import read_published
from statelib.storage.filesystem.reader import DirectoryReader
from statelib.storage.filesystem.removal import FileSystemRemover
from statelib.storage.filesystem.storage import FileSystemCheckpointStorage
from statelib.storage.names import METADATA_NAME
from statelib.storage.ports.inventory import FileFinding, SourceEntry, StoredFile
from statelib.storage.ports.kind import CheckpointStorage, Checksums, StorageSettings
from statelib.storage.ports.removal import CheckpointRemover
from statelib.storage.ports.views import StateReader
from statelib.storage.uris import AllowedRoot, local_path, to_uri


class FileSystemKind:
    """The :class:`~statelib.storage.ports.kind.StorageKind` of local, shared and mounted file systems."""

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

    def same_snapshot(self, first: str, second: str) -> bool | None:
        return same_file(*(f"{local_path(place)}/{METADATA_NAME}" for place in (first, second)))

    def remover(self) -> CheckpointRemover:
        return FileSystemRemover()

    def source_entries(self, path: str) -> Iterable[SourceEntry]:
        return source_entries(path)

    def open_source(self, path: str) -> BinaryIO:
        return Path(local_path(path)).open("rb")

    def advice_on_unfinished(self, _place: str) -> str:
        return ""


def same_file(first: str, second: str) -> bool | None:
    """Return whether two paths lead to one file. Return None if that cannot be decided: one of them does not exist, or
    they lie on two devices, which may be two mounts of one disk."""
    try:
        first_status, second_status = os.stat(first), os.stat(second)
    except OSError:
        return None
    return first_status.st_ino == second_status.st_ino if first_status.st_dev == second_status.st_dev else None
