"""The DAGs that a DAG file makes while one task runs: those of its pipeline or group, as when all are made."""

from pathlib import Path

import pytest
from statelib_airflow import pipeline_dags

PIPELINE = """\
name: {name}
schedule: {{cron: "@daily", start: 2026-01-01}}
source: {{path: "{{data}}/{{start:%Y-%m-%d}}", columns: {{shop: string}}}}
key: shop
states: {{visits: {{kind: value, value: {{agg: count}}}}}}
backend: heap
{more}
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return a directory with a group of two pipelines, one of which an earlier file outside the group has already."""
    for file, name, more in (("a", "one", ""), ("b", "one", "group: both"), ("c", "two", "group: both")):
        (tmp_path / f"{file}.yaml").write_text(PIPELINE.format(name=name, more=more))
    return tmp_path


@pytest.mark.parametrize("dag_id", ["one.checkpoint", "two.restore", "both.group"])
def test_a_task_has_the_dag_that_the_scheduler_has(
    directory: Path, monkeypatch: pytest.MonkeyPatch, dag_id: str
) -> None:
    whole = pipeline_dags(directory)[dag_id]
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", dag_id)
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_TASK_ID", "any")
    made = pipeline_dags(directory)
    assert {name.partition(".")[0] for name in made} == {dag_id.partition(".")[0]}
    assert list(made[dag_id].task_dict) == list(whole.task_dict)
    fields = [getattr(dag.task_dict.get("checkpoints"), "pipelines", None) for dag in (made[dag_id], whole)]
    assert fields[0] == fields[1]


def test_the_files_of_other_pipelines_are_not_checked(
    directory: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (directory / "d.yaml").write_text("not: a pipeline")
    pipeline_dags(directory)
    assert "d.yaml" in caplog.text
    caplog.clear()
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", "two.checkpoint")
    assert "two.checkpoint" in pipeline_dags(directory)
    assert "d.yaml" not in caplog.text
