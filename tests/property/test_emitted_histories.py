"""Random histories of runs, restores, retention and crashes of publishing: the folded feed of an output has exactly the
rows that the runs in the lineage of the head emitted."""

import os
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from statelib.flows.cleanup.garbage import collect_garbage
from statelib.flows.cleanup.retention import retire
from statelib.flows.publication.steps import publish_tables, standings
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import CheckpointState, ClaimMode
from statelib.testing.crash_points import Crash, Place, crash, ends_at
from tests.property.test_published_histories import POINTS
from tests.support.emitting import COUNTS, events_of, expected_alerts, found_alerts
from tests.support.extent import examples
from tests.support.published import delta_rows, feed_rows, folded, iceberg_environment, iceberg_rows
from tests.support.worlds import checkpoint_of, day, new_deployment

PUBLISH = {
    "parquet": 'publish: {feed: {target: "{data}/feed", mode: changes, output: alerts}}\n',
    "delta": 'publish: {feed: {target: "{data}/feed", format: delta, mode: changes, output: alerts}}\n',
    "iceberg": "publish: {feed: {target: lake.counts.feed, format: iceberg, mode: changes, output: alerts}}\n",
}
EVENTS = st.lists(st.tuples(st.integers(0, 9), st.integers(7, 14)), max_size=6)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("run"), EVENTS),
        st.tuples(st.just("run"), EVENTS),
        st.tuples(st.just("restore"), st.integers(0, 5)),
        st.tuples(st.just("clean"), st.none()),
        st.tuples(st.just("publish"), st.none()),
        st.tuples(st.just("crash"), st.tuples(st.sampled_from(POINTS), st.integers(0, 2))),
    ),
    min_size=3,
    max_size=12,
)
KINDS = [
    (backend, strategy, form)
    for backend, strategy in (("heap", "canonical"), ("rocksdb", "incremental"))
    for form in PUBLISH
]
NAME = PipelineName("counts")
ROWS = [(1, 10), (2, 11), (3, 12)]


class History:
    """One deployment, and the rows that are expected in its feed."""

    def __init__(self, root: Path, backend: str, strategy: str, form: str) -> None:
        (root / "pipelines").mkdir()
        text = COUNTS.replace("BACKEND", backend).replace("STRATEGY", strategy) + PUBLISH[form]
        (root / "pipelines" / "counts.yaml").write_text(text)
        self.root = root
        self.form = form
        self.deployment = new_deployment(root, root, root / "pipelines")
        self.pipeline = self.deployment.pipeline("counts")
        self.emitted: dict[int, list[tuple[Any, ...]]] = {}
        self.days: dict[int, int] = {}
        self.day = 0
        self.published: set[int] = set()
        self.restored = False

    def run(self, rows: list[tuple[int, int]]) -> None:
        self.day += 1
        number = checkpoint_of(self.deployment, "counts", self.day, events_of(rows, day(self.day).start_ms))
        self.days[number] = self.day
        self.emitted[number] = expected_alerts(rows)

    def restore(self, choice: int) -> None:
        records = self.deployment.catalog().list(NAME)
        restorable = [r.checkpoint_id for r in records if r.state is CheckpointState.COMPLETED]
        if restorable:
            chosen = restorable[choice % len(restorable)]
            plan = plan_restore(self.deployment, self.pipeline, str(chosen), None, ClaimMode.NO_CLAIM)
            apply_restore(self.deployment, self.pipeline, plan, "test")
            self.day, self.restored = self.days[chosen], True

    def clean(self, _: None) -> None:
        retire(self.deployment)
        collect_garbage(self.deployment)

    def crash(self, where: tuple[str, int]) -> None:
        try:
            with ends_at(Place(*where), crash):
                publish_tables(self.deployment, self.pipeline)
        except Crash:
            self.published |= self.feed().keys()
        else:
            self.check()

    def publish(self, _: None) -> None:
        publish_tables(self.deployment, self.pipeline)
        self.check()

    def feed(self) -> dict[int, list[tuple[Any, ...]]]:
        """Return the rows of the folded feed by the checkpoint that emitted them."""
        if self.form == "parquet":
            rows = feed_rows(self.root / "feed") if list(self.root.glob("feed/commit-*")) else None
        elif self.form == "delta":
            rows = delta_rows(self.root / "feed") if (self.root / "feed" / "_delta_log").exists() else None
        else:
            rows = iceberg_rows("counts.feed") if list(self.root.glob("lake/**/*.metadata.json")) else None
        if rows is None:
            return {}
        by_run: dict[int, list[dict[str, Any]]] = {}
        for (number, _), row in folded(rows, ["checkpoint_id", "row_number"]).items():
            by_run.setdefault(number, []).append(row)
        for number, of_run in by_run.items():
            assert sorted(row["row_number"] for row in of_run) == list(range(1, len(of_run) + 1)), number
        return {number: found_alerts(pa.Table.from_pylist(of_run, rows.schema)) for number, of_run in by_run.items()}

    def check(self) -> None:
        """Compare the feed with the rows that the lineage of the head emitted."""
        assert all((s.behind, s.error) == (0, "") for s in standings(self.deployment, self.pipeline))
        head = self.deployment.catalog().head(NAME).head
        lineage = self.deployment.catalog().lineage(NAME, head) if head else []
        feed = self.feed()
        expected = {r.checkpoint_id: self.emitted[r.checkpoint_id] for r in lineage if self.emitted[r.checkpoint_id]}
        for number in expected.keys() - feed.keys():
            record = self.deployment.catalog().get(NAME, CheckpointId(number))
            assert record.state is not CheckpointState.COMPLETED, "its rows could be published"
            assert self.restored, "retention keeps what is not published"
            assert number not in self.published, "the feed has its rows"
            del expected[number]
        assert feed == expected
        self.published |= feed.keys()


