"""Row P13: restoring the same subtasks from copies that a host kept (``local_recovery``), against the remote
storage.

The remote storage is the S3 endpoint of the tests, on this machine: a network would make the remote side slower. The
unit is wall seconds of the restores alone, from the subtasks' own reports."""

import os
from collections.abc import Iterable
from pathlib import Path
from unittest.mock import patch

import pyarrow.parquet as pq

from statelib.flows.wiring import Deployment
from tests.benchmarks.events import batch_directory, new_deployment, new_pipeline, write_batches
from tests.benchmarks.in_process import Subtasks
from tests.benchmarks.measure import Ratio
from tests.support.s3_endpoint import s3_endpoint

ROWS = ("P13",)
KEYS = 8_000_000
INTERPRETER = Path(__file__).resolve().parents[3] / ".work" / "endpoint" / "bin" / "python"


def run(_: Iterable[str], root: Path, runs: int, scale: float) -> list[Ratio]:
    what, against = "restore from a warm local copy, RocksDB full", "from S3 on this machine"
    if not INTERPRETER.exists():
        return [Ratio("P13", what, against, "≤ 1/5", "wall s", (), (), note="no .work/endpoint: make setup")]
    keys = max(int(KEYS * scale), 5_000)
    with s3_endpoint(INTERPRETER) as endpoint, patch.dict(os.environ, endpoint.environment):
        seconds: dict[str, list[float]] = {}
        entries: dict[str, int] = {}
        for name, local in (("local", "true"), ("remote", "false")):
            endpoint.make_bucket(name)
            seconds[name], entries[name] = _restores(root / name, f"s3://{name}/state", local, keys, runs)
    note = f"{keys:,} events" if entries["local"] == entries["remote"] else f"INVALID, entries differ: {entries}"
    return [
        Ratio("P13", what, against, "≤ 1/5", "wall s", tuple(seconds["local"]), tuple(seconds["remote"]), note=note)
    ]


def _restores(root: Path, storage: str, local: str, keys: int, runs: int) -> tuple[list[float], int]:
    root.mkdir()
    write_batches(root, 1, keys)
    write_batches(root, runs + 2, 10, first=1)
    made = new_deployment(root)
    deployment = Deployment(
        catalog_url=made.catalog_url,
        storage_root=storage,
        pipelines_directory=made.pipelines_directory,
        data=made.data,
        docs_directory=made.docs_directory,
        work_directory=made.work_directory,
    )
    subtasks = Subtasks(deployment, new_pipeline(root, "rocksdb", "full", settings=f"local_recovery: {local}"))
    restore_seconds = []
    for number in range(runs + 2):
        subtasks.prepare(number, pq.read_table(batch_directory(root, number)))
        reports = subtasks.apply()
        restore_seconds.append(sum(report.restored.restore_ms for report in reports if report.restored) / 1000)
        subtasks.finish()
    entries = sum(statistics.total_entries for report in subtasks.reports for statistics in report.statistics)
    return restore_seconds[2:], entries
