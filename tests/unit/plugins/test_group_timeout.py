"""A group whose task takes longer than Airflow lets it."""

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowTaskTimeout
from statelib_airflow.group_operator import GroupCheckpointOperator
from statelib_airflow.hooks import StatelibHook

from statelib.flows.checkpoint.steps import Begun
from statelib.model.ids import CheckpointId


@pytest.mark.parametrize(("try_number", "aborted"), [(1, []), (2, ["clicks"])])
def test_the_last_timeout_aborts_the_checkpoints_of_the_group(
    monkeypatch: pytest.MonkeyPatch, try_number: int, aborted: list[str]
) -> None:
    class Late(GroupCheckpointOperator):
        def _begun(self, *_: Any) -> dict[str, Begun]:
            return {
                "carts": Begun(CheckpointId(4), already_completed=True),
                "clicks": Begun(CheckpointId(7), already_completed=False),
            }

        def _published(self, *_: Any) -> None:
            raise AirflowTaskTimeout

    names: list[str] = []
    monkeypatch.setattr(StatelibHook, "pipeline", lambda _hook, name: SimpleNamespace(name=name))
    monkeypatch.setattr("statelib_airflow.runtime.steps.abort", lambda _hook, name, *_: names.append(name))
    context: Any = {"ti": SimpleNamespace(try_number=try_number, max_tries=1)}
    with pytest.raises(AirflowTaskTimeout):
        Late(task_id="checkpoints", group="hourly", pipelines=["carts", "clicks"]).execute(context)
    assert names == aborted
