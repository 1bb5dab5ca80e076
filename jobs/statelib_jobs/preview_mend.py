"""The Spark job ``preview_mend.py``: compare the state with what a correction would make of it. Nothing is changed."""

import argparse
from pathlib import Path

import statelib_jobs.start  # noqa: F401 - before anything imports PySpark
from statelib.definition.pipeline import load_pipeline
from statelib.flows.mending.plan import MendPlan
from statelib.flows.mending.preview_file import store_preview
from statelib.flows.wiring import deployment
from statelib.model.amounts import amount
from statelib.model.ids import AttemptId
from statelib.spark.snapshot.mend_preview import preview_mend
from statelib_jobs.session import session


def main() -> None:
    """Run the job. Exit status 0: the differences are stored, as Markdown, for the process that waits for the job."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pipeline", required=True, help="path of the pipeline file")
    parser.add_argument("--plan", required=True, help="the plan of the correction, as JSON")
    parser.add_argument("--attempt", required=True, help="id of this attempt: 32 hexadecimal digits")
    arguments = parser.parse_args()
    pipeline, plan = load_pipeline(Path(arguments.pipeline)), MendPlan.from_json(arguments.plan)
    with session(f"{pipeline.name} preview of a correction") as spark:
        differences = preview_mend(spark, deployment(), pipeline, plan)
    store_preview(deployment(), pipeline, AttemptId(arguments.attempt), differences.describe())
    changed = sum(sum(state.counts.values()) for state in differences.states)
    print(f"{pipeline.name}: {amount(changed, 'entry')} would differ")


if __name__ == "__main__":
    main()
