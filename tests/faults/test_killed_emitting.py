"""A publisher of emitted rows that is killed at each of its crash points, after a restore: readers see the rows of the
lineage before or after the commit, and the next publisher takes back and adds each row once."""

import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from statelib.flows.publication.steps import publish_tables
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.wiring import Deployment
from statelib.model.record import ClaimMode
from statelib.testing.crash_points import Place, ends_at, kill, recorded
from tests.faults.crash_child import run
from tests.support.emitting import COUNTS, events_of, expected_alerts, found_alerts
from tests.support.extent import rounds
from tests.support.published import delta_rows, feed_rows, folded, iceberg_environment, iceberg_rows
from tests.support.worlds import checkpoint_of, day, new_deployment

PUBLISH = {
    "parquet": 'publish: {feed: {target: "{data}/feed", mode: changes, output: alerts}}\n',
    "delta": 'publish: {feed: {target: "{data}/feed", format: delta, mode: changes, output: alerts}}\n',
    "iceberg": "publish: {feed: {target: lake.counts.feed, format: iceberg, mode: changes, output: alerts}}\n",
}
DAYS = {1: [(1, 10), (2, 11)], 2: [(1, 20), (2, 2)], 3: [(3, 30), (4, 31)]}
AFTER = {2: [(2, 21)], 3: [(3, 31), (5, 41), (6, 3)]}
"""The events of days 2 and 3 after the restore to day 1."""


def publish(deployment: Deployment) -> None:
    publish_tables(deployment, deployment.pipeline("counts"))


def publish_killed(deployment: Deployment, environment: dict[str, str], place: Place) -> None:
    """Publish the feed in a process of its own, which is killed at ``place``."""
    os.environ |= environment
    with ends_at(place, kill):
        publish(deployment)


def step(deployment: Deployment, number: int, rows: list[tuple[int, int]]) -> None:
    checkpoint_of(deployment, "counts", number, events_of(rows, day(number).start_ms))


def feed_of(deployment: Deployment, form: str) -> list[tuple[Any, ...]]:
    """Return the rows of the folded feed."""
    target = Path(deployment.data) / "feed"
    if form == "parquet":
        rows = feed_rows(target)
    else:
        rows = delta_rows(target) if form == "delta" else iceberg_rows("counts.feed")
    return found_alerts(pa.Table.from_pylist(list(folded(rows, ["checkpoint_id", "row_number"]).values()), rows.schema))


@pytest.mark.parametrize("form", list(PUBLISH))
def test_the_next_publisher_adds_and_takes_back_each_row_once(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, saved = tmp_path / "world", tmp_path / "saved"
    (root / "pipelines").mkdir(parents=True)
    environment = iceberg_environment(root)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    text = COUNTS.replace("BACKEND", "heap").replace("STRATEGY", "canonical")
    (root / "pipelines" / "counts.yaml").write_text(text + PUBLISH[form])
    deployment = new_deployment(root, root, root / "pipelines")
    for number in (1, 2, 3):
        step(deployment, number, DAYS[number])
        publish(deployment)
    pipeline = deployment.pipeline("counts")
    apply_restore(deployment, pipeline, plan_restore(deployment, pipeline, "1", None, ClaimMode.NO_CLAIM), "test")
    for number in (2, 3):
        step(deployment, number, AFTER[number])
    before = feed_of(deployment, form)
    steps = [expected_alerts(DAYS[1] + AFTER[2]), expected_alerts(DAYS[1] + AFTER[2] + AFTER[3])]
    shutil.copytree(root, saved)
    with recorded() as reached:
        publish(deployment)
    assert feed_of(deployment, form) == steps[-1] != before
    places = [place for place in reached if place.point.startswith(("publication", "pin", "unpin"))]
    assert len(places) >= 8
    for place in places[:: rounds(2, 1)]:
        shutil.rmtree(root)
        shutil.copytree(saved, root)
        assert run(publish_killed, deployment, environment, place) == -9, place
        assert feed_of(deployment, form) in (before, *steps), place
        publish(deployment)
        assert feed_of(deployment, form) == steps[-1], place
        if form == "parquet":
            assert list((root / "feed" / "_staging").iterdir()) == [], place
