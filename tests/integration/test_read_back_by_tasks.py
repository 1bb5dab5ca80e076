"""A large checkpoint is read back by tasks of the Spark job, each of which reads what others wrote."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from statelib.errors import CorruptStateError, StatelibError
from statelib.flows.checkpoint.steps import begin, check, register
from statelib.flows.gate import shares as gate_shares
from statelib.flows.gate.shares import Shares, shares_of
from statelib.flows.recovery.rebuild import apply_rebuild, plan_rebuild
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.key_groups import KeyGroupRange
from statelib.savepoints.opened import Checkpoint
from statelib.savepoints.verification import stored_content
from statelib.savepoints.verification.stored_content import StoredContent
from statelib.spark.snapshot import driver
from statelib.spark.snapshot.driver import run_snapshot
from statelib.storage.uris import local_path
from tests.integration.gate_rotation import NAME, facts_of, guests, new_world, run_day, taken
from tests.support.worlds import checkpoint_of, day, new_deployment, publish_here

DAMAGED = ("read-back-failed", "checksum-mismatch", "size-mismatch", "corrupt-rocksdb")
"""The kinds of error: one task reads the file, another one the entries in it, and either may be the first."""

BLIND = """\
name: blind
source: {path: "{data}/{start}-{end}", columns: {guest: string, amount: long}}
key: guest
states: {total: {kind: value, fields: {n: {agg: count}, sum: {agg: sum, of: amount}}}}
backend: heap
parallelism: 2
max_parallelism: 8
checks: {read_back: {rotate: 1/4}, in_job_from_bytes: 0}
checkpoint: {strategy: changelog, blind: true, materialize_after_checkpoints: 1, inline_threshold_bytes: 0}
"""


def large(root: Path, read_back: str = "{rotate: 1/4}") -> Deployment:
    """Return a deployment whose pipeline has every checkpoint read back by the job."""
    return new_world(root, read_back=f"{read_back}, in_job_from_bytes: 0")


def shares(deployment: Deployment, number: CheckpointId) -> Shares:
    record = deployment.catalog().get(NAME, number)
    planned = shares_of(deployment, deployment.pipeline(NAME), record, deployment.open(record))
    assert planned is not None
    return planned


def read_all(all_shares: Shares, scratch: Path) -> None:
    for share in range(all_shares.number):
        all_shares.read(share, str(scratch))


def test_a_small_checkpoint_is_left_to_the_gate(tmp_path: Path) -> None:
    deployment = new_world(tmp_path)
    number = taken(deployment, 1, guests(0, 50))
    record = deployment.catalog().get(NAME, number)
    assert shares_of(deployment, deployment.pipeline(NAME), record, deployment.open(record)) is None


def test_tasks_read_the_state_with_which_deltas_were_merged(tmp_path: Path) -> None:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "blind.yaml").write_text(BLIND)
    deployment = new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")
    planned = {}
    for number in (1, 2, 3):
        events = pa.table({"guest": [f"g{n}" for n in range(60)], "amount": pa.array(range(60), pa.int64())})
        checkpoint = checkpoint_of(deployment, "blind", number, events)
        record = deployment.catalog().get(PipelineName("blind"), checkpoint)
        planned[number] = shares_of(deployment, deployment.pipeline("blind"), record, deployment.open(record))
    assert planned[2] is None, "it has open deltas, which the gate reads"
    merged = planned[3]
    assert merged is not None
    assert merged.opened.manifest is not None
    assert len(merged.reading.files) == len(merged.opened.manifest.files)
    read_all(merged, tmp_path)
    for file in merged.reading.files:
        path = Path(local_path(file.path))
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(CorruptStateError):
        read_all(merged, tmp_path)


def test_a_merged_state_is_read_whole_although_its_base_is_proved(tmp_path: Path) -> None:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "blind.yaml").write_text(BLIND.replace("backend: heap", "backend: rocksdb"))
    deployment = new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")
    pipeline = deployment.pipeline("blind")
    for number, guests_of_day in ((1, 60), (2, 3), (3, 3)):
        numbers = range(guests_of_day)
        events = pa.table({"guest": [f"g{n}" for n in numbers], "amount": pa.array(numbers, pa.int64())})
        checkpoint_id = begin(deployment, pipeline, day(number), "test").checkpoint_id
        publish_here(deployment, pipeline, checkpoint_id, events)
        record = deployment.catalog().get(PipelineName("blind"), checkpoint_id)
        planned = shares_of(deployment, pipeline, record, deployment.open(record))
        register(deployment, pipeline, checkpoint_id, check(deployment, pipeline, checkpoint_id).report_uri)
    assert planned is not None
    assert planned.reading.key_groups is None, "nothing says how many entries it must have"


def test_the_shares_together_read_what_the_gate_would_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = large(tmp_path)
    run_day(deployment, 1, guests(0, 200))
    number = taken(deployment, 2, guests(0, 3))
    facts, all_shares = facts_of(deployment, number), shares(deployment, number)
    assert facts.partial is not None
    wanted = {finding.path for finding in facts.file_findings} - facts.partial.skipped
    assert {file.path for file in all_shares.reading.files} == wanted
    groups = {group for part in all_shares.reading.key_groups or () for group in part}
    assert groups == facts.partial.key_groups
    read: list[tuple[int, int]] = []
    plain = stored_content.read_content

    def noted(opened: Checkpoint, scratch: str, parts: list[KeyGroupRange]) -> StoredContent:
        read.extend((current, int(group)) for part in parts for group in part)
        return plain(opened, scratch, parts)

    monkeypatch.setattr(gate_shares, "read_content", noted)
    for current in range(all_shares.number):
        all_shares.read(current, str(tmp_path / "scratch"))
    assert sorted(group for _, group in read) == sorted(groups)
    assert all(share == (1 if group < 4 else 0) for share, group in read), "no subtask reads what it wrote"


@pytest.mark.parametrize("read_back", ["{rotate: 1/4}", "all"])
def test_a_fault_of_storage_is_found_by_a_share(tmp_path: Path, read_back: str) -> None:
    deployment = large(tmp_path, read_back)
    run_day(deployment, 1, guests(0, 200))
    number = taken(deployment, 2, guests(0, 100))
    all_shares = shares(deployment, number)
    read_all(all_shares, tmp_path / "scratch")
    new = max((file for file in all_shares.reading.files if file.path.startswith("file:")), key=lambda f: f.size_bytes)
    path = Path(local_path(new.path))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptStateError) as caught:
        read_all(all_shares, tmp_path / "scratch")
    assert caught.value.kind in DAMAGED
    path.unlink()
    with pytest.raises(StatelibError) as caught_later:
        read_all(all_shares, tmp_path / "scratch")
    assert caught_later.value.kind in ("read-back-failed", "missing-file")


def test_a_wrong_digest_is_found_by_a_share(tmp_path: Path) -> None:
    """In the key groups whose turn it is, and in those of which nothing new was written."""
    deployment = large(tmp_path)
    run_day(deployment, 1, guests(0, 200))
    number = taken(deployment, 2, guests(0, 1))
    all_shares, facts = shares(deployment, number), facts_of(deployment, number)
    assert all_shares.opened.manifest is not None
    assert facts.partial is not None
    trusted = facts.partial.written - facts.partial.key_groups
    for group in set(range(8)) - trusted:
        manifest = all_shares.opened.manifest
        first, *rest = manifest.statistics
        digests = first.digests.copy()
        digests[group] += np.uint64(1)
        forged = replace(manifest, statistics=(replace(first, digests=digests), *rest))
        with pytest.raises(CorruptStateError) as caught:
            read_all(replace(all_shares, opened=replace(all_shares.opened, manifest=forged)), tmp_path / "scratch")
        assert caught.value.kind == "restore-mismatch"
        assert f"key group {group}" in caught.value.message


def run_on_spark(spark: SparkSession, deployment: Deployment, number: int, last: int) -> CheckpointId:
    pipeline = deployment.pipeline(NAME)
    checkpoint_id = begin(deployment, pipeline, day(number), "test").checkpoint_id
    directory = Path(deployment.data) / f"2013-01-{number:02d}"
    directory.mkdir(parents=True)
    pq.write_table(guests(0, last), directory / "part.parquet")
    assert run_snapshot(spark, deployment, pipeline, checkpoint_id) is not None
    return checkpoint_id


def on_days(root: Path) -> Deployment:
    deployment = large(root)
    file = Path(deployment.pipelines_directory) / "visits.yaml"
    file.write_text(
        file.read_text().replace("{start}-{end}", "{start:%Y-%m-%d}").replace("source: {", "source: {format: parquet, ")
    )
    return deployment


def test_the_job_reads_back_and_the_gate_need_not(spark: SparkSession, tmp_path: Path) -> None:
    deployment = on_days(tmp_path)
    pipeline = deployment.pipeline(NAME)
    for number in (1, 2, 3):
        checkpoint_id = run_on_spark(spark, deployment, number, 100)
        record = deployment.catalog().get(NAME, checkpoint_id)
        manifest = deployment.open(record).manifest
        assert manifest is not None
        assert manifest.read_by_job
        facts = facts_of(deployment, checkpoint_id)
        assert all(finding.actual_crc is None for finding in facts.file_findings), "the gate looks at sizes only"
        report = check(deployment, pipeline, checkpoint_id)
        assert any("by tasks of the Spark job" in sentence for r in report.results for sentence in r.sentences)
        register(deployment, pipeline, checkpoint_id, report.report_uri)
    assert deployment.catalog().gate.has_proved(NAME, CheckpointId(3))
    again = replace(deployment, catalog_url=deployment.catalog_url.replace("catalog.db", "new.db"))
    apply_rebuild(again, plan_rebuild(again))
    results = again.catalog().gate.results(NAME, CheckpointId(3))
    assert results, "the newest checkpoint is judged again"
    assert not any("Spark job" in sentence for r in results for sentence in r.sentences), (
        "and read, whoever had read it"
    )


def test_a_job_that_reads_other_bytes_publishes_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = on_days(tmp_path)

    def spoiled(*arguments: Any) -> Shares | None:
        planned = shares_of(*arguments)
        assert planned is not None
        path = next(file.path for file in planned.reading.files if file.path.startswith("file:"))
        Path(local_path(path)).write_bytes(b"")
        return planned

    monkeypatch.setattr(driver, "shares_of", spoiled)
    with pytest.raises(CorruptStateError) as caught:
        run_on_spark(spark, deployment, 1, 100)
    assert caught.value.kind in DAMAGED
    directory = Path(local_path(deployment.catalog().get(NAME, CheckpointId(1)).directory))
    assert not (directory / "_metadata").exists()
