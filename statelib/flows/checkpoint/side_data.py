"""The side data of a base: which subtask gets which pieces of it, and whether its checkpoints may refer to them; and
the states whose entries that expire next are listed in side data."""

from collections.abc import Iterator, Sequence

from statelib.backends.operator.side_data import StoredSideData
from statelib.definition.pipeline import Pipeline
from statelib.model.checkpoint import SideDataRecord, SnapshotKind
from statelib.model.choices import REFERRING, Backend
from statelib.model.handles import ByteStreamStateHandle
from statelib.model.key_groups import KeyGroupRange
from statelib.model.record import CheckpointRecord
from statelib.savepoints.opened import Checkpoint
from statelib.storage.names import SHARED_DIRECTORY, TASK_OWNED_DIRECTORY
from statelib.storage.ports.views import WrittenStream
from statelib.storage.registry import PLACES


def restored_side_data(
    base: Checkpoint | None, names: Sequence[str], ranges: Sequence[KeyGroupRange], *, can_be_referred_to: bool
) -> tuple[tuple[StoredSideData, ...], ...]:
    """Return the pieces of side data of each subtask: those that were kept for some of its key groups.

    Args:
        base: The snapshot that is restored; None if there is none.
        names: The names that the pipeline declares. Other names are left out.
        ranges: The key groups of each subtask.
        can_be_referred_to: Whether checkpoints may refer to the base's task-owned files.
    """
    manifest = base.manifest if base else None
    if base is None or manifest is None or not manifest.side_data or not names:
        return ((),) * len(ranges)
    reader, identities = base.reader(), base.identities()

    def stored(record: SideDataRecord, key_groups: KeyGroupRange) -> StoredSideData:
        handle = record.handle
        if isinstance(handle, ByteStreamStateHandle):
            return StoredSideData(record.name, key_groups, handle, None, "", reader, can_be_referred_to)
        reader.locate(handle)  # refuses what no restore would read either
        lasting = can_be_referred_to and handle.path.split("/")[-2:-1] in ([TASK_OWNED_DIRECTORY], [SHARED_DIRECTORY])
        stream = WrittenStream(handle, *identities[handle.path])
        uri = PLACES.file_uri(base.directory, handle.path)
        return StoredSideData(record.name, key_groups, handle, stream, uri, reader, lasting)

    chosen = [record for record in manifest.side_data if record.name in names]
    return tuple(tuple(stored(*piece) for piece in _pieces(chosen, own)) for own in ranges)


def _pieces(records: Sequence[SideDataRecord], own: KeyGroupRange) -> Iterator[tuple[SideDataRecord, KeyGroupRange]]:
    """Yield the records of some of the key groups ``own``, with these key groups: by name, in the order of the key
    groups. What an earlier rescaling divided is put together again."""
    pending: tuple[SideDataRecord, KeyGroupRange] | None = None
    for record in sorted(records, key=lambda record: (record.name, record.key_group_range.start)):
        common = record.key_group_range.intersection(own)
        if not len(common):
            continue
        if pending is not None:
            before, held = pending
            if (before.name, before.handle, held.end + 1) == (record.name, record.handle, common.start):
                pending = before, KeyGroupRange(held.start, common.end)
                continue
            yield pending
        pending = record, common
    if pending is not None:
        yield pending


def listed_states(pipeline: Pipeline, record: CheckpointRecord) -> tuple[str, ...]:
    """Return the names of the states with a time to live of which a checkpoint keeps a list: those of RocksDB, if its
    strategy does not write the whole state in any case. A savepoint keeps none, because it is as independent of
    statelib as it can be. A correction keeps none: it may write values with earlier times than those of the list."""
    keeps = record.kind is SnapshotKind.CHECKPOINT and record.mends is None
    if not keeps or pipeline.backend != Backend.ROCKSDB or record.strategy not in REFERRING:
        return ()
    return tuple(pipeline.ttl())
