"""The Spark job ``group.py``: take the snapshots of several pipelines, each of one data interval."""

import argparse
import json
import os
from collections.abc import Mapping
from pathlib import Path

import statelib_jobs.start  # noqa: F401 - before anything imports PySpark
from statelib.definition.pipeline import load_pipeline
from statelib.errors import RetryableError
from statelib.flows.wiring import deployment
from statelib.model.ids import CheckpointId
from statelib.spark.snapshot.group import Member, run_group
from statelib.telemetry.logs import hidden
from statelib.telemetry.secrets import secrets
from statelib_jobs.session import session


def main() -> None:
    """Run the job. Exit status 0: the ``_metadata`` of each snapshot is published. Any other status: the last line
    names the pipelines that failed; the snapshots of the others are published."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--group", required=True, help="name of the group")
    parser.add_argument(
        "--members", required=True, help="JSON object: the id that the step begin allocated, by path of pipeline file"
    )
    arguments = parser.parse_args()
    ids = json.loads(arguments.members)
    members = [Member(load_pipeline(Path(path)), CheckpointId(number)) for path, number in ids.items()]
    with session(f"group {arguments.group}") as spark:
        errors = run_group(spark, deployment(), members)
        named = named_errors(errors)
        for member in members:
            result = named.get(member.pipeline.name, "published")
            print(f"{member.pipeline.name} checkpoint {member.checkpoint_id}: {result}")
        if errors:
            failed = "; ".join(f"{name}: {error}" for name, error in sorted(named.items()))
            raise RetryableError(
                f"{len(errors)} of {len(members)} pipelines of group {arguments.group} failed: {failed}",
                kind="group-failed",
                hint="the snapshots of the others are published; a further try takes only those that failed",
            )


def named_errors(errors: Mapping[str, Exception]) -> dict[str, str]:
    """Return the kind and the text of each error, without secrets."""
    to_hide = secrets(os.environ)
    texts = {name: f"{getattr(error, 'kind', type(error).__name__)}: {error}" for name, error in errors.items()}
    return {name: hidden(text, to_hide) for name, text in texts.items()}


if __name__ == "__main__":
    main()
