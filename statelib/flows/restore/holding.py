"""Protect the checkpoint that a restore reads from retention and gc while the restore is under way."""

from collections.abc import Iterator
from contextlib import contextmanager

from statelib.flows.restore.plan import RestorePlan
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId, PipelineName

HOLD_MS = 24 * 3_600_000
"""How long a restore that never came to its end keeps its source from being let go of."""


def hold_source(deployment: Deployment, plan: RestorePlan, holder: str) -> None:
    """Keep retention and gc away from the plan's checkpoint until :func:`release_source`, a day at most; also from
    another pipeline's, if it is that.

    A snapshot that is not in the catalog belongs to its user and needs no holding. Raises
    InvalidRequestError (``not-completed``) if the checkpoint was let go of since it was planned.
    """
    cleanup = deployment.catalog().cleanup
    for pipeline, checkpoint_id in _sources(deployment, plan):
        cleanup.pin(pipeline, checkpoint_id, f"restore:{holder}", HOLD_MS)


def release_source(deployment: Deployment, plan: RestorePlan, holder: str) -> None:
    """The restore is over: as the head, its checkpoint is safe."""
    cleanup = deployment.catalog().cleanup
    for pipeline, _ in _sources(deployment, plan):
        cleanup.unpin(pipeline, f"restore:{holder}")


@contextmanager
def holding_source(deployment: Deployment, plan: RestorePlan, holder: str) -> Iterator[None]:
    """Hold the plan's checkpoint while the block runs, however it ends."""
    hold_source(deployment, plan, holder)
    try:
        yield
    finally:
        release_source(deployment, plan, holder)


def _sources(deployment: Deployment, plan: RestorePlan) -> list[tuple[PipelineName, CheckpointId]]:
    """The catalog's rows of the plan's snapshot."""
    if plan.checkpoint_id is not None:
        return [(PipelineName(plan.pipeline), CheckpointId(plan.checkpoint_id))]
    return deployment.catalog().cleanup.living_in(plan.directory)
