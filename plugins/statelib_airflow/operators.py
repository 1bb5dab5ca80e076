"""Operators for a team's own DAGs: a checkpoint, a savepoint, a correction, a restore, a cleanup and a verification as
one task.

Each runs the steps (:mod:`statelib_airflow.runtime.steps`) that are separate tasks in the generated DAGs.
"""

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import AirflowFailException, AirflowTaskTimeout
from airflow.sdk import BaseOperator

from statelib_airflow.hooks import StatelibHook, is_path
from statelib_airflow.runtime import cleaning, intervals, runs, steps
from statelib_airflow.runtime.connect_client import ConnectClient, refuse_arguments, server_url
from statelib_airflow.runtime.jobs import job

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk import Context

    from statelib.flows.checkpoint.steps import Begun

SNAPSHOT = "snapshot.py"
"""The job that writes a checkpoint or savepoint."""
_OF_SPARK_SUBMIT = (
    "conf", "files", "py_files", "_archives", "driver_class_path", "jars", "packages", "exclude_packages",
    "_repositories", "_total_executor_cores", "_executor_cores", "_executor_memory", "_driver_memory",
    "_num_executors", "keytab", "principal", "proxy_user", "properties_file", "_yarn_queue", "_deploy_mode",
)  # fmt: skip
"""The attributes of SparkSubmitOperator that have no meaning for a job through Spark Connect."""


class StatelibSparkOperator(SparkSubmitOperator):
    """An operator that submits one of statelib's Spark jobs. Everything else is as in SparkSubmitOperator: master,
    deploy mode and resources come from its connection (``conn_id``, by default ``spark_default``), from its arguments
    and from Spark's own configuration.

    If the connection is of type Spark Connect, the job runs in a process of Python that is a client of the server. What
    only spark-submit can use of the arguments is then refused.

    When the task runs, the settings of the statelib connection are added to the driver's environment. They are in no
    template field, and so are never shown.

    In deploy mode ``cluster`` the provider reattaches a retry to the driver of the try before (``durable``). Here it
    does so only for a snapshot with the same arguments, which is a snapshot of the same checkpoint: the files of a
    driver of another checkpoint are never checked, and a rehearsal is only valid for the storage at its own time."""

    def __init__(self, *, script: str, statelib_conn_id: str | None = None, **kwargs: Any) -> None:
        super().__init__(application=job(script), **kwargs)
        self.statelib_conn_id = statelib_conn_id
        self._reattaches = script == SNAPSHOT
        self._client: ConnectClient | None = None

    @property
    def statelib(self) -> StatelibHook:
        return StatelibHook(self.statelib_conn_id)

    def _get_hook(self) -> "SparkSubmitHook":
        hook = super()._get_hook()
        hook._env_vars = {**(self.env_vars or {}), **self.statelib.settings()} or None
        if hook._is_yarn_cluster_mode and not hook._yarn_track_via_rm_api:
            self.durable = False  # the provider finds no driver again then, and refuses to run with it
        return hook

    def execute(self, context: "Context") -> Any:
        """Submit the job and wait for it, or wait for the driver of an earlier try with the same arguments."""
        url = server_url(self._conn_id)
        if url is not None:
            refuse_arguments({name.lstrip("_"): getattr(self, name) for name in _OF_SPARK_SUBMIT})
            self._client = ConnectClient(url, {**(self.env_vars or {}), **self.statelib.settings()})
            return self._client.run(self.application, list(map(str, self.application_args or [])), self.log.info)
        if self._reattaches:
            submitted = json.dumps([self.application, *map(str, self.application_args or [])])
            digest = hashlib.sha256(submitted.encode()).hexdigest()[:16]
            self.external_id_key = f"{SparkSubmitOperator.external_id_key}.{digest}"
            self._K8S_DRIVER_STATUS_KEY = f"{SparkSubmitOperator._K8S_DRIVER_STATUS_KEY}.{digest}"
        else:
            self.durable = False
        return super().execute(context)

    def wait_until_over(self, pipelines: Sequence[str], context: "Context") -> None:
        """Defer the task until the interval of the run is over for these pipelines, which needs no worker."""
        end_ms = intervals.end_to_wait_for(self.statelib, pipelines, context)
        if end_ms is not None:
            intervals.defer_until(self, end_ms)

    def when_over(self, context: "Context", event: Any) -> Any:  # noqa: ARG002 - Airflow's signature
        """Run the task, because the interval is over."""
        return self.execute(context)

    def on_kill(self) -> None:
        """End the client of a Spark Connect server, or what SparkSubmitOperator has started."""
        if self._client is not None:
            self._client.stop()
        else:
            super().on_kill()


