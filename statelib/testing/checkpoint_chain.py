"""Successive checkpoints of one subtask in one directory, for tests of strategies whose checkpoints share files."""

import itertools
from pathlib import Path

from statelib.backends.keyed import KeyedStateBackend
from statelib.model.handles import (
    ByteStreamStateHandle,
    ChangelogStateBackendHandleImpl,
    IncrementalRemoteKeyedStateHandle,
    materialized_parts,
    stream_handles,
)
from statelib.model.ids import AttemptId, CheckpointId, PipelineName
from statelib.restore.entries import iter_entries
from statelib.restore.plan import RestoreSource
from statelib.snapshots.strategy import SnapshotResult
from statelib.snapshots.uploads.previous import (
    Identities,
    PreviousChangelog,
    PreviousSnapshot,
    previous_changelog,
    previous_snapshot,
)
from statelib.snapshots.uploads.records import file_records
from statelib.storage.filesystem.inventory import list_files
from statelib.storage.filesystem.reader import DirectoryReader
from statelib.storage.filesystem.storage import FileSystemCheckpointStorage
from statelib.storage.ports.views import (
    CheckpointStorageWorkerView,
    CheckpointStreamFactory,
    FileMergingSettings,
    StorageReference,
)
from statelib.storage.uris import absolute_uri

Entries = dict[str, dict[bytes, bytes]]


class CheckpointChain:
    """The real file-system storage of one pipeline below ``root``, which must not hold a ``chain`` directory yet.
    Each stream factory belongs to a new attempt."""

    def __init__(self, root: Path, inline_threshold_bytes: int = 0, merging: FileMergingSettings | None = None) -> None:
        self._storage = FileSystemCheckpointStorage(str(root), PipelineName("chain"), inline_threshold_bytes)
        self._worker: CheckpointStorageWorkerView = self._storage
        if merging is not None:
            self._worker = self._storage.to_file_merging_storage(merging)
        self._attempts = itertools.count()
        self._references: dict[int, StorageReference] = {}
        self.directory = f"{self._storage.root}/chain"
        (root / "chain").mkdir(parents=True)

    def streams(self, number: int, subtask: int = 0) -> CheckpointStreamFactory:
        """Return the stream factory of a new attempt at checkpoint ``number``."""
        checkpoint_id = CheckpointId(number)
        if number not in self._references:
            self._references[number] = self._storage.initialize_location(checkpoint_id)
        attempt = AttemptId(f"{next(self._attempts):032x}")
        return self._worker.resolve_checkpoint_storage_location(
            checkpoint_id, self._references[number], attempt, subtask
        )

    def source(self, number: int, result: SnapshotResult, backend: KeyedStateBackend) -> RestoreSource:
        """Return the source for a restore of checkpoint ``number``. Its reader compares each file with the checksum in
        ``result``, also if an earlier checkpoint wrote the file."""
        assert result.keyed is not None
        files = file_records((*result.streams, *result.reused), 0, backend.key_group_range)
        checksums = {key: checksum for file in files for key, checksum in file.checksums().items()}
        reader = DirectoryReader(self._references[number].directory, checksums, allowed_root=self.directory)
        return RestoreSource(result.keyed, reader, backend.schema, backend.statistics(), checksummed=True)

    def files(self) -> set[str]:
        """Return the URIs of all files in the directory."""
        return {f"{self.directory}/{file.path}" for file in list_files(self.directory)}


def files_of(source: RestoreSource) -> set[str]:
    """Return the URIs of the files that a source refers to."""
    assert isinstance(source.reader, DirectoryReader)
    handles = [h for h in stream_handles(source.handle) if not isinstance(h, ByteStreamStateHandle)]
    return {absolute_uri(source.reader.directory_uri, handle) for handle in handles}


def previous_of(source: RestoreSource) -> PreviousSnapshot:
    """Return the files to which a snapshot may refer, if its backend was restored in place from the source."""
    assert isinstance(source.reader, DirectoryReader)
    (handle,) = materialized_parts(source.handle)
    assert isinstance(handle, IncrementalRemoteKeyedStateHandle)
    return previous_snapshot(handle, _identities(source.reader))


def changelog_of(source: RestoreSource) -> PreviousChangelog | None:
    """Return the changelog snapshot that a backend may continue, if it was restored from this source alone."""
    assert isinstance(source.reader, DirectoryReader)
    assert isinstance(source.handle, ChangelogStateBackendHandleImpl)
    return previous_changelog(source.handle, _identities(source.reader))


def _identities(reader: DirectoryReader) -> Identities:
    """Return the size and CRC-32C of each file, and None for its XXH3, as if its writer had recorded none."""
    return {key: (*checksum, None) for key, checksum in (reader.checksums or {}).items()}


def entries_of(source: RestoreSource, scratch: Path) -> Entries:
    """Return all entries as bytes, by the name of their state, read back from storage."""
    entries: Entries = {d.name: {} for d in source.schema.states}
    for state, rows in iter_entries(source, None, str(scratch)):
        entries[source.schema.states[state].name] |= zip(rows.keys.to_list(), rows.values.to_list(), strict=True)
    return entries
