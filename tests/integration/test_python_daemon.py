"""Spark's Python workers come from statelib's daemon: they have imported statelib before their first task."""

import os
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
LOOK = """
import pyarrow as pa
from statelib.spark.session.local_session import new_session

def look(batches):
    import gc, sys
    for batch in batches:
        found = {
            "statelib": "statelib.spark.snapshot.subtask.worker" in sys.modules,
            "zips": sum(p.endswith(("pyspark.zip", ".jar")) for p in sys.path),
            "frozen": gc.get_freeze_count() > 10_000,
        }
        yield pa.RecordBatch.from_pydict({"found": [repr(found)] * batch.num_rows})

spark = new_session("look", "local[2]")
rows = spark.range(2, numPartitions=2).mapInArrow(look, "found string").collect()
print("FOUND", {row.found for row in rows})
spark.stop()
"""


def test_workers_are_forked_from_a_daemon_that_has_imported_statelib() -> None:
    environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, "-c", LOOK],
        cwd=CHECKOUT,
        env=environment | {"PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        check=False,
    )
    results = {repr({"statelib": True, "zips": 0, "frozen": True})}
    assert f"FOUND {results}" in done.stdout, done.stdout + done.stderr
