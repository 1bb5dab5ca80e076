"""Random histories of runs, restores, expiry, retention and crashes of publishing: the feed that is folded and the
table are always the state of the head."""

import os
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from statelib.backends.wrappers.changed_entries import DELETED, INSERTED, UPDATED
from statelib.flows.cleanup.garbage import collect_garbage
from statelib.flows.cleanup.retention import retire
from statelib.flows.publication.steps import publish_tables, standings
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import CheckpointState, ClaimMode
from statelib.savepoints.diff.states import Diff
from statelib.savepoints.opened import Checkpoint
from statelib.savepoints.recorded_changes import recorded_changes
from statelib.testing.crash_points import Crash, Place, crash, ends_at
from tests.support.extent import examples
from tests.support.published import (
    by_identity,
    delta_rows,
    feed_rows,
    folded,
    iceberg_environment,
    iceberg_rows,
    table_rows,
)
from tests.support.worlds import checkpoint_of, new_deployment

PIPELINE = """\
name: carts
source: {path: "{data}/{start}-{end}", columns: {user: string, item: string, price: long}}
key: [user]
states:
  last: {kind: value, fields: {spent: {agg: avg, of: price}, items: {agg: count}}, ttl: 2d}
  per_item: {kind: map, user_key: item, value: {agg: count}}
backend: BACKEND
parallelism: 2
max_parallelism: 8
checkpoint: {strategy: STRATEGY, inline_threshold_bytes: 0, retain: {count: 1}}
"""
PUBLISH = {
    "parquet": """\
publish:
  feed: {target: "{data}/feed", mode: changes, state: last}
  now: {target: "{data}/now", mode: table, state: last, retain: 2}
  item_feed: {target: "{data}/item_feed", mode: changes, state: per_item, columns: {item: user_key, times: value}}
""",
    "delta": """\
publish:
  feed: {target: "{data}/feed", format: delta, mode: changes, state: last}
  now: {target: "{data}/now", format: delta, mode: table, state: last}
  item_feed: {target: "{data}/item_feed", format: delta, mode: table, state: per_item}
""",
    "iceberg": """\
publish:
  feed: {target: lake.carts.feed, format: iceberg, mode: changes, state: last}
  now: {target: lake.carts.now, format: iceberg, mode: table, state: last}
  item_feed: {target: lake.carts.item_feed, format: iceberg, mode: changes, state: per_item}
""",
}
STORED = (CheckpointState.COMPLETED, CheckpointState.PENDING)
POINTS = [
    "publication: staging made",
    "publication: file durable",
    "publication: durable",
    "publication: renamed",
    "publication: committed",
    "publication: before removal",
    "publication: removed",
    "publication: before delta commit",
    "publication: delta committed",
    "publication: iceberg file stored",
    "publication: before iceberg commit",
    "publication: iceberg committed",
    "pin: committed",
    "unpin: before commit",
]
USERS = st.lists(st.integers(0, 7), max_size=6)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("run"), USERS),
        st.tuples(st.just("restore"), st.integers(0, 5)),
        st.tuples(st.just("clean"), st.none()),
        st.tuples(st.just("publish"), st.none()),
        st.tuples(st.just("crash"), st.tuples(st.sampled_from(POINTS), st.integers(0, 3))),
    ),
    min_size=2,
    max_size=9,
)


KINDS = [
    (backend, strategy, form)
    for backend, strategy in (("heap", "canonical"), ("heap", "changelog"), ("rocksdb", "incremental"))
    for form in PUBLISH
]


