"""Windows, timers, state that expires and operator state in one pipeline do not disturb each other."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from statelib.flows.checkpoint.steps import begin, check, register
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.views.inspection import resolve
from statelib.flows.wiring import Deployment
from statelib.model.record import CheckpointState, ClaimMode
from statelib.savepoints.verification.snapshots import verify
from tests.integration.shop_cli import said
from tests.support.worlds import day, new_deployment, publish_here

CARTS = """\
name: carts
source: {path: "{data}/{start}-{end}", columns: {user: string, t: instant}}
key: [user]
states:
  carts: {kind: value, fields: {seen: long}, function: "tests.integration.carts_that_end:update",
          on_timer: "tests.integration.carts_that_end:on_timer",
    ttl: 2d}
  clicks: {kind: reducing, value: {agg: count}, window: {time: t, tumbling: 1d, retain: 36h}}
  visits: {kind: reducing, value: {agg: count}, ttl: 1d}
operator_states:
  gone: {mode: list, element: string}
backend: BACKEND
parallelism: 2
checkpoint: {strategy: STRATEGY, inline_threshold_bytes: 1}
"""
WAYS = [("heap", "full"), ("rocksdb", "incremental")]
DAY = 86_400_000
FIRST = day(1).start_ms


@pytest.fixture(params=WAYS, ids="-".join)
def deployment(tmp_path: Path, request: pytest.FixtureRequest) -> Deployment:
    backend, strategy = request.param
    (tmp_path / "pipelines").mkdir()
    text = CARTS.replace("BACKEND", backend).replace("STRATEGY", strategy)
    (tmp_path / "pipelines" / "carts.yaml").write_text(text)
    return new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")


def events(number: int) -> pa.Table:
    """Return events at noon: of a and b on the first day, of b on every other day."""
    users = ["a", "b", "b"] if number == 1 else ["b"]
    noon = pa.array([FIRST + (number - 1) * DAY + DAY // 2] * len(users), pa.int64())
    return pa.table({"user": users, "t": noon.cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("ns", "UTC"))})


def run(deployment: Deployment, number: int) -> dict[str, list[object]]:
    """Take the checkpoint of a day, and return its exported lines by state."""
    pipeline = deployment.pipeline("carts")
    checkpoint_id = begin(deployment, pipeline, day(number), "test").checkpoint_id
    publish_here(deployment, pipeline, checkpoint_id, events(number))
    record = register(deployment, pipeline, checkpoint_id, check(deployment, pipeline, checkpoint_id).report_uri)
    assert record.state is CheckpointState.COMPLETED
    name = f"carts/{checkpoint_id}"
    assert verify(resolve(deployment, name), scratch=deployment.work_directory).problems == ()
    lines = [json.loads(line) for line in said(deployment, "export", name, "--all").splitlines()]
    held: dict[str, list[object]] = {"carts": [], "clicks": [], "visits": [], "gone": [], "timers": []}
    for line in lines:
        if "ts" in line:
            held["timers"] += [(line["state"], line["key"]["v"], (line["ts"] - FIRST) / DAY)]
        elif line["state"] == "gone":
            held["gone"] += [line["value"]["v"]]
        elif line["state"] in held:
            value = line["value"]["v"]
            days = [(line["ns"][b] - FIRST) // DAY for b in ("start", "end")] if line["ns"] else []
            held[line["state"]] += [(line["key"]["v"], *days, value[0]["v"] if isinstance(value, list) else value)]
    return {name: sorted(result) for name, result in held.items()}


def test_windows_timers_expiry_and_operator_state_are_right_together(deployment: Deployment) -> None:
    one = run(deployment, 1)
    assert one["carts"] == one["visits"] == [("a", 1), ("b", 2)]
    assert one["clicks"] == [("a", 0, 1, 1), ("b", 0, 1, 2)]
    assert [timer for timer in one["timers"] if timer[0] == "carts"] == [("carts", "a", 3.0), ("carts", "b", 3.0)]
    two = run(deployment, 2)
    assert two["carts"] == [("a", 1), ("b", 3)]
    assert two["visits"] == [("b", 1)], "what was there is a day old"
    assert two["clicks"] == [("a", 0, 1, 1), ("b", 0, 1, 2), ("b", 1, 2, 1)]
    three = run(deployment, 3)
    assert three["carts"] == [("b", 4)], "that of a is two days old; its timer is none of it"
    assert three["clicks"] == [("b", 1, 2, 1), ("b", 2, 3, 1)]
    assert ("carts", "a", 3.0) in three["timers"]
    assert three["gone"] == []
    four = run(deployment, 4)
    assert four["gone"] == ["a"], "the timer finds nothing of a, and the state of b alive"
    assert four["carts"] == [("b", 5)]

    plan = plan_restore(deployment, deployment.pipeline("carts"), "2", 3, ClaimMode.NO_CLAIM)
    apply_restore(deployment, deployment.pipeline("carts"), plan, "test")
    assert (run(deployment, 3), run(deployment, 4)) == (three, four), "a replay in three subtasks"
