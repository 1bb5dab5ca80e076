"""Random histories of a pipeline whose intervals are mended: its state is always that of a pipeline that ran all
corrected intervals from the first one on."""

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from statelib.errors import InvalidRequestError
from statelib.flows.checkpoint.kept_deltas import mendable_intervals
from statelib.flows.checkpoint.steps import register
from statelib.flows.mending.steps import begin_mend, plan_mend
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.functions.change_logs.changes import APPLIED, CHANGE, DELETED
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import ClaimMode
from tests.support.extent import examples
from tests.support.worlds import checkpoint_of, day, new_deployment, publish_here

PIPELINE = """\
name: NAME
source: {path: "{data}/{start}-{end}", columns: {user: string, item: string, price: long, rate: double, at: long}}
key: [user]
states:
  spent:
    kind: value
    fields:
      sum: {agg: sum, of: price}
      rates: {agg: sum, of: rate}
      n: {agg: count}
      mean: {agg: avg, of: price}
      last: {agg: last, of: item, by: at}
      items: {agg: distinct, of: item}
      best: {agg: top, of: item, by: price, n: 2}
      users: {agg: approx_distinct, of: item}
  least: {kind: reducing, value: {agg: min, of: price}}
  shares: {kind: aggregating, fields: {n: {agg: count}, at: {agg: histogram, of: at, bounds: [150, 350]}}}
  per_item: {kind: map, user_key: item, fields: {n: {agg: count}, most: {agg: max, of: price}}}
backend: BACKEND
parallelism: PARALLELISM
max_parallelism: 8
checkpoint: {strategy: STRATEGY, inline_threshold_bytes: 64KEEPS}
"""
DELETING = PIPELINE.replace("source: {", "order_by: [at]\nsource: {delete_when: \"item = 'i0'\", ").replace(
    "  per_item:", "# per_item:"
)
STRATEGIES = [("heap", "canonical"), ("heap", "changelog"), ("rocksdb", "incremental"), ("rocksdb", "changelog")]
USERS = st.lists(st.integers(0, 5), max_size=6)
STEPS = st.tuples(st.sampled_from(["mend", "mend", "mend", "run", "restore", "rescale"]), st.integers(0, 9), USERS)
KEPT_DAYS = 5


