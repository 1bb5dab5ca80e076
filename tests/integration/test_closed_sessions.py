"""Sessions that are emitted when they are closed: each once, with its last contents, through restores and deletions."""

import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from statelib.errors import InvalidRequestError
from statelib.flows.cleanup.garbage import collect_garbage
from statelib.flows.cleanup.retention import retire
from statelib.flows.publication.steps import publish_tables
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.wiring import Deployment
from statelib.model.moments import HOUR_MS
from statelib.model.record import ClaimMode
from tests.integration.shop_cli import said
from tests.support.published import feed_rows, folded
from tests.support.worlds import checkpoint_of, day, new_deployment

VISITS = """\
name: visits
source: {path: "{data}/{start}-{end}", columns: {who: string, cents: long, at: instant}}
key: [who]
states:
  open:
    kind: value
    fields: {views: {agg: count}, mean: {agg: avg, of: cents}}
    window: {time: at, session: 6h, allowed_lateness: LATENESS, retain: RETAIN}
outputs:
  ended: {closed: open}
backend: BACKEND
parallelism: 2
max_parallelism: 8
checkpoint: {strategy: STRATEGY, inline_threshold_bytes: 0, retain: {count: 2}}
publish:
  ended: {target: "{data}/ended", mode: changes, output: ended}
"""
WAYS = [
    ("heap", "canonical", "0s", "0s"),
    ("heap", "changelog", "0s", "3d"),
    ("rocksdb", "incremental", "12h", "0s"),
    ("rocksdb", "changelog", "12h", "2d"),
]
Event = tuple[str, int, int]


def deployment_of(root: Path, backend: str, strategy: str, lateness: str, retain: str) -> Deployment:
    (root / "pipelines").mkdir()
    text = VISITS.replace("BACKEND", backend).replace("STRATEGY", strategy)
    (root / "pipelines" / "visits.yaml").write_text(text.replace("LATENESS", lateness).replace("RETAIN", retain))
    return new_deployment(root, root, root / "pipelines")


def events_of_day(chance: random.Random, number: int) -> list[Event]:
    """Return events of one day, of few keys."""
    start = day(number).start_ms
    return [(chance.choice("abcdef"), chance.randrange(100), start + chance.randrange(24 * HOUR_MS)) for _ in range(9)]


def table(events: list[Event]) -> pa.Table:
    return pa.table(
        {
            "who": pa.array([who for who, _, _ in events], pa.string()),
            "cents": pa.array([cents for _, cents, _ in events], pa.int64()),
            "at": pa.array([at for _, _, at in events], pa.timestamp("ms", "UTC")),
        }
    )


def sessions(events: list[Event]) -> list[list[Event]]:
    """Return the events of each session: those of one key that are up to six hours apart."""
    grouped: list[list[Event]] = []
    for event in sorted(events, key=lambda event: (event[0], event[2])):
        last = grouped[-1][-1] if grouped else ("", 0, 0)
        if last[0] == event[0] and event[2] - last[2] <= 6 * HOUR_MS:
            grouped[-1].append(event)
        else:
            grouped.append([event])
    return grouped


def closed(events: list[Event], until_ms: int, lateness_ms: int) -> list[tuple[Any, ...]]:
    """Return (key, start, end, number of events, mean) of each session that is closed at a time."""
    rows = []
    for group in sessions(events):
        start, end = group[0][2], group[-1][2] + 6 * HOUR_MS
        if end + lateness_ms <= until_ms:
            mean = sum(cents for _, cents, _ in group) / len(group)
            rows.append((group[0][0], start, end, len(group), mean))
    return sorted(rows)


def published(deployment: Deployment) -> list[tuple[Any, ...]]:
    rows = folded(feed_rows(Path(deployment.data) / "ended"), ["checkpoint_id", "row_number"]).values()
    bounds = ("window_start", "window_end")
    return sorted(
        (row["who"], *(round(row[name].timestamp() * 1000) for name in bounds), row["views"], row["mean"])
        for row in rows
    )


@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_each_closed_session_is_published_once(tmp_path: Path, way: tuple[str, str, str, str]) -> None:
    deployment = deployment_of(tmp_path, *way)
    pipeline = deployment.pipeline("visits")
    lateness_ms = 12 * HOUR_MS if way[2] == "12h" else 0
    chance = random.Random(way[1])
    history: dict[int, list[Event]] = {}

    def run(number: int) -> None:
        history[number] = events_of_day(chance, number)
        checkpoint_of(deployment, "visits", number, table(history[number]))

    def check(last: int) -> None:
        publish_tables(deployment, pipeline)
        applied = [event for number, events in history.items() if number <= last for event in events]
        assert published(deployment) == closed(applied, day(last).end_ms, lateness_ms)

    for number in range(1, 7):
        run(number)
        if number % 2:
            check(number)
            retire(deployment)
            collect_garbage(deployment)
    assert len(published(deployment)) > 10
    snapshot = deployment.catalog().list("visits")[1].checkpoint_id
    apply_restore(
        deployment, pipeline, plan_restore(deployment, pipeline, str(snapshot), None, ClaimMode.NO_CLAIM), "t"
    )
    check(5)
    run(6)
    check(6)
    assert "deleted" not in said(deployment, "publish", "visits")


def test_late_events_open_a_session_of_their_own(tmp_path: Path) -> None:
    """A session is closed for good: what is near to it later does not change what was emitted."""
    deployment = deployment_of(tmp_path, "heap", "canonical", "0s", "5d")
    noon = day(1).start_ms + 12 * HOUR_MS
    checkpoint_of(deployment, "visits", 1, table([("a", 1, noon)]))
    checkpoint_of(deployment, "visits", 2, table([("a", 9, noon), ("a", 5, day(2).start_ms)]))
    checkpoint_of(deployment, "visits", 3, table([]))
    publish_tables(deployment, deployment.pipeline("visits"))
    assert [(row[3], row[4]) for row in published(deployment)] == [(1, 1.0), (1, 5.0)]
    text = said(deployment, "query", "visits/2", "SELECT who, window_end, views, row_number FROM ended", "--json")
    assert "2013-01-02T06:00:00+00:00" in text
    assert datetime.fromtimestamp((noon + 6 * HOUR_MS) / 1000, UTC).hour == 18


def test_earlier_sessions_have_the_fields_that_are_declared_now(tmp_path: Path) -> None:
    deployment = deployment_of(tmp_path, "heap", "canonical", "0s", "0s")
    checkpoint_of(deployment, "visits", 1, table([("a", 1, day(1).start_ms)]))
    file = tmp_path / "pipelines" / "visits.yaml"
    text = file.read_text()
    file.write_text(text.replace("views: {agg: count}", "name: {agg: max, of: who}, views: {agg: count}"))
    checkpoint_of(deployment, "visits", 2, table([("b", 7, day(2).start_ms)]))
    publish_tables(deployment, deployment.pipeline("visits"))
    rows = feed_rows(tmp_path / "ended").sort_by("who").select(["who", "name", "views", "mean"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [("a", None, 1, 1.0), ("b", "b", 1, 7.0)]
    text = text.replace("{data}/ended", "{data}/other").replace("{agg: avg, of: cents}", "{agg: max, of: who}")
    file.write_text(text)
    with pytest.raises(InvalidRequestError, match="chk-1: output ended: Unsupported cast from struct") as refusal:
        publish_tables(deployment, deployment.pipeline("visits"))
    assert refusal.value.kind == "other-output"