class History:
    """One deployment, and what is expected of its tables."""

    def __init__(self, root: Path, backend: str, strategy: str, form: str) -> None:
        (root / "pipelines").mkdir()
        text = PIPELINE.replace("BACKEND", backend).replace("STRATEGY", strategy) + PUBLISH[form]
        self.form = form
        (root / "pipelines" / "carts.yaml").write_text(text)
        self.root = root
        self.deployment = new_deployment(root, root, root / "pipelines")
        self.pipeline = self.deployment.pipeline("carts")
        self.days: dict[CheckpointId, int] = {}
        self.day = 0

    def run(self, users: list[int]) -> None:
        self.day += 1
        events = pa.table(
            {
                "user": [f"u{n}" for n in users],
                "item": [f"i{n % 2}" for n in users],
                "price": pa.array([n * self.day for n in users], pa.int64()),
            }
        )
        checkpoint = checkpoint_of(self.deployment, "carts", self.day, events)
        self.days[checkpoint] = self.day
        self.check_recorded(checkpoint)

    def check_recorded(self, checkpoint: CheckpointId) -> None:
        """Compare the changes that the run recorded with the difference between the checkpoint and its base."""
        catalog = self.deployment.catalog()
        record = catalog.get(PipelineName("carts"), checkpoint)
        after = self.deployment.open(record)
        for state in ("last", "per_item"):
            recorded = recorded_changes(after, state)
            if record.base is None:
                assert recorded is None
                continue
            assert recorded is not None
            rows = {key_of(row): row for table in recorded for row in table.to_pylist()}
            before = self.deployment.open(catalog.get(PipelineName("carts"), record.base))
            differences = differing(before, after, state)
            diff = {key_of(row): row for row in Diff(before, after).to_arrow(state).to_pylist()}
            assert {key: (row["before"], row["after"]) for key, row in diff.items()} == differences
            kinds = {"added": INSERTED, "changed": UPDATED, "removed": DELETED}
            for row in diff.values():
                written = rows.pop(key_of(row), None)
                if written is None:
                    assert row["change"] == "changed"
                    assert row["before"]["value"] == row["after"]["value"], "only the time of the last access"
                else:
                    assert (written["change"], written["value"]) == (kinds[row["change"]], row["after"])
            assert {row["change"] for row in rows.values()} <= {UPDATED}

    def restore(self, choice: int) -> None:
        records = self.deployment.catalog().list(PipelineName("carts"))
        restorable = [r.checkpoint_id for r in records if r.state is CheckpointState.COMPLETED]
        if restorable:
            chosen = restorable[choice % len(restorable)]
            plan = plan_restore(self.deployment, self.pipeline, str(chosen), None, ClaimMode.NO_CLAIM)
            apply_restore(self.deployment, self.pipeline, plan, "test")
            self.day = self.days[chosen]

    def clean(self, _: None) -> None:
        retire(self.deployment)
        collect_garbage(self.deployment)
        records = [r for r in self.deployment.catalog().list(PipelineName("carts")) if r.state in STORED]
        manifests = [self.deployment.open(record).manifest for record in records]
        needed = {file.path.rpartition("/")[2] for manifest in manifests if manifest for file in manifest.files}
        task_owned = self.root / "state" / "carts" / "taskowned"
        assert {path.name for path in task_owned.glob("*")} <= needed, "changes go with their checkpoint"

    def crash(self, where: tuple[str, int]) -> None:
        try:
            with ends_at(Place(*where), crash):
                publish_tables(self.deployment, self.pipeline)
        except Crash:
            pass
        else:
            self.check()

    def publish(self, _: None) -> None:
        publish_tables(self.deployment, self.pipeline)
        self.check()

    def rows(self, table: str) -> pa.Table:
        """Return the rows of a table in Delta or Iceberg."""
        return delta_rows(self.root / table) if self.form == "delta" else iceberg_rows(f"carts.{table}")

    def check(self) -> None:
        """Compare every table with the state of the head."""
        head = self.deployment.catalog().head(PipelineName("carts")).head
        assert all((s.behind, s.error) == (0, "") for s in standings(self.deployment, self.pipeline))
        if head is None:
            return
        opened = self.deployment.open(self.deployment.catalog().get(PipelineName("carts"), head))
        averages = {
            (row["key"],): {
                "user": row["key"],
                "spent": _average(row["value"]),
                "items": row["value"]["value"]["items"],
            }
            for row in opened.to_arrow("last").to_pylist()
        }
        item, times = ("item", "times") if self.form == "parquet" else ("user_key", "value")
        items = {
            (row["key"], row["user_key"]): {"user": row["key"], item: row["user_key"], times: row["value"]}
            for row in opened.to_arrow("per_item").to_pylist()
        }
        if self.form != "parquet":
            feed, now, per_item = (self.rows(table) for table in ("feed", "now", "item_feed"))
            assert folded(feed, ["user"]) == averages
            assert by_identity(now, ["user"]) == averages
            read = folded if self.form == "iceberg" else by_identity
            assert read(per_item, ["user", "user_key"]) == items
            return
        assert folded(feed_rows(self.root / "feed"), ["user"]) == averages
        assert table_rows(self.root / "now", ["user"]) == averages
        assert folded(feed_rows(self.root / "item_feed"), ["user", "item"]) == items
        for table in ("feed", "now", "item_feed"):
            assert list((self.root / table / "_staging").iterdir()) == [], "nothing is left over"
        assert len(list((self.root / "now").glob("commit-*/_manifest.json"))) <= 2


def differing(before: Checkpoint, after: Checkpoint, state: str) -> dict[tuple[Any, ...], tuple[Any, Any]]:
    """Return the values before and after of the entries that differ, of all entries of both checkpoints."""
    old, new = ({key_of(row): row["value"] for row in side.to_arrow(state).to_pylist()} for side in (before, after))
    pairs = {key: (old.get(key), new.get(key)) for key in old.keys() | new.keys()}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def key_of(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["key"], row.get("user_key")


def _average(value: dict[str, Any]) -> float | None:
    spent = value["value"]["spent"]
    return spent["sum"] / spent["count"] if spent["count"] else None


@settings(max_examples=examples(8), deadline=None)
@given(STEPS, st.sampled_from(KINDS))
@example(
    [("run", [1, 2, 3]), ("publish", None), ("run", [1]), ("publish", None), ("restore", 1), ("publish", None),
     ("run", [4]), ("publish", None), ("run", []), ("run", []), ("clean", None), ("publish", None)],
    ("heap", "canonical", "parquet"),
)  # fmt: skip
@example(
    [("run", [1, 2, 3]), ("publish", None), ("run", [4, 1]), ("run", []), ("run", [5]), ("clean", None),
     ("crash", ("publication: durable", 0)), ("publish", None)],
    ("rocksdb", "incremental", "parquet"),
)  # fmt: skip
@example(
    [("run", [1, 2, 3]), ("publish", None), ("run", [4, 1]), ("run", []), ("run", [5]), ("clean", None),
     ("crash", ("publication: delta committed", 0)), ("publish", None), ("restore", 0), ("publish", None)],
    ("rocksdb", "incremental", "delta"),
)  # fmt: skip
@example(
    [("run", [1, 2, 3]), ("publish", None), ("run", [4, 1]), ("run", []), ("run", [5]), ("clean", None),
     ("crash", ("publication: iceberg committed", 0)), ("publish", None), ("restore", 0), ("publish", None)],
    ("rocksdb", "incremental", "iceberg"),
)  # fmt: skip
def test_the_tables_are_the_state_of_the_head(steps: list[tuple[str, Any]], kind: tuple[str, str, str]) -> None:
    with tempfile.TemporaryDirectory() as root, patch.dict(os.environ, iceberg_environment(Path(root))):
        history = History(Path(root), *kind)
        for name, argument in steps:
            getattr(history, name)(argument)
        history.publish(None)
