"""Row W-bucket: the events of P1 and P2 in S3, read by the subtasks themselves, and the state in S3.

The S3 endpoint of the tests runs on this machine; its own time does not count. Structured Streaming has the same events
and its state on the file system, so it pays nothing for S3."""

import os
from collections.abc import Iterable
from pathlib import Path
from unittest.mock import patch

from tests.benchmarks.contenders import new_session
from tests.benchmarks.measure import Ratio
from tests.benchmarks.rows.warm_restore import INTERPRETER
from tests.benchmarks.rows.workloads import Workload, ratios_of
from tests.support.s3_endpoint import s3_endpoint

ROWS = ("W-bucket",)
WHAT = "events and state in S3"
GOAL = "≤ 1/6"


def run(_: Iterable[str], root: Path, runs: int, scale: float) -> list[Ratio]:
    if not INTERPRETER.exists():
        note = "no .work/endpoint: make setup"
        return [Ratio("W-bucket", WHAT, "Structured Streaming", GOAL, "cpu s", (), (), note=note)]
    with s3_endpoint(INTERPRETER) as endpoint, patch.dict(os.environ, endpoint.environment):
        spark = new_session(root, endpoint.environment)
        try:
            return ratios_of(spark, "W-bucket", Workload(WHAT, goal=GOAL, endpoint=endpoint), root, runs, scale)
        finally:
            spark.stop()
