"""Estimate how long a restore takes, from the newest restore of the pipeline that was measured."""

from collections.abc import Iterable
from dataclasses import dataclass

from statelib.errors import StatelibError
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import CheckpointManifest
from statelib.model.ids import PipelineName
from statelib.model.record import CheckpointState

MAX_MANIFESTS = 16
"""The maximum number of manifests that are read. Every checkpoint of a pipeline except the first restores state."""


@dataclass(frozen=True)
class Throughput:
    """The speed of a restore: ``size_bytes`` of state in ``restore_ms``, each summed over the subtasks of checkpoint
    ``checkpoint_id``."""

    checkpoint_id: int
    size_bytes: int
    restore_ms: int

    def slowest_ms(self, sizes: Iterable[int]) -> int:
        """Return the time in milliseconds, rounded up, in which the largest of ``sizes`` is read at this speed."""
        return -(-max(sizes, default=0) * self.restore_ms // self.size_bytes)


def newest_throughput(deployment: Deployment, pipeline: PipelineName) -> Throughput | None:
    """Return the speed of the newest restore from storage that a completed checkpoint or savepoint recorded; None if
    there is none. Snapshots that cannot be read are skipped: a plan does not fail because it has no estimate."""
    completed = deployment.catalog().list(pipeline, (CheckpointState.COMPLETED,))
    newest = sorted(completed, key=lambda record: record.checkpoint_id, reverse=True)[:MAX_MANIFESTS]
    for record in newest:
        try:
            manifest = deployment.open(record).manifest
        except StatelibError:
            continue
        if manifest is not None and (throughput := measured(manifest)) is not None:
            return throughput
    return None


def measured(manifest: CheckpointManifest) -> Throughput | None:
    """Return the speed of the subtasks that read everything from storage; None if there is none. Subtasks that read
    local copies are left out, because those are read at another speed."""
    remote = [
        restored
        for restored, origin in zip(manifest.restores, manifest.restored_from, strict=False)
        if restored is not None and origin == "remote"
    ]
    size_bytes, restore_ms = sum(r.size_bytes for r in remote), sum(r.restore_ms for r in remote)
    return Throughput(manifest.checkpoint_id, size_bytes, max(restore_ms, 1)) if size_bytes else None