class CheckpointOperator(StatelibSparkOperator):
    """An operator that applies the run's data interval to a pipeline's state and takes a checkpoint: begin,
    spark-submit, check, register, publish. After a final failure before it is registered, the checkpoint is aborted. It
    returns ``id``, ``bytes``, ``keys`` and ``duration_ms``, which the asset event has too.

    ``pipeline``: its name, or the path of its file. Safe to retry and to clear: a retry begins a checkpoint that
    supersedes the one of the try before, whose driver may go on in the cluster but can publish nothing that counts, and
    an interval that the state holds is not applied again. Give the DAG a timetable with data intervals
    (CronDataIntervalTimetable) and ``max_active_runs=1``. Events that are not complete, as ``ready`` of a source in the
    pipeline file says it, fail the try; let SourceReadyOperator wait before, and then ``assume_ready``. It
    waits in the triggerer for the end of an interval that an update of an asset or a form names."""

    template_fields: Sequence[str] = (*SparkSubmitOperator.template_fields, "pipeline")

    def __init__(self, *, pipeline: str, assume_ready: bool = False, **kwargs: Any) -> None:
        kwargs.setdefault("name", "statelib.{{ task.pipeline }}.{{ task.task_id }}")
        super().__init__(script=SNAPSHOT, **kwargs)
        self.pipeline, self.assume_ready = pipeline, assume_ready
        if type(self).updates_asset and not is_path(pipeline) and not self.outlets:
            self.outlets.append(steps.state_asset(pipeline))

    updates_asset = True

    def begin(self, context: "Context") -> "Begun":
        self.wait_until_over([self.pipeline], context)
        return steps.begin_checkpoint(self.statelib, self.pipeline, context, assume_ready=self.assume_ready)

    def execute(self, context: "Context") -> Any:
        hook = self.statelib
        pipeline = hook.pipeline(self.pipeline)
        begun = self.begin(context)
        if begun.already_completed:
            facts = steps.announce_again(hook, pipeline.name, begun.checkpoint_id, context)
            self._publish(hook)
            return facts
        self.application_args = ["--pipeline", pipeline.path, "--checkpoint-id", str(begun.checkpoint_id)]
        failing = "snapshot"
        try:
            super().execute(context)
            failing = "check_completeness"
            report = steps.check(hook, self.pipeline, begun.checkpoint_id)
            failing = "register"
            facts = steps.register(hook, self.pipeline, begun.checkpoint_id, report, context)
        except (Exception, AirflowTaskTimeout) as error:
            if isinstance(error, AirflowFailException) or runs.is_last_try(context):
                steps.abort(hook, pipeline.name, begun.checkpoint_id, [failing], context)
            raise
        self._publish(hook)
        return facts

    def _publish(self, hook: StatelibHook) -> None:
        if type(self).updates_asset:
            steps.publish(hook, self.pipeline)


class SavepointOperator(CheckpointOperator):
    """An operator that writes a savepoint of the pipeline's present state: ``format`` canonical (every backend and
    Flink read it) or native, to the directory ``target`` (None: the storage's own place for savepoints). Its user's to
    delete. ``stop``: ``suspend`` or ``drain`` let the pipeline begin no checkpoints from then on, ``no`` lets it go
    on."""

    template_fields: Sequence[str] = (*CheckpointOperator.template_fields, "format", "target", "note", "stop")
    updates_asset = False

    def __init__(
        self,
        *,
        pipeline: str,
        format: str = "canonical",  # noqa: A002 - Flink's word for it
        target: str | None = None,
        note: str = "",
        stop: str = "no",
        **kwargs: Any,
    ) -> None:
        super().__init__(pipeline=pipeline, **kwargs)
        self.format, self.target, self.note, self.stop = format, target, note, stop

    def begin(self, context: "Context") -> "Begun":
        request = {"format": self.format, "target": self.target, "note": self.note, "stop": self.stop}
        return steps.begin_savepoint(self.statelib, self.pipeline, request, context)


class MendOperator(CheckpointOperator):
    """An operator that corrects one interval whose source has changed, without a replay of the later ones, and takes a
    checkpoint of the result. ``interval``: its start, in the schedule's time zone unless it has an offset. Nobody is
    asked; the XCom ``plan`` says what is read. Returns the same as CheckpointOperator.

    Safe to retry and to clear: a correction is made of the source as it is, so that a repeated one changes nothing.
    ``checkpoint.mendable`` of the pipeline file says for how long an interval can be corrected."""

    template_fields: Sequence[str] = (*CheckpointOperator.template_fields, "interval")

    def __init__(self, *, pipeline: str, interval: str, **kwargs: Any) -> None:
        super().__init__(pipeline=pipeline, **kwargs)
        self.interval = interval

    def begin(self, context: "Context") -> "Begun":
        plan = steps.plan_mend(self.statelib, self.pipeline, self.interval)
        context["ti"].xcom_push("plan", plan.describe())
        return steps.begin_mend(self.statelib, self.pipeline, plan, context)


