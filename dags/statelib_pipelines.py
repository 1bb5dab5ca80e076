"""The DAGs of every pipeline file in ``dags/pipelines``: checkpoint, savepoint and restore.

Files that do not load are left out here and reported by ``statelib_pipeline_errors.py``: Airflow
stops scheduling every DAG of a file that has an import error, so the good ones live in a file without.
"""

from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG, Asset, CronDataIntervalTimetable, Param, get_parsing_context

from plugins.statelib_airflow import tasks
from plugins.statelib_airflow.places import job, pipelines_directory
from statelib.definition.pipeline import Pipeline, load_pipelines

PLACE = r"((file:)?/[^\x00-\x1f]+|s3://[a-z0-9.-]{3,63}(/[^\x00-\x1f?#]*)?)"
CHECKPOINT_ID_OR_PATH = rf"^([1-9][0-9]{{0,18}}|{PLACE})$"
ABSOLUTE_PATH = rf"^{PLACE}$"


def checkpoint_dag(pipeline: Pipeline, file: str) -> DAG:
    """Scheduled: one run applies one data interval and checkpoints the state."""
    schedule = pipeline.schedule
    dag = DAG(
        f"{pipeline.name}.checkpoint",
        schedule=CronDataIntervalTimetable(schedule.cron, timezone="UTC") if schedule else None,
        start_date=schedule.start if schedule else None,
        end_date=schedule.end if schedule else None,
        catchup=schedule.catchup if schedule else False,
        doc_md=_document(pipeline, "applies one data interval of events and checkpoints the state.", _CHECKPOINT_DOC),
        **_common(pipeline),
    )
    with dag:
        state = Asset(name=f"{pipeline.name}.state", uri=f"statelib://{pipeline.name}/state")
        _snapshot_chain(pipeline, file, tasks.begin_checkpoint(file), outlets=[state])
    return dag


def savepoint_dag(pipeline: Pipeline, file: str) -> DAG:
    """By hand: the present state, written once more to where its user wants it."""
    params = {
        "format": Param(
            "canonical",
            type="string",
            enum=["canonical", "native"],
            title="Format",
            description="canonical: readable by every backend and by Flink; native: the backend's own form",
        ),
        "target": Param(
            None,
            type=["null", "string"],
            pattern=ABSOLUTE_PATH,
            title="Target directory",
            description="absolute path, file: URI or s3://bucket/prefix; empty: the storage's savepoints directory",
        ),
        "note": Param("", type="string", maxLength=500, title="Note", description="why it was taken"),
    }
    about = _document(pipeline, "writes a savepoint of the present state.", "")
    dag = DAG(f"{pipeline.name}.savepoint", schedule=None, params=params, doc_md=about, **_common(pipeline))
    with dag:
        _snapshot_chain(pipeline, file, tasks.begin_savepoint(file), outlets=[])
    return dag


def restore_dag(pipeline: Pipeline, file: str) -> DAG:
    """By hand: put the state back to a checkpoint or savepoint, also with another parallelism."""
    params = {
        "checkpoint": Param(
            type="string",
            pattern=CHECKPOINT_ID_OR_PATH,
            title="Checkpoint",
            description="id of a completed checkpoint, or absolute path or URI of a checkpoint or savepoint",
        ),
        "claim_mode": Param(
            "NO_CLAIM",
            type="string",
            enum=["NO_CLAIM", "CLAIM"],
            title="Claim mode",
            description="CLAIM makes statelib the owner of the restored files",
        ),
        "parallelism": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            maximum=pipeline.max_parallelism,
            title="Parallelism",
            description="empty: as now",
        ),
    }
    about = _document(pipeline, "makes another checkpoint the state that the next run builds on.", _RESTORE_DOC)
    dag = DAG(f"{pipeline.name}.restore", schedule=None, params=params, doc_md=about, **_common(pipeline))
    with dag:
        planned: Any = tasks.plan(file)
        rehearse = _spark_job("rehearse", pipeline, "rehearse_restore.py", planned["arguments"])
        planned >> rehearse >> tasks.switch(file, planned["plan"])
    return dag


def _snapshot_chain(pipeline: Pipeline, file: str, begun: Any, outlets: list[Asset]) -> None:
    """begin -> snapshot -> check_completeness -> register, and abort as a teardown: it runs however
    the others end, and does not count when Airflow decides whether the run succeeded."""
    arguments = ["--pipeline", file, "--checkpoint-id", tasks.CHECKPOINT_ID_TEMPLATE]
    snapshot = _spark_job("snapshot", pipeline, "snapshot.py", arguments)
    report: Any = tasks.check_completeness(file)
    registered = tasks.register.override(outlets=outlets)(file, report)
    begun >> snapshot >> report
    registered >> tasks.abort(pipeline.name).as_teardown()


def _spark_job(task_id: str, pipeline: Pipeline, script: str, arguments: Any) -> SparkSubmitOperator:
    """Master, deploy mode and resources come from the connection ``spark_default`` and Spark's own configuration."""
    return SparkSubmitOperator(
        task_id=task_id,
        conn_id="spark_default",
        application=job(__file__, script),
        application_args=arguments,
        name=f"{pipeline.name}.{task_id}",
    )


def _common(pipeline: Pipeline) -> dict[str, Any]:
    retries = pipeline.retries
    return {
        "max_active_runs": 1,
        "tags": ["statelib", pipeline.name],
        "default_args": {"retries": retries.count, "retry_delay": timedelta(seconds=retries.delay_s)},
    }


def _document(pipeline: Pipeline, does: str, more: str) -> str:
    key = ", ".join(f"`{name}`" for name in pipeline.key)
    states = "\n".join(f"- state `{d.name}` ({d.kind}): `{d.value_type}`" for d in pipeline.schema().states)
    return (
        f"### {pipeline.name}\n{pipeline.description}\n\nThis DAG {does}\n\n"
        f"- key: {key}\n- backend: {pipeline.backend}, parallelism {pipeline.parallelism} of at most "
        f"{pipeline.max_parallelism}\n{states}\n\n{more}"
    )


_CHECKPOINT_DOC = """\
`begin` allocates the checkpoint, `snapshot` is the Spark job, `check_completeness` proves the result from
storage, `register` is the commit point. `abort` gives an unfinished checkpoint up and is skipped otherwise.
Clearing a run is safe: an interval that the state holds already is not applied again.
"""
_RESTORE_DOC = """\
`plan` says what would happen, `rehearse` proves with Spark that the checkpoint restores, `switch` makes it the
head. Afterwards clear the runs of the intervals after it, or backfill them with reprocess behaviour `completed`.
"""


def _wanted(pipeline: Pipeline) -> bool:
    """While a task runs, Airflow needs one DAG only."""
    dag_id = get_parsing_context().dag_id
    return dag_id is None or dag_id.rpartition(".")[0] == pipeline.name


for _pipeline in filter(_wanted, load_pipelines(pipelines_directory(__file__))[0]):
    _file = str(Path(_pipeline.path).resolve())
    for _make in (checkpoint_dag, savepoint_dag, restore_dag):
        _dag = _make(_pipeline, _file)
        globals()[_dag.dag_id] = _dag
