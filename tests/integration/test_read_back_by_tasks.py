"""A large checkpoint is read back by tasks of the Spark job, each of which reads what others wrote."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from statelib.definition.columns import key_array
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
from statelib.serializers.entries.keys import key_groups
from statelib.spark.snapshot import driver
from statelib.spark.snapshot.driver import run_snapshot
from statelib.storage.uris import local_path
from tests.integration.gate_rotation import NAME, facts_of, guests, new_world, run_day, taken
from tests.support.worlds import day, new_deployment, publish_here

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


def blind_world(root: Path, backend: str = "heap") -> Deployment:
    (root / "pipelines").mkdir()
    (root / "pipelines" / "blind.yaml").write_text(BLIND.replace("backend: heap", f"backend: {backend}"))
    return new_deployment(root, root, root / "pipelines")


def planned_days(deployment: Deployment, *days: pa.Table) -> list[Shares]:
    """Take a checkpoint of each day, and return how tasks would read it back."""
    pipeline, planned = deployment.pipeline("blind"), []
    for number, events in enumerate(days, 1):
        checkpoint_id = begin(deployment, pipeline, day(number), "test").checkpoint_id
        publish_here(deployment, pipeline, checkpoint_id, events)
        record = deployment.catalog().get(PipelineName("blind"), checkpoint_id)
        planned.append(shares_of(deployment, pipeline, record, deployment.open(record)))
        register(deployment, pipeline, checkpoint_id, check(deployment, pipeline, checkpoint_id).report_uri)
    return [each for each in planned if each is not None]


def amounts(guests_of_day: range) -> pa.Table:
    return pa.table({"guest": [f"g{n}" for n in guests_of_day], "amount": pa.array(guests_of_day, pa.int64())})


def assert_each_file_is_read(planned: Shares, scratch: Path) -> None:
    """Assert that the shares accept the files as they are, and refuse each of them with another last byte."""
    read_all(planned, scratch)
    for file in planned.reading.files:
        path = Path(local_path(file.path))
        data = path.read_bytes()
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        with pytest.raises(CorruptStateError):
            read_all(planned, scratch)
        path.write_bytes(data)


def test_tasks_read_deltas_and_the_state_with_which_they_were_merged(tmp_path: Path) -> None:
    everyone = amounts(range(60))
    _, added, merged = planned_days(blind_world(tmp_path), everyone, everyone, everyone)
    assert added.opened.manifest is not None
    assert len(added.opened.manifest.deltas) == 2
    assert 0 < len(added.reading.files) < len(added.opened.manifest.files), "the state itself is known"
    assert merged.opened.manifest is not None
    assert merged.opened.manifest.deltas == ()
    assert len(merged.reading.files) == len(merged.opened.manifest.files)
    for planned in (added, merged):
        assert_each_file_is_read(planned, tmp_path)


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_tasks_read_a_checkpoint_of_which_only_one_subtask_has_merged(tmp_path: Path, backend: str) -> None:
    deployment = blind_world(tmp_path, backend)
    everyone = amounts(range(60))
    groups = key_groups(deployment.pipeline("blind").schema(), key_array(deployment.pipeline("blind"), everyone))
    of_first = everyone.filter(pa.array(groups < 4))
    *_, mixed = planned_days(deployment, everyone, of_first, everyone)
    manifest = mixed.opened.manifest
    assert manifest is not None
    assert [delta.key_group_range.start for delta in manifest.deltas] == [4], "the other subtask has merged its delta"
    assert len(mixed.reading.files) == len(manifest.files)
    assert_each_file_is_read(mixed, tmp_path)


def test_a_wrong_statistic_of_a_delta_is_found_by_a_share(tmp_path: Path) -> None:
    everyone = amounts(range(60))
    _, added = planned_days(blind_world(tmp_path), everyone, everyone)
    manifest = added.opened.manifest
    assert manifest is not None
    for number, delta in enumerate(manifest.deltas):
        (first, *rest), deltas = delta.statistics, list(manifest.deltas)
        wrong = replace(first, digests=first.digests + np.uint64(1))
        deltas[number] = replace(delta, statistics=(wrong, *rest))
        forged = replace(added.opened, manifest=replace(manifest, deltas=tuple(deltas)))
        with pytest.raises(CorruptStateError) as caught:
            read_all(replace(added, opened=forged), tmp_path)
        assert caught.value.kind == "restore-mismatch"


def test_a_merged_state_is_read_whole_although_its_base_is_proved(tmp_path: Path) -> None:
    few = amounts(range(3))
    *_, merged = planned_days(blind_world(tmp_path, "rocksdb"), amounts(range(60)), few, few)
    assert merged.reading.key_groups is None, "nothing says how many entries it must have"


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


def test_the_job_reads_open_deltas_back(spark: SparkSession, tmp_path: Path) -> None:
    deployment = blind_world(tmp_path)
    file = Path(deployment.pipelines_directory) / "blind.yaml"
    file.write_text(file.read_text().replace('{path: "{data}/{start}-{end}"', '{format: parquet, path: "{data}/all"'))
    file.write_text(file.read_text().replace("columns:", "where: \"'{start}' < '{end}'\", columns:"))
    pipeline = deployment.pipeline("blind")
    (Path(deployment.data) / "all").mkdir()
    pq.write_table(amounts(range(60)), Path(deployment.data) / "all" / "part.parquet")
    for number in (1, 2):
        checkpoint_id = begin(deployment, pipeline, day(number), "test").checkpoint_id
        assert run_snapshot(spark, deployment, pipeline, checkpoint_id) is not None
        report = check(deployment, pipeline, checkpoint_id)
        assert any("by tasks of the Spark job" in sentence for r in report.results for sentence in r.sentences)
        register(deployment, pipeline, checkpoint_id, report.report_uri)
    manifest = deployment.open(deployment.catalog().get(PipelineName("blind"), checkpoint_id)).manifest
    assert manifest is not None
    assert manifest.read_by_job
    assert len(manifest.deltas) == 2


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
