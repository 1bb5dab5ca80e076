"""Bodies of the pipeline DAGs' tasks: read the run's context, call one flow, publish what it says.

statelib is imported inside the tasks, so that parsing a DAG file stays cheap.
"""

import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import get_current_context, task
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from plugins.statelib_airflow.failures import failing_fast

if TYPE_CHECKING:
    from airflow.sdk import Context

    from statelib.model.checkpoint import DataInterval

CHECKPOINT_ID = "checkpoint_id"
"""XCom key under which ``begin`` leaves the id; also when there is nothing left to do."""
CHECKPOINT_ID_TEMPLATE = "{{ ti.xcom_pull(task_ids='begin', key='checkpoint_id') }}"

log = logging.getLogger(__name__)


@task.short_circuit(task_id="begin")
def begin_checkpoint(pipeline_file: str) -> bool:
    """Allocate the checkpoint of the run's data interval; False skips the rest: it is applied already."""
    from statelib.definition.pipeline import load_pipeline
    from statelib.flows.checkpoint import begin
    from statelib.flows.wiring import deployment

    context = get_current_context()
    with failing_fast():
        begun = begin(deployment(), load_pipeline(Path(pipeline_file)), data_interval(context), _owner(context))
    context["ti"].xcom_push(CHECKPOINT_ID, int(begun.checkpoint_id))
    done = "holds this interval already: nothing to do" if begun.already_completed else "begun"
    log.info("checkpoint %d %s", begun.checkpoint_id, done)
    return not begun.already_completed


@task.short_circuit(task_id="begin")
def begin_savepoint(pipeline_file: str) -> bool:
    """Allocate the savepoint that the run's params ask for; False skips the rest: it is written already."""
    from statelib.definition.pipeline import load_pipeline
    from statelib.flows.savepoint import begin_savepoint as begin
    from statelib.flows.wiring import deployment

    context = get_current_context()
    params = context["params"]
    with failing_fast():
        begun = begin(
            deployment(),
            load_pipeline(Path(pipeline_file)),
            format=params["format"],
            target=params["target"],
            note=params["note"],
            owner=_owner(context),
            key=_run_id(context),
        )
    context["ti"].xcom_push(CHECKPOINT_ID, int(begun.checkpoint_id))
    return not begun.already_completed


@task(task_id="check_completeness")
def check_completeness(pipeline_file: str) -> str:
    """Prove the checkpoint complete from storage; returns the URI of the report."""
    from statelib.definition.pipeline import load_pipeline
    from statelib.flows.checkpoint import check
    from statelib.flows.wiring import deployment

    with failing_fast():
        checkpoint_id = _checkpoint_id(get_current_context())
        report = check(deployment(), load_pipeline(Path(pipeline_file)), checkpoint_id)
    log.info("checkpoint %d is complete: %s", checkpoint_id, report.report_uri)
    return str(report.report_uri)


@task(task_id="register")
def register(pipeline_file: str, report_uri: str) -> dict[str, int]:
    """The commit point. Returns id, bytes and keys, and sends them along with the asset event."""
    from statelib.definition.pipeline import load_pipeline
    from statelib.flows.checkpoint import register as commit
    from statelib.flows.wiring import deployment

    context = get_current_context()
    with failing_fast():
        record = commit(deployment(), load_pipeline(Path(pipeline_file)), _checkpoint_id(context), report_uri)
    facts = {"id": int(record.checkpoint_id), "bytes": record.size_bytes or 0, "keys": record.entries or 0}
    for outlet in context["task"].outlets:
        context["outlet_events"][outlet].extra = {**facts}
    log.info("checkpoint %(id)d registered: %(bytes)d bytes, %(keys)d keys", facts)
    return facts


