"""The Spark job ``bootstrap.py``: write the Flink savepoint that a bootstrap file describes."""

import argparse
import json

import statelib_jobs.start  # noqa: F401 - before anything imports PySpark
from statelib.definition.bootstrap import load_bootstrap
from statelib.flows.views.inspection import is_id, resolve
from statelib.flows.wiring import deployment, storage_root
from statelib.savepoints.opened import Checkpoint, open_checkpoint
from statelib.savepoints.writing.new_savepoint import NewSavepoint
from statelib.spark.imports.bootstrap import run_bootstrap
from statelib_jobs.session import session


def main() -> None:
    """Run the job. Exit status 0: the savepoint is written, and the last line of the output is a JSON document with its
    directory. Any other status: a line or a traceback names the cause."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", required=True, help="path of the bootstrap file")
    parser.add_argument("--target", required=True, help="parent directory or URI of the savepoint's directory")
    parser.add_argument("--id", type=int, default=1, help="number of the savepoint, part of its directory's name")
    arguments = parser.parse_args()
    with session(f"bootstrap {arguments.file}") as spark:
        bootstrap = load_bootstrap(arguments.file)
        compressed = bootstrap.compression == "snappy"
        place = NewSavepoint(arguments.target, bootstrap.name, arguments.id, compressed)
        done = run_bootstrap(spark, bootstrap, place, open_snapshot)
    print(json.dumps({"directory": done.directory, "entries": done.entries}))


def open_snapshot(name: str) -> Checkpoint:
    """Open the snapshot at a path, or the one that the catalog has under ``<pipeline>/<id>``."""
    return resolve(deployment(), name) if is_id(name) else open_checkpoint(name, storage_root=storage_root())


if __name__ == "__main__":
    main()
