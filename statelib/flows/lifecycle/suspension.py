"""The story of a pipeline as a whole: whether it runs, and how it is stopped and started again."""

from dataclasses import dataclass

from statelib.catalog.commit.cleanup import Situation
from statelib.coordinator.termination import job_status, last_interval
from statelib.definition.pipeline import Pipeline
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import DataInterval
from statelib.model.ids import PipelineName
from statelib.model.moments import epoch_ms
from statelib.model.record import PipelineHead
from statelib.model.termination import JobStatus


@dataclass(frozen=True)
class PipelineStatus:
    """Where a pipeline stands. ``failures``: checkpoints that failed in a row. ``last``: the last interval applied."""

    status: JobStatus
    head: PipelineHead
    failures: int
    last: DataInterval | None


def status(deployment: Deployment, pipeline: Pipeline) -> PipelineStatus:
    """Raises NotFoundError (``no-pipeline``) for one that never began a checkpoint."""
    situation = deployment.catalog().cleanup.situation(PipelineName(pipeline.name))
    last = last_interval(situation.records, situation.head.head)
    return PipelineStatus(status_of(pipeline, situation), situation.head, situation.failures, last)


def status_of(pipeline: Pipeline, situation: Situation) -> JobStatus:
    """What the pipeline file and the catalog say together."""
    end = pipeline.schedule.end if pipeline.schedule else None
    return job_status(
        cancelled=situation.head.cancelled,
        failures=situation.failures,
        tolerable_failures=pipeline.checkpoint.tolerable_failures,
        last=last_interval(situation.records, situation.head.head),
        schedule_end_ms=None if end is None else epoch_ms(end),
    )


def cancel(deployment: Deployment, pipeline: str, owner: str) -> PipelineHead:
    """Begin no checkpoints any more, and abort the pending one; savepoints may still be taken.

    What becomes of the checkpoints is said by ``checkpoint.retain.after_termination`` and done by ``state_cleanup``."""
    return deployment.catalog().suspension.cancel(PipelineName(pipeline), owner)


def resume(deployment: Deployment, pipeline: str, owner: str, *, from_nothing: bool = False) -> PipelineHead:
    """Begin checkpoints again, after a cancellation or too many failures.

    Raises as :meth:`statelib.catalog.commit.suspension.Suspension.resume`."""
    return deployment.catalog().suspension.resume(PipelineName(pipeline), owner, from_nothing=from_nothing)
