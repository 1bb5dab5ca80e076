"""A partition in a real Airflow that is updated while it fills: its run waits until the interval is over."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from statelib.flows.views.inspection import resolve
from statelib.model.ids import PipelineName

if TYPE_CHECKING:
    from tests.integration.test_airflow_run import World

FILLING = PipelineName("filling")
FILLER = PipelineName("filler")
"""A pipeline that does not exist: only the test reports new states of it."""
LASTS = timedelta(seconds=40), timedelta(minutes=5)
"""For so long an interval lasts after its first update. On a busy machine, the first one may be over before its run
begins; then there is a second one."""
PATIENCE_S = 600.0
MOMENT = "%Y-%m-%dT%H%M%S"


def filling_file(asset: str) -> str:
    """Return a pipeline file whose runs the updates of an asset start."""
    return f"""\
name: {FILLING}
schedule: {{asset: "{asset}", start: 2013-01-01}}
source: {{path: "{{data}}/filling/{{start:{MOMENT}}}-{{end:{MOMENT}}}", columns: {{shop: string}}}}
key: shop
states: {{sold: {{kind: value, value: {{agg: count}}}}}}
backend: heap
"""


def assert_a_run_waits(world: "World") -> None:
    """Assert that ``begin`` gives its worker back until the interval is over, and that the events that come until then
    are applied."""
    world.client.pause(f"{FILLING}.checkpoint", False)
    start = datetime.now(UTC).replace(microsecond=0)
    for lasts in LASTS:
        has_waited = run_of_an_interval(world, start, start + lasts)
        assert world.records(FILLING)[-1].created_at_ms >= (start + lasts).timestamp() * 1000
        if has_waited:
            break
        start += lasts
    else:
        pytest.fail("each interval was over before its run began")
    (row,) = resolve(world.deployment, f"{FILLING}/head").to_arrow("sold").to_pylist()
    assert row["value"] == 3 * len(world.records(FILLING))


def run_of_an_interval(world: "World", start: datetime, end: datetime) -> bool:
    """Report an update of an interval of which half is there, add the other half when its run exists, and wait for the
    run. Return whether its task ``begin`` has waited."""
    directory, dag = world.places.data / "filling" / f"{start:{MOMENT}}-{end:{MOMENT}}", f"{FILLING}.checkpoint"
    sell(directory, "first", 1)
    run = world.update(FILLER, dag, start.isoformat(), end.isoformat())
    sell(directory, "second", 2)
    world.succeed(world.client.wait_for_run(dag, run.run_id, PATIENCE_S))
    return any("waiting: " in line for line in world.client.log(run, "begin"))


def sell(directory: Path, name: str, number: int) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    pl.DataFrame({"shop": ["a"] * number}).write_parquet(directory / f"{name}.parquet")
