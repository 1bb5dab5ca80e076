"""Thirty days with restores, a poisoned day that is mended, and one that a person releases from quarantine: at each of
the heads, the published table and the feed that is folded equal the state, although the publisher of each head is
killed several times, and nothing is left over."""

import json
import os
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from statelib.errors import CorruptStateError
from statelib.flows.checkpoint.steps import begin, check, register
from statelib.flows.cleanup.garbage import collect_garbage
from statelib.flows.cleanup.retention import retire
from statelib.flows.publication.steps import publish_tables, standings
from statelib.flows.restore.quarantine import release
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import CheckpointState, ClaimMode
from statelib.testing.crash_points import Place, ends_at, kill
from tests.faults.crash_child import run
from tests.support.extent import large, rounds
from tests.support.figures import record
from tests.support.published import (
    by_identity,
    delta_rows,
    feed_rows,
    folded,
    iceberg_environment,
    iceberg_rows,
    table_rows,
)
from tests.support.worlds import day, new_deployment, publish_here

PIPELINE = """\
name: baskets
source: {path: "{data}/{start}-{end}", columns: {user: string, price: long, at: long}}
key: [user]
states:
  spent:
    kind: value
    fields: {total: {agg: sum, of: price}, mean: {agg: avg, of: price}, newest: {agg: last, of: price, by: at}}
    ttl: 4d
backend: BACKEND
parallelism: 2
max_parallelism: 8
checkpoint: {strategy: STRATEGY, inline_threshold_bytes: 0, retain: {count: 6}}
checks:
  expectations:
    - {state: spent, expect: column_values_to_be_between, column: total, min_value: 0, severity: quarantine}
publish:
"""
NAME = PipelineName("baskets")
FORMS = {
    "parquet": ("heap", "canonical", '  FEED: {target: "{data}/FEED", mode: MODE}\n'),
    "delta": ("rocksdb", "incremental", '  FEED: {target: "{data}/FEED", format: delta, mode: MODE}\n'),
    "iceberg": ("heap", "changelog", "  FEED: {target: lake.baskets.FEED, format: iceberg, mode: MODE}\n"),
}
"""By format, the backend, the strategy, and the declaration of a table."""
POINTS = {
    "parquet": ["staging made", "renamed", "file durable", "committed", "durable", "before removal", "removed"],
    "delta": ["before delta commit", "delta committed"],
    "iceberg": ["iceberg file stored", "iceberg committed", "before iceberg commit"],
}
LARGE = large("make test has the days with tables of Parquet, and test_killed_publishing")
DAYS = 30
MENDED, RELEASED = 12, 21
RESTORED = {9: 3, 17: 1, 26: 4}
"""After which run a checkpoint is restored, and how many checkpoints it is behind the head."""


def points_of(form: str) -> list[str]:
    """Return the crash points of a publisher."""
    return [*(f"publication: {point}" for point in POINTS[form]), "pin: committed"]


Rows = dict[tuple[Any, ...], dict[str, Any]]


def publish_until(deployment: Deployment, place: Place) -> None:
    """Publish the tables in a process that is killed at ``place``."""
    os.environ |= iceberg_environment(Path(deployment.data))
    with ends_at(place, kill):
        publish_tables(deployment, deployment.pipeline(NAME))


