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
"""The number of files per batch, hence of tasks that read it."""
PARALLELISM = 2
MINUTES = 1440
"""The number of values of the column ``minute``."""
_FIRST = datetime(2024, 1, 1, tzinfo=UTC)
_FIELDS = """
      events: {agg: count}
      amount: {agg: sum, of: amount}
      last: {agg: last, of: text, by: ts}"""
VALUE = f"    kind: value\n    fields:{_FIELDS}"
MAP = f"    kind: map\n    user_key: text\n    fields:{_FIELDS}"
_PIPELINE = """
name: {name}
source:
  format: parquet
  path: "{{data}}/events/{{start:%Y-%m-%d}}{files}"
  columns: {{key: long, amount: double, ts: long, text: string{columns}}}
key: [{key}]
states:
  activity:
{state}
backend: {backend}
parallelism: {parallelism}
max_parallelism: 128
checkpoint: {{strategy: {strategy}{settings}}}
"""


def interval(number: int) -> DataInterval:
    """Return the data interval of round ``number``."""
    start = _FIRST + timedelta(days=number)
    return DataInterval(int(start.timestamp() * 1000), int((start + timedelta(days=1)).timestamp() * 1000))


def batch_directory(root: Path, number: int) -> Path:
    return root / "data" / "events" / f"{_FIRST + timedelta(days=number):%Y-%m-%d}"


def write_batches(
    root: Path,
    rounds: int,
    events: int,
    *,
    keys: int = 0,
    touched: float = 1.0,
    skew: float = 0.0,
    texts: int = 0,
    first: int = 0,
    more_types: bool = False,
) -> None:
    """Write the batch of each round from ``first`` on, always the same for the same arguments. Times are unique:
    there are no ties for ``last``. ``keys``: the number of possible keys, by default the number of events; the first
    round uses all of them, the others a part ``touched`` of them. ``skew``: an exponent above 0 puts most events on
    few keys. ``texts``: the number of texts for each key; by default, a key has one of its own.
    ``more_types``: amounts are written again, as decimals, and the times as minutes of a day and as timestamps in the
    batch's interval, a millisecond apart."""
    keys = keys or events
    for number in range(first, rounds):
        reach = keys if number == 0 else max(int(keys * touched), 1)
        directory = batch_directory(root, number)
        directory.mkdir(parents=True)
        random = np.random.default_rng(number)
        order = random.permutation(events)
        for file, rows in enumerate(np.array_split(order, FILES)):
            drawn = (random.random(len(rows)) ** (1 + skew) * reach).astype(np.int64) * (keys // reach)
            amounts = random.integers(0, 1000, len(rows)) / 4
            named = random.integers(0, texts, len(rows)) if texts else drawn
            columns = {
                "key": pa.array(drawn),
                "amount": pa.array(amounts),
                "ts": pa.array(rows + number * max(events, keys)),
                "text": pa.array(np.char.add("text-of-", np.char.zfill(named.astype("U8"), 8))),
            }
            if more_types:
                columns["price"] = pa.array(amounts).cast(pa.decimal128(18, 2))
                columns["minute"] = pa.array((columns["ts"].to_numpy() % MINUTES).astype(np.int16))
                columns["at"] = pa.array(rows + interval(number).start_ms).cast(pa.timestamp("ms", "UTC"))
            pq.write_table(pa.table(columns), directory / f"{file}.parquet")


def new_deployment(root: Path) -> Deployment:
    """Return a deployment with the catalog on SQLite, storage and scratch below ``root``."""
    for name in ("pipelines", "state", "docs", "scratch"):
        (root / name).mkdir(exist_ok=True)
    return Deployment(
        catalog_url=f"sqlite:///{root}/catalog.db",
        storage_root=str(root / "state"),
        pipelines_directory=str(root / "pipelines"),
        data=str(root / "data"),
        docs_directory=str(root / "docs"),
        work_directory=str(root / "scratch"),
    )


def new_pipeline(
    root: Path,
    backend: str,
    strategy: str = "",
    *,
    name: str = "",
    key: str = "key",
    state: str = VALUE,
    parallelism: int = PARALLELISM,
    settings: str = "",
    files: str = "",
    columns: str = "",
    more: str = "",
) -> Pipeline:
    """Return a pipeline of the workload on ``heap`` or ``rocksdb``, by default with the backend's usual strategy.
    ``settings``: more keys of its ``checkpoint``, in YAML; ``files``: a pattern behind its source's path, because of
    which Spark reads the events and moves them. ``columns``: further columns of the events, in YAML. ``more``: further
    keys of the file, in YAML."""
    strategy = strategy or {"heap": "canonical", "rocksdb": "full"}[backend]
    name = name or f"bench_{backend}_{strategy}"
    path = root / "pipelines" / f"{name}.yaml"
    path.write_text(
        _PIPELINE.format(
            name=name, backend=backend, strategy=strategy, key=key, state=state, parallelism=parallelism,
            settings=settings and f", {settings}", files=files, columns=columns and f", {columns}",
        )
        + more
    )  # fmt: skip
    return load_pipeline(path)
