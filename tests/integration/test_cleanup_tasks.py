"""The steps of the DAG state_cleanup in this process, with real checkpoints; no scheduler."""

import importlib
import logging
from pathlib import Path

import pytest

from statelib.flows.wiring import Deployment
from tests.integration.garbage import days, stored, tally
from tests.integration.shop import environment


@pytest.fixture
def deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    """Return a deployment of this process's Airflow whose only pipeline has two checkpoints and no file. Airflow is
    imported here, because its first import replaces the handlers of logs, also the one of ``caplog`` in a test."""
    made = tally(tmp_path)
    days(made, 1, 2)
    (tmp_path / "pipelines" / "tally.yaml").unlink()
    for name, value in environment(made).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "home"))
    importlib.import_module("statelib_airflow.runtime.cleaning")
    return made


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what the step of retention says of the pipeline's checkpoints that stay."""
    from statelib_airflow.hooks import StatelibHook
    from statelib_airflow.runtime import cleaning

    with caplog.at_level(logging.WARNING, cleaning.__name__):
        assert cleaning.retention(StatelibHook()) == {"tally": []}
    return caplog.messages


def test_a_pipeline_whose_file_is_gone_is_named_with_the_command_that_deletes_it(
    deployment: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    before = stored(deployment)
    (line,) = logged(caplog)
    assert line.startswith("tally has no pipeline file: 2 checkpoints, ")
    assert line.endswith("bytes stay; statelib pipelines discard tally deletes them")
    assert stored(deployment) == before


def test_no_command_is_named_while_a_file_that_does_not_load_may_be_the_pipelines(
    deployment: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    (Path(deployment.pipelines_directory) / "odd.yaml").write_text("name: [\n")
    lines = logged(caplog)
    assert [line for line in lines if line.endswith("odd.yaml does not load, it may be the file of tally")]
    assert not [line for line in lines if "discard" in line]
