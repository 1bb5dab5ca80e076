"""The DAG ``state_verify``: once a week, are the checkpoints of all pipelines what was written?"""

from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG
from statelib_airflow import cleanup_tasks, forms
from statelib_airflow.operators import VerifyOperator
from statelib_airflow.places import pipelines_directory

ABOUT = """\
### state_verify
Looks after every completed checkpoint and savepoint of every pipeline: `_metadata` parses, every file is there with its
size, and the checksums of some of the files hold: `read_data_subset` is what `statelib verify --read-data-subset`
takes, 10% unless the run says otherwise, and each run reads others. With 100% every file is read, and every entry is
counted and compared with the digests in the manifest.

`verify` has a task for each pipeline. One that finds damage fails and lists it; its XCom `report` has the figures.
The same by hand: `statelib verify <pipeline>/<id>`.
"""

with DAG(
    "state_verify",
    schedule="@weekly",
    start_date=datetime(2013, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    tags=["statelib"],
    doc_md=ABOUT,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
    params=forms.verify_form(sorted(path.stem for path in pipelines_directory(__file__).glob("*.yaml"))),
) as dag:
    VerifyOperator.partial(
        task_id="verify", read_data_subset="{{ params.read_data_subset }}", map_index_template="{{ task.pipeline }}"
    ).expand(pipeline=cleanup_tasks.pipelines())
