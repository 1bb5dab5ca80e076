"""The registry of the kinds of storage, and a storage and a remover that select the kind per place.

A place is an absolute path, a ``file:`` URI or the URI of an object storage. Its URL scheme selects the kind, here and
nowhere else.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from statelib.errors import InvalidRequestError, UnsupportedError
from statelib.model.ids import AttemptId, CheckpointId
from statelib.storage.ports.inventory import StoredFile
from statelib.storage.ports.kind import CheckpointStorage, StorageKind, StorageSettings
from statelib.storage.ports.removal import CheckpointRemover, outside_root
from statelib.storage.ports.views import (
    CheckpointOutputStream,
    CheckpointStateToolset,
    CheckpointStorageWorkerView,
    CheckpointStreamFactory,
    FileMergingSettings,
    StorageReference,
)
from statelib.storage.uris import is_absolute, relative_parts, shown

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
        kind = self.kind(first)
        if kind.normalised(first) == self.kind(second).normalised(second):
            return True
        return kind.same_snapshot(first, second) if kind is self.kind(second) else None

    def is_below(self, place: str, roots: Sequence[str]) -> bool:
        """Return whether a path or URI lies below one of the roots. A root itself and a path with ``..`` do not."""
        try:
            uri = self.kind(place).normalised(place)
            prefixes = [f"{self.kind(root).normalised(root).removesuffix('/')}/" for root in roots]
        except InvalidRequestError:
            return False
        return any(uri.startswith(prefix) and uri != prefix for prefix in prefixes)

    def parent_of(self, uri: str) -> str:
        """Return the URI of the directory that holds the file of a normalised URI."""
        return self.kind(uri).normalised(f"{uri.rpartition('/')[0]}/")

    def storage(self, root: str, settings: StorageSettings) -> CheckpointStorage:
        """Return the storage of one pipeline's checkpoints below ``root``. Its savepoints may go to places of any
        kind. Raises UnsupportedError (``unknown-scheme``)."""
        self.kind(root)
        return PlacedCheckpointStorage(self, root, settings)

    def remover(self, root: str) -> "PlacedRemover":
        """Return the remover of a deployment with that root. It also removes files of savepoints at places of any kind.

        Raises UnsupportedError (``unknown-scheme``)."""
        self.kind(root)
        return PlacedRemover(self, root)


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


@dataclass(frozen=True)
class PlacedRemover:
    """A :class:`~statelib.storage.ports.removal.CheckpointRemover` that uses, per URI, the kind of storage of the URI.
    Only those roots of a call count that are of the same kind. ``root`` is the root of the deployment's storage."""

    places: Places = field(repr=False)
    root: str

    @property
    def files_at_once(self) -> int:
        return self._at(self.root).files_at_once

    def list_files(self, directory: str) -> list[StoredFile]:
        return self._at(directory).list_files(directory)

    def list_directories(self, directory: str) -> frozenset[str]:
        return self._at(directory).list_directories(directory)

    def now_ms(self, directory: str) -> int:
        return self._at(directory).now_ms(directory)

    def remove_file(self, uri: str, roots: Sequence[str]) -> bool:
        return self._at(uri).remove_file(uri, self._of_same_kind(uri, roots))

    def remove_files(self, uris: Sequence[str], roots: Sequence[str]) -> None:
        for uri in uris:
            if not self.places.is_below(uri, roots):
                raise outside_root(uri, roots)
        for kind in dict.fromkeys(map(self.places.kind, uris)):
            of_kind = [uri for uri in uris if self.places.kind(uri) is kind]
            kind.remover().remove_files(of_kind, self._of_same_kind(of_kind[0], roots))

    def remove_directory(self, uri: str, roots: Sequence[str]) -> bool:
        return self._at(uri).remove_directory(uri, self._of_same_kind(uri, roots))

    def _at(self, place: str) -> CheckpointRemover:
        return self.places.kind(place).remover()

    def _of_same_kind(self, uri: str, roots: Sequence[str]) -> tuple[str, ...]:
        kind = self.places.kind(uri)
        return tuple(root for root in roots if self.places.kind(root) is kind)
