"""Operator state of a pipeline through checkpoints, rescaling, the command line and damage; no Spark, no Airflow."""

import json
import sys
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest

from statelib.backends.operator.state import OperatorStateBackend
from statelib.errors import CorruptStateError, InvalidRequestError
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.views.inspection import resolve
from statelib.flows.wiring import Deployment
from statelib.formats.source_position import position_of
from statelib.model.record import ClaimMode
from statelib.savepoints.opened import Checkpoint
from statelib.savepoints.operator_content import operator_contents
from statelib.savepoints.verification.snapshots import verify
from tests.integration.shop_cli import said
from tests.support.worlds import checkpoint_of, day, new_deployment

MODULE = "statelib_test_operator_functions"
VISITS = f"""\
name: visits
source: {{path: "{{data}}/{{start}}-{{end}}", columns: {{shop: string, guest: string}}}}
key: [shop]
states:
  last: {{kind: value, fields: {{guest: string, weight: double}}, function: "{MODULE}:update"}}
operator_states:
  guests: {{mode: list, element: string}}
  batches: {{mode: union, element: "row<n: long, who: string>"}}
  weights: {{mode: broadcast, key: string, value: double}}
backend: heap
parallelism: 2
checkpoint: {{inline_threshold_bytes: THRESHOLD}}
"""


def update(events: pa.Table, state: pa.Table, operator: OperatorStateBackend) -> pa.Table:
    guests, weights = operator.list_state("guests"), operator.broadcast_state("weights")
    guests.add_all(events["guest"].to_pylist())
    operator.list_state("batches").update([{"n": len(events), "who": events["guest"][0].as_py()}])
    weights.put("vip", (weights.get("vip") or 0.0) + 1.5)
    shops = state["shop"].to_pylist()
    last = {row["shop"]: row["guest"] for row in events.to_pylist()}
    return pa.table({"shop": shops, "guest": [last[s] for s in shops], "weight": [weights.get("vip")] * len(shops)})


def guest(number: int, n: int) -> str:
    return f"guest {number}-{n} of a long and noble name that takes some room"


def events(number: int) -> pa.Table:
    return pa.table(
        {
            "shop": [f"s{n}" for n in range(40)],
            "guest": [guest(number, n) for n in range(40)],
        }
    )


@pytest.fixture(params=[0, 20480], ids=["files", "inline"])
def deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Deployment:
    module = ModuleType(MODULE)
    module.__dict__["update"] = update
    monkeypatch.setitem(sys.modules, MODULE, module)
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "visits.yaml").write_text(VISITS.replace("THRESHOLD", str(request.param)))
    return new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")


def rescale(deployment: Deployment, checkpoint: str, parallelism: int) -> None:
    pipeline = deployment.pipeline("visits")
    plan = plan_restore(deployment, pipeline, checkpoint, parallelism, ClaimMode.NO_CLAIM)
    apply_restore(deployment, pipeline, plan, "test")


def held(opened: Checkpoint) -> dict[str, list[object]]:
    elements = {}
    for content in operator_contents(opened, opened.keyed_operator()):
        values = content.values.to_pylist()
        elements[content.descriptor.name] = (
            values if content.keys is None else list(zip(content.keys.to_pylist(), values, strict=True))
        )
    return elements


def test_operator_state_is_rescaled_through_checkpoints(deployment: Deployment) -> None:
    expected: list[str] = []
    for number, parallelism in ((1, 2), (2, 3), (3, 1)):
        if number > 1:
            rescale(deployment, str(number - 1), parallelism)
        checkpoint_of(deployment, "visits", number, events(number))
        expected += [guest(number, n) for n in range(40)]
        opened = resolve(deployment, f"visits/{number}")
        assert opened.keyed_operator().parallelism == parallelism
        assert verify(opened, scratch=deployment.work_directory).problems == ()
        elements = held(opened)
        assert sorted(map(str, elements["guests"])) == sorted(expected)
        assert sum(row["f0"] for row in elements["batches"]) == 40, "each subtask replaced the union it was given"
        assert elements["weights"] == [("vip", 1.5 * number)]
        position = [c for c in operator_contents(opened, opened.keyed_operator()) if "position" in c.descriptor.name]
        assert position_of(position[0]).interval == day(number)


