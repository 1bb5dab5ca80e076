"""A published table whose newest commit is of another history of the pipeline: another deployment published it, the
state began anew, or the pipeline was renamed. Its checkpoint has the number of another one."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from statelib.errors import InvalidRequestError
from statelib.flows.publication.steps import publish_tables, standings
from statelib.flows.wiring import Deployment
from statelib.model.ids import PipelineName
from tests.integration.shop import SALES, sales
from tests.support.emitting import COUNTS, events_of
from tests.support.published import TABLES, feed_rows, iceberg_environment, published
from tests.support.worlds import checkpoint_of, day, new_deployment


@pytest.fixture
def deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    for name, value in iceberg_environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    (tmp_path / "pipelines").mkdir()
    return new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")


def begun_anew(deployment: Deployment, root: Path) -> Deployment:
    """Return a deployment with the same pipelines and tables that has no state yet."""
    return replace(deployment, catalog_url=f"sqlite:///{root}/new.db", storage_root=str(root / "new"))


def state_of(deployment: Deployment, pipeline: str = "sales") -> dict[str, dict[str, object]]:
    """Return the rows of the state by shop."""
    catalog, name = deployment.catalog(), PipelineName(pipeline)
    head = catalog.head(name).head
    assert head is not None
    opened = deployment.open(catalog.get(name, head))
    rows = opened.to_arrow("total").to_pylist()
    return {row["key"]: row["value"] for row in rows}


def with_table(format_: str, mode: str) -> str:
    """Return the pipeline file of sales with a table of its state total."""
    target = "lake.shop.total" if format_ == "iceberg" else "{data}/total"
    return SALES + f'publish:\n  total: {{target: "{target}", format: {format_}, mode: {mode}, state: total}}\n'


@pytest.mark.parametrize(("format_", "mode"), TABLES)
def test_a_renamed_pipeline_continues_its_table(
    deployment: Deployment, tmp_path: Path, format_: str, mode: str
) -> None:
    text, directory = with_table(format_, mode), Path(deployment.pipelines_directory)
    (directory / "sales.yaml").write_text(text)
    for number in (1, 2):
        checkpoint_of(deployment, "sales", number, sales(number * 3))
        publish_tables(deployment, deployment.pipeline("sales"))
    for number, (name, former) in ((3, ("revenue", "[sales]")), (4, ("income", "[revenue, sales]"))):
        (directory / "sales.yaml").write_text(text.replace("name: sales", f"name: {name}\nrenamed_from: {former}"))
        checkpoint_of(deployment, name, number, sales(number * 3))
        (one,) = standings(deployment, deployment.pipeline(name))
        assert (one.behind, one.error) == (1, "")
        publish_tables(deployment, deployment.pipeline(name))
        assert published(tmp_path, format_, mode) == state_of(deployment, name)
    assert [(one.commit, one.behind) for one in standings(deployment, deployment.pipeline("income"))] == [(4, 0)]
    (directory / "other.yaml").write_text(text.replace("name: sales", "name: other"))
    checkpoint_of(deployment, "other", 1, sales(1))
    with pytest.raises(InvalidRequestError) as refusal:
        publish_tables(deployment, deployment.pipeline("other"))
    assert refusal.value.kind == "foreign-target", "it was not renamed"


@pytest.mark.parametrize(("format_", "mode"), TABLES)
def test_the_table_of_another_history_becomes_the_state(
    deployment: Deployment, tmp_path: Path, format_: str, mode: str
) -> None:
    text = with_table(format_, mode)
    (Path(deployment.pipelines_directory) / "sales.yaml").write_text(text)
    checkpoint_of(deployment, "sales", 1, sales(9))
    publish_tables(deployment, deployment.pipeline("sales"))
    assert published(tmp_path, format_, mode) == state_of(deployment)

    anew = begun_anew(deployment, tmp_path)
    for number, events in ((1, sales(2)), (2, sales(1))):
        checkpoint_of(anew, "sales", number, events)
        assert [one.behind for one in standings(anew, anew.pipeline("sales"))] == [1]
        publish_tables(anew, anew.pipeline("sales"))
        assert published(tmp_path, format_, mode) == state_of(anew)
    assert [(one.commit, one.behind) for one in standings(anew, anew.pipeline("sales"))] == [(3, 0)]


def test_the_feed_of_an_output_with_rows_of_another_history_is_refused(deployment: Deployment, tmp_path: Path) -> None:
    text = COUNTS.replace("BACKEND", "heap").replace("STRATEGY", "canonical")
    text += 'publish: {feed: {target: "{data}/alerts", mode: changes, output: alerts}}\n'
    (Path(deployment.pipelines_directory) / "counts.yaml").write_text(text)
    checkpoint_of(deployment, "counts", 1, events_of([(1, 10)], day(1).start_ms))
    publish_tables(deployment, deployment.pipeline("counts"))
    before: pa.Table = feed_rows(tmp_path / "alerts")

    anew = begun_anew(deployment, tmp_path)
    checkpoint_of(anew, "counts", 1, events_of([(2, 11)], day(1).start_ms))
    with pytest.raises(InvalidRequestError, match="commit 1 has the rows of another checkpoint 1") as refusal:
        publish_tables(anew, anew.pipeline("counts"))
    assert refusal.value.kind == "foreign-target"
    assert feed_rows(tmp_path / "alerts").equals(before)
