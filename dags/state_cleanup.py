"""The DAG ``state_cleanup``: retention, gc and the orphan report of all pipelines, once a day."""

from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG
from statelib_airflow import cleanup_tasks, forms

ABOUT = """\
### state_cleanup
Keeps the checkpoint storage at what its checkpoints need.

- `retention` lets go of the checkpoints that `checkpoint.retain` of their pipeline file does not keep, by count and
  by age. Heads, savepoints, and what a restore is reading or a run builds on are never touched.
- `gc` deletes what only those checkpoints needed: first condemned in a transaction, then `_metadata`, then data.
- `orphans` looks for files that aborted or crashed attempts left behind. It only reports them, unless the DAG is
  triggered with `dry_run` off.

Each pipeline is cleaned up by itself. One that is in trouble (a damaged row of the catalog, storage that cannot be
read) is left out and named in the log; the others are done, and then the run fails. A pipeline whose file is gone is
left alone: the log of `retention` says what is stored of it, and how to delete that.

Every task may be cleared and run again: it continues where it stopped. The same by hand: `statelib gc --dry-run`,
`statelib orphans`, `statelib why FILE`.
"""

with DAG(
    "state_cleanup",
    schedule="@daily",
    start_date=datetime(2013, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    tags=["statelib"],
    doc_md=ABOUT,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
    params=forms.cleanup_form(),
) as dag:
    steps = [cleanup_tasks.retention(), cleanup_tasks.gc(), cleanup_tasks.orphans()]
    steps[0] >> steps[1] >> steps[2]
    steps >> cleanup_tasks.troubles()