@settings(max_examples=examples(30), deadline=None)
@given(STEPS, st.sampled_from(KINDS))
@example(
    [("run", ROWS), ("run", ROWS), ("run", ROWS), ("publish", None), ("restore", 2), ("publish", None),
     ("clean", None), ("run", ROWS), ("publish", None), ("restore", 1), ("publish", None)],
    ("heap", "canonical", "parquet"),
)  # fmt: skip
@example(
    [("run", ROWS), ("run", ROWS), ("run", ROWS), ("publish", None), ("restore", 2), ("run", ROWS[1:]),
     ("publish", None), ("restore", 1), ("publish", None), ("run", ROWS), ("publish", None)],
    ("heap", "canonical", "delta"),
)  # fmt: skip
@example(
    [("run", ROWS), ("run", ROWS), ("run", ROWS), ("clean", None), ("crash", ("publication: durable", 0)),
     ("run", ROWS), ("clean", None), ("publish", None)],
    ("rocksdb", "incremental", "parquet"),
)  # fmt: skip
@example(
    [("run", ROWS), ("publish", None), ("run", ROWS), ("run", ROWS), ("crash", ("publication: delta committed", 0)),
     ("restore", 2), ("clean", None), ("publish", None)],
    ("heap", "canonical", "delta"),
)  # fmt: skip
@example(
    [("run", ROWS), ("publish", None), ("run", ROWS), ("run", ROWS), ("crash", ("publication: iceberg committed", 0)),
     ("restore", 2), ("clean", None), ("publish", None)],
    ("rocksdb", "incremental", "iceberg"),
)  # fmt: skip
def test_the_feed_has_the_rows_of_the_lineage_of_the_head(
    steps: list[tuple[str, Any]], kind: tuple[str, str, str]
) -> None:
    with tempfile.TemporaryDirectory() as root, patch.dict(os.environ, iceberg_environment(Path(root))):
        history = History(Path(root), *kind)
        for name, argument in steps:
            getattr(history, name)(argument)
        history.publish(None)
