"""Waiting for a source: the trigger as Airflow keeps it, and what its task makes of the end of a wait."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from airflow._shared.module_loading import import_string
from airflow.models.trigger import Trigger
from airflow.sdk.exceptions import AirflowFailException, TaskDeferred
from statelib_airflow.source_ready import SourceReadyOperator, SourceReadyTrigger

from statelib.definition.source.readiness import PartRule, ReadyRule

NEVER_MS = int(time.time() * 1000) + 10**9
LONG_AGO_MS = 1


def rule_of(path: str, source: str = "", timeout_ms: int = 1) -> str:
    return ReadyRule(source, (PartRule(path, 0, None, None),), 0, poke_ms=10, timeout_ms=timeout_ms).to_json()


def answer_of(trigger: SourceReadyTrigger) -> dict[str, Any]:
    """Return the payload of the event with which the trigger wakes its task."""

    async def first() -> dict[str, Any]:
        async for event in trigger.run():
            return dict(event.payload)
        raise AssertionError

    return asyncio.run(asyncio.wait_for(first(), timeout=60))


def looked(event: dict[str, Any], *rules: str, began_ms: int) -> None:
    operator = SourceReadyOperator(task_id="wait_for_source", pipeline="sales.yaml")
    operator.looked({}, event, list(rules), began_ms)


def test_the_trigger_is_the_same_after_airflow_stored_it(tmp_path: Path) -> None:
    trigger = SourceReadyTrigger([rule_of(str(tmp_path))], 0.01, NEVER_MS)
    row = Trigger.from_object(trigger)
    again = import_string(row.classpath)(**row.kwargs)
    assert type(again) is SourceReadyTrigger
    assert again.serialize() == trigger.serialize()
    assert json.loads(json.dumps(trigger.serialize()[1])) == trigger.serialize()[1]
    assert answer_of(again) == {}, "the directory is there"


def test_the_trigger_waits_until_the_source_is_complete(tmp_path: Path) -> None:
    trigger = SourceReadyTrigger([rule_of(str(tmp_path / "day"))], 0.01, NEVER_MS)

    async def landing() -> dict[str, Any]:
        woken = asyncio.ensure_future(anext(trigger.run()))
        await asyncio.sleep(0.2)
        assert not woken.done()
        (tmp_path / "day").mkdir()
        return dict((await asyncio.wait_for(woken, timeout=60)).payload)

    assert asyncio.run(landing()) == {}
    looked({}, *trigger.rules, began_ms=LONG_AGO_MS)


def test_the_deadline_fails_the_task_with_the_missing_paths(tmp_path: Path) -> None:
    rule = rule_of(str(tmp_path / "day"))
    event = answer_of(SourceReadyTrigger([rule], 0.01, LONG_AGO_MS))
    with pytest.raises(AirflowFailException, match=f"^source-not-ready: .*{tmp_path}/day does not exist"):
        looked(event, rule, began_ms=LONG_AGO_MS)
    with pytest.raises(TaskDeferred):
        looked(event, rule, began_ms=NEVER_MS)


def test_an_error_of_the_check_reaches_the_task_with_its_kind() -> None:
    """The task fails at once, long before the deadline."""
    rule = rule_of("hdfs://names/sales")
    event = answer_of(SourceReadyTrigger([rule], 0.01, NEVER_MS))
    with pytest.raises(AirflowFailException, match=r"^source-not-visible: source hdfs://names/sales: "):
        looked(event, rule, began_ms=NEVER_MS)
    with pytest.raises(AirflowFailException, match=r"^source-not-visible: "):
        looked({}, rule, began_ms=NEVER_MS)  # The task itself notices the error, before the trigger checks.


def test_each_source_has_its_own_timeout_and_the_message_names_it(tmp_path: Path) -> None:
    now_ms = int(time.time() * 1000)
    orders, refunds = (
        rule_of(str(tmp_path / name), name, timeout_ms) for name, timeout_ms in (("orders", 10**9), ("refunds", 1))
    )
    with pytest.raises(AirflowFailException, match=rf"complete: refunds: {tmp_path}/refunds does not exist$"):
        looked({}, orders, refunds, began_ms=now_ms - 10)
    (tmp_path / "refunds").mkdir()
    with pytest.raises(TaskDeferred) as deferred:
        looked({}, orders, refunds, began_ms=now_ms - 10)
    trigger = deferred.value.trigger
    assert isinstance(trigger, SourceReadyTrigger)
    assert (trigger.rules, trigger.deadline_ms) == ([orders, refunds], now_ms - 10 + 10**9)
    (tmp_path / "orders").mkdir()
    looked({}, orders, refunds, began_ms=now_ms - 10)
