"""The Spark job ``rehearse_restore.py``: prove that a checkpoint restores at a parallelism. Nothing is changed."""

import argparse
from pathlib import Path

import statelib_jobs.start  # noqa: F401 - before anything imports PySpark
from statelib.definition.pipeline import load_pipeline
from statelib.flows.wiring import deployment
from statelib.model.amounts import amount
from statelib.spark.snapshot.rehearsal import rehearse
from statelib_jobs.session import session


def main() -> None:
    """Run the job. Exit status 0: every key group was restored, with the counts and digests that are recorded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pipeline", required=True, help="path of the pipeline file")
    parser.add_argument("--checkpoint", required=True, help="checkpoint id, or path of a snapshot")
    parser.add_argument("--parallelism", type=int, help="default: the present parallelism of the pipeline")
    parser.add_argument("--allow-non-restored-state", action="store_true", help="leave out states that are gone")
    arguments = parser.parse_args()
    pipeline = load_pipeline(Path(arguments.pipeline))
    if arguments.allow_non_restored_state:
        pipeline = pipeline.allowing_non_restored_state()
    with session(f"{pipeline.name} rehearsal of {arguments.checkpoint}") as spark:
        reports = rehearse(spark, deployment(), pipeline, arguments.checkpoint, arguments.parallelism)
    entries = sum(s.total_entries for report in reports for s in report.statistics)
    print(
        f"{pipeline.name}: {arguments.checkpoint} restores on {len(reports)} subtasks with {amount(entries, 'entry')}"
    )


if __name__ == "__main__":
    main()
