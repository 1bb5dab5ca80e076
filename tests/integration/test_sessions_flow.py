"""Session windows through whole checkpoints: every strategy, the gate, restores at another parallelism, published
tables, and a state with another name."""

import copy
import re
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest
import yaml

from statelib.flows.checkpoint.steps import begin, check, register
from statelib.flows.publication.steps import publish_tables
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.views.inspection import resolve
from statelib.flows.wiring import Deployment
from statelib.model.record import CheckpointState, ClaimMode
from statelib.savepoints.opened import Checkpoint
from statelib.savepoints.verification.snapshots import verify
from tests.golden.flink_fixtures import ROOT
from tests.golden.test_flink_sessions import sessions
from tests.integration.shop_cli import said
from tests.property.test_session_windows import MINUTE, SESSIONS, STATES, Event, Reference, in_milliseconds, table
from tests.support.extent import TEST_ALL
from tests.support.published import feed_rows, folded, table_rows
from tests.support.worlds import CHECKOUT, day, new_deployment, publish_here

FEEDS = ("rows", "mean", "visits")
PIPELINE: dict[str, Any] = {
    "name": "visits",
    "source": {"path": "{data}/{start}-{end}", "columns": {"k": "string", "n": "long", "t": "instant"}},
    "key": "k",
    "states": STATES,
    "parallelism": 2,
    "publish": {
        f"{state}_{mode}": {"target": f"{{data}}/{state}_{mode}", "mode": mode, "state": state}
        for state in FEEDS
        for mode in ("changes", "table")
    },
}
(SAVED,) = (ROOT / "2.3.0" / "hashmap-changelog-sessions").glob("savepoint-*")
"""A savepoint of a Flink job with session windows."""
STRATEGIES = [
    ("heap", "canonical"), ("heap", "full"), ("heap", "changelog"),
    ("rocksdb", "full"), ("rocksdb", "incremental"), ("rocksdb", "changelog"),
]  # fmt: skip


class Visits:
    """A deployment with one pipeline, which runs days as the DAG does, but in this process."""

    def __init__(self, root: Path, backend: str, strategy: str) -> None:
        (root / "pipelines").mkdir()
        self.data = root
        self.deployment: Deployment = new_deployment(root, root, root / "pipelines")
        self.document = PIPELINE | {"backend": backend, "checkpoint": {"strategy": strategy}}
        self.change()

    def change(self, **changes: object) -> None:
        self.document = self.document | changes
        file = Path(self.deployment.pipelines_directory) / "visits.yaml"
        file.write_text(yaml.safe_dump(self.document, sort_keys=False))

    def run(self, number: int, events: list[Event]) -> Checkpoint:
        pipeline = self.deployment.pipeline("visits")
        checkpoint_id = begin(self.deployment, pipeline, day(number), "test").checkpoint_id
        publish_here(self.deployment, pipeline, checkpoint_id, table(events))
        report = check(self.deployment, pipeline, checkpoint_id).report_uri
        record = register(self.deployment, pipeline, checkpoint_id, report)
        assert record.state is CheckpointState.COMPLETED
        publish_tables(self.deployment, pipeline)
        return resolve(self.deployment, f"visits/{checkpoint_id}")

    def restore(self, checkpoint_id: int, parallelism: int) -> None:
        pipeline = self.deployment.pipeline("visits")
        plan = plan_restore(self.deployment, pipeline, str(checkpoint_id), parallelism, ClaimMode.NO_CLAIM)
        apply_restore(self.deployment, pipeline, plan, "test")


def events(number: int, seed: int, count: int = 250) -> list[Event]:
    """Return events of a day and of the three hours before it, at multiples of five minutes."""
    random = np.random.default_rng(seed)
    times = day(number).start_ms + random.integers(-36, 288, count) * 5 * MINUTE
    keys, numbers = random.choice(list("abcdefgh"), count), random.integers(-9, 9, count)
    return list(zip(keys.tolist(), numbers.tolist(), times.tolist(), strict=True))


def content(saved: Checkpoint, state: str) -> dict[object, object]:
    rows = in_milliseconds(saved.to_arrow(state).select(["key", "namespace", "value"]).to_pylist())
    return {(row["key"], *row["namespace"]): row["value"] for row in rows}


def same(saved: Checkpoint, reference: Reference) -> None:
    for name in SESSIONS:
        assert content(saved, name) == reference.state(name)


def closed(reference: Reference) -> dict[object, int]:
    return {s.place: len(s.events) for s in reference.sessions["visits"] if not s.open}


def closed_in_the_feed(root: Path) -> dict[object, int]:
    """Return the answer to the question of the document, with the number of views by key and window."""
    blocks = re.findall(r"^```sql\n(.*?)^```", (CHECKOUT / "docs" / "publish.md").read_text(), re.DOTALL | re.MULTILINE)
    (question,) = (block for block in blocks if "HAVING" in block)
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        sql = question.replace("/data/tables/visits/", f"{root}/visits_changes/")
        rows = database.sql(sql).to_arrow_table().to_pylist()
    return {tuple(in_milliseconds([row["k"], row["window_start"], row["window_end"]])): row["views"] for row in rows}


