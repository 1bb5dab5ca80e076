"""The DAGs of each pipeline file: checkpoint, savepoint, restore, dispose, and mend if its intervals can be mended."""

import logging
import os
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Unpack

from airflow.providers.common.compat.sdk import AirflowException
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, TaskGroup, TriggerRule, get_parsing_context

from statelib.definition.parts.model import Schedule
from statelib.definition.pipeline import Pipeline, load_pipelines
from statelib.definition.problems import DefinitionError
from statelib.errors import InvalidRequestError
from statelib_airflow.airflow_internals import interval_timetable
from statelib_airflow.dags import checkpoint_tasks, dispose_tasks, forms, mend_tasks, restore_tasks
from statelib_airflow.dags.alerts import deadlines, notifiers
from statelib_airflow.dags.dag_settings import DagSettings, Settings, pipelines_directory
from statelib_airflow.dags.group_dags import group_dag, groups_of
from statelib_airflow.links import link_checkpoint
from statelib_airflow.notifications import StatelibNotifier
from statelib_airflow.operators import StatelibSparkOperator
from statelib_airflow.runtime import observing
from statelib_airflow.runtime.steps import asset_of, state_asset
from statelib_airflow.source_ready import SourceReadyOperator

SPARK_STARTS_AND_ENDS = timedelta(minutes=5)
"""The time that Airflow allows the Spark job beyond ``checkpoint.timeout_s``, so that the job can end itself and log
the reason."""
ANSWER_WITHIN = timedelta(hours=23)
"""The time to approve a plan. It is shorter than a planned restore holds its checkpoint
(``statelib.flows.restore.steps.HOLD_MS``)."""

log = logging.getLogger(__name__)


class BrokenPipelineError(AirflowException):
    """An error that names each pipeline file that does not load, with the field and the fault."""


def pipeline_dags(
    directory: str | os.PathLike[str] | None = None,
    *,
    dags: Sequence[str] = ("checkpoint", "savepoint", "restore", "mend", "dispose"),
    **settings: Unpack[Settings],
) -> dict[str, DAG]:
    """Return the DAGs of the pipeline files in ``directory`` by their names, for a DAG file's ``globals().update(…)``.

    ``directory`` is relative to the calling DAG file; None stands for the variable ``STATELIB_PIPELINES``, and without
    it for the directory ``pipelines`` beside the DAG file. ``dags`` says which DAGs each pipeline has. Only a
    pipeline with ``checkpoint.mendable`` has ``mend``.

    A pipeline file that does not load, or whose DAGs cannot be made, is left out and logged: Airflow stops scheduling
    every DAG of a DAG file that has an import error. :func:`check_pipeline_dags` in a DAG file of its own shows it as
    one. Raises the error itself if not a single DAG can be made.
    """
    wrong = sorted(set(dags) - set(_KINDS))
    if wrong:
        message = f"dags: there is no {', '.join(wrong)}: expected some of {', '.join(_KINDS)}"
        raise InvalidRequestError(message, kind="no-dag")
    place = pipelines_directory(directory, sys._getframe(1).f_code.co_filename)
    pipelines, errors = load_pipelines(place, _only_pipeline())
    for error in errors:
        log.error("no DAGs: %s", error.message)
    made, faults = _dags_of(pipelines, errors, dags, DagSettings(**settings))
    for name, fault in faults.items():
        log.error("no DAG: %s", name, exc_info=fault)
    if faults and not made:
        raise next(iter(faults.values()))
    return {dag.dag_id: dag for dag in made}


def check_pipeline_dags(directory: str | os.PathLike[str] | None = None) -> None:
    """Raise BrokenPipelineError if a pipeline file does not load, or if its DAGs or those of its group cannot be made:
    in a DAG file without DAGs it is an import error that stops no DAG. ``directory`` is that of
    :func:`pipeline_dags`."""
    pipelines, errors = load_pipelines(pipelines_directory(directory, sys._getframe(1).f_code.co_filename))
    faults = _dags_of(pipelines, errors, tuple(_KINDS), DagSettings(auto_register=False))[1]
    messages = [error.message for error in errors] + [f"{name}: {fault}" for name, fault in faults.items()]
    if messages:
        raise BrokenPipelineError("\n".join(messages))


