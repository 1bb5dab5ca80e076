"""A publisher that is killed at each of its crash points: readers see the table before or after the commit, the
checkpoint stays registered, and the next publisher publishes the rest and leaves no file."""

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from statelib.flows.publication.steps import publish_tables, standings
from statelib.flows.wiring import Deployment
from statelib.model.ids import PipelineName
from statelib.testing.crash_points import Place, ends_at, kill, recorded
from tests.faults.crash_child import run
from tests.support.extent import rounds
from tests.support.published import feed_rows, folded, table_rows
from tests.support.worlds import checkpoint_of, new_deployment

PIPELINE = """\
name: counts
source: {path: "{data}/{start}-{end}", columns: {k: long}}
key: [k]
states:
  seen: {kind: value, value: {agg: count}, ttl: 2d}
backend: heap
max_parallelism: 4
publish:
  feed: {target: "{data}/feed", mode: changes}
  now: {target: "{data}/now", mode: table, retain: 1}
"""
Rows = dict[tuple[int], dict[str, int]]


def publish(deployment: Deployment, place: Place | None = None) -> None:
    """Publish the tables in a process that is killed at ``place``."""
    pipeline = deployment.pipeline("counts")
    if place is None:
        publish_tables(deployment, pipeline)
        return
    with ends_at(place, kill):
        publish_tables(deployment, pipeline)


def step(deployment: Deployment, number: int) -> None:
    """Apply a day. On day 3 keys 5 to 7 expire."""
    keys = {1: range(8), 2: range(5), 3: range(3, 5), 4: [9]}[number]
    checkpoint_of(deployment, "counts", number, pa.table({"k": pa.array(list(keys), pa.int64())}))


def tables(deployment: Deployment) -> tuple[Rows, Rows]:
    """Return the rows of the folded feed and of the table, as a reader sees them."""
    return folded(feed_rows(Path(deployment.data) / "feed"), ["k"]), table_rows(Path(deployment.data) / "now", ["k"])


def state(deployment: Deployment, number: int) -> Rows:
    opened = deployment.open(deployment.catalog().get(PipelineName("counts"), number))
    entries = opened.to_arrow("seen").to_pylist()
    return {(row["key"],): {"k": row["key"], "value": row["value"]["value"]} for row in entries}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    """Return a deployment with two published checkpoints, and two more that are not published."""
    root = tmp_path_factory.mktemp("prepared")
    (root / "pipelines").mkdir()
    (root / "pipelines" / "counts.yaml").write_text(PIPELINE)
    deployment = new_deployment(root, root, root / "pipelines")
    for number in (1, 2):
        step(deployment, number)
        publish(deployment)
    for number in (3, 4):
        step(deployment, number)
    return deployment


def copied(prepared: Deployment, root: Path) -> Deployment:
    """Return the deployment at its own path, in the state in which it was prepared. Checkpoints have absolute paths."""
    original = Path(prepared.data)
    saved = original.with_name(f"{original.name}-saved")
    if not saved.exists():
        shutil.copytree(original, saved)
    shutil.rmtree(original)
    shutil.copytree(saved, original)
    return prepared


def test_the_next_publisher_publishes_the_rest(prepared: Deployment, tmp_path: Path) -> None:
    deployment = copied(prepared, tmp_path)
    with recorded() as reached:
        publish(deployment)
    places = [place for place in reached if place.point.startswith(("publication", "pin", "unpin"))]
    assert {place.point for place in places if place.point.startswith("publication")} == {
        f"publication: {point}"
        for point in ("staging made", "file durable", "durable", "renamed", "committed", "before removal", "removed")
    }
    states = {number: state(deployment, number) for number in (2, 3, 4)}
    assert (5,) in states[2]
    assert (5,) not in states[3]
    for place in places[:: rounds(3, 1)]:
        deployment = copied(prepared, tmp_path)
        assert run(publish, deployment, place) == -9, place
        for rows in tables(deployment):
            assert rows in states.values(), place
        assert deployment.catalog().head(PipelineName("counts")).head == 4
        publish(deployment)
        assert tables(deployment) == (states[4], states[4]), place
        assert all(s.behind == 0 for s in standings(deployment, deployment.pipeline("counts"))), place
        commits = feed_rows(Path(deployment.data) / "feed")
        assert {
            (c, i) for c, i in zip(*(commits[n].to_pylist() for n in ("commit", "checkpoint_id")), strict=True)
        } == {(number, number) for number in (1, 2, 3, 4)}, place
        for table in ("feed", "now"):
            assert list((Path(deployment.data) / table / "_staging").iterdir()) == [], place
        assert len(list((Path(deployment.data) / "now").glob("commit-*"))) == 1, place
