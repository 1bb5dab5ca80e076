"""The files of the base that a subtask's snapshot need not write: it refers to them, or the storage copies them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from statelib.model.checkpoint import SnapshotKind
from statelib.model.choices import REFERRING
from statelib.model.handles import FileStateHandle, IncrementalRemoteKeyedStateHandle, RelativeFileStateHandle
from statelib.model.key_groups import KeyGroupRange
from statelib.model.record import CheckpointRecord, CheckpointState, Owner
from statelib.model.state import KeyedStateSchema
from statelib.restore.live.base import restored_in_place
from statelib.restore.live.logged import open_log, restored_log
from statelib.restore.plan import RestoreSource
from statelib.savepoints.opened import Checkpoint
from statelib.snapshots.uploads.previous import (
    NO_PREVIOUS,
    CopyableFile,
    Identities,
    PreviousSnapshot,
    previous_changelog,
    previous_snapshot,
)
from statelib.storage.names import SHARED_DIRECTORY
from statelib.storage.ports.views import StateReader, WrittenStream
from statelib.storage.registry import PLACES


def previous_files(
    record: CheckpointRecord,
    base_record: CheckpointRecord | None,
    base: Checkpoint | None,
    *,
    schema: KeyedStateSchema,
    subtasks: Sequence[tuple[KeyGroupRange, Sequence[RestoreSource]]],
    pipeline_directory: str,
) -> tuple[PreviousSnapshot, ...]:
    """Return the files that each subtask's snapshot may refer to or have copied. Its database must be made of those
    files: it has the same key groups and is opened without conversion. Full checkpoints write everything, because their
    user wants them to depend on nothing. ``subtasks``: the key groups and the restore sources of each subtask."""
    incremental = record.strategy in REFERRING
    if base_record is None or base is None or not (incremental or record.kind is SnapshotKind.SAVEPOINT):
        return (NO_PREVIOUS,) * len(subtasks)
    files = _BaseFiles(base.directory, base.reader(), base.identities())
    shared = files.shared() if incremental and can_be_shared(base_record, base, pipeline_directory) else None
    return tuple(_previous(files, schema, *subtask, shared) for subtask in subtasks)


@dataclass(frozen=True)
class _BaseFiles:
    """The files of a base, listed once for all subtasks."""

    directory: str
    reader: StateReader
    identities: Identities

    def shared(self) -> Identities:
        """Return the files in a shared directory. The exclusive files of a fork's source have absolute URIs too, but
        are not shared."""
        return {
            path: identity for path, identity in self.identities.items() if path.split("/")[-2:-1] == [SHARED_DIRECTORY]
        }


def can_be_shared(record: CheckpointRecord | None, base: Checkpoint, pipeline_directory: str) -> bool:
    """Return whether checkpoints of the pipeline may refer to the files of the base. The files of a user's snapshot may
    be deleted at any time, so that the first checkpoint after it contains everything (R51). A base outside the
    pipeline's directory can be restored, but a checkpoint of the pipeline may not refer to it."""
    own = base.directory.rpartition("/")[0] == pipeline_directory
    return own and record is not None and record.state is CheckpointState.COMPLETED and record.owner is Owner.SYSTEM


def _previous(
    base: _BaseFiles,
    schema: KeyedStateSchema,
    key_groups: KeyGroupRange,
    sources: Sequence[RestoreSource],
    shared: Identities | None,
) -> PreviousSnapshot:
    """Return the files of the base that one subtask need not write. A change log is continued if the subtask is
    restored from it alone; one with open deltas only by a further delta. ``shared``: the files that may be referred to,
    None for none."""
    in_place = restored_in_place(schema, key_groups, [source.without_deltas() for source in sources])
    previous = NO_PREVIOUS
    if shared is not None:
        logged = restored_log(schema, key_groups, sources) or open_log(schema, key_groups, sources)
        previous = previous_snapshot(in_place, shared) if in_place else NO_PREVIOUS
        previous = replace(previous, changelog=previous_changelog(logged, shared) if logged else None)
    return replace(previous, stored=_stored(base, in_place, previous) if in_place else {})


def _stored(
    base: _BaseFiles, handle: IncrementalRemoteKeyedStateHandle, previous: PreviousSnapshot
) -> dict[str, CopyableFile]:
    """Return the files that the storage may copy: whole files with checksums that are not referred to."""
    copyable = {}
    for name, stream in (*handle.shared, *handle.private):
        if not isinstance(stream, FileStateHandle | RelativeFileStateHandle) or name in previous.files:
            continue
        if stream.path not in base.identities:
            continue
        base.reader.locate(stream)  # raises for a path that no restore would read
        written = WrittenStream(stream, *base.identities[stream.path])
        if written.xxh3 is not None:
            copyable[name] = CopyableFile(written, PLACES.file_uri(base.directory, stream.path))
    return copyable
