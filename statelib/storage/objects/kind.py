"""Object storages as a kind of storage."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import BinaryIO, cast

from statelib.model.checkpoint import FileRecord
from statelib.storage.objects.input import ObjectInput
from statelib.storage.objects.inventory import list_objects, source_entries, verify_objects
from statelib.storage.objects.publish import read_published_object
from statelib.storage.objects.reader import ObjectReader
from statelib.storage.objects.removal import ObjectRemover
from statelib.storage.objects.storage import ObjectCheckpointStorage
from statelib.storage.objects.uris import SCHEMES, object_location
from statelib.storage.ports.inventory import FileFinding, SourceEntry, StoredFile
from statelib.storage.ports.kind import CheckpointStorage, Checksums, StorageSettings
from statelib.storage.ports.removal import CheckpointRemover
from statelib.storage.ports.views import StateReader
from statelib.storage.retries import Retries
from statelib.storage.uris import AllowedRoot


@dataclass(frozen=True)
class ObjectKind:
    """The :class:`~statelib.storage.ports.kind.StorageKind` of object storages: S3, Google Cloud Storage and Azure Blob
    Storage. Credentials and endpoint come from the environment.

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

    def same_snapshot(self, first: str, second: str) -> bool | None:
        """Return False for two prefixes of one bucket. Two buckets may be two names of one, so only the content can
        decide about them."""
        same_bucket = object_location(first).bucket_uri == object_location(second).bucket_uri
        return False if same_bucket else None

    def remover(self) -> CheckpointRemover:
        return ObjectRemover(self.retries)

    def source_entries(self, path: str) -> Iterable[SourceEntry]:
        return source_entries(path, self.retries)

    def open_source(self, path: str) -> BinaryIO:
        return cast(BinaryIO, ObjectInput(path, self.retries))

    def advice_on_unfinished(self, place: str) -> str:
        return SCHEMES[object_location(place).scheme].unfinished
