"""``statelib checkpoints diff`` across backends, strategies and systems: the same state is equal however it lies."""

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from statelib.flows.wiring import Deployment
from statelib.model.savepoint import KeyedOperator
from statelib.model.state import KeyedStateSchema, StateKind
from statelib.savepoints.opened import open_checkpoint
from statelib.savepoints.writing.new_savepoint import NewSavepoint, SavepointWriter
from tests.integration.foreign import savepoint
from tests.integration.shop_cli import refused, said
from tests.support.worlds import checkpoint_of, day, new_deployment

DIFF = ("checkpoints", "diff")
STAYS = """\
name: {name}
source: {{path: "{{data}}/{{start}}-{{end}}", columns: {{guest: string, room: string, t: instant}}}}
key: [guest]
states:
  hourly: {{kind: reducing, value: {{agg: count}}, window: {{time: t, tumbling: 1h, retain: 10d}}}}
  rooms: {{kind: map, user_key: room, value: {{agg: count}}, ttl: 30d}}
  seen: {{kind: list, value: {{agg: distinct, of: room}}, ttl: 30d}}
  total: {{kind: value, fields: {{nights: {{agg: count}}}}}}
backend: {backend}
parallelism: {parallelism}
checkpoint: {{strategy: {strategy}, inline_threshold_bytes: 1}}
"""
WAYS = {
    "a": ("heap", "canonical", 2),
    "b": ("heap", "full", 3),
    "c": ("heap", "changelog", 2),
    "d": ("rocksdb", "full", 1),
    "e": ("rocksdb", "incremental", 2),
    "f": ("rocksdb", "changelog", 2),
}
EQUAL = [
    ("timers-hashmap-canonical", "timers-rocksdb-canonical"),
    ("timers-hashmap-canonical", "timers-rocksdb-native"),
    ("kinds-hashmap-native-p2", "kinds-rocksdb-canonical-p1"),
]


def stays(first: int) -> pa.Table:
    numbers = range(first, first + 40)
    times = pa.array([day(1).start_ms + n * 1_800_000 for n in numbers], pa.int64()).cast(pa.timestamp("ms", "UTC"))
    return pa.table(
        {
            "guest": [f"guest-{n % 7}" for n in numbers],
            "room": [f"room-{n % 3}" for n in numbers],
            "t": times.cast(pa.timestamp("ns", "UTC")),
        }
    )