class RestoreOperator(StatelibSparkOperator):
    """An operator that restores a pipeline's state to ``checkpoint`` (an id, or an absolute path or URI): plan, prove
    with Spark that it restores (unless ``rehearse`` is off), make it the head. Returns the head. It holds the
    checkpoint while it works, against retention and gc. A retry plans anew, but changes nothing if a try before has
    restored; a task that a person clears restores again."""

    template_fields: Sequence[str] = (*SparkSubmitOperator.template_fields, "pipeline", "checkpoint", "parallelism")

    def __init__(
        self,
        *,
        pipeline: str,
        checkpoint: str,
        claim_mode: str = "NO_CLAIM",
        parallelism: int | str | None = None,
        allow_non_restored_state: bool = False,
        rehearse: bool = True,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("name", "statelib.{{ task.pipeline }}.{{ task.task_id }}")
        super().__init__(script="rehearse_restore.py", **kwargs)
        self.pipeline, self.checkpoint, self.claim_mode = pipeline, checkpoint, claim_mode
        self.parallelism, self.allow_non_restored_state = parallelism, allow_non_restored_state
        self.rehearse = rehearse

    def execute(self, context: "Context") -> Any:
        hook = self.statelib
        wanted = int(self.parallelism) if self.parallelism not in (None, "", "None") else None
        mode, allowed = self.claim_mode, self.allow_non_restored_state
        request = steps.RestoreRequest(str(self.checkpoint), runs.wish_key(context), mode, wanted, allowed)
        plan = steps.plan_restore(hook, self.pipeline, request, context)
        try:
            if self.rehearse:
                self.application_args = request.rehearsal(hook.pipeline(self.pipeline).path, plan.parallelism)
                super().execute(context)
            return steps.switch(hook, self.pipeline, plan, context)
        except BaseException:
            with suppress(Exception):  # what has failed says more, and the hold ends by itself in a day
                steps.release(hook, plan, context)
            raise


class CleanupOperator(BaseOperator):
    """An operator that applies ``checkpoint.retain`` of the pipeline files, deletes the files that nothing needs any
    more, and looks for orphans. Orphans are deleted only with ``delete_orphans``. ``pipeline``: None stands for all."""

    template_fields: Sequence[str] = ("pipeline",)

    def __init__(
        self,
        *,
        pipeline: str | None = None,
        delete_orphans: bool = False,
        grace_hours: int = 168,
        statelib_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.pipeline, self.statelib_conn_id = pipeline, statelib_conn_id
        self.delete_orphans, self.grace_hours = delete_orphans, grace_hours

    def execute(self, context: "Context") -> dict[str, Any]:  # noqa: ARG002 - Airflow's signature
        hook = StatelibHook(self.statelib_conn_id)
        sweep = partial(cleaning.orphans, grace_hours=self.grace_hours, dry_run=not self.delete_orphans)
        return cleaning.one_after_another(
            {"retention": cleaning.retention, "gc": cleaning.gc, "orphans": sweep}, hook, self.pipeline
        )


class VerifyOperator(BaseOperator):
    """An operator that verifies every completed checkpoint of a pipeline: all files and their sizes, and the bytes of a
    subset of them, as ``statelib verify --read-data-subset`` writes it: ``5%``, or one part, such as ``1/20``; with
    ``100%`` every entry too. Fails if anything is damaged; the report is its XCom ``report`` either way."""

    template_fields: Sequence[str] = ("pipeline", "read_data_subset")

    def __init__(
        self, *, pipeline: str, read_data_subset: str = "100%", statelib_conn_id: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.pipeline, self.read_data_subset, self.statelib_conn_id = pipeline, read_data_subset, statelib_conn_id

    def execute(self, context: "Context") -> dict[str, Any]:
        hook = StatelibHook(self.statelib_conn_id)
        report = cleaning.verify(hook, self.pipeline, self.read_data_subset, runs.run_id(context))
        context["ti"].xcom_push("report", report)
        if report["problems"]:
            damaged = "\n".join(report["problems"])
            raise AirflowFailException(f"{self.pipeline}: {len(report['problems'])} damaged:\n{damaged}")
        return report
