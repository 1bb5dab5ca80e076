"""Changelog snapshot: the materialised state of an earlier checkpoint, and the log of what changed since.

Only the changes of the interval are written. When the log has become too long or too old, the state is
materialised anew within the checkpoint (batch jobs have no time between checkpoints) and the log begins
empty. Source: requirements R65 to R67; flink-formats.md section 9 (ChangelogKeyedStateBackend).
"""

from dataclasses import dataclass
from typing import Any

from statelib.backends.changelog import ChangelogKeyedStateBackend
from statelib.formats.changelog.encoder import encode_changes
from statelib.model.handles import (
    ChangelogStateBackendHandleImpl,
    ChangelogStateHandleStreamImpl,
    MaterializedStateHandle,
    log_streams,
)
from statelib.model.ids import CheckpointId
from statelib.snapshots.previous import PreviousChangelog
from statelib.snapshots.strategy import SnapshotResources, SnapshotResult, SnapshotStrategy
from statelib.snapshots.uploads import Uploads, local_directory
from statelib.storage.closeables import CloseableRegistry
from statelib.storage.local.store import LocalSnapshotDirectories
from statelib.storage.views import CheckpointedStateScope, CheckpointStreamFactory


@dataclass(frozen=True)
class MaterializationLimits:
    """When the log is ended: it would be larger than ``size_bytes``, or consist of more than ``checkpoints`` parts
    (a checkpoint in which nothing changed adds none)."""

    size_bytes: int
    checkpoints: int


@dataclass(frozen=True)
class _Taken:
    """A snapshot of this backend, and the position in its log up to which it reaches."""

    snapshot: PreviousChangelog
    position: int


@dataclass
class ChangelogResources:
    """Either the bytes of the log's new part over ``base``, or the frozen state to materialise."""

    position: int
    base: PreviousChangelog | None
    part: bytes
    whole: SnapshotResources | None

    def release(self) -> None:
        if self.whole is not None:
            self.whole.release()


class ChangelogSnapshotStrategy:
    """A :class:`~statelib.snapshots.strategy.SnapshotStrategy` that writes changes, and now and then the whole.

    ``materializer``: a strategy on the same state, all of whose streams are in the shared scope, since later
    checkpoints refer to them. ``restored``: the snapshot that the backend held when its log began, if a later
    one may refer to it. Then the newest snapshot that was notified as completed is the base. ``local``: where copies
    are kept."""

    description = "Asynchronous changelog snapshot"

    def __init__(
        self,
        backend: ChangelogKeyedStateBackend,
        backend_uid: str,
        materializer: SnapshotStrategy[Any],
        limits: MaterializationLimits,
        restored: PreviousChangelog | None = None,
        *,
        local: LocalSnapshotDirectories | None = None,
    ) -> None:
        self._backend = backend
        self._backend_uid = backend_uid
        self._materializer = materializer
        self._limits = limits
        self._local = local
        self._base = _Taken(restored, 0) if restored else None
        self._taken: dict[CheckpointId, _Taken] = {}

    def prepare(self, checkpoint_id: CheckpointId) -> ChangelogResources:
        """Encodes what changed: it is little, or the state is frozen to be written as a whole."""
        position = self._backend.position
        if self._base is not None:
            base = self._base.snapshot
            part = self._new_part(self._base)
            if part is not None:
                return ChangelogResources(position, base, part, None)
        return ChangelogResources(position, None, b"", self._materializer.prepare(checkpoint_id))

    def run(
        self,
        resources: ChangelogResources,
        checkpoint_id: CheckpointId,
        streams: CheckpointStreamFactory,
        registry: CloseableRegistry,
    ) -> SnapshotResult:
        if resources.base is not None:
            uploads = Uploads(streams, registry, local_directory(self._local, checkpoint_id))
            result = self._logged(resources.base, resources.part, checkpoint_id, uploads)
        else:
            result = self._materialized(resources, checkpoint_id, streams, registry)
        if isinstance(result.keyed, ChangelogStateBackendHandleImpl):
            snapshot = PreviousChangelog(result.keyed, (*result.streams, *result.reused))
            self._taken[checkpoint_id] = _Taken(snapshot, resources.position)
        return result

    def notify_checkpoint_complete(self, checkpoint_id: CheckpointId) -> None:
        """The next snapshot continues this one; one that was not taken here (a savepoint) changes nothing."""
        taken = self._taken.get(checkpoint_id)
        if taken is None or (self._base and checkpoint_id <= self._base.snapshot.handle.checkpoint_id):
            return
        self._base = taken
        self._taken = {number: t for number, t in self._taken.items() if number > checkpoint_id}
        self._backend.truncate(taken.position)
        self._materializer.notify_checkpoint_complete(checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: CheckpointId) -> None:
        """No snapshot may refer to this one's files."""
        self._taken.pop(checkpoint_id, None)
        self._materializer.notify_checkpoint_aborted(checkpoint_id)

    def close(self) -> None:
        """Ends what the materialisation needs."""
        self._materializer.close()

    def _new_part(self, base: _Taken) -> bytes | None:
        """The changes since the base as a stream, b'' if there are none; None if the log has come to its end."""
        changes = self._backend.changes_since(base.position)
        if changes is None:
            return None
        part = encode_changes(self._backend.schema, changes)
        handle = base.snapshot.handle
        size_bytes = len(part) + sum(stream.size_bytes for stream in log_streams(handle))
        parts = len(handle.log) + bool(part)
        within = size_bytes <= self._limits.size_bytes and parts <= self._limits.checkpoints
        return part if within or not part else None

    def _logged(
        self, base: PreviousChangelog, part: bytes, checkpoint_id: CheckpointId, uploads: Uploads
    ) -> SnapshotResult:
        log = base.handle.log
        with uploads:
            if part:
                written = uploads.write(lambda stream: stream.write(part), CheckpointedStateScope.SHARED)
                size_bytes = written.size_bytes
                log += (
                    ChangelogStateHandleStreamImpl(
                        self._backend.key_group_range,
                        ((written.handle, 0),),
                        size_bytes,
                        size_bytes,
                        f"{self._backend_uid}-{checkpoint_id}",
                    ),
                )
            handle = ChangelogStateBackendHandleImpl(
                self._backend.key_group_range,
                len(part),
                base.handle.materialized,
                log,
                base.handle.materialization_id,
                checkpoint_id,
                f"{self._backend_uid}-{checkpoint_id}",
            )
            reused = tuple(map(uploads.carry, base.streams))
            return SnapshotResult(handle, uploads.complete(), reused)

    def _materialized(
        self,
        resources: ChangelogResources,
        checkpoint_id: CheckpointId,
        streams: CheckpointStreamFactory,
        registry: CloseableRegistry,
    ) -> SnapshotResult:
        result = self._materializer.run(resources.whole, checkpoint_id, streams, registry)
        if result.keyed is None:
            return result
        whole = result.keyed
        assert isinstance(whole, MaterializedStateHandle)
        number = self._base.snapshot.handle.materialization_id + 1 if self._base else 1
        handle = ChangelogStateBackendHandleImpl(
            self._backend.key_group_range,
            sum(written.size_bytes for written in result.streams),
            (whole,),
            (),
            number,
            checkpoint_id,
            f"{self._backend_uid}-{checkpoint_id}",
        )
        return SnapshotResult(handle, result.streams, result.reused)
