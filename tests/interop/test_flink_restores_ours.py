"""A real Flink restores every entry that statelib writes, with both of its backends, at several parallelisms."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from statelib.flows.checkpoint.steps import register
from statelib.flows.savepoint.steps import begin_savepoint
from statelib.model.ids import PipelineName
from statelib.savepoints.lines import export_lines
from statelib.savepoints.opened import Checkpoint, open_checkpoint
from tests.interop.flink_kit import Case, Flink
from tests.interop.seen_lines import comparable, operator_to_see
from tests.support.worlds import checkpoint_of, new_deployment, publish_here

SALES = """\
name: sales
source: {path: "{data}/{start}-{end}", columns: {shop: string, item: string, amount: long, at: instant, weight: double}}
key: [shop, item]
states:
  total: {kind: value, fields: {sold: {agg: count}, amount: {agg: sum, of: amount}, at: {agg: max, of: at}}}
  per_item: {kind: map, user_key: item, value: {agg: sum, of: weight}}
  items: {kind: list, value: {agg: distinct, of: item}}
  most: {kind: reducing, value: {agg: max, of: amount}}
  mean: {kind: aggregating, fields: {weight: {agg: avg, of: weight}}}
  kept:
    kind: value
    fields:
      weight: {agg: last, of: weight, by: at, nulls: keep}
      row: {agg: first, of: [amount, weight], by: [at]}
  latest: {kind: map, user_key: item, value: {agg: last, of: [amount, weight], by: at}}
backend: BACKEND
parallelism: 3
max_parallelism: 128
"""

BLIND = "".join(line for line in SALES.splitlines(True) if not line.startswith(("  items:", "  most:", "  mean:")))
BLIND += "checkpoint: {strategy: changelog, blind: true}\n"
"""A pipeline whose second day leaves the state of the first one unread. Only values and maps can do that."""


def sold(seed: int, rows: int = 3000) -> pa.Table:
    random = np.random.default_rng(seed)
    texts = np.array(["", "tea", "café", "日本", "😀", "x" * 300])
    weights = random.normal(size=rows)
    return pa.table(
        {
            "shop": pa.array([f"shop-{n}" for n in random.integers(0, 200, rows)]),
            "item": pa.array(texts[random.integers(0, len(texts), rows)]),
            "amount": pa.array(random.integers(-(2**60), 2**60, rows)),
            "at": pa.array(random.integers(-(10**18), 10**18, rows), pa.timestamp("ns", "UTC")),
            "weight": pa.array(np.where(random.random(rows) < 0.1, np.nan, weights), from_pandas=True),
        }
    )


def savepoint_of(root: Path, backend: str, file: str = SALES) -> Checkpoint:
    """Take two days of events, then a canonical savepoint."""
    (pipelines := root / "pipelines").mkdir(parents=True)
    (pipelines / "sales.yaml").write_text(file.replace("BACKEND", backend))
    deployment = new_deployment(root, root, pipelines)
    checkpoint_of(deployment, "sales", 1, sold(1))
    second = checkpoint_of(deployment, "sales", 2, sold(2))
    manifest = deployment.open(deployment.catalog().get(PipelineName("sales"), second)).manifest
    assert manifest is not None
    assert len(manifest.deltas) == (3 if file is BLIND else 0)
    pipeline = deployment.pipeline("sales")
    begun = begin_savepoint(deployment, pipeline, format="canonical", target=None, note="", owner="test", key="k")
    publish_here(deployment, pipeline, begun.checkpoint_id)
    return open_checkpoint(register(deployment, pipeline, begun.checkpoint_id).directory)


@pytest.mark.parametrize("file", [SALES, BLIND], ids=["read", "blind"])
@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_a_savepoint_of_a_pipeline_is_restored_by_flink_entry_for_entry(
    tmp_path: Path, flink_1: Flink, backend: str, file: str
) -> None:
    saved = savepoint_of(tmp_path, backend, file)
    ours = comparable(export_lines(saved, None, str(tmp_path)))
    operator = operator_to_see("sales", saved.schema())
    directory = Path(saved.directory.removeprefix("file://"))
    cases = [Case(directory, (operator,), name, p, 128) for name in ("hashmap", "rocksdb") for p in (1, 2, 4)]
    assert len(ours) > 3000
    values = saved.to_arrow("kept", str(tmp_path))["value"].to_pylist()
    assert {None} < {row["weight"]["value"] for row in values}, "some nulls are kept, some values"
    assert {None} < {row["row"]["value"]["weight"] for row in values}
    for restored in flink_1.restore(cases):
        assert restored.error == ""
        assert comparable(restored.lines) == ours


def test_flink_refuses_a_savepoint_that_lacks_a_byte(tmp_path: Path, flink_1: Flink) -> None:
    saved = savepoint_of(tmp_path, "heap")
    directory = Path(saved.directory.removeprefix("file://"))
    file = next(path for path in directory.iterdir() if path.name != "_metadata")
    file.write_bytes(file.read_bytes()[:-1])
    (restored,) = flink_1.restore([Case(directory, (operator_to_see("sales", saved.schema()),), "hashmap", 1, 128)])
    assert "EOFException" in restored.error
