"""The trigger of the sensor, while the catalog is in trouble."""

import asyncio
from collections.abc import Iterator

import pytest
from airflow.triggers.base import TriggerEvent
from statelib_airflow import sensors
from statelib_airflow.sensors import CheckpointTrigger

from statelib.errors import RetryableError


def test_the_trigger_looks_again_while_the_catalog_is_in_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: Iterator[object] = iter([RetryableError("no answer", kind="catalog-unavailable"), None, {"id": 7}])

    def find(*_: object) -> object:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def first_event() -> TriggerEvent:
        return await anext(CheckpointTrigger("sales", 1, None, poke_interval=0.0).run())

    monkeypatch.setattr(sensors, "find_checkpoint", find)
    assert asyncio.run(first_event()).payload == {"id": 7}
