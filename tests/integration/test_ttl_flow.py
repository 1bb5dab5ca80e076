"""A pipeline whose state expires, day by day, through the gate, exports, replays, rescaling and other strategies."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from statelib.errors import InvalidRequestError
from statelib.flows.checkpoint.steps import begin, check, register
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.savepoint.steps import begin_savepoint
from statelib.flows.views.inspection import resolve
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId
from statelib.model.record import ClaimMode
from statelib.savepoints.opened import Checkpoint
from statelib.savepoints.verification.snapshots import verify
from tests.integration.shop_cli import said
from tests.support.worlds import day, new_deployment, publish_here

CARTS = """\
name: carts
source: {path: "{data}/{start}-{end}", columns: {user: string, item: string}}
key: [user]
states:
  last: {kind: value, fields: {item: {agg: last, of: item, by: item}}, ttl: 2d}
  items: {kind: list, value: {agg: collect, of: item}, ttl: 3d}
  per_item: {kind: map, user_key: item, value: {agg: count}, ttl: 48h, update: on_read_and_write}
  clicks: {kind: reducing, value: {agg: count}}
backend: BACKEND
parallelism: 2
checkpoint: {strategy: STRATEGY, inline_threshold_bytes: 0}
"""
WAYS = [("heap", "canonical"), ("heap", "full"), ("rocksdb", "full"), ("rocksdb", "incremental")]
USERS = 30


@pytest.fixture(params=WAYS, ids="-".join)
def deployment(tmp_path: Path, request: pytest.FixtureRequest) -> Deployment:
    backend, strategy = request.param
    (tmp_path / "pipelines").mkdir()
    text = CARTS.replace("BACKEND", backend).replace("STRATEGY", strategy)
    (tmp_path / "pipelines" / "carts.yaml").write_text(text)
    return new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")


def events(number: int) -> pa.Table:
    """Return the events of a day: half of the users come every day, the others only on the first; nobody comes on
    the third."""
    users = [] if number == 3 else range(USERS) if number == 1 else range(0, USERS, 2)
    return pa.table({"user": [f"u{n}" for n in users], "item": [f"item-{number}"] * len(users)})


def expected(number: int) -> dict[str, dict[str, object]]:
    """Return the state at the end of a day: the values written on it, or before it within their time to live."""
    held: dict[str, dict[str, object]] = {"last": {}, "items": {}, "per_item": {}, "clicks": {}}
    for past in range(1, number + 1):
        for user in events(past)["user"].to_pylist():
            age = number - past
            held["clicks"][user] = held["clicks"].get(user, 0) + 1
            if age < 2:
                held["last"][user] = f"item-{past}"
                held["per_item"].setdefault(user, {})[f"item-{past}"] = 1
            if age < 3:
                held["items"][user] = [*held["items"].get(user, []), f"item-{past}"]
    return held


def stored_state(opened: Checkpoint, deployment: Deployment) -> dict[str, dict[str, object]]:
    held: dict[str, dict[str, object]] = {"last": {}, "items": {}, "per_item": {}, "clicks": {}}
    for name, table in opened.tables(scratch=deployment.work_directory):
        for row in table.to_pylist():
            value = row["value"]
            if name == "items":
                held[name][row["key"]] = [element["value"] for element in value]
            elif name == "per_item":
                held[name].setdefault(row["key"], {})[row["user_key"]] = value["value"]
            else:
                held[name][row["key"]] = value["value"]["item"]["value"] if name == "last" else value
    return held


def run(deployment: Deployment, number: int) -> Checkpoint:
    pipeline = deployment.pipeline("carts")
    begun = begin(deployment, pipeline, day(number), "test")
    publish_here(deployment, pipeline, begun.checkpoint_id, events(number))
    register(deployment, pipeline, begun.checkpoint_id)
    opened = resolve(deployment, f"carts/{begun.checkpoint_id}")
    assert verify(opened, scratch=deployment.work_directory).problems == (), "counts and digests are of what is stored"
    assert stored_state(opened, deployment) == expected(number)
    return opened


def test_each_day_the_checkpoint_contains_exactly_the_living_state(deployment: Deployment) -> None:
    for number in range(1, 7):
        opened = run(deployment, number)
    assert len(expected(6)["last"]) == USERS // 2
    assert all(len(items) == 3 for items in stored_state(opened, deployment)["items"].values())


def test_expired_entries_are_in_no_file_of_a_later_checkpoint(deployment: Deployment) -> None:
    """The files of each strategy are read: they contain neither old values nor their keys."""
    run(deployment, 1)
    run(deployment, 2)
    lines = [json.loads(text) for text in said(deployment, "export", "carts/2").splitlines()]
    assert {line["key"]["v"] for line in lines if line["state"] == "last"} == {f"u{n}" for n in range(USERS)}
    run(deployment, 3)
    lines = [json.loads(text) for text in said(deployment, "export", "carts/3").splitlines()]
    assert {line["key"]["v"] for line in lines if line["state"] == "last"} == {f"u{n}" for n in range(0, USERS, 2)}
    value = next(line["value"] for line in lines if line["state"] == "last")
    assert value["v"][0]["v"][0] == {"type": "string", "v": "item-2"}, "the natural value"
    assert {line["value"]["v"] for line in lines if line["state"] == "items"} == {"item-1", "item-2"}


def test_a_replay_gives_the_same_state_and_a_longer_time_to_live_brings_nothing_back(deployment: Deployment) -> None:
    first = [run(deployment, number) for number in range(1, 5)]
    pipeline = deployment.pipeline("carts")
    apply_restore(deployment, pipeline, plan_restore(deployment, pipeline, "2", 3, ClaimMode.NO_CLAIM), "test")
    again = [run(deployment, number) for number in (3, 4)]
    for before, after in zip(first[2:], again, strict=True):
        assert before.manifest is not None
        assert after.manifest is not None
        pairs = zip(before.manifest.statistics, after.manifest.statistics, strict=True)
        assert all(old.same_content(new) for old, new in pairs), "times of access included"
    path = Path(deployment.pipelines_directory) / "carts.yaml"
    path.write_text(path.read_text().replace("ttl: 2d", "ttl: 300d"))
    begun = begin(deployment, deployment.pipeline("carts"), day(5), "test")
    publish_here(deployment, deployment.pipeline("carts"), begun.checkpoint_id, events(5))
    last = stored_state(resolve_pending(deployment, begun.checkpoint_id), deployment)["last"]
    assert sorted(last) == sorted(f"u{n}" for n in range(0, USERS, 2))


def resolve_pending(deployment: Deployment, checkpoint_id: CheckpointId) -> Checkpoint:
    register(deployment, deployment.pipeline("carts"), checkpoint_id)
    return resolve(deployment, f"carts/{checkpoint_id}")


def test_a_savepoint_equals_its_base_even_under_another_time_to_live(deployment: Deployment, tmp_path: Path) -> None:
    base = run(deployment, 1)
    path = Path(deployment.pipelines_directory) / "carts.yaml"
    path.write_text(path.read_text().replace("ttl: 2d", "ttl: 1ms"))
    pipeline = deployment.pipeline("carts")
    begun = begin_savepoint(
        deployment, pipeline, format="canonical", target=str(tmp_path / "target"), note="", owner="test", key="k"
    )
    publish_here(deployment, pipeline, begun.checkpoint_id)
    register(deployment, pipeline, begun.checkpoint_id)
    assert stored_state(resolve(deployment, f"carts/{begun.checkpoint_id}"), deployment) == stored_state(
        base, deployment
    )


def test_adding_a_time_to_live_to_a_state_is_refused(deployment: Deployment) -> None:
    run(deployment, 1)
    path = Path(deployment.pipelines_directory) / "carts.yaml"
    path.write_text(path.read_text().replace("value: {agg: count}}\nbackend", "value: {agg: count}, ttl: 1d}\nbackend"))
    with pytest.raises(InvalidRequestError, match="ttl<long>") as caught:
        plan_restore(deployment, deployment.pipeline("carts"), "1", 2, ClaimMode.NO_CLAIM)
    assert caught.value.kind == "state-schema-changed"


@pytest.mark.parametrize("deployment", [("rocksdb", "incremental")], indirect=True)
def test_the_gate_accepts_a_day_on_which_state_only_expires(deployment: Deployment) -> None:
    run(deployment, 1)
    run(deployment, 2)
    pipeline = deployment.pipeline("carts")
    begun = begin(deployment, pipeline, day(3), "test")
    publish_here(deployment, pipeline, begun.checkpoint_id, events(3))
    assert check(deployment, pipeline, begun.checkpoint_id).passed


def test_diffs_and_tables_show_the_times_of_entries(deployment: Deployment, tmp_path: Path) -> None:
    run(deployment, 1)
    run(deployment, 2)
    output = said(deployment, "checkpoints", "diff", "carts/1", "carts/2", "--limit", "3")
    assert "item-2" in output
    said(deployment, "export", "carts/2", "--format", "parquet", "--state", "per_item", "-o", str(tmp_path / "tables"))
    rows = pq.read_table(tmp_path / "tables" / "per_item.parquet").to_pylist()
    assert {row["value"]["last_access_ms"] for row in rows} == {day(1).end_ms, day(2).end_ms}
    assert {row["value"]["value"] for row in rows} == {1}