def _dags_of(
    pipelines: Sequence[Pipeline], errors: Sequence[DefinitionError], kinds: Sequence[str], settings: DagSettings
) -> tuple[list[DAG], dict[str, Exception]]:
    """Return the DAGs of all pipelines and groups that Airflow needs now, and the error of each file and each group
    whose DAGs cannot be made. ``errors``: those of the files that do not load."""
    made: list[DAG] = []
    faults: dict[str, Exception] = {}
    for pipeline in filter(_is_needed, pipelines):
        chosen = [kind for kind in kinds if kind != "mend" or pipeline.checkpoint.mendable is not None]
        try:
            made += [_KINDS[kind](pipeline, str(Path(pipeline.path).resolve()), settings) for kind in chosen]
        except Exception as error:  # noqa: BLE001 - a file must not keep the others from having DAGs
            faults[pipeline.path] = error
    for group, members in groups_of(pipelines).items() if "checkpoint" in kinds else ():
        if _runs_in(group):
            try:
                made.append(_group_dag(group, members, errors, settings))
            except Exception as error:  # noqa: BLE001 - as above
                faults[f"group {group}"] = error
    return made, faults


def _is_needed(pipeline: Pipeline) -> bool:
    """Return whether Airflow needs the DAGs of the pipeline now. While a task runs, it needs one DAG only."""
    return _runs_in(pipeline.name)


def _runs_in(name: str) -> bool:
    """Return whether Airflow needs the DAGs with this name before the dot."""
    dag_id = get_parsing_context().dag_id
    return dag_id is None or dag_id.rpartition(".")[0] == name


def _only_pipeline() -> str | None:
    """Return the name of the one pipeline that Airflow needs, None if it needs several. The DAG of a group needs all: a
    file that does not name the group may be an earlier one of a pipeline in it."""
    name, _, kind = (get_parsing_context().dag_id or "").rpartition(".")
    return name if kind in _KINDS else None


def _group_dag(
    group: str, members: Sequence[Pipeline], errors: Sequence[DefinitionError], settings: DagSettings
) -> DAG:
    """Return the DAG of a group. A file that does not load and names the group is given to its task, which fails for it
    after it has run the others."""
    schedule = members[0].schedule
    broken = [str(Path(error.path).resolve()) for error in errors if error.group == group]
    return group_dag(group, members, _timetable(schedule) if schedule else None, settings, broken=broken)


def _checkpoint_dag(pipeline: Pipeline, file: str, settings: DagSettings) -> DAG:
    """Return the scheduled DAG: each run applies one data interval and takes a checkpoint."""
    schedule = pipeline.schedule
    dag = DAG(
        f"{pipeline.name}.checkpoint",
        schedule=_timetable(schedule) if schedule else None,
        start_date=schedule.start if schedule else None,
        end_date=schedule.end if schedule else None,
        catchup=schedule.catchup if schedule else False,
        deadline=_deadline(pipeline),
        params=forms.interval_form() if pipeline.cron_schedule is None else {},
        is_paused_upon_creation=True if pipeline.group else None,  # the DAG of its group applies the intervals
        doc_md=_document(pipeline, "applies one data interval of events and checkpoints the state.", _CHECKPOINT_DOC),
        **_common(pipeline, settings),
    )
    with dag:
        begun = checkpoint_tasks.BeginOperator(task_id="begin", pipeline_file=file)
        # A run that is cleared after its checkpoint was registered skips the tasks before register. It still publishes
        # and sends the event, if it could not do so before.
        rule = TriggerRule.NONE_FAILED
        registered = _snapshot_chain("checkpoint", pipeline, file, settings, begun=begun, rule=rule)
        _add_publish(pipeline, file, registered, rule)
        if any(source.ready is not None for source in pipeline.inputs.values()):
            SourceReadyOperator(task_id="wait_for_source", pipeline=file) >> begun
    return dag


