"""Metrics, lineage and log fields that a task emits about its checkpoint. A failure to emit never fails the task.

Metrics go where Airflow's own metrics go (``[metrics]`` in its configuration), lineage goes where the OpenLineage
provider sends it, and log lines go to the task's log, each with the checkpoint's id.
"""

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from airflow.sdk.log import mask_secret
from structlog.contextvars import bind_contextvars

from statelib_airflow.hooks import StatelibHook
from statelib_airflow.runtime import lineage

if TYPE_CHECKING:
    from airflow.sdk import Context

    from statelib.definition.pipeline import Pipeline
    from statelib.flows.cleanup.garbage import CollectedGarbage
    from statelib.flows.cleanup.orphans import Orphans
    from statelib.flows.views.verification import VerifiedPipeline
    from statelib.model.quality import QualityResult
    from statelib.model.record import CheckpointRecord
    from statelib.telemetry.metrics import Metric, Tags, Telemetry

log = logging.getLogger(__name__)


class AirflowTelemetry:
    """A :class:`~statelib.telemetry.metrics.Telemetry` that emits through Airflow's metrics. They may be off."""

    def emit(self, metric: "Metric", value: float, tags: "Tags") -> None:

        from airflow.providers.common.compat.sdk import Stats

        from statelib.telemetry.metrics import MetricKind

        if metric.kind is MetricKind.COUNTER:
            Stats.incr(metric.name, int(value), tags=dict(tags))
        elif metric.kind is MetricKind.GAUGE:
            Stats.gauge(metric.name, value, tags=dict(tags))
        else:
            Stats.timing(metric.name, value, tags=dict(tags))


def in_log(pipeline: str, checkpoint_id: int) -> None:
    """Add the checkpoint to every following line of the task's log, and mask the passwords of the deployment in it."""
    with _harmless("log fields"):
        from statelib.telemetry.secrets import secrets

        for secret in secrets(os.environ):
            mask_secret(secret)
        bind_contextvars(pipeline=pipeline, checkpoint_id=int(checkpoint_id))


def job_in_log(context: "Context") -> None:
    """Call :func:`in_log` for the checkpoint of the run. It is the ``pre_execute`` of the Spark job's operator."""
    with _harmless("log fields"):
        pulled = context["ti"].xcom_pull(task_ids="begin", key="checkpoint_id")
        if pulled is not None:
            in_log(context["ti"].dag_id.rpartition(".")[0], pulled)


def registered(record: "CheckpointRecord", hook: StatelibHook, pipeline: "Pipeline") -> None:
    """Emit metrics and lineage of a checkpoint or savepoint that has just been committed."""
    with _harmless("metrics"):
        from statelib.flows.views.metrics import checkpoint_completed

        checkpoint_completed(_telemetry(), record)
    with _harmless("lineage"):
        if lineage.is_active():
            lineage.send(hook.deployment(), pipeline, record)


def aborted(hook: StatelibHook, pipeline: str) -> AbstractContextManager[None]:
    """Return a context manager that emits metrics of the pipeline's checkpoints that are aborted within its block."""
    with _harmless("metrics"):
        from statelib.flows.views.metrics import counting_aborted

        return counting_aborted(_telemetry(), hook.deployment().catalog(), pipeline)
    return nullcontext()


def judged(pipeline: str, results: "Sequence[QualityResult]") -> None:
    with _harmless("metrics"):
        from statelib.flows.views.metrics import gate_judged

        gate_judged(_telemetry(), pipeline, results)


def verified(result: "VerifiedPipeline") -> None:
    with _harmless("metrics"):
        from statelib.flows.views.metrics import verified as emit_verified

        emit_verified(_telemetry(), result)


def restored(pipeline: str) -> None:
    with _harmless("metrics"):
        from statelib.flows.views.metrics import restored as emit_restored

        emit_restored(_telemetry(), pipeline)


def collected(results: "Sequence[CollectedGarbage]") -> None:
    with _harmless("metrics"):
        from statelib.flows.views.metrics import garbage_collected

        garbage_collected(_telemetry(), results)


def orphans(results: "Sequence[Orphans]") -> None:
    with _harmless("metrics"):
        from statelib.flows.views.metrics import orphans_found

        orphans_found(_telemetry(), results)


def _telemetry() -> "Telemetry":
    from statelib.telemetry.metrics import Harmless

    return Harmless(AirflowTelemetry())


@contextmanager
def _harmless(what: str) -> Iterator[None]:
    """Log an exception of the block, and raise nothing: the checkpoint is committed or aborted already."""
    try:
        yield
    except Exception:
        log.warning("%s of this checkpoint could not be emitted", what, exc_info=True)
