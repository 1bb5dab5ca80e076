"""What tasks tell of their checkpoint: one line each, which never fails the task that says it.

Metrics go where Airflow's own go (``[metrics]`` in its configuration), lineage to where its OpenLineage provider sends,
log lines to the task's log, with the checkpoint in each.
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
    """A :class:`~statelib.telemetry.metrics.Telemetry` over Airflow's metrics, which do nothing when they are off."""

    def emit(self, metric: "Metric", value: float, tags: "Tags") -> None:

        from airflow.providers.common.compat.sdk import Stats

        from statelib.telemetry.metrics import MetricKind

        if metric.kind is MetricKind.COUNTER:
            Stats.incr(metric.name, int(value), tags=dict(tags))
        elif metric.kind is MetricKind.GAUGE:
            Stats.gauge(metric.name, value, tags=dict(tags))
        else:
            Stats.timing(metric.name, value, tags=dict(tags))


def in_log(pipeline: str, checkpoint_id: int, attempt: str | None = None) -> None:
    """From here on every line of the task's log is of this checkpoint, and shows no password of the deployment."""
    with _harmless("log fields"):
        from statelib.telemetry.secrets import secrets

        for secret in secrets(os.environ):
            mask_secret(secret)
        more = {} if attempt is None else {"attempt": attempt}
        bind_contextvars(pipeline=pipeline, checkpoint_id=int(checkpoint_id), **more)


def job_in_log(context: "Context") -> None:
    """As :func:`in_log`, before the Spark job of the run's checkpoint: an operator's ``pre_execute``."""
    with _harmless("log fields"):
        pulled = context["ti"].xcom_pull(task_ids="begin", key="checkpoint_id")
        if pulled is not None:
            in_log(context["ti"].dag_id.rpartition(".")[0], pulled)


def registered(record: "CheckpointRecord", hook: StatelibHook, pipeline: "Pipeline") -> None:
    """Metrics and lineage of a checkpoint or savepoint that has just been committed."""
    with _harmless("metrics"):
        from statelib.flows.views.metrics import checkpoint_completed

        checkpoint_completed(_telemetry(), record)
    with _harmless("lineage"):
        if lineage.is_active():
            lineage.send(hook.deployment(), pipeline, record)


def aborted(hook: StatelibHook, pipeline: str) -> AbstractContextManager[None]:
    """Metrics of what is aborted within the block, by whom ever."""
    with _harmless("metrics"):
        from statelib.flows.views.metrics import counting_aborted

        return counting_aborted(_telemetry(), hook.deployment().catalog(), pipeline)
    return nullcontext()


def judged(pipeline: str, results: "Sequence[QualityResult]") -> None:
    with _harmless("metrics"):
        from statelib.flows.views.metrics import gate_judged

        gate_judged(_telemetry(), pipeline, results)


def verified(found: "VerifiedPipeline") -> None:
    with _harmless("metrics"):
        from statelib.flows.views.metrics import verified as told

        told(_telemetry(), found)


def restored(pipeline: str) -> None:
    with _harmless("metrics"):
        from statelib.flows.views.metrics import restored as told

        told(_telemetry(), pipeline)


def collected(found: "Sequence[CollectedGarbage]") -> None:
    with _harmless("metrics"):
        from statelib.flows.views.metrics import garbage_collected

        garbage_collected(_telemetry(), found)


def orphans(found: "Sequence[Orphans]") -> None:
    with _harmless("metrics"):
        from statelib.flows.views.metrics import orphans_found

        orphans_found(_telemetry(), found)


def _telemetry() -> "Telemetry":
    from statelib.telemetry.metrics import Harmless

    return Harmless(AirflowTelemetry())


@contextmanager
def _harmless(what: str) -> Iterator[None]:
    """The checkpoint is committed, or given up: nothing that is told of it may change that."""
    try:
        yield
    except Exception:
        log.warning("%s of this checkpoint could not be told", what, exc_info=True)
