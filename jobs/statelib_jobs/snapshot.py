"""The Spark job ``snapshot.py``: apply one data interval to a pipeline's state, and write a snapshot of it."""

import argparse
from pathlib import Path

import statelib_jobs.start  # noqa: F401 - before anything imports PySpark
from statelib.definition.pipeline import load_pipeline
from statelib.flows.wiring import deployment
from statelib.model.ids import CheckpointId
from statelib.spark.snapshot.driver import run_snapshot
from statelib_jobs.session import session


def main() -> None:
    """Run the job. Exit status 0: ``_metadata`` is published. Any other status: a line or a traceback names the
    cause."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pipeline", required=True, help="path of the pipeline file")
    parser.add_argument("--checkpoint-id", required=True, type=int, help="id that the step begin allocated")
    arguments = parser.parse_args()
    pipeline = load_pipeline(Path(arguments.pipeline))
    checkpoint_id = CheckpointId(arguments.checkpoint_id)
    with session(f"{pipeline.name} chk-{checkpoint_id}") as spark:
        plan = run_snapshot(spark, deployment(), pipeline, checkpoint_id)
    done = "was published by an earlier attempt" if plan is None else f"published in {plan.record.directory}"
    print(f"{pipeline.name} checkpoint {checkpoint_id}: {done}")


if __name__ == "__main__":
    main()
