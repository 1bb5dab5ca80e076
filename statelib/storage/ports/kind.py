"""The port of a kind of storage. Its methods are all that differs between file systems and object storages."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from statelib.model.checkpoint import FileRecord
from statelib.model.ids import PipelineName
from statelib.storage.ports.inventory import FileFinding, SourceEntry, StoredFile
from statelib.storage.ports.removal import CheckpointRemover
from statelib.storage.ports.views import CheckpointStorageCoordinatorView, CheckpointStorageWorkerView, StateReader
from statelib.storage.uris import AllowedRoot

Checksums = Mapping[str, tuple[int, int]]
"""A map from the path in a handle to (size in bytes, crc32c)."""


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
    """The operations that differ between kinds of storage: writing, publishing, reading, verifying, listing, removing.
    Each directory, root and place belongs to this kind, so that no caller asks which kind it is."""

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

    def same_snapshot(self, first: str, second: str) -> bool | None:
        """Return whether two different directories lead to the same published snapshot, because one is a link to the
        other. Return None where only the content can decide that, as with two mounts of one disk."""
        ...

    def remover(self) -> CheckpointRemover:
        """Return the remover of this kind's files. The roots of a call must be of this kind too."""
        ...

    def source_entries(self, path: str) -> Iterable[SourceEntry]:
        """Return the file or directory at the path of a source, and all below it; nothing if nothing has the path."""
        ...

    def open_source(self, path: str) -> BinaryIO:
        """Open a file of a source, to be read and sought. Raises OSError or an error of the storage."""
        ...

    def advice_on_unfinished(self, place: str) -> str:
        """Return the advice for the owner of a place on parts of uploads whose writer was killed, because no listing
        shows them. It is '' where no such parts stay."""
        ...