def _timetable(schedule: Schedule) -> Any:
    """Return what starts the runs of a schedule: the moments of its cron expression, or the updates of its asset.

    A reference by URI would start runs too, but they would not get the updates that started them (Airflow 3.3)."""
    if schedule.asset:
        return [asset_of(schedule.asset)]
    return interval_timetable(schedule.cron, schedule.time_zone)


def _savepoint_dag(pipeline: Pipeline, file: str, settings: DagSettings) -> DAG:
    """Return the DAG, started by hand, that writes a savepoint of the present state."""
    about = _document(pipeline, "writes a savepoint of the present state.", _SAVEPOINT_DOC)
    params = forms.savepoint_form()
    dag = DAG(f"{pipeline.name}.savepoint", schedule=None, params=params, doc_md=about, **_common(pipeline, settings))
    with dag:
        _snapshot_chain("savepoint", pipeline, file, settings, begun=checkpoint_tasks.begin_savepoint(file))
    return dag


def _restore_dag(pipeline: Pipeline, file: str, settings: DagSettings) -> DAG:
    """Return the DAG, started by hand, that restores a checkpoint or savepoint, also with another parallelism."""
    about = _document(pipeline, "makes another checkpoint the state that the next run builds on.", _RESTORE_DOC)
    params = forms.restore_form(pipeline.max_parallelism)
    dag = DAG(f"{pipeline.name}.restore", schedule=None, params=params, doc_md=about, **_common(pipeline, settings))
    with dag:
        with _group("decision", "the plan and its approval: nothing is changed yet"):
            planned: Any = restore_tasks.plan(file)
            approve = restore_tasks.ApprovePlanOperator(
                task_id="approve",
                subject=f"Restore {pipeline.name} to " + "{{ params.checkpoint }}?",
                body=restore_tasks.PLAN,
                response_timeout=ANSWER_WITHIN,
                retries=0,
            )
        with _group("restore", "proves that the checkpoint restores, then makes it the head"):
            rehearse = _spark_job("rehearse", pipeline, settings, "rehearse_restore.py", planned["arguments"])
            rehearse.trigger_rule = TriggerRule.NONE_FAILED  # approve is skipped unless the run asks for it
            switched = restore_tasks.switch(file, planned["plan"])
        replay = restore_tasks.ReplayOperator(
            task_id="replay",
            pipeline=pipeline.name,
            checkpoint_dag=pipeline.checkpoint_dag,
            poke_interval=checkpoint_tasks.LOOKS_AGAIN_S,
        )
        planned >> approve >> rehearse >> switched >> replay
    return dag


def _mend_dag(pipeline: Pipeline, file: str, settings: DagSettings) -> DAG:
    """Return the DAG, started by hand, that corrects one interval of the state."""
    about = _document(pipeline, "corrects one interval whose source has changed.", _MEND_DOC)
    params = forms.mend_form()
    dag = DAG(f"{pipeline.name}.mend", schedule=None, params=params, doc_md=about, **_common(pipeline, settings))
    with dag:
        with _group("decision", "the plan, what would change, and its approval: nothing is changed yet"):
            planned: Any = mend_tasks.plan(file)
            preview = mend_tasks.PreviewMendOperator(
                pipeline_file=file, plan_json=planned["plan"], **_job_settings("preview", pipeline, settings)
            )
            approve = ApprovalOperator(
                task_id="approve",
                subject=f"Mend {pipeline.name}, interval " + "{{ params.interval }}?",
                body=mend_tasks.QUESTION,
                response_timeout=ANSWER_WITHIN,
                retries=0,
            )
        begun: Any = mend_tasks.begin_mend(file, planned["plan"])
        preview >> approve >> begun
        registered = _snapshot_chain("checkpoint", pipeline, file, settings, begun=begun)
        _add_publish(pipeline, file, registered)
    return dag