class Shop:
    """A deployment with one pipeline, and the kills of its publishers."""

    def __init__(self, root: Path, form: str) -> None:
        backend, strategy, declared = FORMS[form]
        text = PIPELINE.replace("BACKEND", backend).replace("STRATEGY", strategy)
        for table, mode in (("feed", "changes"), ("now", "table")):
            text += declared.replace("FEED", table).replace("MODE", mode)
        (root / "pipelines").mkdir()
        (root / "pipelines" / f"{NAME}.yaml").write_text(text)
        self.root, self.form = root, form
        self.deployment = new_deployment(root, root, root / "pipelines")
        self.pipeline = self.deployment.pipeline(NAME)
        self.days: dict[CheckpointId, int] = {}
        self.day = 0
        self.due = 3
        self.published: Rows = {}
        self.killed: list[str] = []
        self.places = self._places()

    def _places(self) -> Iterator[Place]:
        """Yield places of a publisher for ever, at each point of the format in turn."""
        return cycle(Place(point) for point in points_of(self.form))

    def events(self, number: int, poisoned: bool) -> pa.Table:
        """Return the events of a day: most of them are of other users than the day before. In a poisoned one, the total
        of a user becomes negative; the day after a release, the same user pays more."""
        users = [0, *((number * 5 + n) % 23 for n in range(8))]
        prices = [-1000 if poisoned else self.due, *(number * n % 41 for n in range(8))]
        return pa.table(
            {
                "user": [f"u{user}" for user in users],
                "price": pa.array(prices, pa.int64()),
                "at": pa.array(range(number * 100, number * 100 + 9), pa.int64()),
            }
        )

    def apply(self, poisoned: bool = False) -> CheckpointId:
        """Apply the events of the next day, judge the checkpoint and register it."""
        begun = begin(self.deployment, self.pipeline, day(self.day + 1), "test").checkpoint_id
        publish_here(self.deployment, self.pipeline, begun, self.events(self.day + 1, poisoned))
        if poisoned:
            with pytest.raises(CorruptStateError, match="in quarantine"):
                check(self.deployment, self.pipeline, begun)
            return begun
        check(self.deployment, self.pipeline, begun)
        return register(self.deployment, self.pipeline, begun).checkpoint_id

    def run(self, number: int) -> None:
        """Apply one day, as it went in this month."""
        if number == MENDED:
            self.apply(poisoned=True)
        if number == RELEASED:
            release(self.deployment, NAME, self.apply(poisoned=True), "test", "a refund")
            self.due = 2000
        else:
            self.apply()
            self.due = 3
        self.day += 1
        self.days[self.head()] = self.day

    def restore(self, behind: int) -> None:
        records = self.deployment.catalog().list(NAME)
        completed = sorted(r.checkpoint_id for r in records if r.state is CheckpointState.COMPLETED)
        chosen = completed[-1 - behind]
        plan = plan_restore(self.deployment, self.pipeline, str(chosen), None, ClaimMode.NO_CLAIM)
        apply_restore(self.deployment, self.pipeline, plan, "test")
        self.day = self.days[chosen]

    def head(self) -> CheckpointId:
        head = self.deployment.catalog().head(NAME).head
        assert head is not None
        return head

    def state(self) -> Rows:
        """Return the rows that the tables of the head should have."""
        opened = self.deployment.open(self.deployment.catalog().get(NAME, self.head()))
        rows = {}
        for entry in opened.to_arrow("spent").to_pylist():
            value = entry["value"]["value"]
            mean = value["mean"]["sum"] / value["mean"]["count"]
            newest = value["newest"]["value"]
            rows[(entry["key"],)] = {"user": entry["key"], "total": value["total"], "mean": mean, "newest": newest}
        return rows

    def publish(self, kills: int) -> None:
        """Publish the head; publishers are killed before one reaches the end. Readers see the table of the head before,
        or of this one."""
        state = self.state()
        for _ in range(kills):
            place = next(self.places)
            code = run(publish_until, self.deployment, place)
            assert code in (0, -9), place
            for table, rows in self.tables().items():
                assert rows in (self.published, state), (table, place, self.head())
            if code:
                self.killed.append(place.point)
        publish_tables(self.deployment, self.pipeline)
        assert all((s.behind, s.error) == (0, "") for s in standings(self.deployment, self.pipeline))
        assert self.tables() == {"feed": state, "now": state}, self.head()
        self.published = state
        assert self.left_over() == set()

    def tables(self) -> dict[str, Rows]:
        """Return the rows of the feed, folded, and of the table, as readers see them."""
        if self.form == "parquet":
            return {
                "feed": folded(feed_rows(self.root / "feed"), ["user"]),
                "now": table_rows(self.root / "now", ["user"]),
            }
        feed, now = (
            delta_rows(self.root / table) if self.form == "delta" else iceberg_rows(f"baskets.{table}")
            for table in ("feed", "now")
        )
        return {"feed": folded(feed, ["user"]), "now": by_identity(now, ["user"])}

    def left_over(self) -> set[Path]:
        """Return the files of the tables that no commit names, and those of the scratch directory.

        A table in Iceberg cannot list its files. Those of a killed publisher are left to Iceberg's maintenance."""
        files = {path for path in (self.root / "scratch").rglob("*") if path.is_file()}
        for table in ("feed", "now") if self.form != "iceberg" else ():
            files |= self._left_over_of(table)
        return files

    def _left_over_of(self, table: str) -> set[Path]:
        directory = self.root / table
        if self.form == "delta":
            log = [path.read_text() for path in (directory / "_delta_log").glob("*.json")]
            actions = [json.loads(line) for text in log for line in text.splitlines()]
            named = {directory / action["add"]["path"] for action in actions if "add" in action}
            assert DeltaTable(directory).version() + 1 == len(log)
            return set(directory.glob("**/*.parquet")) - named
        manifests = [json.loads(path.read_text()) for path in directory.glob("commit-*/_manifest.json")]
        named = {directory / file["path"] for manifest in manifests for file in manifest["files"]}
        return {path for path in directory.rglob("*") if path.is_file() and path.name != "_manifest.json"} - named


@pytest.mark.slow
@pytest.mark.parametrize("form", ["parquet", *(pytest.param(form, marks=LARGE) for form in ("delta", "iceberg"))])
def test_tables_equal_the_state_at_each_head_of_thirty_days(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in iceberg_environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    shop = Shop(tmp_path, form)
    kills = rounds(3, 6)
    for number in range(1, DAYS + 1):
        shop.run(number)
        shop.publish(kills if number > 1 else 0)
        if number in RESTORED:
            shop.restore(RESTORED[number])
            shop.publish(kills)
        if number % 5 == 0:
            retire(shop.deployment)
            collect_garbage(shop.deployment)
    assert set(shop.killed) == set(points_of(form))
    assert len(shop.killed) >= 70, "more than 200 kills in all three formats"
    record("G13", "publishers killed in thirty days", len(shop.killed), unit="kills")
