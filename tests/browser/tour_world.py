"""A deployment with a history to look at, made in this process: no Spark, no Airflow, but the gate and its reports.

aircraft_activity: four days; the fifth given up once, then done; a savepoint; the sixth quarantined once, then done;
back to the fifth day, the sixth again, and the seventh. Two tables are published. route_delays: five days, and a
correction of the second. carrier_streaks: some plain days.
"""

from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from demo.places import Places, statelib_settings
from demo.prepare import raw_flights, write_days
from statelib.definition.columns import event_schema
from statelib.definition.pipeline import Pipeline
from statelib.errors import CorruptStateError
from statelib.flows import wiring
from statelib.flows.checkpoint.steps import abort, begin, check, register
from statelib.flows.mending.steps import begin_mend, plan_mend
from statelib.flows.publication.steps import publish_tables
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.savepoint.steps import begin_savepoint
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId
from statelib.model.record import CheckpointState, ClaimMode
from tests.support.worlds import CHECKOUT, day, publish_here

AIRCRAFT, ROUTES, STREAKS = "aircraft_activity", "route_delays", "carrier_streaks"
DAYS = 8
FIFTH, SAVED, QUARANTINED, HEAD = 6, 7, 8, 11
"""Checkpoints of aircraft_activity: of its fifth day, the savepoint, the one in quarantine, the head."""
ROUTES_HEAD, STREAKS_HEAD = 6, 3
BY = "tour"
PUBLISH = """
publish:
  aircraft: {target: "{data}/tables/aircraft", mode: table, state: activity}
  aircraft_changes: {target: "{data}/tables/aircraft_changes", mode: changes, state: activity}
"""
"""The tables of aircraft_activity: the first is up to date, the second two checkpoints behind."""


def tour_places(root: Path) -> Places:
    """Return the demo's pipelines and the flights of the first days, without any state."""
    pipelines = root / "pipelines"
    pipelines.mkdir(parents=True)
    for name in (AIRCRAFT, ROUTES, STREAKS):
        text = (CHECKOUT / "dags" / "pipelines" / f"{name}.yaml").read_text()
        text = text.replace("delay_s: 10", "delay_s: 1") + (PUBLISH if name == AIRCRAFT else "")
        text = text.replace("checkpoint: {", "checkpoint: {mendable: 30d, ") if name == ROUTES else text
        (pipelines / f"{name}.yaml").write_text(text)
    places = Places(work=root / "work", pipelines=pipelines)
    places.make_directories()
    until = day(DAYS).end_ms
    write_days(raw_flights().filter(pl.col("time_hour").dt.epoch("ms") < until), places.data / "flights")
    return places


def write_history(places: Places) -> None:
    """Write the history into a migrated deployment."""
    deployment = wiring.deployment(statelib_settings(places))
    for number in (1, 2, 3, 4):
        completed(deployment, AIRCRAFT, number)
    given_up = begin(deployment, deployment.pipeline(AIRCRAFT), day(5), BY).checkpoint_id
    abort(deployment, AIRCRAFT, given_up, "snapshot failed: the Spark driver was killed")
    assert completed(deployment, AIRCRAFT, 5) == FIFTH
    assert saved(deployment, "before release 2.4") == SAVED
    assert kept_aside(deployment, 6) == QUARANTINED
    completed(deployment, AIRCRAFT, 6)
    back(deployment, FIFTH)
    publish_tables(deployment, deployment.pipeline(AIRCRAFT))
    for number in (6, 7):
        completed(deployment, AIRCRAFT, number)
    publish_tables(deployment, deployment.pipeline(AIRCRAFT), ("aircraft",))
    for name, last in ((ROUTES, ROUTES_HEAD - 1), (STREAKS, STREAKS_HEAD)):
        for number in range(1, last + 1):
            completed(deployment, name, number)
    assert mended(deployment, 2) == ROUTES_HEAD


def completed(deployment: Deployment, name: str, number: int) -> CheckpointId:
    """Apply, judge and register a day."""
    pipeline = deployment.pipeline(name)
    begun = begin(deployment, pipeline, day(number), BY).checkpoint_id
    publish_here(deployment, pipeline, begun, flights(deployment, pipeline, number))
    return register(deployment, pipeline, begun, check(deployment, pipeline, begun).report_uri).checkpoint_id


def mended(deployment: Deployment, number: int) -> CheckpointId:
    """Correct a day of which every second flight was wrong."""
    pipeline = deployment.pipeline(ROUTES)
    begun = begin_mend(deployment, pipeline, plan_mend(deployment, pipeline, day(number)), BY).checkpoint_id
    events = flights(deployment, pipeline, number)
    publish_here(deployment, pipeline, begun, events.take(pa.array(range(0, len(events), 2))))
    return register(deployment, pipeline, begun, check(deployment, pipeline, begun).report_uri).checkpoint_id


def kept_aside(deployment: Deployment, number: int) -> CheckpointId:
    """Apply a day whose flights have no destination, which is put into quarantine."""
    pipeline = deployment.pipeline(AIRCRAFT)
    begun = begin(deployment, pipeline, day(number), BY).checkpoint_id
    events = flights(deployment, pipeline, number)
    at = events.schema.get_field_index("dest")
    publish_here(deployment, pipeline, begun, events.set_column(at, "dest", pa.nulls(len(events), pa.string())))
    with pytest.raises(CorruptStateError, match="in quarantine"):
        check(deployment, pipeline, begun)
    assert deployment.catalog().get(pipeline.name, begun).state is CheckpointState.QUARANTINED
    return begun


def saved(deployment: Deployment, note: str) -> CheckpointId:
    pipeline = deployment.pipeline(AIRCRAFT)
    begun = begin_savepoint(deployment, pipeline, format="canonical", target=None, note=note, owner=BY, key=note)
    publish_here(deployment, pipeline, begun.checkpoint_id)
    return register(
        deployment, pipeline, begun.checkpoint_id, check(deployment, pipeline, begun.checkpoint_id).report_uri
    ).checkpoint_id


def back(deployment: Deployment, to: int) -> None:
    pipeline = deployment.pipeline(AIRCRAFT)
    apply_restore(deployment, pipeline, plan_restore(deployment, pipeline, str(to), None, ClaimMode.NO_CLAIM), BY)


def flights(deployment: Deployment, pipeline: Pipeline, number: int) -> pa.Table:
    """Return the flights of a day of January 2013 as the pipeline reads them, without those that have no key."""
    frame = pl.read_parquet(Path(deployment.data) / "flights" / f"2013-01-{number:02d}" / "flights.parquet")
    schema = event_schema(pipeline)
    return frame.drop_nulls(pipeline.key).to_arrow().select(schema.names).cast(schema)
