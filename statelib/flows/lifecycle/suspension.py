"""Find out whether a pipeline runs, cancel it, and resume it."""

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
    """The status of a pipeline. ``failures``: the number of checkpoints that failed in a row. ``last``: the last
    interval that was applied."""

    status: JobStatus
    head: PipelineHead
    failures: int
    last: DataInterval | None


def status(deployment: Deployment, pipeline: Pipeline) -> PipelineStatus:
    """Return the status of a pipeline. Raises NotFoundError (``no-pipeline``) if it never began a checkpoint."""
    situation = deployment.catalog().cleanup.situation(pipeline.name)
    last = last_interval(situation.records, situation.head.head)
    return PipelineStatus(status_of(pipeline, situation), situation.head, situation.failures, last)


def status_of(pipeline: Pipeline, situation: Situation) -> JobStatus:
    """Return the status that follows from the pipeline file and the catalog."""
    end = pipeline.schedule.end if pipeline.schedule else None
    return job_status(
        cancelled=situation.head.cancelled,
        failures=situation.failures,
        tolerable_failures=pipeline.checkpoint.tolerable_failures,
        last=last_interval(situation.records, situation.head.head),
        schedule_end_ms=None if end is None else epoch_ms(end),
    )


def cancel(deployment: Deployment, pipeline: str, owner: str) -> PipelineHead:
    """Cancel a pipeline: abort its pending checkpoint and refuse new ones. Savepoints may still be taken. Return the
    head.

    ``checkpoint.retain.after_termination`` sets what is kept of the checkpoints; ``state_cleanup`` applies it."""
    return deployment.catalog().suspension.cancel(PipelineName(pipeline), owner)


def resume(deployment: Deployment, pipeline: str, owner: str, *, from_nothing: bool = False) -> PipelineHead:
    """Allow checkpoints again after a cancellation or too many failures. Return the head. ``from_nothing``: continue
    without the state.

    Raises as :meth:`statelib.catalog.commit.suspension.Suspension.resume`."""
    return deployment.catalog().suspension.resume(PipelineName(pipeline), owner, from_nothing=from_nothing)
