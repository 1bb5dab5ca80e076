"""How long a restore takes, from how long the pipeline's newest one took."""

from collections.abc import Iterable
from dataclasses import dataclass

from statelib.catalog.catalog import Catalog
from statelib.errors import StatelibError
from statelib.model.checkpoint import CheckpointManifest
from statelib.model.ids import PipelineName
from statelib.model.record import CheckpointState
from statelib.savepoints.opened import open_checkpoint

LOOKED_AT = 16
"""Checkpoints whose manifests are read, at most: in a pipeline that runs, all but the first restored."""


@dataclass(frozen=True)
class Throughput:
    """``size_bytes`` of state were restored in ``restore_ms``, summed over the subtasks of ``checkpoint_id``."""

    checkpoint_id: int
    size_bytes: int
    restore_ms: int

    def slowest_ms(self, sizes: Iterable[int]) -> int:
        """How long the subtask that reads most takes, if it reads as fast; rounded up."""
        return -(-max(sizes, default=0) * self.restore_ms // self.size_bytes)


def newest_throughput(catalog: Catalog, pipeline: PipelineName, storage_root: str) -> Throughput | None:
    """Of the newest completed checkpoint or savepoint that was built from storage; None if none was measured.

    What cannot be read tells nothing: a plan does not fail for want of an estimate."""
    completed = catalog.list(pipeline, (CheckpointState.COMPLETED,))
    newest = sorted(completed, key=lambda record: record.checkpoint_id, reverse=True)[:LOOKED_AT]
    for record in newest:
        try:
            manifest = open_checkpoint(record.directory, own=True, storage_root=storage_root).manifest
        except StatelibError:
            continue
        if manifest is not None and (found := measured(manifest)) is not None:
            return found
    return None


def measured(manifest: CheckpointManifest) -> Throughput | None:
    """Of the subtasks that read all from storage: copies on a worker's own disk say nothing of it."""
    remote = [
        restored
        for restored, origin in zip(manifest.restores, manifest.restored_from, strict=False)
        if restored is not None and origin == "remote"
    ]
    size_bytes, restore_ms = sum(r.size_bytes for r in remote), sum(r.restore_ms for r in remote)
    return Throughput(manifest.checkpoint_id, size_bytes, max(restore_ms, 1)) if size_bytes else None
