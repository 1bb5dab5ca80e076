"""Lineage of checkpoints as plain values: names by OpenLineage's rules, versions, figures that the catalog has."""

from pathlib import Path

import pyarrow as pa
import pytest

from statelib.errors import NotFoundError
from statelib.flows.checkpoint.steps import register
from statelib.flows.savepoint.steps import begin_savepoint
from statelib.flows.views.lineage import LineageField, dataset_name, lineage_of, state_name
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import CheckpointRecord
from tests.support.worlds import checkpoint_of, new_deployment, publish_here

SALES = """\
name: sales
source: {path: "s3://lake/sales/{start:%Y-%m-%d}", columns: {user: string, price: long}}
key: [user]
states:
  last: {kind: value, fields: {price: {agg: last, of: price, by: price}, sold: {agg: count}}}
  total: {kind: reducing, value: {agg: sum, of: price}}
backend: heap
parallelism: 2
checkpoint: {strategy: full}
"""


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "sales.yaml").write_text(SALES)
    made = new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")
    for number in (1, 2):
        checkpoint_of(made, "sales", number, pa.table({"user": ["a", "b"], "price": [number, 2]}))
    return made


def record(deployment: Deployment, number: int) -> CheckpointRecord:
    return deployment.catalog().get(PipelineName("sales"), CheckpointId(number))


def test_the_inputs_are_source_and_base_and_the_output_is_the_state(deployment: Deployment) -> None:
    lineage = lineage_of(deployment, deployment.pipeline("sales"), record(deployment, 2))
    source, before = lineage.inputs
    assert (source.namespace, source.name, source.touched) == ("s3://lake", "sales/2013-01-02", 2)
    assert source.fields == (LineageField("user", "string"), LineageField("price", "long"))
    (state,) = lineage.outputs
    assert (before.namespace, before.name) == (state.namespace, state.name) == ("statelib://sales", "state")
    assert (before.version, state.version) == ("1", "2")
    assert (state.rows, dict(state.rows_by_field), state.touched) == (2, {"last": 2, "total": 2}, 2)
    key, last, total = state.fields
    assert (key.name, key.type, key.about) == ("key", "string", "key: user")
    assert [(field.name, field.type) for field in last.fields] == [
        ("price", "row<value: long, by_price: long>"),
        ("sold", "long"),
    ]
    assert (total.type, total.about, total.fields) == ("long", "reducing state", ())
    assert state.updated_at.endswith("+00:00")


def test_the_first_checkpoint_has_no_state_before(deployment: Deployment) -> None:
    (source,) = lineage_of(deployment, deployment.pipeline("sales"), record(deployment, 1)).inputs
    assert source.name == "sales/2013-01-01"


def test_the_output_of_a_savepoint_is_a_copy_of_the_state_in_its_directory(deployment: Deployment) -> None:
    pipeline = deployment.pipeline("sales")
    saved = begin_savepoint(
        deployment, pipeline, format="canonical", target=None, note="", owner="test", key="k"
    ).checkpoint_id
    publish_here(deployment, pipeline, saved)
    register(deployment, pipeline, saved)
    lineage = lineage_of(deployment, pipeline, record(deployment, saved))
    (before,), (copy,) = lineage.inputs, lineage.outputs
    assert (before.namespace, before.name, before.version) == (*state_name("sales"), "2")
    assert (copy.namespace, copy.name) == ("file", record(deployment, saved).directory.removeprefix("file://"))
    assert (copy.version, copy.rows) == ("3", 2)


def test_a_deleted_checkpoint_has_no_lineage(deployment: Deployment) -> None:
    for path in Path(record(deployment, 2).directory.removeprefix("file://")).iterdir():
        path.unlink()
    with pytest.raises(NotFoundError):
        lineage_of(deployment, deployment.pipeline("sales"), record(deployment, 2))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/data/x/2013-01-01", ("file", "/data/x/2013-01-01")),
        ("file:///data/x", ("file", "/data/x")),
        ("s3a://bucket/a/b", ("s3://bucket", "a/b")),
        ("gs://bucket", ("gs://bucket", "/")),
        ("abfss://c@a.dfs.core.windows.net/p/q", ("abfss://c@a.dfs.core.windows.net", "p/q")),
        ("hdfs://name:8020/x", ("hdfs://name:8020", "x")),
        ("jdbc://me:secret-word@db/t", ("jdbc://me:***@db", "t")),
    ],
)
def test_names_follow_openlineages_rules(path: str, expected: tuple[str, str]) -> None:
    assert dataset_name(path) == expected
