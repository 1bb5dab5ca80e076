"""A group of which some pipelines, or all, have nothing to apply: their assets are not updated."""

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowSkipException
from statelib_airflow.group_operator import GroupCheckpointOperator
from statelib_airflow.hooks import StatelibHook
from statelib_airflow.runtime import steps

from statelib.flows.checkpoint.steps import Begun
from statelib.model.ids import CheckpointId

PIPELINES = ["/pipelines/carts.yaml", "/pipelines/clicks.yaml"]
OTHER = steps.asset_of("s3://lake/report")


def run(monkeypatch: pytest.MonkeyPatch, begun: dict[str, Begun]) -> GroupCheckpointOperator:
    """Execute the task of a group in which only the pipelines of ``begun`` have something to apply."""

    def begin_checkpoint(_hook: StatelibHook, pipeline: str, *_: Any, **__: Any) -> Begun:
        if pipeline not in begun:
            raise AirflowSkipException("the asset was updated before schedule.start: nothing to do")
        return begun[pipeline]

    names = {path: path.removeprefix("/pipelines/").removesuffix(".yaml") for path in PIPELINES}
    monkeypatch.setattr(StatelibHook, "pipeline", lambda _hook, path: SimpleNamespace(name=names[path]))
    monkeypatch.setattr(steps, "begin_checkpoint", begin_checkpoint)
    monkeypatch.setattr(steps, "announce_again", lambda *_: {"id": 4})
    monkeypatch.setattr(steps, "publish", lambda *_: None)
    context: Any = {"ti": SimpleNamespace(try_number=1, max_tries=1)}
    outlets = [OTHER, *map(steps.state_asset, names.values())]
    task = GroupCheckpointOperator(task_id="checkpoints", group="hourly", pipelines=PIPELINES, outlets=outlets)
    task.execute(context)
    return task


def test_a_group_without_anything_to_apply_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AirflowSkipException, match="no pipeline of group hourly has anything to apply"):
        run(monkeypatch, {})


def test_only_pipelines_with_a_checkpoint_update_their_assets(monkeypatch: pytest.MonkeyPatch) -> None:
    done = Begun(CheckpointId(4), already_completed=True)
    assert run(monkeypatch, {PIPELINES[1]: done}).outlets == [OTHER, steps.state_asset("clicks")]
    assert len(run(monkeypatch, dict.fromkeys(PIPELINES, done)).outlets) == 3
