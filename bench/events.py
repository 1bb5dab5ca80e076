"""Workload W: events with a long key, a number, a time and a short text, and the pipelines that take them.

State a key: count, sum, and the text of the latest event with its time. Each round of a benchmark is one
day's interval with a batch of its own, keys uniform, as many keys as a batch has events; so each round
finds the state of the rounds before and changes most of it.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from statelib.definition.pipeline import Pipeline, load_pipeline
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import DataInterval

FILES = 2
"""Files a batch, hence tasks that read it."""
PARALLELISM = 2
_FIRST = datetime(2024, 1, 1, tzinfo=UTC)
_PIPELINE = """
name: bench_{backend}
source:
  format: parquet
  path: "{{data}}/events/{{start:%Y-%m-%d}}"
  columns: {{key: long, amount: double, ts: long, text: string}}
key: [key]
states:
  activity:
    kind: value
    fields:
      events: {{agg: count}}
      amount: {{agg: sum, of: amount}}
      last: {{agg: last, of: text, by: ts}}
backend: {backend}
parallelism: {parallelism}
max_parallelism: 128
checkpoint: {{strategy: {strategy}}}
"""


def interval(number: int) -> DataInterval:
    """The data interval of round ``number``."""
    start = _FIRST + timedelta(days=number)
    return DataInterval(int(start.timestamp() * 1000), int((start + timedelta(days=1)).timestamp() * 1000))


def batch_directory(root: Path, number: int) -> Path:
    return root / "data" / "events" / f"{_FIRST + timedelta(days=number):%Y-%m-%d}"


def write_batches(root: Path, rounds: int, events: int) -> None:
    """The batch of each round, always the same for the same arguments. Times are unique: no ties for ``last``."""
    for number in range(rounds):
        directory = batch_directory(root, number)
        directory.mkdir(parents=True)
        random = np.random.default_rng(number)
        order = random.permutation(events)
        for file, rows in enumerate(np.array_split(order, FILES)):
            keys = random.integers(0, events, len(rows))
            columns = {
                "key": pa.array(keys),
                "amount": pa.array(random.integers(0, 1000, len(rows)) / 4),
                "ts": pa.array(rows + number * events),
                "text": pa.array(np.char.add("text-of-", np.char.zfill(keys.astype("U8"), 8))),
            }
            pq.write_table(pa.table(columns), directory / f"{file}.parquet")


def new_deployment(root: Path) -> Deployment:
    """Catalog on SQLite, storage and scratch below ``root``."""
    for name in ("pipelines", "state", "docs", "scratch"):
        (root / name).mkdir()
    return Deployment(
        catalog_url=f"sqlite:///{root}/catalog.db",
        storage_root=str(root / "state"),
        pipelines_directory=str(root / "pipelines"),
        data=str(root / "data"),
        docs_directory=str(root / "docs"),
        work_directory=str(root / "scratch"),
    )


def new_pipeline(root: Path, backend: str) -> Pipeline:
    """The pipeline of the workload on ``heap`` or ``rocksdb``, with that backend's usual strategy."""
    strategy = {"heap": "canonical", "rocksdb": "full"}[backend]
    path = root / "pipelines" / f"{backend}.yaml"
    path.write_text(_PIPELINE.format(backend=backend, strategy=strategy, parallelism=PARALLELISM))
    return load_pipeline(path)