class History:
    """A pipeline that keeps deltas for five days, and the events of each of its checkpoints by their days."""

    def __init__(self, root: Path, storing: tuple[str, str], file: str) -> None:
        (root / "pipelines").mkdir()
        self.root, self.file = root, file
        self.backend, self.strategy = storing
        self.deployment = new_deployment(root, root, root / "pipelines")
        self.parallelism, self.replays = 2, 0
        self.days: list[pa.Table] = []
        self.checkpoints: list[tuple[CheckpointId, list[pa.Table]]] = []
        self.write("mended")

    def write(self, name: str) -> None:
        keeps = f", mendable: {KEPT_DAYS}d" if name == "mended" else ""
        text = self.file.replace("NAME", name).replace("BACKEND", self.backend).replace("STRATEGY", self.strategy)
        text = text.replace("PARALLELISM", str(self.parallelism)).replace("KEEPS", keeps)
        (self.root / "pipelines" / f"{name}.yaml").write_text(text)

    def rescale(self, parallelism: int) -> None:
        self.parallelism = parallelism
        self.write("mended")

    def step(self, kind: str, number: int, users: list[int]) -> None:
        if kind == "run":
            self.run(users)
        elif kind == "mend":
            self.mend(number % len(self.days), users)
        elif kind == "restore":
            self.restore(number)
        else:
            self.rescale(number % 3 + 1)

    def run(self, users: list[int]) -> None:
        self.days = [*self.days, self.events(len(self.days) + 1, users, len(self.checkpoints))]
        self.taken(checkpoint_of(self.deployment, "mended", len(self.days), self.days[-1]))

    def mend(self, number: int, users: list[int]) -> None:
        pipeline, interval = self.deployment.pipeline("mended"), day(number + 1)
        if number < len(self.days) - KEPT_DAYS:
            with pytest.raises(InvalidRequestError, match="keeps no delta"):
                plan_mend(self.deployment, pipeline, interval)
            return
        events = self.events(number + 1, users, len(self.checkpoints))
        begun = begin_mend(self.deployment, pipeline, plan_mend(self.deployment, pipeline, interval), "test")
        publish_here(self.deployment, pipeline, begun.checkpoint_id, events)
        self.days = [*self.days[:number], events, *self.days[number + 1 :]]
        self.taken(register(self.deployment, pipeline, begun.checkpoint_id).checkpoint_id)

    def restore(self, number: int) -> None:
        checkpoint, self.days = self.checkpoints[number % len(self.checkpoints)]
        pipeline = self.deployment.pipeline("mended")
        plan = plan_restore(self.deployment, pipeline, str(checkpoint), None, ClaimMode.NO_CLAIM)
        apply_restore(self.deployment, pipeline, plan, "test")

    def taken(self, checkpoint: CheckpointId) -> None:
        """Note a checkpoint, and compare it with a replay of its days by a pipeline that keeps nothing."""
        self.checkpoints.append((checkpoint, self.days))
        self.replays += 1
        name = f"replay{self.replays}"
        self.write(name)
        for number, events in enumerate(self.days, start=1):
            checkpoint_of(self.deployment, name, number, events)
        for state in self.deployment.pipeline(name).states:
            assert self.rows("mended", state) == self.rows(name, state)
        opened = self.deployment.open(self.deployment.catalog().get(PipelineName("mended"), checkpoint))
        first = max(0, len(self.days) - KEPT_DAYS)
        expected = tuple(day(number + 1) for number in range(first, len(self.days)))
        assert mendable_intervals(self.deployment.pipeline("mended"), opened) == expected

    def events(self, number: int, users: list[int], salt: int) -> pa.Table:
        events = pa.table(
            {
                "user": [f"u{n}" for n in users],
                "item": [f"i{(n + number + salt) % 3}" for n in users],
                "price": pa.array([n * number + salt for n in users], pa.int64()),
                "rate": pa.array([n / 7 + salt / 3 for n in users], pa.float64()),
                "at": pa.array([number * 100 + i for i in range(len(users))], pa.int64()),
            }
        )
        if self.file is not DELETING:
            return events
        changes = [DELETED if (n + number + salt) % 3 == 0 else APPLIED for n in users]
        return events.append_column(CHANGE, pa.array(changes, pa.int8()))

    def rows(self, name: str, state: str) -> list[dict[str, Any]]:
        catalog, pipeline = self.deployment.catalog(), PipelineName(name)
        head = catalog.head(pipeline).head
        assert head is not None
        opened = self.deployment.open(catalog.get(pipeline, head))
        return sorted(opened.to_arrow(state).to_pylist(), key=repr)


@settings(max_examples=examples(20), deadline=None)
@given(
    runs=st.lists(USERS, min_size=2, max_size=4),
    steps=st.lists(STEPS, min_size=3, max_size=8),
    storing=st.sampled_from(STRATEGIES),
    file=st.sampled_from([PIPELINE, DELETING]),
)
@example([[0, 1], [0, 2], [0, 1, 3]], [("mend", n, [0, 0, 4 + n]) for n in range(3)], STRATEGIES[0], PIPELINE)
@example([[0, 1], [0, 2], [0, 1, 3]], [("mend", n, [0, 1 + n, 2]) for n in (2, 0, 1, 0)], STRATEGIES[2], DELETING)
def test_a_mended_state_is_that_of_a_replay(
    runs: list[list[int]], steps: list[tuple[str, int, list[int]]], storing: tuple[str, str], file: str
) -> None:
    with tempfile.TemporaryDirectory() as root:
        history = History(Path(root), storing, file)
        for users in runs:
            history.run(users)
        for kind, number, users in steps:
            history.step(kind, number, users)
