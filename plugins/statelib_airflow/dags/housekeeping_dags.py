"""The DAGs ``state_cleanup`` and ``state_verify``, which clean up and verify the storage of all pipelines."""

import os
import sys
from datetime import UTC, datetime, timedelta
from typing import Any, Unpack

from airflow.sdk import DAG

from statelib.definition.pipeline import pipeline_files
from statelib_airflow.dags import cleanup_tasks, forms
from statelib_airflow.dags.dag_settings import DagSettings, Settings, pipelines_directory
from statelib_airflow.operators import VerifyOperator

_DEFAULTS = {"retries": 2, "retry_delay": timedelta(minutes=1)}
_CLEANUP = """\
### state_cleanup
Deletes the files that no checkpoint needs.

- `retention` retires the checkpoints that `checkpoint.retain` of their pipeline file does not keep, by count and
  by age. Heads, savepoints, and what a restore is reading or a run builds on are never touched.
- `gc` deletes the files that only retired checkpoints needed: `_metadata` first, then data.
- `orphans` looks for files that aborted or crashed attempts left behind. It only reports them, unless the DAG is
  triggered with `dry_run` off.

Each pipeline is cleaned up by itself. One that is in trouble (a damaged row of the catalog, storage that cannot be
read) is left out and named in the log; the others are done, and then the run fails. A pipeline whose file is gone is
left alone: the log of `retention` lists its checkpoints, and the command that deletes them.

Every task may be cleared and run again: it continues where it stopped. The same by hand: `statelib gc --dry-run`,
`statelib orphans`, `statelib why FILE`.
"""
_VERIFY = """\
### state_verify
Verifies every completed checkpoint and savepoint of every pipeline: `_metadata` parses, every file is there with its
size, and the checksums of some of the files hold: `read_data_subset` is what `statelib verify --read-data-subset`
takes, 10% unless the run says otherwise, and each run reads others. With 100% every file is read, and every entry is
counted and compared with the digests in the manifest.

`verify` has a task for each pipeline. One that finds damage fails and lists it; its XCom `report` has the figures.
The same by hand: `statelib verify <pipeline>/<id>`.
"""


def cleanup_dags(
    dag_id: str = "state_cleanup", *, schedule: Any = "@daily", **settings: Unpack[Settings]
) -> dict[str, DAG]:
    """Return the DAG that applies retention, deletes what nothing needs and reports orphans, under its name."""
    dag = _housekeeping_dag(dag_id, schedule, _CLEANUP, forms.cleanup_form(), DagSettings(**settings))
    with dag:
        steps = [cleanup_tasks.retention(), cleanup_tasks.gc(), cleanup_tasks.orphans()]
        steps[0] >> steps[1] >> steps[2]
        steps >> cleanup_tasks.troubles()
    return {dag_id: dag}


def verify_dags(
    directory: str | os.PathLike[str] | None = None,
    dag_id: str = "state_verify",
    *,
    schedule: Any = "@weekly",
    **settings: Unpack[Settings],
) -> dict[str, DAG]:
    """Return the DAG that verifies the checkpoints of all pipelines, under its name. Its form suggests the pipelines of
    ``directory``, which :func:`statelib_airflow.pipeline_dags` takes, too."""
    place = pipelines_directory(directory, sys._getframe(1).f_code.co_filename)
    form = forms.verify_form([path.stem for path in pipeline_files(place)] if place.is_dir() else [])
    dag = _housekeeping_dag(dag_id, schedule, _VERIFY, form, DagSettings(**settings))
    with dag:
        VerifyOperator.partial(
            task_id="verify",
            statelib_conn_id=settings.get("statelib_conn_id"),
            read_data_subset="{{ params.read_data_subset }}",
            map_index_template="{{ task.pipeline }}",
        ).expand(pipeline=cleanup_tasks.pipelines())
    return {dag_id: dag}


def _housekeeping_dag(dag_id: str, schedule: Any, about: str, form: dict[str, Any], settings: DagSettings) -> DAG:
    return DAG(
        dag_id,
        schedule=schedule,
        start_date=datetime(2013, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,
        doc_md=about,
        params=form,
        **settings.arguments(["statelib"], _DEFAULTS),
    )
