"""A published table whose newest commit is of another history of the pipeline: another deployment published it, the
state began anew, or the pipeline was renamed. Its checkpoint has the number of another one."""

import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from statelib.errors import InvalidRequestError
from statelib.flows.cleanup.garbage import collect_garbage
from statelib.flows.cleanup.retention import retire
from statelib.flows.publication.steps import publish_tables, standings
from statelib.flows.wiring import Deployment
from statelib.model.ids import PipelineName
from tests.integration.shop import SALES, sales
from tests.support.emitting import COUNTS, events_of
from tests.support.published import TABLES, delta_rows, feed_rows, iceberg_environment, iceberg_rows, published
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


OUTPUTS = {
    form: f"publish: {{feed: {{target: {target}, format: {form}, mode: changes, output: alerts}}}}\n"
    for form, target in (("parquet", '"{data}/alerts"'), ("delta", '"{data}/alerts"'), ("iceberg", "lake.c.alerts"))
}


def with_output(deployment: Deployment, format_: str = "parquet", name: str = "counts", renamed_from: str = "") -> None:
    """Write the pipeline file of counts, with a feed of its output."""
    text = COUNTS.replace("BACKEND", "heap").replace("STRATEGY", "canonical").replace("name: counts", f"name: {name}")
    former = f"renamed_from: [{renamed_from}]\n" if renamed_from else ""
    (Path(deployment.pipelines_directory) / "counts.yaml").write_text(text + former + OUTPUTS[format_])


def count(deployment: Deployment, number: int, n: int, name: str = "counts") -> None:
    """Make a checkpoint whose run emits one row, with the number ``n``."""
    checkpoint_of(deployment, name, number, events_of([(1, n)], day(number).start_ms))


def check_refused(deployment: Deployment, text: str, name: str = "counts") -> None:
    with pytest.raises(InvalidRequestError, match=text) as refusal:
        publish_tables(deployment, deployment.pipeline(name))
    assert refusal.value.kind == "foreign-target"


@pytest.mark.parametrize("format_", OUTPUTS)
def test_the_feed_of_an_output_with_rows_of_another_history_is_refused(
    deployment: Deployment, tmp_path: Path, format_: str
) -> None:
    """The newest commit of the feed has a checkpoint that the new history has, too, or does not have yet."""
    with_output(deployment, format_)
    count(deployment, 1, 10)
    count(deployment, 2, 11)
    publish_tables(deployment, deployment.pipeline("counts"))
    read = {"parquet": feed_rows, "delta": delta_rows}.get(format_)

    def rows() -> pa.Table:
        return read(tmp_path / "alerts") if read else iceberg_rows("c.alerts")

    before, anew = rows(), begun_anew(deployment, tmp_path)
    for number in (1, 2, 3):
        count(anew, number, 19 + number)
        check_refused(anew, "commit 1 has the rows of a checkpoint 2 that this deployment")
    assert rows().equals(before)


@pytest.mark.parametrize("renamed", [False, True])
def test_retention_keeps_rows_that_the_feed_of_another_history_does_not_have(
    deployment: Deployment, tmp_path: Path, renamed: bool
) -> None:
    with_output(deployment)
    for number in range(1, 4):
        count(deployment, number, 9 + number)
        publish_tables(deployment, deployment.pipeline("counts"))
    name, anew = ("numbers", deployment) if renamed else ("counts", begun_anew(deployment, tmp_path))
    with_output(anew, name=name, renamed_from="counts" if renamed else "")
    for number in range(4, 9):
        count(anew, number, 20 + number, name)
        check_refused(anew, "commit 3 has the rows of a checkpoint 3 that this deployment", name)
        retire(anew)
        collect_garbage(anew)
    shutil.rmtree(tmp_path / "alerts")
    publish_tables(anew, anew.pipeline(name))
    assert sorted(feed_rows(tmp_path / "alerts")["n"].to_pylist()) == [24, 25, 26, 27, 28]
