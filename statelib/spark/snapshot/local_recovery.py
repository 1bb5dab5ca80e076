"""Local recovery in one Spark task: restore from what lies on this host's disk, leave there what the next run needs.

Nothing is known beforehand of what a host holds: Spark places the task, the task looks.
"""

from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace

from statelib.definition.pipeline import Pipeline
from statelib.errors import CorruptStateError, RetryableError
from statelib.flows.checkpoint.snapshot import SnapshotPlan
from statelib.flows.restore_layout import RestoreLayout
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import SnapshotKind
from statelib.model.ids import AttemptId
from statelib.snapshots.strategy import SnapshotResult
from statelib.storage.local.copies import LocalCopies
from statelib.storage.local.reader import LOCAL, REMOTE, LocalFirstReader
from statelib.storage.local.store import LocalSnapshotDirectories, LocalStateStore


@dataclass(frozen=True)
class LocalRecovery:
    """``layout``: what to restore; with local recovery its sources read this host's copies first.
    ``directories``: where the strategy keeps copies, None for none."""

    layout: RestoreLayout
    directories: LocalSnapshotDirectories | None
    plan: SnapshotPlan
    readers: tuple[LocalFirstReader, ...] = ()

    def restored_from(self, subtask: int) -> str:
        """``empty``, ``local``, ``remote`` or ``mixed``; state inside ``_metadata`` came with the plan, remotely."""
        if not self.layout.sources[subtask]:
            return "empty"
        origins = {origin for reader in self.readers for origin in reader.origins}
        if {LOCAL, REMOTE} <= origins:
            return "mixed"
        return LOCAL if LOCAL in origins else REMOTE

    def complete(self, result: SnapshotResult) -> None:
        """Keep the copies of a snapshot that is about to be acknowledged."""
        if self.directories is not None:
            self.directories.complete(self.plan.record.checkpoint_id, (*result.streams, *result.reused))


@contextmanager
def local_recovery(
    deployment: Deployment, pipeline: Pipeline, plan: SnapshotPlan, subtask: int, attempt: AttemptId
) -> Iterator[LocalRecovery]:
    """For one subtask's part of a checkpoint; what it did not complete is gone at the end. What the host no
    longer needs is removed first. A savepoint restores locally too, but keeps nothing and removes nothing (R76)."""
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
    """Copies that were not read again before they were used are removed when what uses them finds damage: the next try
    reads remotely."""
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
    """The copies of the base on this host. Where the base's log is continued, a file without a copy is fetched whole:
    the restore reads all of it anyway, and later checkpoints go on to refer to it without writing it again."""
    record = plan.record
    if record.base is None:
        return LocalCopies({})
    continued = record.kind is SnapshotKind.CHECKPOINT and plan.previous[subtask].changelog is not None
    directory = store.fetched(record.checkpoint_id, attempt, subtask) if continued else None
    return LocalCopies(store.find(record.base, plan.base_files), plan.base_files, directory)
