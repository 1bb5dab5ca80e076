"""The changelog snapshot: the materialised state of an earlier checkpoint, and the log of the changes since then.

A snapshot writes only the changes of its interval. If the log has become too long, the snapshot materialises the state
anew (a batch job has no time for it between checkpoints), and the log begins empty.

Source: docs/spec/requirements.md R65 to R67; docs/spec/formats.md#change-log (ChangelogKeyedStateBackend).
"""

import sys
from dataclasses import dataclass
from typing import Any

from statelib.backends.wrappers.changelog import ChangelogKeyedStateBackend
from statelib.formats.changelog.encoder import encode_changes
from statelib.model.handles import (
    ChangelogStateBackendHandleImpl,
    ChangelogStateHandleStreamImpl,
    MaterializedStateHandle,
    log_streams,
)
from statelib.model.ids import CheckpointId
from statelib.snapshots.strategy import SnapshotResources, SnapshotResult, SnapshotStrategy
from statelib.snapshots.uploads.previous import PreviousChangelog
from statelib.snapshots.uploads.streams import Uploads, local_directory
from statelib.storage.closeables import CloseableRegistry
from statelib.storage.local.store import LocalSnapshotDirectories
from statelib.storage.ports.views import CheckpointedStateScope, CheckpointStreamFactory


@dataclass(frozen=True)
class MaterializationLimits:
    """The limits of the log. A snapshot that would exceed one of them materialises the state instead.

    Attributes:
        size_bytes: The greatest size of the log in bytes.
        checkpoints: The greatest number of parts of the log. A checkpoint without changes adds no part.
    """

    size_bytes: int
    checkpoints: int


NO_LIMITS = MaterializationLimits(sys.maxsize, sys.maxsize)
"""The limits of a log that is always continued."""


@dataclass(frozen=True)
class _Taken:
    """A snapshot of this backend, and the position in the log at which it ends, exclusive."""

    snapshot: PreviousChangelog
    position: int


@dataclass
class ChangelogResources:
    """The input of one snapshot: a new part of the log, or the frozen state to materialise.

    Attributes:
        position: The position in the log at which the snapshot ends, exclusive.
        base: The snapshot whose log is continued; None to materialise.
        part: The bytes of the new part; empty if nothing changed, or to materialise.
        whole: The frozen state to materialise; None if the log is continued.
    """

    position: int
    base: PreviousChangelog | None
    part: bytes
    whole: SnapshotResources | None

    def release(self) -> None:
        """Release the frozen state, if there is one."""
        if self.whole is not None:
            self.whole.release()


class ChangelogSnapshotStrategy:
    """The :class:`~statelib.snapshots.strategy.SnapshotStrategy` that writes only changes.

    They are the changes since the last completed snapshot. It materialises the whole state if there is no such
    snapshot, or if the log would exceed its limits.

    Args:
        backend: The backend that records the changes.
        backend_uid: The id of the backend in the handles.
        materializer: The strategy that writes the whole state of the same backend. All its streams must have the
            shared scope, because later checkpoints refer to them.
        limits: The limits of the log.
        restored: The snapshot that the backend was restored from when its log began, if later ones may refer to it.
            It is the base until a newer snapshot is notified as complete.
        local: The directories for local copies; None without local recovery.
    """

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
        """Encode the changes since the base. If they exceed the limits, freeze the state to materialise it instead."""
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
        """Make the snapshot the base of the next one. The id of a snapshot that another strategy took (a savepoint) is
        ignored."""
        taken = self._taken.get(checkpoint_id)
        if taken is None or (self._base and checkpoint_id <= self._base.snapshot.handle.checkpoint_id):
            return
        self._base = taken
        self._taken = {number: later for number, later in self._taken.items() if number > checkpoint_id}
        self._backend.truncate(taken.position)
        self._materializer.notify_checkpoint_complete(checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: CheckpointId) -> None:
        """Forget the snapshot: no later one may refer to its files."""
        self._taken.pop(checkpoint_id, None)
        self._materializer.notify_checkpoint_aborted(checkpoint_id)

    def close(self) -> None:
        """Close the strategy that materialises."""
        self._materializer.close()

    def _new_part(self, base: _Taken) -> bytes | None:
        """Return the encoded changes since ``base``, empty if there are none.

        Return None if the state must be materialised: the log with the changes would exceed the limits, or the backend
        cannot list the changes."""
        changes = self._backend.changes_since(base.position)
        if changes is None:
            return None
        part = encode_changes(self._backend.schema, changes)
        handle = base.snapshot.handle
        size_bytes = len(part) + sum(stream.size_bytes for stream in log_streams(handle))
        parts = len(handle.log) + bool(part)
        is_within = size_bytes <= self._limits.size_bytes and parts <= self._limits.checkpoints
        return part if is_within or not part else None

    def _logged(
        self, base: PreviousChangelog, part: bytes, checkpoint_id: CheckpointId, uploads: Uploads
    ) -> SnapshotResult:
        """Write ``part`` and return a snapshot whose log is that of ``base`` plus this part."""
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
        """Write the whole state and return a snapshot with an empty log."""
        result = self._materializer.run(resources.whole, checkpoint_id, streams, registry)
        if result.keyed is None:
            return result
        materialized = result.keyed
        assert isinstance(materialized, MaterializedStateHandle)
        materialization_id = self._base.snapshot.handle.materialization_id + 1 if self._base else 1
        handle = ChangelogStateBackendHandleImpl(
            self._backend.key_group_range,
            sum(written.size_bytes for written in result.streams),
            (materialized,),
            (),
            materialization_id,
            checkpoint_id,
            f"{self._backend_uid}-{checkpoint_id}",
        )
        return SnapshotResult(handle, result.streams, result.reused)
