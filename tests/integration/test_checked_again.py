"""A completed checkpoint that is checked again, as a task that somebody clears does."""

from pathlib import Path

from statelib.flows.checkpoint.steps import check
from statelib.flows.cleanup.garbage import collect_garbage
from statelib.flows.cleanup.retention import retire
from tests.integration.garbage import days, tally


def test_a_checkpoint_whose_base_was_deleted_is_still_complete(tmp_path: Path) -> None:
    deployment = tally(tmp_path, retain="{count: 1}")
    days(deployment, 1, 3)
    pipeline = deployment.pipeline("tally")
    newest = deployment.catalog().list(pipeline.name)[0]
    assert check(deployment, pipeline, newest.checkpoint_id).passed
    retire(deployment)
    collect_garbage(deployment)
    states = [str(record.state) for record in deployment.catalog().list(pipeline.name)]
    assert states == ["COMPLETED", "DELETED", "DELETED"]
    assert check(deployment, pipeline, newest.checkpoint_id).passed