@task(task_id="abort", retries=2)
def abort(pipeline: str) -> str:
    """Give up the run's checkpoint unless it is complete: then this task is skipped."""
    from statelib.flows.checkpoint import abort as give_up
    from statelib.flows.wiring import deployment
    from statelib.model.record import CheckpointState

    context = get_current_context()
    checkpoint_id = _pulled_id(context)
    if checkpoint_id is None:
        raise AirflowSkipException("no checkpoint was begun: nothing to abort")
    reason = f"run {_run_id(context)}: {_what_failed(context)}"
    with failing_fast():
        record = give_up(deployment(), pipeline, checkpoint_id, reason)
    if record.state is CheckpointState.COMPLETED:
        raise AirflowSkipException(f"checkpoint {checkpoint_id} is complete: nothing to abort")
    return f"checkpoint {checkpoint_id} is {record.state}: {reason}"


@task(task_id="plan", multiple_outputs=True)
def plan(pipeline_file: str) -> dict[str, Any]:
    """Dry run of the restore that the params ask for; returns the plan and the rehearsal's arguments.

    The run holds the checkpoint from here on, so that retention leaves it alone."""
    from statelib.definition.pipeline import load_pipeline
    from statelib.flows.restore import hold_source, plan_restore
    from statelib.flows.wiring import deployment
    from statelib.model.record import ClaimMode

    context = get_current_context()
    params = context["params"]
    checkpoint, parallelism = params["checkpoint"], params["parallelism"]
    with failing_fast():
        planned = plan_restore(
            deployment(), load_pipeline(Path(pipeline_file)), checkpoint, parallelism, ClaimMode(params["claim_mode"])
        )
        hold_source(deployment(), planned, _run_id(context))
    log.info("%s", planned.describe())
    arguments = ["--pipeline", pipeline_file, "--checkpoint", checkpoint, "--parallelism", str(planned.parallelism)]
    return {"plan": planned.to_json(), "description": planned.describe(), "arguments": arguments}


@task(task_id="switch")
def switch(pipeline_file: str, plan_json: str) -> dict[str, int | None]:
    """Make the planned checkpoint the pipeline's head; returns the head."""
    from statelib.definition.pipeline import load_pipeline
    from statelib.flows.restore import RestorePlan, apply_restore, release_source
    from statelib.flows.wiring import deployment

    context = get_current_context()
    with failing_fast():
        chosen = RestorePlan.from_json(plan_json)
        head = apply_restore(deployment(), load_pipeline(Path(pipeline_file)), chosen, _owner(context))
        release_source(deployment(), chosen, _run_id(context))
    log.info("%s continues from checkpoint %s", head.pipeline, head.head)
    return {"head": head.head, "generation": head.generation, "parallelism": head.parallelism}


def data_interval(context: "Context") -> "DataInterval":
    """The run's data interval; AirflowFailException where the run has none."""
    from statelib.model.checkpoint import DataInterval

    run = context["dag_run"]
    start, end = run.data_interval_start, run.data_interval_end
    if start is None or end is None:
        raise AirflowFailException(
            f"run {run.run_id} has no data interval, hence no events to apply: trigger it with a logical date, "
            f"or use `airflow backfill create --dag-id {run.dag_id} --from-date ... --to-date ...`"
        )
    return DataInterval(_epoch_ms(start), _epoch_ms(end))


def _epoch_ms(moment: datetime) -> int:
    return int(moment.astimezone(UTC).timestamp()) * 1000 + moment.microsecond // 1000


def _run_id(context: "Context") -> str:
    return context["dag_run"].run_id


def _owner(context: "Context") -> str:
    instance = context["ti"]
    return f"{instance.dag_id}/{instance.run_id}/{instance.task_id}/{instance.try_number}"


def _pulled_id(context: "Context") -> Any:
    return context["ti"].xcom_pull(task_ids="begin", key=CHECKPOINT_ID)


def _checkpoint_id(context: "Context") -> Any:
    pulled = _pulled_id(context)
    if pulled is None:
        raise AirflowFailException("task begin left no checkpoint id: clear the whole run, begin included")
    return pulled


def _what_failed(context: "Context") -> str:
    instance = context["ti"]
    states = instance.get_task_states(dag_id=instance.dag_id, run_ids=[instance.run_id]).get(instance.run_id, {})
    failed = sorted(name for name, state in states.items() if state == "failed")
    return f"{', '.join(failed)} failed" if failed else "ended before it was registered"
