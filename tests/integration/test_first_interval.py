"""A pipeline whose first interval begins after the start of its schedule, and what is said of the events before it."""

import logging
from pathlib import Path

import pyarrow as pa
import pytest

from statelib.errors import InvalidRequestError
from statelib.flows.checkpoint.steps import begin
from statelib.flows.wiring import Deployment
from tests.support.worlds import checkpoint_of, day, new_deployment

FILE = """\
name: sales
schedule: {cron: "@daily", start: 2013-01-02}
source: {path: "{data}/{start:%Y-%m-%d}", columns: {shop: string}}
key: shop
on_gap: allow
states: {total: {kind: value, value: {agg: count}}}
backend: heap
"""
EVENTS = pa.table({"shop": ["a"]})


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "sales.yaml").write_text(FILE)
    return new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")


@pytest.mark.parametrize(("first", "warned"), [(1, False), (2, False), (3, True)])
def test_a_first_interval_after_the_start_of_the_schedule_is_logged_as_a_warning(
    deployment: Deployment, caplog: pytest.LogCaptureFixture, first: int, *, warned: bool
) -> None:
    with caplog.at_level(logging.WARNING):
        checkpoint_of(deployment, "sales", first, EVENTS)
        checkpoint_of(deployment, "sales", first + 1, EVENTS)
    messages = [message for message in caplog.messages if "begins after schedule.start" in message]
    assert len(messages) == warned
    assert all("the events from 2013-01-02T00:00:00+00:00 on that are before it" in message for message in messages)


def test_the_hint_names_a_restore_only_if_a_checkpoint_is_before_the_interval(deployment: Deployment) -> None:
    for number in (3, 5):
        checkpoint_of(deployment, "sales", number, EVENTS)
    for number, words in ((2, "give the pipeline another name"), (4, "restore a checkpoint before it")):
        with pytest.raises(InvalidRequestError) as caught:
            begin(deployment, deployment.pipeline("sales"), day(number), "test")
        assert caught.value.kind == "interval-out-of-order"
        assert words in caught.value.hint
