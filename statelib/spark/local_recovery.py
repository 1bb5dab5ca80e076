"""Local recovery in one Spark task: restore from what lies on this host's disk, leave there what the next run needs.

Nothing is known beforehand of what a host holds: Spark places the task, the task looks.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from statelib.definition.pipeline import Pipeline
from statelib.errors import CorruptStateError, RetryableError
from statelib.flows.snapshot import RestoreLayout, SnapshotPlan
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import SnapshotKind
from statelib.model.ids import AttemptId
from statelib.restore.plan import RestoreSource
from statelib.snapshots.strategy import SnapshotResult
from statelib.storage.local_reader import LOCAL, REMOTE, LocalFirstReader
from statelib.storage.local_store import LocalSnapshotDirectories, LocalStateStore


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
    sources = _local_first(store, plan, subtask)
    layout = replace(
        plan.layout, sources=(*plan.layout.sources[:subtask], sources, *plan.layout.sources[subtask + 1 :])
    )
    readers = tuple(source.reader for source in sources if isinstance(source.reader, LocalFirstReader))
    with _without_damaged(store, plan, attempt, readers):
        if not checkpoint:
            yield LocalRecovery(layout, None, plan, readers)
            return
        with store.directories(attempt, subtask) as directories:
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


def _local_first(store: LocalStateStore, plan: SnapshotPlan, subtask: int) -> tuple[RestoreSource, ...]:
    sources = plan.layout.sources[subtask]
    if plan.record.base is None:
        return sources
    copies = store.find(plan.record.base, plan.base_files)
    return tuple(replace(source, reader=LocalFirstReader(source.reader, copies)) for source in sources)
