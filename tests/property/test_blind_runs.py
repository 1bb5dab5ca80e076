"""Random histories of a pipeline whose runs do not read their state: its state is always that of a pipeline whose runs
do."""

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.functions.change_logs.changes import APPLIED, CHANGE, DELETED
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import ClaimMode
from tests.support.extent import examples
from tests.support.worlds import checkpoint_of, new_deployment

PIPELINE = """\
name: NAME
source: {path: "{data}/{start}-{end}", columns: {user: string, item: string, price: long, at: long}}
key: [user]
states:
  spent:
    kind: value
    fields:
      sum: {agg: sum, of: price}
      n: {agg: count}
      mean: {agg: avg, of: price}
      last: {agg: last, of: item, by: at}
      items: {agg: distinct, of: item}
      best: {agg: top, of: item, by: price, n: 2}
      users: {agg: approx_distinct, of: item}
  least: {kind: value, value: {agg: min, of: price}}
  per_item: {kind: map, user_key: item, fields: {n: {agg: count}, most: {agg: max, of: price}}}
backend: BACKEND
parallelism: PARALLELISM
max_parallelism: 8
checkpoint: {strategy: changelog, materialize_after_checkpoints: 3, inline_threshold_bytes: 0, blind: BLIND}
"""
DELETING = PIPELINE.replace("source: {", "order_by: [at]\nsource: {delete_when: \"item = 'i0'\", ").replace(
    "  per_item:", "# per_item:"
)
"""A map is left out: its entries of a deleted key are known only to somebody who reads it."""
STEPS = st.one_of(
    st.tuples(st.just("run"), st.lists(st.integers(0, 9), max_size=8)),
    st.tuples(st.just("restore"), st.integers(0, 5)),
    st.tuples(st.just("rescale"), st.integers(1, 3)),
)


class Twins:
    """One deployment with a pipeline whose runs are blind, and one of the same definition whose runs are not."""

    def __init__(self, root: Path, backend: str, file: str) -> None:
        (root / "pipelines").mkdir()
        self.root, self.backend, self.file = root, backend, file
        self.deployment = new_deployment(root, root, root / "pipelines")
        self.rescale(2)
        self.day = 0
        self.days: dict[CheckpointId, int] = {}
        self.checkpoints: list[dict[str, CheckpointId]] = []

    def rescale(self, parallelism: int) -> None:
        for name in ("blind", "plain"):
            text = self.file.replace("NAME", name).replace("BACKEND", self.backend)
            text = text.replace("PARALLELISM", str(parallelism)).replace("BLIND", str(name == "blind").lower())
            (self.root / "pipelines" / f"{name}.yaml").write_text(text)

    def run(self, users: list[int]) -> None:
        self.day += 1
        events = pa.table(
            {
                "user": [f"u{n}" for n in users],
                "item": [f"i{(n + self.day) % 3}" for n in users],
                "price": pa.array([n * self.day for n in users], pa.int64()),
                "at": pa.array([self.day * 100 + i for i in range(len(users))], pa.int64()),
            }
        )
        if self.file is DELETING:
            changes = [DELETED if (n + self.day) % 3 == 0 else APPLIED for n in users]
            events = events.append_column(CHANGE, pa.array(changes, pa.int8()))
        made = {name: checkpoint_of(self.deployment, name, self.day, events) for name in ("blind", "plain")}
        self.checkpoints.append(made)
        self.days[made["plain"]] = self.day
        self.compare()

    def restore(self, number: int) -> None:
        if not self.checkpoints:
            return
        chosen = self.checkpoints[number % len(self.checkpoints)]
        for name, checkpoint in chosen.items():
            pipeline = self.deployment.pipeline(name)
            plan = plan_restore(self.deployment, pipeline, str(checkpoint), None, ClaimMode.NO_CLAIM)
            apply_restore(self.deployment, pipeline, plan, "test")
        self.day = self.days[chosen["plain"]]
        self.compare()

    def compare(self) -> None:
        for state in self.deployment.pipeline("plain").states:
            assert self.rows("blind", state) == self.rows("plain", state)

    def rows(self, name: str, state: str) -> list[dict[str, Any]]:
        catalog, pipeline = self.deployment.catalog(), PipelineName(name)
        head = catalog.head(pipeline).head
        assert head is not None
        opened = self.deployment.open(catalog.get(pipeline, head))
        return sorted(opened.to_arrow(state).to_pylist(), key=repr)


@settings(max_examples=examples(30), deadline=None)
@given(
    steps=st.lists(STEPS, min_size=4, max_size=12),
    backend=st.sampled_from(["heap", "rocksdb"]),
    file=st.sampled_from([PIPELINE, DELETING]),
)
def test_the_state_of_blind_runs_is_that_of_others(steps: list[tuple[str, Any]], backend: str, file: str) -> None:
    with tempfile.TemporaryDirectory() as root:
        twins = Twins(Path(root), backend, file)
        for name, argument in steps:
            getattr(twins, name)(argument)
