"""The interval of a run that updates of an asset started, judged by what the state has already."""

from pathlib import Path

import pytest

from statelib.definition.parts.model import Schedule
from statelib.errors import InvalidRequestError
from statelib.flows.checkpoint.asset_intervals import AssetUpdate, interval_of_updates
from statelib.flows.checkpoint.steps import begin, register
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import DataInterval
from statelib.model.moments import HOUR_MS, moment_of
from tests.integration.shop import SALES, sales
from tests.support.worlds import checkpoint_of, day, new_deployment, publish_here


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    (tmp_path / "pipelines").mkdir()
    text = SALES + "schedule: {asset: 's3://raw/orders', start: 2013-01-01}\n"
    (tmp_path / "pipelines" / "sales.yaml").write_text(text)
    return new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")


def chosen(deployment: Deployment, *updates: AssetUpdate, **changes: object) -> DataInterval | None:
    pipeline = deployment.pipeline("sales").model_copy(update=changes)
    return interval_of_updates(deployment, pipeline, updates)


def naming(*days: int) -> list[AssetUpdate]:
    return [AssetUpdate(0, day(number)) for number in days]


def test_updates_that_name_no_interval_reach_from_the_state_to_the_last_update(deployment: Deployment) -> None:
    at_ms = day(2).start_ms + HOUR_MS
    updates = AssetUpdate(at_ms - HOUR_MS), AssetUpdate(at_ms)
    assert chosen(deployment, *updates) == DataInterval(day(1).start_ms, at_ms)
    checkpoint_of(deployment, "sales", 1, sales(0))
    assert chosen(deployment, *updates) == DataInterval(day(1).end_ms, at_ms)
    assert chosen(deployment, AssetUpdate(day(1).end_ms)) is None


def test_updates_that_name_intervals_are_applied_together(deployment: Deployment) -> None:
    assert chosen(deployment, *naming(2, 1)) == DataInterval(day(1).start_ms, day(2).end_ms)
    checkpoint_of(deployment, "sales", 1, sales(0))
    assert chosen(deployment, *naming(1)) is None
    assert chosen(deployment, *naming(1, 2, 2)) == day(2)


def test_an_update_that_comes_again_for_a_part_of_what_the_state_has_changes_nothing(deployment: Deployment) -> None:
    joined = DataInterval(day(1).start_ms, day(2).end_ms)
    pipeline = deployment.pipeline("sales")
    begun = begin(deployment, pipeline, joined, "test")
    publish_here(deployment, pipeline, begun.checkpoint_id, sales(0))
    register(deployment, pipeline, begun.checkpoint_id)
    checkpoint_of(deployment, "sales", 3, sales(0))
    assert chosen(deployment, *naming(1)) is None
    assert chosen(deployment, AssetUpdate(0, DataInterval(day(2).start_ms, day(3).end_ms))) is None
    assert chosen(deployment, *naming(2, 4)) == day(4)
    assert chosen(deployment, *naming(1), on_gap="allow") == day(1), "begin refuses it: nobody may have named it"


def test_an_update_of_what_the_former_name_has_changes_nothing(deployment: Deployment) -> None:
    checkpoint_of(deployment, "sales", 1, sales(0))
    file = Path(deployment.pipelines_directory) / "sales.yaml"
    file.with_name("orders.yaml").write_text(
        file.read_text().replace("name: sales", "name: orders") + "renamed_from: sales\n"
    )
    file.unlink()
    renamed = deployment.pipeline("orders")
    assert interval_of_updates(deployment, renamed, naming(1)) is None
    assert interval_of_updates(deployment, renamed, naming(1, 2)) == day(2)


def test_updates_that_leave_time_out_are_refused(deployment: Deployment) -> None:
    with pytest.raises(InvalidRequestError, match="the events in between would be lost"):
        chosen(deployment, *naming(1, 3))
    assert chosen(deployment, *naming(1, 3), on_gap="allow") == DataInterval(day(1).start_ms, day(3).end_ms)
    with pytest.raises(InvalidRequestError, match="1 of the 2 updates"):
        chosen(deployment, *naming(1), AssetUpdate(day(2).end_ms))


def test_no_interval_is_applied_that_the_schedule_does_not_have(deployment: Deployment) -> None:
    start, end = moment_of(day(2).start_ms), moment_of(day(4).start_ms)
    schedule = Schedule(asset="s3://raw/orders", start=start, end=end)
    assert chosen(deployment, *naming(1), schedule=schedule) is None
    assert chosen(deployment, *naming(5), schedule=schedule) is None
    assert chosen(deployment, *naming(1, 2, 5), schedule=schedule) == day(2)
    across = DataInterval(day(1).start_ms, day(3).end_ms)
    assert chosen(deployment, AssetUpdate(0, across), schedule=schedule) == across
    assert chosen(deployment, *naming(4), schedule=schedule) == day(4), "it does not begin after the end"
    late = AssetUpdate(day(9).end_ms)
    assert chosen(deployment, late, schedule=schedule) == DataInterval(day(2).start_ms, day(4).start_ms)
    for number in (2, 3):
        checkpoint_of(deployment, "sales", number, sales(0))
    assert chosen(deployment, late, schedule=schedule) is None


def test_the_hints_of_a_gap_name_the_update_that_closes_it(deployment: Deployment) -> None:
    """Updates of the days 2 and 4 start the first run. Day 3 starts the next one. Neither run can be applied alone."""
    checkpoint_of(deployment, "sales", 1, sales(0))
    pipeline = deployment.pipeline("sales")
    with pytest.raises(InvalidRequestError) as first:
        chosen(deployment, *naming(2, 4))
    bounds = "start 2013-01-02T00:00:00+00:00 and end 2013-01-05T00:00:00+00:00"
    assert f"update the asset once with {bounds}" in first.value.hint
    with pytest.raises(InvalidRequestError) as second:
        begin(deployment, pipeline, day(3), "test")
    bounds = "start 2013-01-02T00:00:00+00:00 and end 2013-01-04T00:00:00+00:00"
    assert f"update the asset once with {bounds}" in second.value.hint
    whole = chosen(deployment, AssetUpdate(0, DataInterval(day(2).start_ms, day(4).end_ms)))
    assert whole is not None
    begun = begin(deployment, pipeline, whole, "test")
    publish_here(deployment, pipeline, begun.checkpoint_id, sales(0))
    register(deployment, pipeline, begun.checkpoint_id)
    assert chosen(deployment, *naming(2, 4)) is None
    assert chosen(deployment, *naming(3)) is None
