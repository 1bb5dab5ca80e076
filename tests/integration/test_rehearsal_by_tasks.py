"""A large checkpoint is restored as a test by tasks of the Spark job, so that the gate's own process holds no state."""

from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from statelib.errors import CorruptStateError
from statelib.flows.checkpoint.steps import begin, check, register
from statelib.flows.gate import rehearsing
from statelib.flows.gate.rehearsing import layout_for_job
from statelib.flows.recovery.rebuild import apply_rebuild, plan_rebuild
from statelib.flows.savepoint.steps import begin_savepoint
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import CheckpointManifest
from statelib.model.ids import CheckpointId
from statelib.quality.gate import QualityReport
from statelib.savepoints.opened import Checkpoint
from statelib.spark.snapshot import driver
from statelib.spark.snapshot.driver import run_snapshot
from statelib.storage.uris import local_path
from tests.integration.gate_rotation import NAME, guests, new_world, taken
from tests.support.worlds import day, publish_here

SENTENCE = "restored by tasks of the Spark job, before it published the checkpoint"


def large(root: Path, every: int, in_job_from_bytes: int = 0) -> Deployment:
    """Return a deployment whose pipeline has every checkpoint handled as a large one."""
    settings = f"{{rotate: 1/4}}, in_job_from_bytes: {in_job_from_bytes}, rehearse_every: {every}"
    deployment = new_world(root, read_back=settings)
    file = Path(deployment.pipelines_directory) / "visits.yaml"
    text = file.read_text().replace("{start}-{end}", "{start:%Y-%m-%d}")
    file.write_text(text.replace("source: {", "source: {format: parquet, "))
    return deployment


def begun(deployment: Deployment, number: int) -> CheckpointId:
    """Begin the checkpoint of a day with 100 guests."""
    directory = Path(deployment.data) / f"2013-01-{number:02d}"
    directory.mkdir(parents=True)
    pq.write_table(guests(0, 100), directory / "part.parquet")
    return begin(deployment, deployment.pipeline(NAME), day(number), "test").checkpoint_id


def run_on_spark(spark: SparkSession, deployment: Deployment, number: int) -> tuple[CheckpointManifest, QualityReport]:
    """Take the checkpoint of a day, and judge it. Return its manifest and the gate's report."""
    pipeline, checkpoint_id = deployment.pipeline(NAME), begun(deployment, number)
    assert run_snapshot(spark, deployment, pipeline, checkpoint_id) is not None
    manifest = deployment.open(deployment.catalog().get(NAME, checkpoint_id)).manifest
    assert manifest is not None
    report = check(deployment, pipeline, checkpoint_id)
    register(deployment, pipeline, checkpoint_id, report.report_uri)
    return manifest, report


def rehearsals(report: QualityReport) -> list[tuple[bool, int, tuple[str, ...]]]:
    """Return (whether it passed, number of subtasks, remarks) of the rehearsal in a report, if there was one."""
    return [(r.passed, r.checked, r.sentences) for r in report.results if r.group == "rehearsal"]


def never(*_arguments: Any, **_named: Any) -> NoReturn:
    pytest.fail("the gate restores state in its own process")


def test_tasks_restore_every_second_checkpoint(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = large(tmp_path, every=2)
    monkeypatch.setattr(rehearsing, "rehearse_subtask", never)
    for number in (1, 2, 3, 4):
        manifest, report = run_on_spark(spark, deployment, number)
        if number % 2:
            assert manifest.rehearsed == ()
            assert rehearsals(report) == []
        else:
            assert len(manifest.rehearsed) == 2
            assert sum(manifest.rehearsed) == manifest.entries == 200
            assert rehearsals(report) == [(True, 2, (SENTENCE,))]


def test_a_rebuilt_catalog_relies_on_a_restore_of_its_own(spark: SparkSession, tmp_path: Path) -> None:
    deployment = large(tmp_path, every=1)
    run_on_spark(spark, deployment, 1)
    again = replace(deployment, catalog_url=deployment.catalog_url.replace("catalog.db", "new.db"))
    apply_rebuild(again, plan_rebuild(again))
    results = again.catalog().gate.results(NAME, CheckpointId(1))
    assert [(r.passed, r.sentences) for r in results if r.group == "rehearsal"] == [(True, ())]


def test_a_checkpoint_that_tasks_cannot_restore_is_not_published(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = large(tmp_path, every=1)

    def spoiled(_deployment: Deployment, _pipeline: Any, _record: Any, opened: Checkpoint) -> None:
        """Empty a table, and leave the reading to the gate."""
        assert opened.manifest is not None
        table = next(file.path for file in opened.manifest.files if file.path.startswith("file:"))
        Path(local_path(table)).write_bytes(b"")

    monkeypatch.setattr(driver, "shares_of", spoiled)
    checkpoint_id = begun(deployment, 1)
    with pytest.raises(CorruptStateError):
        run_snapshot(spark, deployment, deployment.pipeline(NAME), checkpoint_id)
    directory = Path(local_path(deployment.catalog().get(NAME, checkpoint_id).directory))
    assert not (directory / "_metadata").exists()


@pytest.mark.parametrize(("least_bytes", "by_job"), [(1_000, True), (1_000_000, False)])
def test_the_size_of_the_whole_checkpoint_decides(tmp_path: Path, least_bytes: int, by_job: bool) -> None:
    """A run that changes little reads little back, but its rehearsal restores the whole state."""
    deployment = large(tmp_path, every=1, in_job_from_bytes=least_bytes)
    record = deployment.catalog().get(NAME, taken(deployment, 1, guests(0, 100)))
    layout = layout_for_job(deployment, deployment.pipeline(NAME), record, deployment.open(record))
    assert (layout is not None) is by_job


def test_a_savepoint_is_not_rehearsed(tmp_path: Path) -> None:
    deployment = large(tmp_path, every=1)
    pipeline = deployment.pipeline(NAME)
    checkpoint_id = taken(deployment, 1, guests(0, 100))
    register(deployment, pipeline, checkpoint_id, check(deployment, pipeline, checkpoint_id).report_uri)
    request = {"format": "native", "target": None, "note": "", "owner": "test", "key": "one"}
    savepoint = begin_savepoint(deployment, pipeline, **request).checkpoint_id
    publish_here(deployment, pipeline, savepoint)
    record = deployment.catalog().get(NAME, savepoint)
    assert layout_for_job(deployment, pipeline, record, deployment.open(record)) is None
