"""``hooks`` of a pipeline file: called once in every subtask of every checkpoint and savepoint, with or without events,
through restore and rescaling, in this process and on Spark."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from statelib.flows.checkpoint.steps import begin, check, register
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.savepoint.steps import begin_savepoint
from statelib.flows.views.inspection import resolve
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId
from statelib.model.record import ClaimMode
from statelib.savepoints.operator_content import operator_contents
from statelib.spark.snapshot.driver import run_snapshot
from tests.integration.shop_cli import call
from tests.support.worlds import checkpoint_of, day, new_deployment, publish_here

HOOKS = "tests.integration.counting_hooks"
VISITS = f"""\
name: visits
source: {{path: "{{data}}/{{start:%Y-%m-%d}}/[!_]*.parquet", columns: {{shop: string}}}}
key: [shop]
states: {{seen: {{kind: value, fields: {{n: long}}, function: "{HOOKS}:update"}}}}
operator_states:
  snapshots: {{mode: list, element: long}}
  events: {{mode: list, element: long}}
  calls:
    mode: list
    element: "row<id: long, savepoint: boolean, subtask: long, of: long, restored: boolean, at: long, events: long>"
hooks: {{initialize_state: "{HOOKS}:initialize_state", snapshot_state: "{HOOKS}:snapshot_state"}}
backend: heap
parallelism: 4
"""
Run = Callable[[CheckpointId, pa.Table | None], None]
ONE_SHOP = pa.table({"shop": ["only"] * 3})


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "visits.yaml").write_text(VISITS)
    return new_deployment(tmp_path, tmp_path / "data", tmp_path / "pipelines")


def held(deployment: Deployment, checkpoint_id: int) -> tuple[list[int], list[dict[str, object]]]:
    """Return the counts, and the calls in the order of subtasks."""
    opened = resolve(deployment, f"visits/{checkpoint_id}")
    calls_read: dict[str, list[object]] = {"snapshots": [], "calls": []}
    for content in operator_contents(opened, opened.keyed_operator()):
        calls_read.setdefault(content.descriptor.name, []).extend(content.values.to_pylist())
    names = ("id", "savepoint", "subtask", "of", "restored", "at", "events")
    calls = [dict(zip(names, call.values(), strict=True)) for call in calls_read["calls"]]  # type: ignore[attr-defined]
    return calls_read["snapshots"], sorted(calls, key=lambda call: call["subtask"])


def story(deployment: Deployment, run: Run) -> None:
    """Run two days with events of one shop and one day without, then restore the first day on two subtasks and on
    seven."""

    def one_day(number: int, events: pa.Table | None) -> int:
        checkpoint_id = begin(deployment, deployment.pipeline("visits"), day(number), "test").checkpoint_id
        run(checkpoint_id, events)
        return register(deployment, deployment.pipeline("visits"), checkpoint_id).checkpoint_id

    def restore(checkpoint_id: int, parallelism: int) -> None:
        plan = plan_restore(
            deployment, deployment.pipeline("visits"), str(checkpoint_id), parallelism, ClaimMode.NO_CLAIM
        )
        apply_restore(deployment, deployment.pipeline("visits"), plan, "test")

    first = one_day(1, ONE_SHOP)
    counts, calls = held(deployment, first)
    assert counts == [1, 1, 1, 1]
    assert [call["subtask"] for call in calls] == [0, 1, 2, 3]
    assert sorted(call["events"] for call in calls) == [0, 0, 0, 3], "three of the four have no events"
    shared = {"id": first, "savepoint": False, "of": 4, "restored": False, "at": day(1).end_ms - 1}
    assert all(call.items() >= shared.items() for call in calls)
    second = one_day(2, None)
    counts, calls = held(deployment, second)
    assert counts == [2, 2, 2, 2]
    assert {(call["restored"], call["events"]) for call in calls} == {(True, 0)}
    saved = begin_savepoint(
        deployment, deployment.pipeline("visits"), format="canonical", target=None, note="", owner="t", key="k"
    )
    run(saved.checkpoint_id, None)
    register(deployment, deployment.pipeline("visits"), saved.checkpoint_id)
    counts, calls = held(deployment, saved.checkpoint_id)
    assert counts == [3, 3, 3, 3]
    assert {(call["savepoint"], call["at"]) for call in calls} == {(True, day(2).end_ms - 1)}
    restore(second, 2)
    third = one_day(3, ONE_SHOP)
    counts, calls = held(deployment, third)
    assert counts == [5, 5], "the savepoint's snapshots are not part of this history"
    assert [(call["subtask"], call["of"]) for call in calls] == [(0, 2), (1, 2)]
    restore(third, 7)
    counts, calls = held(deployment, one_day(4, ONE_SHOP))
    assert (len(counts), sum(counts)) == (7, 10 + 7)
    assert [call["subtask"] for call in calls] == list(range(7))


def test_hooks_are_called_in_every_subtask_in_one_process(deployment: Deployment) -> None:
    story(
        deployment,
        lambda checkpoint_id, events: publish_here(deployment, deployment.pipeline("visits"), checkpoint_id, events),
    )


def test_hooks_are_called_in_every_subtask_on_spark(deployment: Deployment, spark: SparkSession) -> None:
    for number in (1, 2, 3, 4):
        directory = Path(deployment.data) / f"2013-01-{number:02}"
        directory.mkdir(parents=True)
        pq.write_table(ONE_SHOP.slice(0, 0 if number == 2 else 3), directory / "events.parquet")

    def run(checkpoint_id: CheckpointId, _events: pa.Table | None) -> None:
        run_snapshot(spark, deployment, deployment.pipeline("visits"), checkpoint_id)
        assert check(deployment, deployment.pipeline("visits"), checkpoint_id).report_uri

    story(deployment, run)


@pytest.mark.parametrize("hook", ["initialize_state", "snapshot_state"])
def test_the_error_of_a_failing_hook_names_it_and_the_snapshot_ends(deployment: Deployment, hook: str) -> None:
    text = VISITS.replace(f'{hook}: "{HOOKS}:{hook}"', f'{hook}: "{HOOKS}:fail"')
    assert text != VISITS
    (Path(deployment.pipelines_directory) / "visits.yaml").write_text(text)
    with pytest.raises(OSError, match="no more room") as failure:
        checkpoint_of(deployment, "visits", 1, ONE_SHOP)
    assert f"in hooks.{hook}, {HOOKS}:fail, of subtask 0" in failure.value.__notes__
    assert [path for path in Path(deployment.storage_root).rglob("*") if path.is_file()] == []


def test_validation_names_a_missing_hook(deployment: Deployment) -> None:
    text = VISITS.replace(f"{HOOKS}:snapshot_state", f"{HOOKS}:snapshot_stat")
    (Path(deployment.pipelines_directory) / "visits.yaml").write_text(text)
    result = call(deployment, "pipelines", "validate")
    assert result.exit_code == 1
    assert "hooks.snapshot_state: function" in result.stderr
    assert "did you mean 'snapshot_state'?" in result.stderr
