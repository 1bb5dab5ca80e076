"""States as the tables that the checks use: columns have names, and samples are fair and repeatable."""

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from statelib.errors import CorruptStateError
from statelib.flows.checkpoint.steps import begin, check, register
from statelib.flows.gate.state_sample import SampledKeyGroups, choose, sample
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import StateStatistics
from statelib.savepoints.opened import Checkpoint, open_checkpoint
from tests.support.worlds import checkpoint_of, day, new_deployment, publish_here

NAME = PipelineName("kinds")
KEY = ("shop", "item")
KINDS = """\
name: kinds
source: {path: "{data}/{start}-{end}", columns: {shop: string, item: long, amount: double, note: string, at: instant}}
key: [shop, item]
on_null_key: drop
states:
  sums:
    kind: value
    fields: {shop: {agg: count}, mean: {agg: avg, of: amount}, last_note: {agg: last, of: note, by: at}}
  per_note: {kind: map, user_key: note, value: {agg: count}}
  notes: {kind: list, value: {agg: distinct, of: note}}
  recent: {kind: reducing, value: {agg: sum, of: amount}, ttl: 30d}
  hourly: {kind: reducing, value: {agg: max, of: amount}, window: {time: at, tumbling: 1h, retain: 2d}}
backend: BACKEND
parallelism: 2
max_parallelism: 16
"""
NOON = datetime(2013, 1, 1, 12, 30, tzinfo=UTC)


def events(items: int) -> pa.Table:
    """Return two events of each item: 2.0 with a note, then 4.0 without."""
    numbers = [n for n in range(items) for _ in (0, 1)]
    return pa.table(
        {
            "shop": ["s"] * len(numbers),
            "item": pa.array(numbers, pa.int64()),
            "amount": pa.array([2.0, 4.0] * items),
            "note": pa.array(["a note", None] * items),
            "at": pa.array([NOON] * len(numbers), pa.timestamp("ns", "UTC")),
        }
    )


def world(root: Path, backend: str, more: str = "") -> Deployment:
    pipelines = root / "pipelines"
    pipelines.mkdir(parents=True)
    (pipelines / "kinds.yaml").write_text(KINDS.replace("BACKEND", backend) + more)
    return new_deployment(root, root, pipelines)


def opened(deployment: Deployment, number: int = 1) -> Checkpoint:
    return open_checkpoint(deployment.catalog().get(NAME, CheckpointId(number)).directory, own=True)


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_every_kind_of_state_is_a_table_with_the_names_of_the_pipeline_file(tmp_path: Path, backend: str) -> None:
    deployment = world(tmp_path, backend)
    checkpoint_of(deployment, NAME, 1, events(1))
    results = {
        state: sample(opened(deployment), state, KEY, SampledKeyGroups(None, 10), deployment.work_directory)
        for state in ("sums", "per_note", "notes", "recent", "hourly")
    }
    assert all(one.complete and one.entries == len(one.table) for one in results.values())
    hour = {"window_start": NOON.replace(minute=0), "window_end": NOON.replace(hour=13, minute=0)}
    own = {"shop": "s", "item": 0}
    mean = {"mean": 3.0, "mean.sum": 6.0, "mean.count": 2}
    (sums,) = results["sums"].table.to_pylist()
    assert sums.pop("last_note.by_at") == NOON
    assert sums == {**own, "value.shop": 2, **mean, "last_note": "a note"}
    assert results["per_note"].table.to_pylist()[0] == {**own, "user_key": "a note", "value": 1}
    assert results["notes"].table.to_pylist() == [{**own, "value": ["a note"]}]
    assert results["recent"].table.to_pylist() == [{**own, "value": 6.0}]
    assert results["hourly"].table.to_pylist() == [{**own, **hour, "value": 4.0}]
    assert results["hourly"].keys == (*KEY, "window_start", "window_end")


def statistics(*entries: int) -> StateStatistics:
    return StateStatistics(KeyGroupRange(0, len(entries) - 1), np.array(entries), np.zeros(len(entries), np.uint64))


def test_key_groups_are_chosen_evenly_and_at_least_one() -> None:
    assert choose(statistics(5, 5), 10) == SampledKeyGroups(None, 10)
    assert choose(statistics(5, 0, 5, 5, 5), 10) == SampledKeyGroups((0, 3), 10)
    assert choose(statistics(100, 100), 10) == SampledKeyGroups((0,), 10)


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_a_sample_consists_of_whole_key_groups_and_has_a_note(tmp_path: Path, backend: str) -> None:
    deployment = world(tmp_path, backend)
    checkpoint_of(deployment, NAME, 1, events(400))
    snapshot = opened(deployment)
    assert snapshot.manifest is not None
    entries = snapshot.manifest.statistics[0].entries
    chosen = choose(snapshot.manifest.statistics[0], 150)
    assert chosen.key_groups is not None
    result = sample(snapshot, "sums", KEY, chosen, deployment.work_directory)
    read = min(int(entries[list(chosen.key_groups)].sum()), 150)
    assert (len(result.table), result.entries, result.complete) == (read, 400, False)
    assert result.note.startswith(
        f"judged by a sample of {read} of 400 entries ({len(chosen.key_groups)} of 16 key groups"
    )
    assert sample(snapshot, "sums", KEY, chosen, deployment.work_directory).table.equals(result.table)
    cut = sample(snapshot, "sums", KEY, SampledKeyGroups(chosen.key_groups, 7), deployment.work_directory)
    assert len(cut.table) == 7
    assert cut.note.endswith("the last of them in part)")


CHECKS = """\
checks:
  sample_rows: 1000
  drift:
    null_rate: {sums.last_note: {most: 10%, severity: fail}}
    distribution: {sums.mean: {psi: 0.2, severity: fail}}
  expectations:
    - {state: sums, expect: column_values_to_be_between, column: mean, min_value: 1, max_value: 5}
    - {state: per_note, expect: table_row_count_to_be_between, min_value: 1, severity: warn}
"""


def test_a_large_state_is_judged_by_a_sample_and_the_report_mentions_it(tmp_path: Path) -> None:
    deployment = world(tmp_path, "heap", CHECKS)
    pipeline = deployment.pipeline(NAME)
    for number, spoiled in ((1, False), (2, True)):
        table = events(1500)
        if spoiled:
            table = table.set_column(2, "amount", pa.array([200.0] * 3000))
        checkpoint_id = begin(deployment, pipeline, day(number), "test").checkpoint_id
        publish_here(deployment, pipeline, checkpoint_id, table)
        if spoiled:
            with pytest.raises(CorruptStateError, match="stability index"):
                check(deployment, pipeline, checkpoint_id)
        else:
            report = check(deployment, pipeline, checkpoint_id)
            assert ["needs all entries" in each for each in report.warnings] == [True, False]
            assert "sample of" in Path(report.report_uri.removeprefix("file://")).read_text()
            register(deployment, pipeline, checkpoint_id, report.report_uri)
    results = deployment.catalog().gate.results(NAME, CheckpointId(2))
    caught = {r.group for r in results if not r.passed and r.severity == "FAIL"}
    assert caught == {"drift_distribution_fail", "state_sums"}
    assert any("judged by a sample of" in each for r in results if r.group == "state_sums" for each in r.sentences)
