"""Two runs overlap. The decision of ``begin`` is compared with the pipeline's present state in the transaction that
records it."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from statelib.errors import InvalidRequestError
from statelib.flows.checkpoint.steps import begin
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import CheckpointState
from tests.faults.endured_flow import TOURS, events
from tests.support.worlds import checkpoint_of, day, new_deployment


@dataclass
class Overtaken:
    """A catalog in which somebody restores checkpoint 1 right after the head was read."""

    catalog: Any
    restores: int = 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self.catalog, name)

    def head(self, pipeline: PipelineName) -> Any:
        seen = self.catalog.head(pipeline)
        if self.restores:
            self.restores -= 1
            self.catalog.restore(pipeline, CheckpointId(1), None, "somebody else")
        return seen


@dataclass(frozen=True)
class OvertakenDeployment(Deployment):
    overtaken: Any = field(kw_only=True)

    def catalog(self) -> Any:
        return self.overtaken


def test_an_interval_never_begins_on_a_state_that_it_does_not_follow(tmp_path: Path) -> None:
    (tmp_path / "pipelines").mkdir()
    text = TOURS.format(backend="heap", strategy="canonical", local="false")
    (tmp_path / "pipelines" / "tours.yaml").write_text(text)
    deployment = new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")
    for number in (1, 2, 3):
        checkpoint_of(deployment, "tours", number, events(number))
    overtaken = OvertakenDeployment(**vars(deployment), overtaken=Overtaken(deployment.catalog()))
    with pytest.raises(InvalidRequestError, match="the events in between would be lost") as refusal:
        begin(overtaken, overtaken.pipeline("tours"), day(4), "test")
    assert refusal.value.kind == "interval-gap"
    assert deployment.catalog().list(PipelineName("tours"), {CheckpointState.PENDING}) == []