def test_operator_state_is_shown_and_exported_on_the_command_line(deployment: Deployment) -> None:
    checkpoint_of(deployment, "visits", 1, events(1))
    keyed = said(deployment, "export", "visits/1").splitlines()
    both = said(deployment, "export", "visits/1", "--all").splitlines()
    assert [line for line in both if line in set(keyed)] == keyed
    assert len(both) == 40 + 40 + 2 + 1 + 1
    first = {"op": "visits", "state": "guests", "kind": "opList", "value": {"type": "string", "v": guest(1, 0)}}
    assert json.dumps(first, separators=(",", ":")) in both
    (rule,) = [json.loads(text) for text in both if '"broadcast"' in text]
    assert rule["uk"] == {"type": "string", "v": "vip"}
    assert rule["value"] == {"type": "double", "v": "1.5", "bits": "3ff8000000000000"}
    assert len(said(deployment, "export", "visits/1", "--all", "--state", "batches").splitlines()) == 2
    (operator,) = json.loads(said(deployment, "inspect", "visits/1", "--json"))["operators"]
    listed = {
        s["name"]: (s["mode"], s["key_type"], s["value_type"], s["elements"]) for s in operator["operator_states"]
    }
    assert listed["guests"] == ("split_distribute", None, "string", 40)
    assert listed["weights"] == ("broadcast", "string", "double", 1)
    assert listed["batches"][::3] == ("union", 2)
    assert "weights" in said(deployment, "inspect", "visits/1")


def test_damage_and_a_changed_declaration_are_detected_before_anything_runs(deployment: Deployment) -> None:
    checkpoint_of(deployment, "visits", 1, events(1))
    opened = resolve(deployment, "visits/1")
    path = Path(deployment.pipelines_directory) / "visits.yaml"
    text = path.read_text()
    path.write_text(text.replace("element: string", "element: long"))
    with pytest.raises(InvalidRequestError, match="guests") as caught:
        plan_restore(deployment, deployment.pipeline("visits"), "1", 2, ClaimMode.NO_CLAIM)
    assert caught.value.kind == "state-schema-changed"
    path.write_text(text)
    names = {f.path for f in opened.manifest.files} if opened.manifest else set()
    handles = [s.operator for _, s in opened.keyed_operator().subtasks if s.operator is not None]
    assert len(handles) == 2
    files = [
        Path(deployment.storage_root, "visits", "chk-1", h.stream.path) for h in handles if hasattr(h.stream, "path")
    ]
    assert {file.name for file in files} <= names, "every file is in the manifest"
    if files:
        data = files[0].read_bytes()
        files[0].write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        assert len(verify(opened, scratch=deployment.work_directory).problems) == 1
        with pytest.raises(CorruptStateError):
            checkpoint_of(deployment, "visits", 2, events(2))


def test_a_field_of_a_row_may_be_renamed_but_not_moved(deployment: Deployment) -> None:
    path = Path(deployment.pipelines_directory) / "visits.yaml"
    text = path.read_text()

    def declare(row: str) -> None:
        path.write_text(text.replace("row<n: long, who: string>", row))

    declare("row<n: long, who: string, place: string>")
    checkpoint_of(deployment, "visits", 1, events(1))
    declare("row<n: long, place: string, who: string>")
    with pytest.raises(InvalidRequestError, match="batches") as caught:
        checkpoint_of(deployment, "visits", 2, events(2))
    assert caught.value.kind == "state-schema-changed"
    assert "row<n: long, who: string, place: string>" in str(caught.value)
    path.write_text(path.read_text() + "allow_non_restored_state: true\n")
    checkpoint_of(deployment, "visits", 2, events(2))
    assert sum(row["f0"] for row in held(resolve(deployment, "visits/2"))["batches"]) == 40, "it began empty"
    declare("row<n: long, guest: string, place: string>")
    plan = plan_restore(deployment, deployment.pipeline("visits"), "1", 2, ClaimMode.NO_CLAIM)
    assert "operator state 'batches': goes on" in plan.states
