"""A pipeline file that no longer has the function of timers that are stored."""

from pathlib import Path

import pyarrow as pa
import pytest

from statelib.errors import InvalidRequestError
from statelib.flows.checkpoint.steps import begin
from statelib.flows.restore.steps import plan_restore
from statelib.model.record import ClaimMode
from tests.support.worlds import checkpoint_of, day, new_deployment

FUNCTIONS = "tests.unit.functions.session_timers"
TIMED = f"""\
name: visits
source: {{path: "{{data}}/{{start}}-{{end}}", columns: {{k: string, t: instant}}}}
key: [k]
states:
  visits:
    kind: value
    function: {FUNCTIONS}:update
    on_timer: {FUNCTIONS}:on_timer
    fields: {{events: long, last: instant, visits: long}}
backend: heap
"""


@pytest.mark.parametrize("allows", [False, True])
def test_timers_without_a_function_are_refused_before_the_run(tmp_path: Path, allows: bool) -> None:
    (tmp_path / "pipelines").mkdir()
    file = tmp_path / "pipelines" / "visits.yaml"
    file.write_text(TIMED)
    deployment = new_deployment(tmp_path, tmp_path, file.parent)
    last = day(1).end_ms - 1
    checkpoint_of(
        deployment, "visits", 1, pa.table({"k": ["a", "b"], "t": pa.array([last, last], pa.timestamp("ms", "UTC"))})
    )
    timers = f"{FUNCTIONS}:update\n    on_timer: {FUNCTIONS}:on_timer"
    changed = TIMED.replace(timers, f"{FUNCTIONS}:update_without_timers")
    file.unlink()
    file.write_text(changed + "allow_non_restored_state: true\n" * allows)
    pipeline = deployment.pipeline("visits")
    if allows:
        assert begin(deployment, pipeline, day(2), "test").checkpoint_id == 2
        return
    with pytest.raises(InvalidRequestError, match=r"2 timers in .*no state with such timers") as caught:
        begin(deployment, pipeline, day(2), "test")
    assert caught.value.kind == "timer-state"
    with pytest.raises(InvalidRequestError, match="2 timers"):
        plan_restore(deployment, pipeline, "1", None, ClaimMode.NO_CLAIM)