def _add_publish(pipeline: Pipeline, file: str, registered: Any, rule: TriggerRule = TriggerRule.ALL_SUCCESS) -> None:
    """Add the task publish after the task register, if the pipeline file has tables to publish. Its success updates the
    asset of the state then, so that whoever is started by it reads the new rows."""
    if pipeline.publish:
        outlets = [state_asset(pipeline.name)]
        published: Any = checkpoint_tasks.publish.override(trigger_rule=rule, outlets=outlets)(file)
        registered >> published
        link_checkpoint(published)


def _dispose_dag(pipeline: Pipeline, _file: str, settings: DagSettings) -> DAG:
    """Return the DAG, started by hand, that deletes a savepoint if the run confirms it."""
    about = _document(pipeline, "deletes a savepoint for good.", _DISPOSE_DOC)
    params = forms.dispose_form()
    dag = DAG(f"{pipeline.name}.dispose", schedule=None, params=params, doc_md=about, **_common(pipeline, settings))
    with dag:
        dispose_tasks.preview(pipeline.name) >> dispose_tasks.dispose(pipeline.name)
    return dag


def _snapshot_chain(
    what: str,
    pipeline: Pipeline,
    file: str,
    settings: DagSettings,
    *,
    begun: Any,
    rule: TriggerRule = TriggerRule.ALL_SUCCESS,
) -> Any:
    """Add the tasks begin -> [snapshot -> check_completeness -> register] to the DAG, and abort as their teardown.
    Return the task register. ``what``: ``checkpoint`` or ``savepoint``. ``rule``: when register runs.

    A teardown runs whether the others succeed or fail, and does not decide whether the run succeeded."""
    arguments = ["--pipeline", file, "--checkpoint-id", checkpoint_tasks.CHECKPOINT_ID_TEMPLATE]
    longest = timedelta(seconds=pipeline.checkpoint.timeout_s) + SPARK_STARTS_AND_ENDS
    outlets = [state_asset(pipeline.name)] if what == "checkpoint" and not pipeline.publish else []
    with _group(what, f"the {what}: written by Spark, proven complete, registered"):
        snapshot = _spark_job("snapshot", pipeline, settings, "snapshot.py", arguments, longest=longest)
        report: Any = checkpoint_tasks.check_completeness(file)
        registered: Any = checkpoint_tasks.register.override(outlets=outlets, trigger_rule=rule)(file)
    begun >> snapshot >> report >> registered
    aborted: Any = checkpoint_tasks.abort(pipeline.name)
    registered >> aborted.as_teardown()
    link_checkpoint(begun, snapshot, report, registered, aborted)
    return registered


def _group(group_id: str, tooltip: str) -> TaskGroup:
    """Return a group of tasks that the graph shows as one, and that can be cleared as one. Task ids get no prefix."""
    return TaskGroup(group_id, prefix_group_id=False, tooltip=tooltip)


def _spark_job(
    task_id: str,
    pipeline: Pipeline,
    settings: DagSettings,
    script: str,
    arguments: Any,
    *,
    longest: timedelta | None = None,
) -> StatelibSparkOperator:
    """Return the task of a Spark job."""
    job = _job_settings(task_id, pipeline, settings)
    return StatelibSparkOperator(script=script, application_args=arguments, execution_timeout=longest, **job)


def _job_settings(task_id: str, pipeline: Pipeline, settings: DagSettings) -> dict[str, Any]:
    """Return the arguments of all tasks of Spark jobs. The Spark connection and Spark's configuration give master and
    resources."""
    return {
        "task_id": task_id,
        "conn_id": settings.spark_conn_id,
        "name": f"{pipeline.name}.{task_id}",
        "pre_execute": observing.job_in_log,
    }


