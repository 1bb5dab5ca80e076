"""Random histories of a pipeline whose runs read only the entries that their events touch: its checkpoints are always
those of a pipeline whose runs read the state as a whole."""

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.functions.change_logs.changes import APPLIED, CHANGE, DELETED
from statelib.model.checkpoint import CheckpointManifest
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import ClaimMode
from statelib.savepoints.opened import Checkpoint
from statelib.savepoints.verification import verify
from tests.support.extent import examples
from tests.support.worlds import checkpoint_of, new_deployment

PIPELINE = """\
name: NAME
source: {path: "{data}/{start}-{end}", columns: {user: string, item: string, price: long, at: long}}
key: [user]
states:
  spent: {kind: value, fields: {sum: {agg: sum, of: price}, items: {agg: distinct, of: item}}}
  seen: {kind: value, fields: {n: long}, function: "tests.property.touched_functions:update"}
  names: {kind: list, value: {agg: collect, of: item, limit: 4}}
  per_item: {kind: map, user_key: item, fields: {n: {agg: count}, most: {agg: max, of: price}}}
backend: rocksdb
parallelism: PARALLELISM
max_parallelism: 8
checkpoint: {strategy: changelog, materialize_after_checkpoints: 3, inline_threshold_bytes: 0, reads: READS}
"""
DELETING = PIPELINE.replace("source: {", "order_by: [at]\nsource: {delete_when: \"item = 'i0'\", ").replace(
    "  per_item:", "# per_item:"
)
"""A map is left out: its entries of a deleted key are known only to somebody who reads it."""
STEPS = st.one_of(
    st.tuples(st.just("run"), st.lists(st.integers(0, 30), max_size=12)),
    st.tuples(st.just("run"), st.lists(st.integers(0, 5), max_size=4)),
    st.tuples(st.just("restore"), st.integers(0, 5)),
    st.tuples(st.just("rescale"), st.integers(1, 3)),
)


class Twins:
    """One deployment with a pipeline that reads touched entries, and one of the same definition that reads all."""

    def __init__(self, root: Path, file: str) -> None:
        (root / "pipelines").mkdir()
        self.root, self.file = root, file
        self.deployment = new_deployment(root, root, root / "pipelines")
        self.rescale(2)
        self.day = 0
        self.days: dict[CheckpointId, int] = {}
        self.checkpoints: list[dict[str, CheckpointId]] = []
        self.origins: Counter[str] = Counter()

    def rescale(self, parallelism: int) -> None:
        for name, reads in (("touched", "touched"), ("plain", "whole")):
            text = self.file.replace("NAME", name).replace("READS", reads)
            text = text.replace("PARALLELISM", str(parallelism))
            (self.root / "pipelines" / f"{name}.yaml").write_text(text)

    def run(self, users: list[int]) -> None:
        self.day += 1
        events = pa.table(
            {
                "user": [f"u{n}" for n in users],
                "item": [f"i{(n + self.day) % 3}" for n in users],
                "price": pa.array([n * (self.day % 4) for n in users], pa.int64()),
                "at": pa.array([self.day * 100 + i for i in range(len(users))], pa.int64()),
            }
        )
        if self.file is DELETING:
            changes = [DELETED if (n + self.day) % 3 == 0 else APPLIED for n in users]
            events = events.append_column(CHANGE, pa.array(changes, pa.int8()))
        made = {name: checkpoint_of(self.deployment, name, self.day, events) for name in ("touched", "plain")}
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

    def compare(self) -> None:
        touched, plain = self.opened("touched"), self.opened("plain")
        assert verify(touched).problems == verify(plain).problems == ()
        for state in self.deployment.pipeline("plain").states:
            assert rows(touched, state) == rows(plain, state)
        assert counts(touched) == counts(plain)
        self.origins.update(manifest(touched).restored_from)

    def opened(self, name: str) -> Checkpoint:
        catalog, pipeline = self.deployment.catalog(), PipelineName(name)
        head = catalog.head(pipeline).head
        assert head is not None
        return self.deployment.open(catalog.get(pipeline, head))


def manifest(opened: Checkpoint) -> CheckpointManifest:
    assert opened.manifest is not None
    return opened.manifest


def counts(opened: Checkpoint) -> Any:
    """Return what the manifest says about the entries and the keys."""
    stored = manifest(opened)
    assert stored.keys is not None
    by_state = [(each.entries.tolist(), each.digests.tolist()) for each in stored.statistics]
    return stored.keys.keys.tolist(), by_state


def rows(opened: Checkpoint, state: str) -> list[dict[str, Any]]:
    return sorted(opened.to_arrow(state).to_pylist(), key=repr)


@settings(max_examples=examples(30), deadline=None)
@given(steps=st.lists(STEPS, min_size=4, max_size=12), file=st.sampled_from([PIPELINE, DELETING]))
def test_runs_that_read_touched_entries_write_the_checkpoints_of_others(
    steps: list[tuple[str, Any]], file: str
) -> None:
    with tempfile.TemporaryDirectory() as root:
        twins = Twins(Path(root), file)
        for name, argument in steps:
            getattr(twins, name)(argument)


def test_a_history_of_small_batches_reads_touched_entries(tmp_path: Path) -> None:
    twins = Twins(tmp_path, PIPELINE)
    for users in (list(range(30)), [1, 2], [2, 40], [0, 1], [3]):
        twins.run(users)
    assert twins.origins["touched"] >= 4
