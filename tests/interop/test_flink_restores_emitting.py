"""A real Flink restores savepoints of a pipeline that emits rows: also one that holds rows, which are no state."""

from pathlib import Path

import pytest

from statelib.flows.checkpoint.steps import register
from statelib.flows.savepoint.steps import begin_savepoint
from statelib.model.ids import PipelineName
from statelib.model.termination import StopMode
from statelib.savepoints.emitted_outputs import outputs_of
from statelib.savepoints.lines import export_lines
from statelib.savepoints.opened import open_checkpoint
from tests.interop.flink_kit import Case, Flink
from tests.interop.seen_lines import comparable, operator_to_see
from tests.support.emitting import COUNTS, events_of
from tests.support.worlds import checkpoint_of, day, new_deployment, publish_here

NEVER = """\
  ever: {kind: value, value: {agg: count}}
outputs:
"""
"""A state without timers, which a drained savepoint still has."""


@pytest.mark.parametrize("stop", [None, StopMode.DRAIN])
def test_a_savepoint_of_a_pipeline_that_emits_is_restored(
    tmp_path: Path, flink_1: Flink, stop: StopMode | None
) -> None:
    (tmp_path / "pipelines").mkdir()
    text = COUNTS.replace("BACKEND", "heap").replace("STRATEGY", "canonical").replace("outputs:\n", NEVER)
    (tmp_path / "pipelines" / "counts.yaml").write_text(text)
    deployment = new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")
    rows = [(n % 40, n) for n in range(100)]
    number = checkpoint_of(deployment, "counts", 1, events_of(rows, day(1).end_ms - 1000))
    first = deployment.catalog().get(PipelineName("counts"), number)
    assert outputs_of(deployment.open(first)) == ("alerts",)
    pipeline = deployment.pipeline("counts")
    begun = begin_savepoint(
        deployment, pipeline, format="canonical", target=None, note="", owner="test", key="k", stop=stop
    )
    publish_here(deployment, pipeline, begun.checkpoint_id)
    saved = open_checkpoint(register(deployment, pipeline, begun.checkpoint_id).directory)
    assert outputs_of(saved) == (() if stop is None else ("closed",))
    ours = comparable(export_lines(saved, None, str(tmp_path)))
    assert len(ours) == (120 if stop is None else 40), "totals and their timers, and counts"
    operator = operator_to_see("counts", saved.schema())
    directory = Path(saved.directory.removeprefix("file://"))
    for restored in flink_1.restore([Case(directory, (operator,), "hashmap", p, 8) for p in (1, 2)]):
        assert restored.error == ""
        assert comparable(restored.lines) == ours