def test_the_feed_has_each_closed_session_once_also_after_restores(tmp_path: Path) -> None:
    visits, reference = Visits(tmp_path, "rocksdb", "incremental"), Reference()
    copies: dict[int, tuple[Reference, dict[object, int]]] = {}
    expected: dict[object, int] = {}
    for step, number in enumerate([1, 2, 3, 4, 3, 4, 5]):
        if step == 4:
            visits.restore(2, 2)
            reference, expected = copies[2]
        visits.run(number, part := events(number, step))
        reference.apply(part, day(number).end_ms)
        expected = expected | closed(reference)
        assert closed_in_the_feed(tmp_path) == expected
        copies[number] = copy.deepcopy((reference, expected))
    assert len(expected) > len(closed(reference)) > 10, "some have been removed from the state"


@pytest.mark.parametrize(("backend", "strategy"), STRATEGIES if TEST_ALL else [STRATEGIES[0], STRATEGIES[-1]])
def test_sessions_are_right_through_checkpoints_and_in_published_tables(
    backend: str, strategy: str, tmp_path: Path
) -> None:
    visits, reference = Visits(tmp_path, backend, strategy), Reference()
    before_the_restore = reference
    for step, (number, parallelism) in enumerate([(1, 2), (2, 3), (3, 1), (2, 3), (3, 3)]):
        if step == 3:
            visits.restore(1, parallelism)
            reference = before_the_restore
        visits.change(parallelism=parallelism)
        saved = visits.run(number, part := events(number, step))
        reference.apply(part, day(number).end_ms)
        same(saved, reference)
        if step == 0:
            before_the_restore = copy.deepcopy(reference)
        for state in FEEDS:
            identity = ["k", "window_start", "window_end"]
            rows = table_rows(tmp_path / f"{state}_table", identity)
            assert folded(feed_rows(tmp_path / f"{state}_changes"), identity) == rows
            assert len(rows) == len(reference.state(state)) > 10
    assert saved.manifest is not None
    late = dict(saved.manifest.events.late)
    assert sum(late.values()) > 0
    assert not verify(saved, scratch=visits.deployment.work_directory).problems


def test_a_state_with_another_name_continues_its_sessions(tmp_path: Path) -> None:
    visits, reference = Visits(tmp_path, "rocksdb", "incremental"), Reference()
    visits.run(1, part := events(1, 1))
    reference.apply(part, day(1).end_ms)
    contents, *_ = SESSIONS
    renamed = {"sums": STATES[contents] | {"renamed_from": contents}}
    visits.change(states={name: state for name, state in STATES.items() if name != contents} | renamed)
    saved = visits.run(2, part := events(2, 2))
    reference.apply(part, day(2).end_ms)
    assert content(saved, "sums") == reference.state(contents)
    names = [state.name for state in saved.schema().states]
    assert {"merging-window-set_sums", "_timer_state/event_sums"} <= set(names)
    assert not {"merging-window-set", "_timer_state/event_window-timers", contents} & set(names)


JOB = """\
name: job
schedule: {cron: "@daily", start: 2023-11-01}
source:
  path: "{data}/{start:%Y-%m-%d}.parquet"
  columns: {k: long, n: long, t: instant}
key: k
states:
  sums:
    kind: reducing
    value: {agg: sum, of: n}
    renamed_from: window-contents
    window: {time: t, session: 40s, allowed_lateness: 1d, retain: 2d}
backend: rocksdb
"""


@pytest.mark.usefixtures("spark")
def test_a_pipeline_begins_with_the_sessions_of_a_flink_job(tmp_path: Path) -> None:
    """The event begins before the end of a session of the job, and ends after it."""
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "job.yaml").write_text(JOB)
    deployment = new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")
    key, (start, end), numbers = next(each for each in sessions(SAVED.parent) if len(each[2]) > 1)
    late = pl.from_epoch(pl.Series("t", [end - 5000]), "ms").dt.replace_time_zone("UTC")
    pl.DataFrame({"k": [key], "n": [1000], "t": late}).write_parquet(tmp_path / "2023-11-15.parquet")
    seed = ("pipelines", "seed", "job", "--from", SAVED, "--operator", "reduce", "--until", "2023-11-15", "--yes")
    said(deployment, *seed)
    said(deployment, "run", "job", "--end", "2023-11-16")
    seeded, after = (content(resolve(deployment, f"job/{number}"), "sums") for number in (1, 2))
    assert sum(map(int, after.values())) == sum(map(int, seeded.values())) + 1000
    assert after[key, start, end + 35_000] == sum(numbers) + 1000
