"""The operator that runs the pipelines of a group: one Spark job for all, and each step around it for each pipeline."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    AirflowTaskTimeout,
)

from statelib.model.amounts import number_of
from statelib_airflow.operators import StatelibSparkOperator
from statelib_airflow.runtime import runs, steps

if TYPE_CHECKING:
    from airflow.sdk import Context

    from statelib.flows.checkpoint.steps import Begun

Facts = dict[str, int | None]


class GroupCheckpointOperator(StatelibSparkOperator):
    """An operator that applies the run's data interval to each pipeline of a group and takes a checkpoint of each:
    begin, one Spark job for all, then check, register and publish. It waits for the end of the interval, as
    CheckpointOperator does.

    A pipeline that fails does not stop the others. The task then fails at the end and names those that failed, and a
    retry runs only these. After the final failure their checkpoints are aborted. A pipeline that has nothing to apply
    does not update its asset; if none has, the task is skipped. It returns ``id``, ``bytes``, ``keys`` and
    ``duration_ms`` of each checkpoint by pipeline. ``pipelines``: their names, or the paths of their files."""

    template_fields: Sequence[str] = (*SparkSubmitOperator.template_fields, "pipelines")

    def __init__(self, *, group: str, pipelines: Sequence[str], assume_ready: bool = False, **kwargs: Any) -> None:
        kwargs.setdefault("name", "statelib.{{ task.group }}.{{ task.task_id }}")
        super().__init__(script="group.py", **kwargs)
        self.group, self.pipelines, self.assume_ready = group, list(pipelines), assume_ready

    def execute(self, context: "Context") -> Any:
        """Run the pipelines. Return the facts about each checkpoint by pipeline."""
        self.wait_until_over(self.pipelines, context)
        errors: dict[str, Exception] = {}
        begun = self._begun(context, errors)
        try:
            facts = self._completed(begun, errors, context)
        except AirflowTaskTimeout:
            if runs.is_last_try(context):
                for pipeline, each in begun.items():
                    if not each.already_completed:
                        self._abort(pipeline, each, context)
            raise
        if errors:
            self._fail(begun, errors, context)
        if not facts:
            raise AirflowSkipException(f"no pipeline of group {self.group} has anything to apply")
        # Airflow would update the assets of these, too, without an interval.
        unchanged = [
            steps.state_asset(self.statelib.pipeline(pipeline).name)
            for pipeline in self.pipelines
            if pipeline not in facts
        ]
        self.outlets = [outlet for outlet in self.outlets if outlet not in unchanged]
        return facts

    def _completed(
        self, begun: "Mapping[str, Begun]", errors: dict[str, Exception], context: "Context"
    ) -> dict[str, Facts]:
        """Run the job, and complete the checkpoint of each pipeline. Errors are put into ``errors``."""
        facts: dict[str, Facts] = {}
        missing = self._published(begun, context)
        for pipeline, each in begun.items():
            try:
                facts[pipeline] = self._registered(pipeline, each, missing, context)
            except Exception as error:
                self.log.exception("%s failed", pipeline)
                errors[pipeline] = error
        return facts

    def _abort(self, pipeline: str, begun: "Begun", context: "Context") -> None:
        name = self.statelib.pipeline(pipeline).name
        steps.abort(self.statelib, name, begun.checkpoint_id, ["snapshot"], context)

    def _begun(self, context: "Context", errors: dict[str, Exception]) -> "dict[str, Begun]":
        """Begin a checkpoint of each pipeline. Errors are put into ``errors``."""
        begun = {}
        for pipeline in self.pipelines:
            try:
                begun[pipeline] = steps.begin_checkpoint(
                    self.statelib, pipeline, context, assume_ready=self.assume_ready
                )
            except AirflowSkipException as skipped:
                self.log.info("%s: %s", pipeline, skipped)
            except Exception as error:
                self.log.exception("%s failed", pipeline)
                errors[pipeline] = error
        return begun

    def _published(self, begun: "Mapping[str, Begun]", context: "Context") -> Exception | None:
        """Run the job. Return its error: some snapshots are not published then, and their checks say which."""
        hook = self.statelib
        new = {pipeline: each for pipeline, each in begun.items() if not each.already_completed}
        if not new:
            return None
        members = {hook.pipeline(pipeline).path: int(each.checkpoint_id) for pipeline, each in new.items()}
        self.application_args = ["--group", self.group, "--members", json.dumps(members)]
        try:
            super().execute(context)
        except Exception as error:  # noqa: BLE001 - the job may have published some snapshots
            return error
        return None

    def _registered(self, pipeline: str, begun: "Begun", missing: Exception | None, context: "Context") -> Facts:
        hook = self.statelib
        name = hook.pipeline(pipeline).name
        if begun.already_completed:
            facts = steps.announce_again(hook, name, begun.checkpoint_id, context)
        else:
            if missing is not None and not steps.is_published(hook, name, begun.checkpoint_id):
                raise missing
            report = steps.check(hook, pipeline, begun.checkpoint_id)
            facts = steps.register(hook, pipeline, begun.checkpoint_id, report, context)
        steps.publish(hook, pipeline)
        return facts

    def _fail(self, begun: "Mapping[str, Begun]", errors: Mapping[str, Exception], context: "Context") -> None:
        """Abort the checkpoints of the pipelines that no retry will repair, and raise an error that names all."""
        final = all(isinstance(error, AirflowFailException) for error in errors.values())
        for pipeline, error in errors.items():
            each = begun.get(pipeline)
            if each is not None and (final or runs.is_last_try(context) or isinstance(error, AirflowFailException)):
                self._abort(pipeline, each, context)
        named = "; ".join(f"{pipeline}: {error}" for pipeline, error in sorted(errors.items()))
        message = f"{len(errors)} of {number_of(len(self.pipelines), 'pipeline')} of group {self.group} failed: {named}"
        raise (AirflowFailException if final else AirflowException)(message)
