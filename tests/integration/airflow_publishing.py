"""Published tables of carrier_streaks in a real Airflow: what its runs publish, and what a run publishes that was
cleared after a failure."""

from pathlib import Path
from typing import TYPE_CHECKING

from statelib.flows.publication.steps import standings
from statelib.flows.views.inspection import resolve
from statelib.flows.wiring import Deployment
from statelib.model.ids import PipelineName
from tests.support.published import feed_rows, folded, table_rows

if TYPE_CHECKING:
    from tests.integration.test_airflow_run import World

PUBLISH = """
publish:
  streaks: {target: "{data}/tables/streaks", mode: table}
  streaks_changes: {target: "{data}/tables/streaks_changes", mode: changes}
"""
"""The tables, as the pipeline file has them."""


def assert_a_failed_publishing_is_made_up_for(world: "World", name: PipelineName, run_id: str) -> None:
    """Assert that a run whose table cannot be published registers its checkpoint, and that the run publishes it
    after it was cleared. ``run_id``: of the run of the third day, which has failed before."""
    client, dag = world.client, f"{name}.checkpoint"
    stray = world.places.data / "tables" / "streaks" / "part-0.parquet"
    stray.touch()
    client.clear(dag, run_id)
    unpublished = world.wait("2013-01-03", dag)
    states = client.task_states(dag, unpublished.run_id)
    assert (unpublished.state, states["register"], states["publish"]) == ("failed", "success", "failed")
    assert "part-0.parquet was not published by statelib" in client.failed_log(unpublished)
    assert world.deployment.catalog().head(name).head == 5, "no checkpoint is lost"
    stray.unlink()
    client.clear(dag, run_id)
    again = world.wait("2013-01-03", dag)
    states = client.task_states(dag, again.run_id)
    assert (again.state, states["begin"], states["publish"]) == ("success", "skipped", "success")
    assert_published(world.deployment, name, 5)


def assert_published(deployment: Deployment, name: PipelineName, number: int) -> None:
    """Assert that both tables have the state of a checkpoint, which is the head."""
    entries = resolve(deployment, f"{name}/{number}").to_arrow("streaks").to_pylist()
    expected = {(row["key"],): {"carrier": row["key"], **row["value"]} for row in entries}
    tables = Path(deployment.data) / "tables"
    assert table_rows(tables / "streaks", ["carrier"]) == expected
    assert folded(feed_rows(tables / "streaks_changes"), ["carrier"]) == expected
    behind = standings(deployment, deployment.pipeline(name))
    assert [(s.checkpoint_id, s.behind, s.error) for s in behind] == [(number, 0, "")] * 2
