"""Native savepoints, the first checkpoint after NO_CLAIM and copied forks: the storage copies what is there."""

import logging
import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import obstore
import pytest
from obstore.exceptions import GenericError

from statelib.definition.columns import event_schema
from statelib.errors import CorruptStateError, StatelibError
from statelib.flows.checkpoint.snapshot_plan import plan_snapshot
from statelib.flows.checkpoint.steps import abort, check, register
from statelib.flows.cleanup.orphans import orphans
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.savepoint.fork import fork
from statelib.flows.savepoint.steps import begin_savepoint
from statelib.flows.wiring import Deployment
from statelib.formats.manifest.trailer import append_manifest
from statelib.formats.metadata.metadata_file import encode_metadata
from statelib.model.handles import IncrementalRemoteKeyedStateHandle, materialized_parts
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import CheckpointState, ClaimMode
from statelib.savepoints.opened import Checkpoint
from statelib.savepoints.verification.snapshots import verify_at
from statelib.spark.snapshot.subtask.worker import Work, snapshot_subtask
from statelib.storage import registry
from statelib.storage.retries import wait_never
from statelib.storage.uris import local_path
from tests.integration.garbage import needed, stored
from tests.integration.shop_cli import said
from tests.integration.test_fork import MERGING, clean, days, is_whole, opened, totals, write
from tests.support.s3_endpoint import S3Endpoint
from tests.support.worlds import new_deployment, publish_here

TRUNK, BRANCH = PipelineName("trunk"), PipelineName("branch")


@dataclass
class Copied:
    """The number of files that the storage copied by itself. If ``fails`` is set, it refuses to copy."""

    files: int = 0
    fails: bool = False


