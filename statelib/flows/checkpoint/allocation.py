"""The allocation of a checkpoint of an interval, of a correction or of a seed."""

from statelib.definition.pipeline import Pipeline
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import DataInterval, SnapshotKind
from statelib.model.record import BeginRequest, CheckpointRecord, PipelineHead


def allocate_checkpoint(
    deployment: Deployment,
    pipeline: Pipeline,
    head: PipelineHead,
    owner: str,
    *,
    key: str,
    interval: DataInterval | None = None,
    mends: DataInterval | None = None,
    note: str = "",
) -> CheckpointRecord:
    """Allocate a checkpoint and its location, and return its record. It may be completed already, if the ``key`` is one
    of before. ``head``: the head of the pipeline when the checkpoint was decided. ``mends``: the interval that it
    corrects, in place of ``interval``.

    Raises as :func:`statelib.catalog.commit.admission.admit`."""
    request = BeginRequest(
        pipeline=pipeline.name,
        kind=SnapshotKind.CHECKPOINT,
        interval=interval,
        mends=mends,
        strategy=pipeline.checkpoint.strategy,
        parallelism=head.parallelism or pipeline.parallelism,
        owner=owner,
        key=key,
        note=note,
        timeout_ms=pipeline.checkpoint.timeout_s * 1000,
        tolerable_failures=pipeline.checkpoint.tolerable_failures,
        decided_at=head,
    )
    storage = deployment.storage(pipeline)
    return deployment.catalog().begin(request, lambda number: storage.initialize_location(number).directory)
