"""Protect the checkpoint that a restore reads from retention and gc while the restore is under way."""

from collections.abc import Iterator
from contextlib import contextmanager

from statelib.flows.restore.plan import RestorePlan
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.moments import HOUR_MS

HOLD_MS = 24 * HOUR_MS
"""The time in milliseconds after which retention may delete the source of a restore that never ended."""


def hold_source(deployment: Deployment, plan: RestorePlan, holder: str) -> None:
    """Protect the plan's checkpoint from retention and gc until :func:`release_source`, for :data:`HOLD_MS` at most. It
    may be a checkpoint of another pipeline. A snapshot that is not in the catalog belongs to its user and needs no
    protection.

    Raises InvalidRequestError (``not-completed``) if retention chose the checkpoint since it was planned."""
    cleanup = deployment.catalog().cleanup
    for pipeline, checkpoint_id in _sources(deployment, plan):
        cleanup.pin(pipeline, checkpoint_id, f"restore:{holder}", HOLD_MS)


def release_source(deployment: Deployment, plan: RestorePlan, holder: str) -> None:
    """End the protection by :func:`hold_source`. As the pipeline's head, the checkpoint needs none."""
    cleanup = deployment.catalog().cleanup
    for pipeline, _ in _sources(deployment, plan):
        cleanup.unpin(pipeline, f"restore:{holder}")


@contextmanager
def holding_source(deployment: Deployment, plan: RestorePlan, holder: str) -> Iterator[None]:
    """Protect the plan's checkpoint while the block runs, whether it succeeds or fails."""
    hold_source(deployment, plan, holder)
    try:
        yield
    finally:
        release_source(deployment, plan, holder)


def _sources(deployment: Deployment, plan: RestorePlan) -> list[tuple[PipelineName, CheckpointId]]:
    """Return (pipeline, id) of each row that the catalog has of the plan's snapshot."""
    if plan.checkpoint_id is not None:
        return [(PipelineName(plan.pipeline), CheckpointId(plan.checkpoint_id))]
    return deployment.catalog().cleanup.living_in(plan.directory)
