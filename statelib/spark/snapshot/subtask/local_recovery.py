"""Local recovery in one Spark task: it restores from copies on this host's disk, and leaves copies there for the next
run.

Spark chooses the host of a task. Only the task itself can see which copies its host has.
"""

from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace

from statelib.definition.pipeline import Pipeline
from statelib.errors import CorruptStateError, RetryableError
from statelib.flows.checkpoint.snapshot_plan import SnapshotPlan
from statelib.flows.restore.layout import RestoreLayout
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import SnapshotKind
from statelib.model.ids import AttemptId
from statelib.snapshots.strategy import SnapshotResult
from statelib.storage.local.copies import LocalCopies
from statelib.storage.local.reader import LOCAL, REMOTE, LocalFirstReader
from statelib.storage.local.store import LocalSnapshotDirectories, LocalStateStore


@dataclass(frozen=True)
class LocalRecovery:
    """The local recovery of one subtask. ``layout``: the state to restore; with local recovery, its sources read this
    host's copies first. ``directories``: the directories for the copies of the new snapshot; None if no copies are
    made."""

    layout: RestoreLayout
    directories: LocalSnapshotDirectories | None
    plan: SnapshotPlan
    readers: tuple[LocalFirstReader, ...] = ()

    def restored_from(self, subtask: int) -> str:
        """Return where the state of the subtask was read: ``empty``, ``local``, ``remote`` or ``mixed``. State inside
        ``_metadata`` counts as remote."""
        if not self.layout.sources[subtask]:
            return "empty"
        origins = {origin for reader in self.readers for origin in reader.origins}
        if {LOCAL, REMOTE} <= origins:
            return "mixed"
        return LOCAL if LOCAL in origins else REMOTE

    def complete(self, result: SnapshotResult) -> None:
        """Complete the local copies of a snapshot, before the snapshot is acknowledged."""
        if self.directories is not None:
            self.directories.complete(self.plan.record.checkpoint_id, (*result.streams, *result.reused))


@contextmanager
def local_recovery(
    deployment: Deployment, pipeline: Pipeline, plan: SnapshotPlan, subtask: int, attempt: AttemptId
) -> Iterator[LocalRecovery]:
    """Yield the local recovery of one subtask. Copies that the host no longer needs are removed before, and copies that
    were not completed are removed at the end. A savepoint is also restored locally, but makes and removes no copies
    (R76).

    Raises RetryableError (``local-copy-damaged``)."""
    store = deployment.local_states(pipeline)
    checkpoint = plan.record.kind is SnapshotKind.CHECKPOINT
    if not pipeline.checkpoint.local_recovery:
        if checkpoint:
            store.clear()
        yield LocalRecovery(plan.layout, None, plan)
        return
    if checkpoint:
        store.prune(plan.record.checkpoint_id, attempt, plan.record.base, plan.base_files)
    copies = _copies(store, plan, subtask, attempt)
    sources = tuple(replace(s, reader=LocalFirstReader(s.reader, copies)) for s in plan.layout.sources[subtask])
    layout = replace(
        plan.layout, sources=(*plan.layout.sources[:subtask], sources, *plan.layout.sources[subtask + 1 :])
    )
    readers = tuple(source.reader for source in sources if isinstance(source.reader, LocalFirstReader))
    with _without_damaged(store, plan, attempt, readers), closing(copies):
        if not checkpoint:
            yield LocalRecovery(layout, None, plan, readers)
            return
        with store.directories(attempt, subtask, copies) as directories:
            yield LocalRecovery(layout, directories, plan, readers)


@contextmanager
def _without_damaged(
    store: LocalStateStore, plan: SnapshotPlan, attempt: AttemptId, readers: Iterable[LocalFirstReader]
) -> Iterator[None]:
    """Remove this host's copies of the base if the block finds damaged state and has used copies without verifying
    them. The next attempt then reads remotely.

    Raises RetryableError (``local-copy-damaged``) in place of that CorruptStateError."""
    try:
        yield
    except CorruptStateError as error:
        trusted = [path for reader in readers for path in reader.trusted]
        if not trusted or plan.record.base is None:
            raise
        store.discard(plan.record.base, attempt)
        raise RetryableError(
            f"state restored from this host's copies, such as {trusted[0]}, is damaged: {error.message}",
            kind="local-copy-damaged",
            hint="the copies are removed; the same task, run again, reads from the storage",
        ) from error


def _copies(store: LocalStateStore, plan: SnapshotPlan, subtask: int, attempt: AttemptId) -> LocalCopies:
    """Return the copies of the base on this host. If the changelog of the base is continued, files without a copy are
    fetched as a whole: the restore reads all of them, and later checkpoints refer to them without writing them
    again."""
    record = plan.record
    if record.base is None:
        return LocalCopies({})
    continued = record.kind is SnapshotKind.CHECKPOINT and plan.previous[subtask].changelog is not None
    directory = store.fetched(record.checkpoint_id, attempt, subtask) if continued else None
    return LocalCopies(store.find(record.base, plan.base_files), plan.base_files, directory)