@pytest.fixture(scope="module")
def hotel(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    """Return a deployment with a pipeline for every backend and strategy. All have applied the same two days of
    events."""
    root = tmp_path_factory.mktemp("hotel")
    pipelines = root / "pipelines"
    pipelines.mkdir()
    for name, (backend, strategy, parallelism) in WAYS.items():
        text = STAYS.format(name=name, backend=backend, strategy=strategy, parallelism=parallelism)
        (pipelines / f"{name}.yaml").write_text(text)
    deployment = new_deployment(root, root, pipelines)
    for name in WAYS:
        checkpoint_of(deployment, name, 1, stays(0))
        checkpoint_of(deployment, name, 2, stays(40))
    return deployment


def differences(deployment: Deployment | None, *words: object) -> dict[str, tuple[int, int, int, str]]:
    answer = json.loads(said(deployment, *DIFF, *words, "--json"))
    return {s["name"]: (s["added"], s["removed"], s["changed"], s["incomparable"]) for s in answer["states"]}


@pytest.mark.parametrize("other", list(WAYS)[1:])
def test_the_same_events_give_equal_state_in_every_format(hotel: Deployment, other: str) -> None:
    output = differences(hotel, "a/2", f"{other}/2")
    assert {"hourly", "rooms", "seen", "total"} < set(output)
    assert len(output) > 4, "timers of the windows"
    assert set(output.values()) == {(0, 0, 0, "")}


@pytest.mark.parametrize("other", list(WAYS)[1:])
def test_the_changes_of_a_day_are_the_same_in_every_format(hotel: Deployment, other: str, tmp_path: Path) -> None:
    expected = differences(hotel, "a/1", "a/2")
    assert expected["total"] == (0, 0, 7, "")
    assert expected["hourly"][0] > 0
    assert differences(hotel, "a/1", f"{other}/2", "-o", tmp_path / "x") == expected
    changes = pq.read_table(tmp_path / "x" / "hourly.parquet")
    assert changes.column_names[:3] == ["key_group", "key", "namespace"]
    assert changes["change"].to_pylist().count("added") == expected["hourly"][0]


def test_operators_with_different_uids_can_be_compared(hotel: Deployment) -> None:
    assert set(differences(hotel, "a/2", "e/2", "--operator", "a=e").values()) == {(0, 0, 0, "")}
    assert "no operator 'a'" in refused(hotel, *DIFF, "a/2", "e/2", "--operator", "a")
    assert "no operator 'e'" in refused(hotel, *DIFF, "a/2", "e/2", "--operator", "e=a")
    for bad in ("a=", "=e", "="):
        assert "expected <before>=<after>" in refused(hotel, *DIFF, "a/2", "e/2", "--operator", bad)


@pytest.mark.parametrize(("before", "after"), EQUAL)
def test_state_of_flink_is_equal_in_each_of_its_formats(before: str, after: str) -> None:
    output = differences(None, savepoint(f"1.20.5/{before}"), savepoint(f"1.20.5/{after}"))
    assert output
    assert set(output.values()) == {(0, 0, 0, "")}


def test_a_checkpoint_equals_a_savepoint_for_flink_with_the_same_state(hotel: Deployment, tmp_path: Path) -> None:
    """The savepoint has another uid for the operator, no names of row fields and another order of key groups. The
    state of both is equal, or differs in one changed, one added and one removed key."""
    ours = open_checkpoint(f"{hotel.storage_root}/b/chk-2", storage_root=hotel.storage_root)
    schema = without_timers(ours.schema())
    tables = {state.name: ours.to_arrow(state.name) for state in schema.states}
    same = written(tmp_path, "same", schema, tables)
    output = differences(hotel, "b/2", same, "--operator", "b=guests")
    assert {name: output[name] for name in tables} == dict.fromkeys(tables, (0, 0, 0, ""))
    total = tables["total"].sort_by("key_group")
    changed = total.slice(1).set_column(2, "value", pa.array([{"nights": -1}, *total["value"].to_pylist()[2:]]))
    new = pa.table({"key": [{"f0": "guest-new"}] if pa.types.is_struct(total["key"].type) else ["guest-new"]})
    new = new.append_column("value", pa.array([{"nights": 1}]))
    changed = pa.concat_tables([changed.drop_columns("key_group"), new.cast(changed.drop_columns("key_group").schema)])
    other = written(tmp_path, "other", schema, {**tables, "total": changed})
    output = differences(hotel, "b/2", other, "--operator", "b=guests", "-o", tmp_path / "x")
    assert output["total"] == (1, 1, 1, "")
    assert {output[name] for name in tables if name != "total"} == {(0, 0, 0, "")}
    rows = pq.read_table(tmp_path / "x" / "total.parquet").to_pylist()
    assert {row["change"] for row in rows} == {"added", "removed", "changed"}
    assert [row["after"] for row in rows if row["change"] == "changed"] == [{"f0": -1}], "the savepoint has no names"


def without_timers(schema: KeyedStateSchema) -> KeyedStateSchema:
    return replace(schema, states=tuple(s for s in schema.states if s.kind is not StateKind.TIMERS))


def written(root: Path, name: str, schema: KeyedStateSchema, tables: dict[str, pa.Table]) -> str:
    """Write a savepoint from which a Flink job with the uid ``guests`` could start."""
    with SavepointWriter(NewSavepoint(str(root), name)) as writer:
        writer.add(KeyedOperator("guests", schema, 5), tables)
        return writer.publish().removeprefix("file://")