def _common(pipeline: Pipeline, settings: DagSettings) -> dict[str, Any]:
    """Return the arguments that all DAGs of a pipeline have. Each DAG has one run at a time; between the DAGs of a
    pipeline, the epoch of the catalog decides."""
    retries = pipeline.retries
    own_defaults = {
        "retries": retries.count,
        "retry_delay": timedelta(seconds=retries.delay_s),
        "on_failure_callback": [StatelibNotifier(**arguments) for arguments in _notifiers(pipeline)],
    }
    return {"max_active_runs": 1, **settings.arguments(["statelib", pipeline.name], own_defaults)}


def _notifiers(pipeline: Pipeline) -> list[dict[str, Any]]:
    return notifiers(pipeline.name, pipeline.alerts.notify)


def _deadline(pipeline: Pipeline) -> list[Any] | None:
    longest = pipeline.alerts.deadline
    return None if longest is None else deadlines((longest, arguments) for arguments in _notifiers(pipeline))


def _document(pipeline: Pipeline, does: str, more: str) -> str:
    key = ", ".join(f"`{name}`" for name in pipeline.key)
    states = "\n".join(f"- state `{d.name}` ({d.kind}): `{d.value_type}`" for d in pipeline.schema().states)
    return (
        f"### {pipeline.name}\n{pipeline.description}\n\nThis DAG {does}\n\n"
        f"- key: {key}\n- backend: {pipeline.backend}, parallelism {pipeline.parallelism} of at most "
        f"{pipeline.max_parallelism}\n{states}\n\n{more}"
    )


_CHECKPOINT_DOC = """\
A checkpoint that is not complete within `checkpoint.timeout_s` is aborted; after more than
`checkpoint.tolerable_failures` in a row, `begin` refuses until `statelib pipelines resume`.
`wait_for_source`, if a source of the file has `ready`, waits until the interval's events are complete; mark it as a
success to go on without. `begin` allocates the checkpoint, `snapshot` is the Spark job, `check_completeness` proves the
result from storage, `register` is the commit point. `abort` aborts an unfinished checkpoint, and is skipped otherwise.
`publish`, if the file has tables to publish, brings them to the registered state; if it fails, no checkpoint is lost.
The last of both updates the asset of the state.
A run that an update of an asset started applies the interval that the update names or, without one, the time from the
end of the state to the update. A run that is started by hand applies the interval of its params, or that of its logical
date if the schedule has a cron. If that interval is not over, `begin` waits for its end.
Clearing a run is safe: an interval that the state has already is not applied again. A backfill is applied in
order: `begin` waits while a run before it is under way, and refuses if the one before it has failed.
"""
_SAVEPOINT_DOC = """\
It applies no events and does not change what the next checkpoint builds on. It belongs to you: retention never deletes
it, the `dispose` DAG does.
"""
_RESTORE_DOC = """\
`plan` shows what would happen, and changes nothing; `approve` waits for a person, if `approval` is on; `rehearse`
proves with Spark that the checkpoint restores; `switch` makes it the head; `replay`, if on, runs the intervals after it
again, oldest first. Without `replay`, clear their runs from the oldest on. Nothing is changed in the group `decision`.
`switch` refuses a plan that was approved if a run or a correction has moved the head since: trigger the DAG again.
"""
_MEND_DOC = """\
`plan` shows what would be read. If `approval` is on, `preview` computes with Spark what would differ, and `approve`
shows the number of entries per state and some of them, with the values before and after, and waits for a person.
Nothing is changed in the group `decision`. The others are tasks of a checkpoint, which becomes the head. The events of
the interval alone are read again, and no later one is run again. It is refused, with the commands of a replay, if the
head does not keep the interval any more. It is refused as well if the head is not that of the plan any more.
"""
_DISPOSE_DOC = """\
`preview` lists what would be deleted. `dispose` deletes it if `confirm` is on, and is skipped otherwise. Files that
another checkpoint needs stay, and a savepoint that the present state was restored from is refused.
"""

_KINDS = {
    "checkpoint": _checkpoint_dag,
    "savepoint": _savepoint_dag,
    "restore": _restore_dag,
    "mend": _mend_dag,
    "dispose": _dispose_dag,
}
