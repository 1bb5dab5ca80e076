"""A small deployment for the command line: a heap and a RocksDB pipeline, with every state of a checkpoint."""

import dataclasses
from pathlib import Path

import pyarrow as pa
import pytest

from statelib.flows.checkpoint.steps import abort, begin, register
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.savepoint.steps import begin_savepoint
from statelib.flows.wiring import OPTIONAL, VARIABLES, Deployment
from statelib.model.record import ClaimMode
from tests.support.worlds import checkpoint_of, day, new_deployment, publish_here

SALES = """\
name: sales
source: {path: "{data}/{start}-{end}", columns: {shop: string, item: string, amount: long}}
key: [shop]
states:
  total: {kind: value, fields: {sold: {agg: count}, amount: {agg: sum, of: amount}}}
  per_item: {kind: map, user_key: item, value: {agg: count}}
  items: {kind: list, value: {agg: distinct, of: item}}
backend: heap
parallelism: 2
checkpoint: {inline_threshold_bytes: 1}
"""
TOURS = """\
name: tours
source: {path: "{data}/{start}-{end}", columns: {shop: string, item: string, amount: long}}
key: [shop, item]
states:
  best: {kind: reducing, value: {agg: max, of: amount}}
backend: rocksdb
parallelism: 2
"""


def sales(first: int) -> pa.Table:
    """Return six events of three shops."""
    numbers = range(first, first + 6)
    return pa.table(
        {
            "shop": [f"shop-{n % 3}" for n in numbers],
            "item": [["tea", "café"][n % 2] for n in numbers],
            "amount": pa.array(list(numbers), pa.int64()),
        }
    )


def open_shop(root: Path, storage_root: str = "") -> Deployment:
    """Return a deployment whose checkpoints lie in ``storage_root``, or below ``root`` if it is ''.

    The pipeline sales: 1 and 2 completed, 3 aborted, 4 a savepoint; restored to 1; 5 completed from 1, 6 pending.
    The pipeline tours: 1 completed."""
    pipelines = root / "pipelines"
    pipelines.mkdir(parents=True)
    (pipelines / "sales.yaml").write_text(SALES)
    (pipelines / "tours.yaml").write_text(TOURS)
    deployment = new_deployment(root, root, pipelines)
    deployment = dataclasses.replace(deployment, storage_root=storage_root or deployment.storage_root)
    pipeline = deployment.pipeline("sales")
    checkpoint_of(deployment, "sales", 1, sales(0))
    checkpoint_of(deployment, "sales", 2, sales(6))
    third = begin(deployment, pipeline, day(3), "test").checkpoint_id
    abort(deployment, "sales", third, "a reason to stop")
    saved = begin_savepoint(deployment, pipeline, format="canonical", target=None, note="before", owner="test", key="k")
    publish_here(deployment, pipeline, saved.checkpoint_id)
    register(deployment, pipeline, saved.checkpoint_id)
    apply_restore(deployment, pipeline, plan_restore(deployment, pipeline, "1", None, ClaimMode.NO_CLAIM), "test")
    checkpoint_of(deployment, "sales", 2, sales(100))
    begin(deployment, pipeline, day(3), "test")
    checkpoint_of(deployment, "tours", 1, sales(0))
    return deployment


def environment(deployment: Deployment) -> dict[str, str]:
    """Return the environment variables from which the command line reads the deployment."""
    return dict(zip((*VARIABLES, *OPTIONAL), dataclasses.astuple(deployment), strict=True))


def shop_of_this_process(monkeypatch: pytest.MonkeyPatch, root: Path) -> Deployment:
    """Return a new shop below ``root``, which is the deployment of the Airflow in this process."""
    monkeypatch.setenv("AIRFLOW_HOME", str(root / "home"))
    deployment = open_shop(root / "own")
    for name, value in environment(deployment).items():
        monkeypatch.setenv(name, value)
    return deployment
