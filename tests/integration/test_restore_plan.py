"""A plan survives the way through Airflow, and says everything that a person must know."""

from pathlib import Path

from shop import open_shop

from statelib.flows.restore import RestorePlan, plan_restore
from statelib.model.record import ClaimMode


def test_a_plan_is_the_same_after_json_and_its_text_tells_all(tmp_path: Path) -> None:
    here = open_shop(tmp_path)
    plan = plan_restore(here, here.pipeline("sales"), "1", 3, ClaimMode.NO_CLAIM)
    assert RestorePlan.from_json(plan.to_json()) == plan
    assert hash(RestorePlan.from_json(plan.to_json())) == hash(plan)
    told = plan.describe()
    assert "- leaves behind: 5\n- aborts, because it is under way: 6\n" in told
    read = plan.reads[1]
    assert (
        f"- subtask 1 (key groups 43-85) reads 2 handle(s): 0-63, 64-127; {read.size_bytes:,} bytes, 8 entries" in told
    )