@pytest.fixture(params=["files", "s3"])
def place(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def deployment(request: pytest.FixtureRequest, tmp_path: Path, place: str) -> Deployment:
    (tmp_path / "pipelines").mkdir()
    deployment = new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")
    if place == "s3":
        deployment = replace(deployment, storage_root=f"s3://{request.getfixturevalue('bucket')}/state")
    return deployment


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> Copied:
    """Count the copies by the kernel and by the S3 client, which really happen."""
    result, on_files, on_objects = Copied(), os.copy_file_range, obstore.copy

    def counted(*arguments: object, **options: object) -> int:
        if result.fails:
            raise OSError(5, "Input/output error")
        if arguments[3] == 0:
            result.files += 1
        return on_files(*arguments, **options)

    def counted_object(*arguments: object, **options: object) -> None:
        if result.fails:
            raise GenericError("refused")
        result.files += 1
        on_objects(*arguments, **options)

    monkeypatch.setattr(os, "copy_file_range", counted)
    monkeypatch.setattr(obstore, "copy", counted_object)
    return result


def saved(deployment: Deployment, target: str | None = None, key: str = "k") -> Checkpoint:
    """Take a native savepoint that passes the gate."""
    pipeline = deployment.pipeline(TRUNK)
    begun = begin_savepoint(deployment, pipeline, format="native", target=target, note="", owner="t", key=key)
    publish_here(deployment, pipeline, begun.checkpoint_id)
    assert check(deployment, pipeline, begun.checkpoint_id).passed
    register(deployment, pipeline, begun.checkpoint_id)
    return opened(deployment, TRUNK, begun.checkpoint_id)


def contents(snapshot: Checkpoint) -> list[tuple[int, int, int | None]]:
    """Return size and checksums of each file of a snapshot."""
    assert snapshot.manifest is not None
    return [(f.size_bytes, f.crc32c, f.xxh3) for f in snapshot.manifest.files]


def tables(snapshot: Checkpoint) -> set[tuple[int, int, int | None]]:
    """Return size and checksums of each RocksDB table of a snapshot."""
    handles = [part for handle in snapshot.handles() for part in materialized_parts(handle)]
    streams = [pair for handle in handles for pair in (*handle.shared, *handle.private)]
    return {snapshot.identities()[stream.path] for name, stream in streams if name.endswith(".sst")}


def elsewhere(deployment: Deployment) -> str:
    """Return a user's directory for savepoints: beside the storage's root, on the same disk or in the same bucket."""
    return f"{deployment.root_uri()}-mine"


def removed(deployment: Deployment, directory: str) -> None:
    for file in deployment.remover().list_files(directory):
        deployment.remover().remove_file(f"{directory}/{file.path}", [directory])


def restored(deployment: Deployment, snapshot: Checkpoint) -> None:
    pipeline = deployment.pipeline(TRUNK)
    apply_restore(
        deployment, pipeline, plan_restore(deployment, pipeline, snapshot.directory, None, ClaimMode.NO_CLAIM), "test"
    )


def head(deployment: Deployment, name: str = TRUNK) -> int:
    head_id = deployment.catalog().head(PipelineName(name)).head
    assert head_id is not None
    return head_id


def test_a_native_savepoint_is_copied_and_outlives_its_checkpoint(deployment: Deployment, copied: Copied) -> None:
    write(deployment, TRUNK, "rocksdb", "incremental")
    days(deployment, TRUNK, 1, 3)
    base = opened(deployment, TRUNK, 3)
    snapshot = saved(deployment)
    assert snapshot.manifest is not None
    assert base.manifest is not None
    assert snapshot.manifest.restored_from == ("copied", "copied"), "nothing was restored"
    assert copied.files == len(base.manifest.files) - 2 > 8, "the two streams with the header are written"
    assert sorted(contents(snapshot)) == sorted(contents(base))
    days(deployment, TRUNK, 4, 6)
    clean(deployment)
    assert deployment.catalog().get(TRUNK, CheckpointId(3)).state is CheckpointState.DELETED
    is_whole(deployment)
    assert totals(deployment, TRUNK, snapshot.manifest.checkpoint_id) == {3}
    restored(deployment, snapshot)
    days(deployment, TRUNK, 4, 4)
    assert totals(deployment, TRUNK, head(deployment)) == {4}


@pytest.mark.parametrize("strategy", ["incremental", f"incremental, {MERGING}", "changelog"])
def test_the_first_checkpoint_after_no_claim_is_copied(deployment: Deployment, copied: Copied, strategy: str) -> None:
    write(deployment, TRUNK, "rocksdb", strategy)
    days(deployment, TRUNK, 1, 2)
    snapshot = saved(deployment, elsewhere(deployment))
    restored(deployment, snapshot)
    copied.files = 0
    days(deployment, TRUNK, 3, 3)
    first = opened(deployment, TRUNK, head(deployment))
    assert copied.files == len(tables(first) & tables(snapshot)) > 1
    before = copied.files
    days(deployment, TRUNK, 4, 4)
    assert copied.files == before, "the next one refers to the copies"
    second = opened(deployment, TRUNK, head(deployment))
    assert {f.path for f in second.manifest.files} & {f.path for f in first.manifest.files}
    removed(deployment, snapshot.directory)
    for taken in (first, second):
        assert not verify_at(taken.directory, own=True, storage_root=deployment.storage_root).problems
    assert totals(deployment, TRUNK, head(deployment)) == {4}


@pytest.mark.parametrize(
    ("backend", "strategy"),
    [
        ("heap", "canonical"),
        ("rocksdb", "full"),
        ("rocksdb", "incremental"),
        ("rocksdb", f"incremental, {MERGING}"),
        ("heap", f"changelog, {MERGING}"),
    ],
)
def test_a_copied_fork_outlives_its_whole_source(
    deployment: Deployment, copied: Copied, backend: str, strategy: str
) -> None:
    for name in (TRUNK, BRANCH):
        write(deployment, name, backend, strategy)
    days(deployment, TRUNK, 1, 3)
    source = opened(deployment, TRUNK, 3)
    assert source.manifest is not None
    before = stored(deployment)
    said(deployment, "pipelines", "fork", "trunk/3", "branch", "--copy")
    copy = opened(deployment, BRANCH, 1)
    assert copy.manifest is not None
    new = {uri for uri in stored(deployment) - before if not uri.endswith("/_metadata")}
    assert copied.files == len(source.manifest.files) == len(new)
    assert new == {uri for uri in needed(deployment) if "/branch/" in uri and not uri.endswith("/_metadata")}
    assert (contents(copy), copy.manifest.origins) == (contents(source), ())
    assert all("/branch/" in file.path for file in copy.manifest.files)
    removed(deployment, f"{deployment.root_uri()}/trunk")
    assert totals(deployment, BRANCH, 1) == {3}
    days(deployment, BRANCH, 4, 5, amount=100)
    assert totals(deployment, BRANCH, 3) == {203}
    if strategy.startswith("incremental"):
        assert {f.path for f in opened(deployment, BRANCH, 2).manifest.files} & {f.path for f in copy.manifest.files}
    assert not verify_at(
        opened(deployment, BRANCH, 3).directory, own=True, storage_root=deployment.storage_root
    ).problems


def test_a_savepoint_outside_the_storage_can_be_forked_with_copies(deployment: Deployment) -> None:
    for name in (TRUNK, BRANCH):
        write(deployment, name, "rocksdb", "incremental")
    days(deployment, TRUNK, 1, 2)
    snapshot = saved(deployment, elsewhere(deployment))
    assert snapshot.manifest is not None
    source = deployment.catalog().get(TRUNK, snapshot.manifest.checkpoint_id)
    fork(deployment, deployment.pipeline(BRANCH), source, "test", copy=True)
    removed(deployment, snapshot.directory)
    assert totals(deployment, BRANCH, 1) == {2}


def test_files_that_the_storage_fails_to_copy_are_read_and_written(
    deployment: Deployment, copied: Copied, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(deployment, TRUNK, "rocksdb", "incremental")
    write(deployment, BRANCH, "rocksdb", "incremental")
    days(deployment, TRUNK, 1, 2)
    copied.fails = True
    monkeypatch.setattr(registry, "RETRIES", replace(registry.RETRIES, sleep=wait_never))
    snapshot = saved(deployment)
    warnings = [r for r in caplog.records if "failed to copy" in r.getMessage()]
    assert len(warnings) > 4
    assert all(record.levelno == logging.WARNING for record in warnings)
    restored(deployment, snapshot)
    days(deployment, TRUNK, 3, 3)
    fork(
        deployment,
        deployment.pipeline(BRANCH),
        deployment.catalog().get(TRUNK, CheckpointId(head(deployment))),
        "test",
        copy=True,
    )
    is_whole(deployment)
    assert copied.files == 0
    assert (totals(deployment, TRUNK, head(deployment)), totals(deployment, BRANCH, 1)) == ({3}, {3})
    clean(deployment)
    assert stored(deployment) == needed(deployment), "nothing is left of the copies that failed"


@pytest.mark.parametrize("place", ["s3"])
def test_files_of_another_bucket_are_not_copied_by_the_storage(
    deployment: Deployment, copied: Copied, s3: S3Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    s3.make_bucket("for-savepoints")
    write(deployment, TRUNK, "rocksdb", "incremental")
    days(deployment, TRUNK, 1, 2)
    with caplog.at_level(logging.INFO, "statelib"):
        snapshot = saved(deployment, "s3://for-savepoints/mine")
    assert copied.files == 0
    assert [r for r in caplog.records if "cannot copy it to where the snapshot lies" in r.getMessage()]
    assert not verify_at(snapshot.directory, own=True).problems


@pytest.mark.parametrize("place", ["files"])
def test_a_damaged_original_is_detected_in_the_copy(deployment: Deployment) -> None:
    write(deployment, TRUNK, "rocksdb", "incremental")
    days(deployment, TRUNK, 1, 2)
    uri = next(f.path for f in opened(deployment, TRUNK, 2).manifest.files if "/shared/" in f.path)
    with open(local_path(uri), "r+b") as file:
        file.seek(100)
        byte = file.read(1)[0]
        file.seek(100)
        file.write(bytes([byte ^ 1]))
    with pytest.raises(CorruptStateError) as caught:
        saved(deployment)
    assert caught.value.kind == "gate-failed"


@pytest.mark.parametrize("place", ["files"])
def test_a_manifest_cannot_make_the_storage_copy_foreign_files(deployment: Deployment, tmp_path: Path) -> None:
    """A manifest that names a file outside of its directories is refused when files are copied, as it is in a
    restore."""
    write(deployment, TRUNK, "rocksdb", "incremental")
    days(deployment, TRUNK, 1, 2)
    base = opened(deployment, TRUNK, 2)
    uri = next(f.path for f in base.manifest.files if "/shared/" in f.path)
    shutil.copy(local_path(uri), tmp_path / "secret")
    metadata = Path(local_path(base.directory)) / "_metadata"
    hostile = replace_paths(base, uri, f"file://{tmp_path}/secret")
    metadata.write_bytes(hostile)
    pipeline = deployment.pipeline(TRUNK)
    begun = begin_savepoint(deployment, pipeline, format="native", target=None, note="", owner="t", key="k")
    with pytest.raises(StatelibError) as caught:
        publish_here(deployment, pipeline, begun.checkpoint_id)
    assert caught.value.kind == "outside-root"


def replace_paths(snapshot: Checkpoint, old: str, new: str) -> bytes:
    """Return the metadata of a snapshot with another file's path."""
    assert snapshot.manifest is not None
    (operator,) = snapshot.operators
    subtasks = []
    for number, state in operator.subtasks:
        handle = state.keyed
        assert isinstance(handle, IncrementalRemoteKeyedStateHandle)
        shared = tuple((n, replace(h, path=new) if h.path == old else h) for n, h in handle.shared)
        subtasks.append((number, replace(state, keyed=replace(handle, shared=shared))))
    files = tuple(replace(f, path=new) if f.path == old else f for f in snapshot.manifest.files)
    metadata = replace(snapshot.metadata, operators=(replace(operator, subtasks=tuple(subtasks)),))
    return append_manifest(encode_metadata(metadata), replace(snapshot.manifest, files=files))


def test_files_that_a_dead_attempt_copied_are_orphans(deployment: Deployment) -> None:
    write(deployment, TRUNK, "rocksdb", "incremental")
    days(deployment, TRUNK, 1, 2)
    pipeline = deployment.pipeline(TRUNK)
    begun = begin_savepoint(deployment, pipeline, format="native", target=None, note="", owner="t", key="k")
    plan = plan_snapshot(deployment, pipeline, begun.checkpoint_id)
    assert plan is not None
    before = stored(deployment)
    work, nothing = Work(deployment, pipeline, plan), event_schema(pipeline).empty_table()
    for subtask in (0, 1):
        snapshot_subtask(work, subtask, subtask, nothing)  # The driver dies before it publishes.
    left = stored(deployment) - before
    assert len(left) > 8
    abort(deployment, TRUNK, begun.checkpoint_id, "its driver died")
    orphan_files = {uri for each in orphans(deployment, dry_run=True) for uri in each.files}
    assert left <= orphan_files
    orphans(deployment, dry_run=False)
    assert not stored(deployment) & left
    is_whole(deployment)
